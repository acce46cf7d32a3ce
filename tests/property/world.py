"""One emulator and several gateway processes on fixed ports, which a case may kill and which come back."""
import os
import pathlib
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from exact import Cut, Endpoint  # noqa: E402
from harness import Emulator, Gateway, Process, until  # noqa: E402


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Replica(Gateway):
    """A gateway that can be killed and started again: same port, same state, same tokens."""

    def __init__(self, directory, emulator, port=None, **env):
        self.port = port or free_port()
        super().__init__(directory, emulator.url, emulator.token, {"SERVER_LISTEN": f"127.0.0.1:{self.port}", **env})
        self.lock = threading.Lock()
        self.endpoint = Endpoint(self.url, self.token)
        self.kills = 0

    def listening(self):
        """Of this process, not of one before it in the same log."""
        assert self.alive(), f"the gateway ended with {self.child.returncode}:\n{self.text()[-6000:]}"
        seen = [e for e in self.events("listening") if e.get("pid", self.child.pid) == self.child.pid]
        return len(seen) > getattr(self, "starts", 0) and seen[-1]["url"]

    def events(self, name):
        return [e for e in super().events(name)]

    def bounce(self, number=signal.SIGKILL):
        """Ends it by a signal and starts it again.  By SIGTERM it must end cleanly."""
        with self.lock:
            assert self.alive(), f"the gateway ended by itself with {self.child.returncode}:\n{self.text()[-6000:]}"
            self.child.send_signal(number)
            code = self.child.wait(60)
            assert code == (-number if number == signal.SIGKILL else 0), f"{code}:\n{self.text()[-6000:]}"
            self.kills += 1
            self.starts = len(self.events("listening"))
            Process.__init__(self, *self.command)
            until(self.listening, "the gateway listens again")


class World:
    """world.endpoints() are the gateways, every second one with short times and little memory; world.box() a new sandbox that has the helper already."""

    def __init__(self, directory, base, replicas=2, **env):
        self.emulator = Emulator(directory / "emulator", base)
        own = {"STORE_STATE_FILE": directory / "state.db", **env}  # one for all of them
        hurried = {"RELAY_QUIET_MS": 300, "RELAY_RING_BYTES": 1 << 20, "RELAY_KEEPALIVE_MS": 300, "SERVER_PING_MS": 300}
        self.replicas = [Replica(directory / f"gateway{i}", self.emulator, **own, **(hurried if i % 2 else {}))
                         for i in range(replicas)]
        self.lock, self.rules = threading.Lock(), 0
        self.boxes = []

    def endpoints(self):
        return [r.endpoint for r in self.replicas]

    def call(self, method, path, body=None, status=(200, 201, 204), patience=60):
        """A call that may be repeated, to any gateway that answers."""
        deadline = time.monotonic() + patience
        n = 0
        while True:
            endpoint = self.replicas[n % len(self.replicas)].endpoint
            n += 1
            try:
                got, document = endpoint.json(method, path, body)
                if got in status:
                    return document
                problem = f"{got} {document}"
                again = got in (429, 500, 502, 503, 504)
            except Cut as e:
                problem, again = str(e), True
            assert again and time.monotonic() < deadline, f"{method} {path}: {problem}"
            time.sleep(0.1)

    def box(self, name):
        self.call("POST", "/v1/sandboxes", {"name": name, "if_exists": "get", "timeout_ms": 2700000})
        with self.lock:
            self.boxes.append(name)
        return name

    def put(self, box, path, data):
        """Written before the faults of a case begin."""
        deadline = time.monotonic() + 60
        while True:
            for replica in self.replicas:
                try:
                    r = replica.endpoint.request("PUT", f"/v1/sandboxes/{box}/files/content", {"path": path, "parents": "true"},
                                                 {"Content-Type": "application/octet-stream"}, bytes(data))
                    body = r.read()
                    r.connection.close()
                    status = r.status
                    if status == 202:
                        status, body = replica.endpoint.end_of(r.getheader("Location"))
                    if status in (201, 204):
                        return
                    assert status in (429, 500, 502, 503, 504), body
                except Cut:
                    pass
            assert time.monotonic() < deadline, f"{path} cannot be written"
            time.sleep(0.1)

    def session(self, box):
        return self.call("GET", f"/v1/sandboxes/{box}")["session_id"]

    # ---- straight at the emulator: what really happened ----

    def upstream(self, method, path, **kw):
        query = {"teamId": "team_local", "projectId": "prj_local"}
        answer = self.emulator.http.request(method, self.emulator.url + path, params=query, timeout=60, **kw)
        return answer

    def commands(self, session):
        """[(subcommand of the helper, its arguments)] of the session."""
        answer = self.upstream("GET", f"/v2/sandboxes/sessions/{session}/cmd")
        assert answer.status_code == 200, answer.text
        found = []
        for c in answer.json()["commands"]:
            args = list(c["args"])
            if args[:1] == ["--install"]:
                args = args[2:]
            found.append((args[0], args[1:]))
        return found

    def starts(self, session, pid):
        """How many commands that may start a program carried this id."""
        return sum(1 for name, args in self.commands(session)
                   if name in ("run", "start") and "--id" in args and args[args.index("--id") + 1] == pid)

    def file(self, session, path):
        """A file in the sandbox, read past all gateways."""
        answer = self.upstream("POST", f"/v2/sandboxes/sessions/{session}/fs/read", json={"path": path})
        assert answer.status_code == 200, answer.text
        return answer.content

    def fault(self, rules):
        """Rules that name their session, so that cases do not disturb one another; old ones are forgotten in time."""
        with self.lock:
            if self.rules + len(rules) > 200:
                self.emulator.clear_faults()
                self.rules = 0
            self.rules += len(rules)
            if rules:
                self.emulator.admin("POST", "faults", json=rules)

    def fault_free(self):
        with self.lock:
            self.emulator.clear_faults()
            self.rules = 0

    def drop_box(self, box):
        self.upstream("DELETE", f"/v2/sandboxes/{box}", )
        with self.lock:
            self.boxes.remove(box)

    def end(self):
        self.fault_free()
        for box in list(self.boxes):
            self.upstream("DELETE", f"/v2/sandboxes/{box}")
        codes = {}
        for i, replica in enumerate(self.replicas):
            codes[f"gateway {i}"] = (replica.end(), replica)
        codes["emulator"] = (self.emulator.end(), self.emulator)
        bad = "\n".join(f"{name} ended with {code}:\n{p.text()[-6000:]}" for name, (code, p) in codes.items() if code)
        assert not bad, bad


def rss(pid):
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
