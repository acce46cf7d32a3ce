"""The content of files on its way out: ranges, conditions, parts, and what may go wrong: A16 E10 E11 P29 P30 P32 P35 P36."""
import base64
import email.utils
import pathlib
import random
import re
import secrets
import socket
import subprocess
import threading
import urllib.parse

import pytest

from client import Client, problem
from harness import sha256, until

KIB, MIB = 1 << 10, 1 << 20
INLINE = 128 * KIB
GUEST = "/var/tmp/.sandgate"


def content(box):
    return f"/v1/sandboxes/{box}/files/content"


def aside(api, box):
    """What lies aside for downloads."""
    return api.run(box, shell=f"ls -A {GUEST} | grep '^.down-' || true")["out"].decode().split()


def nothing_is_left(api, box):
    until(lambda: aside(api, box) == [], "what was put aside is removed")


@pytest.fixture
def parts(own_gateway, emulator):
    """A client of a gateway that downloads in parts of 1 MiB, and a sandbox whose helper is there."""
    api = Client(own_gateway(FILES_DOWNLOAD_PART_BYTES=MIB))
    box = api.sandbox()
    api.run(box, "true")
    yield api, box
    emulator.clear_faults()
    nothing_is_left(api, box)
    api.clean_up()


@pytest.fixture(scope="module")
def filed(stack):
    """For tests of one small file: a client, a sandbox, and the file's bytes."""
    api = Client(stack.gateway())
    box = api.sandbox()
    data = secrets.token_bytes(10000)
    api.put(box, "f", data)
    api.put(box, "empty", b"")
    yield api, box, data
    api.clean_up()


def random_file(api, box, name, size):
    """Made in the sandbox; the digest of it."""
    api.run(box, shell=f"head -c {size} /dev/urandom > {name}")
    return api.run(box, "sha256sum", name)["out"].split()[0].decode()


class Reader:
    """A GET at the pace of the test, on a socket that takes little ahead; `body` is what came."""

    def __init__(self, api, box, path, headers=()):
        host, port = api.url.removeprefix("http://").split(":")
        self.peer = socket.socket()
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        self.peer.settimeout(60)
        self.peer.connect((host, int(port)))
        lines = [f"GET {content(box)}?path={path} HTTP/1.1", "Host: x", f"Authorization: Bearer {api.token}", *headers]
        self.peer.sendall("\r\n".join(lines + ["", ""]).encode())
        self.head, self.body = b"", b""
        while b"\r\n\r\n" not in self.head:
            more = self.peer.recv(65536)
            assert more, self.head
            self.head += more
        self.head, _, self.body = self.head.partition(b"\r\n\r\n")
        self.length = int(re.search(rb"(?i)content-length: (\d+)", self.head)[1])

    def read(self, up_to=None):
        """Until so many bytes came, or to the end, or the cut."""
        pieces, have = [self.body], len(self.body)
        while have < (self.length if up_to is None else up_to):
            try:
                more = self.peer.recv(65536)
            except ConnectionResetError:
                break
            if not more:
                break
            pieces.append(more)
            have += len(more)
        self.body = b"".join(pieces)
        return self.body

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.peer.close()


# ---- exact ----

def test_binary_is_binary_P29(filed):
    api, box, data = filed
    got = api.ok("GET", content(box), params={"path": "f"})
    assert (len(got.content), sha256(got.content)) == (len(data), sha256(data))
    assert got.headers["Content-Type"] == "application/octet-stream" and got.headers["X-Content-Type-Options"] == "nosniff"
    assert got.headers["Accept-Ranges"] == "bytes" and got.headers["Content-Length"] == "10000"
    assert got.headers["Cache-Control"] == "private, no-cache, no-transform"
    assert re.fullmatch(r'"[A-Za-z0-9_-]{22}"', got.headers["ETag"]) and "Content-Disposition" not in got.headers
    changed = int(api.run(box, "stat", "-c", "%Y", "f")["out"])
    assert email.utils.parsedate_to_datetime(got.headers["Last-Modified"]).timestamp() == changed


def test_what_cannot_be_read_is_a_problem_P30(api, box):
    refused = api.refused("GET", content(box), 404, "file_not_found", params={"path": "nope"})
    assert refused["errno"] == "ENOENT" and refused["reason"] == "NotFoundError"
    assert api.refused("GET", content(box), 422, "is_directory", params={"path": "/etc"})["errno"] == "EISDIR"
    assert api.refused("GET", content(box), 403, "permission_denied", params={"path": "/etc/shadow"})["errno"] == "EACCES"
    api.run(box, "mkfifo", "pipe")
    api.refused("GET", content(box), 422, "file_error", params={"path": "pipe"})
    assert b"root" in api.ok("GET", content(box), params={"path": "/etc/shadow", "sudo": "true"}).content
    answer = api.call("HEAD", content(box), params={"path": "nope"})
    assert answer.status_code == 404 and "ETag" not in answer.headers


def test_bad_requests_send_nothing(filed, emulator):
    api, box, _ = filed
    with emulator.calls() as calls:
        for query, code in (({"path": "f", "path_b64": "Zg=="}, "invalid_field"), ({"path_b64": "?"}, "invalid_field"),
                            ({"path": "f", "disposition": "evil\r\nX: y"}, "invalid_field"),
                            ({"path": "f", "sudo": "yes"}, "invalid_field"), ({"path": "f", "mode": "644"}, "unknown_field"),
                            ({}, "invalid_path"), ({"path_b64": base64.b64encode(b"a\0b")}, "invalid_path")):
            api.refused("GET", content(box), 422, code, params=query)
        for header in ("If-Match", "If-None-Match"):
            for value in ("bare", '"a", bare', '"open', '*, "a"', ", ".join(f'"{i:022d}"' for i in range(65))):
                api.refused("GET", content(box), 422, "invalid_field", params={"path": "f"}, headers={header: value})
    assert len(calls) == 0


@pytest.mark.parametrize("size", [0, 1, INLINE, INLINE + 1, MIB, MIB + INLINE, MIB + INLINE + 1, 3 * MIB + 12345])
def test_sizes_and_their_calls(parts, emulator, size):
    """One call for what is short; else two for each part, one for a short rest, one to clear up."""
    api, box = parts
    data = secrets.token_bytes(size)
    api.put(box, "f", data)
    last = {}

    def journal():
        last["calls"] = emulator.journal(after)
        return [e["path"].rsplit("/", 1)[-1] for e in last["calls"]]
    after = emulator.journal()[-1]["seq"]
    assert api.file(box, "f") == data
    if size <= INLINE:
        assert journal() == ["cmd"]
        return
    rest = size % MIB
    staged = size // MIB + (rest > INLINE)
    inline = 0 < rest <= INLINE
    until(lambda: len(journal()) == 2 * staged + inline + 1, "the last call clears up")
    assert sorted(journal()) == ["cmd"] * (staged + inline + 1) + ["read"] * staged


def test_names_P35(api, box):
    """Any byte but NUL and /, percent-encoded or in base64."""
    names = [b"with space", b"quo'te\"s", b"new\nline", b"$(touch pwned)`id`", b"-rf", "ünïcödé".encode(), b"\\n", b"%2F..", b"a\x7fb",
             b"x" * 255, b"\xff\xfe", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80", b"a\r\nX-Evil: 1", b"?&#=+;", b"\x01\x1b[2J"]
    for name in names:
        octal = "".join(f"\\{c:03o}" for c in name)
        api.run(box, "sh", "-c", 'n=$(printf "$1x"); printf %s "$2" > "./${n%x}"', "sh", octal, name.hex())
        for query in (f"path={urllib.parse.quote(name, safe='')}", "path_b64=" + urllib.parse.quote(base64.b64encode(name))):
            got = api.ok("GET", content(box) + "?disposition=attachment&" + query)
            assert got.content == name.hex().encode(), name
            head = api.ok("HEAD", content(box) + "?" + query)
            assert head.headers["ETag"] == got.headers["ETag"]
            check_disposition(got.headers, name)
    assert api.run(box, shell="ls pwned 2>/dev/null || true")["out"] == b""


def check_disposition(headers, name):
    """P36: ASCII for everybody, RFC 8187 where that is not all; no name adds a header or a parameter."""
    assert "X-Evil" not in headers
    value = headers["Content-Disposition"]
    assert value.isascii() and value.isprintable()
    found = re.fullmatch(r'attachment; filename="([^"\\%/]*)"(?:; filename\*=UTF-8\'\'([A-Za-z0-9!#$&+.^_`|~%-]*))?', value)
    assert found, value
    try:
        text = name.decode()
    except UnicodeDecodeError:
        assert found[2] is None
        return
    if found[2] is None:
        assert found[1] == text
    else:
        assert urllib.parse.unquote(found[2], errors="strict") == text


def test_disposition_P36(filed):
    api, box, _ = filed
    for kind in ("inline", "attachment"):
        got = api.ok("GET", content(box), params={"path": "f", "disposition": kind})
        assert got.headers["Content-Disposition"] == f'{kind}; filename="f"'


def test_proc(api, box):
    """Files that say they are empty, and are not; no two readings of them are the same state."""
    want = api.run(box, "cat", "/proc/version")["out"]
    got = api.ok("GET", content(box), params={"path": "/proc/version"})
    assert got.content == want and int(got.headers["Content-Length"]) == len(want)
    assert api.ok("HEAD", content(box), params={"path": "/proc/version"}).headers["Content-Length"] == str(len(want))
    again = api.ok("GET", content(box), params={"path": "/proc/version"}, headers={"If-None-Match": got.headers["ETag"]})
    assert again.content == want and again.headers["ETag"] != got.headers["ETag"]
    part = api.ok("GET", content(box), 206, params={"path": "/proc/version"}, headers={"Range": "bytes=2-5"})
    assert part.content == want[2:6]


# ---- HEAD ----

def test_head_is_what_get_would_say_and_reads_nothing(parts, emulator):
    api, box = parts
    api.run(box, shell="head -c 5000000 /dev/zero > f")
    with emulator.calls() as calls:
        head = api.ok("HEAD", content(box), params={"path": "f", "disposition": "inline"})
    assert calls.seen() == [("POST", "cmd")] and head.content == b""
    with api.call("GET", content(box), params={"path": "f", "disposition": "inline"}, stream=True) as get:
        differ = {"Date", "X-Request-Id"}
        assert {k: v for k, v in head.headers.items() if k not in differ} == \
            {k: v for k, v in get.headers.items() if k not in differ}
        assert len(get.content) == 5000000
    assert head.headers["Content-Length"] == "5000000"
    for headers, status in (({"If-None-Match": head.headers["ETag"]}, 304), ({"If-Match": '"x"'}, 412),
                            ({"If-Modified-Since": head.headers["Last-Modified"]}, 304), ({"Range": "bytes=0-1"}, 200)):
        answer = api.call("HEAD", content(box), params={"path": "f"}, headers=headers)
        assert (answer.status_code, answer.content) == (status, b"")


# ---- ranges ----

def range_oracle(text, size):
    """(status, first, last) as RFC 9110 has it; what is no single range of bytes is as if it were not there."""
    found = re.fullmatch(r"(?i:bytes)=[ \t]*(?:(\d+)-(\d*)|-(\d+))[ \t]*", text)
    if not found:
        return 200, 0, size - 1
    first, last, suffix = found.groups()
    if suffix is not None:
        if int(suffix) == 0:
            return 416, 0, 0
        return (206, max(0, size - int(suffix)), size - 1) if size else (200, 0, -1)
    if last and int(last) < int(first):
        return 200, 0, size - 1
    if int(first) >= size:
        return 416, 0, 0
    return 206, int(first), min(int(last), size - 1) if last else size - 1


def test_ranges_against_an_oracle_A16(filed):
    api, box, data = filed
    seed = secrets.randbits(32)
    print("seed", seed)
    dice = random.Random(seed)

    def number():
        return dice.choice([0, 1, 2, 9998, 9999, 10000, 10001, dice.randrange(10000), dice.randrange(20000), 2 ** 62, 2 ** 63 - 1,
                            2 ** 63, 2 ** 64 - 1, 2 ** 64, 10 ** 30])
    for _ in range(150):
        text = dice.choice([lambda: f"bytes={number()}-{number()}", lambda: f"bytes={number()}-", lambda: f"bytes=-{number()}",
                            lambda: f"bytes={number()}-{number()},5-6", lambda: f"Bytes= {number()}-", lambda: "bytes=",
                            lambda: f"lines={number()}-", lambda: f"bytes=x{number()}-"])()
        path, body = dice.choice([("f", data)] * 5 + [("empty", b"")])
        status, first, last = range_oracle(text, len(body))
        got = api.call("GET", content(box), params={"path": path}, headers={"Range": text})
        assert got.status_code == status, text
        if status == 416:
            problem(got, 416, "range_not_satisfiable")
            assert got.headers["Content-Range"] == f"bytes */{len(body)}"
            continue
        assert got.content == body[first:last + 1], text
        assert got.headers.get("Content-Range") == (f"bytes {first}-{last}/{len(body)}" if status == 206 else None)


def test_long_ranges(parts, emulator):
    """Ranges that begin and end anywhere in the parts."""
    api, box = parts
    data = secrets.token_bytes(5 * MIB + 4321)
    api.put(box, "f", data)
    seed = secrets.randbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    edges = [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, INLINE, INLINE + 1, len(data) - 1, len(data) - INLINE]
    for _ in range(25):
        first = dice.choice(edges + [dice.randrange(len(data))])
        last = dice.choice([first + e for e in edges] + [dice.randrange(first, len(data))])
        got = api.ok("GET", content(box), 206, params={"path": "f"}, headers={"Range": f"bytes={first}-{last}"})
        last = min(last, len(data) - 1)
        assert got.content == data[first:last + 1] and got.headers["Content-Range"] == f"bytes {first}-{last}/{len(data)}"
    got = api.ok("GET", content(box), 206, params={"path": "f"}, headers={"Range": f"bytes=-{3 * MIB}"})
    assert got.content == data[-3 * MIB:]


# ---- conditions ----

def test_conditions_against_an_oracle_A16(filed):
    api, box, data = filed
    head = api.ok("HEAD", content(box), params={"path": "f"}).headers
    own, when = head["ETag"], email.utils.parsedate_to_datetime(head["Last-Modified"]).timestamp()
    other = '"AAAAAAAAAAAAAAAAAAAAAA"'
    # (value, matches strongly, matches weakly)
    tags = [(None, None, None), (own, True, True), (other, False, False), ("W/" + own, False, True), ("*", True, True),
            (f'"x,y", {other} ,{own}', True, True), (f'"foreign", W/{own},', False, True), ('"nobody\'s"', False, False)]

    def date(moment, form=0):
        if form == 0:
            return email.utils.formatdate(moment, usegmt=True)
        import time
        return time.strftime(["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"][form - 1], time.gmtime(moment))
    # (value, relation of the file's date to it: it is later, it is not)
    dates = [(None, None), (date(when), False), (date(when - 1), True), (date(when + 1), False), (date(when, 1), False),
             (date(when - 1, 2), True), ("yesterday", None), ("-1", None)]
    ranges = [(None, None), ("bytes=5-9", (5, 9))]
    if_ranges = [(None, True), (own, True), (other, False), ("W/" + own, False), (date(when), True), (date(when + 1), False),
                 ("x", False)]
    seed = secrets.randbits(32)
    print("seed", seed)
    dice = random.Random(seed)

    def ask(match, none, since, until_, part, if_range):
        headers = {"If-Match": match[0], "If-None-Match": none[0], "If-Modified-Since": since[0],
                   "If-Unmodified-Since": until_[0], "Range": part[0], "If-Range": if_range[0]}
        headers = {k: v for k, v in headers.items() if v is not None}
        method = dice.choice(["GET", "GET", "HEAD"])
        want = 200
        if match[0] is not None and not match[1] or match[0] is None and until_[1]:
            want = 412
        elif none[0] is not None and none[2] or none[0] is None and since[1] is False:
            want = 304
        elif method == "GET" and part[0] and if_range[1]:
            want = 206
        answer = api.call(method, content(box), params={"path": "f"}, headers=headers)
        assert answer.status_code == want, (method, headers)
        assert answer.headers["ETag"] == own
        if want == 412:
            assert method == "HEAD" or answer.json()["code"] == "precondition_failed"
            return
        assert answer.headers["Last-Modified"] == head["Last-Modified"]
        assert answer.headers["Cache-Control"] == head["Cache-Control"]
        body = data[5:10] if want == 206 else data
        assert answer.content == (b"" if want == 304 or method == "HEAD" else body), (method, headers)

    for value in tags:
        ask(value, tags[0], dates[0], dates[0], ranges[0], if_ranges[0])
        ask(tags[0], value, dates[0], dates[0], ranges[0], if_ranges[0])
    for value in dates:
        ask(tags[0], tags[0], value, dates[0], ranges[0], if_ranges[0])
        ask(tags[0], tags[0], dates[0], value, ranges[0], if_ranges[0])
    for value in if_ranges:
        ask(tags[0], tags[0], dates[0], dates[0], ranges[1], value)
    for _ in range(150):
        ask(dice.choice(tags), dice.choice(tags), dice.choice(dates), dice.choice(dates), dice.choice(ranges), dice.choice(if_ranges))


def test_conditions_of_what_is_not_there(filed):
    api, box, _ = filed
    for headers in ({"If-Match": "*"}, {"If-Match": '"x"'}, {"If-None-Match": "*"}, {"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}):
        api.refused("GET", content(box), 404, "file_not_found", params={"path": "none"}, headers=headers)


def test_a_tag_in_the_second_line_of_the_header(filed, gateway):
    api, box, _ = filed
    own = api.ok("HEAD", content(box), params={"path": "f"}).headers["ETag"]
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(f"GET {content(box)}?path=f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\nConnection: close\r\n"
                     f"If-None-Match: \"a\"\r\nIf-None-Match: {own}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 304 ") and answer.endswith(b"\r\n\r\n")
    assert b"content-length: 10000\r\n" in answer.lower(), "as long as it would be"


def test_every_change_is_another_tag(api, box):
    seen = set()
    for script in ("printf a > f", "printf b > f", "cp f g && mv g f", "chmod 600 f", "touch f", "printf c >> f", "touch -d @5 f"):
        api.run(box, shell=script)
        seen.add(api.ok("HEAD", content(box), params={"path": "f"}).headers["ETag"])
    assert len(seen) == 7
    assert api.ok("HEAD", content(box), params={"path": "f"}).headers["Last-Modified"] == "Thu, 01 Jan 1970 00:00:05 GMT"


def test_same_costs_one_call_however_long(parts, emulator):
    api, box = parts
    api.run(box, shell="head -c 5000000 /dev/zero > f")
    own = api.ok("HEAD", content(box), params={"path": "f"}).headers["ETag"]
    session = api.get(box)["session_id"]
    with emulator.calls() as calls:
        for value in (own, "*", f'"other", W/{own}'):
            assert api.call("GET", content(box), params={"path": "f"}, headers={"If-None-Match": value}).status_code == 304
        problem(api.call("GET", content(box), params={"path": "f"}, headers={"If-Match": '"other"'}), 412, "precondition_failed")
    mine = [e["path"].rsplit("/", 1)[-1] for e in calls.entries if session in e["path"]]
    assert mine == ["cmd"] * 4


# ---- what goes wrong ----

def test_a_large_file_with_every_fault_A16_P32(api, box, emulator):
    """100 MiB: only the part that was cut is read again; lost answers and delays change nothing."""
    api.run(box, "true")
    digest = random_file(api, box, "big", 100 * MIB)

    def download():
        import hashlib
        sha, total = hashlib.sha256(), 0
        with emulator.calls() as calls:
            with api.call("GET", content(box), params={"path": "big"}, stream=True) as answer:
                assert answer.status_code == 200 and answer.headers["Content-Length"] == str(100 * MIB)
                for piece in answer.iter_content(MIB):
                    sha.update(piece)
                    total += len(piece)
        assert (total, sha.hexdigest()) == (100 * MIB, digest)
        nothing_is_left(api, box)
        return [c[1] for c in calls.seen()]

    seen = download()
    assert seen.count("read") == 4 and 4 <= seen.count("cmd") <= 5
    emulator.fault({"cut_after_bytes": 5 * MIB}, nth=2, times=1, method="POST", path_regex="/fs/read$")
    seen = download()
    assert seen.count("read") == 5 and 4 <= seen.count("cmd") <= 5
    emulator.clear_faults()
    emulator.fault({"lose_answer": True}, nth=3, times=1, method="POST", path_regex="/fs/read$")
    emulator.fault({"delay_ms": 500}, nth=1, times=1, method="POST", path_regex="/fs/read$")
    assert download().count("read") == 5
    emulator.clear_faults()
    emulator.fault({"lose_answer": True}, nth=2, times=1, method="POST", path_regex="/cmd$")
    emulator.fault({"status": 502}, nth=1, times=1, method="POST", path_regex="/fs/read$")
    seen = download()
    assert seen.count("read") == 5


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("fault", [{"lose_answer": True}, {"cut_after_bytes": 300}, {"status": 503}, {"close_before": True},
                                   {"delay_ms": 300}], ids=lambda f: next(iter(f)))
def test_a_call_of_the_helper_that_fails(parts, emulator, nth, fault):
    api, box = parts
    data = secrets.token_bytes(3 * MIB)
    api.put(box, "f", data)
    emulator.fault(fault, nth=nth, times=1, method="POST", path_regex="/cmd$")
    assert api.file(box, "f") == data


def test_no_200_before_the_first_byte_P30(parts, emulator):
    api, box = parts
    api.run(box, shell="head -c 3000000 /dev/zero > f")
    for fault in ({"status": 500}, {"status": 404}, {"cut_after_bytes": 0}, {"lose_answer": True}):
        emulator.fault(fault, method="POST", path_regex="/fs/read$")
        answer = api.call("GET", content(box), params={"path": "f"})
        assert answer.status_code in (502, 503), fault
        assert answer.json()["retryable"] is True or answer.status_code == 502
        emulator.clear_faults()
        nothing_is_left(api, box)


def test_what_cannot_go_on_is_seen_as_cut(parts, emulator):
    api, box = parts
    data = secrets.token_bytes(3 * MIB)
    api.put(box, "f", data)
    emulator.fault({"cut_after_bytes": 100000}, nth=2, method="POST", path_regex="/fs/read$", times=1000)
    with Reader(api, box, "f") as reader:
        got = reader.read()
    assert reader.head.startswith(b"HTTP/1.1 200 ") and reader.length == 3 * MIB
    assert MIB <= len(got) < 3 * MIB and got == data[:len(got)]


def test_a_slow_client_whose_reads_are_cut(parts, emulator):
    """The upstream's edge cuts what is paused for long: it goes on behind what was taken."""
    api, box = parts
    data = secrets.token_bytes(16 * MIB)
    api.put(box, "f", data)
    emulator.fault({"cut_after_ms": 300}, times=3, method="POST", path_regex="/fs/read$")
    with Reader(api, box, "f") as reader:
        for at in (100000, 200000, 300000):
            reader.read(at)
            threading.Event().wait(0.2)
        assert sha256(reader.read()) == sha256(data)


def test_a_growing_file_comes_as_long_as_it_was(parts):
    api, box = parts
    api.run(box, shell="touch go; head -c 4000000 /dev/urandom > log")
    pid = api.start(box, shell="i=0; while [ -e go ]; do i=$((i+1)); printf '%0999d\\n' $i; "
                               "[ $((i%50)) != 0 ] || sleep 0.01; done >> log")
    sizes = set()
    for _ in range(4):
        with api.call("GET", content(box), params={"path": "log"}, stream=True) as answer:
            assert answer.status_code == 200
            size = int(answer.headers["Content-Length"])
            got = answer.content
        assert len(got) == size
        assert sha256(got) == api.run(box, shell=f"head -c {size} log | sha256sum")["out"].split()[0].decode()
        sizes.add(size)
    assert len(sizes) == 4
    api.run(box, "rm", "go")
    api.wait(box, pid)


def test_a_rewritten_file_is_cut_and_never_mixed(parts):
    api, box = parts
    api.run(box, shell="head -c 40000000 /dev/zero | tr '\\0' a > f")
    for change in ("head -c 40000000 /dev/zero | tr '\\0' b | dd of=f conv=notrunc bs=1M", ": > f", "printf b | dd of=f conv=notrunc seek=39999999 bs=1"):
        with Reader(api, box, "f") as reader:
            reader.read(100000)
            api.run(box, shell=change)
            got = reader.read()
        assert len(got) < 40000000 == reader.length, change
        assert got.count(b"a") == len(got)
        api.run(box, shell="head -c 40000000 /dev/zero | tr '\\0' a > f")
    with Reader(api, box, "f") as reader:  # replaced or removed: who has it open reads it on, or is cut
        reader.read(100000)
        api.run(box, shell="head -c 40000000 /dev/zero | tr '\\0' b > g && mv g f")
        got = reader.read()
    assert got.count(b"a") == len(got)


@pytest.mark.parametrize("size", [100000, 3000000])
def test_a_file_that_hardly_rests(parts, size):
    """A number at its beginning and its end, counted up in place with few pauses: never the one of another time."""
    api, box = parts
    api.run(box, shell=f"head -c {size} /dev/zero > f; for at in 0 {size - 8}; do "
                       f"printf 10000000 | dd of=f conv=notrunc oflag=seek_bytes seek=$at status=none; done; touch go")
    pid = api.start(box, shell=f"i=10000000; while [ -e go ]; do i=$((i+1)); for at in 0 {size - 8}; do "
                               f"printf $i | dd of=f conv=notrunc oflag=seek_bytes seek=$at status=none; done; "
                               f"[ $((i%20)) != 0 ] || sleep 0.1; done")
    seen = {"whole": 0, "refused": 0, "cut": 0}
    for _ in range(25):
        with api.call("GET", content(box), params={"path": "f"}, stream=True) as answer:
            if answer.status_code == 409:
                problem(answer, 409, "file_changed")
                seen["refused"] += 1
                continue
            assert answer.status_code == 200 and answer.headers["Content-Length"] == str(size)
            got = answer.content
        seen["whole" if len(got) == size else "cut"] += 1
        if len(got) == size:
            assert int(got[:8]) - int(got[-8:]) in (0, 1), "of two times"
    print(seen)
    assert seen["whole"] > 0
    api.run(box, "rm", "go")
    api.wait(box, pid)


def host_pid(mark):
    """The process on this machine whose command line has this mark."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes().split(b"\0"):
                return entry.name
        except OSError:
            pass
    return None


def test_a_full_disk_still_downloads(parts, emulator):
    """The helper's directory gets a file system of its own, with no room for a part."""
    api, box = parts
    digest = random_file(api, box, "f", 9 * MIB + 5)
    mark = f"{secrets.randbelow(10 ** 9) + 10 ** 6}"
    pid = api.start(box, "sleep", mark)
    inside = until(lambda: host_pid(mark.encode()), "it runs")
    script = f"""set -e
        mkdir /tmp/small
        mount -t tmpfs -o mode=700,size=$(($(du -sk {GUEST} | cut -f1) + 512))k small /tmp/small
        chown --reference={GUEST} /tmp/small
        cp -a {GUEST}/. /tmp/small/
        mount --bind /tmp/small {GUEST}"""
    made = subprocess.run(["nsenter", "-t", inside, "-U", "-m", "--", "sh", "-c", script], capture_output=True)
    if made.returncode:
        pytest.skip(f"file systems cannot be mounted here: {made.stderr}")
    with emulator.calls() as calls:
        assert sha256(api.file(box, "f")) == digest
    assert set(calls.seen()) == {("POST", "cmd")}, "everything came with the answers"
    api.signal(box, pid, 9)


def test_a_client_that_leaves(parts):
    api, box = parts
    api.run(box, shell="head -c 30000000 /dev/zero > f")
    for at in (0, 1, 100000, 5000000):
        with Reader(api, box, "f") as reader:
            reader.read(at)
        nothing_is_left(api, box)
    host, port = api.url.removeprefix("http://").split(":")
    for _ in range(5):  # before the head
        with socket.create_connection((host, int(port))) as peer:
            peer.sendall(f"GET {content(box)}?path=f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n\r\n".encode())
            threading.Event().wait(random.random() / 10)
    nothing_is_left(api, box)


def test_a_gateway_that_ends_amid_downloads(own_gateway, api, box):
    """It ends in time, and with nothing of them left in its memory (own_gateway checks its exit code)."""
    api.run(box, shell="head -c 30000000 /dev/zero > f")
    for early in (True, False):
        gateway = own_gateway(FILES_DOWNLOAD_PART_BYTES=MIB, SERVER_DRAIN_TIMEOUT_MS=300)
        leaving, staying = Reader(Client(gateway), box, "f"), Reader(Client(gateway), box, "f")
        leaving.read(100000)
        leaving.peer.close()
        if not early:
            staying.read(8 * MIB)
        assert gateway.end() == 0
        assert len(staying.read()) < 30000000


def test_a_lost_part_is_put_aside_again(parts):
    """A sandbox that clears its directory while a slow client reads."""
    api, box = parts
    digest = random_file(api, box, "f", 30 * MIB)
    with Reader(api, box, "f") as reader:
        reader.read(100000)
        until(lambda: len(aside(api, box)) >= 1, "a part lies there")
        api.run(box, shell=f"rm -f {GUEST}/.down-*")
        assert sha256(reader.read()) == digest


def test_many_at_once(parts):
    api, box = parts
    digests = {f"f{i}": random_file(api, box, f"f{i}", (2 + i) * MIB + i) for i in range(4)}
    wrong = []

    def read(name):
        if sha256(Client.file(Client(api), box, name)) != digests[name]:
            wrong.append(name)
    threads = [threading.Thread(target=read, args=(name,)) for name in list(digests) * 3]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
