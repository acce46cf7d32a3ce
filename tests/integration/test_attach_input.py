"""Input, acknowledgements and one writer over attached WebSockets, and running over one connection.

A14, U2, U7, U9, C7; P22, P25, P26, P37, P38.
"""
import base64
import hashlib
import json
import os
import random
import threading
import time

import pytest
import requests
import websocket
from client import APPEND, Attach, Client, problem
from harness import PATIENCE, until

MIB = 1024 * 1024
INTERACTIVE = {"method": "POST", "path_regex": "/interactive$"}


def no_socket(emulator):
    """The interactive socket is not to be had: input takes the other way."""
    emulator.fault({"status": 404}, **INTERACTIVE)


def handshake(api, path, **query):
    """The answer of an upgrade that is refused."""
    return api.call("GET", path, params=query, headers={
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Protocol": "sandgate.v1"})


def pour(a, data, piece):
    """Sends all of it, each message at its offset, on a thread: the gateway may let us wait."""
    def run():
        for at in range(0, len(data), piece):
            a.send(data[at:at + piece], at)
        a.say("stdin_close", offset=len(data))
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def digest(a, data, before=b""):
    """What sha256sum said is the digest of the data."""
    a.until_close()
    assert bytes(a.data["stdout"]) == before + hashlib.sha256(data).hexdigest().encode() + b"  -\n", a.messages
    assert a.message("exit")["exit_code"] == 0
    assert a.closed == 1000


# ---- P22: much input ----


@pytest.mark.parametrize("way", ["interactive", "command"])
@pytest.mark.parametrize("protocol", ["sandgate.v1", "sandgate.v1.json"])
def test_p22_ten_mebibytes_and_the_end(api, box, emulator, way, protocol):
    if way == "command":
        no_socket(emulator)
    data = os.urandom(10 * MIB)
    pid = api.start(box, "sha256sum", stdin="open")
    with emulator.calls() as calls, api.attach(box, pid, protocol=protocol) as a:
        thread = pour(a, data, 300000)
        digest(a, data)
        thread.join()
    seen = [m["accepted"] for m in a.messages if m["type"] == "stdin"]
    assert seen == sorted(seen) and 9 * MIB < seen[-1] <= len(data)  # the exit may come before the last of them
    assert not [m for m in a.messages if m["type"] == "error"]
    assert len(calls) <= 100, calls.seen()  # over the socket three, where it is to be had


def test_a_slow_reader_costs_few_calls(api, box, emulator):
    """Room that opens piece by piece is not filled piece by piece."""
    no_socket(emulator)
    data = os.urandom(3 * MIB)
    pid = api.start(box, "sh", "-c", "while head -c 20000 > piece && [ -s piece ]; do cat piece; done | sha256sum", stdin="open")
    with emulator.calls() as calls, api.attach(box, pid) as a:
        thread = pour(a, data, 50000)
        digest(a, data)
        thread.join()
    assert len(calls) <= 40, calls.seen()


@pytest.mark.parametrize("way", ["interactive", "command"])
def test_u2_input_survives_cuts(api, box, emulator, way):
    """Carriers, and the output's stream, are cut all the time."""
    if way == "command":
        no_socket(emulator)
    emulator.fault({"cut_after_ms": 300}, path_regex="/ws/interactive$")
    emulator.fault({"cut_after_ms": 400}, method="POST", path_regex="/cmd$")
    emulator.fault({"lose_answer": True}, nth=2, method="POST", path_regex="/stdin$")
    data = os.urandom(3 * MIB)
    pid = api.start(box, "sh", "-c", "while head -c 100000 | cat >> got && [ $(wc -c < got) -lt 3145728 ]; do sleep 0.02; done; sha256sum < got",
                    stdin="open")
    with api.attach(box, pid) as a:
        thread = pour(a, data, 200000)
        digest(a, data)
        thread.join()


def test_u2_a_gateway_dies_under_its_writer(api, box, emulator, own_gateway):
    """kill -9 with input on its way: the client goes on, over another gateway, where the sandbox had got to."""
    data = os.urandom(6 * MIB)
    pid = api.start(box, "sha256sum", stdin="open")
    gateway = killable(own_gateway())
    a = Client(gateway).attach(box, pid)
    a.until("hello")
    sender = threading.Thread(target=send_until_cut, args=(a, data))
    sender.start()
    until(lambda: a.next() and any(m["type"] == "stdin" and m["accepted"] > MIB for m in a.messages), "a mebibyte was accepted")
    gateway.child.kill()
    sender.join()
    accepted = max(m["accepted"] for m in a.messages if m["type"] == "stdin")
    with api.attach(box, pid, mode="write") as b:
        hello = b.until("hello")
        assert hello["mode"] == "write"
        assert hello["stdin"]["accepted"] >= accepted  # what was acknowledged is not forgotten
        for at in range(accepted, len(data), 500000):  # from where we know; the rest is passed over
            b.send(data[at:at + 500000], at)
        b.say("stdin_close", offset=len(data))
        digest(b, data)


def killable(gateway):
    """A gateway that does not end as one that is asked to."""
    gateway.end = lambda: gateway.child.wait(PATIENCE) + 9
    return gateway


def send_until_cut(a, data):
    try:
        for at in range(0, len(data), 100000):
            a.send(data[at:at + 100000], at)
    except (OSError, websocket.WebSocketException):
        pass


# ---- P25: more than fits ----


@pytest.mark.parametrize("protocol", ["sandgate.v1", "sandgate.v1.json"])
def test_p25_five_mebibytes_in_one_message(api, box, protocol):
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid, mode="watch") as watcher, api.attach(box, pid, protocol=protocol) as a:
        watcher.until("hello")
        a.until("hello")
        try:
            a.send(b"x" * (5 * MIB), 0)
        except OSError:
            pass  # refused while we were still at it
        a.until_close()
        assert a.closed == 1009
        assert "1048576" in a.close_reason
        with api.attach(box, pid, mode="write") as b:
            b.until("hello")
            b.send(b"still here\n", 0)
            watcher.until_bytes(11)
            assert bytes(watcher.data["stdout"]) == b"still here\n"


def test_p25_a_message_just_too_long_is_told_the_limit(api, box):
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid) as a:
        a.until("hello")
        limit = a.message("hello")["limits"]["stdin_message_bytes"]
        a.send(b"x" * limit, 0)
        a.accepted(limit)
        a.send(b"x" * (limit + 1), limit)
        a.until_close()
        error = a.message("error")
        assert (error["code"], a.closed) == ("body_too_large", 1009)
        assert str(limit) in error["detail"]


def rss(gateway):
    for line in open(f"/proc/{gateway.child.pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024


def test_a_program_that_does_not_read_holds_its_writer_up(api, box, own_gateway):
    """Nothing is lost and little is kept; a watcher, and a signal sent within the window, do not wait."""
    gateway = own_gateway()
    mine = Client(gateway)
    data = os.urandom(16 * MIB)
    pid = api.start(box, "sh", "-c", "trap 'echo caught >&2' USR1; echo up; while [ ! -e go ]; do sleep 0.05; done; exec sha256sum",
                    stdin="open")
    with mine.attach(box, pid) as a, mine.attach(box, pid, mode="watch") as watcher:
        a.until_bytes(3)
        watcher.until_bytes(3)
        a.send(data[:1000], 0)
        a.say("signal", signal="USR1")
        watcher.until_bytes(7, "stderr")
        a.accepted(1000)
        before = rss(gateway)
        thread = pour(a, data, 500000)
        time.sleep(2)  # long enough to send all of it, were it taken
        assert thread.is_alive(), "the client has to wait"
        assert rss(gateway) - before < 24 * MIB  # sanitizers included
        api.put(box, "go", b"")
        digest(a, data, b"up\n")
        thread.join()


# ---- who writes ----


def test_modes_and_takeover(api, box):
    pid = api.start(box, "cat", stdin="open")
    path = f"/v1/sandboxes/{box}/processes/{pid}/attach"
    with api.attach(box, pid) as a:
        hello = a.until("hello")
        assert hello["mode"] == "write" and hello["stdin"] == {"accepted": 0, "open": True, "certain": False, "carrier": None}
        assert hello["presence"] == {"writers": 1, "watchers": 0}
        with api.attach(box, pid) as b:
            assert b.until("hello")["mode"] == "watch"
            a.until("presence", lambda m: (m["writers"], m["watchers"]) == (1, 1))
            problem(handshake(api, path, mode="write"), 409, "writer_exists")
            b.send(b"no", 0)
            assert b.until("error")["code"] == "writer_exists"
            a.send(b"from a\n", 0)
            b.until_bytes(7)
            with api.attach(box, pid, mode="write", takeover=1) as c:
                hello = c.until("hello")
                assert hello["mode"] == "write" and hello["stdin"]["accepted"] == 7
                assert c.until("stdin")["accepted"] == 7
                a.until_close()
                assert a.closed == 4001 and a.message("error")["code"] == "writer_replaced"
                c.send(b"from c\n", 7)
                b.until_bytes(14)
                assert bytes(b.data["stdout"]) == b"from a\nfrom c\n"
        # Everybody has left: the process and its input stay.
    record = api.process(box, pid)
    assert record["state"] == "running" and record["stdin"] == {"open": True, "accepted": 14}


def test_refusals_come_before_the_upgrade(api, box):
    quiet = api.start(box, "sleep", "100")
    done = api.start(box, "cat", stdin="open")
    with api.attach(box, done) as a:
        a.say("stdin_close")
        a.until_close()
    attach = f"/v1/sandboxes/{box}/processes/{{}}/attach"
    problem(handshake(api, attach.format(quiet), mode="write"), 409, "stdin_closed")
    problem(handshake(api, attach.format(done), mode="write"), 409, "process_finished")
    problem(handshake(api, attach.format("nobody"), mode="write"), 404, "process_not_found")
    for query, pointer in (({"mode": "read"}, "?mode"), ({"takeover": 2}, "?takeover"), ({"cols": 80}, "?rows"),
                           ({"cols": 0, "rows": 1}, "?cols"), ({"pty": 0, "stdout": 0}, "?pty"),
                           ({"mode": "watch", "takeover": 1}, "?takeover")):
        assert problem(handshake(api, attach.format(quiet), **query), 422, "invalid_field")["pointer"] == pointer
    with api.attach(box, quiet) as a:
        assert a.until("hello")["mode"] == "watch"
        a.send(b"x", 0)
        assert a.until("error")["code"] == "stdin_closed"
        a.say("signal", signal="TERM")  # a process without input may still be signalled
        a.until_close()
        assert a.message("exit")["signal"] == "SIGTERM"


def test_the_last_gateway_to_write_wins(api, box, own_gateway):
    """Two gateways know nothing of each other; the sandbox decides."""
    other = Client(own_gateway())
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid) as a, other.attach(box, pid) as b:
        a.send(b"one\n", 0)
        a.accepted(4)
        b.until_bytes(4)
        b.send(b"two\n", 4)
        a.until_close()
        assert a.closed == 4001
        b.until_bytes(8)
        assert bytes(b.data["stdout"]) == b"one\ntwo\n"


def test_offsets_are_the_clients_own(api, box):
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid) as a:
        a.send(b"abc", 0)
        a.send(b"bcd", 1)  # two known, one new
        a.send(b"x", 9)
        assert a.until("error")["code"] == "stdin_offset"
        a.send(b"e\n", APPEND)
        a.until_bytes(6)
        assert bytes(a.data["stdout"]) == b"abcde\n"
        a.accepted(6)
        a.say("stdin_close", offset=3)
        a.until("error", lambda m: m["code"] == "stdin_offset" and "3" in m["detail"])
        a.say("stdin_close", offset=6)
        a.until_close()
    assert a.message("exit")["exit_code"] == 0
    assert a.closed == 1000


def test_p26_leaving_signals_nothing(api, box):
    pid = api.start(box, "sh", "-c", "trap 'echo signalled' HUP INT TERM PIPE; while read line; do echo $line; done; echo end", stdin="open")
    for i in range(5):
        with api.attach(box, pid) as a:
            a.send(b"%d\n" % i, APPEND)
            a.until_bytes(2 * (i + 1))
            if i % 2:
                a.say("detach")
                a.until_close()
                assert a.closed == 1000
            else:
                a.socket.sock.close()  # cut
        until(lambda: Attach_mode(api, box, pid) == "write", "the place is free again")
    with api.attach(box, pid) as a:
        a.say("stdin_close")
        a.until_close()
    assert bytes(a.data["stdout"]) == b"0\n1\n2\n3\n4\nend\n"


@pytest.mark.parametrize("stdin", ["open", "closed"])
def test_a_signal_that_does_not_wait_for_the_hello(api, box, stdin):
    """Whether the process has input is not known yet: the signal arrives, and input that has no place is refused.

    A signal does not wait for the input before it, so the process may have ended when that comes: with its end, then,
    which stands for "it takes no input", too, where the hello was later than both.  Either is said once.
    """
    with api.attach(box, api.start(box, "sleep", "60", stdin=stdin)) as a:
        a.send(b"x", 0)
        a.say("signal", signal="TERM")
        a.until_close()
        assert a.message("exit")["signal"] == "SIGTERM"
        said = [m["code"] for m in a.messages if m["type"] == "error"]
        assert said in ([[], ["process_finished"]] if stdin == "open" else [["stdin_closed"], ["process_finished"]])


def Attach_mode(api, box, pid):
    with api.attach(box, pid) as a:
        mode = a.until("hello")["mode"]
        a.say("detach")
        a.until_close()
        return mode


def test_keystrokes_cost_few_calls(api, box, emulator):
    """A fast typist over the fallback: what is typed while one call is under way goes with the next."""
    no_socket(emulator)
    emulator.fault({"delay_ms": 100}, method="POST", path_regex="/stdin$")
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid) as a:
        a.send(b"first\n", 0)
        a.until_bytes(6)
        with emulator.calls() as calls:
            for i in range(200):
                a.send(b"k", 6 + i)
                time.sleep(0.005)
            a.send(b"\n", 206)
            a.until_bytes(207)
        assert 2 <= len(calls) <= 40, len(calls)


# ---- receipts ----


@pytest.mark.parametrize("stdin", ["open", "closed"])
def test_receipts_let_a_lossless_program_go_on(api, box, stdin):
    """Retention holds 128 KiB; 3 MB come through, because the client says what it has; a watcher's word counts nothing."""
    pid = api.start(box, "sh", "-c", "seq 400000; echo done >&2", stdin=stdin, retention={"bytes": 128 * 1024, "mode": "lossless"})
    with api.attach(box, pid) as a:
        hello = a.until("hello")
        assert hello["retention"] == {"mode": "lossless"} and hello["mode"] == "write"
        with api.attach(box, pid, mode="watch") as b:
            b.until_bytes(64 * 1024)
            b.say("ack", stdout=len(b.data["stdout"]))
        acked = 0
        while a.next() is not None:
            got = len(a.data["stdout"])
            if got - acked > 30000:
                acked = got
                a.say("ack", stdout=got)
        assert not [m for m in a.messages if m["type"] in ("gap", "error")], a.messages
        assert a.message("exit")["output_complete"]
    want = b"".join(b"%d\n" % i for i in range(1, 400001))
    assert bytes(a.data["stdout"]) == want
    assert bytes(a.data["stderr"]) == b"done\n"


# ---- keep-alive ----


def test_p38_keepalive_records_change_no_offset(api, box, own_gateway):
    mine = Client(own_gateway(RELAY_KEEPALIVE_MS=200))
    pid = api.start(box, "cat", stdin="open")
    with mine.attach(box, pid, keepalive="data") as a:
        while sum(m["type"] == "keepalive" for m in a.messages) < 3:
            assert a.next() is not None
        a.send(b"x\n", 0)
        a.until_bytes(2)
        assert a.at["stdout"] == 2


# ---- exec ----


def test_exec_runs_once_and_attaches(api, box, emulator):
    api.run(box, "true")
    with emulator.calls() as calls, api.exec(box, {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]}) as a:
        a.until_close()
    assert (bytes(a.data["stdout"]), bytes(a.data["stderr"])) == (b"out\n", b"err\n")
    assert a.message("exit")["exit_code"] == 3 and a.closed == 1000
    assert a.messages[0]["type"] == "hello"
    assert calls.seen() == [("POST", "cmd"), ("POST", "cmd")]


def test_exec_takes_input_at_once(api, box):
    """Input behind the spec, without waiting for the hello."""
    with api.exec(box, {"argv": ["sha256sum"], "stdin": "open"}) as a:
        data = os.urandom(2 * MIB)
        thread = pour(a, data, 300000)
        digest(a, data)
        thread.join()
    assert a.messages[0]["mode"] == "write"


def test_exec_again_is_the_same_process(api, box):
    spec = {"id": "only-one", "shell": "echo $$ > pid; cat", "stdin": "open"}
    with api.exec(box, spec) as a:
        a.until("hello")
        a.send(b"a\n", 0)
        a.until_bytes(2)
        pid = api.file(box, "pid")
        with api.exec(box, spec, stdout=2) as b:
            assert b.until("hello")["mode"] == "watch"
            a.send(b"b\n", 2)
            b.until_bytes(2)
            assert bytes(b.data["stdout"]) == b"b\n"
        assert api.file(box, "pid") == pid
        with api.exec(box, {**spec, "shell": "echo other"}) as c:
            c.until_close()
            assert c.closed == 1011 and c.message("error")["code"] == "process_id_conflict"


@pytest.mark.parametrize("first, code", [
    ({"argv": []}, "invalid_field"),
    ({"argv": ["true"], "what": 1}, "unknown_field"),
    ({"argv": ["/nowhere/at-all"]}, "executable_not_found"),
    ("{", "invalid_json"),
    ("[]", "invalid_json"),
    ('{"argv":["true"],"argv":["false"]}', "invalid_json"),
])
def test_exec_says_why_not(api, box, first, code):
    a = Attach(api, f"/v1/sandboxes/{box}/exec", "sandgate.v1", {})
    with a:
        a.socket.send(first if isinstance(first, str) else json.dumps(first))
        a.until_close()
    assert a.closed == 1011
    assert a.message("error")["code"] == code, a.messages
    assert not [m for m in a.messages if m["type"] == "hello"]


def test_exec_in_no_sandbox(api, box):
    problem(handshake(api, "/v1/sandboxes/nobody-here/exec"), 404, "sandbox_not_found")
    problem(api.call("GET", f"/v1/sandboxes/{box}/exec"), 426, "upgrade_required")
    api.stop(box)
    until(lambda: api.get(box)["status"] == "stopped", "it is stopped")
    problem(handshake(api, f"/v1/sandboxes/{box}/exec"), 409, "sandbox_not_running")
    with api.exec(box, {"argv": ["echo", "awake"]}, resume=1) as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"awake\n"


def test_exec_of_a_binary_first_message(api, box):
    a = Attach(api, f"/v1/sandboxes/{box}/exec", "sandgate.v1", {})
    with a:
        a.socket.send_binary(b"\0" * 20)
        a.until_close()
    assert a.closed == 1003


def test_exec_after_the_session_has_changed(api, box):
    """The gateway knows a session that is over: nothing was started there, so it starts in the one that is now."""
    with api.exec(box, {"argv": ["true"]}) as a:
        a.until_close()
    api.stop(box)
    until(lambda: api.get(box)["status"] == "stopped", "it is stopped")
    api.resume(box)
    with api.exec(box, {"argv": ["echo", "anew"]}) as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"anew\n"


@pytest.mark.parametrize("lost", [{"lose_answer": True}, {"cut_after_bytes": 10}, {"status": 503}])
def test_exec_starts_once_whatever_is_lost(api, box, emulator, lost):
    api.run(box, "true")
    emulator.fault(lost, method="POST", path_regex="/cmd$", times=1)
    with api.exec(box, {"shell": "echo x >> starts; wc -l < starts"}) as a:
        a.until_close()
    if a.closed == 1011:  # proven not to have begun
        assert a.message("error")["outcome"] == "not_started", a.messages
        assert api.call("GET", f"/v1/sandboxes/{box}/files/content", params={"path": "starts"}).status_code == 404
    else:
        assert bytes(a.data["stdout"]).strip() == b"1"
        assert api.file(box, "starts") == b"x\n"
