"""What users of such systems ran into with streams, each as a test of its own.  (Those that other files prove are named
there.)  The slow ones run with their real times in `make test-long` (SANDGATE_LONG) and scaled here."""
import concurrent.futures
import os
import random
import socket
import subprocess
import threading
import time

import pytest

from client import Client
from edges import address, nginx
from exact import TRANSPORTS, Cut, Endpoint, Reader, WebSocket, outcome
from harness import PATIENCE, Process, binary, clean_env, until

LONG = "SANDGATE_LONG" in os.environ
MIB = 1 << 20
LISTENING = [t for t in TRANSPORTS if t not in ("run", "output")]  # those that stay open
SANITIZED = "release" not in os.environ.get("SANDGATE_BUILD", "asan")


def endpoint(api):
    return Endpoint(api.url, api.token)


def reader(api, box, pid, **kw):
    return Reader(lambda: [endpoint(api)], box, pid, random.Random(pid), **kw)


def read_all(api, box, pid, transport, rounds=1, run_body=None):
    """Everything of one process by one transport: in one connection, unless more rounds are allowed."""
    r = reader(api, box, pid, run_body=run_body)
    for _ in range(rounds):
        if r.connect(transport):
            return r
    raise AssertionError(f"no exit: {r.history}")


def whole(api, box, transport, shell, rounds=1):
    """(stdout, stderr, (exit code, signal)) of a shell line as this transport tells it."""
    body = {"id": "whole-" + transport.replace(" ", "-"), "shell": shell}
    if transport != "run":
        api.start(box, **body)
    r = read_all(api, box, body["id"], transport, rounds, {**body, "max_output": 4 * MIB, "wait_ms": 20000})
    return bytes(r.data["stdout"]), bytes(r.data["stderr"]), outcome(r.exit)


def together(calls):
    """{name: result} of calls made at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = {name: pool.submit(call) for name, call in calls.items()}
        return {name: f.result() for name, f in futures.items()}


# ---- P02, P03: the upstream ends its streams ----


def test_streams_of_the_upstream_that_end_every_2_s_are_one_stream_P02(api, box, emulator):
    """30 s in the long form; 5 s here, cut every 0.5 s.  One connection of the client, one start, by every transport."""
    seconds, every = (30, 2000) if LONG else (5, 500)
    session = api.get(box)["session_id"]
    api.run(box, "true")
    shell = f"echo x >> ran; i=0; while [ $i -lt {seconds * 10} ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 3"
    pids = {}
    for transport in LISTENING:
        with emulator.calls() as calls:
            pids[transport] = api.start(box, shell=shell)
        assert calls.seen() == [("POST", "cmd")], "one command submission"
    emulator.fault({"cut_after_ms": every}, method="POST", path_regex=f"/sessions/{session}/cmd$")
    with emulator.calls() as calls:
        readers = together({t: lambda t=t: read_all(api, box, pids[t], t) for t in LISTENING})
    emulator.clear_faults()
    assert len(calls) >= seconds * 1000 // every // 2 * len(LISTENING), f"the streams were cut, {calls.seen()}"
    for r in readers.values():
        assert bytes(r.data["stdout"]) == b"".join(b"%d\n" % i for i in range(seconds * 10)) and outcome(r.exit) == (3, None)
    assert api.file(box, "ran") == b"x\n" * len(LISTENING)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stream_without_its_last_line_gives_no_exit_of_its_own_P03(api, box, emulator, transport):
    """Cut at every place around the line that tells the exit: then it is asked for, not made up."""
    api.run(box, "true")
    told = set()
    for i, cut in enumerate(range(340, 1000, 60)):
        body = {"id": f"p03-{i}", "shell": f"printf out; exit {i + 1}"}
        api.start(box, **body)
        api.wait(box, body["id"])
        emulator.fault({"cut_after_bytes": cut}, method="POST", path_regex="/cmd$", times=2)
        r = read_all(api, box, body["id"], transport, 3, {**body, "wait_ms": 20000})
        emulator.clear_faults()
        assert outcome(r.exit) == (i + 1, None) and bytes(r.data["stdout"]) == b"out"
        told.add(r.exit["exit_code"])
    assert len(told) == 11


# ---- P05, P06, P07: bytes that chunks, events and lines have trouble with ----


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_character_in_two_writes_P05(api, box, transport):
    out, _, end = whole(api, box, transport, r"printf '\303'; sleep 0.05; printf '\251'")
    assert (out, end) == (b"\xc3\xa9", (0, None))


AWKWARD = ("a\rb\nc\r\nd\u2028e\u2029f\0g\n\n\ndata: x\n\nevent: exit\r\n\r\nid: stdout:9;stderr:9\n\n: comment\n\nretry: 1\n\n"
           '{"type":"exit","exit_code":0}\n\ufeff').encode()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_line_ends_of_every_kind_and_what_looks_like_events_P06(api, box, transport):
    api.put(box, "awkward", AWKWARD)
    out, err, end = whole(api, box, transport, "cat awkward; cat awkward awkward >&2; exit 4")
    assert (out, err, end) == (AWKWARD, AWKWARD * 2, (4, None))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_final_newline_everywhere_P07(api, box, transport):
    out, err, end = whole(api, box, transport, "printf abc; printf de >&2; exit 5")
    assert (out, err, end) == (b"abc", b"de", (5, None))


# ---- P08: between replay and listening ----

LINE = 10  # bytes of each line: what stands at an offset is known


def numbered(start, end):
    first = start // LINE
    text = b"".join(b"%09d\n" % i for i in range(first, end // LINE + 1))
    return text[start - first * LINE:end - first * LINE]


@pytest.mark.parametrize("transport", LISTENING)
def test_attaches_at_random_moments_to_a_fast_writer_P08(api, box, transport):
    """1,000 of them in the long form; from the start, from where it stands just now, and from in between."""
    attaches = (1000 if LONG else 60) // len(LISTENING)
    pid = api.start(box, "perl", "-e", '$| = 1; my $n = 0; while (1) { printf "%09d\\n", $n++ for 1..500; select undef,undef,undef,0.002 }',
                    retention={"bytes": 256 * MIB})

    def attach(i):
        rng = random.Random(f"{transport}{i}")
        end = api.process(box, pid)["streams"]["stdout"]["end"]
        at = rng.choice((end, end, rng.randrange(end + 1), max(0, end - rng.randrange(1, 2 * MIB))))
        r = reader(api, box, pid)
        r.at["stdout"] = at
        r.data["stdout"] = bytearray()
        r.connect(transport, drop_bytes=rng.randrange(1, 300_000), pause=rng.choice((0, 0, 0.005)))
        got = bytes(r.data["stdout"])
        assert got, r.history
        return (at, len(got)) if got == numbered(at, at + len(got)) else f"other bytes after {at}, {len(got)} of them: {r.history}"

    until(lambda: api.process(box, pid)["streams"]["stdout"]["end"] > 100_000, "it writes")
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        results = list(pool.map(attach, range(attaches)))
    api.signal(box, pid, "KILL")
    assert not [r for r in results if isinstance(r, str)], [r for r in results if isinstance(r, str)][:3]


# ---- P11: an early end is an error ----


def test_a_detached_start_is_no_early_end_P11(api, box):
    record = api.ok("POST", f"/v1/sandboxes/{box}/processes", 201, json={"argv": ["sleep", "600"]}).json()
    assert record["state"] == "running" and "error" not in record


@pytest.mark.parametrize("transport", LISTENING)
def test_a_stream_that_ends_without_an_exit_says_why_P11(api, box, transport):
    """The sandbox stops under it: an `error` record, never an exit, never silence."""
    pid = api.start(box, shell="echo begun; sleep 600")
    seen, opened = [], []
    r = reader(api, box, pid)

    def follow():
        try:
            for event in TRANSPORTS[transport](r, endpoint(api), opened):
                seen.append(event)
        except (Cut, AssertionError) as e:
            seen.append(("closed", str(e)))

    follower = threading.Thread(target=follow)
    follower.start()
    until(lambda: any(e[0] == "data" for e in seen), "the stream is open")
    api.stop(box)
    follower.join(PATIENCE)
    assert not follower.is_alive()
    kinds = [e[0] for e in seen]
    assert kinds[0] == "hello" and "exit" not in kinds, seen
    errors = [e[1] for e in seen if e[0] == "error"]
    assert len(errors) == 1 and errors[0]["code"] in ("stale_session", "sandbox_not_running"), seen
    for thing in opened:
        thing.close()


# ---- P12: one reader that does not read ----


def test_a_dead_subscriber_delays_nobody_P12(own_gateway):
    """A never reads and is closed as slow; B has 1 MiB within a second while A is stuck."""
    slow = 30000 if LONG else 3000  # the default, and less
    api = Client(own_gateway(**({} if LONG else {"RELAY_SLOW_READER_MS": slow})))
    box = api.sandbox()
    try:
        pid = api.start(box, shell="head -c 33554432 /dev/zero; until [ -e go ]; do sleep 0.05; done; head -c 1048576 /dev/zero; exit 6",
                        retention={"bytes": 64 * MIB})
        a = WebSocket(endpoint(api), f"/v1/sandboxes/{box}/processes/{pid}/attach", {}, "sandgate.v1", receive_buffer=4096)
        stuck_since = time.monotonic()
        b = reader(api, box, pid)
        b.connect("websocket", drop_bytes=32 * MIB)
        assert len(b.data["stdout"]) == 32 * MIB
        follower = threading.Thread(target=b.connect, args=("websocket",))
        follower.start()
        api.put(box, "go", b"")
        start = time.monotonic()
        follower.join(PATIENCE)
        took = time.monotonic() - start
        assert outcome(b.exit) == (6, None) and len(b.data["stdout"]) == 33 * MIB
        assert took < (2 if SANITIZED else 1), f"{took:.1f} s"  # the program's own look for the file is in it
        time.sleep(max(0.0, stuck_since + slow / 1000 + 1.5 - time.monotonic()))  # the gateway's patience, not ours
        while a.next() is not None:  # what was on its way, and then the reason
            pass
        assert a.closed == 4008, (a.closed, a.close_reason)
    finally:
        api.clean_up()


# ---- P16: memory ----


def peak(gateway, reset=False):
    """Highest resident size since the last reset, bytes."""
    if reset:
        with open(f"/proc/{gateway.child.pid}/clear_refs", "w") as f:
            f.write("5")
    with open(f"/proc/{gateway.child.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) * 1024


def test_much_output_to_a_slow_reader_costs_little_memory_P16(own_gateway, monkeypatch):
    """1 GiB in the long form, 256 MiB here, to a reader that stops again and again."""
    monkeypatch.setenv("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1")
    size = 1024 * MIB if LONG else 256 * MIB
    gateway = own_gateway()
    api = Client(gateway)
    box = api.sandbox()
    try:
        pid = api.start(box, "head", "-c", "2000000", "/dev/zero")  # everything that is needed once is there
        read_all(api, box, pid, "websocket")
        pid = api.start(box, "head", "-c", str(size), "/dev/zero", retention={"bytes": 1024 * MIB})
        before = peak(gateway, reset=True)
        ws = WebSocket(endpoint(api), f"/v1/sandboxes/{box}/processes/{pid}/attach", {}, "sandgate.v1", receive_buffer=65536)
        got = step = 0
        while (message := ws.next()) is not None:
            if message[0] == "binary":
                assert int.from_bytes(message[1][1:9], "big") == got
                got += len(message[1]) - 9
                if got >> 24 > step:
                    step = got >> 24
                    time.sleep(0.1)
        assert got == size and ws.closed == 1000
        grown = peak(gateway) - before
        assert grown <= (16 if SANITIZED else 6) * MIB, f"{grown / MIB:.1f} MiB"
    finally:
        api.clean_up()


# ---- P18, P26: leaving and coming back ----


@pytest.mark.parametrize("transport", LISTENING)
def test_twenty_cuts_of_a_silent_process_P18_P26(api, box, transport):
    """Every attach is acknowledged by a hello before anything else, and none of them costs a budget."""
    pid = api.start(box, shell="until [ -e go ]; do sleep 0.1; done; echo spoken; exit 2")
    r = reader(api, box, pid)
    for _ in range(20):
        opened = []
        events = TRANSPORTS[transport](r, endpoint(api), opened)
        kind, record = next(events)
        assert kind == "hello" and record["state"] == "running"
        for thing in opened:
            thing.close()
        events.close()
    api.put(box, "go", b"")
    r.connect(transport)
    assert bytes(r.data["stdout"]) == b"spoken\n" and outcome(r.exit) == (2, None), "it was never signalled"


# ---- P40: a stream is no request ----


def test_a_stream_outlives_every_timeout_of_requests_P40(own_gateway):
    """Ten times as long as any of them, with nothing said in between."""
    api = Client(own_gateway(SERVER_IDLE_TIMEOUT_MS=1000, UPSTREAM_TIMEOUT_MS=1000, UPSTREAM_CONNECT_TIMEOUT_MS=1000))
    box = api.sandbox()
    try:
        pids = {t: api.start(box, shell="echo a; sleep 11; echo b; exit 1") for t in LISTENING}
        for r in together({t: lambda t=t: read_all(api, box, pids[t], t) for t in LISTENING}).values():
            assert r.connections == 1 and bytes(r.data["stdout"]) == b"a\nb\n" and outcome(r.exit) == (1, None)
    finally:
        api.clean_up()


# ---- P42: behind nginx ----


class Nginx(Process):
    """As the distribution configures it, with one `location` in front of the gateway."""

    def __init__(self, directory, url, more=""):
        directory.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        host, up = address(url)
        temp = "".join(f" {kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (directory / "nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid {directory}/pid; error_log stderr;\nevents {{ worker_connections 256; }}\n"
            f"http {{ access_log off;{temp} gzip on; gzip_types *; map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}\n"
            f" server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{host}:{up}; {more} }} }} }}\n")
        super().__init__([nginx(), "-p", directory, "-c", directory / "nginx.conf"], directory / "nginx.log")
        self.url = f"http://127.0.0.1:{port}"
        until(lambda: self.alive() and not socket.socket().connect_ex(("127.0.0.1", port)), "nginx listens")


WITH_UPGRADE = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;"


@pytest.fixture
def behind(gateway, tmp_path):
    """behind(options): the gateway's endpoint behind an nginx."""
    made = []

    def make(more=""):
        made.append(Nginx(tmp_path / f"nginx{len(made)}", gateway.url, more))
        return Endpoint(made[-1].url, gateway.token)

    yield make
    for n in made:
        n.end()


@pytest.mark.parametrize("transport", LISTENING)
def test_the_first_byte_comes_at_once_behind_stock_nginx_P42(api, box, behind, transport):
    """Whose buffers would hold it back for as long as the process runs.  WebSockets need the usual two headers."""
    edge = behind(WITH_UPGRADE if "websocket" in transport else "")
    pid = api.start(box, shell="sleep 0.3; echo first; sleep 600")
    until(lambda: api.process(box, pid)["streams"]["stdout"]["end"], "it was printed")
    r, opened = reader(api, box, pid), []
    start = time.monotonic()
    for event in TRANSPORTS[transport](r, edge, opened):
        if event[0] == "data":
            break
    took = time.monotonic() - start
    assert event == ("data", "stdout", 0, b"first\n")
    assert took < (2 if SANITIZED else 1), f"{took:.2f} s"
    for thing in opened:
        thing.close()


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_streams_tell_proxies_to_keep_off_P42(api, box, accept):
    pid = api.start(box, "sleep", "600")
    response = endpoint(api).request("GET", f"/v1/sandboxes/{box}/processes/{pid}/events", headers={"Accept": accept})
    assert response.headers["X-Accel-Buffering"] == "no"
    assert {w.strip() for w in response.headers["Cache-Control"].split(",")} >= {"no-store", "no-transform"}
    response.connection.close()


# ---- P43: a peer that is there no more ----


def descriptors(gateway):
    return len(os.listdir(f"/proc/{gateway.child.pid}/fd"))


def test_a_half_open_peer_is_noticed_P43(own_gateway):
    """A client that answers no ping: its place and its descriptor are free after two of them."""
    ping = 20000 if LONG else 500
    gateway = own_gateway(SERVER_PING_MS=ping)
    api = Client(gateway)
    box = api.sandbox()
    try:
        pid = api.start(box, "sleep", "600")
        path = f"/v1/sandboxes/{box}/processes/{pid}/attach"
        before = descriptors(gateway)
        answering = WebSocket(endpoint(api), path, {}, "sandgate.v1")
        assert answering.next()[0] == "text"
        dead = [WebSocket(endpoint(api), path, {}, "sandgate.v1") for _ in range(5)]
        for ws in dead:
            assert ws.frame()[0] == 1  # hello; from here on nothing is read
        assert descriptors(gateway) >= before + 6
        keeper = threading.Thread(target=answers_pings, args=(answering,), daemon=True)
        keeper.start()
        until(lambda: len(gateway.events("websocket_lost")) == 5, "all five are noticed", 4 * ping / 1000 + 10)
        until(lambda: descriptors(gateway) <= before + 2, "their descriptors are free")
        assert keeper.is_alive(), "the one that answers stays"
        for ws in dead:
            ws.socket.close()
        answering.close()
    finally:
        api.clean_up()


def answers_pings(ws):
    try:
        while ws.next() is not None:
            pass
    except Cut:
        pass


# ---- P37, P39: idle limits of proxies ----


def test_an_idle_attach_outlives_the_proxys_idle_limit_P37(own_gateway, tmp_path):
    """Five minutes behind nginx with 60 s in the long form; here 10 s behind 2 s, with pings as much quicker."""
    limit, idle = (60, 300) if LONG else (2, 10)
    gateway = own_gateway(**({} if LONG else {"SERVER_PING_MS": 700, "RELAY_KEEPALIVE_MS": 700, "SERVER_PROXY_IDLE_MS": 2000}))
    edge = Nginx(tmp_path / "nginx", gateway.url, WITH_UPGRADE + f"proxy_read_timeout {limit}s; proxy_send_timeout {limit}s;")
    api = Client(gateway)
    box = api.sandbox()
    try:
        pids = {t: api.start(box, shell=f"sleep {idle}; echo spoken; exit 1") for t in LISTENING}

        def follow(transport):
            r = Reader(lambda: [Endpoint(edge.url, gateway.token)], box, pids[transport], random.Random(1))
            r.connect(transport)
            return r

        for transport, r in together({t: lambda t=t: follow(t) for t in LISTENING}).items():
            assert bytes(r.data["stdout"]) == b"spoken\n" and outcome(r.exit) == (1, None), (transport, r.history)
    finally:
        api.clean_up()
        edge.end()


def test_a_ping_period_that_meets_the_idle_limit_is_refused_P39(tmp_path):
    done = subprocess.run([binary("sandgate"), "serve", "--set", "server.proxy_idle_ms=60000", "--set", "server.ping_ms=30000"],
                          env=clean_env(), capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.returncode != 0 and "less than half of server.proxy_idle_ms" in done.stderr, done.stderr


# ---- P17: old and quiet ----


def test_attach_to_an_old_quiet_process_P17(own_gateway):
    """Ten minutes in the long form.  Nobody has looked at it for so long that no stream to it is open."""
    age = 600 if LONG else 6
    api = Client(own_gateway(**({} if LONG else {"RELAY_QUIET_MS": 500})))
    box = api.create(timeout_ms=2700000)["name"]
    try:
        pid = api.start(box, shell="echo first; until [ -e go ]; do sleep 0.2; done; echo next; exit 1")
        time.sleep(age)  # that is what it is about
        pids = {t: reader(api, box, pid) for t in LISTENING}
        for transport, r in pids.items():
            r.connect(transport, drop_bytes=6)
            assert bytes(r.data["stdout"]) == b"first\n"
        waiting = {t: lambda t=t: pids[t].connect(t) for t in LISTENING}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            all_of_them = pool.submit(together, waiting)
            api.put(box, "go", b"")
            all_of_them.result()
        for transport, r in pids.items():
            assert bytes(r.data["stdout"]) == b"first\nnext\n" and outcome(r.exit) == (1, None), (transport, r.history)
    finally:
        api.clean_up()


# ---- P60: attempts ----


@pytest.mark.parametrize("retries", [0, 2])
def test_attempts_are_not_multiplied_P60(own_gateway, api, box, emulator, retries):
    """An upstream that is always unavailable sees at most 1 + retries attempts of a read, and one of a command."""
    fresh = Client(own_gateway(UPSTREAM_RETRIES=retries))
    api.run(box, "true")
    assert fresh.run(box, "true")["exit_code"] == 0
    emulator.fault({"status": 503}, method="GET")
    with emulator.calls() as calls:
        assert fresh.call("GET", f"/v1/sandboxes/{box}").status_code == 503
    assert 1 <= len(calls) <= 1 + retries, calls.seen()
    emulator.clear_faults()
    emulator.fault({"status": 503}, method="POST", times=4)
    with emulator.calls() as calls:
        answer = fresh.call("POST", f"/v1/sandboxes/{box}/processes", json={"id": "p60", "argv": ["true"]})
    assert answer.status_code >= 500
    bodies = [e["body_sha256"] for e in calls.entries if e["path"].endswith("/cmd")]
    assert bodies.count(bodies[0]) == 1, "the command itself left once; what follows settles its fate"
    emulator.clear_faults()


# ---- P63: no waiting for the dead ----


@pytest.mark.parametrize("way", ["stop", "kill"])
@pytest.mark.parametrize("waiting", ["process", "output", "run"])
def test_a_wait_ends_with_the_session_P63(api, box, emulator, waiting, way):
    """However the session ends: by a stop, or by the death of all that is in it."""
    session = api.get(box)["session_id"]
    pid = api.start(box, "sleep", "600")
    base = f"/v1/sandboxes/{box}"
    asked = {
        "process": lambda: api.call("GET", f"{base}/processes/{pid}", params={"wait_ms": 25000}),
        "output": lambda: api.call("GET", f"{base}/processes/{pid}/output", params={"wait_ms": 25000}),
        "run": lambda: api.call("POST", f"{base}/run", json={"argv": ["sleep", "600"], "wait_ms": 25000}),
    }[waiting]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        start = time.monotonic()
        answer = pool.submit(asked)
        threading.Event().wait(1)  # so that it waits already; were it not, the test would pass all the more
        path = f"/v2/sandboxes/sessions/{session}/stop" if way == "stop" else f"/v2/sandboxes/{box}"
        emulator.http.request("POST" if way == "stop" else "DELETE", emulator.url + path, timeout=PATIENCE,
                              params={"teamId": "team_local", "projectId": "prj_local"})
        got = answer.result()
    assert time.monotonic() - start < 15, "it waited for a box that was dead"
    assert got.status_code in (404, 409, 502) or got.json()["state"] in ("finished", "unknown", "ended_by_session"), got.text
    if got.status_code < 300:
        assert got.json()["exit_code"] != 0
