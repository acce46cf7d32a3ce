"""Checkpoints and forks: B9 E5 E8, and that neither breaks what others stand on (A6/B3)."""
import concurrent.futures
import secrets
import sqlite3

from harness import until
from test_retention import api, sweeper, up  # noqa: F401 (fixtures)
from test_retention import capture, cycle, retention, snapshots, usable


def name_of():
    return "c-" + secrets.token_hex(6)


def checkpoint(api, sandbox, status=201, **body):
    body.setdefault("name", name_of())
    return api.ok("POST", "/v1/checkpoints", status, json={"sandbox": sandbox, **body}).json()


def fork(api, source, status=201, headers=None, **body):
    body.setdefault("name", "f-" + secrets.token_hex(6))
    api.made.append(body["name"])
    return api.ok("POST", f"/v1/sandboxes/{source}/fork", status, json=body, headers=headers or {}).json()


# ---- checkpoints ----

def test_a_checkpoint_outlives_its_sandbox_B9(sweeper, up):
    a = sweeper.sandbox(vcpus=1)
    sweeper.put(a, "who.txt", b"one")
    made = checkpoint(sweeper, a)
    assert made["captured"] is True and made["resumed"] is False and made["state"] == "ready" and made["sandbox"] == a
    assert sweeper.get(a)["status"] == "stopped"
    assert retention(up, a) == (0, 1, False), "the source evicts nothing from now on"
    sweeper.resume(a)
    for _ in range(3):
        last = cycle(sweeper, a)
    until(lambda: set(snapshots(up, a)) == {made["snapshot_id"], last}, "only the checkpoint and the last one stay")
    sweeper.destroy(a)
    until(lambda: snapshots(up) == [made["snapshot_id"]], "the checkpoint's stays")
    sweeper.refused("DELETE", f"/v1/snapshots/{made['snapshot_id']}", 409, "snapshot_in_use")
    b = sweeper.sandbox(source={"type": "snapshot", "snapshot_id": made["snapshot_id"]})
    assert sweeper.file(b, "who.txt") == b"one"
    sweeper.destroy(b)
    sweeper.ok("DELETE", f"/v1/checkpoints/{made['name']}", 204)
    sweeper.ok("DELETE", f"/v1/checkpoints/{made['name']}", 204)
    sweeper.refused("GET", f"/v1/checkpoints/{made['name']}", 404, "checkpoint_not_found")


def test_a_deleted_checkpoint_spares_who_stands_on_it_B9(sweeper, up):
    a = sweeper.sandbox(vcpus=1)
    made = checkpoint(sweeper, a, resume=True)
    assert made["resumed"] is True and sweeper.get(a)["status"] == "running"
    sweeper.ok("DELETE", f"/v1/checkpoints/{made['name']}", 204)
    other = checkpoint(sweeper, a, resume=True)
    until(lambda: not usable(up, made["snapshot_id"]), "nobody needs it any more: it goes")
    sweeper.ok("DELETE", f"/v1/checkpoints/{other['name']}", 204)
    sweeper.stop(a)
    until(lambda: not usable(up, other["snapshot_id"]), "its sandbox stands on another one now")
    assert sweeper.resume(a)["status"] == "running"
    sweeper.destroy(a)


def test_deleting_the_checkpoint_its_sandbox_stands_on_keeps_the_sandbox(sweeper, up):
    a = sweeper.sandbox(vcpus=1)
    made = checkpoint(sweeper, a)
    b = sweeper.sandbox(vcpus=1)
    capture(sweeper, b, resume=True)
    sweeper.ok("DELETE", f"/v1/checkpoints/{made['name']}", 204)
    old = cycle(sweeper, b)
    cycle(sweeper, b)
    until(lambda: not usable(up, old), "a sweep came by")
    assert usable(up, made["snapshot_id"]) and sweeper.resume(a)["status"] == "running"
    for name in (a, b):
        sweeper.destroy(name)


def test_a_checkpoint_of_a_stopped_sandbox_starts_nothing(sweeper, up, emulator):
    a = sweeper.sandbox(vcpus=1)
    sweeper.stop(a)
    current = sweeper.get(a)["current_snapshot_id"]
    with emulator.calls() as calls:
        made = checkpoint(sweeper, a, resume=True)
    assert made["snapshot_id"] == current and made["captured"] is False and made["resumed"] is False
    assert ("POST", "snapshot") not in calls.seen() and sweeper.get(a)["status"] == "stopped"
    sweeper.resume(a)
    last = [cycle(sweeper, a) for _ in range(2)][-1]
    until(lambda: set(snapshots(up, a)) == {current, last}, "named, it is not swept although it is an automatic one")
    sweeper.ok("DELETE", f"/v1/checkpoints/{made['name']}", 204)
    until(lambda: snapshots(up, a) == [last], "then it is")
    sweeper.destroy(a)


def test_names_are_taken_once_and_replaced_when_wished(sweeper, up, emulator):
    a = sweeper.sandbox(vcpus=1)
    sweeper.put(a, "v", b"1")
    first = checkpoint(sweeper, a, resume=True)
    with emulator.calls() as calls:
        sweeper.refused("POST", "/v1/checkpoints", 409, "checkpoint_exists", json={"name": first["name"], "sandbox": a})
    assert len(calls) == 0, "nothing is captured for a name that is taken"
    sweeper.put(a, "v", b"2")
    second = checkpoint(sweeper, a, name=first["name"], replace=True, resume=True)
    assert second["snapshot_id"] != first["snapshot_id"]
    until(lambda: not usable(up, first["snapshot_id"]), "the replaced one goes")
    assert sweeper.ok("GET", f"/v1/checkpoints/{first['name']}").json()["snapshot_id"] == second["snapshot_id"]
    sweeper.ok("DELETE", f"/v1/checkpoints/{first['name']}", 204)


def test_parallel_checkpoints_of_one_name_make_one(sweeper):
    a, b, name = sweeper.sandbox(vcpus=1), sweeper.sandbox(vcpus=1), name_of()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = sorted(x.status_code for x in pool.map(
            lambda s: sweeper.call("POST", "/v1/checkpoints", json={"name": name, "sandbox": s}), (a, b, a, b)))
    assert codes == [201, 409, 409, 409]
    sweeper.ok("DELETE", f"/v1/checkpoints/{name}", 204)


def test_a_dangling_default_is_healed_and_reported_B9_E8(api, up):
    a = api.sandbox(vcpus=1)
    one = checkpoint(api, a, default=True)
    assert one["default"] is True and api.ok("GET", "/v1/checkpoints/default").json()["name"] == one["name"]
    up.call("DELETE", f"/v2/sandboxes/snapshots/{one['snapshot_id']}")
    seen = api.ok("GET", f"/v1/checkpoints/{one['name']}").json()
    assert seen["state"] == "gone" and seen["default"] is False
    api.refused("GET", "/v1/checkpoints/default", 404, "checkpoint_not_found")
    problem = api.refused("PUT", "/v1/checkpoints/default", 410, "checkpoint_gone", json={"name": one["name"]})
    assert one["snapshot_id"] in problem["detail"]
    listed = {c["name"]: c for c in api.ok("GET", "/v1/checkpoints?limit=100").json()["items"]}
    assert listed[one["name"]]["state"] == "gone"
    api.ok("DELETE", f"/v1/checkpoints/{one['name']}", 204)


def test_defaults_and_lists(api):
    a = api.sandbox(vcpus=1)
    made = [checkpoint(api, a)["name"] for _ in range(3)]
    assert api.ok("PUT", "/v1/checkpoints/default", json={"name": made[0]}).json()["default"] is True
    assert api.ok("PUT", "/v1/checkpoints/default", json={"name": made[1]}).json()["default"] is True
    assert api.ok("GET", f"/v1/checkpoints/{made[0]}").json()["default"] is False
    api.ok("PUT", "/v1/checkpoints/default", 204, json={"name": None})
    api.refused("GET", "/v1/checkpoints/default", 404, "checkpoint_not_found")
    api.refused("PUT", "/v1/checkpoints/default", 404, "checkpoint_not_found", json={"name": "never"})
    seen, cursor = [], None
    while True:
        page = api.ok("GET", "/v1/checkpoints", params={"limit": 1, **({"cursor": cursor} if cursor else {})}).json()
        seen += [c["name"] for c in page["items"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert [n for n in seen if n in made] == sorted(made)
    for name in made:
        api.ok("DELETE", f"/v1/checkpoints/{name}", 204)


def test_what_is_refused_before_anything_is_sent(api, emulator):
    with emulator.calls() as calls:
        for body, pointer in (({}, "/name"), ({"name": "default", "sandbox": "a"}, "/name"), ({"name": "-x", "sandbox": "a"}, "/name"),
                              ({"name": "ok"}, "/sandbox"), ({"name": "ok", "sandbox": "a", "x": 1}, "/x"),
                              ({"name": "ok", "sandbox": "a", "resume": "yes"}, "/resume")):
            answer = api.call("POST", "/v1/checkpoints", json=body)
            assert answer.status_code == 422 and answer.json()["pointer"] == pointer
        for body, pointer in (({"name": "_x"}, "/name"), ({"image": "x"}, "/image"), ({"resume": True}, "/resume"),
                              ({"snapshots": {"delete_evicted": True}}, "/snapshots/delete_evicted"),
                              ({"tags": {"sg.owner": "x"}}, "/tags/sg.owner"), ({"capture": 1}, "/capture")):
            answer = api.call("POST", "/v1/sandboxes/some/fork", json=body)
            assert answer.status_code == 422 and answer.json()["pointer"] == pointer, answer.text
    assert len(calls) == 0
    api.refused("POST", "/v1/checkpoints", 404, "sandbox_not_found", json={"name": name_of(), "sandbox": "none-such"})


# ---- forks ----

def test_a_fork_of_a_running_source_says_what_it_has_E5(api, up):
    a = api.sandbox(vcpus=1)
    api.put(a, "v", b"1")
    api.stop(a)
    api.resume(a)
    api.put(a, "v", b"2")
    made = fork(api, a)
    assert made["created"] is True and made["source"] == a and made["live_state_included"] is False and "running" in made["warning"]
    assert made["source_snapshot_id"] == api.get(a)["current_snapshot_id"] and made["source_snapshot_expires_at"] is None
    assert api.file(made["name"], "v") == b"1", "its last snapshot, not its live files"
    assert retention(up, a) == (0, 1, False) and retention(up, made["name"]) == (0, 1, False)


def test_a_fork_of_a_source_that_was_never_stopped_E5(api):
    a = api.sandbox(vcpus=1)
    api.put(a, "v", b"1")
    made = fork(api, a)
    assert made["source_snapshot_id"] is None and "no snapshot" in made["warning"] and made["live_state_included"] is False
    api.refused("GET", f"/v1/sandboxes/{made['name']}/files/content?path=v", 404, "file_not_found")
    live = fork(api, a, capture=True, resume=True)
    assert live["live_state_included"] is True and live["captured"] is True and live["warning"] is None
    assert api.file(live["name"], "v") == b"1" and api.get(a)["status"] == "running"


def test_forks_and_their_source_do_not_break_each_other_B3(sweeper, up):
    a = sweeper.sandbox(vcpus=1)
    sweeper.put(a, "v", b"1")
    shared = cycle(sweeper, a)
    b, c = fork(sweeper, a)["name"], fork(sweeper, a)["name"]
    assert sweeper.get(b)["current_snapshot_id"] == shared
    last = [cycle(sweeper, a) for _ in range(3)][-1]
    until(lambda: set(snapshots(up, a)) == {shared, last}, "what the forks stand on stays")
    sweeper.destroy(a)
    until(lambda: not usable(up, last), "the source's last one goes with it")
    assert usable(up, shared)
    sweeper.stop(b)
    sweeper.resume(b)
    assert sweeper.file(b, "v") == b"1" and sweeper.file(c, "v") == b"1"
    sweeper.stop(c)
    assert sweeper.resume(c)["status"] == "running"


def test_a_fork_has_its_own_tags_and_settings(api, up):
    a = api.sandbox(vcpus=1, tags={"team": "x"}, env={"A": "1"})
    api.stop(a)
    made = fork(api, a, env={"A": "2"})
    assert made["tags"] == {"team": "x"}
    tags = {n: up.call("GET", f"/v2/sandboxes/{n}")["sandbox"]["tags"] for n in (a, made["name"])}
    assert tags[a]["sg.alloc"] != tags[made["name"]]["sg.alloc"], "one allocation is not another"
    assert api.run(made["name"], shell="echo $A")["out"] == b"2\n"
    assert fork(api, a, tags={})["tags"] == {}


def test_a_fork_whose_answer_is_lost_is_found_E3(api, emulator):
    a = api.sandbox(vcpus=1)
    api.stop(a)
    emulator.fault({"lose_answer": True}, times=1, method="POST", path_regex="/fork$")
    with emulator.calls() as calls:
        made = fork(api, a)
    assert made["status"] == "running" and sum(c == ("POST", "fork") for c in calls.seen()) == 1


def test_a_fork_that_failed_leaves_nothing(api, emulator, up):
    a = api.sandbox(vcpus=1)
    api.stop(a)
    name = "f-" + secrets.token_hex(6)
    emulator.fault({"status": 500, "body": "{\"error\":{\"code\":\"x\",\"message\":\"no\"}}"}, times=1, method="POST", path_regex="/fork$")
    answer = api.call("POST", f"/v1/sandboxes/{a}/fork", json={"name": name})
    assert answer.status_code >= 500 and name not in up.names()
    assert fork(api, a, name=name)["name"] == name


def test_a_key_makes_one_fork(api, up):
    a = api.sandbox(vcpus=1)
    api.stop(a)
    key = {"Idempotency-Key": secrets.token_hex(8)}
    bodies = [api.ok("POST", f"/v1/sandboxes/{a}/fork", 201, json={"tags": {"k": "1"}}, headers=key).json() for _ in range(3)]
    api.made.append(bodies[0]["name"])
    assert len({b["name"] for b in bodies}) == 1
    assert sum(n == bodies[0]["name"] for n in up.names()) == 1


def test_a_fork_of_what_is_not_there(api, up):
    api.refused("POST", "/v1/sandboxes/none-such/fork", 404, "sandbox_not_found", json={})
    a, b = api.sandbox(vcpus=1), api.sandbox(vcpus=1)
    api.refused("POST", f"/v1/sandboxes/{a}/fork", 409, "sandbox_exists", json={"name": a})
    api.refused("POST", f"/v1/sandboxes/{a}/fork", 409, "sandbox_exists", json={"name": b})
    api.stop(a)
    current = api.get(a)["current_snapshot_id"]
    up.call("DELETE", f"/v2/sandboxes/snapshots/{current}")
    problem = api.refused("POST", f"/v1/sandboxes/{a}/fork", 410, "snapshot_gone", json={})
    assert current in problem["detail"]


# ---- a gateway that dies ----

def test_a_gateway_killed_while_it_captures_leaves_nothing_for_ever(own, up, emulator):
    """The capture is there and nobody was told: it goes once its sandbox does not stand on it any more."""
    gateway, dying = own(UPSTREAM_PROJECT_ID=up.project)
    a = dying.sandbox(vcpus=1)
    state = gateway.tokens.parent / "state.db"
    emulator.fault({"delay_ms": 1000}, times=1, method="POST", path_regex="/snapshot$")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        lost = pool.submit(dying.call, "POST", "/v1/checkpoints", json={"name": "lost", "sandbox": a})
        until(lambda: sql(state, "SELECT 1 FROM captures"), "the intent is on the disk")
        gateway.child.kill()
        gateway.child.wait()
        assert lost.exception() is not None
    captured = until(lambda: snapshots(up, a), "the upstream does it nevertheless")[0]
    sql(state, "DELETE FROM locks")  # what the dead one holds ends by itself, half a minute later
    dying.made.clear()
    _, api = own(LIFECYCLE_SWEEP_MS=200, UPSTREAM_PROJECT_ID=up.project, STORE_STATE_FILE=state)
    api.made.append(a)
    api.refused("GET", "/v1/checkpoints/lost", 404, "checkpoint_not_found")
    assert checkpoint(api, a, name="lost", resume=True)["snapshot_id"] == captured, "a stopped sandbox is what it was captured as"
    api.ok("DELETE", "/v1/checkpoints/lost", 204)
    assert api.resume(a)["status"] == "running" and usable(up, captured)
    sql(state, "UPDATE captures SET due_at = 0")
    api.stop(a)
    until(lambda: not usable(up, captured), "nobody has it")
    assert api.resume(a)["status"] == "running" and not sql(state, "SELECT 1 FROM captures")


def sql(state, line):
    with sqlite3.connect(state, timeout=20) as db:
        return db.execute(line).fetchall()
