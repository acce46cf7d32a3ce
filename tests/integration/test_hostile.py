"""A hostile user's requests, and an upstream at its worst: A14 A16 C1 C2 C10 E3 U3 U7 U9."""
import json
import os
import secrets
import socket
import subprocess
import threading

import pytest
import requests
import websocket

from client import Client, problem
from harness import PATIENCE, until

KIB, MIB = 1 << 10, 1 << 20


def raw(gateway, data, patience=PATIENCE):
    """Everything the gateway answers to these bytes until it closes."""
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=patience) as peer:
        peer.sendall(data)
        answer = b""
        while True:
            try:
                more = peer.recv(65536)
            except ConnectionResetError:
                return answer
            if not more:
                return answer
            answer += more


def content(box):
    return f"/v1/sandboxes/{box}/files/content"


# ---- ranges of files: A16 ----

DATA = bytes(range(256)) * 16


@pytest.fixture(scope="module")
def filed(stack):
    """An API client and a sandbox with a file of 4096 bytes and an empty one, for all tests of ranges."""
    client = Client(stack.gateway())
    box = client.sandbox()
    client.put(box, "f", DATA)
    client.put(box, "empty", b"")
    yield client, box
    client.clean_up()


@pytest.mark.parametrize("asked,first,last", [("0-0", 0, 0), ("5-9", 5, 9), ("4000-", 4000, 4095), ("-3", 4093, 4095),
                                              ("4095-", 4095, 4095), ("100-99999999999999999999", 100, 4095),
                                              ("-99999", 0, 4095), ("0-4095", 0, 4095)])
def test_a_range_of_a_file_A16(filed, emulator, asked, first, last):
    api, box = filed
    with emulator.calls() as calls:
        got = api.ok("GET", content(box), 206, params={"path": "f"}, headers={"Range": "bytes=" + asked})
    assert got.content == DATA[first:last + 1]
    assert got.headers["Content-Range"] == f"bytes {first}-{last}/4096" and got.headers["Accept-Ranges"] == "bytes"
    assert calls.seen() == [("POST", "cmd")]


@pytest.mark.parametrize("path,asked,size", [("f", "4096-", 4096), ("f", "9223372036854775807-", 4096), ("f", "-0", 4096),
                                             ("f", "99999999999999999999-", 4096), ("empty", "0-", 0)])
def test_a_range_outside_the_file_A16(filed, path, asked, size):
    api, box = filed
    answer = api.call("GET", content(box), params={"path": path}, headers={"Range": "bytes=" + asked})
    problem(answer, 416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == f"bytes */{size}"


@pytest.mark.parametrize("headers", [{"Range": "bytes=9-5"}, {"Range": "bytes=0-1,3-4"}, {"Range": "lines=0-1"},
                                     {"Range": "bytes=x"}, {"Range": "bytes=0-1", "If-Range": '"etag"'}],
                         ids=lambda h: ",".join(h.values()))
def test_what_is_no_single_range_gets_the_whole_file_A16(filed, headers):
    api, box = filed
    got = api.ok("GET", content(box), params={"path": "f"}, headers=headers)
    assert got.content == DATA and "Content-Range" not in got.headers


def test_ranges_of_a_missing_file_and_of_an_empty_end_A16(filed):
    api, box = filed
    problem(api.call("GET", content(box), params={"path": "no"}, headers={"Range": "bytes=0-1"}), 404, "file_not_found")
    assert api.ok("GET", content(box), params={"path": "empty"}, headers={"Range": "bytes=-5"}).content == b""
    head = api.ok("HEAD", content(box), params={"path": "f"}, headers={"Range": "bytes=0-1"})
    assert head.headers["Content-Length"] == "4096"


# ---- requests at the edge of what is allowed ----

def test_as_many_arguments_as_allowed(api, box):
    most = api.ok("GET", "/v1/limits").json()["process"]["arguments"]
    result = api.run(box, "sh", "-c", "echo $#", *["x"] * (most - 3))
    assert result["out"] == b"%d\n" % (most - 4)
    refused = api.refused("POST", f"/v1/sandboxes/{box}/run", 422, "invalid_field", json={"argv": ["x"] * (most + 1)})
    assert refused["pointer"] == "/argv"


def test_a_mebibyte_of_arguments_and_environment(api, box):
    result = api.run(box, "sh", "-c", 'printf %s "$*" | wc -c', "x", *["y" * 100000] * 9)
    assert result["out"] == b"%d\n" % (9 * 100000 + 8)
    result = api.run(box, shell="env | wc -c", env={f"A{i}": "y" * 100000 for i in range(9)})
    assert int(result["out"]) > 9 * 100000


def test_text_that_is_all_escapes_A14(api, box):
    """As JSON text these bytes would be six times as long, more than an answer may be."""
    result = api.run(box, shell="head -c 64M /dev/zero", max_output=64 * MIB)
    assert result["encoding"] == "base64" and result["truncated"] is False
    assert len(result["out"]) == 64 * MIB and result["out"].count(0) == 64 * MIB


def test_much_text_on_both_streams_A14(api, box):
    """Encoded piece by piece: characters and escapes across every boundary."""
    line = "€\t\"\\\x01é\n".encode() * 1000
    api.put(box, "text", line)
    result = api.run(box, shell="for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do cat text; cat text >&2; done")
    assert result["encoding"] == "utf-8" and result["exit_code"] == 0 and result["output_complete"] is True
    assert result["out"] == line * 30 and result["err"] == line * 30
    result = api.run(box, shell="head -c 1000000 /dev/zero; printf '\\377' >&2")
    assert result["encoding"] == "base64" and result["out"] == bytes(1000000) and result["err"] == b"\xff"


def test_leaving_amid_a_large_answer(gateway, api, box):
    body = json.dumps({"shell": "head -c 32M /dev/urandom", "max_output": 32 * MIB}).encode()
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as peer:
        peer.sendall(f"POST /v1/sandboxes/{box}/run HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
                     f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert peer.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert api.run(box, "echo", "on")["out"] == b"on\n"


def test_nul_in_any_query_value_is_refused(api, box, emulator):
    pid = api.start(box, "true")
    api.wait(box, pid)
    process = f"/v1/sandboxes/{box}/processes/{pid}"
    with emulator.calls() as calls:
        for method, path in (("GET", process + "/output?stream=stdout%00x"), ("GET", process + "?session=a%00b"),
                             ("PUT", content(box) + "?path=m&mode=644%00x"), ("PUT", content(box) + "?path=m&parents=true%00"),
                             ("GET", "/v1/sandboxes?cursor=a%00b")):
            refused = api.refused(method, path, 422, "invalid_field", data=b"x" if method == "PUT" else None)
            assert refused["pointer"].startswith("?") and refused["outcome"] == "not_sent"
        refused = api.refused("GET", content(box) + "?path=a%00b", 422, "invalid_path")
        assert refused["pointer"] == "?path"
    assert len(calls) == 0


def test_offsets_at_the_limits_C10(api, box):
    pid = api.start(box, "echo", "hello")
    api.wait(box, pid)
    path = f"/v1/sandboxes/{box}/processes/{pid}"
    for offset in (-1, 1 << 61, (1 << 62) - 1, (1 << 63) - 1, 1 << 63, 1 << 64):
        refused = api.refused("GET", path + "/output", 422, "invalid_field", params={"offset": offset})
        assert refused["pointer"] == "?offset"
        with pytest.raises(websocket.WebSocketBadStatusException) as e:
            api.attach(box, pid, stdout=offset)
        assert e.value.status_code == 422, "refused before the upgrade"
    api.refused("GET", path + "/output", 416, "range_not_satisfiable", params={"offset": 7})
    api.refused("GET", path + "/output", 416, "range_not_satisfiable", params={"offset": (1 << 61) - 1})
    with api.attach(box, pid, stdout=1 << 40) as a:
        a.until_close()
    assert a.message("exit")["exit_code"] == 0 and a.closed == 1000 and not a.data["stdout"]


def test_a_refused_head_request_gets_no_body(gateway):
    head = (f"HEAD /v1/nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
            "Content-Length: 200000\r\n\r\n").encode()
    answer = raw(gateway, head + b"x" * 200000)
    assert answer.startswith(b"HTTP/1.1 404 ") and answer.endswith(b"\r\n\r\n")


def test_keepalive_records_on_request_U7(api, box):
    pid = api.start(box, "sleep", "60")
    url = f"{api.url.replace('http', 'ws', 1)}/v1/sandboxes/{box}/processes/{pid}/attach?keepalive="
    options = {"header": {"Authorization": "Bearer " + api.token}, "subprotocols": ["sandgate.v1"], "timeout": PATIENCE}
    with pytest.raises(websocket.WebSocketBadStatusException) as e:
        websocket.create_connection(url + "never", **options)
    assert e.value.status_code == 422
    peer = websocket.create_connection(url + "data", **options)
    assert json.loads(peer.recv())["type"] == "hello"
    assert json.loads(peer.recv())["type"] == "keepalive"  # every 20 s; the process prints nothing
    peer.close()


# ---- what the upstream does meanwhile ----

def test_a_new_sandbox_is_not_asked_in_vain_C1(api, emulator):
    """Creation and the first run take three calls, the helper's upload among them."""
    with emulator.calls() as calls:
        box = api.sandbox()
        assert api.run(box, "echo", "hi")["out"] == b"hi\n"
    assert calls.seen() == [("POST", "sandboxes"), ("POST", "write"), ("POST", "cmd")]


@pytest.mark.parametrize("fault", [{"lose_answer": True}, {"cut_after_bytes": 20}, {"html": 200}, {"status": 500}],
                         ids=lambda f: next(iter(f)))
def test_a_failed_look_up_sends_nothing_C10(own_gateway, emulator, box, fault):
    """The sandbox could not be looked up: what was to be done in it was not, whatever became of the look."""
    api = Client(own_gateway(UPSTREAM_RETRIES=0))
    emulator.fault(fault, method="GET", path_regex="/sandboxes/[^/]+$")
    base = f"/v1/sandboxes/{box}"
    for method, path, kw in (("POST", base + "/run", {"json": {"argv": ["true"]}}), ("PUT", base + "/files/content?path=x", {"data": b"x"}),
                             ("POST", base + "/processes", {"json": {"argv": ["true"]}})):
        answer = api.call(method, path, **kw)
        assert answer.status_code in (502, 503) and answer.json()["outcome"] == "not_sent", answer.text


def test_a_stop_whose_watching_fails_has_begun_C10(own_gateway, emulator, api, box):
    gateway = own_gateway(UPSTREAM_RETRIES=0)
    emulator.fault({"status": 500}, method="GET", path_regex="/sandboxes/[^/]+$", nth=2)
    answer = Client(gateway).call("POST", f"/v1/sandboxes/{box}/stop", json={})
    assert answer.status_code == 503 and answer.json()["outcome"] in ("started", "finished"), answer.text
    emulator.clear_faults()
    assert api.get(box)["status"] in ("stopping", "snapshotting", "stopped")


@pytest.mark.parametrize("status", [404, 410])
def test_a_stop_refused_for_no_reason_is_not_a_success_C10(api, box, emulator, status):
    emulator.fault({"status": status}, method="POST", path_regex="/stop$")
    answer = api.call("POST", f"/v1/sandboxes/{box}/stop", json={})
    emulator.clear_faults()
    assert answer.status_code in (404, 409) and answer.json()["outcome"] == "not_started", answer.text
    assert api.get(box)["status"] == "running"


@pytest.mark.parametrize("fault", [{"status": 429}, {"status": 503}, {"lose_answer": True}, {"cut_after_bytes": 0},
                                   {"cut_after_bytes": 150}, {"html": 200}, {"malformed": True}, {"close_before": True}],
                         ids=lambda f: next(iter(f)) + str(next(iter(f.values()))))
def test_outcomes_are_true_U3_U9_C10(api, box, emulator, fault):
    """Whatever happens to the one call that starts it, a program ran once or not at all, as the answer says."""
    api.run(box, "true")
    base = f"/v1/sandboxes/{box}"
    for path, body in (("/run", {"argv": ["sh", "-c", "echo x >> ran1"]}), ("/processes", {"argv": ["sh", "-c", "echo x >> ran2"]})):
        emulator.fault(fault, method="POST", path_regex="/cmd$", times=1)
        answer = api.call("POST", base + path, json=body)
        emulator.clear_faults()
        name = body["argv"][2][-4:]
        if answer.status_code < 300:
            until(lambda: api.call("GET", content(box), params={"path": name}).content == b"x\n", "it ran once")
        else:
            assert answer.json()["outcome"] == "not_started", answer.text
            assert api.call("GET", content(box), params={"path": name}).status_code == 404


def test_one_name_by_many_at_once_C2_E3(api, emulator):
    """Create, stop, run and destroy of one name from many sides: only documented answers, and the gateway lives."""
    name = "t-" + secrets.token_hex(8)
    api.made.append(name)
    base = f"/v1/sandboxes/{name}"
    seen, odd = set(), []

    def hammer(method, path, body, n):
        http = requests.Session()
        http.trust_env = False
        for _ in range(n):
            answer = http.request(method, api.url + path, json=body, timeout=PATIENCE,
                                  headers={"Authorization": "Bearer " + api.token})
            seen.add((method, answer.status_code))
            if answer.status_code >= 400:
                document = answer.json()
                if answer.status_code not in (404, 409) or "outcome" not in document:
                    odd.append((method, path, document))

    threads = [threading.Thread(target=hammer, args=a) for a in (
        ("POST", "/v1/sandboxes", {"name": name}, 6), ("POST", "/v1/sandboxes", {"name": name, "if_exists": "get"}, 6),
        ("DELETE", base, None, 6), ("POST", base + "/stop", {}, 6), ("POST", base + "/run", {"argv": ["true"]}, 10),
        ("GET", base, None, 10), ("POST", base + "/resume", {}, 6))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE * 2)
    assert not odd, odd
    assert ("POST", 201) in seen and ("DELETE", 204) in seen
    api.ok("DELETE", base, 204)
    api.refused("GET", base, 404, "sandbox_not_found")


# ---- what the HTTP library refuses by itself ----

def library_calls_itself_through_the_linker(gateway):
    """Where it does not, its own pages cannot be replaced (server/library_page.c)."""
    with open(f"/proc/{gateway.child.pid}/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libmicrohttpd" in line)
    relocations = subprocess.run(["readelf", "-rW", path], capture_output=True, text=True, check=True).stdout
    return any("MHD_queue_response" in line and "JUMP_SLO" in line for line in relocations.splitlines())


GET, HOST = b"GET /healthz HTTP/1.1\r\n", b"Host: x\r\n"


@pytest.mark.parametrize("request_,status,code", [
    (b"GET /healthz\r\n\r\n", 400, "bad_request"),
    (b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n", 400, "bad_request"),
    (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri_too_long"),
    (GET + HOST + b"X: " + b"a" * 40000 + b"\r\n\r\n", 431, "headers_too_large"),
    (GET + HOST + b"".join(b"X%d: a\r\n" % i for i in range(5000)) + b"\r\n", 431, "headers_too_large"),
    (GET + HOST + b"nonsense\r\n\r\n", 400, "bad_request"),
    (b"POST /v1/sandboxes HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400, "bad_request"),
    (b"POST /v1/sandboxes HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n", 413, "body_too_large"),
    (b"POST /v1/sandboxes HTTP/1.1\r\n" + HOST + b"Authorization: Bearer TOKEN\r\nContent-Type: application/json\r\n"
     b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "bad_request"),
    (b"POST /v1/sandboxes HTTP/1.1\r\n" + HOST + b"Authorization: Bearer TOKEN\r\nContent-Type: application/json\r\n"
     b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n", 413, "body_too_large"),
], ids=range(10))
def test_no_page_of_the_http_library_C10(gateway, request_, status, code):
    if not library_calls_itself_through_the_linker(gateway):
        pytest.skip("the HTTP library was linked so that its own pages cannot be replaced")
    answer = raw(gateway, request_.replace(b"TOKEN", gateway.token.encode()))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:500]
    assert b"\r\nContent-Type: application/problem+json\r\n" in head + b"\r\n"
    document = json.loads(body)
    assert (document["status"], document["code"]) == (status, code) and document["retryable"] is False
    assert document["outcome"] == "not_sent"
    assert b"\r\nX-Request-Id: %b\r\n" % document["request_id"].encode() in head + b"\r\n"
    logged = until(lambda: [e for e in gateway.events("request") if e["request_id"] == document["request_id"]], "it is logged")
    assert logged[0]["status"] == status and logged[0]["code"] == code


def test_a_frame_with_a_mebibyte_is_accepted(api, box):
    pid = api.start(box, "sleep", "60")
    with api.attach(box, pid) as a:
        a.socket.send_binary(bytes(9) + bytes(MIB))
        assert a.next() == "hello" and a.next() == "error"
        assert a.messages[-1]["code"] == "stdin_closed", "understood; this process takes no input"


@pytest.mark.parametrize("writer", [True, False])
def test_a_malformed_chunk_amid_an_upload_C10(gateway, api, box, writer):
    """The library refuses it by itself, while a handler holds the request: who hears that the client is gone."""
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid, mode="write" if writer else "watch") as a:  # a writer has the upload refused
        a.until("hello")
        answer = raw(gateway, f"POST /v1/sandboxes/{box}/processes/{pid}/stdin HTTP/1.1\r\nHost: x\r\n"
                     f"Authorization: Bearer {api.token}\r\nContent-Type: application/octet-stream\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nZZZ\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 ") and b'"bad_request"' in answer
        assert api.process(box, pid, wait_ms=500)["state"] == "running"  # longer than any timer of the upload
    with api.attach(box, pid, mode="write") as a:
        a.send(b"x")
        a.until_bytes(1)


def test_streams_that_were_left_hold_no_descriptors_C10(own_gateway):
    """Also while an older connection stays open and says nothing."""
    gateway = own_gateway()
    api = Client(gateway)
    box = api.sandbox()  # its connection is the idle one
    path = f"/v1/sandboxes/{box}/processes/{api.start(box, 'sleep', '600')}/events"

    def descriptors():
        return len(os.listdir(f"/proc/{gateway.child.pid}/fd"))

    def leave():
        with requests.get(gateway.url + path, headers={"Authorization": "Bearer " + api.token}, stream=True, timeout=PATIENCE) as answer:
            assert answer.status_code == 200
            next(answer.iter_content(1))

    leave()
    before = descriptors()
    for _ in range(30):
        leave()
    until(lambda: descriptors() < before + 10, "the descriptors are closed", patience=20)
    api.clean_up()
