"""Which snapshots stay and which go: A6/B3 P58 P59.  Each case of who needs a snapshot, against the emulator: what a sandbox
resumes from, what somebody was given by its id, checkpoints, forks, siblings from the same snapshot."""
import secrets

import pytest

from emulator_api import Api
from harness import until

@pytest.fixture
def up(emulator):
    """What the upstream itself says of the project of this test."""
    return Api(emulator, "prj_" + secrets.token_hex(8))


@pytest.fixture
def api(own, up):
    return own(UPSTREAM_PROJECT_ID=up.project)[1]


@pytest.fixture
def sweeper(own, up):
    """A gateway that sweeps all the time."""
    return own(LIFECYCLE_SWEEP_MS=200, UPSTREAM_PROJECT_ID=up.project)[1]


def snapshots(up, name=None, deleted=False):
    """Ids of those that can be started from, newest first."""
    found, more = [], {"name": name} if name else {}
    while True:
        page = up.call("GET", "/v2/sandboxes/snapshots", limit=50, **more)
        found += [s["id"] for s in page["snapshots"] if deleted or s["status"] == "created"]
        if not page["pagination"]["next"]:
            return found
        more["cursor"] = page["pagination"]["next"]


def usable(up, snapshot):
    answer = up.request("GET", f"/v2/sandboxes/snapshots/{snapshot}")
    return answer.status_code == 200 and answer.json()["snapshot"]["status"] == "created"


def retention(up, name):
    s = up.call("GET", f"/v2/sandboxes/{name}")["sandbox"]
    return s["snapshotExpiration"], s.get("keepLastSnapshots", {}).get("count"), s.get("keepLastSnapshots", {}).get("deleteEvicted")


def cycle(api, name):
    """A stop and a resume: the id of the snapshot that the stop left."""
    api.stop(name)
    api.resume(name)
    return api.get(name)["current_snapshot_id"]


def from_snapshot(api, snapshot, **body):
    return api.sandbox(source={"type": "snapshot", "snapshot_id": snapshot}, **body)


def capture(api, name, status=201, **body):
    return api.ok("POST", f"/v1/sandboxes/{name}/snapshots", status, json=body).json()


def test_fifty_cycles_of_a_plain_sandbox_leave_one_snapshot_A6(api, up):
    name = api.sandbox(vcpus=1)
    for _ in range(50):
        cycle(api, name)
    assert len(snapshots(up, name)) == 1
    assert snapshots(up, name) == [api.get(name)["current_snapshot_id"]]
    api.destroy(name)
    assert snapshots(up) == [], "nothing of it is left"


def test_fifty_cycles_of_a_guarded_sandbox_leave_its_captures_and_one_A6_B3(sweeper, up):
    """The upstream evicts nothing any more: the gateway does, as soon as nobody needs it."""
    name = sweeper.sandbox(vcpus=1)
    captured = capture(sweeper, name, resume=True)["id"]
    assert retention(up, name) == (0, 1, False)
    for _ in range(50):
        last = cycle(sweeper, name)
    until(lambda: set(snapshots(up, name)) == {captured, last}, "superseded snapshots are swept")
    assert sweeper.resume(name)["status"] == "running"
    sweeper.destroy(name)
    until(lambda: snapshots(up) == [captured], "what the sandbox left by itself goes, what was captured on purpose stays")
    other = from_snapshot(sweeper, captured)
    sweeper.destroy(other)
    sweeper.ok("DELETE", f"/v1/snapshots/{captured}", 204)
    assert snapshots(up) == []


def test_a_snapshot_given_by_its_id_survives_its_sandboxs_next_stop_B3(sweeper, up):
    """Whoever starts from an id may do so again; the sandbox it came from is guarded before."""
    a = sweeper.sandbox(vcpus=1)
    sweeper.put(a, "who.txt", b"a")
    first = cycle(sweeper, a)
    b = from_snapshot(sweeper, first, persistent=False)
    assert retention(up, a) == (0, 1, False), "its next stop evicts nothing"
    for _ in range(3):
        last = cycle(sweeper, a)
    until(lambda: set(snapshots(up, a)) == {first, last}, "only what nobody was given is swept")
    sweeper.destroy(b)
    sweeper.destroy(a)
    until(lambda: snapshots(up) == [first], "the given one stays when both are gone")
    c = from_snapshot(sweeper, first)
    assert sweeper.file(c, "who.txt") == b"a"
    sweeper.refused("DELETE", f"/v1/snapshots/{first}", 409, "snapshot_in_use")
    sweeper.destroy(c)
    sweeper.ok("DELETE", f"/v1/snapshots/{first}", 204)
    sweeper.ok("DELETE", f"/v1/snapshots/{first}", 204)


def test_siblings_from_one_snapshot_do_not_break_each_other_B3(sweeper, up):
    """A sandbox has the shared snapshot as its own current one until its first own snapshot."""
    a = sweeper.sandbox(vcpus=1)
    sweeper.put(a, "who.txt", b"shared")
    shared = capture(sweeper, a)["id"]
    b, c, d = (from_snapshot(sweeper, shared) for _ in range(3))
    for name in (b, c, d):
        assert sweeper.get(name)["current_snapshot_id"] == shared
        assert retention(up, name) == (0, 1, False)
    own = [cycle(sweeper, b) for _ in range(3)]
    until(lambda: snapshots(up, b) == [own[-1]], "b's own ones are swept")
    sweeper.destroy(b)
    until(lambda: set(snapshots(up)) == {shared}, "b's last one goes with b")
    sweeper.destroy(a)
    assert cycle(sweeper, c) != shared and sweeper.file(c, "who.txt") == b"shared"
    assert sweeper.get(d)["current_snapshot_id"] == shared
    sweeper.stop(d)
    sweeper.resume(d)
    assert sweeper.file(d, "who.txt") == b"shared"


def test_a_sandbox_that_somebody_else_began_from_a_snapshot_is_spared_B3(sweeper, up):
    """Not through a gateway: it is seen in the upstream's list, and by when the snapshot was used."""
    a = sweeper.sandbox(vcpus=1)
    capture(sweeper, a, resume=True)
    old = cycle(sweeper, a)
    stranger = up.create(version=4, name="s-" + secrets.token_hex(6), source={"type": "snapshot", "snapshotId": old},
                         keepLastSnapshots={"count": 1, "deleteEvicted": False}, snapshotExpiration=0)
    new = cycle(sweeper, a)
    newer = cycle(sweeper, a)
    until(lambda: new not in snapshots(up, a), "what nobody uses is swept")
    assert set(snapshots(up, a)) >= {old, newer}
    up.call("DELETE", f"/v2/sandboxes/{stranger.name}")
    sweeper.destroy(a)


def test_set_back_to_an_older_snapshot_B3(sweeper, up):
    """What a sandbox would resume from is never swept, however old it is."""
    a = sweeper.sandbox(vcpus=1)
    capture(sweeper, a, resume=True)
    old = cycle(sweeper, a)
    up.call("PATCH", f"/v2/sandboxes/{a}", {"keepLastSnapshots": {"count": 10, "deleteEvicted": False}})
    kept = [old] + [cycle(sweeper, a) for _ in range(2)]
    sweeper.stop(a)
    up.call("PATCH", f"/v2/sandboxes/{a}", {"currentSnapshotId": old, "keepLastSnapshots": {"count": 1, "deleteEvicted": False}})
    newest = snapshots(up, a)[0]
    until(lambda: not set(kept[1:]) & set(snapshots(up, a)), "the ones between are swept")
    assert {old, newest} <= set(snapshots(up, a))
    assert sweeper.resume(a)["status"] == "running"
    sweeper.destroy(a)


def test_what_the_caller_wants_to_keep_is_not_swept(sweeper, up):
    """delete_evicted:false is the caller's own word: its snapshots stay, all of them."""
    a = sweeper.sandbox(vcpus=1, snapshots={"keep": 1, "delete_evicted": False})
    b = sweeper.sandbox(vcpus=1)
    capture(sweeper, b, resume=True)
    mine = [cycle(sweeper, a) for _ in range(3)]
    theirs = [cycle(sweeper, b) for _ in range(3)]
    until(lambda: not set(theirs[:-1]) & set(snapshots(up, b)), "b is swept")
    assert set(snapshots(up, a)) == set(mine)
    for name in (a, b):
        sweeper.destroy(name)
    until(lambda: not set(mine) & set(snapshots(up)), "they go with their sandbox")


def test_a_destroy_that_failed_takes_no_snapshot(own, emulator, up):
    """What a sandbox would have left is only deleted once the sandbox is."""
    gateway, api = own(LIFECYCLE_SWEEP_MS=200, UPSTREAM_RETRIES=0, UPSTREAM_PROJECT_ID=up.project)
    a = api.sandbox(vcpus=1)
    capture(api, a, resume=True)
    last = cycle(api, a)
    emulator.fault({"status": 403, "body": "{\"error\":{\"code\":\"forbidden\",\"message\":\"no\"}}"}, method="DELETE",
                   path_regex=f"/sandboxes/{a}$")
    api.refused("DELETE", f"/v1/sandboxes/{a}", 502, "upstream_auth")
    b = api.sandbox(vcpus=1)
    capture(api, b, resume=True)
    old = cycle(api, b)
    cycle(api, b)
    until(lambda: old not in snapshots(up, b), "a sweep came by")
    assert last in snapshots(up, a) and api.resume(a)["status"] == "running"
    emulator.clear_faults()
    api.destroy(a)
    until(lambda: last not in snapshots(up), "now it goes")


def test_delete_of_a_snapshot(api, up):
    a = api.sandbox(vcpus=1)
    current = capture(api, a)["id"]
    detail = api.refused("DELETE", f"/v1/snapshots/{current}", 409, "snapshot_in_use")["detail"]
    assert a in detail and current in detail and usable(up, current)
    api.resume(a)
    cycle(api, a)
    api.ok("DELETE", f"/v1/snapshots/{current}", 204)
    assert not usable(up, current)
    api.refused("GET", f"/v1/snapshots/{current}", 404, "snapshot_not_found")
    gone = api.ok("GET", f"/v1/snapshots/{current}?include=deleted").json()
    assert gone["status"] == "deleted" and gone["id"] == current
    api.ok("DELETE", "/v1/snapshots/snap_never", 204)
    api.refused("GET", "/v1/snapshots/tree", 404, "snapshot_not_found")
    api.refused("GET", "/v1/snapshots/snap_never", 404, "snapshot_not_found")


def test_capture_of_a_stopped_sandbox_is_what_it_would_resume_from(api, up, emulator):
    a = api.sandbox(vcpus=1)
    api.stop(a)
    current = api.get(a)["current_snapshot_id"]
    with emulator.calls() as calls:
        got = capture(api, a, status=200, resume=True)
    assert got["id"] == current and got["captured"] is False and got["resumed"] is False
    assert ("POST", "snapshot") not in calls.seen()
    assert api.get(a)["status"] == "stopped"
    cycle(api, a)
    assert usable(up, current), "its id was given away"


def test_capture_stops_and_starts_again_B9plus(api):
    a = api.sandbox(vcpus=1, persistent=False)
    api.put(a, "x", b"1")
    before = api.get(a)["session_id"]
    got = api.ok("POST", f"/v1/sandboxes/{a}/snapshots", 201, json={})
    assert got.headers["Location"] == "/v1/snapshots/" + got.json()["id"]
    assert got.json()["session_id"] == before and got.json()["creation"] == "manual" and got.json()["expires_at"] is None
    assert api.get(a)["status"] == "stopped"
    assert api.resume(a)["status"] == "running"
    again = capture(api, a, resume=True, expire_ms=86400000)
    assert again["resumed"] is True and again["expires_at"] is not None and "resume_error" not in again
    now = api.get(a)
    assert now["status"] == "running" and now["session_id"] != before and now["current_snapshot_id"] == again["id"]
    assert api.file(a, "x") == b"1"


def test_capture_whose_answer_is_lost_is_found_by_its_session(api, emulator, up):
    """The upstream did it and could not say so: once, and the caller is told."""
    a = api.sandbox(vcpus=1)
    emulator.fault({"lose_answer": True}, times=1, method="POST", path_regex="/snapshot$")
    with emulator.calls() as calls:
        got = capture(api, a)
    assert sum(c[0] == "POST" and c[1] == "snapshot" for c in calls.seen()) == 1
    assert snapshots(up, a) == [got["id"]] and got["captured"] is True


def test_nothing_to_capture(api):
    a = api.sandbox(vcpus=1, persistent=False)
    api.stop(a)
    api.refused("POST", f"/v1/sandboxes/{a}/snapshots", 409, "not_resumable", json={})
    api.refused("POST", "/v1/sandboxes/none-such/snapshots", 404, "sandbox_not_found", json={})
    for body, pointer in (({"expire_ms": 5}, "/expire_ms"), ({"resume": 1}, "/resume"), ({"x": 1}, "/x")):
        assert api.call("POST", f"/v1/sandboxes/{a}/snapshots", json=body).json()["pointer"] == pointer


def test_lists_of_snapshots_and_sessions(api, up):
    a = api.sandbox(vcpus=1, snapshots={"keep": 10})
    made = [cycle(api, a) for _ in range(4)]
    path = f"/v1/sandboxes/{a}/snapshots"
    seen, cursor = [], None
    for _ in range(10):
        answer = api.ok("GET", path, params={"limit": 3, **({"cursor": cursor} if cursor else {})})
        page = answer.json()
        seen += [s["id"] for s in page["items"]]
        cursor = page["next_cursor"]
        assert ("Link" in answer.headers) == bool(cursor)
        if not cursor:
            break
    assert seen == made[::-1]
    first = api.ok("GET", path).json()["items"][0]
    assert first["creation"] == "automatic" and first["parent_id"] == made[-2] and first["size_bytes"] >= 0
    assert first["regions"] and first["expires_at"] is None
    sessions = api.ok("GET", f"/v1/sandboxes/{a}/sessions").json()["items"]
    assert len(sessions) == 5 and sessions[0]["status"] == "running" and sessions[1]["status"] == "stopped"
    assert sessions[0]["source_snapshot_id"] == made[-1] and sessions[-1]["source_snapshot_id"] is None
    assert first["session_id"] == sessions[1]["id"]
    assert set(made) <= {s["id"] for s in api.ok("GET", "/v1/snapshots?limit=100").json()["items"]}
    for bad in ("limit=0", "limit=101", "cursor=", "include=all", "x=1"):
        assert api.call("GET", f"{path}?{bad}").status_code == 422
    for what in ("snapshots", "sessions"):
        api.refused("GET", f"/v1/sandboxes/none-such/{what}", 404, "sandbox_not_found")


def test_effective_retention_is_told_P59(api, up):
    a = api.sandbox(vcpus=1)
    assert api.get(a)["snapshots"] == {"keep": 1, "expire_ms": 0, "delete_evicted": True}
    capture(api, a, resume=True)
    assert api.get(a)["snapshots"] == {"keep": 1, "expire_ms": 0, "delete_evicted": False}
    assert retention(up, a) == (0, 1, False)


def test_a_guard_is_one_call_and_none_the_second_time_A6(api, emulator):
    a = api.sandbox(vcpus=1)
    for patches in (1, 0):
        with emulator.calls() as calls:
            capture(api, a, resume=True)
        assert sum(c[0] == "PATCH" for c in calls.seen()) == patches


# ---- destroying under faults ----

def test_a_destroy_whose_answer_is_lost_is_looked_at_and_not_sent_again(api, emulator, up):
    a = api.sandbox(vcpus=1)
    cycle(api, a)
    emulator.fault({"lose_answer": True}, times=1, method="DELETE", path_regex=f"/sandboxes/{a}$")
    with emulator.calls() as calls:
        api.ok("DELETE", f"/v1/sandboxes/{a}", 204)
    assert [c[0] for c in calls.seen()].count("DELETE") == 1, "the name may be another's by then"
    assert snapshots(up) == [] and a not in up.names()
    api.ok("DELETE", f"/v1/sandboxes/{a}", 204)


def test_a_destroy_is_tried_again_where_the_upstream_failed(api, emulator, up):
    a = api.sandbox(vcpus=1)
    emulator.fault({"status": 500, "body": "{}"}, times=2, method="DELETE", path_regex=f"/sandboxes/{a}$")
    api.ok("DELETE", f"/v1/sandboxes/{a}", 204)
    assert a not in up.names()


def test_a_destroy_that_cannot_be_says_so_P60(api, emulator, up):
    a = api.sandbox(vcpus=1)
    emulator.fault({"status": 503, "body": "{}"}, method="DELETE", path_regex=f"/sandboxes/{a}$")
    with emulator.calls() as calls:
        problem = api.refused("DELETE", f"/v1/sandboxes/{a}", 503, "upstream_unavailable")
    assert [c[0] for c in calls.seen()].count("DELETE") <= 3 and problem["outcome"] == "unknown"
    assert api.get(a)["status"] == "running"
    emulator.clear_faults()
    api.ok("DELETE", f"/v1/sandboxes/{a}", 204)


def test_a_destroy_waits_out_a_stop(api, emulator, up):
    """Somebody stops it at this moment: the delete comes after that."""
    a = api.sandbox(vcpus=1)
    emulator.fault({"status": 422, "body": "{\"error\":{\"code\":\"sandbox_stopping\",\"message\":\"x\"}}"}, times=1, method="DELETE",
                   path_regex=f"/sandboxes/{a}$")
    api.ok("DELETE", f"/v1/sandboxes/{a}", 204)
    assert a not in up.names()


def test_two_gateways_of_one_store_do_not_sweep_what_the_other_gave_away(own, up):
    """What one gateway gives to somebody, the other one's sweep does not take."""
    gateway, one = own(LIFECYCLE_SWEEP_MS=200, UPSTREAM_PROJECT_ID=up.project)
    _, two = own(LIFECYCLE_SWEEP_MS=200, UPSTREAM_PROJECT_ID=up.project, STORE_STATE_FILE=gateway.tokens.parent / "state.db")
    a = one.sandbox(vcpus=1)
    capture(one, a, resume=True)
    given = []
    for _ in range(8):
        last = cycle(one, a)
        given.append((last, from_snapshot(two, last, persistent=False)))
    for snapshot, _ in given:
        assert usable(up, snapshot)
    for _, name in given:
        assert two.get(name)["status"] == "running"
        two.destroy(name)
    one.destroy(a)
    assert all(usable(up, snapshot) for snapshot, _ in given), "their ids were given away"
