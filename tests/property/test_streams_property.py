"""Whatever a program writes, a client assembles exactly that, through cuts at every hop: U2 U3 U5 A12 A14 C7 P01 P02 P08.

    SEED=12345 make test            the same cases again
    SEED=12345:17 tests/run --only property       that case alone
    PROPERTY_SECONDS=3600 tests/run --only property

Each case is a random program, a random plan of faults of the upstream, a random plan of kills of the gateways, and a
client that leaves at random and comes back by a random transport to a random gateway.
"""
import concurrent.futures
import os
import secrets
import signal
import threading
import time

import pytest
from exact import PASSING, TRANSPORTS, Cut, Reader, Wrong, outcome
from programs import WRITER, Program, random_for
from world import World

LONG = "SANDGATE_LONG" in os.environ
SECONDS = float(os.environ.get("PROPERTY_SECONDS", 600 if LONG else 30))
WORKERS = 3


def seed_given():
    """(seed, only case or None)."""
    text = os.environ.get("SEED", "") or str(secrets.randbelow(10 ** 9))
    seed, _, case = text.partition(":")
    return seed, int(case) if case else None


@pytest.fixture(scope="module")
def world(tmp_path_factory, base):
    w = World(tmp_path_factory.mktemp("world"), base)
    yield w
    w.end()


def fault_plan(rng, session):
    """Rules of one case: cuts, lost answers, bursts of refusals, on any of its calls."""
    def on(action, **more):
        return {"match": {"method": "POST", "path_regex": f"/sessions/{session}/cmd$"}, "action": action, **more}

    kinds = [
        lambda: on({"cut_after_ms": 2000}),
        lambda: on({"cut_after_ms": rng.randrange(50, 1500)}, times=rng.randrange(1, 12)),
        lambda: on({"cut_after_bytes": int(2 ** rng.uniform(0, 21))}, times=rng.randrange(1, 12)),
        lambda: on({"cut_after_bytes": int(2 ** rng.uniform(5, 12))}, nth=rng.randrange(1, 5), times=rng.randrange(1, 6)),
        lambda: on({"lose_answer": True}, nth=rng.randrange(1, 6), times=rng.randrange(1, 3)),
        lambda: on({"close_before": True}, nth=rng.randrange(2, 6), times=rng.randrange(1, 4)),
        lambda: on({"status": 429, "headers": {"Retry-After": "1"}}, nth=rng.randrange(2, 6), times=rng.randrange(1, 4)),
        lambda: on({"status": rng.choice((500, 502, 503, 504))}, nth=rng.randrange(1, 6), times=rng.randrange(1, 6)),
        lambda: on({"html": 502}, nth=rng.randrange(1, 6), times=1),
        lambda: on({"malformed": True}, nth=rng.randrange(2, 6), times=1),
        lambda: on({"delay_ms": rng.randrange(10, 700)}, times=rng.randrange(1, 8)),
        lambda: on({"drip_bytes": rng.randrange(1, 3000), "drip_ms": rng.randrange(1, 20)}, nth=rng.randrange(1, 4), times=1),
        lambda: {"match": {"method": "GET", "path_regex": f"/sessions/{session}/cmd/.*/logs$"},
                 "action": {"cut_after_bytes": int(2 ** rng.uniform(0, 12))}, "times": rng.randrange(1, 4)},
    ]
    rules = [rng.choice(kinds)() for _ in range(rng.choice((0, 1, 2, 3, 5)))]
    return sorted(rules, key=lambda r: r["action"] == {"cut_after_ms": 2000})  # the one without end comes last


def kill_plan(rng, replicas):
    """[(seconds after the start, replica, signal)]"""
    if rng.random() < 0.6:
        return []
    return sorted((rng.uniform(0, 4), rng.randrange(replicas), rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
                  for _ in range(rng.choice((1, 1, 2))))


def start(endpoint, box, body):
    """True: it runs, or has run.  False: it never will.

    What an answer says of its outcome it says of its own request.  So `not_started` settles the matter only as long as no
    earlier request is in doubt; after one, 409 does: the id is used up."""
    doubt = False
    for _ in range(300):
        try:
            status, document = endpoint().json("POST", f"/v1/sandboxes/{box}/processes", body)
        except Cut:
            doubt = True
            time.sleep(0.1)
            continue
        if status == 201:
            return True
        if document["outcome"] in ("not_started", "not_sent"):
            if status == 409 or status in PASSING and not doubt:
                return False
        else:
            doubt = True
        if status not in PASSING:
            raise Wrong(f"start: {status} {document}")
        time.sleep(0.1)
    raise Wrong(f"start: {status} {document}")


class Case:
    def __init__(self, world, box, session, seed, number):
        self.world, self.box, self.session, self.number = world, box, session, number
        self.name = f"{seed}-{number}"
        self.rng = random_for(f"{seed}:{number}")
        self.program = Program(self.rng)
        self.rules = fault_plan(self.rng, session)
        self.kills = kill_plan(self.rng, len(world.replicas))
        self.failed_kill = None
        self.ids = []
        self.reader = None

    def __str__(self):
        text = [f"case {self.number}: {self.program}; ids {self.ids}", f"faults {[(r['action'], r.get('nth'), r.get('times')) for r in self.rules]}",
                f"kills {[(round(t, 2), i, s.name) for t, i, s in self.kills]}"]
        if self.reader:
            text += [f"connection {h}" for h in self.reader.history[-12:]]
        return "\n  ".join(text)

    def kill(self, began, over):
        for at, i, number in self.kills:
            if over.wait(max(0.0, began + at - time.monotonic())):
                return
            try:
                self.world.replicas[i].bounce(number)
            except AssertionError as e:
                self.failed_kill = e
                return

    def start(self, body):
        """A start by id is exactly once, so it is repeated until its fate is known; one that provably did not happen is
        tried again under another id, as its caller would."""
        for attempt in range(12):
            pid = f"c{self.name}-{attempt}"
            self.ids.append(pid)
            body = {**body, "id": pid, "argv": self.program.argv(self.name, pid)}
            if start(lambda: self.rng.choice(self.world.endpoints()), self.box, body):
                return pid, body
        raise Wrong("the program cannot be started")

    def run(self, transports):
        world, rng = self.world, self.rng
        world.put(self.box, f"{self.name}.plan", self.program.plan())
        world.put(self.box, f"{self.name}.data", self.program.data())
        world.fault(self.rules)
        over = threading.Event()
        killer, receipts = threading.Thread(target=self.kill, args=(time.monotonic(), over)), None
        killer.start()
        try:
            program = self.program
            spec = {"pty": {"cols": 80, "rows": 24}} if program.terminal else {}
            if program.ring or program.lossless:
                spec["retention"] = {"bytes": program.ring or 65536, "mode": "lossless" if program.lossless else "ring"}
            pid, body = self.start(spec)
            self.reader = Reader(world.endpoints, self.box, pid, rng, streams=tuple(program.want), may_miss=bool(program.ring),
                                 may_be_unknown=program.end[0] == "orphan",
                                 run_body={**body, "max_output": 4 << 20, "wait_ms": 3000})
            if program.lossless:
                receipts = threading.Thread(target=self.acknowledge, args=(over,))
                receipts.start()
            self.follow([t for t in transports if t != "run" or not spec], time.monotonic() + 90)
            self.check(pid)
        finally:
            over.set()
            killer.join()
            if receipts:
                receipts.join()
        if self.failed_kill:
            raise self.failed_kill

    def acknowledge(self, over):
        """Receipts for what the reader has, by requests of their own; one that is lost is followed by the next."""
        own = random_for(self.name)
        while not over.wait(0.05):
            try:
                own.choice(self.world.endpoints()).json("POST", self.reader.path + "/ack", dict(self.reader.at))
            except Cut:
                pass

    def follow(self, transports, deadline):
        reader, rng = self.reader, self.rng
        total = sum(len(w) for w in self.program.want.values())
        leaves = rng.choice((0, 1, 3, 10))
        while True:
            leaving = reader.drops < leaves
            drop_bytes = int(2 ** rng.uniform(0, max(total, 2).bit_length())) if leaving and rng.random() < 0.6 else None
            drop_seconds = rng.uniform(0, 1.5) if leaving and drop_bytes is None else None
            pause = rng.choice((0, 0, 0, 0.02))
            if reader.connect(rng.choice(transports), drop_bytes, drop_seconds, pause):
                return
            if time.monotonic() > deadline:
                raise Wrong("the exit never came")
            time.sleep(rng.uniform(0, 0.05))

    def check(self, pid):
        for stream, want in self.program.want.items():
            got = bytes(self.reader.data[stream])
            if self.program.end[0] == "orphan":
                want = want[:len(got)]
            for start, end in self.reader.gaps[stream]:
                want = want[:start] + bytes(end - start) + want[end:]
            if got != want:
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                raise Wrong(f"{stream}: {len(got)} bytes instead of {len(want)}, other from {at} on: "
                            f"{got[at:at + 40]!r} instead of {want[at:at + 40]!r}")
        if outcome(self.reader.exit) != self.program.outcome():
            raise Wrong(f"exit {self.reader.exit} instead of {self.program.outcome()}")
        ran = [line for line in self.world.file(self.session, "ran").decode().split() if line.startswith(f"c{self.name}-")]
        if ran != [pid]:
            raise Wrong(f"ran {ran} instead of {pid} once, of {self.ids}")


def test_the_client_has_what_the_program_wrote(world, capsys, transports):
    seed, only = seed_given()
    with capsys.disabled():
        print(f"\nSEED={seed}{'' if only is None else f':{only}'} ({SECONDS:.0f} s, {', '.join(transports)})", flush=True)
    numbers, lock, failures, done = iter(range(10 ** 9)), threading.Lock(), [], []
    deadline = time.monotonic() + SECONDS

    def work(worker):
        box = world.box(f"prop-{worker}")
        world.put(box, "writer.pl", WRITER.encode())
        session = world.session(box)
        while time.monotonic() < deadline and not failures:
            with lock:
                case = Case(world, box, session, seed, next(numbers) if only is None else only)
            try:
                case.run(transports)
                done.append(case)
            except Exception as e:  # pylint: disable=broad-except
                failures.append(f"SEED={seed}:{case.number}\n  {type(e).__name__}: {e}\n  {case}")
            if only is not None:
                return

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for f in [pool.submit(work, i) for i in range(1 if only is not None else WORKERS)]:
            f.result()
    used = {t for c in done for t, *_ in c.reader.history}
    summary = (f"{len(done)} programs, {sum(len(w) for c in done for w in c.program.want.values())} bytes, "
               f"{sum(c.program.terminal for c in done)} on terminals, {sum(bool(c.program.ring) for c in done)} in small rings, "
               f"{sum(c.program.lossless for c in done)} lossless, {sum(c.program.end[0] == 'orphan' for c in done)} orphaned; "
               f"{sum(c.reader.connections for c in done)} connections, {sum(c.reader.cuts for c in done)} cuts, "
               f"{sum(c.reader.drops for c in done)} drops, {sum(r.kills for r in world.replicas)} gateways killed")
    with capsys.disabled():
        print(summary, flush=True)
    assert not failures, "\n\n".join(failures)
    assert done and (only is not None or used == set(transports)), f"transports never used: {set(transports) - used}"
