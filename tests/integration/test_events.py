"""Process events over plain HTTP: P05 P06 P07 P11 P38 P41 P42 U2 U5, and that no client holds up another (P12)."""
import base64
import json
import re
import secrets
import signal
import socket
import time

import pytest

from client import Client
from harness import PATIENCE, Records, sha256, until

KIB = 1 << 10
ODD = b"\xc3\xa9 \r\n \xe2\x80\xa8\xe2\x80\xa9 \x00 data: x\n\nevent: exit\n\n\xff end without newline"


class Events(Records):
    """Reads one answer record by record; what breaks the form of server-sent events or NDJSON fails here."""

    def __init__(self, api, box, pid, sse=True, headers=None, **query):
        self.sse = sse
        self.answer = api.call("GET", f"/v1/sandboxes/{box}/processes/{pid}/events", params=query, stream=True,
                               headers={"Accept": "text/event-stream" if sse else "application/x-ndjson", **(headers or {})})
        assert self.answer.status_code == 200, self.answer.text
        assert self.answer.headers["Content-Type"] == ("text/event-stream" if sse else "application/x-ndjson")
        self.data = {"stdout": bytearray(), "stderr": bytearray(), "pty": bytearray()}
        self.at = {"stdout": query.get("stdout", 0), "stderr": query.get("stderr", 0), "pty": query.get("pty", 0)}
        self.records, self.comments, self.id = [], 0, None
        self.raw = self.blocks()

    def next(self):
        """The next record; None at the end."""
        for block in self.raw:
            if self.sse and block.startswith(b":"):
                self.comments += 1
                continue
            record = self.parse_sse(block) if self.sse else json.loads(block)
            self.take(record)
            return record
        return None

    def parse_sse(self, block):
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        assert set(fields) == {b"event", b"id", b"data"}
        record = json.loads(fields[b"data"])
        assert record["type"] == fields[b"event"].decode()
        self.id = fields[b"id"].decode()
        return record

    def take(self, record):
        self.records.append(record)
        assert len(self.records) == 1 or record["type"] != "hello"
        if record["type"] == "data":
            stream = record["stream"]
            data = base64.b64decode(record["data"], validate=True)
            assert record["offset"] == self.at[stream] and 0 < len(data) <= 64 * KIB
            self.data[stream] += data
            self.at[stream] += len(data)
            if self.sse and stream != "pty":
                assert self.id == f"stdout:{self.at['stdout']};stderr:{self.at['stderr']}"

    def rest(self):
        while self.next():
            pass
        return self

    def types(self):
        return [r["type"] for r in self.records]

    def one(self, kind):
        (found,) = [r for r in self.records if r["type"] == kind]
        return found


@pytest.mark.parametrize("sse", [True, False], ids=["sse", "ndjson"])
def test_every_byte_arrives_as_it_is_P05_P06_P07(api, box, sse):
    api.put(box, "odd", ODD)
    pid = api.start(box, shell=r"printf '\303'; sleep 0.05; printf '\251'; cat odd; printf err >&2; exit 3")
    with Events(api, box, pid, sse) as e:
        e.rest()
    assert bytes(e.data["stdout"]) == b"\xc3\xa9" + ODD and bytes(e.data["stderr"]) == b"err"
    kinds = e.types()
    assert kinds[0] == "hello" and kinds[-2:] == ["exit", "end"] and set(kinds[1:-2]) == {"data"}
    hello, exit_ = e.one("hello"), e.one("exit")
    assert hello["process_id"] == pid and hello["sandbox"] == box and hello["streams"]["stdout"]["next"] == 0
    assert exit_["exit_code"] == 3 and exit_["output_complete"] is True
    assert not sse or e.id == f"stdout:{2 + len(ODD)};stderr:3;end"


def test_three_bytes_without_newline_P07(api, box):
    pid = api.start(box, "printf", "abc")
    for sse in (True, False):
        with Events(api, box, pid, sse) as e:
            e.rest()
        assert bytes(e.data["stdout"]) == b"abc" and e.types()[-3:] == ["data", "exit", "end"]


def test_streams_may_pass_proxies_P42(api, box):
    pid = api.start(box, "echo", "x")
    with Events(api, box, pid) as e:
        e.rest()
    for answer in (e.answer, api.output(box, pid)):
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Cache-Control"] == "no-store, no-transform"
        assert answer.headers["X-Session-Id"]


def test_all_forms_give_the_same_U5(api, box):
    data = secrets.token_bytes(3 << 20)
    api.put(box, "f", data)
    program = dict(shell="cat f; head -c 100000 f >&2; exit 7")
    pid = api.start(box, **program)
    results = []
    for sse in (True, False):
        with Events(api, box, pid, sse) as e:
            e.rest()
        results.append((e.data["stdout"], e.data["stderr"], e.one("exit")))
    with api.attach(box, pid) as a:
        a.until_close()
    results.append((a.data["stdout"], a.data["stderr"], a.message("exit")))
    for out, err, exit_ in results:
        assert sha256(out) == sha256(data) and bytes(err) == data[:100000]
        assert exit_ == results[0][2] and exit_["exit_code"] == 7
    ran = api.run(box, **program, max_output=4 << 20)
    assert (sha256(ran["out"]), ran["err"], ran["exit_code"]) == (sha256(data), data[:100000], 7)
    assert api.output(box, pid).content == data


def test_leaving_and_coming_back_by_the_last_id_U2(api, box):
    """A browser sends the same URL again, with Last-Event-ID."""
    pid = api.start(box, shell="i=0; while [ $i -lt 20000 ]; do echo $i line; i=$((i+1)); done; echo end >&2")
    out, err, last = b"", b"", None
    for _ in range(400):
        headers = {"Last-Event-ID": last} if last else {}
        with Events(api, box, pid, headers=headers, stdout=0) as e:
            if last:
                e.at = dict(zip(("stdout", "stderr"), map(int, re.findall(r":(\d+)", last))))
            for _ in range(1 + secrets.randbelow(30)):
                if not e.next():
                    break
            out, err, last = out + e.data["stdout"], err + e.data["stderr"], e.id
        if last.endswith(";end"):
            break
    assert out == b"".join(b"%d line\n" % i for i in range(20000)) and err == b"end\n"
    again = api.call("GET", f"/v1/sandboxes/{box}/processes/{pid}/events", headers={"Last-Event-ID": last})
    assert again.status_code == 204 and again.content == b""


def test_offsets_in_the_query(api, box):
    pid = api.start(box, shell="printf 0123456789; printf abcdef >&2")
    api.wait(box, pid)
    with Events(api, box, pid, sse=False, stdout=7, stderr=2) as e:
        e.rest()
    assert bytes(e.data["stdout"]) == b"789" and bytes(e.data["stderr"]) == b"cdef"
    assert e.one("hello")["streams"]["stdout"]["next"] == 7


def test_a_terminal_is_one_stream(api, box):
    pid = api.start(box, shell="printf hello; sleep 0.1; printf ' there'", pty={"cols": 80, "rows": 24})
    with Events(api, box, pid) as e:
        e.rest()
    assert bytes(e.data["pty"]) == b"hello there" and e.id == "pty:11;end"
    with Events(api, box, pid, headers={"Last-Event-ID": "pty:6"}, sse=True) as e:
        e.at["pty"] = 6
        e.rest()
    assert bytes(e.data["pty"]) == b"there"
    with Events(api, box, pid, sse=False, pty=8) as e:
        e.rest()
    assert bytes(e.data["pty"]) == b"ere"
    assert api.output(box, pid, stream="pty", offset=2).content == b"llo there"


def test_gap_is_told(api, box):
    pid = api.start(box, shell="head -c 1000000 /dev/zero", retention={"bytes": 65536})
    oldest = api.wait(box, pid)["streams"]["stdout"]["oldest"]
    with Events(api, box, pid) as e:
        assert e.next()["type"] == "hello"
        gap = e.next()
        assert (gap["type"], gap["stream"], gap["from"], gap["to"]) == ("gap", "stdout", 0, oldest)
        assert e.id == f"stdout:{oldest};stderr:0"
        e.at["stdout"] = oldest
        e.rest()
    assert len(e.data["stdout"]) == 1000000 - oldest


def test_refusals_are_problem_documents(api, box):
    pid = api.start(box, "true")
    path = f"/v1/sandboxes/{box}/processes/{pid}/events"
    for accept in ("text/html", "application/json", "text/event-stream;q=0", "*/*;q=0"):
        api.refused("GET", path, 406, "not_acceptable", headers={"Accept": accept})
    for last in ("x", "stdout:1", "stdout:1;stderr:", "stdout:-1;stderr:0", "pty:1;x", "stdout:1;stderr:2;end;"):
        api.refused("GET", path, 422, "invalid_field", headers={"Last-Event-ID": last})
    api.refused("GET", path, 422, "invalid_field", params={"stdout": "x"})
    api.refused("GET", path, 422, "invalid_field", params={"pty": 1, "stderr": 1})
    api.refused("GET", path, 422, "unknown_field", params={"since": 1})
    api.refused("GET", f"/v1/sandboxes/{box}/processes/nobody/events", 404, "process_not_found")
    api.refused("GET", "/v1/sandboxes/t-nobody/processes/p/events", 404, "sandbox_not_found")
    for accept, kind in (("*/*", "text/event-stream"), ("application/*", "application/x-ndjson"),
                         ("text/event-stream;q=0.5, application/x-ndjson", "application/x-ndjson")):
        answer = api.ok("GET", path, headers={"Accept": accept})
        assert answer.headers["Content-Type"] == kind


def test_an_end_without_exit_is_an_error_record_P11(api, box):
    pid = api.start(box, shell="echo here; sleep 600")
    for sse in (True, False):
        with Events(api, box, pid, sse) as e:
            assert [e.next()["type"], e.next()["type"]] == ["hello", "data"]
            if not sse:
                continue
        assert bytes(e.data["stdout"]) == b"here\n"
    with Events(api, box, pid) as e, Events(api, box, pid, sse=False) as f:
        assert e.next()["type"] == f.next()["type"] == "hello"
        api.stop(box)
        for one in (e, f):
            one.rest()
            assert one.types()[-1] == "error" and "exit" not in one.types() and "end" not in one.types()
            assert one.one("error")["code"] in ("stale_session", "sandbox_not_running", "sandbox_transition")


def test_silence_is_filled_P38_P41(api, own_gateway):
    """A stream without output outlives every limit of the server, and speaks before a proxy would close it."""
    gateway = own_gateway(RELAY_KEEPALIVE_MS=600, SERVER_IDLE_TIMEOUT_MS=1000)
    mine = Client(gateway)
    box = api.sandbox()
    pid = api.start(box, shell="sleep 6; echo late")
    with Events(mine, box, pid) as e, Events(mine, box, pid, sse=False) as f:
        e.rest()
        f.rest()
    assert bytes(e.data["stdout"]) == bytes(f.data["stdout"]) == b"late\n"
    assert e.types() == ["hello", "data", "exit", "end"] and e.comments >= 5
    silent = [r for r in f.records if r["type"] == "keepalive"]
    assert len(silent) >= 5 and silent[0] == {"type": "keepalive"}


def test_a_gateway_that_goes_says_so(api, own_gateway):
    gateway = own_gateway()
    box = api.sandbox()
    pid = api.start(box, "sleep", "600")
    with Events(Client(gateway), box, pid) as e:
        assert e.next()["type"] == "hello"
        begin = time.monotonic()
        gateway.child.send_signal(signal.SIGTERM)
        e.rest()
        assert e.one("error")["code"] == "draining" and time.monotonic() - begin < 5
    assert gateway.end(None) == 0
    assert api.process(box, pid)["state"] == "running"


def test_a_client_that_takes_nothing_is_closed_P12(api, own_gateway):
    gateway = own_gateway(RELAY_SLOW_READER_MS=1500)
    mine = Client(gateway)
    box = api.sandbox()
    pid = api.start(box, shell="head -c 16777216 /dev/zero")
    stuck = socket.create_connection(("127.0.0.1", int(gateway.url.rsplit(":", 1)[1])), timeout=PATIENCE)
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    stuck.sendall((f"GET /v1/sandboxes/{box}/processes/{pid}/events HTTP/1.1\r\nHost: x\r\n"
                   f"Authorization: Bearer {mine.token}\r\n\r\n").encode())
    with Events(mine, box, pid, sse=False) as e:
        e.rest()
    assert len(e.data["stdout"]) == 16777216 and e.one("exit")["exit_code"] == 0

    def closed():
        return not [line for line in open(f"/proc/{gateway.child.pid}/net/tcp") if f":{stuck.getsockname()[1]:04X} 01 " in line]

    until(closed, "the gateway closes the client that takes nothing")
    stuck.close()
