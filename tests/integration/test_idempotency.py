"""Idempotency-Key: what came with one runs once, whichever gateway is asked and whatever it dies of; C1 U1 U3 P55 P57."""
import contextlib
import hashlib
import secrets
import signal
import sqlite3
import threading
import time

import pytest

from client import Client, problem
from harness import until

SILENCE_MS = 1500  # after which another gateway takes over


@pytest.fixture
def pair(own, database):
    """Two gateways on one database, with the same token: (gateway, client) each."""
    settings = {**database.settings(), "STORE_KEY_SILENCE_MS": SILENCE_MS}
    first, api = own(**settings)
    second, _ = own(**settings, AUTH_TOKENS_FILE=first.tokens)
    second.token = first.token
    return (first, api), (second, Client(second))


@pytest.fixture
def one(own):
    """(gateway, client, path of its database) of a gateway on SQLite."""
    gateway, api = own(STORE_KEY_SILENCE_MS=SILENCE_MS, STORE_BUSY_MS=800)
    return gateway, api, gateway.tokens.parent / "state.db"


on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # where the kind of database changes nothing


def keyed(api, key, path, body=None, **kw):
    headers = {"Idempotency-Key": key, **kw.pop("headers", {})}
    return api.call("POST", path, json={} if body is None else body, headers=headers, **kw)


def same(first, again, replayed=True):
    assert (again.status_code, again.content) == (first.status_code, first.content)
    for name in ("Location", "ETag", "Link", "Content-Type"):
        assert again.headers.get(name) == first.headers.get(name), name
    assert ("Idempotency-Replayed" in again.headers) == replayed
    assert "Idempotency-Replayed" not in first.headers


def settled(api, key, path, body):
    """Asks until the first request is over or was taken over."""
    def ask():
        answer = keyed(api, key, path, body)
        if answer.status_code != 409 or answer.json()["code"] != "request_in_progress":
            return [answer]
        document = problem(answer, 409, "request_in_progress")
        assert document["outcome"] == "not_sent" and document["retry_after_ms"] > 0 and document["retryable"]
        return None
    return until(ask, "the key is free")[0]


@contextlib.contextmanager
def held(path):
    """Nobody else can write to this database meanwhile."""
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


# ---- replays ----

def test_the_first_answer_is_given_again_by_every_gateway_P55(pair, emulator):
    (_, api), (_, other) = pair
    name = "t-" + secrets.token_hex(8)
    body = {"name": name, "timeout_ms": 600000}
    first = keyed(api, "create 1", "/v1/sandboxes", body)
    api.made.append(name)
    assert first.status_code == 201, first.text
    with emulator.calls() as calls:
        same(first, keyed(api, "create 1", "/v1/sandboxes", body))
        same(first, keyed(other, "create 1", "/v1/sandboxes", body))
        problem(keyed(other, "create 1", "/v1/sandboxes", {**body, "timeout_ms": 700000}), 422, "idempotency_key_reused")
        problem(keyed(other, "create 1", "/v1/sandboxes?x=1", body), 422, "idempotency_key_reused")
    assert len(calls) == 0
    problem(keyed(other, "create 2", "/v1/sandboxes", body), 409, "sandbox_exists")


@on_sqlite
def test_keys_of_other_tokens_are_others(pair):
    (gateway, api), (second, other) = pair
    stranger = Client(second)
    stranger.token = gateway.new_token()
    stranger.http.headers["Authorization"] = "Bearer " + stranger.token
    until(lambda: stranger.call("GET", "/v1/version").status_code == 200, "the new token is known")
    box = api.sandbox()
    path = f"/v1/sandboxes/{box}/processes"
    mine = keyed(api, "k", path, {"argv": ["true"]}).json()["process_id"]
    theirs = keyed(stranger, "k", path, {"argv": ["true"]})
    assert theirs.status_code == 201 and theirs.json()["process_id"] != mine
    assert keyed(other, "k", path, {"argv": ["true"]}).json()["process_id"] == mine


@pytest.mark.parametrize("way", ["run", "processes"])
def test_a_start_is_found_again(pair, way):
    (_, api), (_, other) = pair
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/{way}", {"shell": "echo run >> ran; echo done; echo error >&2; exit 3"}
    first = keyed(api, "k", path, body)
    assert first.status_code == (200 if way == "run" else 201), first.text
    pid = first.json()["process_id"]
    assert first.headers["Location"].endswith(f"/processes/{pid}")
    assert api.wait(box, pid)["exit_code"] == 3
    same(first, keyed(other, "k", path, body))
    if way == "run":
        assert first.json()["stdout"] == "done\n" and first.json()["stderr"] == "error\n"
    assert api.file(box, "ran") == b"run\n"
    second = keyed(other, "l", path, body)
    assert second.json()["process_id"] != pid
    api.wait(box, second.json()["process_id"])
    assert api.file(box, "ran") == b"run\nrun\n"


@on_sqlite
def test_what_run_printed_is_told_also_after_the_session_and_nothing_is_resumed_for_it(pair, emulator):
    (_, api), (_, other) = pair
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "echo run >> ran; echo done", "resume": True}
    first = keyed(api, "k", path, body)
    assert first.status_code == 200
    api.stop(box)
    with emulator.calls() as calls:
        again = until(lambda: (a := keyed(other, "k", path, body)).status_code != 503 and a, "what was saved is there")
        assert again.status_code == 200, again.text
        assert again.json()["stdout"] == "done\n" and again.json()["process_id"] == first.json()["process_id"]
        assert again.json()["session_id"] == first.json()["session_id"]
        assert again.headers["Idempotency-Replayed"] == "true"
    assert "POST" not in [method for method, _ in calls.seen()], "nothing was resumed or started"
    api.resume(box)
    again = keyed(other, "k", path, body)
    assert again.status_code == 200 and again.json()["stdout"] == "done\n"
    assert api.file(box, "ran") == b"run\n"


@on_sqlite
def test_a_run_that_lasts_is_told_as_it_is(pair):
    (_, api), (_, other) = pair
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "while [ ! -e go ]; do sleep 0.05; done; echo done", "wait_ms": 300}
    first = keyed(api, "k", path, body)
    assert first.status_code == 202 and first.json()["state"] == "running"
    assert keyed(other, "k", path, body).json()["process_id"] == first.json()["process_id"]
    api.put(box, "go", b"")
    api.wait(box, first.json()["process_id"])
    again = keyed(other, "k", path, body)
    assert again.status_code == 200 and again.json()["stdout"] == "done\n"
    assert again.json()["process_id"] == first.json()["process_id"]


@on_sqlite
def test_large_output_is_told_again(pair):
    (_, api), (_, other) = pair
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "seq 1 700000; echo run >> ran", "max_output": 8 * 1024 * 1024}
    first = keyed(api, "k", path, body)
    assert first.status_code == 200 and len(first.json()["stdout"]) > 4000000 and first.json()["output_complete"]
    same(first, keyed(other, "k", path, body))
    assert api.file(box, "ran") == b"run\n"


@on_sqlite
def test_a_removed_process_is_not_run_again(pair):
    (_, api), (_, other) = pair
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "echo run >> ran"}
    pid = keyed(api, "k", path, body).json()["process_id"]
    api.ok("DELETE", f"/v1/sandboxes/{box}/processes/{pid}", 204)
    answer = keyed(other, "k", path, body)
    problem(answer, 409, "outcome_lost")
    same(answer, keyed(api, "k", path, body))
    assert api.file(box, "ran") == b"run\n"


@on_sqlite
def test_failures_that_changed_nothing_are_not_kept(pair, emulator):
    (_, api), (_, other) = pair
    box = api.sandbox()
    api.run(box, "true")
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "echo done"}
    emulator.fault({"close_before": True}, method="POST", path_regex="/cmd$", times=1)
    document = keyed(api, "k", path, body).json()
    assert document["outcome"] == "not_started", document
    assert keyed(other, "k", path, body).json()["stdout"] == "done\n"
    problem(keyed(api, "j", path, {"shell": 1}), 422, "invalid_field")
    assert keyed(api, "j", path, body).status_code == 200


@on_sqlite
def test_what_cannot_be_found_out_is_not_done_again(pair, emulator):
    (_, api), (_, other) = pair
    box = api.sandbox()
    pid = api.start(box, shell="trap 'echo got >> got' USR1; echo ready; while :; do sleep 0.1; done")
    until(lambda: api.output(box, pid).content == b"ready\n", "the program is ready")
    path, body = f"/v1/sandboxes/{box}/processes/{pid}/signal", {"signal": "USR1", "target": "program"}
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/cmd$", times=1)
    document = keyed(api, "k", path, body).json()
    assert document["outcome"] == "unknown", document
    first = keyed(other, "k", path, body)
    problem(first, 409, "outcome_lost")
    assert keyed(api, "k", path, body).content == first.content
    until(lambda: api.run(box, shell="cat got || true")["out"], "the signal is handled")
    assert api.file(box, "got") == b"got\n"
    api.signal(box, pid, "KILL")


def test_calls_with_offsets_take_no_key(api, box):
    answer = api.call("POST", f"/v1/sandboxes/{box}/files/append", params={"path": "f", "offset": 0}, data=b"x",
                      headers={"Idempotency-Key": "k", "Content-Type": "application/octet-stream"})
    assert "offset" in problem(answer, 422, "unsupported")["detail"]


# ---- many at a time ----

def test_one_of_many_runs_P56(pair, emulator):
    (_, api), (_, other) = pair
    name, answers = "t-" + secrets.token_hex(8), []
    api.made.append(name)
    asked = [threading.Thread(target=lambda c=c: answers.append(keyed(Client(c), "k", "/v1/sandboxes", {"name": name})))
             for c in [pair[0][0], pair[1][0]] * 10]
    with emulator.calls() as calls:
        for t in asked:
            t.start()
        for t in asked:
            t.join()
    made = [a for a in answers if a.status_code == 201]
    assert made and len({a.content for a in made}) == 1
    assert len([a for a in made if "Idempotency-Replayed" not in a.headers]) == 1
    for a in answers:
        if a.status_code != 201:
            problem(a, 409, "request_in_progress")
    posts = [e for e in calls.entries if e["method"] == "POST" and e["path"].endswith("/sandboxes")]
    assert len(posts) == 1, posts
    assert settled(other, "k", "/v1/sandboxes", {"name": name}).content == made[0].content


# ---- gateways that die ----

@pytest.mark.parametrize("way", ["run", "processes"])
@pytest.mark.parametrize("moment", ["before the session is known", "before it is done", "before it lands", "while it is given up", "while it runs"])
def test_a_gateway_dies_and_it_runs_once(pair, emulator, database, way, moment):
    (first, api), (_, other) = pair
    box = other.sandbox()
    other.run(box, "true")
    path, body = f"/v1/sandboxes/{box}/{way}", {"shell": "echo run >> ran; sleep 1; echo done"}
    starts = {"method": "POST", "path_regex": "/cmd$", "times": 1}
    noted = moment != "before the session is known"
    if not noted:
        emulator.fault({"delay_ms": 5000}, method="GET", path_regex=f"/sandboxes/{box}$", times=1)
    elif moment == "before it is done":
        emulator.fault({"delay_ms": 5000}, **starts)
    elif moment == "before it lands":
        emulator.fault({"delay_ms": 1000}, **starts)
    elif moment == "while it is given up":  # the start is lost on its way, and claimed so that it cannot come later
        emulator.fault({"close_before": True}, **starts)
        emulator.fault({"delay_ms": 500}, **starts)
    dying = threading.Thread(target=swallow, args=(lambda: keyed(api, "k", path, body),))
    dying.start()
    fired = {"while it is given up": 2, "while it runs": 0}.get(moment, 1)
    until(lambda: sum(r["fired"] for r in emulator.admin("GET", "faults")["rules"]) == fired, "it is under way")
    if moment == "while it runs":
        until(lambda: other.call("GET", f"/v1/sandboxes/{box}/files/exists", params={"path": "ran"}).json()["exists"], "it runs")
        if way == "processes":
            until(lambda: database.rows("SELECT state FROM idempotency WHERE state = 3"), "it is answered")
    else:
        rows = database.rows("SELECT note, state FROM idempotency")
        assert [(bool(r["note"]), r["state"]) for r in rows] == [(noted, 1)]
    first.end(signal.SIGKILL)
    dying.join()
    answer = keyed(other, "k", path, body)
    if moment != "while it runs" or way == "run":
        problem(answer, 409, "request_in_progress")
        answer = settled(other, "k", path, body)
    assert answer.status_code in (200, 201), answer.text
    assert other.wait(box, answer.json()["process_id"])["exit_code"] == 0
    assert other.file(box, "ran") == b"run\n", "exactly once"
    again = keyed(other, "k", path, body)
    assert again.json()["process_id"] == answer.json()["process_id"] and again.headers["Idempotency-Replayed"] == "true"
    nonce = database.rows("SELECT nonce FROM idempotency")[0]["nonce"]
    turn = 1 if moment == "while it is given up" else 0
    assert answer.json()["process_id"] == "p_" + hashlib.sha256(f"process {turn}:{nonce}".encode()).hexdigest()[:24]
    if way == "run":
        assert answer.json()["stdout"] == again.json()["stdout"] == "done\n"


def swallow(call):
    with contextlib.suppress(Exception):
        call()


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize("moment", ["before it is made", "while it is told"])
def test_a_gateway_dies_and_one_sandbox_is_made_P57(pair, emulator, database, moment, named):
    (first, api), (_, other) = pair
    body = {"tags": {"test": secrets.token_hex(8)}}
    if named:
        body["name"] = "t-" + secrets.token_hex(8)
    delay = {"delay_ms": 3000} if moment == "before it is made" else {"drip_bytes": 1, "drip_ms": 100}
    with emulator.calls() as calls:
        emulator.fault(delay, method="POST", path_regex="/sandboxes$", times=1)
        dying = threading.Thread(target=swallow, args=(lambda: keyed(api, "k", "/v1/sandboxes", body),))
        dying.start()
        until(lambda: emulator.admin("GET", "faults")["rules"][0]["fired"] == 1, "it is asked for")
        if moment == "while it is told":
            until(lambda: other.call("GET", "/v1/sandboxes", params={"tag.test": body["tags"]["test"]}).json()["items"], "it is made")
        first.end(signal.SIGKILL)
        dying.join()
        database.rows("DELETE FROM locks")  # those of the dead run out in half a minute: before their keys, but for this test
        answer = settled(other, "k", "/v1/sandboxes", body)
        assert answer.status_code == 201, answer.text
        other.made.append(answer.json()["name"])
        posts = lambda: [e for e in emulator.journal(calls.after) if e["method"] == "POST" and e["path"].endswith("/sandboxes")]
        expected = 2 if moment == "before it is made" else 1
        until(lambda: len(posts()) == expected, "what was under way has come")
        statuses = sorted(e["status"] for e in posts() if e["status"] in (200, 201))
    assert len(statuses) <= 1, posts()
    items = other.ok("GET", "/v1/sandboxes", params={"tag.test": body["tags"]["test"]}).json()["items"]
    assert [i["name"] for i in items] == [answer.json()["name"]]
    same(answer, keyed(other, "k", "/v1/sandboxes", body))


@on_sqlite
def test_a_lost_answer_makes_no_second_sandbox_P57(pair, emulator):
    (_, api), (_, other) = pair
    body = {"tags": {"test": secrets.token_hex(8)}}
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/sandboxes$", times=1)
    answer = keyed(api, "k", "/v1/sandboxes", body)
    again = keyed(other, "k", "/v1/sandboxes", body)
    assert again.status_code == 201, again.text
    other.made.append(again.json()["name"])
    if answer.status_code == 201:
        same(answer, again)
    items = other.ok("GET", "/v1/sandboxes", params={"tag.test": body["tags"]["test"]}).json()["items"]
    assert len(items) == 1


@on_sqlite
def test_a_session_that_ended_with_the_gateway_is_not_replaced(pair, emulator):
    """Killed while the program runs; then the session ends, and another begins: there the id would be free."""
    (first, api), (_, other) = pair
    box = other.sandbox()
    other.run(box, "true")
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "echo run >> ran; sync; sleep 100", "resume": True}
    dying = threading.Thread(target=swallow, args=(lambda: keyed(api, "k", path, body),))
    dying.start()
    until(lambda: other.call("GET", f"/v1/sandboxes/{box}/files/exists", params={"path": "ran"}).json()["exists"], "it runs")
    first.end(signal.SIGKILL)
    dying.join()
    other.stop(box)
    answer = settled(other, "k", path, body)
    if answer.status_code == 200:  # it was saved before the stop
        assert answer.json()["state"] == "ended_by_session", answer.text
    else:
        problem(answer, 409, "outcome_lost")
    assert other.get(box)["status"] == "stopped"
    other.resume(box)
    keyed(other, "k", path, body)
    assert other.file(box, "ran") == b"run\n"


def test_what_was_answered_but_not_kept_is_found_again(one, own):
    """The database cannot be written when the program ends: the client gets its answer, and asks again."""
    gateway, api, path = one
    box = api.sandbox()
    api.run(box, "true")
    body, answers = {"shell": "echo run >> ran; while [ ! -e go ]; do sleep 0.1; done; echo done"}, []
    asking = threading.Thread(target=lambda: answers.append(keyed(api, "k", f"/v1/sandboxes/{box}/run", body)))
    other = Client(gateway)
    asking.start()
    until(lambda: other.call("GET", f"/v1/sandboxes/{box}/files/exists", params={"path": "ran"}).json()["exists"], "it runs")
    with held(path):
        other.put(box, "go", b"")
        asking.join()
    assert answers[0].status_code == 200 and answers[0].json()["stdout"] == "done\n"
    again = settled(other, "k", f"/v1/sandboxes/{box}/run", body)
    assert again.status_code == 200 and again.json()["stdout"] == "done\n"
    assert again.json()["process_id"] == answers[0].json()["process_id"]
    assert other.file(box, "ran") == b"run\n"


def test_without_the_store_nothing_is_sent(one, emulator):
    gateway, api, path = one
    box = api.sandbox()
    api.run(box, "true")
    with held(path), emulator.calls() as calls:
        document = problem(keyed(api, "k", f"/v1/sandboxes/{box}/run", {"argv": ["true"]}), 503, "store_unavailable")
        assert document["outcome"] == "not_sent" and document["retryable"]
        assert len(calls.emulator.journal(calls.after)) == 0
        assert api.run(box, "true")["exit_code"] == 0, "what needs no state is served"
    assert keyed(api, "k", f"/v1/sandboxes/{box}/run", {"argv": ["true"]}).status_code == 200


# ---- clients that leave, gateways that end ----

@on_sqlite
@pytest.mark.parametrize("what", ["create", "run"])
def test_the_act_goes_on_when_its_client_leaves(pair, emulator, what):
    (_, api), (_, other) = pair
    if what == "run":
        box = api.sandbox()
        path, body = f"/v1/sandboxes/{box}/run", {"shell": "sleep 1.5; echo run >> ran; echo done"}
        api.run(box, "true")
    else:
        name = "t-" + secrets.token_hex(8)
        api.made.append(name)
        path, body = "/v1/sandboxes", {"name": name}
        emulator.fault({"delay_ms": 1500}, method="POST", path_regex="/sandboxes$", times=1)
    with pytest.raises(Exception):
        keyed(api, "k", path, body, timeout=0.6)
    answer = settled(other, "k", path, body)
    assert answer.status_code in (200, 201), answer.text
    assert answer.headers["Idempotency-Replayed"] == "true", "it was there before anybody asked again"
    if what == "run":
        assert other.file(box, "ran") == b"run\n"


@on_sqlite
def test_a_gateway_that_drains_sees_it_through(pair):
    (first, api), (_, other) = pair
    box = other.sandbox()
    other.run(box, "true")
    path, body, answers = f"/v1/sandboxes/{box}/run", {"shell": "echo run >> ran; sleep 1; echo done"}, []
    asking = threading.Thread(target=lambda: answers.append(keyed(api, "k", path, body)))
    asking.start()
    until(lambda: other.call("GET", f"/v1/sandboxes/{box}/files/exists", params={"path": "ran"}).json()["exists"], "it runs")
    assert first.end() == 0
    asking.join()
    assert answers[0].json()["stdout"] == "done\n"
    again = keyed(other, "k", path, body)
    assert again.json() == answers[0].json() and again.headers["Idempotency-Replayed"] == "true"
    assert other.file(box, "ran") == b"run\n"


@on_sqlite
def test_a_gateway_that_cannot_wait_gives_it_to_others_at_once(own, database):
    settings = {**database.settings(), "SERVER_DRAIN_TIMEOUT_MS": 200}  # and a silence of a minute
    first, api = own(**settings)
    second, _ = own(**settings, AUTH_TOKENS_FILE=first.tokens)
    second.token = first.token
    other = Client(second)
    box = other.sandbox()
    other.run(box, "true")
    path, body = f"/v1/sandboxes/{box}/run", {"shell": "echo run >> ran; while [ ! -e go ]; do sleep 0.05; done; echo done"}
    asking = threading.Thread(target=swallow, args=(lambda: keyed(api, "k", path, body),))
    asking.start()
    until(lambda: other.call("GET", f"/v1/sandboxes/{box}/files/exists", params={"path": "ran"}).json()["exists"], "it runs")
    assert first.end() == 0
    asking.join()
    other.put(box, "go", b"")
    again = keyed(other, "k", path, body)
    assert again.status_code == 200 and again.json()["stdout"] == "done\n", again.text
    assert other.file(box, "ran") == b"run\n"


# ---- what lasts ----

def test_what_lasts_is_told_by_every_gateway(own, database, emulator):
    settings = {**database.settings(), "RELAY_KEEPALIVE_MS": 300}
    first, api = own(**settings)
    second, _ = own(**settings, AUTH_TOKENS_FILE=first.tokens)
    second.token = first.token
    other = Client(second)
    name = "t-" + secrets.token_hex(8)
    api.made.append(name)
    emulator.fault({"delay_ms": 2500}, method="POST", path_regex="/sandboxes$", times=1)
    start = time.monotonic()
    answer = keyed(api, "k", "/v1/sandboxes", {"name": name})
    assert answer.status_code == 202 and 0.25 < time.monotonic() - start < 2.4, answer.text
    place = answer.headers["Location"]
    assert place == "/v1/operations/" + answer.json()["operation_id"]
    assert other.call("GET", place).status_code == 202
    problem(keyed(other, "k", "/v1/sandboxes", {"name": name}), 409, "request_in_progress")
    made = api.call("GET", place, params={"wait_ms": 20000})
    assert made.status_code == 201 and made.json()["name"] == name and made.headers["Location"] == f"/v1/sandboxes/{name}"
    for c in (api, other):
        again = keyed(c, "k", "/v1/sandboxes", {"name": name})
        assert again.content == made.content and again.status_code == 201
        assert c.call("GET", place).content == made.content
    stranger = Client(first)
    stranger.http.headers["Authorization"] = "Bearer " + first.new_token()
    until(lambda: stranger.call("GET", "/v1/version").status_code == 200, "the new token is known")
    problem(stranger.call("GET", place), 404, "operation_not_found")


def test_who_prefers_it_is_not_kept_waiting(api, box, emulator):
    api.run(box, "true")
    emulator.fault({"delay_ms": 1500}, method="POST", path_regex="/cmd$", times=1)
    start = time.monotonic()
    answer = api.call("POST", f"/v1/sandboxes/{box}/processes", json={"argv": ["true"]}, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202 and time.monotonic() - start < 1.4, answer.text
    assert answer.headers["Preference-Applied"] == "respond-async"
    made = api.call("GET", answer.headers["Location"], params={"wait_ms": 20000})
    assert made.status_code == 201 and made.headers["Location"].endswith(made.json()["process_id"])
    problem(api.call("POST", f"/v1/sandboxes/{box}/processes", json={}, headers={"Prefer": "respond-async"}), 422, "invalid_field")
    run = api.call("POST", f"/v1/sandboxes/{box}/run", json={"shell": "sleep 3"}, headers={"Prefer": "respond-async"})
    assert run.status_code == 202 and "/processes/" in run.headers["Location"]
    stop = api.call("POST", f"/v1/sandboxes/{box}/stop", headers={"Prefer": "respond-async"})
    assert stop.status_code in (200, 202) and stop.headers["Preference-Applied"] == "respond-async"


# ---- what is kept ----

def test_nothing_secret_is_kept(one):
    gateway, api, path = one
    box = api.sandbox()
    secret, key = "s3cret-" + secrets.token_hex(8), "key-" + secrets.token_hex(8)
    for way in ("run", "processes"):
        answer = keyed(api, key, f"/v1/sandboxes/{box}/{way}", {"shell": "true", "env": {"SECRET": secret}})
        assert answer.status_code in (200, 201)
    kept = b"".join(p.read_bytes() for p in path.parent.glob("state.db*"))
    assert b"idempotency" in kept and box.encode() in kept
    assert secret.encode() not in kept and key.encode() not in kept
    assert secret not in gateway.text() and key not in gateway.text()


def test_no_room_refuses_new_keys_before_anything_happens(own, database):
    settings = {**database.settings(), "STORE_KEY_MAX_BYTES": 65536}
    first, api = own(**settings)
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/processes", {"argv": ["true"]}
    answer = keyed(api, "k", path, body)
    assert answer.status_code == 201
    database.rows("UPDATE idempotency SET size = 100000")
    second, other = own(**settings, AUTH_TOKENS_FILE=first.tokens)
    other.http.headers["Authorization"] = "Bearer " + first.token
    until(lambda: second.events("no room for idempotency keys"), "it has looked")
    document = problem(keyed(other, "l", path, body), 503, "overloaded")
    assert document["outcome"] == "not_sent" and "key_max_bytes" in document["detail"]
    same(answer, keyed(other, "k", path, body))
    assert other.call("POST", path, json=body).status_code == 201, "without a key"


def test_keys_are_forgotten_in_time(own, emulator):
    _, api = own(STORE_KEY_KEEP_MS=1000)
    box = api.sandbox()
    path, body = f"/v1/sandboxes/{box}/processes", {"argv": ["true"]}
    first = keyed(api, "k", path, body).json()["process_id"]
    assert keyed(api, "k", path, body).json()["process_id"] == first
    until(lambda: keyed(api, "k", path, body).json()["process_id"] != first, "the key is forgotten")
