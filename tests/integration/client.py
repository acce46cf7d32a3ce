"""A small client of the gateway's API for tests: what comes back is checked for form, never for luck."""
import base64
import json
import re
import secrets
import time
import urllib.parse

import requests
import websocket

PROBLEM_KEYS = {"type", "title", "status", "detail", "code", "reason", "retryable", "outcome", "request_id"}


class Client:
    def __init__(self, gateway):
        self.url, self.token = gateway.url, gateway.token
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.headers["Authorization"] = "Bearer " + self.token
        self.made = []

    # ---- the wire ----

    def call(self, method, path, **kw):
        kw.setdefault("timeout", 90)
        answer = self.http.request(method, self.url + path, **kw)
        bodiless = method == "HEAD" or answer.status_code == 304  # they tell the length that it would have
        if not kw.get("stream") and not bodiless and "Content-Length" in answer.headers:
            assert len(answer.content) == int(answer.headers["Content-Length"]), "the answer was cut"
        return answer

    def ok(self, method, path, status=200, **kw):
        answer = self.call(method, path, **kw)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def refused(self, method, path, status, code, **kw):
        """A problem document of this status and code; returns it."""
        return problem(self.call(method, path, **kw), status, code)

    # ---- sandboxes ----

    def create(self, status=201, **body):
        body.setdefault("name", "t-" + secrets.token_hex(8))
        record = self.ok("POST", "/v1/sandboxes", status, json=body).json()
        if body["name"] not in self.made:
            self.made.append(body["name"])
        return record

    def sandbox(self, **body):
        """The name of a new sandbox, destroyed after the test."""
        return self.create(**body)["name"]

    def get(self, name):
        return self.ok("GET", f"/v1/sandboxes/{name}").json()

    def stop(self, name):
        return self.ok("POST", f"/v1/sandboxes/{name}/stop").json()

    def resume(self, name):
        return self.ok("POST", f"/v1/sandboxes/{name}/resume").json()

    def destroy(self, name):
        self.ok("DELETE", f"/v1/sandboxes/{name}", 204)

    def clean_up(self):
        for name in self.made:
            self.call("DELETE", f"/v1/sandboxes/{name}")
        self.made = []

    # ---- processes ----

    def run(self, name, *argv, status=200, **body):
        """run(box, "echo", "hi") or run(box, shell="echo hi"); adds out and err as bytes."""
        if argv:
            body["argv"] = list(argv)
        result = self.ok("POST", f"/v1/sandboxes/{name}/run", status, json=body).json()
        for key, stream in (("out", "stdout"), ("err", "stderr")):
            text = result[stream]
            result[key] = base64.b64decode(text, validate=True) if result["encoding"] == "base64" else text.encode()
        return result

    def start(self, name, *argv, **body):
        """The id of a started process."""
        if argv:
            body["argv"] = list(argv)
        return self.ok("POST", f"/v1/sandboxes/{name}/processes", 201, json=body).json()["process_id"]

    def process(self, name, pid, wait_ms=0):
        return self.ok("GET", f"/v1/sandboxes/{name}/processes/{pid}", params={"wait_ms": wait_ms}).json()

    def wait(self, name, pid, rounds=6):
        for _ in range(rounds):
            record = self.process(name, pid, 20000)
            if record["state"] == "finished":
                return record
        raise AssertionError(f"process {pid} does not finish: {record}")

    def output(self, name, pid, stream="stdout", status=200, **query):
        return self.ok("GET", f"/v1/sandboxes/{name}/processes/{pid}/output", status, params={"stream": stream, **query})

    def signal(self, name, pid, number, status=202, **body):
        return self.ok("POST", f"/v1/sandboxes/{name}/processes/{pid}/signal", status, json={"signal": number, **body})

    def attach(self, name, pid, stdout=0, stderr=0, protocol="sandgate.v1", **query):
        """attach(box, pid), attach(box, pid, pty=0, cols=80, rows=24, mode="write")"""
        starts = {} if "pty" in query else {"stdout": stdout, "stderr": stderr}
        return Attach(self, f"/v1/sandboxes/{name}/processes/{pid}/attach", protocol, {**starts, **query})

    def exec(self, name, spec, protocol="sandgate.v1", **query):
        """Starts what the spec says and attaches to it."""
        a = Attach(self, f"/v1/sandboxes/{name}/exec", protocol, query)
        a.socket.send(json.dumps(spec))
        return a

    # ---- files ----

    def put(self, name, path, data, status=None, headers=None, **query):
        answer = self.call("PUT", f"/v1/sandboxes/{name}/files/content", params={"path": path, **query}, data=data,
                           headers={"Content-Type": "application/octet-stream", **(headers or {})})
        assert answer.status_code in ((status,) if status else (201, 204)), answer.text
        return answer

    def file(self, name, path):
        return self.ok("GET", f"/v1/sandboxes/{name}/files/content", params={"path": path}).content


CHANNELS = {1: "stdout", 2: "stderr", 3: "pty"}
APPEND = 2 ** 64 - 1


class Attach:
    """One WebSocket: collects output by stream, checks that offsets are contiguous, keeps the text messages."""

    def __init__(self, client, path, protocol, query):
        self.socket = websocket.create_connection(
            f"{client.url.replace('http', 'ws', 1)}{path}?{urllib.parse.urlencode(query)}",
            header={"Authorization": "Bearer " + client.token}, subprotocols=[protocol], timeout=90)
        assert self.socket.getsubprotocol() == protocol
        self.json = protocol.endswith(".json")
        self.at = {s: query.get(s, 0) for s in CHANNELS.values()}
        self.data = {s: bytearray() for s in CHANNELS.values()}
        self.messages, self.closed = [], None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def take(self, stream, offset, data):
        assert offset == self.at[stream], f"{stream}: expected offset {self.at[stream]}, got {offset}"
        assert not any(m["type"] == "exit" for m in self.messages), "output after exit"
        self.at[stream] += len(data)
        self.data[stream] += data

    def next(self):
        """The next frame, taken in: its type, or None at the close.  Pings are no answer for ever."""
        end = time.monotonic() + 90
        kind, frame = self.socket.recv_data(control_frame=True)
        while kind in (websocket.ABNF.OPCODE_PING, websocket.ABNF.OPCODE_PONG):
            assert time.monotonic() < end, f"nothing but pings: {self.messages} {({s: bytes(d)[-500:] for s, d in self.data.items()})}"
            kind, frame = self.socket.recv_data(control_frame=True)
        if kind == websocket.ABNF.OPCODE_CLOSE:
            self.closed = int.from_bytes(frame[:2], "big")
            self.close_reason = frame[2:].decode()
            return None
        if kind == websocket.ABNF.OPCODE_BINARY:
            assert len(frame) > 9 and frame[0] in CHANNELS
            self.take(CHANNELS[frame[0]], int.from_bytes(frame[1:9], "big"), frame[9:])
            return "data"
        message = json.loads(frame)
        if message["type"] == "data":
            self.take(message["stream"], message["offset"], base64.b64decode(message["data"], validate=True))
            return "data"
        assert self.messages or message["type"] in ("hello", "error"), "hello comes first"
        self.messages.append(message)
        return message["type"]

    def until_close(self):
        while self.next() is not None:
            pass
        return self

    def until_bytes(self, n, stream="stdout"):
        while len(self.data[stream]) < n:
            assert self.next() is not None, f"closed after {len(self.data[stream])} bytes: {self.messages}"
        return self

    def until_text(self, text, stream="pty", after=0):
        """Reads until the stream holds the bytes; where they end."""
        while (found := bytes(self.data[stream]).find(text, after)) < 0:
            assert self.next() is not None, f"closed without {text}: {bytes(self.data[stream])} {self.messages}"
        return found + len(text)

    def until_shown(self, text):
        """Reads until the terminal shows the text, however the program moves about while it draws it."""
        while text not in re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", bytes(self.data["pty"])):
            assert self.next() is not None, f"closed without {text}: {bytes(self.data['pty'])} {self.messages}"

    def until(self, kind, wanted=lambda m: True):
        """The first message of the kind that is wanted, also of those that were there."""
        seen = 0
        while True:
            for m in self.messages[seen:]:
                if m["type"] == kind and wanted(m):
                    return m
            seen = len(self.messages)
            assert self.next() is not None, f"closed ({self.closed}) without {kind}: {self.messages}"

    def message(self, kind):
        found = [m for m in self.messages if m["type"] == kind]
        assert len(found) == 1, f"{kind}: {self.messages}"
        return found[0]

    # ---- what a client says ----

    def send(self, data, offset=APPEND):
        """Input at the offset, in one message."""
        if self.json:
            place = {} if offset == APPEND else {"offset": offset}
            self.say("stdin", data=base64.b64encode(data).decode(), **place)
        else:
            self.socket.send_binary(b"\0" + offset.to_bytes(8, "big") + data)

    def say(self, kind, **fields):
        self.socket.send(json.dumps({"type": kind, **fields}))

    def accepted(self, n):
        """Waits until so much of the input was accepted."""
        return self.until("stdin", lambda m: m["accepted"] >= n)


def problem(answer, status, code):
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    assert answer.headers["Content-Type"].startswith("application/problem+json"), answer.headers
    document = answer.json()
    assert document["code"] == code, document
    assert document["status"] == status
    assert PROBLEM_KEYS <= set(document), f"missing: {PROBLEM_KEYS - set(document)}"
    assert "<html" not in answer.text.lower()
    assert answer.headers["X-Request-Id"] == document["request_id"]
    return document
