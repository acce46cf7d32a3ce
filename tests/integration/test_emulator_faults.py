"""What goes wrong on demand in the emulator, each kind as its caller sees it; the names it answers to. (E10, P56)"""
import base64
import json
import socket
import subprocess
import threading
import time

import pytest
import requests

from harness import PATIENCE, binary, clean_env, until

RESUME = r"^/v2/sandboxes/[^/]+$"


def stdin(emu, box, command, **body):
    return emu.call("POST", f"{box.path}/cmd/{command}/stdin", body)


def b64(text):
    return base64.b64encode(text.encode()).decode()


def snapshots(emu):
    return [s["id"] for s in emu.call("GET", "/v2/sandboxes/snapshots", limit=50)["snapshots"]]


def test_evicted_snapshot(emu):
    """Resume of a sandbox whose current snapshot is gone, also after the rule has done its one act."""
    box = emu.create()
    emu.sh(box, "echo kept > f")
    emu.stop(box)
    assert len(snapshots(emu)) == 1
    emu.emulator.fault({"evict_snapshot": True}, method="GET", path_regex=RESUME, times=1)
    for _ in range(2):
        message = emu.refused(410, "snapshot_not_found", "GET", f"/v2/sandboxes/{box.name}", resume="true")
        assert "not found" in message
    assert snapshots(emu) == []
    assert emu.call("GET", f"/v2/sandboxes/{box.name}")["sandbox"]["name"] == box.name


def test_evicted_snapshot_by_id(emu):
    """A create from a snapshot that vanishes as it is asked for; a running descendant keeps its files."""
    box = emu.create()
    emu.sh(box, "echo kept > f")
    snapshot = emu.snapshot(box)["id"]
    child = emu.create(source={"type": "snapshot", "snapshotId": snapshot})
    emu.emulator.fault({"evict_snapshot": snapshot}, method="POST", path_regex="^/v3/sandboxes$", times=1)
    emu.create_refused(410, "snapshot_not_found", source={"type": "snapshot", "snapshotId": snapshot})
    assert emu.sh(child, "cat f") == "kept\n"
    emu.stop(child)
    assert emu.sh(emu.resume(child), "cat f") == "kept\n"


def test_sandbox_without_stdin_offsets(emu):
    box = emu.create()
    run = emu.call("POST", box.path + "/cmd", {"command": "cat", "attachStdin": True})["command"]["id"]
    assert stdin(emu, box, run, data=b64("one\n"), offset=0)["bytesWritten"] == 4
    emu.emulator.fault({"no_stdin_offsets": True}, path_regex="/stdin$")
    assert "bytesWritten" not in stdin(emu, box, run)
    for offset in (0, 999):  # neither skipped nor refused
        assert "bytesWritten" not in stdin(emu, box, run, data=b64("two\n"), offset=offset)
    assert "bytesWritten" not in stdin(emu, box, run, close=True)
    ended = emu.call("GET", f"{box.path}/cmd/{run}", wait="true")["command"]
    assert ended["exitCode"] == 0
    log = emu.request("GET", f"{box.path}/cmd/{run}/logs").text
    assert "".join(json.loads(line)["data"] for line in log.splitlines()) == "one\ntwo\ntwo\n"


@pytest.mark.parametrize("status,code", [(400, "bad_request"), (409, "conflict")])
def test_names_that_are_taken(emu, status, code):
    """3.2: today's 400 with its text, and the status that some clients were written for."""
    box = emu.create(name="taken")
    plain = emu.create_refused(400, "bad_request", name="taken")
    assert plain.startswith("A sandbox with the name 'taken' already exists for this project.")
    emu.emulator.fault({"name_conflict": status}, method="POST")
    assert emu.create_refused(status, code, name="taken") == plain
    assert emu.refused(status, code, "POST", f"/v2/sandboxes/{box.name}/fork", {"name": "taken"}) == plain
    emu.create_refused(400, "bad_request", name="no name")  # other refusals stay as they are


def test_too_many_requests(emu):
    emu.emulator.fault({"status": 429, "headers": {"Retry-After": "7"},
                        "body": {"error": {"code": "rate_limited", "message": "The concurrency limit has been exceeded."}}},
                       method="POST", times=2)
    for _ in range(2):
        answer = emu.request("POST", "/v3/sandboxes", {"projectId": emu.project})
        assert answer.status_code == 429 and answer.headers["Retry-After"] == "7"
        assert answer.json()["error"]["code"] == "rate_limited"
    emu.create()


@pytest.mark.parametrize("status", [500, 502, 503])
def test_server_errors_do_nothing(emu, status):
    emu.emulator.fault({"status": status}, nth=2, method="POST", path_regex="^/v3/sandboxes$")
    emu.create(name="first")
    emu.create_refused(status, f"fault_{status}", name="second")
    emu.create(name="third")
    assert emu.names() == ["first", "third"]


def test_answers_that_are_no_answers(emu):
    emu.emulator.fault({"html": 502}, times=1, path_regex=RESUME)
    emu.emulator.fault({"malformed": True}, times=1, path_regex=RESUME)
    box = emu.create()
    page = emu.request("GET", f"/v2/sandboxes/{box.name}")
    assert page.status_code == 502 and page.headers["Content-Type"].startswith("text/html") and "<html>" in page.text
    broken = emu.request("GET", f"/v2/sandboxes/{box.name}")
    assert broken.status_code == 200 and broken.headers["Content-Type"].startswith("application/json")
    with pytest.raises(ValueError):
        broken.json()
    assert emu.get(box).name == box.name


@pytest.mark.parametrize("action,done", [("lose_answer", True), ("close_before", False)])
def test_lost_answer(emu, action, done):
    """The call is carried out, or not; its caller cannot know."""
    emu.emulator.fault({action: True}, times=1, method="POST", path_regex="^/v3/sandboxes$")
    with pytest.raises(requests.exceptions.ConnectionError):
        emu.create(name="lost")
    assert emu.names() == (["lost"] if done else [])


def test_streams_are_cut_and_dripped(emu):
    box = emu.create()
    emu.emulator.fault({"cut_after_bytes": 100}, times=1, path_regex="/cmd$")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        emu.run(box, "seq 1000")
    emu.emulator.fault({"cut_after_ms": 300}, times=1, path_regex="/cmd$")
    began = time.monotonic()
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        emu.run(box, "echo here; sleep 50")
    assert 0.3 <= time.monotonic() - began < 30
    emu.emulator.fault({"drip_bytes": 100, "drip_ms": 20, "delay_ms": 200}, times=1, path_regex="/cmd$")
    began = time.monotonic()
    assert emu.sh(box, "seq 100") == "".join(f"{i}\n" for i in range(1, 101))
    assert time.monotonic() - began >= 0.3


def test_rules_come_and_go_under_requests(emu):
    """What a request took of a rule outlives the rule, and is its alone."""
    box = emu.create()
    body = {"body": {"n": [1]}, "headers": {"X-A": "b"}, "content_type": "text/x", "status": 503}
    url, params = f"{emu.emulator.url}/v2/sandboxes/{box.name}", {"project": emu.project}
    token = {"Authorization": "Bearer " + emu.emulator.token}
    stop, wrong = threading.Event(), []

    def ask_on():
        while not stop.is_set() and not wrong:
            answer = requests.get(url, params=params, headers=token, timeout=PATIENCE)
            if answer.status_code == 503:
                if answer.json() != {"n": [1]} or answer.headers["X-A"] != "b" or answer.headers["Content-Type"] != "text/x":
                    wrong.append(answer.text)
            elif answer.status_code != 200:
                wrong.append(answer.text)

    threads = [threading.Thread(target=ask_on) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(40):
        emu.emulator.fault(body, path_regex=RESUME)
        emu.emulator.admin("GET", "faults")
        emu.emulator.clear_faults()
    stop.set()
    for t in threads:
        t.join(PATIENCE)
    assert not wrong


# --- the plan in a file ---


def test_plan_file(own_emulator, tmp_path):
    """In force from the first request on, also where the admin endpoint is off."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"rules": [{"match": {"method": "POST"}, "times": 1, "action": {"status": 503}},
                                          {"match": {"method": "POST"}, "nth": 2, "action": {"lose_answer": True}}]}))
    emu = own_emulator("--faults", plan)
    emu.create_refused(503, "fault_503")
    with pytest.raises(requests.exceptions.ConnectionError):
        emu.create(name="lost")
    assert emu.names() == ["lost"]
    assert [r["fired"] for r in emu.emulator.admin("GET", "faults")["rules"]] == [1, 1]


@pytest.mark.parametrize("text,says", [
    ('{"rules": [\n  {"action": {"status": 503}},\n  {"action": }\n]}', "is no JSON: line 3 column 14: "),
    ("", "is no JSON: line 1 column 0: "),
    ('[{"action": {"status": 503}}, {"action": {"stattus": 1}}]', "rule 2: Invalid request: `action` should NOT have"),
    ('{"match": {"path": "("}, "action": {}}', "rule 1: "),
    ("[1]", "rule 1: "),
    (None, "cannot read the fault plan "),
])
def test_bad_plan(tmp_path, base, text, says):
    plan = tmp_path / "plan.json"
    if text is not None:
        plan.write_text(text)
    done = subprocess.run([binary("sandgate-emulator"), "serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "state",
                           "--base-from", base, "--faults", plan], env=clean_env(), capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 64 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("sandgate-emulator: ") and says in lines[0] and str(plan) in lines[0]


# --- names ---


def ask(emulator, path, *hosts):
    """Status and body of a GET with these Host headers, as they are."""
    with socket.create_connection(("127.0.0.1", int(emulator.url.rsplit(":", 1)[1])), PATIENCE) as s:
        lines = [f"GET {path} HTTP/1.0"] + [f"Host: {h}" for h in hosts] + [f"Authorization: Bearer {emulator.token}", "", ""]
        s.sendall("\r\n".join(lines).encode())
        answer = b""
        while more := s.recv(65536):
            answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def test_foreign_names_are_refused(emulator):
    """P56: DNS rebinding: a page whose name leads here gets nothing, with the token or without."""
    port = emulator.url.rsplit(":", 1)[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]", "vercel.com", "api.vercel.com", "127.1.2.3"):
        assert ask(emulator, "/_emulator/health", host)[0] == 200, host
    for path in ("/_emulator/health", "/health", "/v2/sandboxes?project=prj_x", "/login/device", "/_emulator/journal", "/none"):
        for hosts in (("evil.example",), (f"evil.example:{port}",), ("127.0.0.1.evil.example",), ("10.0.0.1",), ("",), ()):
            status, body = ask(emulator, path, *hosts)
            error = json.loads(body)["error"]
            assert status == 421 and error["code"] == "misdirected_request" and "--host NAME" in error["message"], hosts
    assert not [e for e in emulator.journal() if e["status"] == 421]


def test_own_names(own_emulator):
    emulator = own_emulator("--host", "emulator,box.test").emulator
    assert ask(emulator, "/health", "emulator:8799")[0] == ask(emulator, "/health", "Box.Test")[0] == 200
    assert ask(emulator, "/health", "test")[0] == 421


# --- an end that is told by standard input ---


@pytest.mark.parametrize("word,code", [(b"", 0), (b"T", 0), (b"K", 137)])
def test_stop_by_input(tmp_path, base, word, code):
    """For a parent that may not signal its child: the end of input ends sandboxes politely, a K ends it at once."""
    child = subprocess.Popen([binary("sandgate-emulator"), "serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "state",
                              "--base-from", base, "--json", "--stop-on-eof"], env=clean_env(), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with child:
        try:
            assert json.loads(child.stdout.readline())["url"]
            child.stdin.write(word)
            child.stdin.flush()
            if not word:
                child.stdin.close()
            assert until(lambda: child.poll() is not None, "the emulator ends") and child.returncode == code
        finally:
            if child.poll() is None:
                child.kill()
