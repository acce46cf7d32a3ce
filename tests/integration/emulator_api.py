"""The emulator's API without anything in between: one project per test, removed with all it holds at the end.

    def test_it(emu):
        box = emu.create(name="a")
        assert emu.sh(box, "echo hi") == "hi\\n"
        emu.refused(404, "not_found", "GET", "/v2/sandboxes/none")
"""
import json

from harness import PATIENCE


class Box:
    """A sandbox's name and its session at the time of the answer."""

    def __init__(self, answer):
        self.sandbox, self.session, self.routes = answer["sandbox"], answer["session"], answer.get("routes")
        self.name, self.id = self.sandbox["name"], self.session["id"]
        self.path = "/v2/sandboxes/sessions/" + self.id


class Api:
    def __init__(self, emulator, project):
        self.emulator, self.project = emulator, project

    def request(self, method, path, body=None, **query):
        params = {"teamId": "team_local", "projectId": self.project, "project": self.project, **query}
        return self.emulator.http.request(method, self.emulator.url + path, params=params, timeout=PATIENCE,
                                          data=None if body is None else json.dumps(body),
                                          headers={"Content-Type": "application/json"})

    def call(self, method, path, body=None, status=200, **query):
        answer = self.request(method, path, body, **query)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def refused(self, status, code, method, path, body=None, **query):
        """The message of the documented error."""
        error = self.call(method, path, body, status=status, **query)["error"]
        assert error["code"] == code, error
        return error["message"]

    def create(self, version=3, **body):
        return Box(self.call("POST", f"/v{version}/sandboxes", {"projectId": self.project, **body}))

    def create_refused(self, status, code, version=3, **body):
        """Nothing may be left behind either."""
        before = self.names()
        message = self.refused(status, code, "POST", f"/v{version}/sandboxes", {"projectId": self.project, **body})
        assert self.names() == before
        return message

    def names(self):
        return sorted(s["name"] for s in self.call("GET", "/v2/sandboxes", limit=50)["sandboxes"])

    def get(self, box):
        return Box(self.call("GET", f"/v2/sandboxes/{box.name}"))

    def resume(self, box):
        return Box(self.call("GET", f"/v2/sandboxes/{box.name}", resume="true"))

    def stop(self, box):
        return self.call("POST", box.path + "/stop")

    def snapshot(self, box, version=2, **body):
        path = box.path.replace("/v2/", f"/v{version}/")
        return self.call("POST", path + "/snapshot", body, status=201)["snapshot"]

    def patch(self, box, **body):
        return self.call("PATCH", f"/v2/sandboxes/{box.name}", body)["sandbox"]

    def fork(self, box, version=2, **body):
        return Box(self.call("POST", f"/v{version}/sandboxes/{box.name}/fork", body))

    def drive(self, name, status=201, **body):
        return self.call("POST", f"/v2/sandboxes/drives/{name}", {"projectId": self.project, **body}, status=status)["drive"]

    def get_drive(self, name):
        return self.call("GET", f"/v2/sandboxes/drives/{name}")["drive"]

    def run(self, box, line, **body):
        """Exit code, stdout and stderr of a shell line."""
        answer = self.request("POST", box.path + "/cmd", {"command": "sh", "args": ["-c", line], "wait": True, "logs": True,
                                                          **body})
        assert answer.status_code == 200, answer.text
        lines = [json.loads(part) for part in answer.text.splitlines() if part]
        text = {s: "".join(part["data"] for part in lines if part.get("stream") == s) for s in ("stdout", "stderr")}
        return lines[-1]["command"]["exitCode"], text["stdout"], text["stderr"]

    def sh(self, box, line, **body):
        code, out, err = self.run(box, line, **body)
        assert code == 0, err
        return out

    def clean_up(self):
        for name in self.names():
            self.request("DELETE", f"/v2/sandboxes/{name}", deleteOrphanSnapshots="true")
        for d in self.call("GET", "/v2/sandboxes/drives", limit=50)["drives"]:
            self.call("DELETE", f"/v2/sandboxes/drives/{d['name']}")
