"""Our WebSocket server by RFC 6455, asked by a client that does every step by hand: A12, U6, P25, P47."""
import base64
import hashlib
import json
import socket
import struct
import time

import pytest

from exact import Endpoint, Cut, WebSocket, frame
from harness import PATIENCE

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KIB, MIB = 1 << 10, 1 << 20
DETACH = b'{"type":"detach"}'
MOST = 1408 * KIB  # of a message: a frame with 1 MiB of payload, also as base64


@pytest.fixture(scope="module")
def sleeper(stack):
    """(gateway, path of a process that prints nothing)"""
    from client import Client
    gateway = stack.gateway()
    api = Client(gateway)
    box = api.sandbox()
    pid = api.start(box, "sleep", "6000")
    yield gateway, f"/v1/sandboxes/{box}/processes/{pid}/attach"
    api.clean_up()


@pytest.fixture
def ws(sleeper):
    gateway, path = sleeper
    made = []

    def connect(protocol="sandgate.v1"):
        made.append(WebSocket(Endpoint(gateway.url, gateway.token), path, {}, protocol))
        kind, text = made[-1].next()
        assert kind == "text" and json.loads(text)["type"] == "hello"
        return made[-1]

    yield connect
    for w in made:
        w.socket.close()
    assert gateway.alive()


def ended(w, code):
    """The server closes with this code, and with the connection once we did our part."""
    while True:
        message = w.next()
        if message is None:
            break
        assert json.loads(message[1])["type"] in ("error", "keepalive"), message
    assert w.closed == code, (w.closed, w.close_reason)
    try:
        w.send(CLOSE, struct.pack(">H", code))
        w.socket.shutdown(socket.SHUT_WR)
    except (Cut, OSError):
        pass
    gone(w)


def gone(w):
    try:
        while w.socket.recv(65536):
            pass
    except ConnectionResetError:
        pass


def alive(w):
    """It answers a ping, and nothing came before that."""
    w.send(PING, b"still there?")
    assert w.frame() == (PONG, b"still there?")


# ---- messages and their frames ----


@pytest.mark.parametrize("cuts", [[5], [0], [len(DETACH)], [1, 1, 1], list(range(len(DETACH)))], ids=str)
def test_fragments_make_one_message(ws, cuts):
    w = ws()
    edges = [0, *cuts, len(DETACH)]
    pieces = [DETACH[a:b] for a, b in zip(edges, edges[1:])]
    for i, piece in enumerate(pieces):
        w.send_raw(frame(CONT if i else TEXT, piece, fin=i == len(pieces) - 1))
    ended(w, 1000)


def test_control_frames_between_fragments(ws):
    w = ws()
    w.send_raw(frame(TEXT, DETACH[:4], fin=False))
    w.send(PING, b"one")
    assert w.frame() == (PONG, b"one"), "answered at once, not after the message"
    w.send_raw(frame(CONT, DETACH[4:9], fin=False))
    w.send(PONG, b"unasked")
    w.send(PING, b"two")
    assert w.frame() == (PONG, b"two")
    w.send_raw(frame(CONT, DETACH[9:]))
    ended(w, 1000)


def test_a_close_between_fragments(ws):
    w = ws()
    w.send_raw(frame(TEXT, DETACH[:4], fin=False) + frame(CLOSE, struct.pack(">H", 1001)))
    ended(w, 1001)


def test_everything_byte_by_byte(ws):
    w = ws()
    data = frame(PING, b"slowly") + frame(TEXT, DETACH[:7], fin=False) + frame(PING, b"") + frame(CONT, DETACH[7:])
    for i in range(len(data)):
        w.send_raw(data[i:i + 1])
    assert w.frame() == (PONG, b"slowly") and w.frame() == (PONG, b"")
    ended(w, 1000)


def test_many_frames_in_one_segment(ws):
    w = ws()
    w.send_raw(b"".join(frame(PING, b"%d" % i) for i in range(500)) + frame(TEXT, b'{"type":"ack"}') * 50 + frame(TEXT, DETACH))
    for i in range(500):
        assert w.frame() == (PONG, b"%d" % i)
    ended(w, 1000)


@pytest.mark.parametrize("n", [0, 1, 124, 125])
def test_pings_are_answered_with_their_payload(ws, n):
    w = ws()
    payload = bytes(range(128, 128 + n)) if n < 128 else b""
    w.send(PING, payload)
    assert w.frame() == (PONG, payload)
    w.send(PONG, payload)
    alive(w)


@pytest.mark.parametrize("form", [16, 64])
def test_lengths_not_in_their_shortest_form(ws, form):
    w = ws()
    w.send_raw(frame(TEXT, DETACH, form=form))
    ended(w, 1002)


@pytest.mark.parametrize("head", [
    *[pytest.param(frame(TEXT, DETACH, rsv=r), id=f"rsv{r}") for r in (1, 2, 4, 7)],
    *[pytest.param(frame(op, b""), id=f"opcode{op}") for op in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)],
    pytest.param(frame(TEXT, DETACH, masked=False), id="unmasked"),
    pytest.param(frame(PING, b"x", masked=False), id="unmasked ping"),
    pytest.param(frame(CLOSE, struct.pack(">H", 1000), masked=False), id="unmasked close"),
    pytest.param(frame(PING, b"x", fin=False), id="fragmented ping"),
    pytest.param(frame(CLOSE, b"", fin=False), id="fragmented close"),
    pytest.param(frame(PING, bytes(126)), id="ping of 126"),
    pytest.param(frame(PONG, bytes(126)), id="pong of 126"),
    pytest.param(frame(CLOSE, struct.pack(">H", 1000) + bytes(124)), id="close of 126"),
    pytest.param(frame(PING, b"x", rsv=1), id="ping with rsv"),
    pytest.param(frame(CONT, DETACH), id="continuation of nothing"),
    pytest.param(frame(CONT, b"", fin=False), id="empty continuation of nothing"),
    pytest.param(frame(TEXT, DETACH[:3], fin=False) + frame(TEXT, DETACH), id="text inside a message"),
    pytest.param(frame(TEXT, DETACH[:3], fin=False) + frame(BINARY, bytes(20)), id="binary inside a message"),
    pytest.param(b"\x81\xff" + struct.pack(">Q", 1 << 63) + bytes(4), id="length with its highest bit"),
])
def test_faults_of_framing_are_1002(ws, head):
    w = ws()
    w.send_raw(head)
    ended(w, 1002)


def test_frames_from_us_are_unmasked_and_whole_U6(api, box):
    """WebSocket.frame() refuses masked, fragmented and overlong ones; here they carry 3 MiB."""
    pid = api.start(box, shell="head -c 3145728 /dev/zero")
    w = WebSocket(Endpoint(api.url, api.token), f"/v1/sandboxes/{box}/processes/{pid}/attach", {}, "sandgate.v1")
    total = 0
    while (message := w.next()) is not None:
        total += len(message[1]) - 9 if message[0] == "binary" else 0
    assert total == 3145728
    ended_at_once = time.monotonic()
    w.send(CLOSE, struct.pack(">H", 1000))
    gone(w)
    assert time.monotonic() - ended_at_once < 4, "after both close frames the server closes the connection itself"


# ---- size ----


@pytest.mark.parametrize("head", [
    pytest.param(b"\x82\xff" + struct.pack(">Q", MOST + 1), id="announced"),
    pytest.param(b"\x82\xff" + struct.pack(">Q", (1 << 63) - 1), id="announced as 2^63-1"),
])
def test_too_large_is_1009_before_it_is_read_P25(ws, head):
    w = ws()
    w.send_raw(head + bytes(4))
    ended(w, 1009)


def test_too_large_in_fragments_is_1009(ws):
    w = ws()
    w.send_raw(frame(BINARY, bytes(MIB), fin=False))
    w.send_raw(frame(CONT, bytes(384 * KIB), fin=False))
    alive(w)
    w.send_raw(frame(CONT, b"x", fin=False))
    ended(w, 1009)


# ---- text ----

BAD_UTF8 = {
    "lone continuation": b"\x80", "ff": b"\xff", "overlong /": b"\xc0\xaf", "overlong in 3": b"\xe0\x80\xaf",
    "surrogate": b"\xed\xa0\x80", "above 10ffff": b"\xf4\x90\x80\x80", "unfinished": b"\xe2\x82", "5 bytes": b"\xf8\x88\x80\x80\x80",
}


@pytest.mark.parametrize("bad", BAD_UTF8.values(), ids=BAD_UTF8)
def test_text_that_is_not_utf8_is_1007_P47(ws, bad):
    w = ws()
    w.send(TEXT, b'{"type":"' + bad + b'"}')
    ended(w, 1007)
    w = ws()
    w.send(TEXT, b'{"type":"ack"}' + bad)  # at the very end
    ended(w, 1007)


def test_text_that_is_not_utf8_in_the_second_fragment_is_1007(ws):
    w = ws()
    w.send_raw(frame(TEXT, b'{"type":"\xe2\x82', fin=False) + frame(CONT, b"\x20", fin=False))
    ended(w, 1007)


def test_a_character_may_be_split_over_fragments(ws):
    w = ws()
    text = json.dumps({"type": "€𝄞"}, ensure_ascii=False).encode()
    for i in range(len(text)):
        w.send_raw(frame(CONT if i else TEXT, text[i:i + 1], fin=i == len(text) - 1))
    kind, answer = w.next()
    assert kind == "text" and json.loads(answer)["type"] == "error" and json.loads(answer)["pointer"] == "/type"
    alive(w)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"detach"', b"detach", b'{"type":"ack"}{', b"\x00",
                                  b'{"type":"ack","type":"detach"}', b"[" * 100000])
def test_text_that_is_no_json_object_is_1007(ws, text):
    w = ws()
    w.send(TEXT, text)
    ended(w, 1007)


@pytest.mark.parametrize("protocol,payload,code", [("sandgate.v1", b"", 1002), ("sandgate.v1", b"12345678", 1002),
                                                   ("sandgate.v1.json", bytes(20), 1003)])
def test_binary_messages_that_are_none(ws, protocol, payload, code):
    w = ws(protocol)
    w.send(BINARY, payload)
    ended(w, code)


# ---- close ----


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999])
def test_close_codes_are_answered_with_themselves(ws, code):
    w = ws()
    w.send(CLOSE, struct.pack(">H", code) + "bye €".encode())
    assert w.next() is None and w.closed == code
    gone(w)  # the server closes the connection, though ours is still open


@pytest.mark.parametrize("payload,code", [(b"", 1005), (struct.pack(">H", 1000) + b"x" * 123, 1000)])
def test_close_without_a_code_and_with_a_long_reason(ws, payload, code):
    w = ws()
    w.send(CLOSE, payload)
    assert w.next() is None and w.closed == code
    gone(w)


@pytest.mark.parametrize("code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535])
def test_close_codes_that_may_not_be_sent_are_1002(ws, code):
    w = ws()
    w.send(CLOSE, struct.pack(">H", code))
    ended(w, 1002)


def test_close_with_one_byte_or_a_bad_reason(ws):
    w = ws()
    w.send(CLOSE, b"\x03")
    ended(w, 1002)
    w = ws()
    w.send(CLOSE, struct.pack(">H", 1000) + b"\xff")
    ended(w, 1007)


def test_nothing_counts_after_a_close(ws):
    w = ws()
    w.send_raw(frame(CLOSE, struct.pack(">H", 1000)) + frame(PING, b"late") + frame(TEXT, b"not json") + b"\xff\xff\xff")
    assert w.next() is None and w.closed == 1000
    assert w.pongs == []
    gone(w)


def test_the_server_waits_for_our_close_but_not_for_ever(ws):
    w = ws()
    w.send(TEXT, DETACH)
    assert w.next() is None and w.closed == 1000
    start = time.monotonic()
    gone(w)  # we say nothing
    assert time.monotonic() - start < 15


def test_a_client_that_is_gone_without_a_word(ws, sleeper):
    w = ws()
    w.close("reset")
    w = ws()
    w.close("fin")
    alive(ws())


# ---- the handshake ----


def shake(sleeper, lines, extra=b"", path=None):
    """(socket, head of the answer, what came after it)"""
    gateway, own = sleeper
    end = Endpoint(gateway.url, gateway.token)
    peer = socket.create_connection((end.host, end.port), timeout=PATIENCE)
    head = f"GET {path or own} HTTP/1.1\r\nHost: x\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n"
    peer.sendall(head.replace("TOKEN", end.token).encode() + extra)
    got = b""
    while b"\r\n\r\n" not in got:
        more = peer.recv(65536)
        assert more, got
        got += more
    head, _, rest = got.partition(b"\r\n\r\n")
    return peer, head.decode(), rest


KEY = "dGhlIHNhbXBsZSBub25jZQ=="
RIGHT = ["Authorization: Bearer TOKEN", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
         f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Protocol: sandgate.v1"]


def without(name, *more):
    return [line for line in RIGHT if not line.startswith(name)] + list(more)


def test_the_handshake_of_the_rfc(sleeper):
    peer, head, _ = shake(sleeper, RIGHT)
    peer.close()
    fields = {k.lower(): v for k, v in (line.split(": ", 1) for line in head.split("\r\n")[1:])}
    assert head.startswith("HTTP/1.1 101 ")
    assert fields["upgrade"].lower() == "websocket" and "upgrade" in fields["connection"].lower()
    proof = base64.b64encode(hashlib.sha1((KEY + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    assert fields["sec-websocket-accept"] == proof and fields["sec-websocket-protocol"] == "sandgate.v1"
    assert "sec-websocket-extensions" not in fields, "none was agreed"


@pytest.mark.parametrize("lines", [
    without("Connection", "Connection: keep-alive, Upgrade"), without("Connection", "connection: UPGRADE"),
    without("Upgrade", "Upgrade: h2c, WebSocket"), [*RIGHT, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"],
    without("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: chat, sandgate.v1"),
    without("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Protocol: sandgate.v1"),
    [line.swapcase() if line.startswith("Sec-WebSocket-V") else line for line in RIGHT],
], ids=range(7))
def test_handshakes_that_are_right_too(sleeper, lines):
    peer, head, _ = shake(sleeper, lines)
    peer.close()
    assert head.startswith("HTTP/1.1 101 ") and "sandgate.v1" in head, head


@pytest.mark.parametrize("lines,status", [
    (without("Upgrade"), 426), (without("Connection"), 426), (without("Sec-WebSocket-Version"), 426),
    (without("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"), 426), (without("Sec-WebSocket-Key"), 400),
    (without("Sec-WebSocket-Key", "Sec-WebSocket-Key: c2hvcnQ="), 400), (without("Sec-WebSocket-Protocol"), 400),
    (without("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: sandgate.v2"), 400), (without("Authorization"), 401),
    (without("Authorization", "Authorization: Bearer sgt_wrong"), 401), ([*RIGHT, "Content-Length: 3"], 400),
], ids=range(11))
def test_handshakes_that_are_wrong_get_a_problem_document(sleeper, lines, status):
    peer, head, rest = shake(sleeper, lines, b"abc" if "Content-Length: 3" in lines else b"")
    with peer:
        assert head.startswith(f"HTTP/1.1 {status} "), head
        assert "application/problem+json" in head
        if status == 426 and "Upgrade" in "".join(lines):
            assert "Sec-WebSocket-Version: 13" in head


def test_a_browser_sends_its_token_as_a_subprotocol_that_is_not_echoed(sleeper):
    gateway, _ = sleeper
    bearer = base64.urlsafe_b64encode(gateway.token.encode()).decode().rstrip("=")
    lines = [line for line in without("Authorization") if not line.startswith("Sec-WebSocket-Protocol")]
    peer, head, _ = shake(sleeper, [*lines, f"Sec-WebSocket-Protocol: sandgate.v1, sandgate.bearer.{bearer}"])
    peer.close()
    assert head.startswith("HTTP/1.1 101 ") and "bearer" not in head


def test_frames_that_come_with_the_handshake(sleeper):
    """A client may not know yet that it may talk; what it says in the same segment counts."""
    peer, head, rest = shake(sleeper, RIGHT, frame(PING, b"early") + frame(TEXT, DETACH))
    assert head.startswith("HTTP/1.1 101 ")
    with peer:
        while True:
            more = peer.recv(65536)
            if not more:
                break
            rest += more
            if b"\x88" in rest:
                peer.sendall(frame(CLOSE, struct.pack(">H", 1000)))
        assert b"\x8a\x05early" in rest
