"""File content, exact both ways: A16 A17 E10 P29 P30 P31 P35 U8."""
import concurrent.futures
import secrets
import socket
import threading

import pytest

from harness import sha256, until

MIB = 1 << 20


def test_binary_round_trip_P29(api, box):
    data = secrets.token_bytes(14254)
    assert api.put(box, "bin", data).status_code == 201
    got = api.ok("GET", f"/v1/sandboxes/{box}/files/content", params={"path": "bin"})
    assert (len(got.content), sha256(got.content)) == (14254, sha256(data))
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert api.run(box, "sha256sum", "bin")["out"].split()[0].decode() == sha256(data)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 32 * MIB])
def test_sizes_A16(api, box, size):
    data = secrets.token_bytes(size)
    api.put(box, "f", data)
    got = api.file(box, "f")
    assert len(got) == size and sha256(got) == sha256(data)


def test_missing_file_is_a_problem_P30(api, box):
    refused = api.refused("GET", f"/v1/sandboxes/{box}/files/content", 404, "file_not_found", params={"path": "nope"})
    assert refused["errno"] == "ENOENT" and refused["reason"] == "NotFoundError"
    refused = api.call("GET", f"/v1/sandboxes/{box}/files/content", params={"path": "/etc"})
    assert refused.status_code == 422 and refused.json()["code"] in ("is_directory", "file_error")


def test_replacing_says_204_and_keeps_the_mode(api, box):
    assert api.put(box, "f", b"one", mode="0750").status_code == 201
    assert api.put(box, "f", b"two").status_code == 204
    assert api.file(box, "f") == b"two"
    assert api.run(box, "stat", "-c", "%a", "f")["out"] == b"750\n"
    assert api.put(box, "f", b"three", mode="600").status_code == 204
    assert api.run(box, "stat", "-c", "%a", "f")["out"] == b"600\n"
    api.put(box, "plain", b"")
    assert api.run(box, "stat", "-c", "%a %U", "plain")["out"] == b"644 " + api.run(box, "id", "-un")["out"]


def test_parents_on_request_A16(api, box):
    refused = problem_of_put(api, box, "a/b/c", b"x")
    assert (refused["code"], refused["errno"], refused["outcome"]) == ("file_not_found", "ENOENT", "not_started") or \
        refused["errno"] == "ENOENT"
    api.put(box, "a/b/c", b"x", parents="true")
    assert api.file(box, "a/b/c") == b"x"
    refused = problem_of_put(api, box, "a/b/c/d", b"x", parents="true")
    assert refused["errno"] == "ENOTDIR"
    assert problem_of_put(api, box, "a/b", b"x")["errno"] == "EISDIR"


def problem_of_put(api, box, path, data, headers=None, **query):
    answer = api.call("PUT", f"/v1/sandboxes/{box}/files/content", params={"path": path, **query}, data=data, headers=headers)
    assert answer.status_code >= 400 and answer.headers["Content-Type"].startswith("application/problem+json"), answer.text
    return answer.json()


def test_exclusive_create_is_atomic_A17(api, box):
    def create(i):
        return api.call("PUT", f"/v1/sandboxes/{box}/files/content", params={"path": "lock"}, data=b"%d" % i,
                        headers={"If-None-Match": "*"})
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(create, range(6)))
    codes = [a.status_code for a in answers]
    assert sorted(codes) == [201] + [409] * 5
    assert all(a.json()["code"] == "file_exists" for a in answers if a.status_code == 409)
    assert api.file(box, "lock") == b"%d" % codes.index(201)


@pytest.mark.parametrize("name", ["with space", "quo'te\"s", "new\nline", "$(touch pwned)`id`", "-rf", "ünïcödé", "\\n", "%2F..",
                                  "a\x7fb", "x" * 255], ids=range(10))
def test_names_round_trip_P35_E10(api, box, name):
    api.put(box, name, name.encode())
    assert api.file(box, name) == name.encode()
    assert api.run(box, "cat", "--", name)["out"] == name.encode()
    assert api.run(box, shell="ls pwned 2>/dev/null || true")["out"] == b""


def test_absolute_and_relative_paths_E10(api, box):
    home = api.get(box)["working_directory"]
    api.put(box, "here", b"1")
    assert api.file(box, f"{home}/here") == b"1"
    api.put(box, "/tmp/there", b"2")
    assert api.file(box, "/tmp/../tmp/there") == b"2"


def test_permission_is_told(api, box):
    refused = problem_of_put(api, box, "/root/x", b"x")
    assert refused["errno"] in ("EACCES", "EPERM") and refused["reason"] == "PermissionDenied"


def test_bad_requests_send_nothing(api, box, emulator):
    path = f"/v1/sandboxes/{box}/files/content"
    api.get(box)
    with emulator.calls() as calls:
        api.refused("GET", path, 422, "invalid_path")
        api.refused("GET", path + "?path=", 422, "invalid_path")
        api.refused("GET", path + "?path=a%00b", 422, "invalid_path")
        api.refused("PUT", path + "?path=a%00b", 422, "invalid_path", data=b"x")
        api.refused("GET", path, 422, "invalid_path", params={"path": "x" * 4097})
        api.refused("PUT", path, 422, "invalid_field", params={"path": "f", "mode": "9"}, data=b"x")
        api.refused("PUT", path, 422, "invalid_field", params={"path": "f", "parents": "yes"}, data=b"x")
        api.refused("PUT", path, 422, "unknown_field", params={"path": "f", "owner": "root"}, data=b"x")
        for headers, status, code in [({"If-None-Match": "etag"}, 422, "invalid_field"), ({"If-Match": '"a" "b"'}, 422, "invalid_field"),
                                      ({"If-Match": '"not-one-of-ours"'}, 412, "precondition_failed"),
                                      ({"If-Unmodified-Since": "Mon, 30 Nov 2026 12:00:00 GMT"}, 422, "unsupported"),
                                      ({"Content-Range": "bytes 0-0/2"}, 422, "unsupported"),
                                      ({"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
                                      ({"Content-Digest": "sha-256=:AAAA:"}, 422, "invalid_field"),
                                      ({"Content-Digest": "sha-512=x"}, 422, "invalid_field")]:
            api.refused("PUT", path, status, code, params={"path": "f"}, data=b"x", headers=headers)
    assert len(calls) == 0
    api.refused("GET", path, 404, "file_not_found", params={"path": "f"})


def test_interrupted_upload_leaves_the_old_file_U8_P31(api, box, gateway):
    api.put(box, "precious", b"old", mode="640")
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall((f"PUT /v1/sandboxes/{box}/files/content?path=precious HTTP/1.1\r\nHost: x\r\n"
                      f"Authorization: Bearer {gateway.token}\r\nContent-Length: {8 * MIB}\r\n\r\n").encode())
        peer.sendall(bytes(2 * MIB))
    # the gateway has seen it leave: what was uploaded is gone, the old file is whole
    until(lambda: api.run(box, shell="find /var/tmp -name '.*up*' -size +0 -newer precious | wc -l")["out"] == b"0\n",
          "the unfinished upload is removed")
    assert api.file(box, "precious") == b"old"
    assert api.run(box, "stat", "-c", "%a", "precious")["out"] == b"640\n"


def test_slow_reader_does_not_make_the_gateway_grow_A16(api, box, gateway):
    data = bytes(64 * MIB)
    api.put(box, "big", data)

    def resident():
        return int(open(f"/proc/{gateway.child.pid}/statm").read().split()[1]) * 4096
    before = resident()
    with api.call("GET", f"/v1/sandboxes/{box}/files/content", params={"path": "big"}, stream=True) as answer:
        stream = answer.iter_content(MIB)
        got = len(next(stream))
        threading.Event().wait(2)  # a client that pauses; the rest must not pile up in the gateway
        grown = resident() - before
        got += sum(len(part) for part in stream)
    assert got == 64 * MIB and grown < 32 * MIB, f"grew by {grown >> 20} MiB"
