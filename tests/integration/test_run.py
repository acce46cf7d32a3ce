"""One-shot runs and processes: exit codes, signals, surroundings. C6 C7 A13 P07 P13 P15 P21 P23 P27 P28 U4."""
import base64
import time

import pytest

from harness import until


def test_exit_code_and_streams_apart_C7_A14(api, box):
    r = api.run(box, shell="echo out; echo err >&2; exit 7")
    assert (r["out"], r["err"], r["exit_code"], r["signal"]) == (b"out\n", b"err\n", 7, None)
    assert r["state"] == "finished" and r["output_complete"] is True and r["truncated"] is False
    assert r["timed_out"] is False and r["duration_ms"] >= 0 and r["encoding"] == "utf-8"


@pytest.mark.parametrize("code", [0, 1, 126, 127, 255])
def test_exit_codes_C7(api, box, code):
    assert api.run(box, "sh", "-c", f"exit {code}")["exit_code"] == code


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGUSR1"])
def test_terminating_signal_C7(api, box, name):
    r = api.run(box, "sh", "-c", f"kill -{name[3:]} $$")
    assert (r["exit_code"], r["signal"]) == (None, name)


def test_no_final_newline_P07(api, box):
    r = api.run(box, "printf", "abc")
    assert r["stdout"] == "abc"
    pid = api.start(box, "printf", "abc")
    api.wait(box, pid)
    assert api.output(box, pid).content == b"abc"
    with api.attach(box, pid) as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"abc" and a.message("exit")["exit_code"] == 0


def test_bytes_that_are_not_text_A14(api, box):
    r = api.run(box, "printf", r"\377\000\303")
    assert r["encoding"] == "base64" and r["out"] == b"\xff\x00\xc3" and r["err"] == b""
    assert base64.b64decode(r["stdout"]) == r["out"]
    assert api.run(box, "printf", r"a\000b")["out"] == b"a\0b"


def test_program_gets_what_was_asked_C6(api, box):
    home = api.get(box)["working_directory"]
    assert api.run(box, "pwd")["out"].decode() == home + "\n"
    api.run(box, "mkdir", "-p", "sub dir")
    assert api.run(box, "pwd", cwd="sub dir")["out"].decode() == home + "/sub dir\n"
    assert api.run(box, "pwd", cwd="/tmp")["out"] == b"/tmp\n"
    args = ["", "a b", "$(id)", "'\"\\", "ü\n", "-n", "*"]
    got = api.run(box, "sh", "-c", 'for a; do printf "[%s]" "$a"; done', "sh", *args)["out"].decode()
    assert got == "".join(f"[{a}]" for a in args)
    assert api.run(box, "sh", "-c", 'printf %s "$A"', env={"A": "x=\ny'ü"})["out"].decode() == "x=\ny'ü"
    replaced = api.run(box, "/usr/bin/env", env={"ONLY": "this"}, env_mode="replace")["out"]
    assert replaced == b"ONLY=this\n"
    assert b"PATH=" in api.run(box, "/usr/bin/env", env={"ONLY": "this"})["out"]


def test_sudo_is_root(api, box):
    assert api.run(box, "id", "-u", sudo=True)["out"] == b"0\n"
    assert api.run(box, "id", "-u")["out"] != b"0\n"


def test_stdin_is_empty_P21(api, box):
    assert api.run(box, "cat", wait_ms=20000)["exit_code"] == 0


def test_missing_program_starts_nothing(api, box):
    refused = api.refused("POST", f"/v1/sandboxes/{box}/run", 422, "executable_not_found",
                          json={"argv": ["no-such-program"]})
    assert refused["errno"] == "ENOENT" and refused["outcome"] == "not_started"
    api.put(box, "plain", b"not a program", mode="644")
    refused = api.refused("POST", f"/v1/sandboxes/{box}/processes", 422, "executable_not_found", json={"argv": ["./plain"]})
    assert refused["errno"] == "EACCES"


def test_run_says_202_when_its_time_is_over_P15(api, box):
    start = time.monotonic()
    answer = api.call("POST", f"/v1/sandboxes/{box}/run", json={"shell": "echo first; sleep 600", "wait_ms": 1500})
    assert answer.status_code == 202 and time.monotonic() - start < 20
    r = answer.json()
    assert r["state"] == "running" and r["exit_code"] is None and r["stdout"] == "first\n"
    assert answer.headers["Location"] == f"/v1/sandboxes/{box}/processes/{r['process_id']}"
    assert api.ok("GET", answer.headers["Location"]).json()["state"] == "running"
    api.signal(box, r["process_id"], "KILL")
    assert api.wait(box, r["process_id"])["signal"] == "SIGKILL"


def test_timeout_ends_it(api, box):
    r = api.run(box, shell="trap '' TERM; echo begun; sleep 600", timeout_ms=700)
    assert r["timed_out"] is True and r["exit_code"] is None and r["out"] == b"begun\n"


def test_output_is_limited_not_lost(api, box):
    r = api.run(box, shell="printf 0123456789", max_output=4)
    assert r["stdout"] == "0123" and r["truncated"] is True
    assert api.output(box, r["process_id"]).content == b"0123456789"


def test_background_child_holding_the_pipe_U4_P13(api, box):
    start = time.monotonic()
    r = api.run(box, shell="sleep 600 & echo ok")
    assert (r["exit_code"], r["out"]) == (0, b"ok\n") and r["descendants_hold_output"] is True
    assert time.monotonic() - start < 20
    assert api.run(box, "echo", "next")["out"] == b"next\n"


def test_detached_start_returns_at_once_P27(api, box):
    start = time.monotonic()
    pid = api.start(box, shell="while :; do echo x; sleep 1; done")
    assert time.monotonic() - start < 20
    assert api.process(box, pid)["state"] == "running"
    api.signal(box, pid, 9)


def test_signal_reaches_the_whole_tree_A13_P23(api, box):
    """Daemonised children included: another session, reparented to init."""
    pid = api.start(box, shell="setsid sh -c 'sleep 4711 & wait' </dev/null >/dev/null 2>&1 & sleep 4712 & wait")
    # brackets, so that the search does not find itself
    running = "pgrep -cf '[s]leep 471[12]' || true"
    until(lambda: api.run(box, shell=running)["out"] >= b"2", "both sleeps run")
    api.signal(box, pid, "SIGTERM")
    assert api.wait(box, pid)["signal"] == "SIGTERM"
    until(lambda: api.run(box, shell=running)["out"] == b"0\n", "no sleep is left")


def test_signal_to_the_program_alone_A13(api, box):
    pid = api.start(box, shell="trap 'echo usr1' USR1; echo ready; while :; do sleep 0.1; done")
    with api.attach(box, pid) as a:
        a.until_bytes(6)
        api.signal(box, pid, "USR1", target="program")
        a.until_bytes(11)
        assert bytes(a.data["stdout"]) == b"ready\nusr1\n"
        api.signal(box, pid, "KILL")
        a.until_close()
    assert a.message("exit")["signal"] == "SIGKILL" and a.closed == 1000


def test_signal_to_root_process(api, box):
    pid = api.start(box, "sleep", "600", sudo=True)
    api.signal(box, pid, "TERM")
    assert api.wait(box, pid)["signal"] == "SIGTERM"
    pid = api.start(box, "sleep", "4713", sudo=True)
    api.ok("DELETE", f"/v1/sandboxes/{box}/processes/{pid}", 204)
    api.refused("GET", f"/v1/sandboxes/{box}/processes/{pid}", 404, "process_not_found")
    assert api.run(box, shell="pgrep -cf '[s]leep 4713' || true")["out"] == b"0\n"


def test_signal_to_a_finished_process_P28(api, box):
    pid = api.start(box, "true")
    api.wait(box, pid)
    api.refused("POST", f"/v1/sandboxes/{box}/processes/{pid}/signal", 409, "process_finished", json={"signal": "KILL"})
    api.refused("POST", f"/v1/sandboxes/{box}/processes/{pid}/signal", 422, "invalid_field", json={"signal": "FOO"})
    api.refused("POST", f"/v1/sandboxes/{box}/processes/nobody/signal", 404, "process_not_found", json={"signal": 15})


def test_list_and_remove(api, box):
    ids = sorted(api.start(box, "true", id=f"job-{i}") for i in range(3))
    assert ids == ["job-0", "job-1", "job-2"]
    items = api.ok("GET", f"/v1/sandboxes/{box}/processes").json()["items"]
    assert sorted(p["process_id"] for p in items) == ids
    api.wait(box, "job-1")
    api.ok("DELETE", f"/v1/sandboxes/{box}/processes/job-1", 204)
    api.refused("GET", f"/v1/sandboxes/{box}/processes/job-1", 404, "process_not_found")


def test_same_id_is_the_same_process_U3(api, box):
    body = {"id": "once", "shell": "echo run >> log; cat log"}
    first = api.ok("POST", f"/v1/sandboxes/{box}/processes", 201, json=body).json()
    api.wait(box, "once")
    again = api.ok("POST", f"/v1/sandboxes/{box}/processes", 201, json=body).json()
    assert first["started_at"] == again["started_at"]
    assert api.run(box, shell=body["shell"], id="once")["out"] == b"run\n"
    assert api.file(box, "log") == b"run\n"
    api.refused("POST", f"/v1/sandboxes/{box}/processes", 409, "process_id_conflict",
                json={"id": "once", "shell": "echo other"})


def test_wait_ms_returns_when_it_ends(api, box):
    pid = api.start(box, "sleep", "1")
    assert api.process(box, pid, 20000)["state"] == "finished"
