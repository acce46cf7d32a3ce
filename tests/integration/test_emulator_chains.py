"""Sandboxes that were stopped and resumed many hundred times: each time is one layer more. (A6/B3, E5)"""
import json
import os
import shutil

DEPTH = 400  # that can be mounted


def grow(state, first, n):
    """n more snapshots on top of `first`, as that many stops leave them; each has a file of its own."""
    record = json.loads(next(state.rglob(f"snapshot-{first}.json")).read_text())
    directory = next(state.rglob(f"snapshot-{first}.json")).parent
    upper = state / "layers" / first / "upper"
    owner, made = os.stat(upper), [first]
    for i in range(n):
        new = f"snap_{i:028d}"
        (directory / f"snapshot-{new}.json").write_text(json.dumps({**record, "id": new, "parent": made[-1]}))
        shutil.copytree(state / "layers" / first, state / "layers" / new, ignore=lambda *_: ["upper"], copy_function=shutil.copy2)
        mine = state / "layers" / new / "upper"
        for place in (mine, mine / "tmp"):
            place.mkdir()
            os.chown(place, owner.st_uid, owner.st_gid)
            place.chmod(0o1777 if place.name == "tmp" else 0o755)
        (mine / "tmp" / f"layer{i}").touch()
        made.append(new)
    return made


def test_long_chains(own_emulator):
    """400 layers are mounted; what lies deeper is refused, but never as if it were gone: clients would delete the sandbox."""
    before = own_emulator(state="deep")
    box = before.create()
    before.sh(box, "echo first > f; mkdir -p /tmp")
    before.stop(box)
    first = before.call("GET", f"/v2/sandboxes/{box.name}")["sandbox"]["currentSnapshotId"]
    assert before.emulator.end() == 0
    made = grow(before.emulator.log.parent / "state", first, DEPTH)
    emu = own_emulator(state="deep")
    deep = emu.create(source={"type": "snapshot", "snapshotId": made[DEPTH - 1]})
    assert emu.sh(deep, "cat f; ls /tmp/layer* | wc -l") == f"first\n{DEPTH - 1}\n"
    emu.patch(box, currentSnapshotId=made[DEPTH])
    message = emu.refused(500, "internal_server_error", "GET", f"/v2/sandboxes/{box.name}", resume="true")
    assert made[DEPTH] in message and f"more than {DEPTH} layers" in message
    emu.create_refused(500, "internal_server_error", source={"type": "snapshot", "snapshotId": made[DEPTH]})
    emu.patch(box, currentSnapshotId=made[DEPTH - 2])
    assert emu.sh(emu.resume(box), "cat f") == "first\n"
