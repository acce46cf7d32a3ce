"""`sandgate dev` as root: the emulator stays root, the gateway becomes somebody else for good, and yet ends it. (D7)

Where the tests do not run as root, the gateway stays who it is.
"""
import json
import os
import pathlib
import pwd
import signal
import socket
import subprocess

import pytest
import requests

from harness import PATIENCE, binary, clean_env, until
from test_readme import CACHE, family, still

ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")


class Dev:
    def __init__(self, tmp, listen="127.0.0.1:0", **env):
        self.state, self.log = tmp / "state", tmp / "dev.log"
        environment = clean_env(SANDGATE_SERVER_LOG_FORMAT="json", **env)
        if not env:
            environment.pop("SUDO_UID", None)
        with open(self.log, "w") as log:
            self.child = subprocess.Popen([binary("sandgate"), "dev", "--listen", listen, "--state", self.state, "--base",
                                           CACHE / "base.tar", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=log, env=environment, text=True)
        line = self.child.stdout.readline()
        assert line, self.text()
        self.ready = json.loads(line)
        self.family = family(self.child.pid)
        self.emulator = next(pid for pid in self.family if pid != self.child.pid and parent(pid) == self.child.pid)

    def text(self):
        return self.log.read_text()

    def call(self, method, path, body=None):
        answer = requests.request(method, self.ready["url"] + path, json=body, timeout=PATIENCE,
                                  headers={"Authorization": "Bearer " + self.ready["token"]})
        assert answer.status_code < 300, answer.text
        return answer.json()

    def sandbox(self):
        self.call("POST", "/v1/sandboxes", {"name": "demo"})
        assert self.call("POST", "/v1/sandboxes/demo/run", {"argv": ["id", "-un"]})["stdout"]
        self.call("POST", "/v1/sandboxes/demo/processes", {"argv": ["sleep", "600"]})
        self.family = family(self.child.pid)

    def nothing_left(self):
        until(lambda: not any(still(pid, start) for pid, start in self.family.items()), "everything has ended")
        return str(self.state) not in pathlib.Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def dev(tmp_path):
    made = []

    def make(**options):
        made.append(Dev(tmp_path, **options))
        return made[-1]

    yield make
    for d in made:
        if d.child.poll() is None:
            d.child.send_signal(signal.SIGTERM)
            d.child.wait(PATIENCE)
        d.child.stdout.close()


def fields(task):
    lines = (pathlib.Path("/proc") / str(task) / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def parent(pid):
    return int(fields(pid)["PPid"])


def is_user(pid, uid, gid):
    """In every thread, with no other group, no capability and no way to get one."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        f = fields(task)
        assert f["Uid"].split() == [str(uid)] * 4 and f["Gid"].split() == [str(gid)] * 4
        assert f["Groups"].split() == []
        assert int(f["CapPrm"], 16) == int(f["CapEff"], 16) == int(f["CapAmb"], 16) == 0
        assert f["NoNewPrivs"] == "1"
    return True


@pytest.mark.parametrize("env,user", [({}, (NOBODY.pw_uid, NOBODY.pw_gid)),
                                      ({"SUDO_UID": "12345", "SUDO_GID": "12346"}, (12345, 12346)),
                                      ({"SUDO_UID": "0", "SUDO_GID": "0"}, (NOBODY.pw_uid, NOBODY.pw_gid)),
                                      ({"SUDO_UID": "x", "SUDO_GID": "-1"}, (NOBODY.pw_uid, NOBODY.pw_gid))])
def test_the_gateway_is_not_root(dev, env, user):
    """And Ctrl-C still ends what it may not signal: with exit status 0 and nothing left."""
    d = dev(**env)
    d.sandbox()
    if ROOT:
        assert is_user(d.child.pid, *user)
        assert fields(d.emulator)["Uid"].split() == ["0"] * 4
    else:
        assert fields(d.child.pid)["Uid"].split() == [str(os.geteuid())] * 4
    d.child.send_signal(signal.SIGINT)
    assert d.child.wait(PATIENCE) == 0, d.text()
    assert d.nothing_left()


def test_what_processes_said_is_kept_in_the_state_directory_P09(dev):
    """Also by a gateway that is another user by now; whoever stops and starts again finds it."""
    d = dev()
    d.call("POST", "/v1/sandboxes", {"name": "demo"})
    ran = d.call("POST", "/v1/sandboxes/demo/run", {"argv": ["echo", "kept"]})
    d.call("POST", "/v1/sandboxes/demo/stop", {})
    assert "process not saved" not in d.text() and "store unavailable" not in d.text()
    assert (d.state / "gateway.db").stat().st_mode & 0o777 == 0o600
    path = f"/v1/sandboxes/demo/processes/{ran['process_id']}"
    assert d.call("GET", path)["session_id"] == ran["session_id"]
    d.child.send_signal(signal.SIGTERM)
    assert d.child.wait(PATIENCE) == 0
    again = dev()
    assert again.call("GET", path)["exit_code"] == 0
    answer = requests.get(again.ready["url"] + path + "/output", timeout=PATIENCE,
                          headers={"Authorization": "Bearer " + again.ready["token"]})
    assert (answer.status_code, answer.content) == (200, b"kept\n")


def test_the_emulator_ends_with_a_killed_gateway(dev):
    d = dev()
    d.sandbox()
    d.child.kill()
    d.child.wait(PATIENCE)
    assert d.nothing_left()


def test_a_second_signal_does_not_wait(dev):
    """Though the emulator does not even listen at that moment."""
    d = dev()
    os.kill(d.emulator, signal.SIGSTOP)
    try:
        d.child.send_signal(signal.SIGINT)
        d.child.send_signal(signal.SIGTERM)
        assert d.child.wait(PATIENCE) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    finally:
        if still(d.emulator, d.family[d.emulator]):
            os.kill(d.emulator, signal.SIGCONT)
    assert d.nothing_left()


def privileged_port():
    """A free one that needs root, where we are root; else any."""
    for port in range(1023, 899, -1) if ROOT else (0,):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return s.getsockname()[1]
    raise AssertionError("no free port below 1024")


def test_a_port_that_needs_root(dev):
    port = privileged_port()
    d = dev(listen=f"127.0.0.1:{port}")
    assert d.ready["url"] == f"http://127.0.0.1:{port}"
    d.sandbox()
    assert not ROOT or is_user(d.child.pid, NOBODY.pw_uid, NOBODY.pw_gid)
