"""Files written: in parts, of known and unknown length, whole or not at all.  A16 A17 U8; P29 P31 P32 P35."""
import base64
import concurrent.futures
import hashlib
import os
import re
import secrets
import signal
import socket
import threading
import time
import urllib.parse

import pytest

from client import Client, problem
from harness import Gateway, sha256, until

MIB = 1 << 20
KIB = 1 << 10
ROOT = "/var/tmp/.sandgate"
WRITES = {"method": "POST", "path_regex": "/fs/write$"}


class Files:
    def __init__(self, api, box):
        self.api, self.box, self.base = api, box, f"/v1/sandboxes/{box}/files"

    def put(self, path, data, headers=None, **query):
        """The answer, whatever it is.  data may be an iterator: then nobody knows its length."""
        target = self.base + "/content?" + urllib.parse.urlencode({"path": path, **query}, quote_via=urllib.parse.quote)
        return self.api.call("PUT", target, data=data, headers=headers)

    def written(self, path, data, status=201, **kw):
        answer = self.put(path, data, **kw)
        assert answer.status_code == status, answer.text
        return answer

    def append(self, path, data, **query):
        return self.api.call("POST", self.base + "/append", params={"path": path, **query}, data=data)

    def get(self, path):
        answer = self.api.ok("GET", self.base + "/content?" + urllib.parse.urlencode({"path": path}, quote_via=urllib.parse.quote))
        return answer.content

    def etag(self, path):
        return self.api.ok("HEAD", self.base + "/content", params={"path": path}).headers["ETag"]

    def mode(self, path):
        return self.api.run(self.box, "stat", "-c", "%a", "--", path)["out"].strip().decode()

    def left(self):
        """What lies in the helper's root besides itself and its records."""
        return self.api.run(self.box, shell=f"ls -A {ROOT} | grep -e '^\\.' || true")["out"].decode().split()

    def nothing_left(self):
        until(lambda: self.left() == [], "what was uploaded is gone")


@pytest.fixture
def files(api, box):
    api.run(box, "true")
    return Files(api, box)


@pytest.fixture
def small(own_gateway):
    """Files by a gateway whose parts are one MiB, so that all of it shows with little data."""
    api = Client(own_gateway(FILES_UPLOAD_PART_BYTES=MIB))
    box = api.sandbox()
    api.run(box, "true")
    yield Files(api, box)
    api.clean_up()


def pieces(data, n=70001):
    for i in range(0, len(data), n):
        yield data[i:i + n]


def writes_of(calls):
    """(length of the parts' way, ids and nonces aside) of each fs/write."""
    return [e for e in calls.entries if e["path"].endswith("/fs/write")]


# ---- whole ----

@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB + 123])
@pytest.mark.parametrize("known", [True, False], ids=["length", "chunked"])
def test_sizes_A16_P29(small, size, known):
    data = secrets.token_bytes(size)
    answer = small.written("f", data if known else pieces(data))
    assert small.get("f") == data
    assert small.etag("f") == answer.headers["ETag"] and re.fullmatch(r'"[\w-]{22}"', answer.headers["ETag"])
    assert small.mode("f") == "644"
    assert small.left() == []


def test_calls_are_counted(small, emulator):
    with emulator.calls() as calls:
        small.written("one", bytes(MIB))
    assert calls.seen() == [("POST", "write"), ("POST", "cmd")]
    with emulator.calls() as calls:
        small.written("chunked", pieces(bytes(MIB)))
    assert calls.seen() == [("POST", "write"), ("POST", "cmd")]
    with emulator.calls() as calls:
        small.written("eight", bytes(8 * MIB))
    assert sorted(calls.seen()) == [("POST", "cmd")] * 3 + [("POST", "write")] * 8, "two joins and the last step"


@pytest.mark.parametrize("name", [b"with space", b"quo'te\"s", b"new\nline", b"$(touch pwned)`id`", b"-rf", "ünï".encode(), b"\xff\xfe raw",
                                  b"%2F..", b"a\x7fb", b"x" * 255], ids=range(10))
def test_names_round_trip_P35(api, files, name):
    files.written(name, name)
    assert files.get(name) == name
    encoded = base64.b64encode(name).decode()
    api.ok("PUT", files.base + "/content", 204, params={"path_b64": encoded}, data=b"again")
    assert files.get(name) == b"again"
    names = [i["name"].encode() if "name" in i else base64.b64decode(i["name_b64"])
             for i in api.ok("GET", files.base, params={"path": "."}).json()["items"]]
    assert name in names and b"pwned" not in names
    api.ok("DELETE", files.base + "/content?path=" + urllib.parse.quote_from_bytes(name, safe=""), 204)
    assert api.ok("GET", files.base + "/exists", params={"path_b64": encoded}).json() == {"exists": False}


def test_mode_parents_and_links(api, files):
    files.written("f", b"1", mode="0750")
    files.written("f", b"2", status=204)
    assert files.mode("f") == "750"
    problem(files.put("a/b/c", b"x"), 404, "file_not_found")
    files.written("a/b/c", b"x", parents="true")
    api.run(files.box, shell="ln -s f link; mkdir d; ln -s d/inside far; ln -s nowhere/x lost; ln -s ring ring")
    files.written("link", b"3", status=204)
    assert files.get("f") == b"3" and files.mode("f") == "750"
    assert api.run(files.box, "readlink", "link")["out"] == b"f\n", "a link stays one"
    assert files.put("ring", b"x").json()["errno"] == "ELOOP"
    problem(files.put("d", b"x"), 422, "is_directory")
    assert files.put("f/x", b"x").json()["errno"] == "ENOTDIR"
    assert files.left() == [] or files.nothing_left() is None


def test_as_root(api, files):
    problem(files.put("/root/f", b"x"), 403, "permission_denied")
    files.written("/root/f", b"x" * 100, sudo="true")
    assert api.run(files.box, "sudo", "stat", "-c", "%U %s", "/root/f")["out"] == b"root 100\n"


# ---- conditions ----

def test_if_match(api, files):
    content = files.base + "/content"
    gone = {"If-Match": "*"}
    problem(files.put("f", b"x", headers=gone), 412, "precondition_failed")
    assert api.ok("GET", files.base + "/exists", params={"path": "f"}).json() == {"exists": False}
    first = files.written("f", b"one").headers["ETag"]
    second = files.written("f", b"two", status=204, headers={"If-Match": first}).headers["ETag"]
    assert second != first
    refused = problem(files.put("f", b"three", headers={"If-Match": first}), 412, "precondition_failed")
    assert refused["outcome"] == "not_started" and files.get("f") == b"two"
    files.written("f", b"three", status=204, headers={"If-Match": f'"other", {first}, {second}'})
    api.run(files.box, shell="echo by another >f")
    problem(files.put("f", b"x", headers={"If-Match": second}), 412, "precondition_failed")
    files.written("f", b"four", status=204, headers={"If-Match": "*"})
    now = files.etag("f")
    problem(files.put("f", b"x", headers={"If-Match": "W/" + now}), 412, "precondition_failed")
    problem(files.put("f", b"x", headers={"If-None-Match": now}), 412, "precondition_failed")
    files.written("f", b"five", status=204, headers={"If-None-Match": first})
    refused = problem(files.put("f", b"x", headers={"If-None-Match": "*"}), 409, "file_exists")
    assert refused["errno"] == "EEXIST"
    problem(files.put("f", b"x", headers={"If-None-Match": "*", "If-Match": now}), 412, "precondition_failed")
    problem(api.call("DELETE", content, params={"path": "f"}, headers={"If-Match": now}), 412, "precondition_failed")
    assert files.get("f") == b"five"
    api.ok("DELETE", content, 204, params={"path": "f"}, headers={"If-Match": files.etag("f")})
    problem(api.call("DELETE", content, params={"path": "f"}, headers={"If-Match": "*"}), 412, "precondition_failed")


def test_exclusive_create_has_one_winner_A17(api, files):
    def create(i):
        return files.put("lock", b"%03d" % i * 1000, headers={"If-None-Match": "*"})
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for _ in range(5):
            answers = list(pool.map(create, range(50)))
            codes = [a.status_code for a in answers]
            assert sorted(codes) == [201] + [409] * 49, codes
            assert {a.json()["code"] for a in answers if a.status_code == 409} == {"file_exists"}
            assert files.get("lock") == b"%03d" % codes.index(201) * 1000
            api.ok("DELETE", files.base + "/content", 204, params={"path": "lock"})
    files.nothing_left()


def test_no_update_is_lost(api, files):
    """Several read, add one, and write if nobody else has: the sum is right."""
    files.written("counter", b"0")

    def add(_):
        for _ in range(200):
            answer = api.ok("GET", files.base + "/content", params={"path": "counter"})
            done = files.put("counter", b"%d" % (int(answer.content) + 1), headers={"If-Match": answer.headers["ETag"]})
            if done.status_code == 204:
                return 1
            problem(done, 412, "precondition_failed")
        raise AssertionError("never its turn")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(add, range(24))) == 24
    assert files.get("counter") == b"24"


# ---- digests ----

def digest(name, data):
    return f"{name}=:{base64.b64encode(hashlib.new(name.replace('-', ''), data).digest()).decode()}:"


@pytest.mark.parametrize("chunked", [False, True])
def test_content_digest(small, chunked):
    data, other = secrets.token_bytes(2 * MIB + 5), b"something else"

    def body():
        return pieces(data) if chunked else data
    small.written("f", b"old", mode="640")
    for good in (digest("sha-256", data), digest("sha-512", data), f"{digest('sha-512', data)}, {digest('sha-256', data)}",
                 f"md5=:AAAA:, {digest('sha-256', data)}", "md5=:AAAA:"):
        small.written("f", body(), status=204, headers={"Content-Digest": good})
    assert small.get("f") == data
    small.written("f", b"old", status=204)
    for bad in (digest("sha-256", other), digest("sha-512", other), f"{digest('sha-512', data)}, {digest('sha-256', other)}"):
        refused = problem(small.put("f", body(), headers={"Content-Digest": bad}), 422, "digest_mismatch")
        assert refused["outcome"] == "not_started"
    assert small.get("f") == b"old" and small.mode("f") == "640"
    small.nothing_left()


# ---- appending ----

def test_append(api, files):
    made = files.append("log", b"one\n")
    assert made.status_code == 200 and made.json()["size"] == 4
    assert made.json()["etag"] == files.etag("log")
    assert files.append("log", pieces(b"two\n", 1), offset=4).json()["size"] == 8
    refused = problem(files.append("log", b"x", offset=4), 409, "file_offset")
    assert refused["outcome"] == "not_started"
    assert files.get("log") == b"one\ntwo\n"
    problem(files.append("no/where", b"x"), 404, "file_not_found")
    assert files.append("no/where", b"x", parents="true", mode="600").json()["size"] == 1
    assert files.mode("no/where") == "600"
    problem(files.append("no", b"x"), 422, "is_directory")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda i: files.append("all", b"%02d" % i * 500 + b"\n"), range(24)))
    assert sorted(a.json()["size"] for a in answers) == [1001 * (i + 1) for i in range(24)]
    assert sorted(files.get("all").splitlines()) == [b"%02d" % i * 500 for i in range(24)]
    files.nothing_left()


# ---- what goes wrong upstream ----

FAULTS = {"closed": {"close_before": True}, "lost": {"lose_answer": True}, "500": {"status": 500}, "503": {"status": 503},
          "page": {"html": 502}, "429": {"status": 429, "headers": {"Retry-After": "0"}}}


@pytest.mark.parametrize("nth,known", [(1, True), (2, False), (3, True)], ids=["1-length", "2-chunked", "3-length"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_part_that_failed_is_sent_again_alone_U8(small, emulator, fault, nth, known):
    data = secrets.token_bytes(2 * MIB + MIB // 2)
    small.written("f", b"old", mode="600")
    emulator.fault(FAULTS[fault], nth=nth, times=1, **WRITES)
    with emulator.calls() as calls:
        small.written("f", data if known else pieces(data), status=204)
    parts = len(writes_of(calls))
    assert parts == 4 or (not known and 4 <= parts <= 7), calls.seen()
    assert sha256(small.get("f")) == sha256(data) and small.mode("f") == "600"
    small.nothing_left()


def test_a_part_that_never_arrives_P31(small, emulator):
    small.written("f", b"old", mode="600")
    emulator.fault({"status": 503}, nth=2, times=100, **WRITES)
    refused = problem(small.put("f", bytes(3 * MIB)), 503, "upstream_unavailable")
    assert refused["outcome"] == "not_started" and refused["retryable"]
    emulator.clear_faults()
    assert small.get("f") == b"old" and small.mode("f") == "600"
    small.nothing_left()


def test_parts_that_are_too_large_become_smaller(small, emulator):
    data = secrets.token_bytes(2 * MIB)
    emulator.fault({"status": 413}, times=2, **WRITES)
    with emulator.calls() as calls:
        small.written("f", data)
    assert len(writes_of(calls)) == 2 + 8 and small.get("f") == data
    with emulator.calls() as calls:
        small.written("g", data)
    assert len(writes_of(calls)) == 8, "it is remembered"


@pytest.mark.parametrize("fault", [{"close_before": True}, {"lose_answer": True}, {"cut_after_bytes": 100}, {"status": 503}], ids=range(4))
def test_joins_and_the_last_step_may_fail(small, emulator, fault):
    data = secrets.token_bytes(5 * MIB)
    for nth in (1, 2, 3):
        emulator.clear_faults()
        emulator.fault(fault, nth=nth, times=1, method="POST", path_regex="/cmd$")
        answer = small.put("f", data)
        emulator.clear_faults()
        if answer.status_code < 300:
            assert small.get("f") == data
        else: # nobody can tell: it says so, and the file is whole or not there
            assert answer.json()["outcome"] in ("unknown", "not_started"), answer.text
            there = small.api.ok("GET", small.base + "/exists", params={"path": "f"}).json()["exists"]
            assert not there or small.get("f") == data
            assert not (there and nth == 1 and answer.json()["outcome"] == "not_started")
        small.nothing_left()


def test_full_disk_P31(small, emulator):
    small.written("f", b"old", mode="640")
    emulator.fault({"status": 500, "body": '{"error":{"code":"internal_server_error","message":"cannot write: No space left on device"}}'},
                   nth=2, times=1, **WRITES)
    refused = problem(small.put("f", bytes(3 * MIB)), 507, "no_space")
    assert refused["outcome"] == "not_started"
    assert small.get("f") == b"old" and small.mode("f") == "640"
    small.nothing_left()


def test_no_room_beside_the_file_P31(api, files):
    """Really full: /dev is a file system of one MiB, to which a larger file has to be copied."""
    made = api.run(files.box, "sudo", "sh", "-c", "mkdir -m 777 /dev/s && df --output=size /dev/s | tail -1")
    if made["out"].split() != [b"1024"]:
        pytest.skip("there is no small file system in here")
    files.written("/dev/s/f", b"old" * 1000, mode="640")
    problem(files.put("/dev/s/f", bytes(4 * MIB)), 507, "no_space")
    assert files.get("/dev/s/f") == b"old" * 1000 and files.mode("/dev/s/f") == "640"
    problem(files.append("/dev/s/f", bytes(4 * MIB)), 507, "no_space")
    assert files.get("/dev/s/f") == b"old" * 1000
    assert api.run(files.box, "ls", "-A", "/dev/s")["out"] == b"f\n"
    files.nothing_left()


# ---- what goes wrong before it ----

def connect(gateway, head, body=b""):
    host, port = gateway.url.removeprefix("http://").split(":")
    peer = socket.create_connection((host, int(port)), timeout=60)
    peer.sendall((head + f"Host: x\r\nAuthorization: Bearer {gateway.token}\r\n\r\n").encode() + body)
    return peer


@pytest.mark.parametrize("known", [True, False], ids=["length", "chunked"])
def test_a_client_that_leaves_changes_nothing_U8(small, known):
    small.written("f", b"old", mode="640")
    length = f"Content-Length: {20 * MIB}" if known else "Transfer-Encoding: chunked"
    body = bytes(3 * MIB) if known else b"%x\r\n" % (3 * MIB) + bytes(3 * MIB)
    with connect(small.api, f"PUT {small.base}/content?path=f HTTP/1.1\r\n{length}\r\n", body):
        until(lambda: len([n for n in small.left() if n.startswith(".up-p")]) > 0, "parts arrive")
    small.nothing_left()
    assert small.get("f") == b"old" and small.mode("f") == "640"
    assert small.api.run(small.box, "ls", "-A")["out"].count(b"\n") == 1


def test_the_gateway_is_killed_amid_U8(tmp_path, emulator, api, files):
    """What it leaves behind is of those files that go with the sweep, and no name of anybody's."""
    files.written("d/f", b"old", mode="640", parents="true")
    victim = Gateway(tmp_path / "victim", emulator.url, emulator.token, {"FILES_UPLOAD_PART_BYTES": MIB})
    with connect(victim, f"PUT {files.base}/content?path=d/f HTTP/1.1\r\nContent-Length: {20 * MIB}\r\n", bytes(3 * MIB)):
        until(lambda: len(files.left()) >= 2, "parts arrive")
        os.kill(victim.child.pid, signal.SIGKILL)
        assert victim.end(None) == -signal.SIGKILL
    assert files.get("d/f") == b"old" and files.mode("d/f") == "640"
    assert api.run(files.box, "ls", "-A", "d")["out"] == b"f\n"
    left = files.left()
    assert left and all(re.fullmatch(r"\.up-p[0-9a-z]{23}\.[0-9a-z]{8}\.\d+", n) for n in left), left
    files.written("d/f", b"new", status=204)


def test_continue_is_asked_for(api, files, gateway):
    put = f"PUT {files.base}/content?path=f"
    with connect(gateway, f"{put}&mode=9 HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n") as peer:
        assert peer.recv(65536).startswith(b"HTTP/1.1 422 "), "refused before the body"
    with connect(gateway, f"{put} HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\nIf-Match: \"no\"\r\n") as peer:
        assert peer.recv(65536).startswith(b"HTTP/1.1 412 ")
    absent = put.replace(files.box, "t-none")
    with connect(gateway, f"{absent} HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n") as peer:
        assert peer.recv(65536).startswith(b"HTTP/1.1 404 ")
    with connect(gateway, f"{put} HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n") as peer:
        assert peer.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"hello")
        assert peer.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert files.get("f") == b"hello"


@pytest.mark.parametrize("nth", [1, 3])
def test_parts_that_were_not_taken_after_all(small, emulator, nth):
    emulator.fault({"status": 200, "body": "{}"}, **WRITES, nth=nth)
    document = problem(small.put("f", bytes(5 * MIB)), 502, "upstream_bad_response")
    assert document["outcome"] == "not_started"
    problem(small.api.call("GET", small.base + "/content", params={"path": "f"}), 404, "file_not_found")
    small.written("f", b"now")


def test_no_coding_hides_behind_another(files, gateway):
    with connect(gateway, f"PUT {files.base}/content?path=f HTTP/1.1\r\nContent-Length: 5\r\nContent-Encoding: identity\r\n"
                          "Content-Encoding: gzip\r\n", b"hello") as peer:
        assert peer.recv(65536).startswith(b"HTTP/1.1 415 ")


def test_a_slow_client(small):
    """300 KiB/s: a part is on its way while it comes."""
    data = secrets.token_bytes(700 * KIB)

    def slowly():
        for piece in pieces(data, 30 * KIB):
            yield piece
            time.sleep(0.1)
    began = time.monotonic()
    small.written("f", slowly())
    assert time.monotonic() - began >= 2 and small.get("f") == data
    put = f"PUT {small.base}/content?path=g HTTP/1.1\r\nContent-Length: {len(data)}\r\nConnection: close\r\n"
    with connect(small.api, put) as peer:
        for piece in pieces(data, 30 * KIB):
            peer.sendall(piece)
            time.sleep(0.1)
        assert peer.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert small.get("g") == data


def test_another_session_than_the_cached_one(own_gateway, api, box):
    """A small body is still held when the session turns out to be over: it is sent to the next one."""
    other = Files(Client(own_gateway()), box)
    other.written("f", b"one")
    api.stop(box)
    until(lambda: api.get(box)["status"] == "stopped", "the sandbox stops")
    api.resume(box)
    other.written("f", b"two" * 10000, status=204)
    assert other.get("f") == b"two" * 10000


def test_what_lasts_is_told_later(own_gateway, emulator):
    """No call is silent for longer than 25 s (here, than 0.3) once its body is there."""
    files = Files(Client(own_gateway(RELAY_KEEPALIVE_MS=300)), None)
    files = Files(files.api, files.api.sandbox())
    files.api.run(files.box, "true")

    def begin(make):
        emulator.fault({"delay_ms": 1200}, times=1, method="POST", path_regex="/cmd$")
        answer = make()
        assert answer.status_code == 202, answer.text
        return files.api.call("GET", answer.headers["Location"], params={"wait_ms": 20000})
    put = begin(lambda: files.put("f", b"one"))
    assert put.status_code == 201 and put.headers["ETag"] == files.etag("f"), "what a put answers that does not last"
    assert begin(lambda: files.put("f", pieces(b"two"))).status_code == 204
    appended = begin(lambda: files.append("f", b"+"))
    assert appended.status_code == 200 and appended.json() == {"size": 4, "etag": files.etag("f")}
    problem(begin(lambda: files.put("f", b"x", headers={"If-None-Match": "*"})), 409, "file_exists")
    assert files.get("f") == b"two+"
    files.api.clean_up()


# ---- memory ----

def resident(gateway):
    return int(open(f"/proc/{gateway.child.pid}/statm").read().split()[1]) * 4096


def test_memory_is_bounded_P32(own_gateway, monkeypatch, box):
    """256 MiB up, of known and unknown length, and down again."""
    monkeypatch.setenv("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64")
    gateway = own_gateway()
    files = Files(Client(gateway), box)
    files.written("warm", bytes(17 * MIB))
    files.get("warm")
    block, n = secrets.token_bytes(MIB), 256
    sum_of_all = hashlib.sha256()
    for _ in range(n):
        sum_of_all.update(block)
    most, over = [0], threading.Event()

    def watch():
        while not over.wait(0.02):
            most[0] = max(most[0], resident(gateway))
    before = resident(gateway)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        files.written("big", (block for _ in range(n)))
        with files.api.call("GET", files.base + "/content", params={"path": "big"}, stream=True) as answer:
            got = hashlib.sha256()
            for piece in answer.iter_content(MIB):
                got.update(piece)
    finally:
        over.set()
        watcher.join()
    assert got.digest() == sum_of_all.digest()
    assert most[0] - before < 40 * MIB, f"grew by {(most[0] - before) >> 20} MiB"
