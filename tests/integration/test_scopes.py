"""A process ends with its scope, and goes on without one: A15 P26."""
import threading
import time

import pytest

from harness import until


def path(box, pid):
    return f"/v1/sandboxes/{box}/processes/{pid}"


def patch(api, box, pid, **body):
    api.ok("PATCH", path(box, pid), 204, json=body)


def running(api, box, pattern):
    return int(api.run(box, shell=f"pgrep -cfx '{pattern}' || true")["out"])


def test_ends_with_its_lease_A15(api, box):
    """All of its tree, and what it printed before is kept."""
    pid = api.start(box, shell="setsid sleep 4731 & echo printed; trap '' TERM HUP; sleep 4732", lease={"ttl_ms": 1500})
    began = time.monotonic()
    assert api.process(box, pid)["state"] == "running"
    r = api.wait(box, pid)
    assert r["ended_by"] == "scope" and r["exit_code"] is None and r["timed_out"] is False
    assert time.monotonic() - began > 0.5
    assert api.output(box, pid).content == b"printed\n"
    until(lambda: running(api, box, "sleep 473[12]") == 0, "nothing of it is left")


def test_a_renewed_lease_A15(api, box, emulator):
    pid = api.start(box, "sleep", "600", lease={"ttl_ms": 2000})
    end = time.monotonic() + 5
    while time.monotonic() < end:
        patch(api, box, pid, lease={"ttl_ms": 2000})
        assert api.process(box, pid, 400)["state"] == "running"
    with emulator.calls() as calls:
        patch(api, box, pid, lease={"ttl_ms": 1000})
    assert calls.seen() == [("POST", "cmd")]
    assert api.wait(box, pid)["ended_by"] == "scope"


def test_unref_keeps_it_A15(api, box):
    pid = api.start(box, "sleep", "600", lease={"ttl_ms": 1500}, on_disconnect={"kill_after_ms": 100})
    patch(api, box, pid, lease=None, on_disconnect="keep")
    with api.attach(box, pid) as a:
        assert a.next() == "hello"
    time.sleep(2.5)  # what must not happen takes longer than the lease
    assert api.process(box, pid)["state"] == "running"
    patch(api, box, pid, lease={"ttl_ms": 1000})  # and back
    assert api.wait(box, pid)["ended_by"] == "scope"


def test_kept_by_default_when_everybody_leaves_P26_A15(api, box):
    pid = api.start(box, shell="while :; do echo x; sleep 0.05; done")
    for _ in range(3):
        with api.attach(box, pid) as a:
            a.until_bytes(2)
    time.sleep(0.5)
    assert api.process(box, pid)["state"] == "running"
    api.signal(box, pid, "KILL")


def test_ends_after_the_last_client_left_A15(api, box):
    pid = api.start(box, shell="echo up; sleep 4733", on_disconnect={"kill_after_ms": 300})
    time.sleep(1)
    assert api.process(box, pid)["state"] == "running", "nobody came yet, so nobody has left"
    first, second = api.attach(box, pid), api.attach(box, pid)
    first.until_bytes(3)
    second.until_bytes(3)
    first.socket.close()
    time.sleep(1.5)
    assert api.process(box, pid)["state"] == "running", "one is still there"
    second.socket.close()
    r = api.wait(box, pid)
    assert r["ended_by"] == "scope" and api.output(box, pid).content == b"up\n"
    until(lambda: running(api, box, "sleep 4733") == 0, "nothing of it is left")


def test_a_client_that_comes_back_in_time_A15(api, box):
    pid = api.start(box, shell="echo up; sleep 600", on_disconnect={"kill_after_ms": 8000})
    for _ in range(3):
        with api.attach(box, pid) as a:
            a.until_bytes(3)
    with api.attach(box, pid) as a:
        a.until_bytes(3)
        assert api.process(box, pid, 9000)["state"] == "running", "it is attended again"
    api.signal(box, pid, "KILL")


def test_the_exit_of_a_process_is_its_own_although_it_has_a_lease(api, box):
    pid = api.start(box, shell="echo done; exit 4", lease={"ttl_ms": 60000}, on_disconnect={"kill_after_ms": 60000})
    r = api.wait(box, pid)
    assert (r["ended_by"], r["exit_code"]) == ("exit", 4)
    assert api.output(box, pid).content == b"done\n"
