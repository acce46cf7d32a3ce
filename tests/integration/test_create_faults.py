"""Every way in which the creation of a sandbox can go wrong, for every way of asking for one: no orphan, no double, nobody
else's sandbox harmed, the right error, and an outcome that is true (A11, E3, P55, P56, P57, P60).

Each test has a project of its own, so that what is left behind is seen.
"""
import concurrent.futures
import secrets
import signal
import sqlite3
import time

import pytest
import requests

from client import Client
from databases import Sqlite
from emulator_api import Api
from harness import until

CREATE_MS = 1500

# What befalls the POST: {action of the emulator, whether it allocates all the same}
FAULTS = {
    "lost_before": ({"close_before": True}, False),
    "lost_after": ({"lose_answer": True}, True),
    "5xx_before": ({"status": 503}, False),
    "5xx_after": ({"status": 500, "do_it": True}, True),
    "html_before": ({"html": 502}, False),
    "html_after": ({"html": 502, "do_it": True}, True),
    "malformed_after": ({"malformed": True, "do_it": True}, True),
    "cut": ({"cut_after_bytes": 40}, True),
    "too_late": ({"delay_ms": CREATE_MS + 4000}, True),
}
ERRORS = {
    "lost_before": (503, "upstream_unreachable"),
    "5xx_before": (503, "upstream_unavailable"),
    "html_before": (502, "upstream_bad_response"),
    "too_late": (504, "upstream_timeout"),
}
VARIANTS = ["named", "unnamed", "taken", "get", "get_taken", "keyed", "keyed_unnamed", "keyed_get"]


class World:
    """A gateway of this test alone, in a project of its own; its store outlives it."""

    def __init__(self, own, emulator, store):
        self.emulator, self.own, self.store = emulator, own, store
        self.project = "prj_" + secrets.token_hex(6)
        self.behind = Api(emulator, self.project)
        self.gateway = None
        self.start()

    def start(self):
        """A gateway; the next one knows the tokens of the one before."""
        before = self.gateway
        settings = {"AUTH_TOKENS_FILE": before.tokens} if before else {}
        self.gateway, self.api = self.own(
            UPSTREAM_PROJECT_ID=self.project, UPSTREAM_CREATE_TIMEOUT_MS=CREATE_MS, UPSTREAM_TIMEOUT_MS=3000,
            UPSTREAM_RETRY_BUDGET_MS=1000, STORE_KEY_SILENCE_MS=1500, STORE_BUSY_MS=1000, store=self.store, **settings)
        if before:
            self.gateway.tokens, self.gateway.token = before.tokens, before.token
            self.api = Client(self.gateway)

    def kill(self):
        self.gateway.end(signal.SIGKILL)

    def posts(self, calls):
        return [e for e in calls.entries if e["method"] == "POST" and e["path"].endswith("/sandboxes")]

    def made(self, calls):
        """Allocations that the emulator made, whoever learned of them."""
        return [e for e in self.posts(calls) if e["status"] == 200]

    def settled(self, calls):
        """All POSTs that the emulator had to do were done."""
        entries = [e for e in self.emulator.journal(calls.after) if e["method"] == "POST" and e["path"].endswith("/sandboxes")]
        return all(e["status"] is not None for e in entries)

    def lock_store(self):
        """As another process that does not let go of the database."""
        lock = sqlite3.connect(self.store.path, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        return lock

    def names(self):
        return self.behind.names()

    def tags(self, name):
        return self.behind.call("GET", f"/v2/sandboxes/{name}")["sandbox"].get("tags", {})


def worlds(own, emulator, store):
    """A world; in the end the store knows of those that are there, and of no others, and nobody holds a name."""
    w = World(own, emulator, store)
    yield w
    emulator.clear_faults()
    ours = sorted(name for name in w.names() if w.tags(name))
    until(lambda: sorted(r["sandbox"] for r in store.rows("SELECT sandbox FROM sandboxes")) == ours,
          f"the store knows of {ours} and of no others")
    until(lambda: store.rows("SELECT name FROM locks") == [], "no name is held")
    w.behind.clean_up()


@pytest.fixture
def world(own, emulator, tmp_path):
    yield from worlds(own, emulator, Sqlite(tmp_path / "database"))


@pytest.fixture
def on_each(own, emulator, database):
    """The same on SQLite and on PostgreSQL."""
    yield from worlds(own, emulator, database)


def ask(variant, world):
    """The request of a variant: (name or None, body, headers)."""
    name = None if "unnamed" in variant else "c-" + secrets.token_hex(6)
    body = {} if name is None else {"name": name}
    if "get" in variant:
        body["if_exists"] = "get"
    headers = {"Idempotency-Key": "k-" + secrets.token_hex(8)} if "keyed" in variant else {}
    if "taken" in variant:
        world.behind.create(name=name)
    return name, body, headers


def send(world, request):
    return world.api.call("POST", "/v1/sandboxes", json=request[1], headers=request[2])


def nothing_left(world):
    until(lambda: world.names() == [], f"nothing is left behind, but {world.names()}")


def is_ours(world, record):
    tags = world.tags(record["name"])
    assert len(tags["sg.alloc"]) == 64 and tags["sg.owner"]
    assert record["tags"] == {}, "the gateway's tags are not told"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_whose_answer_goes_wrong_A11(world, fault, variant):
    action, allocates = FAULTS[fault]
    request = ask(variant, world)
    before = world.names()
    world.emulator.fault(action, method="POST", path_regex="/sandboxes$", times=1)
    with world.emulator.calls() as calls:
        answer = send(world, request)
        if variant == "get_taken":  # it was there: nothing was tried
            assert answer.status_code == 200 and answer.json()["created"] is False
        elif variant == "taken":
            problem = answer.json()
            assert answer.status_code == 409 and problem["code"] == "sandbox_exists", answer.text
            assert problem["outcome"] == "not_started"
            assert answer.headers["Location"] == "/v1/sandboxes/" + request[0]
        elif allocates and fault != "too_late":
            assert answer.status_code == 201 and answer.json()["created"] is True, answer.text
            is_ours(world, answer.json())
        else:
            status, code = ERRORS[fault]
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (status, code), problem
            assert problem["outcome"] == "unknown"
    assert len(world.posts(calls)) == (0 if variant == "get_taken" else 1), "a POST that left is sent once (P60)"
    if "taken" in variant:
        assert world.names() == before and world.tags(request[0]) == {}, "it is somebody else's"
    elif answer.status_code == 201:
        assert world.names() == [answer.json()["name"]]
        if request[2]:
            again = send(world, request)
            assert again.headers["Idempotency-Replayed"] == "true" and again.content == answer.content
            assert world.names() == [answer.json()["name"]]
    elif request[2]:
        final = until(lambda: (lambda a: a if a.status_code == 201 else None)(send(world, request)), "it is made (P57)")
        assert final.json()["created"] is True
        assert world.names() == [final.json()["name"]] and request[0] in (None, final.json()["name"])
        is_ours(world, final.json())
        if fault == "too_late":  # the first POST lands now, and is refused, or was what the second run found
            until(lambda: world.settled(calls), "the late POST was carried out")
        assert world.names() == [final.json()["name"]]
        assert world.api.get(final.json()["name"])["session_id"] == final.json()["session_id"]
    else:
        if fault == "too_late":
            until(lambda: world.settled(calls), "the late POST was carried out")
        nothing_left(world)


# ---- the upstream stays away, the gateway dies, the client leaves ----

@pytest.mark.parametrize("variant", ["named", "unnamed", "taken", "get", "keyed"])
def test_the_upstream_is_down_when_it_is_looked_for_A11(world, variant):
    """The error is the first one and says that it is not confirmed; what was made goes once the upstream is back."""
    request = ask(variant, world)
    before = world.names()
    world.emulator.fault({"lose_answer": True}, method="POST", path_regex="/sandboxes$", times=1)
    world.emulator.fault({"status": 503}, method="GET", path_regex="/sandboxes/[^/]+$", nth=2 if "get" in variant else 1,
                         times=30)
    world.emulator.fault({"status": 503}, method="DELETE", times=3)
    with world.emulator.calls() as calls:
        problem = send(world, request).json()
    assert problem["code"] == "upstream_unreachable" and problem["outcome"] == "unknown", problem
    assert len(world.posts(calls)) == 1
    if variant == "taken":
        world.emulator.clear_faults()
        time.sleep(2.5)  # the clean-up is tried again meanwhile
        assert world.names() == before, "somebody else's sandbox stays"
    elif variant == "keyed":
        world.emulator.clear_faults()
        final = until(lambda: (lambda a: a if a.status_code == 201 else None)(send(world, request)), "it is found (P57)")
        assert final.json()["created"] is True and world.names() == [request[0]]
        assert len(world.made(calls)) == 0 and len(world.posts(calls)) == 1  # the answer of the one was lost
        time.sleep(1.5)
        assert world.names() == [request[0]], "nothing takes it away afterwards"
    else:
        assert "not confirmed" in problem["detail"]
        assert len(world.names()) == 1
        world.emulator.clear_faults()
        nothing_left(world)


@pytest.mark.parametrize("variant,delay_ms", [("named", 700), ("unnamed", 0), ("taken", 700), ("get", 0), ("keyed", 700),
                                              ("keyed_unnamed", 0)])
def test_the_gateway_is_killed_after_the_POST_A11(world, variant, delay_ms):
    killed_after_the_POST(world, variant, delay_ms)


@pytest.mark.parametrize("variant", ["unnamed", "keyed_unnamed"])
def test_the_gateway_is_killed_after_the_POST_on_each_A11(on_each, variant):
    killed_after_the_POST(on_each, variant, 700)


def killed_after_the_POST(world, variant, delay_ms):
    """What nobody was told of goes; what was asked for with a key is there for who asks again (C2, P57)."""
    request = ask(variant, world)
    before = world.names()
    action = {"drip_bytes": 1, "drip_ms": 300} if not delay_ms else {"delay_ms": delay_ms}
    world.emulator.fault(action, method="POST", path_regex="/sandboxes$", times=1)
    with world.emulator.calls() as calls:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asking = pool.submit(send, world, request)
            until(lambda: [e for e in world.emulator.journal(calls.after) if e["method"] == "POST"], "the POST arrived")
            time.sleep(0.2)
            world.kill()
            with pytest.raises(requests.ConnectionError):
                asking.result()
        until(lambda: world.settled(calls), "the POST was carried out")
        world.start()
        if request[2]:
            final = until(lambda: (lambda a: a if a.status_code == 201 else None)(send(world, request)), "it is found")
            assert final.json()["created"] is True
            is_ours(world, final.json())
            time.sleep(1)
            assert world.names() == [final.json()["name"]]
        elif variant == "taken":
            time.sleep(4 * CREATE_MS / 1000)  # until the intent counts as left behind
            assert world.names() == before
        else:
            nothing_left(world)
    assert len(world.made(calls)) == (0 if variant == "taken" else 1)


@pytest.mark.parametrize("variant", ["named", "unnamed", "taken", "get", "keyed"])
def test_the_client_leaves_A11plus(world, variant):
    """Without a key nobody would ever know of it: it goes at once.  With one it is what was asked for."""
    request = ask(variant, world)
    before = world.names()
    world.emulator.fault({"delay_ms": 700}, method="POST", path_regex="/sandboxes$", times=1)
    with world.emulator.calls() as calls:
        with pytest.raises(requests.exceptions.ReadTimeout):
            world.api.http.post(world.api.url + "/v1/sandboxes", json=request[1], headers=request[2], timeout=0.3)
        world.api.http.close()
        until(lambda: world.gateway.events("request"), "the gateway has come to an end with it")
    if variant == "taken":
        assert world.names() == before
        return
    until(lambda: len([e for e in world.emulator.journal(calls.after)
                       if e["method"] == "POST" and e["path"].endswith("/sandboxes") and e["status"] == 200]) == 1,
          "it was allocated")
    if variant == "keyed":
        replay = until(lambda: (lambda a: a if a.status_code == 201 else None)(send(world, request)), "it completed")
        assert replay.headers.get("Idempotency-Replayed") == "true"
        assert world.names() == [request[0]]
    else:
        nothing_left(world)


def test_the_client_leaves_during_init_A11plus(world):
    began = "c-" + secrets.token_hex(6)
    body = {"name": began, "init": [{"shell": "touch began; sleep 2"}]}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        session = requests.Session()
        asking = pool.submit(session.post, world.api.url + "/v1/sandboxes", json=body, timeout=1,
                             headers={"Authorization": "Bearer " + world.gateway.token})
        assert isinstance(asking.exception(), requests.exceptions.ReadTimeout)
    session.close()
    assert world.names() == [began], "init runs"
    nothing_left(world)


# ---- many at once ----

def test_twenty_at_once_are_one_P56(on_each):
    world = on_each
    name = "c-" + secrets.token_hex(6)
    with world.emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: Client(world.gateway).call("POST", "/v1/sandboxes", json={"name": name}), range(20)))
    assert sorted(a.status_code for a in answers) == [201] + [409] * 19
    assert {a.json()["code"] for a in answers if a.status_code == 409} == {"sandbox_exists"}
    assert {a.headers["Location"] for a in answers} == {"/v1/sandboxes/" + name}
    assert len(world.made(calls)) == 1 and world.names() == [name]


def test_two_gateways_and_lost_answers_make_one_E3_P56(on_each, own):
    """Get-or-create through two gateways on one store, and the first answer of the upstream is lost."""
    world = on_each
    other = own(UPSTREAM_PROJECT_ID=world.project, store=world.store)[0]
    name = "c-" + secrets.token_hex(6)
    world.emulator.fault({"lose_answer": True}, method="POST", path_regex="/sandboxes$", times=1)
    body = {"name": name, "if_exists": "get"}
    with world.emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: Client((world.gateway, other)[i % 2]).call("POST", "/v1/sandboxes", json=body),
                                range(8)))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201], [a.text for a in answers]
    assert len({a.json()["session_id"] for a in answers}) == 1
    assert world.names() == [name]


def test_always_503_is_asked_once_P60(world):
    world.emulator.fault({"status": 503})
    with world.emulator.calls() as calls:
        assert send(world, (None, {"name": "c-" + secrets.token_hex(6)}, {})).status_code == 503
    assert len(world.posts(calls)) == 1
    looks = [e for e in calls.entries if e["method"] == "GET"]
    assert len(looks) <= 6, "one look and one try of the clean-up, each with the configured retries"
    world.emulator.clear_faults()


# ---- what the store cannot remember ----

def test_without_a_store_what_needs_none_is_created(own, emulator, tmp_path):
    """The store is a file in a directory that became none: a plain create works, one that has to be remembered is refused
    before anything is sent."""
    world = World(own, emulator, Sqlite(tmp_path / "database"))
    lock = world.lock_store()
    try:
        with emulator.calls() as calls:
            refused = world.api.refused("POST", "/v1/sandboxes", 503, "store_unavailable",
                                        json={"working_directory": "/tmp/w"})
            assert refused["outcome"] == "not_sent"
        assert len(world.posts(calls)) == 0
        assert world.api.ok("POST", "/v1/sandboxes", 201, json={}).json()["status"] == "running"
    finally:
        lock.close()
    world.behind.clean_up()


# ---- the plan ----

def test_an_unstated_timeout_gives_way_to_the_plan_A5(own_emulator, own):
    up = own_emulator("--plan=hobby")
    gateway, api = own(UPSTREAM_URL=up.emulator.url, UPSTREAM_TOKEN=up.emulator.token, UPSTREAM_TOKEN_FILE="")
    record = api.create()
    assert record["timeout_ms"] == 2700000, "the effective one is told"
    refused = api.refused("POST", "/v1/sandboxes", 422, "upstream_rejected", json={"timeout_ms": 3600000})
    assert refused["outcome"] == "not_started" and "timeout" in refused["detail"]
    api.clean_up()


def noted(world, where):
    return world.store.rows("SELECT target FROM cleanups WHERE " + where) != []


def test_what_another_gateway_takes_away_meanwhile_is_not_told_A6(world):
    """A creation that lasts longer than was intended counts as left behind: whoever asked is not told of a sandbox that goes."""
    world.emulator.fault({"delay_ms": 1000}, method="POST", path_regex="/sandboxes$", times=1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send, world, ("slow", {"name": "slow"}, {}))
        until(lambda: noted(world, "tries = 0"), "its intent is noted")
        world.store.rows("UPDATE cleanups SET claimed_by = 'another', claimed_until = 9000000000000000")
        answer = answer.result()
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert problem["code"] == "sandbox_transition" and problem["outcome"] == "not_started"
    nothing_left(world)


def test_what_is_remembered_of_an_earlier_run_takes_nothing_from_a_later_one_A6_P55(world):
    """Runs of one key share a tag: what is to be taken away of the first is not what the second one answers with."""
    request = ("box", {"name": "box", "working_directory": "/vercel/sandbox/w"}, {"Idempotency-Key": secrets.token_hex(8)})
    world.emulator.fault({"status": 400}, method="POST", path_regex="/cmd$")
    world.emulator.fault({"status": 503}, method="DELETE")
    first = send(world, request)
    assert first.status_code >= 400 and first.json()["outcome"] == "unknown", first.text
    until(lambda: noted(world, "tries > 0"), "it was tried to take it away")
    world.emulator.clear_faults()
    answers = []
    until(lambda: answers.append(send(world, request)) or answers[-1].status_code == 201, "it is created")
    assert all(a.status_code in (201, 409) for a in answers), [a.text for a in answers]
    assert not noted(world, "tries >= 0"), "nothing takes it away"
    assert world.names() == ["box"] and is_ours(world, answers[-1].json()) is None
