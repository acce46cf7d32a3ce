"""Templates: prepared once per identity, by one gateway at a time, and nothing is left of what failed or was interrupted.
C5 C5+ E6 E7 E8 A9 A10 B8."""
import base64
import concurrent.futures
import json
import secrets

import pytest
from client import Client
from emulator_api import Api
from harness import until


class Templates:
    """The templates of one test, through any client; removed at the end."""

    def __init__(self, api, emulator):
        self.api, self.up, self.made = api, Api(emulator, "prj_local"), []
        self.boxes = set(self.up.names())
        self.snapshots = set(self.usable())

    def put(self, status=201, name=None, **body):
        name = name or "tpl-" + secrets.token_hex(6)
        self.made.append(name)
        self.api.ok("PUT", f"/v1/templates/{name}", status, json=body)
        return name

    def get(self, name):
        return self.api.ok("GET", f"/v1/templates/{name}").json()

    def prepare(self, name, api=None, **body):
        return (api or self.api).call("POST", f"/v1/templates/{name}/prepare", json=body)

    def ready(self, name, **body):
        answer = self.prepare(name, **body)
        assert answer.status_code == 200, answer.text + self.log(name)
        assert answer.json()["state"] == "ready"
        return answer.json()

    def failed(self, name, status=422, code="template_failed", api=None):
        answer = self.prepare(name, api)
        assert answer.status_code == status, answer.text
        assert answer.json()["code"] == code, answer.text
        return answer.json()

    def log(self, name, **query):
        return self.api.ok("GET", f"/v1/templates/{name}/log", params=query).text

    def usable(self):
        found = self.up.call("GET", "/v2/sandboxes/snapshots", limit=50)["snapshots"]
        return [s["id"] for s in found if s["status"] == "created"]

    def nothing_left(self, *snapshots):
        """Neither a builder nor a snapshot but these."""
        until(lambda: set(self.up.names()) == self.boxes, f"the builders are gone: {self.up.names()}")
        until(lambda: set(self.usable()) - self.snapshots == set(snapshots),
              f"no snapshot is left but {snapshots}: {self.usable()}")

    def creates(self, entries):
        return [e for e in entries if e["method"] == "POST" and e["path"].endswith("/v4/sandboxes")]

    def start(self, snapshot):
        return self.api.sandbox(source={"type": "snapshot", "snapshot_id": snapshot})

    def clean_up(self):
        for name in self.made:
            self.api.call("DELETE", f"/v1/templates/{name}")


@pytest.fixture
def templates(api, emulator):
    t = Templates(api, emulator)
    yield t
    t.clean_up()


def unique():
    """So that no test finds what another one prepared."""
    return {"test": secrets.token_hex(8)}


STEPS = [{"name": "one", "shell": "echo first; echo $WHAT > /tmp/one"},
         {"argv": ["sh", "-c", "cat /tmp/one note; printf 'no newline' >&2; cp note /vercel/sandbox/kept"]}]

SHORT = [{"shell": "echo done > /vercel/sandbox/done"}]


def test_prepared_once_and_started_from_C5_E7(templates, api, emulator):
    files = [{"path": "note", "content": "hello\n"},
             {"path": "/vercel/sandbox/bin/x", "content_base64": base64.b64encode(bytes(range(256)) * 1000).decode(),
              "mode": "0755"}]
    name = templates.put(steps=STEPS, files=files, env={"WHAT": "value"}, vcpus=1, inputs=unique())
    seen = templates.get(name)
    assert seen["state"] == "unprepared" and seen["declared"]["steps"] == STEPS
    assert seen["declared"]["files"][0] == {"path": "note", "mode": "644", "sudo": False, "size": 6, "sha256":
                                            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"}
    with emulator.calls() as calls:
        record = templates.ready(name)
    assert len(templates.creates(calls.entries)) == 1
    assert record["snapshot_id"] and len(record["identity"]) == 64 and record["image"] and record["region"]
    log = templates.log(name)
    for line in ("[sandgate] file 1: note", "[sandgate] step 1: one", "\nfirst\n", "\nvalue\nhello\n", "no newline\n",
                 "[sandgate] ready"):
        assert line in log, log
    templates.nothing_left(record["snapshot_id"])
    with emulator.calls() as calls:
        assert templates.ready(name)["snapshot_id"] == record["snapshot_id"]
    assert [c[0] for c in calls.seen()] == ["GET"], "the snapshot is looked at, and that is all (B8)"
    box = templates.start(record["snapshot_id"])
    assert api.file(box, "kept") == b"hello\n"
    assert api.file(box, "bin/x") == bytes(range(256)) * 1000
    mode = api.ok("GET", f"/v1/sandboxes/{box}/files/stat", params={"path": "bin/x"}).json()["mode"]
    assert mode in ("0755", "755", 0o755), mode
    assert api.run(box, shell="ls /var/tmp/.sandgate | grep -c '^sess' || true")["out"].strip() in (b"0", b"1"), \
        "what the steps said is not in the snapshot"


def test_identity_is_what_was_declared(templates):
    inputs = unique()
    a = templates.put(steps=SHORT, inputs=inputs)
    b = templates.put(steps=SHORT, inputs=inputs)
    first, second = templates.ready(a), templates.ready(b)
    assert first["snapshot_id"] == second["snapshot_id"] and first["identity"] == second["identity"]
    templates.api.ok("DELETE", f"/v1/templates/{a}", 204)
    assert templates.get(b)["snapshot_id"] == first["snapshot_id"], "it is still somebody's"
    prints = {templates.get(b)["fingerprint"]}
    for change in ({"inputs": unique()}, {"env": {"A": "1"}}, {"vcpus": 1}, {"region": "fra1"}, {"steps": []},
                   {"architecture": "amd64"}, {"files": [{"path": "x", "content": ""}]}):
        templates.put(200, b, **{"steps": SHORT, "inputs": inputs, **change})
        prints.add(templates.get(b)["fingerprint"])
    assert len(prints) == 8
    templates.nothing_left()  # nobody has the first inputs any more


def test_nothing_to_prepare_makes_no_snapshot_E7(templates, emulator):
    name = templates.put(**{"from": {"runtime": "node24"}})
    assert templates.get(name)["state"] == "ready"
    with emulator.calls() as calls:
        record = templates.ready(name)
    assert len(calls) == 0 and record["snapshot_id"] is None
    templates.nothing_left()


@pytest.mark.parametrize("body, pointer", [
    ({"stepz": []}, "/stepz"), ({"steps": [{"shell": ""}]}, "/steps/0/shell"), ({"files": [{"path": "x"}]}, "/files/0/content_base64"),
    ({"files": [{"path": "x/", "content": ""}]}, "/files/0/path"), ({"files": [{"path": "x", "content": "", "mode": "9"}]},
                                                                     "/files/0/mode"),
    ({"from": {"image": "a", "runtime": "node24"}}, None), ({"from": {"x": 1}}, "/from/x"), ({"vcpus": 3}, "/vcpus"),
    ({"timeout_ms": 1}, "/timeout_ms"), ({"inputs": {"a": 1}}, "/inputs/a"), ({"architecture": "vax"}, "/architecture"),
    ({"from": {"source": {"type": "git", "url": "https://h/x.git", "username": "u", "password": "p"}}}, "/from/source/password"),
])
def test_what_is_declared_is_checked_P65(templates, emulator, body, pointer):
    with emulator.calls() as calls:
        answer = templates.api.call("PUT", "/v1/templates/bad", json=body)
    assert answer.status_code == 422 and answer.json()["outcome"] == "not_sent", answer.text
    assert pointer is None or answer.json()["pointer"] == pointer
    assert len(calls) == 0
    templates.api.refused("GET", "/v1/templates/bad", 404, "template_not_found")


def test_list(templates):
    prefix = "zz-" + secrets.token_hex(3)
    names = sorted(templates.put(name=f"{prefix}-{i}", inputs=unique()) for i in range(5))
    found, cursor = [], prefix
    while cursor:
        page = templates.api.ok("GET", "/v1/templates", params={"limit": 2, "cursor": cursor})
        found += [t["name"] for t in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        assert ("Link" in page.headers) == bool(cursor)
    assert [n for n in found if n.startswith(prefix)] == names
    for name in names:
        templates.api.ok("DELETE", f"/v1/templates/{name}", 204)
    templates.api.ok("DELETE", f"/v1/templates/{names[0]}", 204)


def test_a_failing_step_leaves_nothing_and_can_be_tried_again_A10(templates, emulator):
    name = templates.put(steps=[{"shell": "echo fine"}, {"name": "install", "shell": "echo broken >&2; exit 7"}],
                         inputs=unique())
    problem = templates.failed(name)
    assert "step 2 (install) ended with exit code 7: broken" in problem["detail"] and problem["outcome"] == "not_started"
    record = templates.get(name)
    assert record["state"] == "failed" and record["error"]["code"] == "template_failed"
    assert "failed: step 2" in templates.log(name)
    templates.nothing_left()
    with emulator.calls() as calls:
        templates.failed(name)
    assert len(templates.creates(calls.entries)) == 1, "tried again, from the beginning"
    templates.nothing_left()


def test_twenty_at_a_time_are_one_preparation_C5(templates, emulator):
    name = templates.put(steps=[{"shell": "sleep 1; echo x >> /vercel/sandbox/count"}], inputs=unique())
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: templates.prepare(name, Client(templates.api)).json(), range(20)))
    assert {a["snapshot_id"] for a in answers} == {templates.get(name)["snapshot_id"]}
    assert len(templates.creates(calls.entries)) == 1
    templates.nothing_left(answers[0]["snapshot_id"])


def test_an_evicted_snapshot_is_prepared_anew_once_E8_B8(templates, emulator):
    name = templates.put(steps=SHORT, inputs=unique())
    first = templates.ready(name)["snapshot_id"]
    templates.up.call("DELETE", f"/v2/sandboxes/snapshots/{first}")
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: templates.prepare(name, Client(templates.api)).json(), range(5)))
    assert len(templates.creates(calls.entries)) == 1
    second = {a["snapshot_id"] for a in answers}
    assert len(second) == 1 and first not in second
    templates.nothing_left(*second)


def test_refresh_of_what_has_not_changed_keeps_it(templates, emulator):
    name = templates.put(steps=SHORT, inputs=unique())
    first = templates.ready(name)
    again = templates.ready(name, refresh=True)
    assert again["snapshot_id"] == first["snapshot_id"] and again["identity"] == first["identity"]
    assert "nothing has changed" in templates.log(name)
    templates.nothing_left(first["snapshot_id"])


def test_the_builder_vanishes(templates):
    name = templates.put(steps=[{"shell": "sleep 20"}], inputs=unique())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(templates.prepare, name, Client(templates.api))
        until(lambda: "step 1" in templates.log(name), "the step runs")
        (builder,) = set(templates.up.names()) - templates.boxes
        templates.up.request("DELETE", f"/v2/sandboxes/{builder}")
        problem = answer.result().json()
    assert problem["code"] == "template_failed" and problem["outcome"] == "not_started", problem
    assert "the builder ended" in problem["detail"]
    assert templates.get(name)["state"] == "failed"
    templates.nothing_left()


@pytest.mark.parametrize("method, path, action, works", [
    ("POST", "/v4/sandboxes$", {"status": 500}, None),
    ("POST", "/v4/sandboxes$", {"lose_answer": True}, True),
    ("POST", "/snapshot$", {"status": 500}, None),
    ("POST", "/snapshot$", {"lose_answer": True}, True),
    ("POST", "/v4/sandboxes$", {"close_before": True}, None),
    ("POST", "/snapshot$", {"close_before": True}, None),
    ("POST", "/cmd$", {"lose_answer": True}, True),
    ("POST", "/cmd$", {"status": 503}, None),
    ("DELETE", "/sandboxes/template-", {"status": 503}, True),
    ("DELETE", "/sandboxes/template-", {"lose_answer": True}, True),
])
def test_faults_of_the_upstream_leave_nothing(templates, emulator, method, path, action, works):
    name = templates.put(steps=[{"shell": "true"}], inputs=unique())
    emulator.fault(action, method=method, path_regex=path, times=1)
    answer = templates.prepare(name)
    if works:
        assert answer.status_code == 200, answer.text
    snapshots = [answer.json()["snapshot_id"]] if answer.status_code == 200 else []
    templates.nothing_left(*snapshots)
    emulator.clear_faults()
    templates.ready(name)


def test_the_log_while_it_is_made(templates):
    name = templates.put(steps=[{"shell": "for i in 1 2 3; do echo line $i; sleep 0.4; done"}], inputs=unique())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(templates.prepare, name, Client(templates.api))
        until(lambda: templates.get(name)["state"] == "preparing", "it begins")
        records = []
        with templates.api.call("GET", f"/v1/templates/{name}/log", headers={"Accept": "application/x-ndjson"},
                                stream=True) as stream:
            assert stream.headers["Content-Type"].startswith("application/x-ndjson")
            for line in stream.iter_lines():
                if line:
                    records.append(json.loads(line))
        assert answer.result().status_code == 200
    assert records[-1] == {"type": "end", "state": "ready"}, records[-1]
    told = b"".join(base64.b64decode(r["data"]) for r in records if "data" in r)
    assert told.decode() == templates.log(name)
    part = templates.api.ok("GET", f"/v1/templates/{name}/log", params={"offset": 5, "limit": 7})
    assert part.content == told[5:12] and part.headers["X-Offset-Next"] == "12"
    assert part.headers["X-Template-State"] == "ready"
    with templates.api.call("GET", f"/v1/templates/{name}/log", headers={"Accept": "text/event-stream"}) as events:
        assert events.headers["Content-Type"].startswith("text/event-stream")
        assert "event: end" in events.text


def test_applied_to_a_sandbox_C5(templates, api, box):
    name = templates.put(steps=[{"shell": "cat note >> twice"}], files=[{"path": "note", "content": "x"}], inputs=unique())
    path = f"/v1/sandboxes/{box}/apply-template"
    for expected in (b"x", b"xx"):
        told = api.ok("POST", path, json={"template": name}).json()
        assert told["session_id"] == api.get(box)["session_id"]
        assert api.file(box, "twice") == expected
    api.refused("POST", path, 404, "template_not_found", json={"template": "none"})
    api.refused("POST", path, 422, "unknown_field", json={"template": name, "x": 1})
    broken = templates.put(steps=[{"shell": "exit 3"}], inputs=unique())
    api.refused("POST", path, 422, "step_failed", json={"template": broken})
    api.stop(box)
    until(lambda: api.get(box)["status"] == "stopped", "it stopped")
    api.refused("POST", path, 409, "sandbox_not_running", json={"template": name})
    api.ok("POST", path, json={"template": name, "resume": True})
    assert api.file(box, "twice") == b"xxx"


@pytest.mark.parametrize("phase, method, path", [
    ("allocating a builder", "POST", "/v4/sandboxes$"), ("step 1", "POST", "/cmd$"), ("capturing", "POST", "/snapshot$"),
    ("ready", "DELETE", "/sandboxes/template-"),
])
def test_killed_in_each_phase(own, emulator, phase, method, path):
    """While its call is under way, which the upstream then does all the same: another one prepares, nothing is left."""
    first, api = own(LIFECYCLE_PREPARE_SILENCE_MS=1500)
    _, other = own(LIFECYCLE_PREPARE_SILENCE_MS=1500, STORE_STATE_FILE=first.tokens.parent / "state.db")
    t = Templates(api, emulator)
    name = t.put(steps=[{"shell": "true"}], inputs=unique())
    first_of_its_kind = 2 if phase == "step 1" else 1  # the first command is the base check
    emulator.fault({"delay_ms": 700}, nth=first_of_its_kind, times=1, method=method, path_regex=path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(t.prepare, name, Client(first))
        until(lambda: phase in t.log(name), "it came so far")
        first.child.kill()
        first.child.wait()
    t.api = other
    record = t.ready(name)
    t.nothing_left(record["snapshot_id"])
    t.api.ok("DELETE", f"/v1/templates/{name}", 204)
    t.nothing_left()


def test_another_gateway_takes_over_when_one_dies(own, database, emulator):
    """The dead one's builder is deleted, and what it was asked for is prepared by whoever waits (C5, A10)."""
    first, api = own(store=database, LIFECYCLE_PREPARE_SILENCE_MS=1500)
    _, other = own(LIFECYCLE_PREPARE_SILENCE_MS=1500, store=database)
    t = Templates(api, emulator)
    name = t.put(steps=[{"shell": "echo begun; sleep 1.5"}], inputs=unique())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lost = pool.submit(t.prepare, name, Client(first))
        until(lambda: "begun" in t.log(name), "the step runs")
        (builder,) = set(t.up.names()) - t.boxes
        waits = pool.submit(t.prepare, name, other)
        first.child.kill()
        first.child.wait()
        t.api = other
        record = waits.result().json()
        assert lost.exception() is not None
    assert record["state"] == "ready", record
    assert builder not in t.up.names()
    t.nothing_left(record["snapshot_id"])
    t.api.ok("DELETE", f"/v1/templates/{name}", 204)
    t.nothing_left()


def test_nobody_waits_for_the_dead_one(own, database, emulator):
    first, api = own(store=database, LIFECYCLE_PREPARE_SILENCE_MS=1000)
    _, other = own(LIFECYCLE_PREPARE_SILENCE_MS=1000, store=database)
    t = Templates(api, emulator)
    name = t.put(steps=[{"shell": "echo begun; sleep 30"}], inputs=unique())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(t.prepare, name, Client(first))
        until(lambda: "begun" in t.log(name), "the step runs")
        first.child.kill()
        first.child.wait()
    t.api = other
    until(lambda: t.get(name)["state"] == "failed", "it is seen to be abandoned")
    t.nothing_left()


def test_a_gateway_that_is_stopped_hands_it_over(own, database, emulator):
    first, api = own(store=database, SERVER_DRAIN_TIMEOUT_MS=500)
    _, other = own(store=database)
    t = Templates(api, emulator)
    name = t.put(steps=[{"shell": "echo begun; sleep 1.5"}], inputs=unique())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(t.prepare, name, Client(first))
        until(lambda: "begun" in t.log(name), "the step runs")
        assert first.end() == 0, "it does not wait for the step"
        t.api = other
        record = pool.submit(t.prepare, name, other).result().json()
    assert record["state"] == "ready", record
    t.nothing_left(record["snapshot_id"])
    t.api.ok("DELETE", f"/v1/templates/{name}", 204)


def test_twenty_through_two_gateways_are_one_preparation(own, database, emulator):
    _, api = own(store=database)
    _, other = own(store=database)
    t = Templates(api, emulator)
    name = t.put(steps=[{"shell": "sleep 1"}], inputs=unique())
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda i: t.prepare(name, Client([api, other][i % 2])), range(20)))
    assert [a.status_code for a in answers] == [200] * 20
    assert len({a.json()["snapshot_id"] for a in answers}) == 1
    assert len(t.creates(calls.entries)) == 1
    broken = t.put(steps=[{"shell": "sleep 1; exit 5"}], inputs=unique())
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda i: t.prepare(broken, Client([api, other][i % 2])), range(20)))
    assert {a.json()["code"] for a in answers} == {"template_failed"}
    assert len(t.creates(calls.entries)) == 1, "who waited for a failure is told of it, also through another gateway"
    t.api.ok("DELETE", f"/v1/templates/{name}", 204)
    t.nothing_left()


def test_long_output_is_kept_from_its_end(templates):
    """3 MiB of bytes that are no text: the last MiB stays, at its offsets; a reader is told where it begins (A14)."""
    name = templates.put(steps=[{"shell": "head -c 3145728 /dev/zero | tr '\\0' '\\377'; echo; echo the end"}], inputs=unique())
    templates.ready(name)
    first = templates.api.ok("GET", f"/v1/templates/{name}/log", params={"limit": 1048576})
    end, after = int(first.headers["X-Offset-End"]), int(first.headers["X-Offset-Next"])
    begin = after - len(first.content)
    assert end > 3145728 and 0 < end - begin <= 1048576 + 65536 and begin > 0
    assert set(first.content) <= {0xff} or first.content.strip(b"\xff")
    assert "the end\n" in templates.log(name, offset=end - 200)


def test_steps_as_root_in_the_background_and_too_slow(templates, api):
    name = templates.put(files=[{"path": "/etc/made-by-root", "content": "x", "mode": "600", "sudo": True}],
                         steps=[{"shell": "echo $$ > /tmp/daemon; sleep 600", "background": True},
                                {"shell": "until [ -s /tmp/daemon ]; do sleep 0.05; done; kill -0 $(cat /tmp/daemon)"},
                                {"argv": ["sh", "-c", "id -u > /root-was-here"], "sudo": True},
                                {"argv": ["sh", "-c", "test \"$A$B\" = 12 && pwd"], "env": {"B": "2"}, "cwd": "/usr"}],
                         env={"A": "1"}, inputs=unique())
    record = templates.ready(name)
    assert "\n/usr\n" in templates.log(name)
    box = templates.start(record["snapshot_id"])
    assert api.run(box, "cat", "/root-was-here")["out"] == b"0\n"
    assert api.run(box, "stat", "-c", "%u %a", "/etc/made-by-root")["out"] == b"0 600\n"
    slow = templates.put(steps=[{"shell": "sleep 30", "timeout_ms": 300}], inputs=unique())
    assert "step 1 ran out of time" in templates.failed(slow)["detail"]
    none = templates.put(steps=[{"argv": ["/no/such/program"]}], inputs=unique())
    assert "step 1" in templates.failed(none)["detail"]
    root = templates.put(files=[{"path": "/etc/not-mine", "content": "x"}], inputs=unique())
    assert "/etc/not-mine could not be written" in templates.failed(root)["detail"]


def test_an_image_that_lacks_something_is_named_A9(templates):
    """The steps take `find` away: the check before the capture sees it, and nothing is captured."""
    name = templates.put(steps=[{"shell": "rm -f $(command -v find) /usr/bin/find /bin/find", "sudo": True}], inputs=unique())
    assert "find" in templates.failed(name, 422, "image_unsuitable")["detail"]
    templates.nothing_left()


def test_prepare_without_waiting(templates, api):
    name = templates.put(steps=[{"shell": "sleep 1"}], inputs=unique())
    answer = api.call("POST", f"/v1/templates/{name}/prepare", json={}, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    where = answer.headers["Location"]
    assert api.call("GET", where).status_code == 202
    record = api.ok("GET", where, params={"wait_ms": 20000}).json()
    assert record["state"] == "ready" and record["name"] == name
    key = {"Idempotency-Key": secrets.token_hex(8)}
    first = api.ok("POST", f"/v1/templates/{name}/prepare", json={}, headers=key)
    again = api.ok("POST", f"/v1/templates/{name}/prepare", json={}, headers=key)
    assert again.headers["Idempotency-Replayed"] == "true" and again.content == first.content


def test_applied_once_with_a_key(templates, api, box):
    name = templates.put(steps=[{"shell": "echo x >> times"}], inputs=unique())
    key = {"Idempotency-Key": secrets.token_hex(8)}
    for _ in range(3):
        api.ok("POST", f"/v1/sandboxes/{box}/apply-template", json={"template": name}, headers=key)
    assert api.file(box, "times") == b"x\n"


# ---- creating from them ----

def test_twenty_creates_from_an_unprepared_template_C5(templates, api, emulator):
    name = templates.put(steps=[{"shell": "sleep 1; echo x >> /vercel/sandbox/count"}], inputs=unique())
    boxes = ["t-" + secrets.token_hex(8) for _ in range(20)]
    api.made += boxes
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda box: Client(api).create(name=box, template=name, vcpus=1), boxes))
    assert len(templates.creates(calls.entries)) == 21, "one builder"
    snapshot = templates.get(name)["snapshot_id"]
    assert {m["name"] for m in made} == set(boxes)
    assert api.file(boxes[7], "count") == b"x\n"
    with emulator.calls() as calls:
        api.create(template=name)
    assert [c for c in calls.seen() if c[0] == "POST"] == [("POST", "sandboxes")], "prepared: one call"
    api.clean_up()
    templates.nothing_left(snapshot)


def test_create_when_the_snapshot_was_evicted_behind_our_back_E8(templates, api, emulator):
    name = templates.put(steps=SHORT, inputs=unique())
    first = templates.ready(name)["snapshot_id"]
    templates.up.call("DELETE", f"/v2/sandboxes/snapshots/{first}")
    boxes = ["t-" + secrets.token_hex(8) for _ in range(5)]
    api.made += boxes
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda box: Client(api).create(name=box, template=name, vcpus=1), boxes))
    builders = [e for e in templates.creates(calls.entries) if e["status"] < 300]
    assert len(builders) == 6, "one rebuild for five"
    second = templates.get(name)["snapshot_id"]
    assert second != first and api.file(boxes[0], "done") == b"done\n"
    api.clean_up()
    templates.nothing_left(second)


def test_create_from_what_fails_makes_nothing(templates, api):
    name = templates.put(steps=[{"shell": "exit 9"}], inputs=unique())
    refused = api.refused("POST", "/v1/sandboxes", 422, "template_failed", json={"template": name})
    assert refused["outcome"] == "not_started" and "exit code 9" in refused["detail"]
    api.refused("POST", "/v1/sandboxes", 404, "template_not_found", json={"template": "no-such"})
    templates.nothing_left()


def test_create_from_nothing_to_prepare_is_a_plain_create(templates, api, emulator):
    name = templates.put(**{"from": {"runtime": "node24"}})
    with emulator.calls() as calls:
        record = api.create(template=name)
    assert [c[0] for c in calls.seen()].count("POST") == 1 and record["status"] == "running"


def test_the_policy_comes_after_the_preparation_A10(own_emulator, own_gateway):
    """The builder may reach everything; the sandbox that is made from it is as it was asked for."""
    up = own_emulator("--policy=record-only")
    api = Client(own_gateway(url=up.emulator.url, token=up.emulator.token))
    up.project = "prj_local"
    name = "tpl-" + secrets.token_hex(6)
    api.ok("PUT", f"/v1/templates/{name}", 201, json={"steps": [{"shell": "sleep 1"}]})
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        made = pool.submit(Client(api).create, template=name, network_policy="deny-all")
        builder = until(lambda: next((n for n in up.names() if n.startswith("template-")), None), "the builder is there")
        seen = up.call("GET", f"/v2/sandboxes/{builder}")
        box = made.result()["name"]
    assert policy(seen) == "allow-all"
    assert policy(up.call("GET", f"/v2/sandboxes/{box}")) == "deny-all"
    api.destroy(box)


def policy(answer):
    p = answer["session"].get("networkPolicy") or answer["sandbox"].get("networkPolicy")
    return p if isinstance(p, str) else p["mode"]


def test_deleting_the_template_keeps_its_sandboxes(templates, api):
    name = templates.put(steps=SHORT, inputs=unique())
    box = api.sandbox(template=name)
    snapshot = templates.get(name)["snapshot_id"]
    api.ok("DELETE", f"/v1/templates/{name}", 204)
    assert api.file(box, "done") == b"done\n"
    api.stop(box)
    until(lambda: api.get(box)["status"] == "stopped", "it stopped")
    assert api.resume(box)["status"] == "running" and api.file(box, "done") == b"done\n"
    assert isinstance(snapshot, str)
