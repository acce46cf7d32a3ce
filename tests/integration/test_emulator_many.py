"""Many sandboxes at once, and many one after another: nothing is mixed up and nothing is left (issue: concurrency)."""
import concurrent.futures
import os
import pathlib
import threading

import pytest
import requests

from emulator_api import Api
from harness import PATIENCE, until

MANY = 200
CYCLES = 1000 if os.environ.get("SANDGATE_LONG") else 100
WORKERS = 12


class Parallel(Api):
    """An Api that threads may share: a connection for each."""

    def __init__(self, api):
        super().__init__(api.emulator, api.project)
        self.local = threading.local()

    def request(self, method, path, body=None, **query):
        if not hasattr(self.local, "http"):
            self.local.http = requests.Session()
            self.local.http.trust_env = False
            self.local.http.headers["Authorization"] = "Bearer " + self.emulator.token
        params = {"projectId": self.project, "project": self.project, **query}
        return self.local.http.request(method, self.emulator.url + path, params=params, json=body, timeout=4 * PATIENCE,
                                       headers={"Content-Type": "application/json"})

    def away(self, box):
        self.call("DELETE", f"/v2/sandboxes/{box.name}", deleteOrphanSnapshots="true")


def descendants(root):
    """pid → state of every process below this one."""
    parents, states = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                rest = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # ended meanwhile
            parents[int(entry.name)], states[int(entry.name)] = int(rest[1]), rest[0]

    def below(pid):
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return {pid: states[pid] for pid in parents if pid != root and below(pid)}


def footprint(emulator):
    """What an idle emulator holds: processes, descriptors of each that stays, mounts, directories of its state."""
    root = emulator.child.pid
    below = descendants(root)
    proc = pathlib.Path("/proc")
    state = emulator.log.parent / "state"
    return {
        "processes": len(below),
        "zombies": sum(s == "Z" for s in below.values()),
        "descriptors": sorted(len(list((proc / str(pid) / "fd").iterdir())) for pid in [root, *below]),
        "mounts": [len((proc / str(pid) / "mountinfo").read_text().splitlines()) for pid in (root, "self")],
        "threads": len(list((proc / str(root) / "task").iterdir())),
        "sessions": sorted(p.name for p in (state / "sessions").iterdir()),
        "layers": sorted(p.name for p in (state / "layers").iterdir()),
        "trash": sorted(p.name for p in (state / "trash").iterdir()),
        # of a deleted snapshot a line stays, which says so to whoever asks for it
        "objects": sorted(p.name for p in (state / "meta").iterdir() if not p.name.startswith("snapshot-")),
    }


def connections(emulator):
    """How many TCP connections the emulator holds, those that are just being closed included."""
    root = pathlib.Path("/proc") / str(emulator.child.pid)
    held = set()
    for entry in (root / "fd").iterdir():
        try:
            held.add(os.readlink(entry))
        except OSError:
            continue  # closed meanwhile
    lines = [line.split() for table in ("tcp", "tcp6") for line in (root / "net" / table).read_text().splitlines()[1:]]
    return sum(f"socket:[{line[9]}]" in held for line in lines if line[3] != "0A")  # listening


def at_rest(emulator):
    """The footprint before: of an emulator that has closed every connection and has no deletion left to do."""
    state = emulator.log.parent / "state"
    until(lambda: not connections(emulator) and not any((state / "sessions").iterdir()) and not any((state / "trash").iterdir()),
          "the emulator is at rest")
    return footprint(emulator)


def settles(emulator, before):
    """Connections and deletions may still be ending; nothing may be left in the end."""
    last = {}

    def same():
        last["now"] = footprint(emulator)
        return last["now"] == before

    try:
        until(same, "as before")
    except AssertionError:
        different = {k: (before[k], last["now"][k]) for k in before if before[k] != last["now"][k]}
        raise AssertionError(f"left behind (before, after): {different}") from None


@pytest.fixture
def many(own_emulator):
    api = Parallel(own_emulator())
    api.away(api.create())  # what is only made once has been made
    return api


def closed(api):
    """Footprints are taken without a connection of ours."""
    api.local = threading.local()
    api.emulator.http.close()


def test_two_hundred_at_once(many):
    closed(many)
    before = at_rest(many.emulator)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        boxes = list(pool.map(lambda i: many.create(name=f"many-{i}", persistent=i % 4 == 0), range(MANY)))
        assert len({b.id for b in boxes}) == MANY
        # each writes its own number and sees no other's
        wrote = pool.map(lambda b: many.run(b, f"echo {b.name} > mine && cat mine && ls"), boxes)
        assert [w for w in wrote] == [(0, f"{b.name}\nmine\n", "") for b in boxes]
        listed, cursor = [], {}
        while True:
            page = many.call("GET", "/v2/sandboxes", limit=50, **cursor)
            listed += [s for s in page["sandboxes"] if s["status"] == "running"]
            if page["pagination"]["next"] is None:
                break
            cursor = {"cursor": page["pagination"]["next"]}
        assert {s["name"] for s in listed} == {b.name for b in boxes}
        assert not [s for s in descendants(many.emulator.child.pid).values() if s == "Z"]
        list(pool.map(many.away, boxes))
    closed(many)
    settles(many.emulator, before)


def test_cycles_leave_nothing(many):
    def cycle(i):
        box = many.create(persistent=i % 3 == 0)
        assert many.run(box, f"echo {i}; sleep 60 >&- 2>&- <&- &") == (0, f"{i}\n", "")  # a daemon stays behind
        if i % 3 == 0:
            many.stop(box)
            box = many.resume(box)
            assert many.run(box, "exit 7")[0] == 7
        elif i % 3 == 1:
            many.snapshot(box)
        many.away(box)

    closed(many)
    before = at_rest(many.emulator)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(cycle, range(CYCLES)))
    closed(many)
    settles(many.emulator, before)
