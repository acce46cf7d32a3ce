"""Exact bytes at offsets over every way out: A14 U2 U5 P01 P05 P07 P19 P20."""
import secrets

import pytest

from harness import sha256

MIB = 1 << 20


@pytest.fixture(scope="module")
def random_bytes():
    """64 MiB of random bytes; NULs and every other value are in there many times."""
    data = secrets.token_bytes(64 * MIB)
    assert data.count(0) > 1000
    return data


def test_64_mib_are_exact_everywhere_U5_A14(api, random_bytes):
    """WebSocket, output GET and run give the same bytes, by SHA-256."""
    box, want = api.sandbox(), sha256(random_bytes)
    api.put(box, "random", random_bytes)
    pid = api.start(box, "cat", "random", retention={"bytes": 128 * MIB})
    with api.attach(box, pid) as a:
        a.until_close()
    assert (len(a.data["stdout"]), sha256(a.data["stdout"])) == (64 * MIB, want)
    exit_ = a.message("exit")
    assert exit_["exit_code"] == 0 and exit_["output_complete"] is True and a.closed == 1000
    answer = api.output(box, pid)
    assert (len(answer.content), sha256(answer.content)) == (64 * MIB, want)
    assert answer.headers["X-Offset-Next"] == answer.headers["X-Offset-End"] == str(64 * MIB)
    r = api.run(box, "cat", "random", max_output=64 * MIB)
    assert r["truncated"] is False and r["output_complete"] is True
    assert (len(r["out"]), sha256(r["out"])) == (64 * MIB, want)


def test_reattach_at_offsets_loses_and_repeats_nothing_U2_P01(api, box):
    lines = b"".join(b"%d line of output\n" % i for i in range(30000))
    pid = api.start(box, shell="i=0; while [ $i -lt 30000 ]; do echo $i line of output; i=$((i+1)); done; echo end >&2")
    out = bytearray()
    for cut in range(5):
        with api.attach(box, pid, stdout=len(out)) as a:
            a.until_bytes(1 + secrets.randbelow(len(lines) // 8))
        out += a.data["stdout"]
    with api.attach(box, pid, stdout=len(out)) as a:
        a.until_close()
    out += a.data["stdout"]
    assert (len(out), sha256(out)) == (len(lines), sha256(lines))
    assert bytes(a.data["stderr"]) == b"end\n"
    assert a.message("hello")["process_id"] == pid


def test_a_cut_upstream_stream_is_one_stream_to_the_client_U2_P02(api, box, emulator):
    emulator.fault({"cut_after_ms": 500}, method="POST", path_regex="/cmd$", times=4)
    with emulator.calls() as calls:
        pid = api.start(box, shell="echo begin >> ran; i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 3",
                        id="cut")
        with api.attach(box, pid) as a:
            a.until_close()
    assert bytes(a.data["stdout"]) == b"".join(b"%d\n" % i for i in range(40))
    assert a.message("exit")["exit_code"] == 3
    assert len(calls) > 3, "the streams were cut, so it must have asked again"
    assert api.file(box, "ran") == b"begin\n"


def test_split_character_P05(api, box):
    pid = api.start(box, shell=r"printf '\303'; sleep 0.2; printf '\251'")
    with api.attach(box, pid) as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"\xc3\xa9"
    assert api.output(box, pid).content == b"\xc3\xa9"


def test_json_protocol_carries_the_same(api, box):
    pid = api.start(box, shell=r"printf '\377\000'; echo err >&2; exit 9")
    with api.attach(box, pid, protocol="sandgate.v1.json") as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"\xff\x00" and bytes(a.data["stderr"]) == b"err\n"
    assert a.message("exit")["exit_code"] == 9


def test_output_by_offset_P19(api, box):
    pid = api.start(box, shell="printf 0123456789; printf err >&2")
    api.wait(box, pid)
    part = api.output(box, pid, offset=3, limit=4)
    assert part.content == b"3456" and part.headers["Content-Length"] == "4"
    assert (part.headers["X-Offset-Next"], part.headers["X-Offset-End"], part.headers["X-Offset-Oldest"]) == ("7", "10", "0")
    assert part.headers["Content-Type"] == "application/octet-stream"
    assert api.output(box, pid, stream="stderr", offset=1).content == b"rr"
    end = api.output(box, pid, offset=10)
    assert end.content == b"" and end.headers["X-Offset-Next"] == "10"
    refused = api.refused("GET", f"/v1/sandboxes/{box}/processes/{pid}/output", 416, "range_not_satisfiable",
                          params={"offset": 11})
    assert refused["reason"] == "InvalidOptionsError"
    for query, pointer in (({"stream": "pty"}, "?stream"), ({"offset": -1}, "?offset"), ({"limit": 0}, "?limit"),
                           ({"wait_ms": 25001}, "?wait_ms")):
        refused = api.refused("GET", f"/v1/sandboxes/{box}/processes/{pid}/output", 422, "invalid_field", params=query)
        assert refused["pointer"] == pointer


def test_output_waits_for_the_next_bytes(api, box):
    pid = api.start(box, shell="echo one; sleep 2; echo two; sleep 600")
    seen, rounds = b"", 0
    while len(seen) < 8:
        answer = api.output(box, pid, offset=len(seen), wait_ms=20000)
        assert answer.headers["X-Offset-Next"] == str(len(seen) + len(answer.content))
        seen += answer.content
        rounds += 1
        assert rounds < 10
    assert seen == b"one\ntwo\n"
    assert api.output(box, pid, offset=8, wait_ms=300).content == b""
    assert api.output(box, pid, offset=1000).content == b"", "past the end of a running stream"
    api.signal(box, pid, "KILL")


def test_output_right_after_start_P20(api, box):
    for _ in range(100):
        pid = api.start(box, "echo", "x")
        assert api.output(box, pid).content in (b"", b"x\n")


def test_output_survives_cuts_of_the_upstream(api, box, emulator):
    data = secrets.token_bytes(3 * MIB)
    api.put(box, "f", data)
    pid = api.start(box, "cat", "f")
    api.wait(box, pid)
    for after in (0, 100, 100000, 2 * MIB):
        emulator.fault({"cut_after_bytes": after}, method="POST", path_regex="/cmd$", times=1)
    with emulator.calls() as calls:
        assert api.output(box, pid).content == data
    assert len(calls) == 5, calls.seen()


def test_evicted_output_is_410_with_the_oldest_offset(api, box):
    pid = api.start(box, shell="head -c 1000000 /dev/zero", retention={"bytes": 65536})
    record = api.wait(box, pid)
    oldest = record["streams"]["stdout"]["oldest"]
    assert record["streams"]["stdout"]["end"] == 1000000 and 1000000 - 65536 <= oldest < 1000000
    refused = api.refused("GET", f"/v1/sandboxes/{box}/processes/{pid}/output", 410, "output_evicted")
    assert refused["oldest"] == oldest
    assert api.output(box, pid, offset=oldest).content == bytes(1000000 - oldest)
    with api.attach(box, pid) as a:
        assert a.next() == "hello" and a.next() == "gap"
        gap = a.message("gap")
        assert (gap["stream"], gap["from"], gap["to"]) == ("stdout", 0, oldest)
        a.at["stdout"] = oldest
        a.until_close()
    assert len(a.data["stdout"]) == 1000000 - oldest


def test_two_watchers_see_the_same(api, box):
    pid = api.start(box, shell="i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); sleep 0.02; done")
    with api.attach(box, pid) as a, api.attach(box, pid) as b:
        a.until_close()
        b.until_close()
    assert a.data == b.data and a.data["stdout"].endswith(b"49\n")


def test_refusals_come_before_the_upgrade(api, box):
    path = f"/v1/sandboxes/{box}/processes/p1/attach"
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert api.call("GET", path).headers["Upgrade"] == "websocket"
    api.refused("GET", path, 426, "upgrade_required")
    api.refused("GET", path, 400, "bad_request", headers=upgrade)
    api.refused("GET", path, 422, "invalid_field", headers={**upgrade, "Sec-WebSocket-Protocol": "sandgate.v1"},
                params={"stdout": "x"})
    api.refused("GET", "/v1/sandboxes/t-nobody/processes/p1/attach", 404, "sandbox_not_found",
                headers={**upgrade, "Sec-WebSocket-Protocol": "sandgate.v1"})
    api.stop(box)
    api.refused("GET", path, 409, "sandbox_not_running", headers={**upgrade, "Sec-WebSocket-Protocol": "sandgate.v1"})


def test_attach_to_nobody_says_so(api, box):
    with api.attach(box, "nobody") as a:
        a.until_close()
    assert a.message("error")["code"] == "process_not_found" and a.closed == 1011


def test_stop_closes_watchers_with_4010(api, box):
    pid = api.start(box, "sleep", "600")
    with api.attach(box, pid) as a:
        assert a.next() == "hello"
        api.stop(box)
        a.until_close()
    assert a.closed == 4010


def test_a_watcher_that_never_reads_stops_nobody_P12(api, box):
    pid = api.start(box, shell="head -c 16777216 /dev/zero; echo done >&2")
    with api.attach(box, pid) as idle, api.attach(box, pid) as busy:
        busy.until_close()
        assert len(busy.data["stdout"]) == 16 * MIB and busy.message("exit")["exit_code"] == 0
        assert idle.messages == [] and api.run(box, "echo", "x")["out"] == b"x\n"


def test_silent_process_takes_any_number_of_attaches_P18(api, box):
    pid = api.start(box, "sleep", "600")
    for _ in range(20):
        with api.attach(box, pid) as a:
            assert a.next() == "hello" and a.message("hello")["state"] == "running"
    api.signal(box, pid, "KILL")


def test_unfinished_heredoc_fails_alone_P24(api, box):
    api.run(box, shell="cat <<EOF_THAT_NEVER_COMES\nbody")
    assert api.run(box, "echo", "next")["out"] == b"next\n"
