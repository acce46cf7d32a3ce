"""Uploads that go on where they were cut: A16 U8 P31.  What is checked is the file's digest and what HEAD says."""
import base64
import http.client
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time

import pytest

from client import Client
from harness import ROOT, clean_env, sha256, until
from test_attach_input import killable

MIB = 1 << 20
PART = 262144  # the least the gateway may be told: many parts of few bytes


def digest(data):
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256(data))).decode()}:"


class Upload:
    """One upload as a client sees it."""

    def __init__(self, api, place):
        self.api, self.place = api, place

    @classmethod
    def begin(cls, api, box, path, data=b"", complete=False, status=201, headers=None, **query):
        """The upload, and the answer that told of it."""
        answer = api.ok("POST", f"/v1/sandboxes/{box}/files/uploads", status, params={"path": path, **query}, data=data,
                        headers={"Upload-Complete": "?1" if complete else "?0", **(headers or {})})
        place = answer.headers["Location"]
        assert place.startswith(f"/v1/sandboxes/{box}/files/uploads/r") and "max-age=" in answer.headers.get("Upload-Limit", "max-age=")
        return cls(api, place), answer

    def tell(self, hasty=False):
        """(offset, length or None, whether it is finished)"""
        # 503: what an earlier request brought is still on its way, which after faults may take longer than ten seconds;
        # a gateway with little patience may say so of this question, too
        later = (503, 504) if hasty else (503,)
        answer, _ = until(lambda: (a := self.api.call("HEAD", self.place)).status_code not in later and (a, True), "it is told")
        assert answer.status_code == 204, answer.status_code
        assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Upload-Limit"]
        length = answer.headers.get("Upload-Length")
        return int(answer.headers["Upload-Offset"]), length and int(length), answer.headers["Upload-Complete"] == "?1"

    def append(self, at, data, complete=None, api=None, **headers):
        headers = {key.replace("_", "-"): value for key, value in headers.items()}
        headers = {"Content-Type": "application/partial-upload", "Upload-Offset": str(at), **headers}
        if complete is not None:
            headers["Upload-Complete"] = "?1" if complete else "?0"
        return (api or self.api).call("PATCH", self.place, data=data, headers=headers)

    def finish(self, at, data):
        answer = self.append(at, data, True)
        assert answer.status_code in (201, 204) and answer.headers["Upload-Complete"] == "?1", answer.text
        assert answer.headers["Upload-Offset"] == str(at + len(data)) and answer.headers["ETag"]
        return answer

    def refused(self, status, code, at, data, complete=None, **headers):
        answer = self.append(at, data, complete, **headers)
        document = answer.json()
        assert (answer.status_code, document["code"]) == (status, code), document
        return answer, document

    def gone(self):
        assert self.api.call("HEAD", self.place).status_code == 404

    def open_append(self, gateway, at, length, *more):
        """A connection on which the head of a PATCH was sent."""
        host, port = gateway.url.removeprefix("http://").split(":")
        peer = socket.create_connection((host, int(port)), timeout=60)
        lines = [f"PATCH {self.place} HTTP/1.1", "Host: x", f"Authorization: Bearer {gateway.token}", f"Content-Length: {length}",
                 f"Upload-Offset: {at}", "Content-Type: application/partial-upload", *more]
        peer.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return peer


def test_whole_at_once(api, box, emulator):
    data = secrets.token_bytes(300000)
    api.run(box, "true")
    with emulator.calls() as calls:
        upload, answer = Upload.begin(api, box, "a/f", data, True, parents="true", mode="640", headers={"Content-Digest": digest(data)})
    assert len(calls) == 4, calls.seen()  # made, sent, joined, finished
    assert (answer.headers["Upload-Complete"], answer.headers["Upload-Offset"]) == ("?1", "300000")
    assert api.file(box, "a/f") == data
    assert api.run(box, "stat", "-c", "%a", "a/f")["out"] == b"640\n"
    assert upload.tell() == (300000, 300000, True)
    api.ok("DELETE", upload.place, 204)
    upload.gone()
    assert api.file(box, "a/f") == data
    _, answer = Upload.begin(api, box, "a/f", b"", True, status=204)  # nothing is a whole, too; and the file was there
    assert api.file(box, "a/f") == b""
    assert api.run(box, "stat", "-c", "%a", "a/f")["out"] == b"640\n"


def test_in_pieces_and_the_answer_again(api, box):
    data = secrets.token_bytes(1000000)
    upload, answer = Upload.begin(api, box, "f", data[:10], headers={"Upload-Length": str(len(data))})
    assert (answer.headers["Upload-Complete"], answer.headers["Upload-Offset"]) == ("?0", "10")
    assert upload.tell() == (10, len(data), False)
    answer = upload.append(10, data[10:400000], False)
    assert (answer.status_code, answer.headers["Upload-Offset"], answer.headers["Upload-Complete"]) == (204, "400000", "?0")
    api.refused("GET", f"/v1/sandboxes/{box}/files/content", 404, "file_not_found", params={"path": "f"})
    first = upload.finish(400000, data[400000:])
    assert first.status_code == 201 and api.file(box, "f") == data
    again = upload.finish(len(data), b"")
    assert (again.status_code, again.headers["ETag"]) == (201, first.headers["ETag"])
    _, document = upload.refused(400, "bad_request", len(data), b"more", True)
    answer, document = upload.refused(409, "upload_offset", 400000, data[400000:], True)
    assert document["accepted"] == len(data) and answer.headers["Upload-Complete"] == "?1"
    assert upload.tell() == (len(data), len(data), True) and api.file(box, "f") == data


def test_chunked_and_by_its_length(api, box):
    """Without Upload-Complete an upload is complete when it is as long as was said; with ?0 it is not."""
    data = secrets.token_bytes(600000)
    upload, _ = Upload.begin(api, box, "f", iter([data[:100], data[100:300000]]), headers={"Upload-Length": str(len(data))})
    assert upload.tell() == (300000, len(data), False)
    assert upload.append(300000, data[300000:], False).headers["Upload-Complete"] == "?0"
    assert upload.tell() == (len(data), len(data), False)
    assert upload.append(len(data), b"").status_code == 201
    assert api.file(box, "f") == data
    upload, _ = Upload.begin(api, box, "g")  # nobody says how long it will be
    assert upload.tell() == (0, None, False)
    answer = upload.append(0, iter([data[:70000], data[70000:]]), True, Content_Type="application/octet-stream")
    assert answer.status_code == 201 and api.file(box, "g") == data
    assert upload.tell() == (len(data), len(data), True)


def test_what_does_not_fit_is_refused(api, box):
    upload, _ = Upload.begin(api, box, "f", b"0123", headers={"Upload-Length": "10"})
    for at in (0, 3, 5, 10):
        answer, document = upload.refused(409, "upload_offset", at, b"xx")
        assert document["accepted"] == 4 and answer.headers["Upload-Offset"] == "4" and document["outcome"] == "not_started"
    upload.refused(413, "body_too_large", 4, b"4567890")
    upload.refused(400, "bad_request", 4, b"45678", True)  # complete, and yet too short
    upload.refused(400, "bad_request", 4, b"456789", True, Upload_Length="11")
    assert upload.tell() == (4, 10, False)
    answer, _ = upload.refused(413, "body_too_large", 4, iter([b"456", b"789", b"too much"]))
    assert answer.headers["Upload-Offset"] == "10"  # what belongs to it was kept
    upload.finish(10, b"")
    assert api.file(box, "f") == b"0123456789"


def test_a_length_that_no_number_holds(api, box, gateway):
    upload, _ = Upload.begin(api, box, "f", b"0123", headers={"Upload-Length": "10"})
    with upload.open_append(gateway, 4, 2 ** 63 - 1) as peer:
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        assert answer.status == 413 and answer.headers["Upload-Offset"] == "4"
    upload.finish(4, b"456789")


def test_bad_requests_send_nothing(api, box, emulator):
    base = f"/v1/sandboxes/{box}/files/uploads"
    some, there = base + "/ru" + "0" * 22, {"params": {"path": "f"}}
    api.get(box)
    with emulator.calls() as calls:
        api.refused("POST", base, 422, "invalid_path")
        api.refused("POST", base, 422, "unknown_field", params={"path": "f", "size": "1"})
        api.refused("POST", base, 422, "invalid_field", params={"path": "f", "mode": "8"})
        for name, value in (("Upload-Complete", "yes"), ("Upload-Complete", "?2"), ("Upload-Length", "-1"), ("Upload-Length", "1e3"),
                            ("Upload-Length", "1" * 16)):
            api.refused("POST", base, 400, "bad_request", headers={name: value}, **there)
        api.refused("POST", base, 400, "bad_request", data=b"abc", headers={"Upload-Complete": "?1", "Upload-Length": "4"}, **there)
        api.refused("POST", base, 413, "body_too_large", data=b"abc", headers={"Upload-Length": "2"}, **there)
        api.refused("POST", base, 422, "unsupported", headers={"Content-Encoding": "gzip"}, **there)
        api.refused("POST", base, 422, "unsupported", data=b"a", headers={"Content-Digest": digest(b"a"), "Upload-Complete": "?0"}, **there)
        api.refused("POST", base, 422, "invalid_field", headers={"Repr-Digest": "sha-256=:AAAA:"}, **there)
        api.refused("POST", base, 412, "precondition_failed", headers={"If-Match": '"no-tag-of-ours"'}, **there)
        part = {"Content-Type": "application/partial-upload", "Upload-Offset": "0"}
        for bad in ("nope", "ru", "ru" + "0" * 21, "ru" + "0" * 23, "xu" + "0" * 22, "rx" + "0" * 22, "ru" + "A" * 22, "ru" + "." * 22):
            for method in ("HEAD", "PATCH", "DELETE"):
                answer = api.call(method, f"{base}/{bad}", headers=part)
                assert answer.status_code == 404, (method, bad, answer.text)
        api.refused("PATCH", some, 415, "unsupported_media_type", data=b"x", headers={**part, "Content-Type": "text/plain"})
        api.refused("PATCH", some, 400, "bad_request", data=b"x", headers={"Content-Type": "application/partial-upload"})
        api.refused("PATCH", some, 400, "bad_request", data=b"x", headers={**part, "Upload-Offset": "+1"})
        api.refused("PATCH", some, 422, "unsupported", data=b"x", headers={**part, "If-Match": "*"})
    assert len(calls) == 0, calls.seen()
    api.refused("PATCH", some, 404, "upload_not_found", data=b"x", headers=part)
    api.refused("DELETE", some, 404, "upload_not_found")
    assert api.call("HEAD", some).status_code == 404
    assert api.call("GET", some).headers["Allow"] == "HEAD, PATCH, DELETE"


def test_conditions_hold_at_the_end(api, box):
    api.put(box, "f", b"old")
    tag = api.ok("HEAD", f"/v1/sandboxes/{box}/files/content", params={"path": "f"}).headers["ETag"]
    upload, _ = Upload.begin(api, box, "f", b"ne", headers={"If-Match": tag})
    assert upload.finish(2, b"w").status_code == 204 and api.file(box, "f") == b"new"
    base = f"/v1/sandboxes/{box}/files/uploads"
    api.refused("POST", base, 412, "precondition_failed", params={"path": "f"}, data=b"x", headers={"If-Match": tag})
    upload, _ = Upload.begin(api, box, "g", b"one", headers={"If-None-Match": "*"})
    api.put(box, "g", b"was faster")
    answer, document = upload.refused(409, "file_exists", 3, b"", True)
    assert answer.headers["Upload-Complete"] == "?1" and document["outcome"] == "not_started"
    assert api.file(box, "g") == b"was faster"
    api.ok("DELETE", f"/v1/sandboxes/{box}/files/content", 204, params={"path": "g"})
    upload.finish(3, b"")
    assert api.file(box, "g") == b"one"


def test_another_digest_changes_nothing(api, box):
    api.put(box, "f", b"old", mode="600")
    data = secrets.token_bytes(400000)
    upload, _ = Upload.begin(api, box, "f", data[:100], headers={"Repr-Digest": digest(data)})
    upload.refused(422, "digest_mismatch", 100, data[100:-1] + bytes([data[-1] ^ 1]), True)
    assert api.file(box, "f") == b"old"
    until(lambda: api.call("HEAD", upload.place).status_code == 404, "what is of no use is removed")
    upload, _ = Upload.begin(api, box, "f", data[:100], headers={"Repr-Digest": digest(data)})
    upload.finish(100, data[100:])
    assert api.file(box, "f") == data
    upload, _ = Upload.begin(api, box, "f", b"x")
    upload.refused(422, "digest_mismatch", 1, b"y", True, Repr_Digest=digest(data))  # said at the end
    assert api.file(box, "f") == data


def test_what_cannot_be_put_there_can_be_removed(api, box):
    upload, _ = Upload.begin(api, box, "gone/f", b"x", parents="true")
    api.put(box, "gone", b"a file is in the way")
    answer, document = upload.refused(422, "not_directory", 1, b"", True)
    assert document["errno"] == "ENOTDIR" and answer.headers["Upload-Offset"] == "1"
    assert upload.tell() == (1, None, False)
    api.ok("DELETE", upload.place, 204)
    upload.gone()


def test_a_client_that_is_cut_goes_on(api, box, own_gateway, emulator):
    gateway = own_gateway(FILES_UPLOAD_PART_BYTES=PART)
    data = secrets.token_bytes(3 * MIB)
    upload, _ = Upload.begin(Client(gateway), box, "f", headers={"Upload-Length": str(len(data))})
    sent = told(emulator, "write")
    with upload.open_append(gateway, 0, len(data)) as peer:
        peer.sendall(data[:2 * MIB])
        until(lambda: told(emulator, "write") >= sent + 4, "some of it was sent")
    offset, length, done = upload.tell()
    assert 4 * PART <= offset <= 2 * MIB and (length, done) == (len(data), False)
    upload.finish(offset, data[offset:])
    assert sha256(api.file(box, "f")) == sha256(data)


def told(emulator, what):
    """How often, since it was asked for the first time: the journal itself forgets."""
    seen = emulator.__dict__.setdefault("told", {"seq": 0})
    for entry in emulator.journal(seen["seq"]):
        last = entry["path"].rsplit("/", 1)[-1]
        seen[last] = seen.get(last, 0) + 1
        seen["seq"] = entry["seq"]
    return seen.get(what, 0)


def test_who_comes_later_wins(api, box, gateway, emulator):
    """A connection that hangs, as its client knows and the gateway does not: the next request ends it."""
    data = secrets.token_bytes(2 * MIB)
    upload, _ = Upload.begin(api, box, "f")
    asked = told(emulator, "cmd")
    with upload.open_append(gateway, 0, len(data), "Upload-Complete: ?1") as hanging:
        hanging.sendall(data[:MIB])
        until(lambda: told(emulator, "cmd") > asked, "the upload has begun")
        offset, _, done = upload.tell()
        assert not done and offset <= MIB
        answer = http.client.HTTPResponse(hanging)
        answer.begin()
        assert answer.status == 503 and answer.headers["Upload-Complete"] == "?0", answer.read()
        again, _, _ = upload.tell()
        assert again == offset  # what was told stays true
    upload.finish(offset, data[offset:])
    assert sha256(api.file(box, "f")) == sha256(data)


def test_two_at_once_do_not_mix(api, box):
    """Each sends bytes of its own from the same offset: one wins whole, or they are refused."""
    upload, _ = Upload.begin(api, box, "f")
    answers = {}

    def send(who):
        answers[who] = upload.append(0, who * (700000 // len(who)), True, api=Client(type("G", (), {"url": api.url, "token": api.token})))
    threads = [threading.Thread(target=send, args=(who,)) for who in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = {who: answer.status_code for who, answer in answers.items()}
    assert set(codes.values()) <= {201, 204, 400, 409, 503}, codes
    offset, _, done = upload.tell()
    if not done:
        api.run(box, "true")
        upload.finish(offset, b"")
    content = api.file(box, "f")
    assert len(set(content)) <= 1, "bytes of two clients"
    winners = [who for who, code in codes.items() if code == 201]
    assert len(winners) <= 1 and (not winners or content == winners[0] * 700000)


def test_removing_ends_what_is_on_its_way(api, box, gateway, emulator):
    upload, _ = Upload.begin(api, box, "f")
    asked = told(emulator, "cmd")
    with upload.open_append(gateway, 0, MIB) as peer:
        peer.sendall(bytes(MIB // 2))
        until(lambda: told(emulator, "cmd") > asked, "the upload has begun")
        api.ok("DELETE", upload.place, 204)
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        assert answer.status in (404, 503)
    upload.gone()
    assert api.call("DELETE", upload.place).status_code == 404
    api.refused("GET", f"/v1/sandboxes/{box}/files/content", 404, "file_not_found", params={"path": "f"})


def test_a_lost_answer_is_found_again(api, box, emulator):
    """The last step was done and nobody was told: HEAD says so, and finishing again gives the answer."""
    data = secrets.token_bytes(1000)
    upload, _ = Upload.begin(api, box, "f", data)
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/cmd$", nth=2, times=20)
    answer = upload.append(1000, b"", True)
    emulator.clear_faults()
    if answer.status_code >= 400:
        assert answer.status_code in (502, 503, 504) and answer.json()["retryable"], answer.text
    offset, _, done = upload.tell()
    assert offset == 1000
    assert upload.finish(1000, b"").status_code == 201
    assert upload.tell() == (1000, 1000, True) and api.file(box, "f") == data


def test_as_root_and_by_name(api, box):
    raw = base64.b64encode(b"/root/\xff raw").decode()
    refused = api.call("POST", f"/v1/sandboxes/{box}/files/uploads", params={"path_b64": raw}, data=b"x", headers={"Upload-Complete": "?1"})
    assert refused.status_code == 403, refused.text
    answer = api.ok("POST", f"/v1/sandboxes/{box}/files/uploads", 201, params={"path_b64": raw, "sudo": "true"}, data=b"12",
                    headers={"Upload-Complete": "?0"})
    Upload(api, answer.headers["Location"]).finish(2, b"34")
    assert api.run(box, shell="cat /root/*raw; stat -c %U /root/*raw", sudo=True)["out"] == b"1234root\n"


SEED = int(os.environ.get("SEED", secrets.randbelow(10 ** 9)))


@pytest.mark.parametrize("number", range(3))
def test_whatever_cuts_it_the_digest_is_right_in_the_end(box, api, emulator, own_gateway, number):
    """A client that is cut, an upstream that fails, and a gateway that is killed, at random: what HEAD tells is never less
    than before, and going on from there ends with the right bytes."""
    print(f"SEED={SEED}")
    rng = random.Random(SEED * 3 + number)
    data = rng.randbytes(rng.randrange(MIB, 6 * MIB))
    gateway = own_gateway(FILES_UPLOAD_PART_BYTES=PART)
    upload, _ = Upload.begin(Client(gateway), box, "f", headers={"Upload-Length": str(len(data)), "Repr-Digest": digest(data)})
    offset, done, events = 0, False, []
    deadline = time.monotonic() + 100
    while not done:
        assert time.monotonic() < deadline, events
        kind = rng.choice(["client", "client", "upstream", "upstream", "kill"] + ["none"] * (len(events) > 12))
        end = len(data) if len(events) > 12 and kind != "client" else rng.randrange(offset, (offset + 3 * len(data)) // 4 + 1)
        events.append((kind, offset, end))
        if kind == "upstream":
            action = rng.choice([{"status": 503}, {"close_before": True}, {"lose_answer": True}, {"html": 502}])
            emulator.fault(action, method="POST", path_regex=rng.choice(["/fs/write$", "/cmd$", "."]), nth=rng.randrange(1, 12),
                           times=rng.randrange(1, 8))
        asked = told(emulator, "cmd")
        try:
            with upload.open_append(gateway, offset, len(data) - offset, "Upload-Complete: ?1") as peer:
                peer.sendall(data[offset:end])
                if kind == "kill":
                    if rng.random() < 0.5:
                        until(lambda: told(emulator, "cmd") > asked, "it was asked about")
                    killable(gateway).child.kill()
                    gateway.child.wait()
                    gateway = own_gateway(FILES_UPLOAD_PART_BYTES=PART)
                    upload.api = Client(gateway)
                elif end == len(data):
                    answer = http.client.HTTPResponse(peer)
                    answer.begin()
                    answer.read()
                    done = answer.status in (201, 204)
                    events.append(answer.status)
        except (OSError, http.client.HTTPException) as e:
            events.append(repr(e))
        emulator.clear_faults()
        before = offset
        offset, length, finished = upload.tell()
        assert length == len(data) and before <= offset <= end, events
        assert finished or not done, events
        done = finished
    assert sha256(api.file(box, "f")) == sha256(data), events
    api.ok("DELETE", upload.place, 204)
    assert api.run(box, shell="find / -xdev \\( -name '.up-r*' -o -name '.um-*' \\) 2>/dev/null | wc -l")["out"] == b"0\n", events


def test_what_lasts_goes_on_without_its_client(api, box, own_gateway, emulator):
    """No call is silent for longer than 25 s (here, than 0.5): 504, and HEAD tells what came of it."""
    hasty = Client(own_gateway(RELAY_KEEPALIVE_MS=500))
    upload, _ = Upload.begin(api, box, "f")
    upload.api = hasty
    emulator.fault({"delay_ms": 1600}, path_regex="/cmd$", nth=2, times=2)
    answer, document = upload.refused(504, "upstream_timeout", 0, b"in the end", True)
    assert document["outcome"] == "started" and document["retryable"]
    until(lambda: upload.tell(hasty=True) == (10, 10, True), "it is finished")
    assert api.file(box, "f") == b"in the end"
    emulator.clear_faults()
    emulator.fault({"delay_ms": 1600}, path_regex="/cmd$", nth=2, times=2)
    answer = hasty.call("POST", f"/v1/sandboxes/{box}/files/uploads", params={"path": "g"}, data=b"made", headers={"Upload-Complete": "?1"})
    assert answer.status_code == 504, answer.text
    made = Upload(hasty, answer.headers["Location"])
    until(lambda: made.tell(hasty=True) == (4, 4, True), "it is finished")
    assert api.file(box, "g") == b"made"


@pytest.mark.parametrize("method", ["HEAD", "PATCH", "DELETE", "POST"])
def test_a_sandbox_that_is_silent_keeps_nobody_waiting(api, box, own_gateway, emulator, method):
    """Also while the upload is only asked about (C8: 25 s; here 0.4)."""
    hasty = Client(own_gateway(RELAY_KEEPALIVE_MS=400))
    upload, _ = Upload.begin(api, box, "f")
    emulator.fault({"delay_ms": 3000}, path_regex="/cmd$", times=1)
    if method == "POST":
        answer = hasty.call("POST", f"/v1/sandboxes/{box}/files/uploads", params={"path": "g"})
    elif method == "PATCH":
        answer = hasty.call("PATCH", upload.place, data=b"x", headers={
            "Upload-Offset": "0", "Upload-Complete": "?0", "Content-Type": "application/partial-upload"})
    else:
        answer = hasty.call(method, upload.place)
    assert answer.status_code == 504
    if method != "HEAD":
        assert answer.json()["outcome"] == ("not_started" if method == "PATCH" else "unknown")
    if method != "DELETE":
        assert upload.tell() == (0, None, False)
        assert upload.finish(0, b"whole")
        assert api.file(box, "f") == b"whole"


def ask_unheard(gateway, place):
    try:
        Client(gateway).http.head(gateway.url + place, timeout=60)
    except OSError:
        pass


def test_a_gateway_that_stops_ends_them(api, box, own_gateway, emulator):
    """In the middle of a body, with somebody who waits for it, and of finishing: it ends cleanly, and what came is there."""
    gateway = own_gateway(FILES_UPLOAD_PART_BYTES=PART, SERVER_DRAIN_TIMEOUT_MS=300)
    data = secrets.token_bytes(MIB)
    uploads = [Upload.begin(Client(gateway), box, f"f{i}")[0] for i in range(2)]
    asked = told(emulator, "cmd")
    with uploads[0].open_append(gateway, 0, 2 * MIB) as first, uploads[1].open_append(gateway, 0, 4) as second:
        first.sendall(data)
        until(lambda: told(emulator, "write") and told(emulator, "cmd") >= asked + 3, "parts of it were joined")
        emulator.fault({"delay_ms": 2000}, method="POST", path_regex="/(cmd|write)$")
        second.sendall(b"1234")
        waits = threading.Thread(target=ask_unheard, args=(gateway, uploads[0].place))
        waits.start()
        assert gateway.end() == 0, gateway.text()[-4000:]
        emulator.clear_faults()
        waits.join()
    for upload in uploads:
        upload.api = api
        offset, _, _ = upload.tell()
        upload.append(offset, b"", True)
    assert data.startswith(api.file(box, "f0"))


def test_the_example_goes_on_after_a_kill(api, box, own_gateway, emulator, tmp_path):
    """docs/examples/upload.py against a gateway that dies under it and comes back at the same port."""
    data = secrets.token_bytes(5 * MIB)
    (tmp_path / "data").write_bytes(data)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    gateway = own_gateway(FILES_UPLOAD_PART_BYTES=PART, SERVER_LISTEN=f"127.0.0.1:{port}")
    emulator.fault({"delay_ms": 100}, method="POST", path_regex="/fs/write$")
    sent = told(emulator, "write")
    program = [sys.executable, str(ROOT / "docs/examples/upload.py"), box, str(tmp_path / "data"), "big"]
    with subprocess.Popen(program, env=clean_env(URL=gateway.url, TOKEN=gateway.token), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as client:
        until(lambda: told(emulator, "write") > sent + 3, "some of it is there")
        killable(gateway).child.kill()
        gateway.child.wait()
        second = own_gateway(FILES_UPLOAD_PART_BYTES=PART, SERVER_LISTEN=f"127.0.0.1:{port}", AUTH_TOKENS_FILE=gateway.tokens)
        out, err = client.communicate(timeout=120)
    assert client.returncode == 0 and f"{len(data)} bytes" in out, (out, err, second.text()[-2000:])
    assert sha256(api.file(box, "big")) == sha256(data)
