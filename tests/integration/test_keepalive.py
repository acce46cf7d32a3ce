"""B6: a session in use is extended ahead of its deadline, by a step beyond the last activity, within a maximum; who is
attached is warned before it ends all the same."""
import calendar
import json
import time

import pytest

from client import Client
from harness import Gateway, Records, until

SHORT = {"LIFECYCLE_KEEP_ALIVE_LEAD_MS": 2000, "LIFECYCLE_KEEP_ALIVE_STEP_MS": 5000, "LIFECYCLE_LEASE_GRACE_MS": 0}


def wall(text):
    """Seconds of an RFC 3339 time."""
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) + float("0" + text[19:-1])


def extensions(entries):
    return [e for e in entries if e["path"].endswith("/extend-timeout") and e["status"] == 200]


def over(api, name):
    return until(lambda: api.get(name)["status"] == "stopped", "the session ends")


def test_attached_it_lasts_beyond_its_deadline_and_not_longer_than_a_step_after_B6(own, emulator):
    gateway, api = own(**SHORT)
    began = time.time()
    box = api.create(timeout_ms=6000)
    name = box["name"]
    pid = api.start(name, "sleep", "60")
    with emulator.calls() as calls, api.attach(name, pid) as a:
        a.until("hello")
        while time.time() < began + 9:
            assert api.get(name)["session_id"] == box["session_id"] and api.get(name)["status"] == "running"
            time.sleep(0.2)
        assert not [m for m in a.messages if m["type"] == "session_ending"]
    left = time.time()
    assert 1 <= len(extensions(calls.entries)) <= 2, calls.seen()
    with emulator.calls() as calls:
        over(api, name)
    assert extensions(calls.entries) == [], "nothing is extended after the last activity"
    assert time.time() - left < 7.5


@pytest.mark.parametrize("stream", ("socket", "events", "watch"))
def test_warned_when_it_is_not_kept_B6(own, emulator, stream):
    """The sandbox says that it is not to be kept; every kind of stream tells its client in time."""
    gateway, api = own(**{**SHORT, "LIFECYCLE_KEEP_ALIVE": "off"})
    box = api.create(timeout_ms=6000)
    name = box["name"]
    pid = api.start(name, "sleep", "60")
    with emulator.calls() as calls:
        if stream == "socket":
            with api.attach(name, pid) as a:
                told = a.until("session_ending")
                seen = time.time()
                a.until_close()
                assert a.closed == 4010 and a.messages[0]["type"] == "hello"
        else:
            path = "files/watch?path=/tmp" if stream == "watch" else f"processes/{pid}/events"
            told, seen = read_until(api, name, path, "session_ending")
    assert told["reason"] == "timeout"
    assert 0 < wall(told["deadline"]) - seen <= 2.5, "before the end, and not long before"
    assert extensions(calls.entries) == []


def read_until(api, name, path, kind):
    class Stream(Records):
        sse = False
    r = Stream()
    r.answer = api.call("GET", f"/v1/sandboxes/{name}/{path}", headers={"Accept": "application/x-ndjson"}, stream=True)
    assert r.answer.status_code == 200, r.answer.text
    with r:
        for block in r.blocks():
            record = json.loads(block)
            if record["type"] == kind:
                return record, time.time()
    raise AssertionError(f"no {kind}")


def test_bounded_by_the_maximum_B6(own, emulator):
    gateway, api = own(**{**SHORT, "LIFECYCLE_KEEP_ALIVE_MAX_MS": 9000})
    began = time.time()
    box = api.create(timeout_ms=5000)
    name = box["name"]
    pid = api.start(name, "sleep", "60")
    with api.attach(name, pid) as a:
        told = a.until("session_ending")
        assert told["reason"] == "max_ms"
        assert abs(wall(told["deadline"]) - (began + 9)) < 1.5 and time.time() < wall(told["deadline"])
        with api.attach(name, pid, mode="watch") as late:
            assert late.until("session_ending") == told, "who comes later is told as well"
        assert a.until_close().closed == 4010
    assert time.time() - began > 8


def test_warned_before_the_plan_ends_it_B6(own, emulator):
    """The upstream refuses any extension: the warning comes before the end."""
    gateway, api = own(**SHORT)
    box = api.create(timeout_ms=6000)
    name = box["name"]
    pid = api.start(name, "sleep", "60")
    emulator.fault({"status": 400, "body": '{"error":{"code":"sandbox_timeout_invalid","message":"no"}}'},
                   method="POST", path_regex="/extend-timeout$")
    with emulator.calls() as calls, api.attach(name, pid) as a:
        told = a.until("session_ending")
        assert told["reason"] == "plan_limit" and 0 < wall(told["deadline"]) - time.time() <= 2.5
        assert a.until_close().closed == 4010
    tried = [e for e in calls.entries if e["path"].endswith("/extend-timeout")]
    assert 1 <= len(tried) <= 2, "the step, and what a plan might have left; not again and again"


def test_up_to_the_ceiling_of_the_plan_B6(own_emulator, tmp_path):
    """The hobby plan allows 45 minutes in all: a step that is too long is cut to what is left of them."""
    up = own_emulator("--plan=hobby").emulator
    gateway = Gateway(tmp_path / "g", up.url, up.token, {**SHORT, "LIFECYCLE_KEEP_ALIVE_STEP_MS": 3600000})
    api = Client(gateway)
    try:
        name = api.create(timeout_ms=5000)["name"]
        pid = api.start(name, "sleep", "60")
        with up.calls() as calls, api.attach(name, pid) as a:
            a.until("hello")
            until(lambda: gateway.events("session extended"), "it is extended")
        tried = [e["status"] for e in calls.entries if e["path"].endswith("/extend-timeout")]
        assert tried == [400, 200]
        extended = gateway.events("session extended")[0]["deadline_ms"] / 1000
        assert abs(extended - wall(api.get(name)["created_at"]) - 2700) < 5
    finally:
        api.clean_up()
        assert gateway.end() == 0


def test_two_gateways_extend_once_B6(own, emulator, tmp_path):
    both = [own(STORE_STATE_FILE=tmp_path / "shared.db", **SHORT) for _ in range(2)]
    (_, one), (_, two) = both
    began = time.time()
    box = one.create(timeout_ms=6000)
    name = box["name"]
    pid = one.start(name, "sleep", "60")
    with emulator.calls() as calls, one.attach(name, pid) as a, two.attach(name, pid, mode="watch") as b:
        a.until("hello")
        b.until("hello")
        while time.time() < began + 7:
            time.sleep(0.1)
        assert one.get(name)["status"] == "running"
    assert len(extensions(calls.entries)) == 1


def test_a_renewed_lease_keeps_the_session_B6_C4(own, emulator):
    gateway, api = own(**SHORT)
    began = time.time()
    box = api.create(timeout_ms=5000)
    name = box["name"]
    with emulator.calls() as calls:
        while time.time() < began + 8:
            api.ok("POST", f"/v1/sandboxes/{name}/lease", json={"ttl_ms": 3000})
            time.sleep(0.5)
        assert api.get(name)["session_id"] == box["session_id"] and api.get(name)["status"] == "running"
    assert 1 <= len(extensions(calls.entries)) <= 3


def test_the_upstream_fails_once_and_it_is_kept_B6(own, emulator):
    gateway, api = own(**SHORT)
    began = time.time()
    box = api.create(timeout_ms=6000)
    name = box["name"]
    pid = api.start(name, "sleep", "60")
    emulator.fault({"status": 503}, method="POST", path_regex="/extend-timeout$", times=1)
    with api.attach(name, pid) as a:
        a.until("hello")
        while time.time() < began + 8:
            time.sleep(0.1)
        assert api.get(name)["session_id"] == box["session_id"] and api.get(name)["status"] == "running"


def test_calls_alone_keep_nothing_unless_it_says_so_B6(own, emulator):
    gateway, api = own(**SHORT)
    name = api.create(timeout_ms=5000)["name"]
    with emulator.calls() as calls:
        until(lambda: api.call("POST", f"/v1/sandboxes/{name}/run", json={"argv": ["true"]}).status_code != 200, "it ends")
    assert extensions(calls.entries) == []


def used(api, name, seconds):
    """Runs something now and then; False once it does not run any more."""
    end = time.time() + seconds
    while time.time() < end:
        if api.call("POST", f"/v1/sandboxes/{name}/run", json={"argv": ["true"]}).status_code != 200:
            return False
        time.sleep(0.3)
    return True


def test_keep_alive_by_calls_and_its_end_B6(own, emulator):
    gateway, api = own(**SHORT)
    box = api.create(timeout_ms=5000, keep_alive=True)
    name = box["name"]
    assert box["keep_alive"] is True
    with emulator.calls() as calls:
        assert used(api, name, 8)
        assert api.get(name)["session_id"] == box["session_id"]
    assert 1 <= len(extensions(calls.entries)) <= 4
    last = time.time()
    with emulator.calls() as calls:
        over(api, name)
    assert len(extensions(calls.entries)) <= 1 and time.time() - last < 7.5, "a step beyond the last call, and no longer"


def test_keep_alive_has_a_maximum_of_its_own_B6(own, emulator):
    gateway, api = own(**SHORT)
    began = time.time()
    box = api.create(timeout_ms=4000, keep_alive={"max_ms": 7000})
    assert box["keep_alive"] == {"max_ms": 7000}
    assert not used(api, box["name"], 20)
    assert 6 < time.time() - began < 11


def test_keep_alive_false_is_not_kept_by_streams_either_B6(own, emulator):
    gateway, api = own(**SHORT)
    box = api.create(timeout_ms=5000, keep_alive=False)
    name = box["name"]
    assert box["keep_alive"] is False
    pid = api.start(name, "sleep", "60")
    with emulator.calls() as calls, api.attach(name, pid) as a:
        assert a.until("session_ending")["reason"] == "timeout"
        assert a.until_close().closed == 4010
    assert extensions(calls.entries) == []


def test_keep_alive_is_checked(api, emulator):
    with emulator.calls() as calls:
        for value, pointer in (("yes", "/keep_alive"), ({"max_ms": 1}, "/keep_alive/max_ms"), ({"x": 1}, "/keep_alive/x"), (1, "/keep_alive")):
            answer = api.call("POST", "/v1/sandboxes", json={"keep_alive": value})
            assert answer.status_code == 422 and answer.json()["pointer"] == pointer, answer.text
    assert len(calls) == 0
