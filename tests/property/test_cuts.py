"""Random cuts by the hundred, and a restart under many clients: U2 P01 P02 P08."""
import asyncio
import base64
import concurrent.futures
import json
import os
import random
import secrets
import signal
import threading
import time

import pytest

from exact import PASSING, Reader, Wrong, outcome
from world import World

LONG = "SANDGATE_LONG" in os.environ
CUTS = int(os.environ.get("PROPERTY_CUTS", 1000 if LONG else 50))
ATTACHED = int(os.environ.get("PROPERTY_ATTACHED", 1000 if LONG else 50))
PROCESSES = 4

# Numbered lines until it is told to stop, the number of lines on stderr, then exit 7.
COUNTER = r'''
use strict; use Time::HiRes 'sleep'; $| = 1;
my ($id, $stop) = @ARGV;
open(my $r, '>>', 'ran') or die; syswrite($r, "$id\n") or die; close $r;
my $n = 0;
until (-e $stop) { my $k = int(rand(400)) + 1; print map { $n++ . " is this line of output\n" } 1..$k; sleep 0.02; }
print STDERR "$n\n"; exit 7;
'''


def lines(n):
    return b"".join(b"%d is this line of output\n" % i for i in range(n))


@pytest.fixture
def world(tmp_path, base):
    made = []

    def make(**kw):
        made.append(World(tmp_path / "world", base, **kw))
        return made[-1]

    yield make
    for w in made:
        w.end()


def fired(world):
    return sum(rule["fired"] for rule in world.emulator.admin("GET", "faults")["rules"])


def test_random_cuts_lose_and_repeat_nothing_U2_P01_P02(world, capsys, transports):
    """Of the upstream's streams at random times and places, of clients, of gateways: until there were so many."""
    w = world(replicas=2)
    seed = os.environ.get("SEED", "").partition(":")[0] or str(secrets.randbelow(10 ** 9))
    rng = random.Random(seed)
    box = w.box("cuts")
    w.put(box, "counter.pl", COUNTER.encode())
    session = w.session(box)
    pids = [f"counter-{i}" for i in range(PROCESSES)]
    for pid in pids:
        w.call("POST", f"/v1/sandboxes/{box}/processes", {"id": pid, "argv": ["perl", "counter.pl", pid, "stop"]})
    on = {"method": "POST", "path_regex": f"/sessions/{session}/cmd$"}
    rules = [{"match": on, "action": {action: most(rng)}, "nth": 1, "times": 1} for action, most in
             [("cut_after_ms", lambda r: r.randrange(1, 400)), ("cut_after_bytes", lambda r: int(2 ** r.uniform(0, 17)))] * 20]
    ways = [t for t in transports if t != "run"]
    readers = [Reader(w.endpoints, box, pid, random.Random(f"{seed}:{pid}")) for pid in pids]
    enough, failures = threading.Event(), []

    def follow(reader):
        deadline = None
        try:
            while True:
                drop = reader.rng.uniform(0.02, 0.6) if not enough.is_set() else None
                if reader.connect(reader.rng.choice(ways), drop_seconds=drop):
                    return
                if enough.is_set():
                    deadline = deadline or time.monotonic() + 90
                    if time.monotonic() > deadline:
                        raise Wrong("the exit never came")
        except Exception as e:  # pylint: disable=broad-except
            failures.append(f"{reader.path}: {type(e).__name__}: {e}; {reader.history[-5:]}")
            enough.set()

    total, cut_upstream = 0, 0
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        done = [pool.submit(follow, r) for r in readers]
        deadline = time.monotonic() + 60 + CUTS
        next_kill = time.monotonic() + 1
        while not enough.is_set():
            w.emulator.clear_faults()
            w.emulator.admin("POST", "faults", json=rng.sample(rules, len(rules)))
            threading.Event().wait(0.5)  # how far they get in this time is chance, as it should be
            cut_upstream += fired(w)
            total = cut_upstream + sum(r.drops for r in readers) + sum(r.kills for r in w.replicas)
            if time.monotonic() > next_kill:
                rng.choice(w.replicas).bounce(signal.SIGKILL)
                next_kill = time.monotonic() + 5
            assert time.monotonic() < deadline, f"only {total} cuts"
            if total >= CUTS:
                enough.set()
        w.fault_free()
        w.put(box, "stop", b"")
        for f in done:
            f.result()
    with capsys.disabled():
        print(f"\nSEED={seed}: {cut_upstream} cuts of upstream streams, {sum(r.drops for r in readers)} of clients, "
              f"{sum(r.kills for r in w.replicas)} gateways killed, {sum(len(r.data['stdout']) for r in readers)} bytes", flush=True)
    assert not failures, "\n".join(failures)
    for reader in readers:
        assert bytes(reader.data["stdout"]) == lines(int(reader.data["stderr"])), "a byte was lost or came twice"
        assert outcome(reader.exit) == (7, None)
    assert sorted(w.file(session, "ran").decode().split()) == pids, "one start each"
    assert [w.starts(session, pid) for pid in pids] == [1] * PROCESSES


# ---- a restart under many clients ----


class Attached:
    """A WebSocket on asyncio that comes back at its offset; one program's `tick N` lines."""

    def __init__(self, endpoint, path):
        self.endpoint, self.path, self.at, self.text, self.back = endpoint, path, 0, b"", None

    async def connect(self):
        reader, writer = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
        writer.write((f"GET {self.path}/attach?stdout={self.at} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                      "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: sandgate.v1\r\n"
                      f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
                      f"Authorization: Bearer {self.endpoint.token}\r\n\r\n").encode())
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        if status != 101:
            writer.close()
            assert status in PASSING, head
            raise ConnectionError(f"{status}")
        return reader, writer

    async def frame(self, reader):
        b0, n = await reader.readexactly(2)
        if n > 125:
            n = int.from_bytes(await reader.readexactly(2 if n == 126 else 8), "big")
        return b0 & 15, await reader.readexactly(n)

    async def follow(self):
        while True:
            try:
                reader, writer = await self.connect()
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)
                continue
            try:
                while True:
                    opcode, payload = await self.frame(reader)
                    if opcode == 1:
                        message = json.loads(payload)
                        assert message["type"] == "hello", message
                        assert message["streams"]["stdout"]["next"] == self.at, message
                        self.back = time.monotonic()
                    elif opcode == 2:
                        assert payload[0] == 1 and int.from_bytes(payload[1:9], "big") == self.at, (payload[:9], self.at)
                        self.text += payload[9:]
                        self.at += len(payload) - 9
                    elif opcode == 9:
                        writer.write(b"\x8a\x80" + bytes(4))
                    else:
                        raise AssertionError(f"opcode {opcode}: {payload}")
            except (OSError, asyncio.IncompleteReadError):
                writer.close()


async def restart(replica, clients):
    """Seconds from the moment the new process listened until every client was back at its offset."""
    tasks = [asyncio.ensure_future(c.follow()) for c in clients]

    async def until(condition, what, patience):
        deadline = time.monotonic() + patience
        while not condition():
            for t in tasks:
                if t.done():
                    t.result()
            assert time.monotonic() < deadline, f"never: {what}; {sum(c.back is not None for c in clients)} of {len(clients)}"
            await asyncio.sleep(0.02)

    try:
        await until(lambda: all(c.text.endswith(b"\n") for c in clients), "everybody has a line", 120)
        for c in clients:
            c.back = None
        before = [c.at for c in clients]
        await asyncio.get_running_loop().run_in_executor(None, replica.bounce)
        began = time.monotonic()
        await until(lambda: all(c.back for c in clients), "everybody is back", 60)
        took = max(c.back for c in clients) - began
        await until(lambda: all(c.at > a for c, a in zip(clients, before)), "everybody got more", 60)
        return took
    finally:
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_after_a_restart_every_client_is_back_within_5_s(world, capsys):
    w = world(replicas=1)
    replica = w.replicas[0]
    tick = ["perl", "-e", '$| = 1; my $i = 0; while (1) { print "tick ", $i++, "\\n"; sleep 5 }']
    paths = []
    for first in range(0, ATTACHED, 100):
        box = w.box(f"many-{first}")
        for i in range(first, min(first + 100, ATTACHED)):
            w.call("POST", f"/v1/sandboxes/{box}/processes", {"id": f"tick-{i}", "argv": tick})
            paths.append(f"/v1/sandboxes/{box}/processes/tick-{i}")
    clients = [Attached(replica.endpoint, path) for path in paths]
    took = asyncio.run(restart(replica, clients))
    with capsys.disabled():
        print(f"\n{ATTACHED} clients were back {took:.2f} s after the restart", flush=True)
    for c in clients:
        ticks = c.text.splitlines()
        assert ticks == [b"tick %d" % i for i in range(len(ticks))] and c.text.endswith(b"\n")
    assert took < 5
