"""Random lifecycle operations against a model, with faults upstream and gateways that are killed: C1–C5, A3–A11, B3, B9, U1,
U9, P55–P60.

Before each operation the state of its sandbox is known.  What the answer says bounds what the state may be afterwards: a
success says it, a refusal that began nothing leaves it, anything else allows both.  A look decides, and must find one of
them: nothing is made twice, nothing is left over, what was kept is there.  SEED repeats it.
"""
import collections
import os
import random
import secrets
import signal
import threading
import time

import requests

from harness import until
from world import World

LONG = "SANDGATE_LONG" in os.environ
OPERATIONS = int(os.environ.get("MODEL_OPERATIONS", 10000 if LONG else 0))  # 0: as many as the time allows
SECONDS = float(os.environ.get("PROPERTY_SECONDS", 30))
NAMES = 5
CREATE_MS = 2000

ABSENT, RUNNING, STOPPED = "absent", "running", "stopped"
PATHS = "^/v[0-9]/sandboxes"
FAULTS = [
    {"close_before": True}, {"lose_answer": True}, {"status": 503}, {"status": 500, "do_it": True}, {"html": 502},
    {"malformed": True, "do_it": True}, {"cut_after_bytes": 40}, {"delay_ms": 150}, {"delay_ms": CREATE_MS + 500},
    {"status": 429, "headers": {"Retry-After": "1"}},
]


class Box:
    """What the model knows of a name."""

    def __init__(self):
        self.state, self.mark, self.tag = ABSENT, None, None


class Answer:
    def __init__(self, response=None):
        self.status = response.status_code if response is not None else 0
        self.json = response.json() if response is not None and response.content else {}
        self.text = response.text if response is not None else "no answer"
        self.location = response.headers.get("Location", "") if response is not None else ""
        self.code = self.json.get("code") if self.status >= 400 else None

    @property
    def ok(self):
        return 200 <= self.status <= 299

    @property
    def nothing_began(self):
        return self.status >= 400 and self.json.get("outcome") in ("not_sent", "not_started")


class Model:
    def __init__(self, world, seed):
        self.world, self.random = world, random.Random(seed)
        self.boxes = {f"m{seed % 100000}-{i}": Box() for i in range(NAMES)}
        self.checkpoints = {}  # name → the mark that was captured
        self.done = collections.Counter()
        self.trace = collections.deque(maxlen=12)  # for whoever reads a failure
        self.http = [requests.Session() for _ in world.replicas]
        for http in self.http:
            http.trust_env = False
            http.headers["Authorization"] = "Bearer " + world.replicas[0].token

    # ---- asking ----

    def send(self, n, method, path, **kw):
        try:
            return Answer(self.http[n].request(method, self.world.replicas[n].url + path, timeout=60, **kw))
        except requests.RequestException:
            return Answer()  # it was killed

    def call(self, method, path, body=None, via=None, **kw):
        n = self.random.randrange(len(self.http)) if via is None else via
        answer = self.send(n, method, path, json=body, **kw)
        if answer.status == 202 and "/operations/" in answer.location:
            answer = self.finish(n, answer)
        if method != "GET":
            self.trace.append(f"{n}: {method} {path} {body} -> {answer.status} {answer.code or ''} {answer.json.get('outcome', '')}")
        return answer

    def finish(self, n, answer):
        """What is answered 202 goes on; its answer waits where it says.  A gateway that is killed takes that along."""
        found = {}

        def ended():
            a = self.send(n, "GET", answer.location)
            found["it"] = a
            return a.status != 202 and a.status != 0
        until(ended, f"the operation ends: {answer.text}", patience=90)
        return found["it"] if found["it"].code != "operation_not_found" else Answer()

    def look(self, name):
        """The state now, once it is a lasting one."""
        found = {}

        def settled():
            a = self.call("GET", f"/v1/sandboxes/{name}")
            found["it"] = ABSENT if a.status == 404 else a.json.get("status")
            return a.status in (200, 404) and found["it"] in (ABSENT, RUNNING, STOPPED)

        until(settled, f"{name} is in a lasting state", patience=60)
        return found["it"]

    def disturb(self):
        """Something goes wrong with the next operation, perhaps; returns what to call after it."""
        what = self.random.random()
        if what < 0.25:
            match = {"path_regex": PATHS}
            if self.random.random() < 0.7:
                match["method"] = self.random.choice(["GET", "POST", "POST", "DELETE", "PATCH"])
            fault, times = self.random.choice(FAULTS), self.random.choice([1, 1, 2, 5])
            self.world.emulator.fault(fault, times=times, **match)
            self.trace.append(f"fault {fault} × {times} on {match.get('method', 'all')}")
            return self.world.emulator.clear_faults
        if what < 0.28:
            replica = self.random.choice(self.world.replicas)
            timer = threading.Timer(self.random.random() * 0.1, replica.bounce)
            timer.start()
            self.trace.append("a gateway is killed")
            return timer.join
        return lambda: None

    # ---- operations: (path …) → the states that are possible afterwards ----

    def create(self, name, box):
        a = self.call("POST", "/v1/sandboxes", {"name": name})
        if a.status == 201:
            assert box.state == ABSENT, "made twice"
            box.mark = box.tag = None
            return {RUNNING}
        assert a.code != "sandbox_exists" or box.state != ABSENT or self.leftover(name), a.text
        return {box.state}  # what a failed create made is taken away

    def leftover(self, name):
        """Of a create that failed before: on its way to be taken away."""
        until(lambda: name not in self.upstream_names(), "what a failed create made goes", patience=60)
        return True

    def get_or_create(self, name, box):
        a = self.call("POST", "/v1/sandboxes", {"name": name, "if_exists": "get"})
        if a.status == 201:
            assert box.state == ABSENT, "made twice"
            box.mark = box.tag = None
            return {RUNNING}
        assert a.status != 200 or a.json["created"] is False
        return {box.state}

    def create_with_key(self, name, box):
        """The same request until it has an answer, to whichever gateway: one sandbox."""
        key = {"Idempotency-Key": secrets.token_hex(8)}
        answers = []

        def answered():
            a = self.call("POST", "/v1/sandboxes", {"name": name}, headers=key)
            answers.append(f"{a.status} {a.code}")
            return a.status and a.code not in ("request_in_progress",) and a.status < 429 and a
        a = until(answered, f"the key is answered: {answers}", patience=60)
        if a.status == 201:
            assert box.state == ABSENT, "made twice"
            box.mark = box.tag = None
            again = self.call("POST", "/v1/sandboxes", {"name": name}, headers=key)
            assert not again.status or again.status >= 500 or (again.status == 201 and again.json == a.json), again.text
            return {RUNNING}
        assert a.status == 409 and a.code == "sandbox_exists", f"{a.text} after {answers}"
        assert box.state != ABSENT or self.leftover(name), answers
        return {box.state}

    def move(self, name, box, verb, to):
        a = self.call("POST", f"/v1/sandboxes/{name}/{verb}", {})
        if box.state == ABSENT:
            assert a.status == 404 or not a.status or a.status >= 429, a.text
            return {ABSENT}
        if a.ok:
            return {to}
        assert a.status != 404, a.text
        return {box.state} if a.nothing_began else {box.state, to}

    def stop(self, name, box):
        return self.move(name, box, "stop", STOPPED)

    def resume(self, name, box):
        return self.move(name, box, "resume", RUNNING)

    def destroy(self, name, box):
        a = self.call("DELETE", f"/v1/sandboxes/{name}")
        if a.ok:
            return {ABSENT}
        return {box.state} if a.nothing_began else {box.state, ABSENT, STOPPED if box.state == RUNNING else box.state}

    def release(self, name, box):
        """A lease that is given back takes the sandbox along."""
        a = self.call("POST", f"/v1/sandboxes/{name}/lease", {"ttl_ms": 600000})
        if not a.ok:
            return {box.state}
        b = self.call("DELETE", f"/v1/sandboxes/{name}/lease")
        if not b.ok:  # nothing is known of it, or it goes on by itself
            self.call("DELETE", f"/v1/sandboxes/{name}")
            return {box.state, ABSENT, STOPPED if box.state == RUNNING else box.state}
        return {ABSENT}

    def write(self, name, box):
        mark = secrets.token_hex(8)
        a = self.call("POST", f"/v1/sandboxes/{name}/run", {"argv": ["sh", "-c", f"echo {mark} > mark"]})
        if a.ok and a.json.get("exit_code") == 0:
            assert box.state == RUNNING
            box.mark = mark
        elif box.state == RUNNING and not a.nothing_began:
            seen = self.read(name)
            assert seen in (box.mark, mark), f"{seen} is neither {box.mark} nor {mark}"
            box.mark = seen
        elif box.state == STOPPED:
            assert a.code == "sandbox_not_running" or a.status in (0, 429) or a.status >= 500, a.text
        return {box.state}

    def read(self, name):
        said = {}

        def answered():
            a = self.call("POST", f"/v1/sandboxes/{name}/run", {"argv": ["cat", "mark"]})
            said["it"] = a.json.get("stdout", "").strip() or None
            return a.status == 200
        until(answered, "the file can be read", patience=60)
        return said["it"]

    def patch(self, name, box):
        tag = secrets.token_hex(4)
        a = self.call("PATCH", f"/v1/sandboxes/{name}", {"tags": {"model": tag}})
        if a.ok:
            assert a.json["tags"] == {"model": tag}, a.text
            box.tag = tag
        elif box.state != ABSENT and not a.nothing_began:
            box.tag = self.call("GET", f"/v1/sandboxes/{name}").json.get("tags", {}).get("model", box.tag)
        return {box.state}

    def checkpoint(self, name, box):
        label = f"c{self.random.randrange(2)}"
        again = self.random.random() < 0.5
        a = self.call("POST", "/v1/checkpoints", {"name": label, "sandbox": name, "resume": again, "replace": True})
        if a.ok:
            assert box.state != ABSENT
            self.checkpoints[label] = box.mark
            return {RUNNING if again else STOPPED} if box.state == RUNNING else {RUNNING, STOPPED}
        if not a.nothing_began and a.status != 404:  # it may have been made
            self.checkpoints.pop(label, None)
        return {box.state, STOPPED, RUNNING} if box.state != ABSENT else {ABSENT}

    def from_checkpoint(self, name, box):
        label = f"c{self.random.randrange(2)}"
        if label not in self.checkpoints:
            return {box.state}
        a = self.call("POST", "/v1/sandboxes", {"name": name, "checkpoint": {"name": label}})
        if a.status == 201:
            assert box.state == ABSENT, "made twice"
            box.mark, box.tag = self.checkpoints[label], None
            assert self.read(name) == box.mark, "the checkpoint's files"
            return {RUNNING}
        assert a.code not in ("checkpoint_gone", "snapshot_gone"), f"nobody deleted it: {a.text}"
        return {box.state}

    def fork(self, name, box):
        other = self.random.choice([n for n in self.boxes if n != name])
        target = self.boxes[other]
        a = self.call("POST", f"/v1/sandboxes/{name}/fork", {"name": other})
        if a.status == 201:
            assert target.state == ABSENT and box.state != ABSENT, "made twice, or of nothing"
            target.state, target.mark, target.tag = RUNNING, self.read(other), box.tag
        self.also.append((other, {target.state}))
        return {box.state}

    # ---- one step ----

    def settle(self, name, states):
        """What it may be, it is, once what was remembered has been taken away."""
        box = self.boxes[name]
        if states == {ABSENT}:
            until(lambda: name not in self.upstream_names(), f"{name} is gone", patience=60)
        box.state = self.look(name)
        assert box.state in states, f"{name} is {box.state}, not one of {sorted(states)}"

    def step(self):
        name = self.random.choice(sorted(self.boxes))
        box = self.boxes[name]
        if box.state == ABSENT:
            ops = [self.create, self.get_or_create, self.create_with_key, self.from_checkpoint, self.stop, self.destroy, self.fork]
        else:
            ops = [self.create, self.get_or_create, self.create_with_key, self.stop, self.resume, self.destroy, self.release,
                   self.write, self.write, self.patch, self.checkpoint, self.fork]
        op = self.random.choice(ops)
        before = box.state
        self.also = []  # what else may have changed: looked at when nothing is in the way of looking
        restore = self.disturb()
        try:
            states = op(name, box)
        finally:
            restore()
        for other in [(name, states), *self.also]:
            self.settle(*other)
        if box.state == RUNNING and self.random.random() < 0.3:
            assert self.read(name) == box.mark, f"what was written is kept ({op.__name__} from {before})"
        if box.state != ABSENT and box.tag:
            a = self.call("GET", f"/v1/sandboxes/{name}")
            assert a.json["tags"].get("model") == box.tag, f"tags are kept ({op.__name__} from {before})"
        self.done[op.__name__] += 1

    # ---- straight at the emulator ----

    def upstream_names(self):
        return {s["name"] for s in self.world.upstream("GET", "/v2/sandboxes").json()["sandboxes"]}

    def end(self):
        """What there is, is known; and all of it can be taken away."""
        there = {name for name, box in self.boxes.items() if box.state != ABSENT}
        assert self.upstream_names() == there, "what there is, is known"
        for name in self.boxes:
            assert self.call("DELETE", f"/v1/sandboxes/{name}").status == 204
        for label in ("c0", "c1"):
            assert self.call("DELETE", f"/v1/checkpoints/{label}").status == 204
        until(lambda: not self.upstream_names(), "no sandbox is left", patience=60)


def test_ten_thousand_operations(tmp_path, base):
    seed = int(os.environ.get("SEED", secrets.randbelow(10 ** 9)))
    world = World(tmp_path, base, UPSTREAM_CREATE_TIMEOUT_MS=CREATE_MS, UPSTREAM_TIMEOUT_MS=2000, UPSTREAM_RETRY_BUDGET_MS=1000,
                  AUTH_TOKENS_FILE=tmp_path / "gateway0" / "tokens",  # one principal: keys are its own
                  STORE_KEY_SILENCE_MS=1500, LIFECYCLE_SWEEP_MS=500)
    model = Model(world, seed)
    until_time = time.monotonic() + SECONDS
    n = 0
    try:
        while n < OPERATIONS or (not OPERATIONS and time.monotonic() < until_time):
            try:
                model.step()
            except AssertionError as e:
                raise AssertionError(f"SEED={seed}, operation {n}: {e}\n  " + "\n  ".join(model.trace)) from e
            n += 1
        model.end()
    finally:
        world.end()
    print(f"SEED={seed}: {n} operations {dict(model.done)}")
    assert n >= 20 and len(model.done) >= 5
