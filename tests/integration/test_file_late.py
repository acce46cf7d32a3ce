"""Acts on files that last: no call is silent for longer than 25 s (here, than 0.3), C8."""
import json
import threading
import time

import pytest

from client import Client, problem
from harness import until


# What the helper says when its time is over and there is more to do.
said = [{"command": {"id": "cmd_1", "name": "h", "exitCode": None}}, {"stream": "stdout", "data": "M\n"},
        {"command": {"id": "cmd_1", "name": "h", "exitCode": 0}}]
more = {"status": 200, "content_type": "application/x-ndjson", "body": "".join(json.dumps(a) + "\n" for a in said)}


@pytest.fixture
def hasty(request, own_gateway):
    """A client of a gateway that lets nobody wait for longer than 0.3 s."""
    client = Client(own_gateway(RELAY_KEEPALIVE_MS=300))
    yield client
    client.clean_up()


@pytest.fixture
def place(hasty):
    name = hasty.sandbox()
    assert hasty.run(name, shell="mkdir t t/a && echo x > t/a/f && echo y > f")["exit_code"] == 0
    return name


def begin(hasty, place, emulator, delay_ms, what, **body):
    """An act that takes so long: its 202, and where its answer will be."""
    emulator.fault({"delay_ms": delay_ms}, times=1, path_regex="/cmd$")
    start = time.monotonic()
    if what:
        answer = hasty.call("POST", f"/v1/sandboxes/{place}/files/{what}", json=body)
    else:
        answer = hasty.call("DELETE", f"/v1/sandboxes/{place}/files", params=body)
    assert answer.status_code == 202, answer.text
    assert 0.25 < time.monotonic() - start < delay_ms / 1000
    record = answer.json()
    where = answer.headers["Location"]
    assert record["state"] == "running" and where == f"/v1/sandboxes/{place}/files/operations/{record['operation_id']}"
    return where


def test_what_lasts_is_told_and_goes_on(hasty, place, emulator):
    where = begin(hasty, place, emulator, 1500, "copy", path="t", to="u", recursive=True)
    running = hasty.call("GET", where)
    assert running.status_code == 202 and running.headers["Location"] == where
    start = time.monotonic()
    assert hasty.call("GET", where, params={"wait_ms": 100}).status_code == 202
    assert time.monotonic() - start > 0.09
    assert hasty.call("GET", where, params={"wait_ms": 20000}).status_code == 204
    assert hasty.call("GET", where).status_code == 204, "it is still known"
    assert hasty.file(place, "u/a/f") == b"x\n"

    where = begin(hasty, place, emulator, 1200, "mktemp", path=".", prefix="late.")
    made = hasty.call("GET", where, params={"wait_ms": 20000})
    assert made.status_code == 201 and made.json()["path"].startswith("./late.")
    where = begin(hasty, place, emulator, 1200, None, path="t", recursive="true")
    assert hasty.call("GET", where, params={"wait_ms": 20000}).status_code == 204
    assert hasty.run(place, "ls", "t")["exit_code"] == 2


def test_what_lasts_and_fails_says_so_later(hasty, place, emulator):
    where = begin(hasty, place, emulator, 1200, "copy", path="none", to="u")
    problem(hasty.call("GET", where, params={"wait_ms": 20000}), 404, "file_not_found")
    problem(hasty.call("GET", where), 404, "file_not_found")


def test_many_wait_and_some_leave(hasty, place, emulator):
    where = begin(hasty, place, emulator, 2500, "chmod", path="t", mode="700", recursive=True)
    answers = []
    waiting = [threading.Thread(target=lambda: answers.append(hasty.call("GET", where, params={"wait_ms": 20000}).status_code))
               for _ in range(4)]
    with pytest.raises(Exception):
        Client.call(hasty, "GET", where, params={"wait_ms": 20000}, timeout=0.2)
    for t in waiting:
        t.start()
    for t in waiting:
        t.join(60)
    assert answers == [204] * 4


def test_operations_are_of_their_sandbox(hasty, place, emulator):
    where = begin(hasty, place, emulator, 1000, "chmod", path="f", mode="600")
    other = hasty.sandbox()
    problem(hasty.call("GET", where.replace(place, other)), 404, "operation_not_found")
    problem(hasty.call("GET", where + "x"), 404, "operation_not_found")
    problem(hasty.call("GET", where, params={"wait": 1}), 422, "unknown_field")
    problem(hasty.call("GET", where, params={"wait_ms": 25001}), 422, "invalid_field")
    assert hasty.call("GET", where, params={"wait_ms": 20000}).status_code == 204


def test_a_drain_sees_it_through(own_gateway, api, box, emulator):
    """Its client was told that it goes on: a gateway that is to end waits for it, and not for its client."""
    gateway = own_gateway(RELAY_KEEPALIVE_MS=300)
    hasty = Client(gateway)
    hasty.run(box, shell="mkdir t && echo x > t/f")
    emulator.fault({"delay_ms": 500, **more}, times=3, path_regex="/cmd$")
    assert hasty.call("DELETE", f"/v1/sandboxes/{box}/files", params={"path": "t", "recursive": "true"}).status_code == 202
    hasty.http.close()
    assert gateway.end() == 0
    assert not api.ok("GET", f"/v1/sandboxes/{box}/files/exists", params={"path": "t"}).json()["exists"]


def test_reads_are_not_answered_late(hasty, place, emulator):
    """They end by themselves; and a client that left before is not told anything."""
    emulator.fault({"delay_ms": 800}, times=1, path_regex="/cmd$")
    assert hasty.call("GET", f"/v1/sandboxes/{place}/files/stat", params={"path": "f"}).status_code == 200
    emulator.fault({"delay_ms": 900}, times=1, path_regex="/cmd$")
    with pytest.raises(Exception):
        hasty.call("POST", f"/v1/sandboxes/{place}/files/move", json={"path": "f", "to": "g"}, timeout=0.1)
    until(lambda: hasty.call("GET", f"/v1/sandboxes/{place}/files/exists", params={"path": "g"}).json()["exists"], "it was done")


def test_a_tree_that_takes_long_is_gone_on_with(hasty, place, emulator):
    """The helper ends after a while and says that there is more."""
    emulator.fault(more, times=3, path_regex="/cmd$")
    with emulator.calls() as calls:
        assert hasty.call("DELETE", f"/v1/sandboxes/{place}/files", params={"path": "t", "recursive": "true"}).status_code == 204
    assert len(calls) == 4
    assert hasty.run(place, "ls", "t")["exit_code"] == 2
