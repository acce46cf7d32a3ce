"""Input: exact bytes at offsets, backpressure, and its end. A12 P21 P22 P25 P26."""
import base64
import hashlib
import secrets
import threading
import time

import pytest
import requests

from client import Client
from harness import sha256, until

MIB = 1 << 20


def path(box, pid):
    return f"/v1/sandboxes/{box}/processes/{pid}/stdin"


def send(api, box, pid, data=b"", offset=None, status=200, **query):
    headers = {"Content-Type": "application/octet-stream"}
    if offset is not None:
        headers["Upload-Offset"] = str(offset)
    return api.ok("POST", path(box, pid), status, data=data, params=query, headers=headers).json()


def pieces(data, size=100_000):
    return (data[at:at + size] for at in range(0, len(data), size))


@pytest.fixture
def warm(api, box):
    api.run(box, "true")
    return box


# ---- the input of a run ----

@pytest.mark.parametrize("data", [b"one line\n", b"no final newline", b"", "grüße\n".encode()])
def test_run_takes_text_A12(api, box, data):
    r = api.run(box, "cat", stdin=data.decode())
    assert (r["out"], r["exit_code"]) == (data, 0)


def test_run_takes_bytes_and_delivers_the_end_A12(api, warm, emulator):
    data = bytes(range(256)) * 200
    with emulator.calls() as calls:
        r = api.run(warm, "cat", stdin={"base64": base64.b64encode(data).decode()})
    assert r["out"] == data and r["exit_code"] == 0
    assert calls.seen() == [("POST", "cmd")], "short input travels with the start"


def test_run_takes_long_input_A12(api, box, emulator):
    """700 KiB of random bytes, also as the first call in a sandbox; one upstream call more than without."""
    data = secrets.token_bytes(700 * 1024)
    stdin = {"base64": base64.b64encode(data).decode()}
    assert api.run(box, "sha256sum", stdin=stdin)["out"].split()[0].decode() == sha256(data)
    with emulator.calls() as calls:
        assert api.run(box, "sha256sum", stdin=stdin)["out"].split()[0].decode() == sha256(data)
    assert calls.seen() == [("POST", "write"), ("POST", "cmd")]
    assert api.run(box, shell="ls -a /var/tmp/.sandgate | grep -c '^.up-' || true")["out"] == b"0\n", "nothing is left of it"


def test_the_first_line_is_there_before_any_output_A12(api, box):
    r = api.run(box, shell="read first; echo got $first; cat", stdin="one\ntwo\nthree")
    assert r["out"] == b"got one\ntwo\nthree"


def test_input_that_nobody_reads_does_no_harm(api, box):
    r = api.run(box, "true", stdin="x" * 500_000)
    assert r["exit_code"] == 0


def test_too_long_input_is_refused_before_P65(api, warm, emulator):
    with emulator.calls() as calls:
        api.refused("POST", f"/v1/sandboxes/{warm}/run", 413, "body_too_large", json={"argv": ["cat"], "stdin": "x" * (MIB + 1)})
        refused = api.refused("POST", f"/v1/sandboxes/{warm}/run", 422, "invalid_field",
                              json={"argv": ["cat"], "stdin": {"base64": "x"}})
        assert refused["pointer"] == "/stdin/base64"
    assert len(calls) == 0


def test_run_with_input_runs_once_U3(api, warm, emulator):
    """The start's answer is lost; the same id with other input is another request."""
    body = {"id": "fed", "shell": "cat >> fed; echo done", "stdin": "abc" * 50_000}
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/cmd$", times=1)
    r = api.ok("POST", f"/v1/sandboxes/{warm}/run", json=body).json()
    assert r["stdout"] == "done\n" and api.file(warm, "fed") == b"abc" * 50_000
    assert api.ok("POST", f"/v1/sandboxes/{warm}/run", json=body).json()["started_at"] == r["started_at"]
    assert api.file(warm, "fed") == b"abc" * 50_000
    api.refused("POST", f"/v1/sandboxes/{warm}/run", 409, "process_id_conflict", json={**body, "stdin": "abd" * 50_000})


# ---- a process's input ----

def test_closed_unless_asked_for_P21(api, box):
    pid = api.start(box, "cat")
    assert api.wait(box, pid)["exit_code"] == 0
    pid = api.start(box, "sleep", "600")
    assert api.process(box, pid)["stdin"] == {"open": False, "accepted": 0}
    refused = api.refused("POST", path(box, pid), 409, "stdin_closed", data=b"x")
    assert refused["outcome"] == "not_started"
    api.signal(box, pid, "KILL")


def test_a_short_write_is_one_call(api, warm, emulator):
    pid = api.start(warm, "cat", stdin="open")
    with emulator.calls() as calls:
        assert send(api, warm, pid, b"one\n", 0) == {"accepted": 4, "closed": False}
        assert send(api, warm, pid, b"x" * 72 * 1024, 4) == {"accepted": 4 + 72 * 1024, "closed": False}
    assert calls.seen() == [("POST", "cmd"), ("POST", "cmd")]
    with emulator.calls() as calls:
        assert send(api, warm, pid, offset=4 + 72 * 1024, close=1) == {"accepted": 4 + 72 * 1024, "closed": True}
    assert calls.seen() == [("POST", "cmd")]
    r = api.wait(warm, pid)
    assert r["exit_code"] == 0 and r["stdin"] == {"open": False, "accepted": 4 + 72 * 1024}
    assert api.output(warm, pid).content == b"one\n" + b"x" * 72 * 1024


def test_without_an_offset_it_is_appended(api, warm):
    pid = api.start(warm, "cat", stdin="open")
    assert send(api, warm, pid, b"one ") == {"accepted": 4, "closed": False}
    assert send(api, warm, pid) == {"accepted": 4, "closed": False}, "how far is it?"
    assert send(api, warm, pid, b"two ", close=0)["accepted"] == 8
    assert send(api, warm, pid, b"three", close=1) == {"accepted": 13, "closed": True}
    assert api.wait(warm, pid)["exit_code"] == 0
    assert api.output(warm, pid).content == b"one two three"


def test_offsets_below_are_passed_over_and_beyond_refused(api, warm):
    pid = api.start(warm, "cat", stdin="open")
    assert send(api, warm, pid, b"abcdef", 0)["accepted"] == 6
    assert send(api, warm, pid, b"abcdef", 0)["accepted"] == 6
    assert send(api, warm, pid, b"efgh", 4)["accepted"] == 8
    assert send(api, warm, pid, b"abc", 2)["accepted"] == 8
    for data, offset in ((b"x", 9), (b"", 100), (b"y" * 200_000, 9)):
        refused = api.refused("POST", path(warm, pid), 409, "stdin_offset", data=data, headers={"Upload-Offset": str(offset)})
        assert refused["accepted"] == 8 and refused["outcome"] in ("not_started", "not_sent"), refused
    api.refused("POST", path(warm, pid) + "?close=1", 409, "stdin_offset", headers={"Upload-Offset": "9"})
    assert send(api, warm, pid, b"hi", 7, close=1) == {"accepted": 9, "closed": True}
    api.wait(warm, pid)
    assert api.output(warm, pid).content == b"abcdefghi"
    refused = api.refused("POST", path(warm, pid), 409, "process_finished", data=b"x", headers={"Upload-Offset": "9"})
    assert refused["accepted"] == 9


def test_after_its_end_nothing_more_goes_in(api, warm):
    pid = api.start(warm, shell="cat; echo end; sleep 600", stdin="open")
    assert send(api, warm, pid, b"data", close=1) == {"accepted": 4, "closed": True}
    until(lambda: api.output(warm, pid).content == b"dataend\n", "it read the end")
    refused = api.refused("POST", path(warm, pid), 409, "stdin_closed", data=b"x", headers={"Upload-Offset": "4"})
    assert refused["accepted"] == 4
    assert send(api, warm, pid, b"data", 0, close=1) == {"accepted": 4, "closed": True}, "the same again is the same"
    api.signal(warm, pid, "KILL")


def test_a_program_that_closed_its_input(api, warm):
    pid = api.start(warm, shell="exec <&-; echo closed; sleep 600", stdin="open")
    until(lambda: api.output(warm, pid).content == b"closed\n", "it runs")

    def refused():
        answer = api.call("POST", path(warm, pid), data=b"x")
        return answer.status_code == 409 and answer.json()
    assert until(refused, "the input is not wanted")["code"] == "stdin_closed"
    api.signal(warm, pid, "KILL")


def test_10_mib_in_parts_P22(api, warm, emulator):
    data = secrets.token_bytes(10 * MIB)
    pid = api.start(warm, "sha256sum", stdin="open")
    with emulator.calls() as calls:
        for at in range(0, len(data), MIB):
            assert send(api, warm, pid, data[at:at + MIB], at)["accepted"] == at + MIB
        assert send(api, warm, pid, offset=len(data), close=1)["closed"] is True
    assert api.wait(warm, pid)["exit_code"] == 0
    assert api.output(warm, pid).content.split()[0].decode() == sha256(data)
    assert len(calls) <= 40, calls.seen()


def test_10_mib_in_one_chunked_body_P22(api, warm, emulator):
    data = secrets.token_bytes(10 * MIB)
    pid = api.start(warm, "sha256sum", stdin="open")
    with emulator.calls() as calls:
        assert send(api, warm, pid, pieces(data), close=1) == {"accepted": len(data), "closed": True}
    assert api.wait(warm, pid)["exit_code"] == 0
    assert api.output(warm, pid).content.split()[0].decode() == sha256(data)
    assert len(calls) <= 40, calls.seen()


def test_short_chunked_body_is_short(api, warm, emulator):
    pid = api.start(warm, "cat", stdin="open")
    with emulator.calls() as calls:
        assert send(api, warm, pid, iter([b"a", b"b"]), 0)["accepted"] == 2
    assert calls.seen() == [("POST", "cmd")]
    send(api, warm, pid, offset=2, close=1)
    api.wait(warm, pid)
    assert api.output(warm, pid).content == b"ab"


def test_a_terminal_takes_input_B10(api, warm):
    pid = api.start(warm, "cat", pty={"cols": 80, "rows": 24})
    r = api.process(warm, pid)
    assert r["terminal"] is True and r["stdin"]["open"] is True and set(r["streams"]) == {"pty"}
    assert send(api, warm, pid, b"hello\n", 0)["accepted"] == 6
    want = b"hello\r\nhello\r\n"
    until(lambda: api.process(warm, pid)["streams"]["pty"]["end"] == len(want), "echo and output")
    assert send(api, warm, pid, b"\x04", 6)["accepted"] == 7  # end of transmission, for the terminal's line
    assert api.wait(warm, pid)["exit_code"] == 0


def test_size_of_a_terminal_B10(api, warm):
    pid = api.start(warm, shell="trap 'stty size' WINCH; stty size; echo $TERM; while :; do sleep 0.05; done", pty={"cols": 80, "rows": 24})

    def output():
        return api.call("GET", f"/v1/sandboxes/{warm}/processes/{pid}/output", params={"stream": "pty"}).content
    until(lambda: output() == b"24 80\r\nxterm-256color\r\n", "it has the size")
    api.ok("POST", f"/v1/sandboxes/{warm}/processes/{pid}/resize", 204, json={"cols": 132, "rows": 50})
    until(lambda: output().endswith(b"50 132\r\n"), "it was told")
    api.signal(warm, pid, "KILL")


def test_one_writer_at_a_time(api, warm):
    """An attached writer keeps the input to itself, unless it is taken over: then it is told, and nothing is mixed."""
    pid = api.start(warm, "cat", stdin="open")
    with api.attach(warm, pid, mode="write") as a:
        assert a.next() == "hello"
        for data in (b"x", pieces(b"x" * 300_000)):
            refused = api.refused("POST", path(warm, pid), 409, "writer_exists", data=data)
            assert refused["outcome"] == "not_sent"
        assert api.process(warm, pid)["stdin"] == {"open": True, "accepted": 0}
        assert send(api, warm, pid, b"mine", takeover=1) == {"accepted": 4, "closed": False}
        a.until_close()
        assert a.closed == 4001
    with api.attach(warm, pid, mode="watch") as a:
        assert send(api, warm, pid, b" all", 4, close=1) == {"accepted": 8, "closed": True}
        a.until_close()
    assert bytes(a.data["stdout"]) == b"mine all" and a.message("exit")["exit_code"] == 0


def test_input_of_a_root_process(api, warm):
    pid = api.start(warm, shell="id -u; cat", sudo=True, stdin="open")
    assert send(api, warm, pid, b"for root", 0)["accepted"] == 8
    assert send(api, warm, pid, b" " * MIB, 8, close=1) == {"accepted": 8 + MIB, "closed": True}
    api.wait(warm, pid)
    assert api.output(warm, pid).content == b"0\nfor root" + b" " * MIB


# ---- what goes wrong on the way ----

FAULTS = {
    "answers of stdin are lost": dict(action={"lose_answer": True}, path_regex="/stdin$", nth=2, times=3),
    "stdin answers 504": dict(action={"status": 504}, path_regex="/stdin$", nth=2, times=2),
    "stdin without offsets": dict(action={"no_stdin_offsets": True}, path_regex="/stdin$"),
    "too many requests": dict(action={"status": 429, "headers": {"Retry-After": "1"}}, path_regex="/stdin$", times=2),
    "the carrier is cut": dict(action={"cut_after_ms": 200}, path_regex="/cmd$", times=4),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_exact_whatever_happens_to_the_carriers_A12(api, warm, emulator, fault):
    data = secrets.token_bytes(4 * MIB)
    pid = api.start(warm, "sha256sum", stdin="open")
    fault = dict(fault)
    emulator.fault(fault.pop("action"), method="POST", **fault)
    assert send(api, warm, pid, pieces(data), 0, close=1) == {"accepted": len(data), "closed": True}
    emulator.clear_faults()
    assert api.wait(warm, pid)["exit_code"] == 0
    assert api.output(warm, pid).content.split()[0].decode() == sha256(data)


@pytest.mark.parametrize("fault", [{"lose_answer": True}, {"cut_after_bytes": 1}, {"cut_after_bytes": 0}, {"status": 503}])
def test_a_short_write_whose_answer_is_lost(api, warm, emulator, fault):
    pid = api.start(warm, "cat", stdin="open")
    emulator.fault(fault, method="POST", path_regex="/cmd$", times=1)
    assert send(api, warm, pid, b"exactly once", 0)["accepted"] == 12
    emulator.fault(fault, method="POST", path_regex="/cmd$", times=1)
    assert send(api, warm, pid, offset=12, close=1)["closed"] is True
    emulator.clear_faults()
    api.wait(warm, pid)
    assert api.output(warm, pid).content == b"exactly once"


def test_goes_on_where_a_client_was_cut_off(api, warm):
    """The client dies in the middle of its body; the next one asks how far the input is."""
    data = secrets.token_bytes(3 * MIB)
    pid = api.start(warm, "sha256sum", stdin="open")

    def dying():
        yield data[:2 * MIB]
        raise ConnectionAbortedError
    with pytest.raises((ConnectionAbortedError, requests.ConnectionError)):
        send(api, warm, pid, dying(), 0)
    api.http.close()
    at = until(lambda: api.process(warm, pid)["stdin"]["accepted"], "some of it arrived")
    assert 0 < at <= 2 * MIB

    def rest():
        answer = api.call("POST", path(warm, pid), data=data[at:], headers={"Upload-Offset": str(at)}, params={"close": 1})
        return answer.status_code == 200 and answer.json()  # 409 writer_exists until the first client is known to be gone
    assert until(rest, "the rest is taken") == {"accepted": len(data), "closed": True}
    api.wait(warm, pid)
    assert api.output(warm, pid).content.split()[0].decode() == sha256(data)


def test_any_gateway_takes_the_next_part(api, warm, own_gateway):
    data = secrets.token_bytes(3 * MIB)
    pid = api.start(warm, "sha256sum", stdin="open")
    other = Client(own_gateway())
    assert send(api, warm, pid, data[:MIB], 0)["accepted"] == MIB
    assert send(other, warm, pid, data[MIB:2 * MIB], MIB)["accepted"] == 2 * MIB
    assert send(other, warm, pid, data[MIB:MIB + 10], MIB)["accepted"] == 2 * MIB
    assert send(api, warm, pid, data[2 * MIB:], 2 * MIB, close=1) == {"accepted": 3 * MIB, "closed": True}
    api.wait(warm, pid)
    assert api.output(warm, pid).content.split()[0].decode() == sha256(data)


def test_a_program_that_does_not_read_holds_its_writer_only(api, warm, gateway):
    """The client is paused, then told how far it is; the gateway keeps a bounded part, others are not delayed; and when
    the program reads, the client goes on from there."""
    data = secrets.token_bytes(5 * MIB)
    pid = api.start(warm, shell="until test -e go; do sleep 0.05; done; sha256sum", stdin="open")
    before = resident(gateway)
    answers = []
    client = Client(gateway)

    def writer():
        answers.append(client.call("POST", path(warm, pid), data=pieces(data), headers={"Upload-Offset": "0"}))
    thread = threading.Thread(target=writer)
    thread.start()
    while thread.is_alive():
        began = time.monotonic()
        assert api.run(warm, "echo", "meanwhile")["exit_code"] == 0
        assert time.monotonic() - began < 10
        assert resident(gateway) - before < 32 * MIB  # the sanitizer keeps what was freed
        thread.join(2)
    problem = answers[0].json()
    assert answers[0].status_code == 503 and problem["code"] == "stdin_full", problem
    assert 0 < problem["accepted"] <= 2 * MIB and problem["retryable"] is True
    api.put(warm, "go", b"")
    at = problem["accepted"]
    assert send(api, warm, pid, pieces(data[at:]), at, close=1) == {"accepted": len(data), "closed": True}
    api.wait(warm, pid)
    assert api.output(warm, pid).content.split()[0].decode() == hashlib.sha256(data).hexdigest()


def resident(process):
    for line in open(f"/proc/{process.child.pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
