"""What processes said can be read when their session is over; nothing acts on them any more.  P09 P10 P28 P64 A7 U2 C7."""
import base64
import json
import os
import signal
import sqlite3
import subprocess

import pytest
import websocket

from client import Client
from harness import until

MIB = 1 << 20
PROGRAM = "printf 'some output\\n'; printf 'and errors\\n' >&2; exit 3"


def kill(gateway):
    os.kill(gateway.child.pid, signal.SIGKILL)
    gateway.child.wait()


def path(box, pid, what=""):
    return f"/v1/sandboxes/{box}/processes/{pid}{what}"


def events_of(api, box, pid, **query):
    answer = api.ok("GET", path(box, pid, "/events"), headers={"Accept": "application/x-ndjson"}, params=query)
    return [json.loads(line) for line in answer.text.splitlines()], answer


def data_of(records, stream):
    """Joins the data of one stream, checking that it is contiguous."""
    joined, at = b"", None
    for r in records:
        if r["type"] == "data" and r["stream"] == stream:
            assert at is None or r["offset"] == at, f"{stream}: {at} then {r['offset']}"
            piece = base64.b64decode(r["data"], validate=True)
            joined, at = joined + piece, r["offset"] + len(piece)
    return joined


def is_over(api, box, pid, session):
    """What every finished and saved PROGRAM looks like, also after its session."""
    record = api.process(box, pid)
    assert record["session_id"] == session
    assert (record["state"], record["exit_code"], record["signal"]) == ("finished", 3, None)
    assert record["output_complete"] is True
    assert record["streams"] == {"stdout": {"oldest": 0, "end": 12}, "stderr": {"oldest": 0, "end": 11}}
    assert record["expires_at"].endswith("Z") and record["expires_at"] > record["started_at"]
    out = api.output(box, pid)
    assert out.content == b"some output\n"
    assert (out.headers["X-Offset-Next"], out.headers["X-Offset-End"], out.headers["X-Session-Id"]) == ("12", "12", session)
    assert api.output(box, pid, "stderr", offset=4).content == b"errors\n"
    assert api.output(box, pid, offset=5, limit=3).content == b"out"
    assert api.output(box, pid, offset=12).content == b""
    api.refused("GET", path(box, pid, "/output"), 416, "range_not_satisfiable", params={"offset": 13})
    records, answer = events_of(api, box, pid)
    assert answer.headers["X-Session-Id"] == session
    assert [r["type"] for r in records] == ["hello", "data", "data", "exit", "end"]
    assert (data_of(records, "stdout"), data_of(records, "stderr")) == (b"some output\n", b"and errors\n")
    assert records[-2]["exit_code"] == 3 and records[-2]["output_complete"] is True


def test_output_stays_after_the_stop_P09(api, emulator):
    box = api.create()
    name, session = box["name"], box["session_id"]
    pid = api.start(name, shell=PROGRAM)
    api.wait(name, pid)
    ran = api.run(name, "echo", "ran")
    api.stop(name)
    with emulator.calls() as calls:
        is_over(api, name, pid, session)
        again = api.output(name, ran["process_id"])
        assert again.content == b"ran\n"
        listed = api.ok("GET", f"/v1/sandboxes/{name}/processes").json()
        assert listed["next_cursor"] is None
        assert {p["process_id"] for p in listed["items"]} == {pid, ran["process_id"]}
        assert all(p["session_id"] == session and p["output_complete"] for p in listed["items"])
    assert ("POST", "cmd") not in calls.seen() and not any("resume" in p for _, p in calls.seen())
    assert api.get(name)["status"] == "stopped", "a read never resumes"
    api.refused("GET", path(name, "nobody"), 409, "sandbox_not_running")
    api.refused("POST", path(name, pid, "/signal"), 409, "sandbox_not_running", json={"signal": "TERM"})


def test_after_the_resume_processes_are_of_the_past_P64_P28_A7(api, emulator):
    box = api.create()
    name, old = box["name"], box["session_id"]
    done = api.start(name, shell=PROGRAM)
    api.wait(name, done)
    running = api.start(name, shell="echo before; exec sleep 600", id="server")
    until(lambda: api.output(name, running).content == b"before\n", "it has printed")
    api.stop(name)
    assert api.process(name, running)["state"] == "ended_by_session"
    new = api.resume(name)["session_id"]
    assert new != old
    is_over(api, name, done, old)
    record = api.process(name, running)
    assert (record["state"], record["session_id"], record["exit_code"]) == ("ended_by_session", old, None)
    assert record["output_complete"] is False and record["expires_at"]
    assert api.output(name, running).content == b"before\n"
    records, _ = events_of(api, name, running)
    assert records[0]["state"] == "ended_by_session"
    assert (records[-1]["type"], records[-1]["error"]["code"] if "error" in records[-1] else records[-1]["code"]) == \
        ("error", "stale_session")
    # nothing acts on them, and nothing reaches the new session's processes
    same = api.start(name, "sleep", "600")
    with emulator.calls() as calls:
        for what, body in (("/signal", {"signal": "KILL"}), ("/cancel", {}), ("/resize", {"cols": 9, "rows": 9})):
            refused = api.refused("POST", path(name, running, what), 409, "stale_session", json=body)
            assert old in refused["detail"]
        api.refused("POST", path(name, running, "/stdin"), 409, "stale_session", data=b"x",
                    headers={"Content-Type": "application/octet-stream", "Upload-Offset": "0"})
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            api.attach(name, running)
        assert refused.value.status_code == 409
    assert len(calls) <= 12
    assert api.process(name, same)["state"] == "running"
    # by session
    listed = api.ok("GET", f"/v1/sandboxes/{name}/processes", params={"session": old}).json()["items"]
    assert {p["process_id"] for p in listed} == {done, running}
    live = api.ok("GET", f"/v1/sandboxes/{name}/processes").json()["items"]
    assert [p["process_id"] for p in live] == [same]
    api.refused("GET", f"/v1/sandboxes/{name}/processes", 409, "stale_session", params={"session": "sbx_none"})
    # an id may be used again in the new session, and then it is that one's
    again = api.start(name, shell="echo after", id="server")
    api.wait(name, again)
    assert api.output(name, "server").content == b"after\n"
    assert api.output(name, "server", session=old).content == b"before\n"
    assert api.process(name, "server")["session_id"] == new
    with api.attach(name, "server") as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"after\n"


def test_a_tail_of_one_mebibyte_is_kept_of_each_stream_P09(api):
    name = api.create()["name"]
    total = 3 * MIB
    program = f"seq 1 1000000 | head -c {total} | tee /dev/stderr; exec sleep 600"
    pid = api.start(name, shell=program)
    until(lambda: [api.process(name, pid)["streams"][s]["end"] for s in ("stdout", "stderr")] == [total, total], "it printed")
    whole = api.output(name, pid).content
    assert len(whole) == total
    api.stop(name)
    for stream in ("stdout", "stderr"):
        kept = api.process(name, pid)["streams"][stream]
        assert kept["end"] == total and kept["oldest"] <= total - MIB + 128 * 1024
        refused = api.refused("GET", path(name, pid, "/output"), 410, "output_evicted", params={"stream": stream})
        assert refused["oldest"] == kept["oldest"]
        assert api.output(name, pid, stream, offset=kept["oldest"]).content == whole[kept["oldest"]:]
    records, _ = events_of(api, name, pid)
    assert [(r["stream"], r["from"]) for r in records if r["type"] == "gap"] == [("stdout", 0), ("stderr", 0)]
    assert data_of(records, "stderr") == whole[kept["oldest"]:]


def test_a_process_that_nobody_follows_is_saved_before_the_deadline(own):
    """The session ends by itself; 20 s before that are 1.5 s here."""
    gateway, api = own(STORE_SAVE_BEFORE_MS=1500)
    box = api.create(timeout_ms=7000)
    name, session = box["name"], box["session_id"]
    pid = api.start(name, shell="echo one; echo two >&2; exec sleep 600")
    quiet = api.start(name, "sleep", "600")
    until(lambda: api.get(name)["status"] == "stopped", "its time is over")
    record = api.process(name, pid)
    assert (record["state"], record["session_id"], record["output_complete"]) == ("ended_by_session", session, False)
    assert api.output(name, pid).content == b"one\n"
    assert api.output(name, pid, "stderr").content == b"two\n"
    assert api.process(name, quiet)["state"] == "ended_by_session"
    assert api.output(name, quiet).content == b""


def test_a_gateway_that_was_killed_saves_before_the_deadline_all_the_same(own, emulator, database):
    """Whoever comes after it finds in the shared database what has to be done."""
    first, api = own(store=database)
    box = api.create(timeout_ms=9000)
    name = box["name"]
    pid = api.start(name, shell="echo not lost; exec sleep 600")
    until(lambda: api.output(name, pid).content, "it printed")
    kill(first)
    second, other = own(store=database, STORE_SAVE_BEFORE_MS=1500)
    other.made.append(name)
    until(lambda: other.get(name)["status"] == "stopped", "its time is over")
    assert other.process(name, pid)["state"] == "ended_by_session"
    assert other.output(name, pid).content == b"not lost\n"


def test_what_was_saved_survives_kill_and_is_shared_U2(own, database):
    first, api = own(store=database)
    second, other = own(store=database)
    box = api.create()
    name, session = box["name"], box["session_id"]
    pid = api.start(name, shell=PROGRAM)
    other.wait(name, pid)
    other.stop(name)  # by the one that did not start it
    is_over(api, name, pid, session)
    is_over(other, name, pid, session)
    kill(first)
    third, last = own(store=database)
    is_over(last, name, pid, session)
    if database.kind == "sqlite":
        assert oct(database.path.stat().st_mode & 0o777) == "0o600"
    last.destroy(name)
    for c in (other, last):
        c.refused("GET", path(name, pid), 404, "sandbox_not_found")
    last.create(name=name)
    for c in (other, last):  # a new sandbox of this name knows nothing of it
        c.refused("GET", path(name, pid), 404, "process_not_found")
    last.clean_up()


def test_removed_means_removed(api):
    name = api.create()["name"]
    pids = [api.start(name, shell=PROGRAM) for _ in range(2)]
    for pid in pids:
        api.wait(name, pid)
    api.ok("DELETE", path(name, pids[0]), 204)
    api.stop(name)
    api.refused("GET", path(name, pids[0]), 409, "sandbox_not_running")
    api.resume(name)
    api.refused("GET", path(name, pids[0]), 404, "process_not_found")
    assert api.process(name, pids[1])["state"] == "finished"
    api.ok("DELETE", path(name, pids[1]), 204)
    api.refused("GET", path(name, pids[1]), 404, "process_not_found")
    api.refused("DELETE", path(name, pids[1]), 404, "process_not_found")


def test_the_stop_does_not_fail_for_it(own, emulator):
    """The sandbox does not answer while its processes are saved: it is stopped nevertheless, and what was saved says so."""
    gateway, api = own()
    name = api.create()["name"]
    pid = api.start(name, shell="echo before; exec sleep 600")
    until(lambda: api.output(name, pid).content, "it printed")
    emulator.fault({"status": 500}, method="POST", path_regex="/cmd$")
    try:
        assert api.stop(name)["status"] == "stopped"
    finally:
        emulator.clear_faults()
    record = api.process(name, pid)
    assert (record["state"], record["output_complete"]) == ("ended_by_session", False)


def test_the_exit_is_kept_when_its_last_output_cannot_be_read_P10(own, emulator):
    gateway, api = own()
    name = api.create()["name"]
    pid = api.start(name, shell="head -c 3000000 /dev/zero; exit 5")
    record = api.wait(name, pid)
    api.output(name, pid, offset=2999990, limit=1)
    emulator.fault({"status": 500}, method="POST", path_regex="/cmd$")
    try:
        api.stop(name)
    finally:
        emulator.clear_faults()
    assert record["exit_code"] == 5
    after = api.process(name, pid)
    assert (after["state"], after["exit_code"], after["output_complete"]) == ("finished", 5, False)
    assert after["streams"]["stdout"] == {"oldest": 3000000, "end": 3000000}
    api.refused("GET", path(name, pid, "/output"), 410, "output_evicted")


def test_output_expires_at_the_stated_time(own):
    gateway, api = own(STORE_OUTPUT_KEEP_MS=3000)
    name = api.create()["name"]
    pid = api.start(name, shell=PROGRAM)
    api.wait(name, pid)
    api.stop(name)
    assert api.process(name, pid)["expires_at"]
    until(lambda: api.call("GET", path(name, pid)).status_code == 409, "it has expired", 10)
    api.refused("GET", path(name, pid, "/output"), 409, "sandbox_not_running")


def test_a_state_file_that_cannot_be_used_stops_nothing_else(own, tmp_path):
    state = tmp_path / "state.db"
    state.write_bytes(b"this is no database " * 1000)
    gateway, api = own(STORE_STATE_FILE=state)
    name = api.create()["name"]
    assert api.run(name, "echo", "well")["out"] == b"well\n"
    pid = api.start(name, shell=PROGRAM)
    assert api.wait(name, pid)["exit_code"] == 3
    assert api.output(name, pid).content == b"some output\n"
    assert api.stop(name)["status"] == "stopped"
    refused = api.refused("GET", path(name, pid), 503, "store_unavailable")
    assert refused["retryable"] is True and "damaged" in refused["detail"]
    assert gateway.events("store unavailable")
    state.unlink()
    until(lambda: api.call("GET", path(name, pid)).status_code == 409, "a new one is made", 10)
    assert api.resume(name)["status"] == "running"
    pid = api.start(name, shell=PROGRAM)
    api.wait(name, pid)
    session = api.get(name)["session_id"]
    api.stop(name)
    is_over(api, name, pid, session)


def test_a_locked_state_file_stops_nothing_else(own, tmp_path):
    state = tmp_path / "state.db"
    gateway, api = own(STORE_STATE_FILE=state)
    name = api.create()["name"]
    lock = sqlite3.connect(state, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    try:
        pid = api.start(name, shell=PROGRAM)
        assert api.wait(name, pid)["exit_code"] == 3
        assert api.run(name, "echo", "well")["out"] == b"well\n"
        assert api.stop(name)["status"] == "stopped"
        api.refused("GET", path(name, pid), 409, "sandbox_not_running")
    finally:
        lock.execute("ROLLBACK")
        lock.close()


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a file system of its own, of 512 KiB; grow() gives it more."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", directory], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")

    def grow():
        subprocess.run(["mount", "-o", "remount,size=32m", directory], check=True)

    yield directory, grow
    subprocess.run(["umount", "-l", directory], check=True)


def test_a_full_disk_stops_nothing_else(small_disk, own):
    directory, grow = small_disk
    gateway, api = own(STORE_STATE_FILE=directory / "state.db")
    name = api.create()["name"]
    large = api.run(name, shell="head -c 900000 /dev/zero")
    assert len(large["out"]) == 900000
    until(lambda: gateway.events("process not saved"), "there is no room for it")
    assert "full" in gateway.events("process not saved")[0]["detail"]
    assert api.run(name, "echo", "well")["out"] == b"well\n"
    assert api.stop(name)["status"] == "stopped"
    grow()
    api.resume(name)
    again = api.run(name, shell="head -c 900000 /dev/zero")
    api.stop(name)
    assert api.output(name, again["process_id"]).content == bytes(900000)


def test_a_run_costs_one_call_and_its_end_is_kept(own, emulator):
    gateway, api = own()
    name = api.create()["name"]
    api.run(name, "true")
    with emulator.calls() as calls:
        small = api.run(name, "echo", "small")
    assert len(calls) == 1
    api.stop(name)
    assert api.output(name, small["process_id"]).content == b"small\n"
