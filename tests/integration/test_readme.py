"""The README's lines work when pasted, in the order in which they stand; `sandgate dev` cleans up after itself."""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SANDGATE_BUILD", ROOT / "build" / "asan"))
CACHE = pathlib.Path(os.environ.get("SANDGATE_CACHE", "/var/cache/sandgate" if os.geteuid() == 0
                                    else os.path.expanduser("~/.cache/sandgate")))
BLOCK = re.compile(r"<!-- test: (\w+) -->\n```sh\n(.*?)```", re.S)


class Dev:
    """`sandgate dev --json` with a state directory of its own."""

    def __init__(self, state):
        self.state, self.log = state, open(state.with_suffix(".log"), "w+")
        self.child = subprocess.Popen([BUILD / "server" / "sandgate", "dev", "--listen", "127.0.0.1:0", "--state", state,
                                       "--base", CACHE / "base.tar", "--json"], stdout=subprocess.PIPE, stderr=self.log,
                                      text=True)
        line = self.child.stdout.readline()
        assert line, self.stderr()
        self.ready = json.loads(line)

    def stderr(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def end(self, signal_number):
        self.child.send_signal(signal_number)
        return self.child.wait(60)


@pytest.fixture
def dev(tmp_path):
    d = Dev(tmp_path / "state")
    yield d
    if d.child.poll() is None:
        d.end(signal.SIGTERM)


def pasting(dev):
    """A newcomer's environment: the distribution's python3, and what `make run` printed."""
    return {**os.environ, "PATH": "/usr/bin:" + os.environ["PATH"], "URL": dev.ready["url"], "TOKEN": dev.ready["token"]}


def paste(dev, text):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], env=pasting(dev), cwd=ROOT, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout + dev.stderr()
    return done.stdout


def test_readme_lines_work_when_pasted(dev):
    """C2: a file is still there after stop and resume; C7: the exit code is in the answer."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert [kind for kind, _ in blocks] == ["quickstart", "quickstart", "stream", "input", "quickstart"]
    created = paste(dev, blocks[0][1])
    assert '"name":"demo"' in created.replace(" ", "") and "Linux" in created
    assert paste(dev, blocks[1][1]).endswith("kept across stop and resume")
    assert paste(dev, blocks[2][1]) == "1\n2\n3\n"
    digest = hashlib.sha256((ROOT / "README.md").read_bytes()).hexdigest()
    assert paste(dev, blocks[3][1]) == f"{digest}  -\n"
    assert "kept across stop and resume" in paste(dev, blocks[4][1])
    gone = paste(dev, 'curl -sS -H "Authorization: Bearer $TOKEN" "$URL/v1/sandboxes/demo"')
    assert json.loads(gone)["code"] == "sandbox_not_found"


def test_example_shows_each_line_as_it_is_printed(dev):
    paste(dev, """curl -sS -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' """
               """-d '{"name":"demo"}' "$URL/v1/sandboxes" """)
    with subprocess.Popen(["python3", "docs/examples/stream.py", "demo",
                           "for i in 1 2 3; do echo $i; sleep 1; done; exit 7"], env=pasting(dev), cwd=ROOT,
                          stdout=subprocess.PIPE, text=True) as example:
        seen = [(time.monotonic(), line) for line in example.stdout]
        assert example.wait(30) == 7
    assert [line for _, line in seen] == ["1\n", "2\n", "3\n"]
    assert seen[1][0] - seen[0][0] > 0.5 and seen[2][0] - seen[1][0] > 0.5, "lines came together, not as printed"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_dev_leaves_nothing_behind(dev, signal_number):
    """Ctrl-C ends gateway, emulator and sandboxes: no process, no mount, no namespace."""
    paste(dev, """curl -sS -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' """
               """-d '{"name":"demo"}' "$URL/v1/sandboxes" """)
    paste(dev, """curl -sS -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' """
               """-d '{"argv":["sleep","600"]}' "$URL/v1/sandboxes/demo/processes" """)
    before = family(dev.child.pid)
    assert len(before) >= 3, before
    assert dev.end(signal_number) == 0, dev.stderr()
    left = {pid: name for pid, name in before.items() if still(pid, name)}
    assert not left
    assert str(dev.state) not in pathlib.Path("/proc/self/mountinfo").read_text()


def family(root):
    """pid → start time of a process and all its descendants."""
    parents, started = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], started[int(entry.name)] = int(fields[1]), fields[19]
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return {pid: started[pid] for pid in found if pid in started}
        found |= more


def still(pid, start):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == start and fields[0] != "Z"
