"""A client that loses nothing: it keeps the offset of each stream and goes on there, over any transport.

    reader = Reader(endpoints, "box", "pid", rng)
    reader.connect("websocket")        # one connection, until it ends or a Drop says so
    reader.data["stdout"], reader.exit

Every transport yields the same events, (kind, …):

    ("hello", record)
    ("data", stream, offset, bytes)
    ("gap", stream, from, to)
    ("exit", record)
    ("error", problem)                 an `error` record inside the stream
    ("nothing",)                       still there

and raises Cut when the connection is gone or the answer is a passing failure.  The reader checks what it is told: on
one connection nothing twice and nothing left out, no output after the exit, and no byte that differs from one that it
has seen already.
"""
import base64
import http.client
import json
import os
import socket
import struct
import time
import urllib.parse

STREAMS = ("stdout", "stderr")
CHANNELS = {1: "stdout", 2: "stderr", 3: "pty"}
PASSING = {408, 429, 500, 502, 503, 504}  # of reading, which changes nothing: worth another try
SILENCE = 60  # seconds; no connection may be silent for so long


class Cut(Exception):
    """The connection is gone; where it left off is known."""


class Wrong(AssertionError):
    """The server broke its word."""


class Refused(Wrong):
    """A refusal with its problem document."""

    def __init__(self, status, text):
        super().__init__(f"refused with {status}: {text}")
        self.problem = json.loads(text)


class Endpoint:
    """One gateway process: where it listens and the token that it takes."""

    def __init__(self, url, token):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.token, self.url = parts.hostname, parts.port, token, url

    def request(self, method, path, query=None, headers=None, body=None, timeout=SILENCE):
        """An open http.client response; Cut when there is none."""
        if query:
            path += "?" + urllib.parse.urlencode(query)
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers={"Authorization": "Bearer " + self.token, **(headers or {})})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise Cut(f"{method} {path}: {e!r}") from None
        response.connection = connection
        return response

    def json(self, method, path, body=None, query=None):
        """(status, document)."""
        data = None if body is None else json.dumps(body)
        response = self.request(method, path, query, {"Content-Type": "application/json"} if data else None, data)
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as e:
            raise Cut(f"{method} {path}: {e!r}") from None
        finally:
            response.connection.close()
        if response.status == 202 and method != "GET" and "/operations/" in (response.getheader("Location") or ""):
            return self.end_of(response.getheader("Location"))
        return response.status, json.loads(text) if text else None

    def end_of(self, place):
        """What lasts is answered 202 and goes on: (status, document) of its end; Cut where the gateway has died with it."""
        deadline = time.monotonic() + SILENCE
        while time.monotonic() < deadline:
            status, document = self.json("GET", place)  # the place of an operation is not answered with another one
            if status == 404 and document["code"] == "operation_not_found":
                raise Cut(f"{place} is forgotten")
            if status != 202:
                return status, document
            time.sleep(0.05)
        raise Cut(f"{place} does not end")


def refuse(response, body):
    """A refusal before the stream: Cut where trying again makes sense."""
    text = body.decode(errors="replace")
    if response.status in PASSING:
        raise Cut(f"{response.status} {text}")
    raise Refused(response.status, text)


# ---- WebSocket, by hand: what a library would hide is what is tested ----


def frame(opcode, payload=b"", fin=True, rsv=0, masked=True, form=None):
    """A frame as a client sends it; form: the length in 7, 16 or 64 bits instead of the shortest."""
    n = len(payload)
    form = form or (7 if n < 126 else 16 if n < 65536 else 64)
    head = bytes([fin << 7 | rsv << 4 | opcode]) + \
        (bytes([masked << 7 | n]) if form == 7 else
         bytes([masked << 7 | 126]) + struct.pack(">H", n) if form == 16 else bytes([masked << 7 | 127]) + struct.pack(">Q", n))
    if not masked:
        return head + payload
    mask = os.urandom(4)
    long_mask = (mask * (n // 4 + 1))[:n]
    return head + mask + ((int.from_bytes(payload, "big") ^ int.from_bytes(long_mask, "big")).to_bytes(n, "big") if n else b"")


class WebSocket:
    """A client's side of RFC 6455; `next()` gives ("text"|"binary", payload), None at the close."""

    def __init__(self, endpoint, path, query, protocol, timeout=SILENCE, receive_buffer=None):
        target = path + "?" + urllib.parse.urlencode(query) if query else path
        self.buffer, self.closed, self.close_reason, self.pings, self.pongs = bytearray(), None, None, 0, []
        try:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            if receive_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.socket.settimeout(timeout)
            self.socket.connect((endpoint.host, endpoint.port))
            key = base64.b64encode(os.urandom(16)).decode()
            self.socket.sendall((f"GET {target} HTTP/1.1\r\nHost: {endpoint.host}:{endpoint.port}\r\nConnection: Upgrade\r\n"
                                 f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                                 f"Sec-WebSocket-Protocol: {protocol}\r\nAuthorization: Bearer {endpoint.token}\r\n\r\n").encode())
            while b"\r\n\r\n" not in self.buffer:
                self.more()
        except OSError as e:
            self.socket.close()
            raise Cut(f"handshake: {e!r}") from None
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        self.status = int(head.split(b" ", 2)[1])
        if self.status != 101:
            body = self.rest_of_body(head)
            self.socket.close()
            if self.status in PASSING:
                raise Cut(f"handshake: {self.status} {body[:400]}")
            raise Refused(self.status, body.decode())
        if f"sec-websocket-protocol: {protocol}".encode() not in head.lower():
            raise Wrong(f"another subprotocol: {head}")

    def rest_of_body(self, head):
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        try:
            while len(self.buffer) < length:
                self.more()
        except Cut:
            pass
        return bytes(self.buffer)

    def more(self):
        try:
            data = self.socket.recv(1 << 18)
        except socket.timeout:
            raise Cut(f"silent for {self.socket.gettimeout()} s") from None
        except OSError as e:
            raise Cut(repr(e)) from None
        if not data:
            raise Cut("closed without a close frame")
        self.buffer += data

    def take(self, n):
        while len(self.buffer) < n:
            self.more()
        out = bytes(self.buffer[:n])
        del self.buffer[:n]
        return out

    def send(self, opcode, payload=b""):
        self.send_raw(frame(opcode, payload))

    def send_raw(self, data):
        try:
            self.socket.sendall(data)
        except OSError as e:
            raise Cut(repr(e)) from None

    def send_json(self, message):
        self.send(1, json.dumps(message).encode())

    def frame(self):
        """(opcode, payload): servers send whole, unmasked, short-form frames."""
        b0, b1 = self.take(2)
        if b0 & 0x70 or b1 & 0x80:
            raise Wrong(f"a frame that begins {b0:02x} {b1:02x}")
        if not b0 & 0x80:
            raise Wrong("a fragmented frame from the server")
        n = b1
        if n == 126:
            n = struct.unpack(">H", self.take(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.take(8))[0]
        return b0 & 15, self.take(n)

    def next(self, deadline=None):
        while True:
            if deadline and time.monotonic() > deadline:
                raise Wrong("nothing but pings")
            opcode, payload = self.frame()
            if opcode == 9:
                self.pings += 1
                self.send(10, payload)
            elif opcode == 8:
                self.closed = int.from_bytes(payload[:2], "big") if payload else 1005
                self.close_reason = payload[2:].decode()
                return None
            elif opcode == 1:
                return "text", payload.decode()  # P47: always valid
            elif opcode == 2:
                return "binary", payload
            elif opcode == 10:
                self.pongs.append(payload)
            else:
                raise Wrong(f"opcode {opcode}")

    def close(self, how="close"):
        """how: close (the handshake's beginning, then the socket), fin, reset."""
        try:
            if how == "close":
                self.send(8, struct.pack(">H", 1000))
            elif how == "reset":
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (Cut, OSError):
            pass
        self.socket.close()


def websocket_events(protocol):
    def events(reader, endpoint, opened):
        query = {**{s: reader.at[s] for s in reader.streams}, **reader.attach_query}
        ws = WebSocket(endpoint, reader.path + "/attach", query, protocol)
        opened.append(ws)
        first = True
        while True:
            frame = ws.next()
            if frame is None:
                if ws.closed == 1001:
                    raise Cut("draining")
                if ws.closed in (1011, 4008):
                    raise Cut(f"closed with {ws.closed} {ws.close_reason}")
                if ws.closed != 1000:
                    raise Wrong(f"closed with {ws.closed} {ws.close_reason}")
                raise Cut("closed with 1000")
            kind, payload = frame
            if kind == "binary":
                if protocol != "sandgate.v1" or len(payload) <= 9 or payload[0] not in CHANNELS:
                    raise Wrong(f"a binary frame that begins {payload[:9].hex()}")
                if len(payload) > 9 + 65536:
                    raise Wrong(f"a frame with {len(payload) - 9} bytes of payload")
                yield "data", CHANNELS[payload[0]], int.from_bytes(payload[1:9], "big"), payload[9:]
                continue
            message = json.loads(payload)
            if first and message["type"] not in ("hello", "error"):
                raise Wrong(f"hello comes first: {payload[:200]}")
            first = False
            if message["type"] == "data":
                if protocol != "sandgate.v1.json":
                    raise Wrong("a data record in the binary protocol")
                yield "data", message["stream"], message["offset"], base64.b64decode(message["data"], validate=True)
            elif message["type"] == "gap":
                yield "gap", message["stream"], message["from"], message["to"]
            elif message["type"] in ("hello", "exit", "error"):
                yield message["type"], message
            elif message["type"] not in ("keepalive", "presence", "stdin"):
                raise Wrong(f"a message of type {message['type']}")
    return events


# ---- SSE and NDJSON ----


def lines_of(response):
    """Lines as they come, without their LF; Cut when the body ends early or the peer is gone."""
    rest = b""
    while True:
        try:
            data = response.read1(1 << 16)
        except (OSError, http.client.HTTPException) as e:
            raise Cut(repr(e)) from None
        if not data:
            if rest:
                raise Cut("cut inside a line")
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def event_record(kind, record):
    """What SSE and NDJSON have in common."""
    if kind == "data":
        return "data", record["stream"], record["offset"], base64.b64decode(record["data"], validate=True)
    if kind == "gap":
        return "gap", record["stream"], record["from"], record["to"]
    return kind, record


def open_events(reader, endpoint, opened, accept):
    headers = {"Accept": accept}
    query = {}
    if reader.rng.random() < 0.5:
        headers["Last-Event-ID"] = ";".join(f"{s}:{reader.at[s]}" for s in reader.streams)
    else:
        query = {s: reader.at[s] for s in reader.streams}
    response = endpoint.request("GET", reader.path + "/events", query, headers)
    opened.append(response.connection)
    if response.status != 200:
        refuse(response, response.read())
    if not response.headers["Content-Type"].startswith(accept):
        raise Wrong(f"Content-Type {response.headers['Content-Type']}")
    return response


def sse_events(reader, endpoint, opened):
    """By the WHATWG algorithm, strictly: an event counts when its empty line has come."""
    response = open_events(reader, endpoint, opened, "text/event-stream")
    kind, data, last_id, ended = "message", [], None, False
    for raw in lines_of(response):
        line = raw.decode()
        if line == "":
            if data:
                if kind == "end":
                    ended = True
                else:
                    event = event_record(kind, json.loads("\n".join(data)))
                    yield event
                    if event[0] == "data" and last_id is not None:
                        told = dict(part.split(":") for part in last_id.split(";"))
                        if int(told[event[1]]) != event[2] + len(event[3]):
                            raise Wrong(f"id {last_id} after {event[1]} {event[2]}+{len(event[3])}")
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            last_id = value
        elif field not in ("", "retry"):
            raise Wrong(f"SSE field {field!r}")
    if not ended:
        raise Cut("the event stream ended")


def ndjson_events(reader, endpoint, opened):
    response = open_events(reader, endpoint, opened, "application/x-ndjson")
    for raw in lines_of(response):
        if not raw:
            continue
        record = json.loads(raw)
        kind = record["type"]
        if kind == "end":
            return
        if kind not in ("keepalive", "presence"):
            yield event_record(kind, record)
    raise Cut("the lines ended")


# ---- output by offset, and run ----


def output_events(reader, endpoint, opened):
    """Reads each stream by offset until the process record says that there is nothing more."""
    while True:
        for stream in reader.streams:
            at = reader.at[stream]
            query = {"stream": stream, "offset": at, "wait_ms": reader.rng.choice((0, 200, 1500))}
            if reader.rng.random() < 0.5:
                query["limit"] = 1 + int(reader.rng.expovariate(1 / 50000))
            response = endpoint.request("GET", reader.path + "/output", query)
            opened.append(response.connection)
            if response.status == 410:
                problem = json.loads(response.read())
                yield "gap", stream, at, problem["oldest"]
                continue
            if response.status != 200:
                refuse(response, response.read())
            yield from output_body(response, stream, at, query.get("limit"))
            opened.remove(response.connection)
            response.connection.close()
        status, record = endpoint.json("GET", reader.path)
        if status in PASSING:
            raise Cut(f"record: {status}")
        if status != 200:
            raise Wrong(f"record: {status} {record}")
        if record["state"] == "unknown" or record["state"] == "finished" and all(record["streams"][s]["end"] <= reader.at[s] for s in reader.streams):
            yield "exit", {**record, **{s + "_end": record["streams"][s]["end"] for s in reader.streams}}
            return
        yield "nothing",  # the reader may have waited for long enough


def output_body(response, stream, at, limit):
    length = int(response.headers["Content-Length"])
    if limit is not None and length > limit:
        raise Wrong(f"{length} bytes for a limit of {limit}")
    if length and int(response.headers["X-Offset-Next"]) != at + length:
        raise Wrong(f"X-Offset-Next {response.headers['X-Offset-Next']} after {at}+{length}")
    got = 0
    while got < length:
        try:
            data = response.read1(min(length - got, 1 << 16))
        except (OSError, http.client.HTTPException) as e:
            raise Cut(repr(e)) from None
        if not data:
            raise Cut(f"the body ended after {got} of {length}")
        yield "data", stream, at + got, data
        got += len(data)


def run_events(reader, endpoint, opened):
    """The one-shot answer begins at 0: what is known already must be the same, the rest is new."""
    del opened
    status, result = endpoint.json("POST", reader.box_path + "/run", reader.run_body)
    if status in PASSING:
        raise Cut(f"run: {status}")
    if status not in (200, 202):
        raise Wrong(f"run: {status} {result}")
    for stream in reader.streams:
        text = result[stream]
        data = base64.b64decode(text, validate=True) if result["encoding"] == "base64" else text.encode()
        seen = reader.known(stream, 0, len(data))
        if seen is not None and not data.startswith(seen):
            raise Wrong(f"run answered other {stream} than was seen before")
        if len(data) > reader.at[stream]:
            yield "data", stream, reader.at[stream], data[reader.at[stream]:]
    if result["state"] == "unknown":
        yield "exit", result
    elif result["state"] == "finished":
        if result["exit_code"] is None and result["signal"] is None and not result["timed_out"]:
            raise Wrong(f"P03: {status} says finished without code or signal: {result}")
        yield "exit", {**result, "output_complete": result["output_complete"] and not result["truncated"]}


TRANSPORTS = {
    "websocket": websocket_events("sandgate.v1"),
    "websocket json": websocket_events("sandgate.v1.json"),
    "sse": sse_events,
    "ndjson": ndjson_events,
    "output": output_events,
    "run": run_events,
}


class Drop(Exception):
    """The client leaves by its own will."""


class Reader:
    """What one client has of one process, and how it gets the rest."""

    def __init__(self, endpoints, box, pid, rng, streams=STREAMS, run_body=None, may_miss=False, may_be_unknown=False):
        self.endpoints, self.rng, self.streams = endpoints, rng, streams
        self.box_path = f"/v1/sandboxes/{box}"
        self.path = f"{self.box_path}/processes/{pid}"
        self.run_body, self.may_miss, self.may_be_unknown = run_body, may_miss, may_be_unknown
        self.at = {s: 0 for s in streams}
        self.data = {s: bytearray() for s in streams}  # a gap's bytes are zero
        self.gaps = {s: [] for s in streams}
        self.incomplete = None  # an exit that said that output may be missing
        self.exit, self.hello, self.connections, self.cuts, self.drops = None, None, 0, 0, 0
        self.history = []
        self.attach_query = {}  # further ones, of WebSockets

    def known(self, stream, start, end):
        """Bytes seen of start..end (as far as they go), None when a gap lies there."""
        if any(a < end and b > start for a, b in self.gaps[stream]):
            return None
        return bytes(self.data[stream][start:end])

    def connect(self, transport, drop_bytes=None, drop_seconds=None, pause=0.0):
        """One connection to one endpoint, until the exit, a cut, or the client's own leaving after so many bytes or
        seconds.  pause: a slow reader.  True when the exit was told."""
        endpoint = self.rng.choice(self.endpoints())
        self.connections += 1
        opened, left = [], drop_bytes
        deadline = None if drop_seconds is None else time.monotonic() + drop_seconds
        began, why = dict(self.at), "end"
        expected = dict(self.at)
        exited = False
        try:
            for event in TRANSPORTS[transport](self, endpoint, opened):
                if exited:
                    raise Wrong(f"{event[0]} after the exit")
                left = self.take(event, expected, left)
                exited = self.exit is not None
                if not exited and (left is not None and left <= 0 or deadline and time.monotonic() > deadline):
                    raise Drop
                if pause:
                    time.sleep(pause)
        except Cut as e:
            why = str(e)
            self.cuts += not exited
        except Drop:
            why = "drop"
            self.drops += 1
        finally:
            for thing in opened:
                if isinstance(thing, WebSocket):
                    thing.close(self.rng.choice(("close", "fin", "reset")))
                else:
                    thing.close()
            self.history.append((transport, endpoint.port, began, dict(self.at), why[:120]))
        return self.exit is not None

    def take(self, event, expected, left):
        kind = event[0]
        if kind == "data":
            _, stream, offset, data = event
            if stream not in expected or offset != expected[stream]:
                raise Wrong(f"{stream}: offset {offset} instead of {expected.get(stream)}")
            if not data:
                raise Wrong(f"{stream}: a record of no bytes at {offset}")
            expected[stream] += len(data)
            used = data if left is None else data[:max(left, 0)]  # a client may have got only the beginning of a frame
            self.data[stream] += used
            self.at[stream] += len(used)
            return None if left is None else left - len(data)
        if kind == "gap":
            _, stream, start, end = event
            if start != expected[stream] or end <= start:
                raise Wrong(f"{stream}: a gap {start}..{end} at {expected[stream]}")
            if not self.may_miss:
                raise Wrong(f"{stream}: a gap {start}..{end} although everything is kept")
            self.gaps[stream].append((start, end))
            self.data[stream] += bytes(end - start)
            self.at[stream] = expected[stream] = end
        elif kind == "hello":
            self.check_hello(event[1])
        elif kind == "exit":
            self.check_exit(event[1])
        elif kind == "error":
            if event[1]["status"] not in PASSING and event[1]["code"] != "process_lost":
                raise Wrong(f"error record: {event[1]}")
            if event[1]["code"] == "process_lost":
                self.check_exit({"state": "unknown", "exit_code": None, "signal": None})
                return left
            raise Cut(f"error record: {event[1]['code']}")
        return left

    def check_hello(self, record):
        self.hello = record
        for s in self.streams:
            oldest, next_ = record["streams"][s]["oldest"], record["streams"][s]["next"]
            if next_ != max(self.at[s], oldest):
                raise Wrong(f"hello says {s} goes on at {next_}, asked for {self.at[s]}, oldest {oldest}")

    def check_exit(self, record):
        if outcome(record) == (None, None) and not record.get("timed_out"):
            if not self.may_be_unknown:
                raise Wrong(f"nobody killed what waits for it, and yet: {record}")
            self.exit = record
            return
        for s in self.streams:
            end = record.get(s + "_end")
            if end is not None and end != self.at[s] and record.get("output_complete", True) and \
                    not record.get("descendants_hold_output"):
                raise Wrong(f"exit says {s} ends at {end}, {self.at[s]} came before it")
        for before in filter(None, (self.exit, self.incomplete)):
            if outcome(before) != outcome(record):
                raise Wrong(f"another exit than before: {before} {record}")
        if record.get("output_complete") is False and not self.may_miss:
            self.incomplete = record
            raise Cut("an exit with output_complete:false: there is more to read")
        self.exit = record


def outcome(record):
    return record.get("exit_code"), record.get("signal")




# ---- input ----


class Writer:
    """Sends `data` as the input of one process: exactly that, whatever is lost on the way.

    `at` is what is known to be accepted.  After any failure it goes on there, or before: what the process has already is
    passed over.  `done`: all of it was accepted, and the end."""

    def __init__(self, endpoints, box, pid, rng, data):
        self.endpoints, self.rng, self.data = endpoints, rng, data
        self.path = f"/v1/sandboxes/{box}/processes/{pid}"
        self.at, self.done, self.connections = 0, False, 0
        self.history = []

    def send(self, transport):
        """One request or connection, and what became known by it."""
        endpoint = self.rng.choice(self.endpoints())
        self.connections += 1
        began, why = self.at, "end"
        try:
            INPUTS[transport](self, endpoint)
        except Cut as e:
            why = str(e)
        except Wrong:
            why = "wrong"
            raise
        finally:
            self.history.append((transport, endpoint.port, began, self.at, why[:160]))
        return self.done

    def chunk(self):
        """(offset, bytes): from what is accepted on, sometimes from before it."""
        rng = self.rng
        offset = self.at if rng.random() < 0.7 else max(0, self.at - int(rng.expovariate(1 / 3000)))
        size = rng.choice((1, 7, 100, 4096, 65536, int(rng.expovariate(1 / 300000)), 1 << 20))
        return offset, self.data[offset:max(self.at, offset) + size]

    def accepted(self, at, closed):
        if at < self.at or at > len(self.data):
            raise Wrong(f"accepted goes from {self.at} to {at} of {len(self.data)}")
        self.at = at
        if closed:
            if at != len(self.data):
                raise Wrong(f"closed at {at} of {len(self.data)}")
            self.done = True

    def refused(self, problem, closing=False):
        """What an answer tells that is not yes.  closing: the end was sent before, so it may have arrived."""
        code, at = problem["code"], problem.get("accepted")
        if at is not None and code == "stdin_offset":
            self.at = at  # as far as this gateway has heard: going on there is right, as what is known is passed over
        elif at is not None and at < self.at:
            raise Wrong(f"{self.at} bytes were accepted, and now: {problem}")
        elif at is not None:
            self.accepted(at, False)
        if code in ("stdin_closed", "process_finished"):
            if not self.closing and not closing:
                raise Wrong(f"closed by nobody: {problem}")
            self.accepted(len(self.data), True)  # if that is not so, the program's output tells
        elif problem["status"] not in PASSING and code not in ("writer_exists", "writer_replaced", "stdin_offset"):
            raise Wrong(f"input refused: {problem}")

    closing = False


def input_post(writer, endpoint, chunked=False):
    offset, data = writer.chunk()
    end = offset + len(data) == len(writer.data)
    query = {"close": 1} if end else {}
    if writer.rng.random() < 0.5:
        query["takeover"] = 1
    body = (data[i:i + 30000] for i in range(0, len(data), 30000)) if chunked else data
    writer.closing |= end
    response = endpoint.request("POST", writer.path + "/stdin", query, {"Content-Type": "application/octet-stream",
                                                                         "Upload-Offset": str(offset)}, body)
    try:
        text = response.read()
    except (OSError, http.client.HTTPException) as e:
        raise Cut(repr(e)) from None
    finally:
        response.connection.close()
    answer = json.loads(text)
    if response.status == 200:
        if answer["accepted"] < offset + len(data) or (end and not answer["closed"]):  # more: of a connection that was left
            raise Wrong(f"{answer} for {offset}+{len(data)}, end {end}")
        writer.accepted(answer["accepted"], answer["closed"])
        return
    writer.refused(answer)
    raise Cut(f"{response.status} {answer['code']}")


def input_websocket(protocol):
    def send(writer, endpoint):
        """Some messages, then the answers to them; leaves at any time."""
        rng = writer.rng
        try:
            ws = WebSocket(endpoint, writer.path + "/attach", {"stdout": 0, "mode": "write", "takeover": 1}, protocol)
        except Refused as e:
            writer.refused(e.problem)
            return
        try:
            messages = rng.choice((1, 3, 20))
            sent = writer.at
            leave = rng.random() < 0.3
            for _ in range(messages):
                offset, data = writer.chunk()
                offset = min(offset, sent) if rng.random() < 0.2 else sent
                data = writer.data[offset:offset + min(len(data), 1 << 20)]
                if data:
                    if protocol == "sandgate.v1":
                        ws.send(2, b"\0" + struct.pack(">Q", offset) + data)
                    else:
                        ws.send_json({"type": "stdin", "offset": offset, "data": base64.b64encode(data).decode()})
                sent = max(sent, offset + len(data))
                if sent == len(writer.data):
                    writer.closing = True
                    ws.send_json({"type": "stdin_close", "offset": sent})
                    break
            if leave:
                return
            listen(writer, ws, sent)
        finally:
            ws.close(rng.choice(("close", "fin", "reset")))

    def listen(writer, ws, sent):
        deadline = time.monotonic() + SILENCE  # pings are no news
        while writer.at < sent or (writer.closing and sent == len(writer.data) and not writer.done):
            frame_ = ws.next(deadline)
            if frame_ is None:
                raise Cut(f"closed with {ws.closed} {ws.close_reason}")
            if time.monotonic() > deadline:
                raise Wrong(f"{writer.at} of {sent} bytes were accepted in {SILENCE} s, with the end: {writer.closing}")
            if frame_[0] != "text":
                continue  # output: the reader's matter
            message = json.loads(frame_[1])
            if message["type"] == "hello" and message["stdin"].get("accepted", 0) > writer.at:
                writer.accepted(message["stdin"]["accepted"], False)
            elif message["type"] == "stdin":
                writer.accepted(max(message["accepted"], writer.at), message["closed"])
            elif message["type"] == "exit":
                writer.refused({"code": "process_finished", "status": 409})
            elif message["type"] == "error":
                writer.refused(message)
    return send


INPUTS = {
    "post": input_post,
    "post chunked": lambda writer, endpoint: input_post(writer, endpoint, True),
    "websocket": input_websocket("sandgate.v1"),
    "websocket json": input_websocket("sandgate.v1.json"),
}
