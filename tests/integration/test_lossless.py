"""Lossless retention: the program waits for its readers, and nothing is lost. U6 P16."""
import secrets

from harness import sha256, until

MIB = 1 << 20


def path(box, pid, act=""):
    return f"/v1/sandboxes/{box}/processes/{pid}" + (f"/{act}" if act else "")


def ack(api, box, pid, **offsets):
    api.ok("POST", path(box, pid, "ack"), 204, json=offsets)


def paused(api, box, pid):
    def look():
        r = api.process(box, pid)
        return r["paused"] and r
    return until(look, "the program is paused")


def test_8_mib_through_1_mib(api, box):
    data = secrets.token_bytes(8 * MIB)
    api.put(box, "data", data)
    pid = api.start(box, shell="cat data; echo written >&2", retention={"bytes": MIB, "mode": "lossless"})
    got = bytearray()
    while True:
        r = api.process(box, pid, 20000 if len(got) >= 7 * MIB else 0)
        if r["state"] == "finished" and len(got) == len(data):
            break
        part = api.output(box, pid, offset=len(got), wait_ms=5000).content
        got += part
        stream = r["streams"]["stdout"]
        assert stream["oldest"] <= len(got), "what was not acknowledged is kept"
        assert stream["end"] - stream["oldest"] <= 2 * MIB + MIB // 2, stream
        ack(api, box, pid, stdout=len(got)) if r["state"] == "running" else None
    assert sha256(got) == sha256(data)
    assert r["exit_code"] == 0 and r["output_complete"] is True
    assert api.output(box, pid, "stderr").content == b"written\n"


def test_paused_until_acknowledged(api, box):
    pid = api.start(box, shell="yes | head -c 4194304; echo end >&2", retention={"bytes": 256 * 1024, "mode": "lossless"})
    r = paused(api, box, pid)
    end = r["streams"]["stdout"]["end"]
    assert r["retention"] == {"mode": "lossless"} and 256 * 1024 <= end < MIB and r["streams"]["stdout"]["oldest"] == 0
    assert api.output(box, pid).content == b"y\n" * (end // 2), "reading alone frees nothing"
    ack(api, box, pid, stdout=1000)  # less than a segment: still full, or nearly so
    until(lambda: api.process(box, pid)["paused"], "still paused")
    at = 0
    while api.process(box, pid)["state"] == "running":
        at = api.process(box, pid)["streams"]["stdout"]["end"]
        answer = api.call("POST", path(box, pid, "ack"), json={"stdout": at})
        assert answer.status_code == 204 or answer.json()["code"] == "process_finished", answer.text
    r = api.wait(box, pid)
    assert r["exit_code"] == 0 and r["paused"] is False and r["streams"]["stdout"]["end"] == 4 * MIB
    assert api.output(box, pid, "stderr").content == b"end\n"


def test_streams_pause_apart(api, box):
    """A full stdout does not hold stderr back."""
    pid = api.start(box, shell="yes | head -c 1048576 & echo words >&2; wait; echo end >&2",
                    retention={"bytes": 64 * 1024, "mode": "lossless"})
    paused(api, box, pid)
    assert api.output(box, pid, "stderr", wait_ms=5000).content == b"words\n"
    api.ok("POST", path(box, pid, "cancel"), 202, json={"grace_ms": 0})
    assert api.wait(box, pid)["ended_by"] == "signal", "a paused program can be ended"


def test_a_terminal_is_paused_too(api, box):
    pid = api.start(box, shell="yes | head -c 300000; echo end", pty={"cols": 80, "rows": 24},
                    retention={"bytes": 64 * 1024, "mode": "lossless"})
    paused(api, box, pid)
    while True:
        r = api.process(box, pid)
        if r["state"] == "finished":
            break
        answer = api.call("POST", path(box, pid, "ack"), json={"pty": r["streams"]["pty"]["end"]})
        assert answer.status_code == 204 or answer.json()["code"] == "process_finished", answer.text
    assert r["exit_code"] == 0 and r["streams"]["pty"]["end"] == 300_000 // 2 * 3 + 5


def test_a_ring_has_nothing_to_acknowledge(api, box):
    pid = api.start(box, shell="printf 0123456789; exec sleep 600")
    until(lambda: api.process(box, pid)["streams"]["stdout"]["end"] == 10, "it printed")
    assert api.process(box, pid)["retention"] == {"mode": "ring"}
    api.ok("POST", path(box, pid, "ack"), 204, json={"stdout": 5})
    r = api.process(box, pid)
    assert r["streams"]["stdout"] == {"oldest": 0, "end": 10}, "and drops nothing for it"
    api.signal(box, pid, "KILL")
