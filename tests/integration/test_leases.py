"""C4: a sandbox with a lease goes when the lease is released or not renewed, whatever becomes of gateways meanwhile; what
cannot be taken away at once is remembered (A11).  Gateways of these tests share one store file."""
import concurrent.futures
import secrets
import signal
import time

import pytest

from emulator_api import Api
from harness import until


@pytest.fixture
def shared(own, tmp_path):
    """shared(…settings): a further gateway and its client on the store of this test; leases run out at once."""
    def make(**settings):
        return own(STORE_STATE_FILE=tmp_path / "shared.db", **{"LIFECYCLE_LEASE_GRACE_MS": 0, **settings})
    return make


@pytest.fixture
def on_each(own, database):
    """The same on either kind of database."""
    def make(**settings):
        return own(store=database, **{"LIFECYCLE_LEASE_GRACE_MS": 0, **settings})
    return make


def new_name():
    return "l-" + secrets.token_hex(8)


def lease(api, name, ttl_ms, status=200):
    return api.ok("POST", f"/v1/sandboxes/{name}/lease", status, json={"ttl_ms": ttl_ms}).json()


def is_gone(api, name):
    return api.call("GET", f"/v1/sandboxes/{name}").status_code == 404


def until_gone(api, name):
    until(lambda: is_gone(api, name), f"{name} is destroyed")


def deletes(entries, name):
    """Deletions that the emulator did, or is about to answer."""
    return [e for e in entries if e["method"] == "DELETE" and e["path"].endswith("/" + name)
            and (e["status"] is None or 200 <= e["status"] < 300)]


def kill(gateway):
    gateway.end(signal.SIGKILL)


def behind(emulator):
    """The emulator's own API for the gateways' project."""
    return Api(emulator, "prj_local")


def test_not_renewed_destroyed_once_C4(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    with emulator.calls() as calls:
        told = lease(api, name, 1500)
        assert told["sandbox"] == name and told["ttl_ms"] == 1500 and 1000 < told["left_ms"] <= 1500
        assert told["expires_at"].endswith("Z")
        assert api.ok("GET", f"/v1/sandboxes/{name}/lease").json()["ttl_ms"] == 1500
        until_gone(api, name)
    assert len(deletes(calls.entries, name)) == 1
    api.refused("GET", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found")
    assert api.refused("POST", f"/v1/sandboxes/{name}/lease", 404, "sandbox_not_found", json={"ttl_ms": 1500})


def test_renewed_it_stays_and_costs_no_call_C4(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    lease(api, name, 2000)
    with emulator.calls() as calls:
        for _ in range(12):
            assert lease(api, name, 2000)["left_ms"] > 1000
            time.sleep(0.3)
    assert len(calls) == 0, calls.seen()
    assert not is_gone(api, name)


def test_released_twice_C4(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    lease(api, name, 60000)
    with emulator.calls() as calls:
        api.ok("DELETE", f"/v1/sandboxes/{name}/lease", 204)
        assert is_gone(api, name)
        api.refused("DELETE", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found")
    assert len(deletes(calls.entries, name)) == 1


def test_released_by_several_at_once_C4(on_each, emulator):
    (_, one), (_, two) = on_each(), on_each()
    name = one.sandbox()
    lease(one, name, 60000)
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda i: (one, two)[i % 2].call("DELETE", f"/v1/sandboxes/{name}/lease").status_code, range(6)))
    assert sorted(answers) == [204] + 5 * [404]
    assert len(deletes(calls.entries, name)) == 1


def test_what_is_refused_costs_no_call(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    with emulator.calls() as calls:
        for body, pointer in (({}, "/ttl_ms"), ({"ttl_ms": 999}, "/ttl_ms"), ({"ttl_ms": 604800001}, "/ttl_ms"),
                              ({"ttl_ms": "1"}, "/ttl_ms")):
            assert api.refused("POST", f"/v1/sandboxes/{name}/lease", 422, "invalid_field", json=body)["pointer"] == pointer
        api.refused("POST", f"/v1/sandboxes/{name}/lease", 422, "unknown_field", json={"ttl_ms": 1000, "x": 1})
        api.refused("GET", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found")
        api.refused("DELETE", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found")
        api.refused("POST", "/v1/sandboxes/sessions/lease", 404, "sandbox_not_found", json={"ttl_ms": 1000})
    assert len(calls) == 0
    assert not is_gone(api, name)


def test_killed_and_started_again_grace_then_destroyed_once_C4(on_each, emulator):
    gateway, api = on_each()
    name, kept = api.sandbox(), api.sandbox()
    lease(api, name, 1000)
    lease(api, kept, 1000)
    kill(gateway)
    time.sleep(1.5)  # both run out while nobody is there
    with emulator.calls() as calls:
        began = time.monotonic()
        gateway, api = on_each(LIFECYCLE_LEASE_GRACE_MS=3000)
        assert api.ok("GET", f"/v1/sandboxes/{name}/lease").json()["left_ms"] == 0
        assert lease(api, kept, 60000)["left_ms"] > 50000, "within the grace it is renewed"
        assert not is_gone(api, name)
        until_gone(api, name)
        assert time.monotonic() - began >= 3
        assert not is_gone(api, kept)
    assert len(deletes(calls.entries, name)) == 1
    api.made = [kept]


def test_two_gateways_on_one_store_destroy_once_C4(on_each, emulator):
    (_, one), (_, two) = on_each(), on_each()
    names = [one.sandbox() for _ in range(3)]
    with emulator.calls() as calls:
        for i, name in enumerate(names):
            lease((one, two)[i % 2], name, 1500)
        lease(two, names[0], 60000)  # each renews what the other made
        for name in names[1:]:
            until_gone(one, name)
            assert is_gone(two, name)
    for name in names[1:]:
        assert len(deletes(calls.entries, name)) == 1
    assert not is_gone(one, names[0])
    assert one.ok("GET", f"/v1/sandboxes/{names[0]}/lease").json()["ttl_ms"] == 60000


def test_a_namesake_survives_C4(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    lease(api, name, 1500)
    direct = behind(emulator)
    direct.call("DELETE", f"/v2/sandboxes/{name}", deleteOrphanSnapshots="true")
    second = direct.create(name=name)
    until(lambda: gateway.events("nothing left to clean up"), "the lease of the first one has run out")
    assert direct.get(second).id == second.id and api.get(name)["status"] == "running"
    api.refused("GET", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found")
    assert lease(api, name, 60000)["left_ms"] > 50000, "the second one can have a lease of its own"


def test_renewing_races_running_out_C4(on_each):
    """Whoever is told that his lease is renewed keeps the sandbox for its time; whoever is not, loses it."""
    gateway, api = on_each()
    names = [api.sandbox(vcpus=1) for _ in range(5)]
    until_end = {}
    for name in names:
        lease(api, name, 1000)
        until_end[name] = time.monotonic() + 1.0

    def renew(i):
        name = names[i]
        while time.monotonic() < until_end[name] + 0.5 * (i / (len(names) - 1)):
            time.sleep(0.005)
        answer = api.call("POST", f"/v1/sandboxes/{name}/lease", json={"ttl_ms": 30000})
        return name, answer.status_code, answer.json()

    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(renew, range(len(names))))
    for name, status, body in answers:
        assert status == 200 or body["code"] in ("lease_not_found", "sandbox_not_found"), body
        if status != 200:
            until_gone(api, name)
    settled = time.monotonic() + 3
    while time.monotonic() < settled:
        for name, status, _ in answers:
            assert status != 200 or not is_gone(api, name), f"{name} was renewed and taken away"
        time.sleep(0.1)


def test_upstream_down_when_it_runs_out_remembered_and_done_later_A11(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    lease(api, name, 1000)
    emulator.fault({"status": 503}, method="POST", path_regex="/stop$")
    emulator.fault({"status": 503}, method="DELETE")
    until(lambda: gateway.events("clean-up failed"), "it was tried")
    assert not is_gone(api, name)
    assert api.refused("POST", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found", json={"ttl_ms": 1000})["outcome"] == "not_started"
    kill(gateway)
    emulator.clear_faults()
    with emulator.calls() as calls:
        gateway, api = shared(LIFECYCLE_LEASE_GRACE_MS=60000)  # what ran out is not given another grace
        until_gone(api, name)
    assert len(deletes(calls.entries, name)) == 1


def test_released_while_the_upstream_is_down_A11(shared, emulator):
    gateway, api = shared()
    name = api.sandbox()
    lease(api, name, 60000)
    emulator.fault({"status": 503}, method="DELETE")
    told = api.ok("DELETE", f"/v1/sandboxes/{name}/lease", 202).json()
    assert told == {"sandbox": name, "destroyed": False}
    api.refused("DELETE", f"/v1/sandboxes/{name}/lease", 404, "lease_not_found")
    emulator.clear_faults()
    until_gone(api, name)


def test_an_operation_that_was_answered_202_has_ended_A11(shared, emulator):
    """The request's own 202 is not told as that of one that runs: whoever waits for its end would wait for ever."""
    gateway, api = shared()
    name = api.sandbox()
    lease(api, name, 60000)
    emulator.fault({"status": 503}, method="DELETE")
    begun = api.ok("DELETE", f"/v1/sandboxes/{name}/lease", 202, headers={"Prefer": "respond-async"})
    assert begun.json()["state"] == "running", begun.text
    until(lambda: api.call("GET", begun.headers["Location"]).status_code != 202, "the operation ends")
    assert api.ok("GET", begun.headers["Location"]).json() == {"sandbox": name, "destroyed": False}
    emulator.clear_faults()
    until_gone(api, name)


def test_a_gateway_stops_while_the_upstream_hangs(shared, emulator):
    """Nobody waits ten minutes for a stop that does not come; what is left is the next gateway's."""
    gateway, api = shared()
    name = api.sandbox()
    emulator.fault({"delay_ms": 12000, "status": 503}, method="POST", path_regex="/stop$", times=1)
    lease(api, name, 1000)
    until(lambda: [e for e in emulator.journal() if e["path"].endswith("/stop") and e["status"] is None], "it is at it")
    began = time.monotonic()
    assert gateway.end() == 0
    assert 4 < time.monotonic() - began < 10
    gateway, api = shared()
    until_gone(api, name)


def test_other_gateway_takes_over_from_a_dead_one_C4(on_each, emulator):
    (first, one), (second, two) = on_each(), on_each()
    name = one.sandbox()
    lease(one, name, 2000)
    kill(first)
    with emulator.calls() as calls:
        until_gone(two, name)
    assert len(deletes(calls.entries, name)) == 1
    one.made = []


# ---- in create ----

def ran_out(database):
    """As if the time had passed."""
    database.rows("UPDATE leases SET expires_at = 0")
    database.rows("UPDATE cleanups SET next_at = 0")
    database.rows("UPDATE locks SET held_until = 0")  # what the dead gateway held


def test_lease_in_create_C4(own, database, emulator):
    _, api = own(store=database, LIFECYCLE_LEASE_GRACE_MS=0)
    with emulator.calls() as calls:
        box = api.create(lease={"ttl_ms": 2500})
        assert 1000 < api.ok("GET", f"/v1/sandboxes/{box['name']}/lease").json()["left_ms"] <= 2500
        assert box["timeout_ms"] == 300000, "its own time is a backstop: not the hour of those that nobody watches"
        assert lease(api, box["name"], 2500)
    assert len(calls) == 1, "the lease is known: nothing is asked"
    assert api.create(timeout_ms=600000, lease={"ttl_ms": 60000})["timeout_ms"] == 600000
    until_gone(api, box["name"])
    for body, pointer in (({"ttl_ms": 1}, "/lease/ttl_ms"), ({}, "/lease/ttl_ms"), ({"ttl_ms": 5000, "x": 1}, "/lease/x")):
        answer = api.call("POST", "/v1/sandboxes", json={"lease": body})
        assert answer.status_code == 422 and answer.json()["pointer"] == pointer


@pytest.mark.parametrize("lost", ("before", "after"))
def test_killed_while_creating_leaves_nothing_C4_A11(own, database, emulator, lost):
    """The gateway dies while the upstream creates (or before it begins to): the next one takes the sandbox away."""
    gateway, api = own(store=database, LIFECYCLE_LEASE_GRACE_MS=0)
    name = new_name()
    action = {"delay_ms": 3000} if lost == "after" else {"delay_ms": 3000, "status": 503}
    emulator.fault(action, method="POST", path_regex="/sandboxes$", times=1)
    seen = max((e["seq"] for e in emulator.journal()), default=0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: api.http.post(api.url + "/v1/sandboxes", json={"name": name, "lease": {"ttl_ms": 5000}}))
        until(lambda: [e for e in emulator.journal(seen) if e["method"] == "POST" and e["path"].endswith("/sandboxes")],
              "the upstream has it")
        assert [r["sandbox"] for r in database.rows("SELECT sandbox FROM leases WHERE pending = 1")] == [name], "stored before it was sent"
        kill(gateway)
        assert asked.exception() is not None
    if lost == "after":
        direct = behind(emulator)
        until(lambda: direct.request("GET", f"/v2/sandboxes/{name}").status_code == 200, "it was created nevertheless")
    ran_out(database)
    gateway, api = own(store=database, LIFECYCLE_LEASE_GRACE_MS=0)
    if lost == "after":
        until_gone(api, name)
    until(lambda: not database.rows("SELECT alloc FROM leases"), "the lease is handed over")
    if lost == "before":
        assert database.rows("SELECT lost_until FROM cleanups")[0]["lost_until"] > 0, "it is looked for a while longer"
    assert is_gone(api, name)


def test_a_create_that_fails_leaves_no_lease(own, database, emulator):
    _, api = own(store=database)
    name = api.sandbox()
    api.refused("POST", "/v1/sandboxes", 409, "sandbox_exists", json={"name": name, "lease": {"ttl_ms": 5000}})
    assert database.rows("SELECT alloc FROM leases") == [] and database.rows("SELECT alloc FROM cleanups") == []
    emulator.fault({"status": 400, "body": '{"error":{"code":"bad_request","message":"no"}}'}, method="POST", path_regex="/sandboxes$")
    api.refused("POST", "/v1/sandboxes", 422, "upstream_rejected", json={"lease": {"ttl_ms": 5000}})
    assert database.rows("SELECT alloc FROM leases") == [] and database.rows("SELECT alloc FROM cleanups") == []
    assert not is_gone(api, name)
