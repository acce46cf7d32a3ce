"""Forks, the tree, retention, expiry and regions of snapshots in the emulator (sections 5.6, 6.6, 9, 15.3). (E5, A6/B3, P58)"""
import json
import signal

DAY = 86400000
SNAPSHOTS = "/v2/sandboxes/snapshots"


def listed(emu, box=None):
    return [s["id"] for s in emu.call("GET", SNAPSHOTS, limit=50, **({"name": box.name} if box else {}))["snapshots"]]


def status(emu, snapshot):
    return emu.call("GET", f"{SNAPSHOTS}/{snapshot}")["snapshot"]["status"]


def snapshots_of(emu, box, n, **body):
    """n snapshots in a row, oldest first; each has a line more in `log`."""
    made = []
    for i in range(n):
        session = emu.resume(box)
        emu.sh(session, f"echo {i} >> log")
        made.append(emu.snapshot(session, **body))
    return made


def test_fork_copies_what_is_configured(emu):
    box = emu.create(ports=[3000], timeout=60000, resources={"vcpus": 1}, env={"A": "1", "B": "2"}, tags={"t": "v"},
                     networkId="net_1", snapshotExpiration=2 * DAY, keepLastSnapshots={"count": 3}, region="cdg1",
                     failoverRegions=["lhr1"])
    emu.sh(box, "echo saved > f")
    snapshot = emu.snapshot(box)
    box = emu.resume(box)
    emu.sh(box, "echo live > f")
    fork = emu.fork(box)
    for key in ("timeout", "vcpus", "memory", "tags", "networkId", "snapshotExpiration", "keepLastSnapshots", "region", "failoverRegions",
                "persistent", "networkPolicy", "image"):
        assert fork.sandbox[key] == box.sandbox[key], key
    assert fork.name != box.name and fork.routes[0]["port"] == 3000
    assert fork.routes[0]["subdomain"] != box.routes[0]["subdomain"]
    assert fork.sandbox["currentSnapshotId"] == snapshot["id"] == fork.session["sourceSnapshotId"]
    assert "resumed" not in emu.call("POST", f"/v2/sandboxes/{box.name}/fork", {})
    assert emu.sh(fork, "cat f; echo $A$B") == "saved\n12\n"


def test_fork_overrides_whole_values(emu):
    box = emu.create(env={"A": "1", "B": "2"}, tags={"t": "v"}, ports=[3000])
    fork = emu.fork(box, name="mine", env={"B": "3"}, tags={}, ports=[], persistent=False, timeout=120000,
                    networkPolicy={"mode": "allow-all"}, __interactive=True)
    assert fork.name == "mine" and fork.routes == [] and "tags" not in fork.sandbox
    assert fork.sandbox["timeout"] == fork.session["timeout"] == 120000 and not fork.sandbox["persistent"]
    assert emu.sh(fork, "echo $A$B") == "3\n", "a source without a snapshot starts from its image"
    assert "currentSnapshotId" not in fork.sandbox
    emu.refused(400, "bad_request", "POST", f"/v2/sandboxes/{box.name}/fork", {"name": "mine"})
    emu.refused(404, "not_found", "POST", "/v2/sandboxes/none/fork", {})
    for body in ({"source": {}}, {"runtime": "node24"}, {"architecture": "amd64"}, {"keepLastSnapshots": None}, {"name": "a b"}):
        emu.refused(400, "bad_request", "POST", f"/v2/sandboxes/{box.name}/fork", body)
    message = emu.refused(400, "bad_request", "POST", f"/v2/sandboxes/{box.name}/fork", {"failoverRegions": ["iad1"]})
    assert message == "failoverRegions must not include the sandbox region: iad1"


def test_defaults_by_version(emu):
    """v4 create, v3 fork, v3 snapshot: seven days, and the last snapshot alone."""
    one = {"count": 1, "deleteEvicted": True}
    v2, v3, v4 = (emu.create(version=v).sandbox for v in (2, 3, 4))
    assert [s["snapshotExpiration"] // DAY for s in (v2, v3, v4)] == [30, 30, 7]
    assert v2["runtime"] == "node24" and v3["image"].startswith("vercel/sandbox/universal@sha256:") and v4["image"] == v3["image"]
    assert v4["keepLastSnapshots"] == one and "keepLastSnapshots" not in v3
    assert "keepLastSnapshots" not in emu.create(version=4, persistent=False).sandbox
    assert "keepLastSnapshots" not in emu.create(version=4, keepLastSnapshots=None).sandbox
    source = emu.create()
    assert "keepLastSnapshots" not in emu.fork(source).sandbox
    short = emu.fork(source, version=3).sandbox
    assert short["keepLastSnapshots"] == one and short["snapshotExpiration"] == 7 * DAY
    free = emu.fork(source, version=3, keepLastSnapshots=None, snapshotExpiration=0).sandbox
    assert "keepLastSnapshots" not in free and free["snapshotExpiration"] == 0
    said = emu.create(snapshotExpiration=30 * DAY, keepLastSnapshots={"count": 2})
    fork = emu.fork(said, version=3).sandbox
    assert fork["snapshotExpiration"] == 30 * DAY and fork["keepLastSnapshots"]["count"] == 2
    for version, box, days in ((2, emu.create(), 30), (3, emu.create(), 7), (3, said, 30)):
        made = emu.snapshot(box, version=version)
        assert made["expiresAt"] - made["lastUsedAt"] == days * DAY
    assert "expiresAt" not in emu.snapshot(emu.create(), expiration=0)


def test_expiry_counts_from_the_last_use(emu):
    box = emu.create()
    made = emu.snapshot(box, expiration=DAY)
    assert made["creationMethod"] == "manual" and made["expiresAt"] == made["lastUsedAt"] + DAY
    emu.stop(emu.create(source={"type": "snapshot", "snapshotId": made["id"]}, persistent=False))
    used = emu.call("GET", f"{SNAPSHOTS}/{made['id']}")["snapshot"]
    assert used["lastUsedAt"] > made["lastUsedAt"] and used["expiresAt"] == used["lastUsedAt"] + DAY
    stopped = emu.stop(emu.resume(box))["snapshot"]
    assert stopped["creationMethod"] == "automatic" and stopped["parentId"] == made["id"]


def test_retention(emu):
    box = emu.create(keepLastSnapshots={"count": 2})
    a, b, c = snapshots_of(emu, box, 3)
    assert listed(emu, box) == [c["id"], b["id"]]
    emu.create_refused(410, "snapshot_not_found", source={"type": "snapshot", "snapshotId": a["id"]})
    assert emu.sh(emu.resume(box), "cat log") == "0\n1\n2\n", "layers of evicted snapshots stay as long as they are needed"


def test_retention_without_deleting(emu):
    """What falls out of the kept ones gets the ordinary expiry; an expiry of its own stays."""
    box = emu.create(keepLastSnapshots={"count": 1, "expiration": 0, "deleteEvicted": False}, snapshotExpiration=3 * DAY)
    own = snapshots_of(emu, box, 1, expiration=DAY)[0]
    first, last = snapshots_of(emu, box, 2)
    assert "expiresAt" not in last
    now = {s["id"]: s for s in emu.call("GET", SNAPSHOTS)["snapshots"]}
    assert len(now) == 3 and "expiresAt" not in now[last["id"]]
    assert now[first["id"]]["expiresAt"] == now[first["id"]]["lastUsedAt"] + 3 * DAY
    assert now[own["id"]]["expiresAt"] == now[own["id"]]["lastUsedAt"] + DAY
    assert now[own["id"]]["status"] == "created"


def test_clearing_retention(emu):
    box = emu.create(keepLastSnapshots={"count": 1})
    assert "keepLastSnapshots" not in emu.patch(box, keepLastSnapshots=None)
    assert len({s["id"] for s in snapshots_of(emu, box, 2)} & set(listed(emu, box))) == 2


def test_shared_source_snapshot(emu):
    """It is the current one of each until the first of their own, and outlives whoever made it."""
    maker = emu.create()
    emu.sh(maker, "echo shared > f")
    shared = emu.snapshot(maker)["id"]
    source = {"type": "snapshot", "snapshotId": shared}
    a, b = emu.create(source=source), emu.create(source=source, keepLastSnapshots={"count": 1})
    assert a.sandbox["currentSnapshotId"] == b.sandbox["currentSnapshotId"] == shared
    own = emu.stop(b)["snapshot"]["id"]
    assert emu.get(b).sandbox["currentSnapshotId"] == own != shared and status(emu, shared) == "created"
    emu.call("DELETE", f"/v2/sandboxes/{maker.name}", deleteOrphanSnapshots="true")
    assert status(emu, shared) == "created", "another sandbox uses it"
    emu.call("DELETE", f"/v2/sandboxes/{b.name}", deleteOrphanSnapshots="true")
    assert status(emu, own) == "deleted"
    assert emu.sh(emu.create(source=source), "cat f") == "shared\n"
    emu.call("DELETE", f"/v2/sandboxes/{a.name}")
    assert status(emu, shared) == "created", "deleting without asking spares all"


def test_tombstones(emu):
    box = emu.create()
    emu.stop(box)
    snapshot = emu.get(box).sandbox["currentSnapshotId"]
    assert emu.call("DELETE", f"{SNAPSHOTS}/{snapshot}")["snapshot"]["status"] == "deleted"
    assert status(emu, snapshot) == "deleted" and snapshot in listed(emu, box)
    message = emu.refused(410, "snapshot_not_found", "GET", f"/v2/sandboxes/{box.name}", resume="true")
    assert snapshot in message
    assert len(emu.call("GET", "/v2/sandboxes/sessions", name=box.name)["sessions"]) == 1
    emu.refused(410, "snapshot_not_found", "POST", f"/v2/sandboxes/{box.name}/fork", {})
    emu.refused(404, "not_found", "PATCH", f"/v2/sandboxes/{box.name}", {"currentSnapshotId": snapshot})
    emu.refused(404, "not_found", "GET", f"{SNAPSHOTS}/snap_none")
    emu.create_refused(410, "snapshot_not_found", source={"type": "snapshot", "snapshotId": "snap_none"})


def test_tree(emu):
    box = emu.create()
    chain = [s["id"] for s in snapshots_of(emu, box, 5)]
    other = emu.create(source={"type": "snapshot", "snapshotId": chain[1]})
    branch = emu.snapshot(other)["id"]

    def tree(**q):
        answer = emu.call("GET", f"{SNAPSHOTS}/tree", **q)
        return answer, [n["snapshot"]["id"] for n in answer["snapshots"]], answer["pagination"]["next"]

    answer, ids, after = tree(snapshotId=chain[4])
    assert ids == chain[3::-1] and after is None and answer["anchor"]["snapshot"]["id"] == chain[4]
    assert "parentId" not in answer["snapshots"][-1]["snapshot"] and answer["pagination"]["count"] == 4
    nodes = {n["snapshot"]["id"]: n for n in answer["snapshots"]}
    assert nodes[chain[2]]["count"] == "2" and [s["id"] for s in nodes[chain[2]]["siblings"]] == [branch]
    assert nodes[chain[1]]["count"] == "1" and nodes[chain[1]]["siblings"] == []
    _, ids, after = tree(snapshotId=chain[4], limit=2)
    assert ids == [chain[3], chain[2]] and after == chain[2]
    assert tree(snapshotId=after, limit=2)[1:] == ([chain[1], chain[0]], None)
    _, ids, after = tree(snapshotId=chain[2], sortOrder="asc")
    assert ids == chain[3:] and after is None
    _, ids, after = tree(snapshotId=chain[0], sortOrder="asc", limit=1)
    assert ids == [chain[1]] and after == chain[1]
    assert tree(snapshotId=chain[4], sortOrder="asc")[1] == []
    emu.refused(404, "not_found", "GET", f"{SNAPSHOTS}/tree", snapshotId="snap_none")
    emu.refused(400, "bad_request", "GET", f"{SNAPSHOTS}/tree", snapshotId=chain[0], limit=11)
    emu.refused(404, "not_found", "GET", f"{SNAPSHOTS}/tree", snapshotId=chain[0], project="prj_other", projectId="prj_other")


def test_regions(emu):
    box = emu.create(region="fra1")
    assert box.sandbox["region"] == box.session["region"] == "fra1" and "failoverRegions" not in box.sandbox
    snapshot = emu.snapshot(box)
    assert snapshot["region"] == "fra1" and snapshot["regions"] == ["fra1"]
    source = {"type": "snapshot", "snapshotId": snapshot["id"]}
    emu.create_refused(422, "snapshot_region_mismatch", source=source, region="sfo1")
    assert emu.create(source=source).session["region"] == "fra1"
    emu.refused(422, "snapshot_region_mismatch", "POST", f"/v2/sandboxes/{box.name}/fork", {"region": "sfo1"})
    wide = emu.create(region="iad1", failoverRegions=["sfo1", "cle1"])
    assert wide.sandbox["failoverRegions"] == ["sfo1", "cle1"]
    everywhere = emu.snapshot(wide)
    assert sorted(everywhere["regions"]) == ["cle1", "iad1", "sfo1"] and everywhere["regions"][0] == "iad1"
    assert emu.fork(wide, region="sfo1", failoverRegions=[]).session["region"] == "sfo1"
    emu.refused(400, "bad_request", "PATCH", f"/v2/sandboxes/{wide.name}", {"region": "cle1"})
    assert "failoverRegions" not in emu.patch(wide, region="cle1", failoverRegions=[])
    assert emu.resume(wide).session["region"] == "cle1"
    emu.create_refused(400, "bad_request", region="mars1")
    assert len({emu.create(region=r, persistent=False).session["region"] for r in ("kix1", "gru1")}) == 2


def test_network_and_architecture(emu):
    box = emu.create(networkId="net_x")
    assert box.sandbox["networkId"] == "net_x" and emu.patch(box, networkId="net_y")["networkId"] == "net_y"
    assert "networkId" not in emu.patch(box, networkId=None)
    own = box.sandbox["architecture"]
    assert own == box.session["architecture"] == emu.snapshot(box)["architecture"] and own in ("amd64", "arm64")
    assert emu.create(architecture=own).sandbox["architecture"] == own
    emu.create_refused(400, "bad_request", architecture={"amd64": "arm64", "arm64": "amd64"}[own])
    emu.create_refused(400, "bad_request", version=2, architecture="arm64")
    emu.refused(400, "bad_request", "PATCH", f"/v2/sandboxes/{box.name}", {"architecture": own})


def test_images(emu, own_emulator, tmp_path, base):
    """Images are imported base trees by name; answers pin them."""
    image = emu.create().sandbox["image"]
    assert emu.create(image=image).sandbox["image"] == image == emu.create(image="vcr.vercel.com/vercel/sandbox/universal").sandbox["image"]
    for unknown in ("nope", "vercel/sandbox/node:22", "vercel/sandbox/universal@sha256:" + "0" * 64, "a b", "@x", ":"):
        emu.create_refused(404, "not_found", image=unknown)
    other = own_emulator(state="images")
    tree = tmp_path / "images" / "state" / "base"
    for name in ("mine", "team-node-22", "vercel-sandbox-python-3-14"):
        (tree / name).symlink_to(base / "base" / "default")
    mine = other.create(image="mine:latest")
    assert mine.sandbox["image"].startswith("mine@sha256:") and "runtime" not in mine.session
    assert other.create(image="team/node:22").sandbox["image"].startswith("team/node@sha256:")
    assert other.create(image="vercel/sandbox/python:3.14").sandbox["image"].startswith("vercel/sandbox/python@sha256:")
    other.create_refused(404, "not_found", image="mine:1")
    for runtime in ("node22", "node24", "node26", "python3.13"):
        made = other.create(version=2, runtime=runtime, persistent=False)
        assert made.sandbox["runtime"] == made.session["runtime"] == runtime and "image" not in made.sandbox
    fork = other.fork(other.create(), image="mine")
    assert fork.sandbox["image"] == mine.sandbox["image"]


def test_snapshots_survive_a_kill(own_emulator):
    """Chains, forks, tombstones and settings are what they were; what has expired meanwhile is deleted."""
    first = own_emulator(state="kept")
    box = first.create(region="fra1", failoverRegions=["lhr1"], keepLastSnapshots={"count": 5, "expiration": 2 * DAY})
    a, b = snapshots_of(first, box, 2)
    fork = first.fork(box, name="fork")
    first.sh(fork, "echo more >> log")
    gone = first.snapshot(first.create())["id"]
    first.call("DELETE", f"{SNAPSHOTS}/{gone}")
    old = first.create(name="old")
    expired = first.snapshot(old, expiration=DAY)["id"]
    before = first.get(box).sandbox
    first.emulator.end(signal.SIGKILL)
    meta = first.emulator.log.parent / "state" / "meta" / f"snapshot-{expired}.json"
    record = json.loads(meta.read_text())
    meta.write_text(json.dumps({**record, "used": record["used"] - 2 * DAY}))

    second = own_emulator(state="kept")
    assert second.get(box).sandbox == before
    assert [s["id"] for s in second.call("GET", SNAPSHOTS, name=box.name)["snapshots"]] == [b["id"], a["id"]]
    assert second.call("GET", f"{SNAPSHOTS}/{a['id']}")["snapshot"]["regions"] == ["fra1", "lhr1"]
    seen = second.get(fork)
    assert seen.session["status"] == "aborted" and seen.sandbox["currentSnapshotId"] not in (a["id"], b["id"])
    assert second.sh(second.resume(fork), "cat log") == "0\n1\nmore\n"
    assert status(second, gone) == "deleted" == status(second, expired)
    second.refused(410, "snapshot_not_found", "GET", "/v2/sandboxes/old", resume="true")
    assert not (first.emulator.log.parent / "state" / "layers" / expired).exists()
