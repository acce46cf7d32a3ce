"""Processes end as they did, and acts reach the right one: C7 A13 S1 U3 P04 P13 P14 P23 P24 P28 P64 P65."""
import time

import pytest

from harness import until


def path(box, pid, act=""):
    return f"/v1/sandboxes/{box}/processes/{pid}" + (f"/{act}" if act else "")


def running(api, box, pattern):
    """How many processes have this as their whole command line."""
    return int(api.run(box, shell=f"pgrep -cfx '{pattern}' || true")["out"])


# ---- how it ended ----

@pytest.mark.parametrize("shell,ended_by,code,signal", [
    ("exit 0", "exit", 0, None), ("exit 3", "exit", 3, None), ("kill -USR1 $$", "signal", None, "SIGUSR1")])
def test_the_end_is_told_as_it_was_C7(api, box, shell, ended_by, code, signal):
    r = api.wait(box, api.start(box, shell=shell))
    assert (r["ended_by"], r["exit_code"], r["signal"], r["timed_out"]) == (ended_by, code, signal, False)
    assert r["output_complete"] is True and r["terminal"] is False and r["paused"] is False


def test_an_end_that_nobody_saw_is_unknown_not_0_P04(api, box):
    """What waits for the program is killed: how the program ends is then known to nobody."""
    pid = api.start(box, "sleep", "4720")
    api.run(box, shell="kill -KILL $(ps -o ppid= -p $(pgrep -fx 'sleep 4720'))")
    r = until(lambda: (lambda p: p["state"] == "unknown" and p)(api.process(box, pid)), "its end is unknown")
    assert r["exit_code"] is None and r["signal"] is None and r["output_complete"] is False
    r = api.run(box, "sleep", "4720", id=pid, status=200)  # the same start again finds the same record
    assert r["state"] == "unknown" and r["exit_code"] is None


def test_no_timeout_but_a_stated_one_ends_it_P14(api, box):
    r = api.wait(box, api.start(box, "sleep", "600", timeout_ms=300))
    assert r["timed_out"] is True and r["ended_by"] == "timeout" and r["exit_code"] is None
    answer = api.run(box, shell="echo up; sleep 600", wait_ms=1, status=202)
    for _ in range(3):
        assert api.process(box, answer["process_id"], 1000)["state"] == "running"
    api.signal(box, answer["process_id"], "KILL")


def test_background_child_does_not_delay_the_exit_P13_U4(api, box):
    began = time.monotonic()
    pid = api.start(box, shell="(sleep 1; echo late; sleep 600) & echo ok")
    r = api.wait(box, pid)
    assert time.monotonic() - began < 20
    assert r["exit_code"] == 0 and r["descendants_hold_output"] is True
    assert api.output(box, pid).content.startswith(b"ok\n")
    assert api.run(box, "echo", "next")["out"] == b"next\n"
    until(lambda: api.output(box, pid).content == b"ok\nlate\n", "what it prints later is readable")
    api.ok("DELETE", path(box, pid), 204)
    assert running(api, box, "sleep 600") == 0, "the child is of its tree"


def test_an_unfinished_heredoc_fails_alone_P24(api, box):
    first = api.start(box, shell="cat <<EOF\nunfinished")
    second = api.start(box, shell="if true; then echo")
    assert api.run(box, "echo", "next")["out"] == b"next\n"
    assert api.wait(box, first)["state"] == "finished"
    assert api.wait(box, second)["exit_code"] != 0


# ---- ending it ----

def test_kill_is_true_P23_A13(api, box):
    pid = api.start(box, shell="sleep 4721 & setsid sleep 4722 & wait")
    until(lambda: running(api, box, "sleep 472[12]") == 2, "both run")
    api.signal(box, pid, "KILL")
    r = api.wait(box, pid)
    assert r["signal"] == "SIGKILL"
    until(lambda: running(api, box, "sleep 472[12]") == 0, "none is left", 20)


def test_cancel_keeps_what_was_printed_S1(api, box):
    pid = api.start(box, shell="trap 'echo cleaned; exit 9' TERM; echo partial; while :; do sleep 0.05; done")
    until(lambda: api.output(box, pid).content == b"partial\n", "it runs")
    api.ok("POST", path(box, pid, "cancel"), 202, json={})
    r = api.wait(box, pid)
    assert (r["exit_code"], r["ended_by"]) == (9, "exit")
    assert api.output(box, pid).content == b"partial\ncleaned\n"


def test_cancel_kills_after_the_grace_S1_A13(api, box):
    """Daemonised children included; and not before the grace is over."""
    pid = api.start(box, shell="trap 'echo no' INT; setsid sh -c 'trap \"\" INT; sleep 4723' & echo partial; "
                               "while :; do sleep 0.05; done")
    until(lambda: running(api, box, "sleep 4723") and api.output(box, pid).content, "it runs")
    began = time.monotonic()
    api.ok("POST", path(box, pid, "cancel"), 202, json={"signal": "INT", "grace_ms": 1500})
    r = api.wait(box, pid)
    assert r["signal"] == "SIGKILL" and time.monotonic() - began >= 1.4
    assert api.output(box, pid).content == b"partial\nno\n"
    until(lambda: running(api, box, "sleep 4723") == 0, "none is left")


def test_cancel_reaches_root(api, box):
    pid = api.start(box, shell="trap '' TERM; echo ready; sleep 4724", user="root")
    until(lambda: api.output(box, pid).content == b"ready\n", "it takes no TERM")
    api.ok("POST", path(box, pid, "cancel"), 202, json={"grace_ms": 200})
    assert api.wait(box, pid)["signal"] == "SIGKILL"


def test_remove_kills_and_the_id_is_used_up(api, box):
    pid = api.start(box, shell="trap '' TERM; echo x; sleep 4725", id="gone")
    api.ok("DELETE", path(box, pid), 204)
    assert running(api, box, "sleep 4725") == 0
    for act in ("", "output"):
        api.refused("GET", path(box, pid, act), 404, "process_not_found")
    api.refused("POST", path(box, pid, "signal"), 404, "process_not_found", json={"signal": 9})
    api.refused("POST", f"/v1/sandboxes/{box}/processes", 409, "process_id_conflict",
                json={"id": "gone", "shell": "trap '' TERM; echo x; sleep 4725"})
    api.refused("DELETE", path(box, pid), 404, "process_not_found")


# ---- acts on what is over, is not there, or makes no sense ----

ACTS = {
    "signal": ("POST", {"json": {"signal": "TERM"}}),
    "cancel": ("POST", {"json": {}}),
    "resize": ("POST", {"json": {"cols": 80, "rows": 24}}),
    "ack": ("POST", {"json": {"stdout": 1}}),
    "stdin": ("POST", {"data": b"x"}),
    "": ("PATCH", {"json": {"lease": {"ttl_ms": 5000}}}),
}


@pytest.mark.parametrize("act", ACTS)
def test_acts_on_a_finished_process_P28(api, box, act):
    pid = api.start(box, "true")
    api.wait(box, pid)
    method, kw = ACTS[act]
    refused = api.refused(method, path(box, pid, act), 409, "process_finished", **kw)
    assert refused["outcome"] == "not_started"


def test_acts_on_nothing(api, box):
    session = api.get(box)["session_id"]
    for act, (method, kw) in ACTS.items():
        api.refused(method, path(box, "nobody", act), 404, "process_not_found", **kw)
        api.refused(method, path(box, "no%20body", act), 404, "process_not_found", **kw)
        api.refused(method, path("no-such-box", "p", act), 404, "sandbox_not_found", **kw)
        api.refused(method, path(box, "p", act) + "?session=sbx_other", 409, "stale_session", **kw)
        api.refused(method, path(box, "p", act) + f"?session={session}", 404, "process_not_found", **kw)


def test_acts_in_a_session_that_is_over_P64(api, box):
    session = api.get(box)["session_id"]
    pid = api.start(box, "sleep", "600", stdin="open")
    api.stop(box)
    for act, (method, kw) in ACTS.items():
        api.refused(method, path(box, pid, act), 409, "sandbox_not_running", **kw)
    api.resume(box)
    for act, (method, kw) in ACTS.items():
        api.refused(method, path(box, pid, act) + f"?session={session}", 409, "stale_session", **kw)


def test_acts_that_make_no_sense(api, box):
    pid = api.start(box, "sleep", "600")
    api.refused("POST", path(box, pid, "resize"), 422, "unsupported", json={"cols": 80, "rows": 24})
    api.ok("POST", path(box, pid, "ack"), 204, json={"stdout": 1})  # of a ring: allowed, and without effect
    refused = api.refused("POST", path(box, pid, "stdin"), 409, "stdin_closed", data=b"x")
    assert refused["outcome"] == "not_started"
    assert api.process(box, pid)["state"] == "running"
    api.signal(box, pid, "KILL")


WRONG = [
    ("cancel", {"signal": "FOO"}, "invalid_field", "/signal"), ("cancel", {"signal": 0}, "invalid_field", "/signal"),
    ("cancel", {"grace_ms": -1}, "invalid_field", "/grace_ms"), ("cancel", {"grace": 1}, "unknown_field", "/grace"),
    ("resize", {}, "invalid_field", "/cols"), ("resize", {"cols": 80}, "invalid_field", "/rows"),
    ("resize", {"cols": 80, "rows": 1001}, "invalid_field", "/rows"), ("resize", {"cols": "80", "rows": 24}, "invalid_field", "/cols"),
    ("resize", {"cols": 80, "rows": 24, "x": 1}, "unknown_field", "/x"),
    ("ack", {}, "invalid_field", "/stdout"), ("ack", {"stdout": -1}, "invalid_field", "/stdout"),
    ("ack", {"pty": 1, "stderr": 1}, "invalid_field", "/pty"), ("ack", {"stdin": 1}, "unknown_field", "/stdin"),
    ("", {}, "invalid_field", "/lease"), ("", {"lease": {}}, "invalid_field", "/lease/ttl_ms"),
    ("", {"lease": {"ttl_ms": 999}}, "invalid_field", "/lease/ttl_ms"), ("", {"lease": 5}, "invalid_field", "/lease"),
    ("", {"on_disconnect": None}, "invalid_field", "/on_disconnect"),
    ("", {"on_disconnect": {"kill_after_ms": "1"}}, "invalid_field", "/on_disconnect/kill_after_ms"),
    ("", {"timeout_ms": 1}, "unknown_field", "/timeout_ms"),
]


def test_checked_before_anything_is_sent_P65(api, box, emulator):
    api.run(box, "true")
    with emulator.calls() as calls:
        for act, body, code, pointer in WRONG:
            refused = api.refused("PATCH" if not act else "POST", path(box, "p", act), 422, code, json=body)
            assert refused["pointer"] == pointer and refused["outcome"] == "not_sent", refused
        for headers in ({"Upload-Offset": "-1"}, {"Upload-Offset": "1.0"}, {"Upload-Offset": "9" * 30}):
            api.refused("POST", path(box, "p", "stdin"), 400, "bad_request", data=b"x", headers=headers)
        for query in ("close=yes", "takeover=2", "offset=0"):
            api.refused("POST", path(box, "p", "stdin") + "?" + query, 422,
                        "unknown_field" if "offset" in query else "invalid_field", data=b"x")
    assert len(calls) == 0, calls.seen()


def test_the_limits_are_listed(api):
    limits = api.ok("GET", "/v1/limits").json()["process"]
    assert (limits["run_stdin_bytes"], limits["terminal_columns"], limits["lease_ms_min"]) == (1 << 20, 1000, 1000)


# ---- starting ----

def test_the_same_start_is_the_same_process_U3(api, box):
    """All that was asked for counts: a terminal, input, lease, what happens on a disconnect, retention."""
    body = {"id": "once", "shell": "echo run >> log; exec cat", "stdin": "open", "lease": {"ttl_ms": 60000},
            "retention": {"bytes": 65536, "mode": "lossless"}, "on_disconnect": {"kill_after_ms": 60000}}
    first = api.ok("POST", f"/v1/sandboxes/{box}/processes", 201, json=body).json()
    again = api.ok("POST", f"/v1/sandboxes/{box}/processes", 201, json=body).json()
    assert first["started_at"] == again["started_at"]
    assert again["stdin"] == {"open": True, "accepted": 0} and again["retention"] == {"mode": "lossless"}
    for other in ({"stdin": "closed"}, {"lease": {"ttl_ms": 60001}}, {"on_disconnect": "keep"},
                  {"retention": {"bytes": 65536}}, {"pty": {"cols": 80, "rows": 24}}):
        api.refused("POST", f"/v1/sandboxes/{box}/processes", 409, "process_id_conflict", json={**body, **other})
    until(lambda: api.file(box, "log") == b"run\n", "it ran once")
    api.signal(box, "once", "KILL")


@pytest.mark.parametrize("way", ["run", "processes"])
def test_resume_wakes_the_sandbox_first_C2(api, box, way):
    api.run(box, shell="echo kept > file")
    before = api.get(box)["session_id"]
    api.stop(box)
    body = {"argv": ["cat", "file"]}
    api.refused("POST", f"/v1/sandboxes/{box}/{way}", 409, "sandbox_not_running", json=body)
    r = api.ok("POST", f"/v1/sandboxes/{box}/{way}", 200 if way == "run" else 201, json={**body, "resume": True}).json()
    assert r["session_id"] != before and r["session_id"] == api.get(box)["session_id"]
    api.wait(box, r["process_id"])
    assert api.output(box, r["process_id"]).content == b"kept\n"
    again = api.run(box, "cat", "file", resume=True)  # of one that runs: nothing to do
    assert again["session_id"] == r["session_id"] and again["out"] == b"kept\n"


def test_user_root_is_sudo(api, box):
    assert api.run(box, "id", "-u", user="root")["out"] == b"0\n"


def test_user_by_name(api, box):
    """The default user's own name says nothing new; another's is refused, with nothing started and the id still free."""
    me = api.run(box, "id", "-un")["out"].decode().strip()
    assert api.run(box, "id", "-un", user=me)["out"].decode().strip() == me
    for way in ("run", "processes"):
        refused = api.refused("POST", f"/v1/sandboxes/{box}/{way}", 422, "unsupported", json={"id": "u", "shell": "id", "user": "nobody"})
        assert refused["pointer"] == "/user" and refused["outcome"] == "not_started" and "root" in refused["detail"]
    assert api.run(box, "id", "-un", id="u", user=me)["out"].decode().strip() == me
