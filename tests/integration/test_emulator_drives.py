"""Drives of the emulator: section 10 of the reference, mounts, and what survives a kill. (E9, E9+)"""
import concurrent.futures
import os
import pathlib
import signal

import pytest

from emulator_api import Box
from harness import until

DRIVES = "/v2/sandboxes/drives"
MIB = 1 << 20


def rw(drive, path="/data"):
    return {path: {"drive": drive, "mode": "read-write"}}


def frozen(drive, path="/data"):
    return {path: {"drive": drive, "mode": "snapshot"}}


def write_once(emu, name, text="first"):
    """A drive with a file in it, mounted by nobody."""
    emu.drive(name)
    box = emu.create(mounts=rw(name), persistent=False)
    emu.sh(box, f"echo {text} > /data/f")
    emu.stop(box)


def test_get_or_create(emu):
    made = emu.drive("d1", maxSizeBytes=MIB, region="fra1")
    assert made["id"].startswith("drive_") and made["projectId"] == emu.project
    assert (made["name"], made["region"], made["maxSizeBytes"]) == ("d1", "fra1", MIB)
    assert "currentSessionId" not in made and "parentDriveId" not in made
    assert emu.drive("d1", status=200) == made
    assert emu.drive("d1", status=200, maxSizeBytes=MIB, region="fra1") == made
    for other in ({"region": "sfo1"}, {"maxSizeBytes": 2 * MIB}):
        emu.refused(409, "conflict", "POST", f"{DRIVES}/d1", {"projectId": emu.project, **other})
    plain = emu.drive("d2")
    assert (plain["region"], plain["maxSizeBytes"]) == ("iad1", 1 << 40)


@pytest.mark.parametrize("name,body", [
    ("x" * 65, {}), ("a.b", {}), ("ok", {"maxSizeBytes": 4097}), ("ok", {"maxSizeBytes": 0}), ("ok", {"maxSizeBytes": (16 << 40) + 4096}),
    ("ok", {"region": "mars1"}), ("ok", {"size": 1}), ("ok", {"maxSizeBytes": "1"})])
def test_bad_drives(emu, name, body):
    emu.refused(400, "bad_request", "POST", f"{DRIVES}/{name}", {"projectId": emu.project, **body})
    assert emu.call("GET", DRIVES)["drives"] == []


def test_list_get_delete(emu):
    for name in ("b1", "a1", "b2"):
        emu.drive(name)
    listed = lambda **q: [d["name"] for d in emu.call("GET", DRIVES, **q)["drives"]]  # noqa: E731
    assert listed() == ["b2", "a1", "b1"] and listed(sortOrder="asc") == ["b1", "a1", "b2"]
    assert listed(sortBy="name", sortOrder="asc") == ["a1", "b1", "b2"]
    assert listed(sortBy="name", namePrefix="b") == ["b2", "b1"]
    emu.refused(400, "bad_request", "GET", DRIVES, namePrefix="b")
    emu.refused(400, "bad_request", "GET", DRIVES, sortBy="size")
    first = emu.call("GET", DRIVES, limit=2)
    assert first["pagination"]["count"] == 2 and first["pagination"]["next"]
    rest = emu.call("GET", DRIVES, limit=2, cursor=first["pagination"]["next"])
    assert [d["name"] for d in rest["drives"]] == ["b1"] and rest["pagination"]["next"] is None
    b1 = emu.get_drive("b1")
    assert emu.get_drive(b1["id"]) == b1
    assert emu.call("DELETE", f"{DRIVES}/b1")["drive"]["id"] == b1["id"]
    emu.refused(404, "not_found", "GET", f"{DRIVES}/b1")
    emu.refused(404, "not_found", "DELETE", f"{DRIVES}/b1")
    emu.refused(404, "not_found", "GET", f"{DRIVES}/a1", projectId="prj_other", project="prj_other")


def test_newer_paths(emu):
    """/v1/drives is the same."""
    made = emu.call("POST", "/v1/drives/d", {"projectId": emu.project}, status=201)["drive"]
    assert emu.call("GET", "/v1/drives/d")["drive"] == made == emu.get_drive("d")
    assert [d["id"] for d in emu.call("GET", "/v1/drives")["drives"]] == [made["id"]]
    fork = emu.call("POST", "/v1/drives/d/fork", {"name": "e"}, status=201)["drive"]
    assert emu.call("DELETE", "/v1/drives/e")["drive"]["id"] == fork["id"]
    assert emu.request("GET", "/v2/drives").status_code == 404
    assert emu.request("GET", "/v1/sandboxes/drives").status_code == 404


def test_read_write_mount(emu):
    emu.drive("d")
    box = emu.create(name="writer", mounts={"/data/": {"drive": "d"}})
    assert box.sandbox["mounts"] == {"/data": {"drive": "d", "mode": "read-write"}}
    seen = emu.get_drive("d")
    assert (seen["currentSessionId"], seen["currentSandboxName"]) == (box.id, "writer")
    emu.sh(box, "echo hello > /data/f && mkdir /data/own && test -O /data")
    assert "writer" in emu.create_refused(409, "conflict", mounts=rw("d"))
    emu.refused(409, "conflict", "DELETE", f"{DRIVES}/d")
    emu.stop(box)
    assert "currentSessionId" not in emu.get_drive("d")
    other = emu.create(name="reader", mounts=rw("d", "/vercel/sandbox/deep/er"))
    assert emu.sh(other, "cat deep/er/f") == "hello\n"
    # the first one cannot come back while the other has it, and says so without a trace
    emu.refused(409, "conflict", "GET", "/v2/sandboxes/writer", resume="true")
    assert emu.get(box).session["status"] == "stopped"
    assert len(emu.call("GET", "/v2/sandboxes/sessions", name="writer")["sessions"]) == 1
    emu.stop(other)
    assert emu.sh(emu.resume(box), "cat /data/f") == "hello\n"


def test_a_drive_is_in_no_snapshot(emu):
    emu.drive("d")
    box = emu.create(mounts=rw("d"))
    emu.sh(box, "echo secret > /data/f; echo kept > kept")
    emu.stop(box)
    assert emu.patch(box, mounts={}).get("mounts") is None
    assert emu.sh(emu.resume(box), "cat kept; ls -A /data") == "kept\n"


def test_snapshot_mount(emu):
    emu.drive("empty")
    message = emu.create_refused(400, "drive_not_initialized", mounts=frozen("empty"))
    assert "empty" in message
    write_once(emu, "d")
    reader = emu.create(mounts=frozen("d"))
    assert reader.sandbox["mounts"]["/data"]["mode"] == "snapshot"
    writer = emu.create(mounts=rw("d"))
    emu.sh(writer, "echo second > /data/f")
    assert emu.sh(reader, "cat /data/f") == "first\n"
    assert "Read-only" in emu.run(reader, "echo x > /data/f")[2]
    assert "Read-only" in emu.run(reader, "echo x > /data/f", sudo=True)[2]
    assert emu.get_drive("d")["currentSessionId"] == writer.id
    second = emu.create(mounts={"/old": {"drive": "d", "mode": "read-only"}})
    assert emu.sh(second, "cat /old/f") == "second\n"
    emu.stop(writer)
    assert emu.call("DELETE", f"{DRIVES}/d")["drive"]["name"] == "d"
    assert emu.sh(reader, "cat /data/f") == "first\n"


def test_mount_refusals(emu):
    emu.drive("far", region="fra1")
    emu.drive("d")
    assert "none" in emu.create_refused(404, "not_found", mounts=rw("none"))
    emu.create_refused(400, "drive_region_mismatch", mounts=rw("far"))
    emu.create_refused(400, "bad_request", mounts=rw("d"), failoverRegions=["sfo1"])
    emu.create_refused(409, "conflict", mounts={**rw("d", "/a"), **rw("d", "/b")})
    assert "currentSessionId" not in emu.get_drive("d")
    for mounts in (rw("d", "data"), rw("d", "/"), rw("d", "/proc"), {**rw("d", "/a"), **rw("d", "/a/b")}):
        emu.create_refused(400, "bad_request", mounts=mounts)
    near = emu.create(region="fra1", mounts=rw("far"))
    assert near.session["region"] == "fra1"


def test_mounts_change_with_the_next_session(emu):
    emu.drive("d")
    emu.drive("far", region="fra1")
    box = emu.create()
    for bad, status, code in ((rw("none"), 404, "not_found"), (rw("far"), 400, "drive_region_mismatch"), (rw("d", "x"), 400, "bad_request")):
        emu.refused(status, code, "PATCH", f"/v2/sandboxes/{box.name}", {"mounts": bad, "timeout": 60000})
        assert emu.get(box).sandbox["timeout"] == 300000, "a refused change changes nothing"
    assert emu.patch(box, mounts=rw("d"))["mounts"] == rw("d")
    assert emu.run(box, "test -d /data")[0] == 1
    emu.stop(box)
    emu.sh(emu.resume(box), "echo x > /data/x")
    emu.refused(400, "bad_request", "PATCH", f"/v2/sandboxes/{box.name}", {"failoverRegions": ["sfo1"]})


def test_drive_fork(emu):
    write_once(emu, "d")
    fork = emu.call("POST", f"{DRIVES}/d/fork", {"name": "f1"}, status=201)["drive"]
    source = emu.get_drive("d")
    assert fork["parentDriveId"] == fork["rootDriveId"] == source["id"]
    assert (fork["region"], fork["maxSizeBytes"]) == (source["region"], source["maxSizeBytes"])
    second = emu.call("POST", f"{DRIVES}/f1/fork", {"name": "f2"}, status=201)["drive"]
    assert (second["parentDriveId"], second["rootDriveId"]) == (fork["id"], source["id"])
    a, b = emu.create(mounts=rw("f1")), emu.create(mounts=rw("f2"))
    emu.sh(a, "echo own >> /data/f")
    assert emu.sh(b, "cat /data/f") == "first\n" and emu.sh(a, "cat /data/f") == "first\nown\n"
    emu.refused(409, "conflict", "POST", f"{DRIVES}/d/fork", {"name": "f1"})
    emu.refused(404, "not_found", "POST", f"{DRIVES}/none/fork", {"name": "f3"})
    for body in ({}, {"name": "a b"}, {"name": "f3", "region": "iad1"}):
        emu.refused(400, "bad_request", "POST", f"{DRIVES}/d/fork", body)


def test_a_sandbox_fork_takes_the_mounts(emu):
    write_once(emu, "d")
    box = emu.create(mounts=frozen("d"))
    fork = emu.fork(box)
    assert fork.sandbox["mounts"] == frozen("d") and emu.sh(fork, "cat /data/f") == "first\n"
    assert "mounts" not in emu.fork(box, mounts={}).sandbox


def test_a_file_in_the_way(emu):
    """Said once, without a trace; without the mount the sandbox comes back."""
    emu.drive("d")
    box = emu.create()
    emu.sh(box, "echo x > taken")
    emu.stop(box)
    emu.patch(box, mounts=rw("d", "/vercel/sandbox/taken"))
    assert "/vercel/sandbox/taken" in emu.refused(400, "bad_request", "GET", f"/v2/sandboxes/{box.name}", resume="true")
    assert "currentSessionId" not in emu.get_drive("d")
    emu.patch(box, mounts={})
    assert emu.sh(emu.resume(box), "cat taken") == "x\n"


def test_nothing_stays_open(own_emulator):
    """Descriptors and mounts of the emulator and its spawner are as before, whatever went wrong between."""
    emu = own_emulator()
    emulator = emu.emulator.child.pid
    spawner = int(pathlib.Path(f"/proc/{emulator}/task/{emulator}/children").read_text().split()[0])

    def held():
        mounts = len(pathlib.Path(f"/proc/{spawner}/mountinfo").read_text().splitlines())
        return len(os.listdir(f"/proc/{emulator}/fd")), len(os.listdir(f"/proc/{spawner}/fd")), mounts

    def cycle():
        write_once(emu, "d")
        reader = emu.create(mounts=frozen("d"), persistent=False)
        writer = emu.create(mounts=rw("d"), persistent=False)
        emu.create_refused(409, "conflict", mounts={**frozen("d", "/a"), **rw("d", "/b")})
        emu.create_refused(400, "bad_request", mounts=frozen("d", "/etc/passwd/x"))
        for box in (reader, writer):
            emu.stop(box)
        emu.create_refused(400, "bad_request", mounts=rw("d", "/etc/passwd"))
        emu.call("POST", f"{DRIVES}/d/fork", {"name": "e"}, status=201)
        emu.refused(409, "conflict", "POST", f"{DRIVES}/d/fork", {"name": "e"})
        for name in ("d", "e"):
            emu.call("DELETE", f"{DRIVES}/{name}")
        for name in emu.names():
            emu.call("DELETE", f"/v2/sandboxes/{name}", deleteOrphanSnapshots="true")

    cycle()
    before = held()
    for _ in range(5):
        cycle()
    until(lambda: held() == before, f"descriptors and mounts {before}, now {held()}", 20)
    state = emu.emulator.log.parent / "state"
    for place in ("drives", "sessions", "layers", "trash"):
        assert list((state / place).iterdir()) == [], place


def test_one_writer_of_many(emu):
    """However many ask at once, one gets it; whoever freezes or forks it meanwhile gets a whole copy."""
    write_once(emu, "d", "x" * 1000)
    asked = [("POST", "/v3/sandboxes", {"projectId": emu.project, "mounts": rw("d"), "persistent": False})] * 6
    asked += [("POST", "/v3/sandboxes", {"projectId": emu.project, "mounts": frozen("d"), "persistent": False})] * 4
    asked += [("POST", f"{DRIVES}/d/fork", {"name": f"f{i}"}) for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(14) as pool:
        answers = list(pool.map(lambda a: emu.request(*a), asked))
    assert sorted(a.status_code for a in answers[:6]) == [200] + [409] * 5
    assert [a.status_code for a in answers[6:]] == [200] * 4 + [201] * 4
    for a in answers[6:10]:
        assert emu.sh(Box(a.json()), "wc -c < /data/f") == "1001\n"
    holder = next(a for a in answers[:6] if a.status_code == 200).json()["session"]["id"]
    assert emu.get_drive("d")["currentSessionId"] == holder


def test_drives_survive_a_kill(own_emulator):
    """What was written stays, nobody holds the drive any more, half-made ones are swept."""
    first = own_emulator(state="kept")
    first.drive("d", region="lhr1", maxSizeBytes=MIB)
    box = first.create(name="box", region="lhr1", mounts=rw("d"))
    first.sh(box, "echo durable > /data/f; echo too > own")
    before = first.get_drive("d")
    drives = first.emulator.log.parent / "state" / "drives"
    (drives / "stale" / "data").mkdir(parents=True)
    first.emulator.end(signal.SIGKILL)
    second = own_emulator(state="kept")
    after = second.get_drive("d")
    assert (after["id"], after["region"], after["maxSizeBytes"]) == (before["id"], "lhr1", MIB)
    assert "currentSessionId" not in after and not (drives / "stale").exists()
    seen = second.get(box)
    assert seen.session["status"] == "aborted" and seen.sandbox["mounts"] == rw("d")
    assert second.sh(second.resume(box), "cat /data/f own") == "durable\ntoo\n"
    assert second.get_drive("d")["currentSandboxName"] == "box"


def test_plain_refuses_mounts(own_emulator, tmp_path):
    plain = own_emulator("--isolation=none", "--base-from", tmp_path / "plain" / "state", state="plain")
    plain.drive("d")
    assert "--isolation=none" in plain.create_refused(400, "bad_request", mounts=rw("d"))
    assert plain.sh(plain.create(), "echo works") == "works\n"
