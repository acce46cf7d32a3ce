"""The emulator's edge: public names of sandboxes, plain and TLS, lead to the process inside and change nothing on the
way (A19, P48); what is not there is said as the real edge says it (B12, P67, C9)."""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import pathlib
import secrets
import socket
import ssl
import struct
import subprocess

import pytest
import websocket
from harness import PATIENCE, Emulator, binary, clean_env, until
from conftest import watched

SOURCE = (pathlib.Path(__file__).parent / "edge_server.py").read_text()
PATTERN = bytes(range(256)) * 256
API_HOST = "api.vercel.test"


def pattern(n):
    return (PATTERN * (n // len(PATTERN) + 1))[:n]


class Edge(Emulator):
    def __init__(self, directory, base, *options):
        super().__init__(directory, base, "--edge", "127.0.0.1:0", "--edge-tls", "127.0.0.1:0", "--edge-api-hosts",
                         API_HOST, "--route-url-template", "http://{subdomain}.localhost:{edge-port}", *options)
        self.plain = ("127.0.0.1", int(self.ready["edge"].rsplit(":", 1)[1]))
        self.secure = ("127.0.0.1", int(self.ready["edge_tls"].rsplit(":", 1)[1]))
        self.slow = None

    def api(self, method, path, status=200, **kw):
        answer = self.http.request(method, f"{self.url}/api/v2/sandboxes{path}", timeout=PATIENCE, **kw)
        assert answer.status_code == status, answer.text
        return answer.json()

    def tls(self, host, **kw):
        context = ssl.create_default_context(cafile=self.ready["edge_ca"])
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for name, value in kw.items():
            setattr(context, name, value)
        return context.wrap_socket(socket.create_connection(self.secure, PATIENCE), server_hostname=host)


class Box:
    """A sandbox with the test server on its ports, bound to loopback inside only."""

    def __init__(self, edge, ports=(3000,), start=True):
        self.edge, self.name = edge, "edge-" + secrets.token_hex(6)
        self.take(edge.api("POST", "", json={"name": self.name, "ports": list(ports), "projectId": "prj_local"}))
        self.edge_boxes = getattr(edge, "boxes", [])
        self.edge_boxes.append(self)
        edge.boxes = self.edge_boxes
        for port in ports if start else ():
            self.serve(port)

    def take(self, answer):
        self.routes = {r["port"]: r for r in answer["routes"]}
        self.session = answer.get("session", {}).get("id") or answer["sandbox"]["currentSessionId"]

    def serve(self, port, address="127.0.0.1"):
        self.edge.api("POST", f"/sessions/{self.session}/cmd",
                      json={"command": "python3", "args": ["-c", SOURCE, address, str(port), self.name]})
        until(lambda: self.get("/", port).status == 200, f"{self.name}:{port} answers")

    def host(self, port=3000, suffix="vercel.run"):
        return f"{self.routes[port]['subdomain']}.{suffix}"

    def get(self, path="/", port=3000, method="GET", body=None, headers=(), host=None):
        return fetch(socket.create_connection(self.edge.plain, PATIENCE), host or self.host(port), path, method, body,
                     headers)

    def patch(self, **body):
        answer = self.edge.api("PATCH", f"/{self.name}", params={"projectId": "prj_local"}, json=body)
        self.take(answer)
        return answer

    def stop(self):
        return self.edge.api("POST", f"/sessions/{self.session}/stop")

    def resume(self):
        self.take(self.edge.api("GET", f"/{self.name}", params={"projectId": "prj_local", "resume": "true"}))

    def delete(self):
        self.edge.http.delete(f"{self.edge.url}/api/v2/sandboxes/{self.name}", params={"projectId": "prj_local"})


class Answer:
    def __init__(self, raw, method="GET"):
        response = http.client.HTTPResponse(Replay(raw), method=method)
        response.begin()
        self.status, self.headers, self.body = response.status, response.headers, response.read()
        self.error = self.headers.get("X-Vercel-Error")

    def json(self):
        return json.loads(self.body)

    def head(self):
        return base64.b64decode(self.json()["head"])


class Replay:
    def __init__(self, sock):
        self.sock = sock

    def makefile(self, *_):
        return self.sock.makefile("rb")


def fetch(sock, host, path="/", method="GET", body=None, headers=()):
    """One request on a connection of its own."""
    with sock:
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n" + "".join(f"{h}\r\n" for h in headers)
        if body is not None:
            head += f"Content-Length: {len(body)}\r\n"
        sock.sendall(head.encode() + b"\r\n" + (body or b""))
        return Answer(sock, method)


def exchange(sock, data):
    sock.sendall(data)
    return Answer(sock)


@pytest.fixture(scope="module")
def edge_process(tmp_path_factory, base):
    e = Edge(tmp_path_factory.mktemp("edge"), base)
    e.slow = socket.create_connection(e.plain, PATIENCE)  # for test_slow_heads_end
    e.slow.sendall(b"GET / HTTP/1.1\r\n")
    yield e
    e.slow.close()
    code = e.end()
    assert code == 0, f"the emulator ended with {code}:\n{e.text()[-6000:]}"


@pytest.fixture(scope="module")
def shared(edge_process):
    return Box(edge_process, (3000, 3001))


@pytest.fixture
def edge(request, edge_process):
    yield watched(request, edge_process)
    edge_process.clear_faults()


@pytest.fixture
def box(request, edge, shared):
    return shared


@pytest.fixture
def own(edge):
    made = []

    def make(*args, **kw):
        made.append(Box(edge, *args, **kw))
        return made[-1]

    yield make
    for b in made:
        b.delete()


def test_headers_and_target_arrive_byte_for_byte(box):
    """A19, P48: in the order, case and spelling in which they were sent; the answer comes back the same way."""
    head = (f"GET /a%2Fb/%C3%A9//../x?q=%20+%26&empty=&q=%E2%82%AC#no HTTP/1.1\r\nhOsT: {box.host()}\r\n"
            "Authorization: Bearer caller's own\r\nCookie: a=1; b=2\r\nX-Twice: 1\r\nx-twice:2\r\n"
            "X-Forwarded-For: 192.0.2.9\r\nX-Spaces:   kept  \r\nTE: trailers\r\nConnection: keep-alive, X-Hop\r\n"
            "X-Hop: stays\r\nAccept-Encoding: br\r\n\r\n").encode()
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        s.sendall(head)
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += s.recv(65536)
    assert b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Odd:   kept as it is  \r\n" in raw
    assert raw.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    assert box.get("/").status == 200
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        assert exchange(s, head).head() == head


def test_routes_say_where_the_edge_is(box):
    """C9: one name per port; the url leads to the edge because the emulator was told so."""
    first, second = box.routes[3000], box.routes[3001]
    assert first["subdomain"] != second["subdomain"]
    assert first["url"] == f"http://{first['subdomain']}.localhost:{box.edge.plain[1]}"
    assert box.get("/", host=f"{first['subdomain']}.localhost:{box.edge.plain[1]}").json()["name"] == box.name
    assert box.get("/", host=box.host().upper() + ".").json()["name"] == box.name


def test_tls_with_sni_and_a_trusted_certificate(box):
    """The wildcard certificate is verified against the emulator's own authority; .localhost gets one by name."""
    for suffix in ("vercel.run", "localhost"):
        host = box.host(suffix=suffix)
        with box.edge.tls(host) as s:
            cert = s.getpeercert()
            life = ssl.cert_time_to_seconds(cert["notAfter"]) - ssl.cert_time_to_seconds(cert["notBefore"])
            assert life == 7 * 86400 + 3600
            assert s.cipher() and s.version() in ("TLSv1.2", "TLSv1.3")
            digest = hashlib.sha256(pattern(300000)).hexdigest()
            assert fetch(s, host, "/", "POST", pattern(300000)).json()["sha256"] == digest
    with pytest.raises(ssl.SSLCertVerificationError):
        box.edge.tls("elsewhere.example")
    untrusted = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        untrusted.wrap_socket(socket.create_connection(box.edge.secure, PATIENCE), server_hostname=box.host())


def test_tls_requests_stay_with_their_name(box):
    with box.edge.tls(box.host(3000)) as s:
        answer = fetch(s, box.host(3001))
        assert (answer.status, answer.error) == (421, "MISDIRECTED_REQUEST")


def test_authority_survives_a_restart(tmp_path, base):
    first = Edge(tmp_path / "e", base)
    pem = pathlib.Path(first.ready["edge_ca"])
    before = pem.read_bytes()
    assert first.end() == 0
    assert pem.stat().st_mode & 0o777 == 0o644 and (pem.parent / "ca.key").stat().st_mode & 0o777 == 0o600
    assert str(pem) in first.text()
    second = Edge(tmp_path / "e", base)
    assert pem.read_bytes() == before
    assert second.end() == 0


def test_api_hosts_lead_to_the_api(edge, box):
    """One TLS listener can stand in for vercel.com and for *.vercel.run."""
    with edge.tls(API_HOST) as s:
        answer = fetch(s, API_HOST, "/api/v2/sandboxes?projectId=none", headers=[f"Authorization: Bearer {edge.token}"])
    assert answer.status == 200 and answer.json()["sandboxes"] == []
    with edge.tls(API_HOST) as s:  # what the API says of its own address is what the client can reach
        answer = fetch(s, API_HOST, f"/api/v2/sandboxes/sessions/{box.session}/interactive", "POST", b"{}",
                       [f"Authorization: Bearer {edge.token}", "Content-Type: application/json"])
    assert answer.status == 200 and answer.json()["url"].startswith(f"wss://{API_HOST}/"), answer.body


def test_websocket_echo(box):
    """A19: an upgrade is carried, then frames of any size, also over TLS."""
    for secure in (False, True):
        sock = box.edge.tls(box.host()) if secure else socket.create_connection(box.edge.plain, PATIENCE)
        ws = websocket.create_connection(f"ws{'s' if secure else ''}://{box.host()}/ws?x=1", socket=sock,
                                         timeout=PATIENCE)
        for message in ("hello", "é" * 70000):
            ws.send(message)
            assert ws.recv() == message
        ws.send_binary(pattern(1 << 20))
        assert ws.recv() == pattern(1 << 20)
        ws.close()


def test_upgraded_bytes_and_half_close(box):
    """Bytes sent before the 101 are kept; the end of one side is carried, and the other may still speak."""
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        s.sendall(f"GET /raw HTTP/1.1\r\nHost: {box.host()}\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\nearly".encode())
        s.shutdown(socket.SHUT_WR)
        got = s.makefile("rb").read()
    assert got.endswith(b"\r\n\r\nearlyyou have ended")


def test_every_kind_of_body(box):
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        host = box.host()
        assert exchange(s, f"GET /chunked HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).body == b"hello world"
        s.sendall(f"POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        s.sendall(b"5\r\nhel")
        s.sendall(b"lo\r\n6;x=y\r\n world\r\n0\r\nX-T: 1\r\n\r\n")
        answer = Answer(s).json()
        assert (answer["size"], answer["sha256"]) == (11, hashlib.sha256(b"hello world").hexdigest())
        s.sendall(f"HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert Answer(s, "HEAD").headers["Content-Length"] == "1000"
        s.sendall(f"POST / HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n".encode())
        file = s.makefile("rb")
        assert file.readline() + file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"ok")
        assert Answer(s).json()["size"] == 2
        two = f"GET /down?3 HTTP/1.1\r\nHost: {host}\r\n\r\nGET /chunked HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        s.sendall(two)  # two at once: answered in order
        file = s.makefile("rb")
        raw = b""
        while not raw.endswith(b"X-End: yes\r\n\r\n"):
            raw += file.readline()
        assert raw.index(b"\x00\x01\x02HTTP/1.1 200") and b"hello" in raw
        assert exchange(s, f"GET /rest HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).body == b"until the end"
        assert s.recv(1) == b""


def test_one_connection_two_hosts(box):
    """A later request for another name never reaches the first one's process; the same name keeps its connection."""
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        seen = []
        for port in (3000, 3000, 3001, 3000):
            answer = exchange(s, f"GET /{port} HTTP/1.1\r\nHost: {box.host(port)}\r\n\r\n".encode())
            assert box.host(port).encode() in answer.head()
            seen.append((port, answer.json()["connection"]))
        assert seen[0] == seen[1] and seen[3][1] > seen[0][1]
        both = "".join(f"GET /{p} HTTP/1.1\r\nHost: {box.host(p)}\r\n\r\n" for p in (3000, 3001)).encode()
        s.sendall(both)
        assert b"/3000 " in Answer(s).head()
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        exchange(s, f"GET / HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode())
        answer = exchange(s, b"GET / HTTP/1.1\r\nHost: sb-000000000000.vercel.run\r\n\r\n")
        assert (answer.status, answer.error) == (404, "SANDBOX_NOT_FOUND")


def test_large_bodies_both_ways(box):
    """64 MiB in and out, by digest."""
    size = 64 << 20
    body = pattern(size)
    digest = hashlib.sha256(body).hexdigest()
    answer = box.get("/", method="POST", body=body).json()
    assert (answer["size"], answer["sha256"]) == (size, digest)
    down = box.get(f"/down?{size}").body
    assert (len(down), hashlib.sha256(down).hexdigest()) == (size, digest)


def test_nothing_listens(own):
    """P67, B12: 502 with its code until a server is there, then that server."""
    box = own(start=False)
    answer = box.get()
    assert (answer.status, answer.error) == (502, "SANDBOX_NOT_LISTENING")
    assert answer.body.endswith(b"SANDBOX_NOT_LISTENING\n")
    assert box.get(method="HEAD").body == b""
    assert box.get(method="POST", body=b"x" * 200000).status == 502  # the answer outlives what was not read
    box.serve(3000)
    assert box.get().status == 200


def test_localhost_of_either_family(own):
    """P67: "localhost" inside may mean ::1 alone (what Vite listens on by default), 0.0.0.0 means all."""
    box = own((3000, 3001), start=False)
    box.serve(3000, "::1")
    box.serve(3001, "0.0.0.0")
    assert box.get(port=3000, method="POST", body=b"x" * 100000).json()["size"] == 100000
    box.edge.fault({"delay_ms": 50}, times=1, port=3000)
    assert box.get(port=3000).status == 200


def test_a_server_that_gives_no_answer(box):
    assert box.get("/abort").status == 502
    answer = box.get("/early", method="POST", body=b"x" * (8 << 20))
    assert (answer.status, answer.body) == (413, b"large")


def test_stopped_and_resumed(own):
    """C9: 410 while stopped; the names survive; usage numbers count what came through."""
    box = own()
    names = box.routes
    assert box.get("/down?100000").status == 200
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        exchange(s, f"GET / HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode())
        moved = box.stop()["session"]["networkTransfer"]
        assert s.recv(1) == b""  # what was open ends with the session
    assert moved["egress"] > 100000 and 100 < moved["ingress"] < 100000
    answer = box.get()
    assert (answer.status, answer.error) == (410, "SANDBOX_STOPPED")
    box.resume()
    assert box.routes == names
    assert box.get().status == 502
    box.serve(3000)
    assert box.get().status == 200
    sandbox = box.edge.api("GET", f"/{box.name}", params={"projectId": "prj_local"})["sandbox"]
    assert sandbox["totalEgressBytes"] == moved["egress"]
    host = box.host()
    box.delete()
    assert box.get(host=host).error == "SANDBOX_NOT_FOUND"


def test_patched_ports(own):
    """A port that goes stops answering, also on open connections; one that stays keeps its name."""
    box = own((3000, 3001))
    before, gone = dict(box.routes), box.host(3001)
    open_http = socket.create_connection(box.edge.plain, PATIENCE)
    exchange(open_http, f"GET / HTTP/1.1\r\nHost: {gone}\r\n\r\n".encode())
    ws = websocket.create_connection(f"ws://{gone}/ws", socket=socket.create_connection(box.edge.plain, PATIENCE),
                                     timeout=PATIENCE)
    kept = websocket.create_connection(f"ws://{box.host()}/ws", socket=socket.create_connection(box.edge.plain, PATIENCE),
                                       timeout=PATIENCE)
    box.patch(ports=[3000, 3002])
    assert box.routes[3000] == before[3000] and set(box.routes) == {3000, 3002}
    assert box.get(host=gone).error == "SANDBOX_NOT_FOUND"
    with pytest.raises((ConnectionError, websocket.WebSocketException)):
        ws.recv()
    with pytest.raises(ConnectionError):
        assert open_http.recv(1)
        raise ConnectionError("ended without a reset")
    kept.send("still here")
    assert kept.recv() == "still here"
    kept.close()
    assert box.get(port=3002).error == "SANDBOX_NOT_LISTENING"
    box.serve(3002)  # a late port routes at once, unless it was asked otherwise


def test_a_fork_has_names_of_its_own(own):
    """C9: the fork's ports lead to the fork, the source's stay its own."""
    source = own()
    source.stop()
    made = source.edge.api("POST", f"/{source.name}/fork", params={"projectId": "prj_local"},
                           json={"name": source.name + "-fork", "projectId": "prj_local"})
    subdomain = made["routes"][0]["subdomain"]
    assert subdomain != source.routes[3000]["subdomain"]
    assert source.get(host=f"{subdomain}.vercel.run").error == "SANDBOX_NOT_LISTENING"
    assert source.get().error == "SANDBOX_STOPPED"
    source.edge.http.delete(f"{source.edge.url}/api/v2/sandboxes/{source.name}-fork", params={"projectId": "prj_local"})


def test_without_isolation_ports_are_the_hosts(tmp_path):
    """--isolation=none: the edge works the same, on ports that are this host's."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "empty").mkdir()
    subprocess.run([binary("sandgate-emulator"), "import-base", "--isolation=none", "--state", tmp_path / "base",
                    tmp_path / "empty"], env=clean_env(), check=True, timeout=PATIENCE)
    edge = Edge(tmp_path / "e", tmp_path / "base", "--isolation=none")
    try:
        box = Box(edge, (port,))
        assert box.get(port=port).json()["name"] == box.name
        assert "ports" in edge.text()
        box.stop()
        assert box.get(port=port).error == "SANDBOX_STOPPED"
    finally:
        assert edge.end() == 0, edge.text()[-4000:]


def test_late_ports_wait_for_the_next_session(tmp_path, base):
    """B12: --late-ports=502-until-resume."""
    edge = Edge(tmp_path / "e", base, "--late-ports=502-until-resume")
    try:
        box = Box(edge)
        box.patch(ports=[3000, 3001])
        edge.api("POST", f"/sessions/{box.session}/cmd",
                 json={"command": "python3", "args": ["-c", SOURCE, "127.0.0.1", "3001", box.name]})
        ready = "import socket,time\nwhile socket.socket().connect_ex(('127.0.0.1',3001)): time.sleep(.01)"
        edge.api("POST", f"/sessions/{box.session}/cmd", json={"command": "python3", "args": ["-c", ready]})
        listening = "import socket; print(socket.socket().connect_ex(('127.0.0.1',3001)))"

        def up():
            with edge.http.post(f"{edge.url}/api/v2/sandboxes/sessions/{box.session}/cmd", stream=True, timeout=PATIENCE,
                                json={"command": "python3", "args": ["-c", listening], "wait": True, "logs": True}) as r:
                return '"0\\n"' in r.text

        until(up, "the late server listens")
        assert box.get(port=3001).error == "SANDBOX_NOT_LISTENING"
        assert box.get(port=3000).status == 200
        box.stop()
        box.resume()
        box.serve(3001)
    finally:
        assert edge.end() == 0, edge.text()[-4000:]


def test_fault_502_for_the_first_hits(box):
    """Faults on demand, of one port."""
    box.edge.fault({"status": 502}, times=2, port=3001)
    assert box.get().status == 200
    assert [box.get(port=3001).error for _ in range(3)] == ["SANDBOX_NOT_LISTENING"] * 2 + [None]
    box.edge.clear_faults()
    box.edge.fault({"cut_after_bytes": 1000}, times=1, port=3000, path="^/down")
    with pytest.raises(http.client.HTTPException):
        box.get("/down?5000")
    box.edge.fault({"close_before": True}, times=1, subdomain=box.routes[3000]["subdomain"])
    with pytest.raises(ConnectionError):
        box.get()
    box.edge.fault({"delay_ms": 100}, times=1, edge=True)
    assert box.get().status == 200
    with socket.create_connection(box.edge.plain, PATIENCE) as s:  # also on a connection that is open already
        assert exchange(s, f"GET / HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode()).status == 200
        box.edge.fault({"status": 503, "body": "later"}, times=1, edge=True, method="GET")
        assert exchange(s, f"GET / HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode()).body == b"later"
    refused = box.edge.http.post(f"{box.edge.url}/_emulator/faults", timeout=PATIENCE,
                                 json={"match": {"edge": True}, "action": {"lose_answer": True}})
    assert refused.status_code == 400
    assert box.edge.http.get(f"{box.edge.url}/api/v2/sandboxes", timeout=PATIENCE).status_code == 200


def test_requests_that_two_readers_could_read_differently(box):
    host = box.host()
    cases = {
        f"GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n": 400,
        "GET / HTTP/1.1\r\n\r\n": 400,
        f"GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
        f"GET / HTTP/1.1\r\nHost: {host}\r\nX: 1\nY: 2\r\n\r\n": 400,
        f"POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": 400,
        f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}\r\n\r\n": 405,
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 505,
        "GET / HTTP/1.0\r\n\r\n": 404,
        "GET / HTTP/1.1\r\nHost: vercel.run\r\n\r\n": 404,
        "GET / HTTP/1.1\r\nHost: %s\r\nX: %s\r\n\r\n" % (host, "x" * 17000): 431,
    }
    for text, status in cases.items():
        with socket.create_connection(box.edge.plain, PATIENCE) as s:
            answer = exchange(s, text.encode())
            assert answer.status == status, text[:200]
            assert answer.headers["Connection"] == "close" and s.recv(1) == b""
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        big = "GET / HTTP/1.1\r\nHost: %s\r\nX: %s\r\n\r\n" % (host, "x" * (16384 - 40 - len(host)))
        assert len(big) <= 16384 and exchange(s, big.encode()).head() == big.encode()


def test_a_client_that_goes_is_noticed_inside(box):
    """The process inside sees the end of its client; the connection inside does not stay."""
    def open_inside():
        return [c for c in inside(box) if c == "established"]

    before = len(open_inside())
    s = socket.create_connection(box.edge.plain, PATIENCE)
    s.sendall(f"GET /silent HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode())
    until(lambda: len(open_inside()) > before, "the request arrived")
    s.close()
    until(lambda: len(open_inside()) <= before, "the process heard of it")


def inside(box):
    """States of the server's connections, from the kernel's table inside."""
    code = "print(open('/proc/net/tcp').read())"
    answer = box.edge.http.post(f"{box.edge.url}/api/v2/sandboxes/sessions/{box.session}/cmd", timeout=PATIENCE,
                                json={"command": "python3", "args": ["-c", code], "wait": True, "logs": True})
    rows = [line.split() for line in answer.text.replace("\\n", "\n").splitlines()]
    return ["established" for r in rows if len(r) > 3 and r[1].endswith(":%04X" % 3000) and r[3] == "01"]


def test_smoke_many_at_once(box):
    """200 connections open at the same time, each with its own request and answer."""
    def one(i):
        body = struct.pack(">I", i) * 5000
        sock = box.edge.tls(box.host()) if i % 10 == 0 else socket.create_connection(box.edge.plain, PATIENCE)
        with sock:
            barrier.append(i)
            until(lambda: len(barrier) == 200, "all are connected")
            answer = fetch(sock, box.host(3000), f"/{i}", "POST", body)
        return answer.json()["sha256"] == hashlib.sha256(body).hexdigest() and f"/{i} ".encode() in answer.head()

    barrier = []
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        assert all(pool.map(one, range(200)))


def test_a_slow_reader_holds_nobody(box):
    """A download that nobody reads waits in bounded buffers; others go on; then it arrives whole."""
    size = 8 << 20
    with socket.create_connection(box.edge.plain, PATIENCE) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(f"GET /down?{size} HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode())
        for _ in range(20):
            assert box.get().status == 200
        assert Answer(s).body == pattern(size)


def test_nothing_is_left_of_connections(box):
    """However they end: answered, refused, cut by either side, or half open."""
    def descriptors():
        return len(list(pathlib.Path(f"/proc/{box.edge.child.pid}/fd").iterdir()))

    box.get()
    before = descriptors()
    request = f"GET /down?3000000 HTTP/1.1\r\nHost: {box.host()}\r\n\r\n".encode()
    for i in range(60):
        s = socket.create_connection(box.edge.secure if i % 5 == 4 else box.edge.plain, PATIENCE)
        s.sendall([request, request[:20], b"\x16\x03", request.replace(b"/down", b"/silent"), b"nonsense"][i % 5])
        if i % 3 == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    until(lambda: descriptors() <= before, f"{before} descriptors again")


def test_slow_heads_end_and_idle_websockets_stay(edge, box):
    """A head that never ends is answered 408 after ten seconds (it has been open since the first test); a WebSocket
    that says nothing for longer than that is still there."""
    ws = websocket.create_connection(f"ws://{box.host()}/ws", socket=socket.create_connection(edge.plain, PATIENCE),
                                     timeout=PATIENCE)
    with socket.create_connection(edge.plain, PATIENCE) as late:
        late.sendall(b"G")
        edge.slow.settimeout(PATIENCE)
        for sock in (edge.slow, late):
            answer = Answer(sock)
            assert (answer.status, answer.error) == (408, "REQUEST_TIMEOUT")
    ws.send("still here")
    assert ws.recv() == "still here"
    ws.close()


def test_options_that_make_no_sense(tmp_path, base):
    for option in (["--edge", "8080"], ["--edge-suffix", "UPPER.run"], ["--edge-suffix", "a..b"], ["--late-ports", "x"],
                   ["--route-url-template", "http://x"], ["--edge-api-hosts", "a,,b"]):
        done = subprocess.run([binary("sandgate-emulator"), "--state", tmp_path / "s", *option], env=clean_env(),
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 64 and option[0] in done.stderr, option
