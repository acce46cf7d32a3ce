"""Whatever a client sends to a program, the program reads exactly that, through cuts at every hop: A12 U2 P22 P25.

    SEED=12345:17 tests/run --only property        the case with this number alone
"""
import concurrent.futures
import hashlib
import os
import threading
import time

import pytest

from exact import INPUTS, TRANSPORTS, Reader, Wrong, Writer, outcome
from programs import random_for
from test_streams_property import SECONDS, fault_plan, kill_plan, seed_given, start
from world import World

WORKERS = 2

# Says that it runs, then copies its input as slowly as told: bytes at a time, pause in ms; ends with its length modulo 100.
COPIER = r'''
use strict; my ($id, $size, $pause) = @ARGV;
open(my $r, '>>', 'ran') or die; syswrite($r, "$id\n") or die; close $r;
my ($n, $bytes) = (0, '');
while (my $got = sysread(STDIN, $bytes, $size)) {
    $n += $got;
    for (my $at = 0; $at < $got; ) { $at += syswrite(STDOUT, $bytes, $got - $at, $at) }
    select(undef, undef, undef, $pause / 1000) if $pause;
}
exit $n % 100;
'''


def input_faults(rng, session):
    """Of the endpoint that carries input, and of the interactive one."""
    stdin = {"method": "POST", "path_regex": f"/sessions/{session}/cmd/.*/stdin$"}
    kinds = [
        lambda: (stdin, {"lose_answer": True}), lambda: (stdin, {"close_before": True}), lambda: (stdin, {"status": 504}),
        lambda: (stdin, {"status": 429, "headers": {"Retry-After": "1"}}), lambda: (stdin, {"delay_ms": rng.randrange(10, 600)}),
        lambda: (stdin, {"no_stdin_offsets": True}), lambda: (stdin, {"cut_after_bytes": rng.randrange(0, 200)}),
        lambda: ({"method": "POST", "path_regex": f"/sessions/{session}/interactive$"},
                 rng.choice(({"status": 500}, {"status": 404}, {"lose_answer": True}, {"delay_ms": 300}))),
        lambda: ({"path": "/ws/interactive"}, {"cut_after_ms": rng.randrange(1, 1500)}),
        lambda: ({"path": "/ws/interactive"}, {"cut_after_bytes": rng.randrange(1, 5000)}),
    ]
    rules = []
    for _ in range(rng.choice((0, 1, 2, 4))):
        match, action = rng.choice(kinds)()
        rules.append({"match": match, "action": action, "nth": rng.randrange(1, 5), "times": rng.randrange(1, 5)})
    return rules


class Case:
    def __init__(self, world, box, session, seed, number):
        self.world, self.box, self.session, self.number = world, box, session, number
        self.rng = rng = random_for(f"{seed}:input:{number}")
        self.pid = f"i{seed}-{number}"
        size = int(2 ** rng.uniform(0, 21.5))
        self.data = rng.randbytes(size) if rng.random() < 0.7 else (b"\0\x03\x04\x1a\r\n\xff" * (size // 7 + 1))[:size]
        reads = rng.choice((1, 100, 4096, 65536, 1 << 20)) if size < 3000 else rng.choice((4096, 65536, 1 << 20))
        self.program = [str(reads), str(rng.choice((0, 0, 1, 20)) if size / reads < 200 else 0)]
        self.rules = input_faults(rng, session) + fault_plan(rng, session)
        self.kills = kill_plan(rng, len(world.replicas))
        self.reader = self.writer = None
        self.failed = []

    def __str__(self):
        text = [f"case {self.number}: {len(self.data)} bytes to {self.program}",
                f"faults {[(r['match'].get('path_regex', r['match'].get('path'))[-12:], r['action'], r.get('nth'), r.get('times')) for r in self.rules]}",
                f"kills {[(round(t, 2), i, s.name) for t, i, s in self.kills]}"]
        for who in (self.writer, self.reader):
            text += [f"{type(who).__name__} {h}" for h in who.history[-14:]] if who else []
        return "\n  ".join(text)

    def kill(self, began, over):
        for at, i, number in self.kills:
            if over.wait(max(0.0, began + at - time.monotonic())):
                return
            try:
                self.world.replicas[i].bounce(number)
            except AssertionError as e:
                self.failed.append(e)

    def follow(self, transports, over):
        deadline = time.monotonic() + 120
        try:
            while not self.reader.connect(self.rng_reader.choice(transports), drop_seconds=20):
                if over.is_set() or time.monotonic() > deadline:
                    record = self.world.call("GET", self.reader.path)
                    raise Wrong(f"the exit never came; {len(self.reader.data['stdout'])} of {len(self.data)} bytes did: {record}")
                time.sleep(0.02)
        except Exception as e:  # pylint: disable=broad-except
            self.failed.append(e)

    def start(self):
        body = {"id": self.pid, "argv": ["perl", "copier.pl", self.pid, *self.program], "stdin": "open"}
        return start(lambda: self.rng.choice(self.world.endpoints()), self.box, body)

    def run(self, ways_in, ways_out):
        world = self.world
        world.fault(self.rules)
        over = threading.Event()
        threads = [threading.Thread(target=self.kill, args=(time.monotonic(), over))]
        try:
            if not self.start():
                return False
            self.reader = Reader(world.endpoints, self.box, self.pid, random_for(self.pid + "r"))
            self.reader.attach_query = {"mode": "watch"}
            self.rng_reader = self.reader.rng
            self.writer = Writer(world.endpoints, self.box, self.pid, self.rng, self.data)
            threads.append(threading.Thread(target=self.follow, args=(ways_out, over)))
            for t in threads:
                t.start()
            deadline = time.monotonic() + 90
            while not self.writer.send(self.rng.choice(ways_in)):
                if self.failed:
                    raise self.failed[0]
                if time.monotonic() > deadline:
                    raise Wrong("the input was never accepted")
                time.sleep(self.rng.choice((0, 0, 0.05)))
            threads[-1].join(45)
        finally:
            over.set()
            for t in threads:
                if t.ident:
                    t.join()
        if self.failed:
            raise self.failed[0]
        self.check()
        return True

    def check(self):
        got = bytes(self.reader.data["stdout"])
        if got != self.data:
            at = next((i for i, (a, b) in enumerate(zip(got, self.data)) if a != b), min(len(got), len(self.data)))
            raise Wrong(f"the program read {len(got)} bytes instead of {len(self.data)}, other from {at} on; "
                        f"{hashlib.sha256(got).hexdigest()[:8]}")
        if outcome(self.reader.exit) != (len(self.data) % 100, None):
            raise Wrong(f"exit {self.reader.exit}")
        ran = [line for line in self.world.file(self.session, "ran").decode().split() if line == self.pid]
        if ran != [self.pid]:
            raise Wrong(f"it ran {len(ran)} times")


@pytest.fixture(scope="module")
def world(tmp_path_factory, base):
    w = World(tmp_path_factory.mktemp("input"), base)
    yield w
    w.end()


def test_the_program_reads_what_the_client_sent(world, capsys):
    seed, only = seed_given()
    ways_in, ways_out = list(INPUTS), [t for t in TRANSPORTS if t != "run"]
    with capsys.disabled():
        print(f"\nSEED={seed}{'' if only is None else f':{only}'} ({SECONDS * 0.6:.0f} s)", flush=True)
    numbers, lock, failures, done = iter(range(10 ** 9)), threading.Lock(), [], []
    deadline = time.monotonic() + SECONDS * 0.6

    def work(worker):
        box = world.box(f"input-{worker}")
        world.put(box, "copier.pl", COPIER.encode())
        session = world.session(box)
        while time.monotonic() < deadline and not failures:
            with lock:
                case = Case(world, box, session, seed, next(numbers) if only is None else only)
            try:
                if case.run(ways_in, ways_out):
                    done.append(case)
            except Exception as e:  # pylint: disable=broad-except
                failures.append(f"SEED={seed}:{case.number}\n  {type(e).__name__}: {e}\n  {case}")
            if only is not None:
                return

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for f in [pool.submit(work, i) for i in range(1 if only is not None else WORKERS)]:
            f.result()
    used = {t for c in done for t, *_ in c.writer.history}
    with capsys.disabled():
        print(f"{len(done)} programs, {sum(len(c.data) for c in done)} bytes, {sum(c.writer.connections for c in done)} requests "
              f"and connections, {sum(r.kills for r in world.replicas)} gateways killed", flush=True)
    assert not failures, "\n\n".join(failures)
    assert done and (only is not None or used == set(ways_in)), f"never used: {set(ways_in) - used}"
