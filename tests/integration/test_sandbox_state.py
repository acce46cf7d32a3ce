"""The record of a sandbox and what acts on it: entity tags, waiting, lists, PATCH, extend, stop and resume under faults.
C2 C2+ A4 A6/B3 B5 P58 P59 P63"""
import concurrent.futures
import datetime
import secrets
import socket
import time
import urllib.parse

import pytest

from client import Client
from harness import until

ONE_DAY = 86400000


def path(box):
    return f"/v1/sandboxes/{box}"


def tag(api, box):
    return api.ok("GET", path(box)).headers["ETag"]


def resumes(calls):
    return [e for e in calls.entries if "resume=true" in (e.get("query") or "")]


def by_method(calls):
    return [e["method"] for e in calls.entries]


# ---- entity tags ----

def test_the_tag_is_of_the_state(api, box):
    first = api.ok("GET", path(box))
    again = api.ok("GET", path(box))
    etag = first.headers["ETag"]
    assert again.headers["ETag"] == etag and etag[0] == etag[-1] == '"' and len(etag) == 24
    assert again.json()["observed_at"] > first.json()["observed_at"]
    not_modified = api.ok("GET", path(box), 304, headers={"If-None-Match": f'"x", {etag}'})
    assert not_modified.headers["ETag"] == etag and not_modified.content == b""
    assert api.call("HEAD", path(box), headers={"If-None-Match": etag}).status_code == 304
    api.ok("GET", path(box), 304, headers={"If-None-Match": "*"})
    api.ok("GET", path(box), 200, headers={"If-None-Match": '"AAAAAAAAAAAAAAAAAAAAAA"'})
    api.refused("GET", path(box), 412, "precondition_failed", headers={"If-Match": '"AAAAAAAAAAAAAAAAAAAAAA"'})
    api.refused("GET", path(box), 422, "invalid_field", headers={"If-None-Match": "bare"})
    changed = api.ok("PATCH", path(box), json={"tags": {"a": "b"}})
    assert changed.headers["ETag"] != etag and changed.headers["ETag"] == tag(api, box)


def test_every_answer_tells_the_tag_of_its_record(api):
    name = "t-" + secrets.token_hex(8)
    api.made.append(name)
    made = api.ok("POST", "/v1/sandboxes", 201, json={"name": name})
    assert made.headers["ETag"] == tag(api, name)
    stopped = api.ok("POST", path(name) + "/stop")
    assert stopped.headers["ETag"] == tag(api, name) != made.headers["ETag"]
    resumed = api.ok("POST", path(name) + "/resume")
    assert resumed.headers["ETag"] == tag(api, name)
    extended = api.ok("POST", path(name) + "/extend", json={"by_ms": 60000})
    assert extended.headers["ETag"] == tag(api, name) != resumed.headers["ETag"]


@pytest.mark.parametrize("method,rest,body", [
    ("PATCH", "", {"tags": {"x": "y"}}), ("POST", "/stop", {}), ("POST", "/resume", {}),
    ("POST", "/extend", {"by_ms": 1000}), ("DELETE", "", None)])
def test_another_state_than_expected_changes_nothing(api, emulator, method, rest, body):
    box = api.sandbox()
    if rest == "/resume":
        api.stop(box)
    old = tag(api, box)
    before = api.ok("PATCH", path(box), json={"tags": {"now": "another"}}).json()
    with emulator.calls() as calls:
        refused = api.refused(method, path(box) + rest, 412, "precondition_failed", json=body, headers={"If-Match": old})
    assert refused["outcome"] == "not_started"
    assert by_method(calls) == ["GET"] and not resumes(calls)
    after = api.get(box)
    assert {k: after[k] for k in ("status", "session_id", "tags", "expires_at")} == \
        {k: before[k] for k in ("status", "session_id", "tags", "expires_at")}
    status = 204 if method == "DELETE" else 200
    api.ok(method, path(box) + rest, status, json=body, headers={"If-Match": f'"zzzzzzzzzzzzzzzzzzzzzz", {tag(api, box)}'})
    if method == "DELETE":
        api.ok("DELETE", path(box), 204, headers={"If-Match": old})  # it is as wished


# ---- waiting ----

def waited(api, box, patience=20000, status=200, headers=None, **query):
    start = time.monotonic()
    answer = api.ok("GET", path(box), status, params={"wait_ms": patience, **query}, headers=headers)
    return answer, time.monotonic() - start


def test_a_wait_ends_when_it_is_as_wanted(api, box):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        stopped = pool.submit(waited, api, box, until="stopped")
        other = Client.__new__(Client)
        other.__dict__.update(api.__dict__)
        time.sleep(0.3)
        api.stop(box)
        answer, took = stopped.result()
    assert answer.json()["status"] == "stopped" and took < 15
    answer, took = waited(api, box, until="stopped")
    assert took < 3
    assert api.call("POST", path(box) + "/resume", json={"wait_ms": 0}).status_code in (200, 202)
    answer, took = waited(api, box, until="running")
    assert answer.json()["status"] == "running" and took < 15


def test_a_wait_ends_on_any_change(api, box):
    etag = tag(api, box)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        told = pool.submit(waited, api, box, headers={"If-None-Match": etag})
        seen = pool.submit(waited, api, box)
        time.sleep(0.6)
        api.ok("PATCH", path(box), json={"tags": {"changed": "yes"}})
        for answer, took in (told.result(), seen.result()):
            assert answer.json()["tags"] == {"changed": "yes"} and took < 10
    answer, took = waited(api, box, headers={"If-None-Match": etag})
    assert took < 3, "it is another one already"
    answer, took = waited(api, box, 700, 304, headers={"If-None-Match": tag(api, box)})
    assert 0.6 < took < 5
    answer, took = waited(api, box, 700, until="stopped")
    assert answer.json()["status"] == "running" and 0.6 < took < 5


def test_a_wait_for_a_dead_one_ends_at_once_P63(api, emulator):
    box = api.sandbox(persistent=False)
    seen = api.get(box)
    api.stop(box)
    with emulator.calls() as calls:
        answer, took = waited(api, box, until="running")
        assert answer.json()["status"] == "stopped" and took < 3
        assert waited(api, box)[1] < 3
    assert not resumes(calls)
    for status in ("failed", "aborted"):
        emulator.fault({"status": 200, "body": {
            "sandbox": {"name": box, "persistent": False, "createdAt": 1, "updatedAt": 1, "status": "stopped",
                        "currentSessionId": seen["session_id"]},
            "session": {"id": seen["session_id"], "status": status, "cwd": "/"}, "routes": [], "resumed": False}},
            method="GET", path_regex=f"/{box}$", times=1)
        answer, took = waited(api, box, until="running")
        assert answer.json()["status"] == status and took < 3
    emulator.clear_faults()
    etag = tag(api, box)
    assert waited(api, box, 600, 304, headers={"If-None-Match": etag})[1] > 0.5, "the caller knows, and waits for more"
    api.destroy(box)
    api.refused("GET", path(box), 404, "sandbox_not_found", params={"wait_ms": 20000})


def test_waiting_is_checked(api, box, emulator):
    with emulator.calls() as calls:
        for query, pointer in (({"wait_ms": 25001}, "?wait_ms"), ({"until": "up"}, "?until"), ({"wait_ms": "x"}, "?wait_ms")):
            assert api.refused("GET", path(box), 422, "invalid_field", params=query)["pointer"] == pointer
        api.refused("GET", path(box), 422, "unknown_field", params={"wait": 1})
    assert len(calls) == 0


def test_those_who_wait_share_their_looks(api, box, emulator):
    with emulator.calls() as alone:
        waited(api, box, 2000, until="stopped")
    with emulator.calls() as together, concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: waited(api, box, 2000, until="stopped"), range(12)))
    assert all(a.json()["status"] == "running" for a, _ in answers)
    assert 2 <= len(alone) <= 10 and len(together) <= 3 * len(alone) < 12 * len(alone)


def raw_get(api, target):
    where = urllib.parse.urlsplit(api.url)
    s = socket.create_connection((where.hostname, where.port))
    s.sendall(f"GET {target} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {api.token}\r\n\r\n".encode())
    return s


def test_nobody_is_asked_for_a_client_that_left(api, box, emulator):
    with raw_get(api, path(box) + "?wait_ms=25000&until=stopped"):
        with emulator.calls() as calls:
            time.sleep(0.7)
        assert len(calls) >= 1
    time.sleep(0.3)
    with emulator.calls() as calls:
        time.sleep(3)
    assert len(calls) == 0


def test_reads_never_start_anything_B5(api, emulator):
    box = api.sandbox(tags={"reads": "only"})
    api.put(box, "f", b"x")
    stopped = api.stop(box)
    with emulator.calls() as calls:
        api.get(box)
        waited(api, box, 500, headers={"If-None-Match": tag(api, box)}, status=304)
        api.call("HEAD", path(box))
        api.ok("GET", "/v1/sandboxes", params={"tag.reads": "only"})
        api.refused("GET", path(box) + "/processes", 409, "sandbox_not_running")
        api.refused("GET", path(box) + "/files/stat", 409, "sandbox_not_running", params={"path": "f"})
        api.refused("GET", path(box) + "/files/content", 409, "sandbox_not_running", params={"path": "f"})
    assert not resumes(calls) and set(by_method(calls)) == {"GET"}
    assert api.get(box)["session_id"] == stopped["session_id"] and api.get(box)["status"] == "stopped"


# ---- lists ----

def names(api, **query):
    """Over all pages, which the links lead through."""
    found, pages = [], 0
    answer = api.ok("GET", "/v1/sandboxes", params=query)
    while True:
        pages += 1
        page = answer.json()
        found += [i["name"] for i in page["items"]]
        if not page["next_cursor"]:
            assert "Link" not in answer.headers
            return found
        assert pages < 50
        link = answer.headers["Link"]
        assert link.endswith('>; rel="next"')
        answer = api.ok("GET", link[1:link.index(">")])


def test_lists_are_filtered_and_sorted(api):
    mark = "t" + secrets.token_hex(6)
    a, b, c = (api.sandbox(name=f"{mark}-{n}", tags={"set": mark, "n": n, "colon": "x:y"}) for n in "abc")
    other = api.sandbox(tags={"set": mark})
    everything = {"tag.set": mark}
    assert names(api, **everything, sort="created_at") == [a, b, c, other]
    assert names(api, **everything) == [other, c, b, a], "the youngest first"
    assert names(api, name_prefix=mark) == [a, b, c] and names(api, name_prefix=mark, sort="-name") == [c, b, a]
    assert names(api, name_prefix=mark, sort="-created_at", limit=1) == [c, b, a]
    assert names(api, **everything, **{"tag.n": "b"}) == [b]
    assert names(api, **everything, **{"tag.colon": "x:y"}, limit=2, sort="name") == [a, b, c]
    assert names(api, **everything, **{"tag.colon": "x"}) == []
    api.stop(b)
    assert names(api, **everything, status="running", sort="created_at", limit=1) == [a, c, other]
    assert names(api, **everything, status="stopped") == [b]
    assert names(api, name_prefix=mark, status="stopped", limit=1) == [b]
    assert names(api, **everything, status="failed") == []
    assert names(api, **everything, sort="-status_changed_at")[0] == b
    owner = api.get(a)["owner"]
    if owner:
        assert names(api, **everything, **{"tag.sg.owner": owner}, sort="name") == sorted([a, b, c, other])


# ---- PATCH ----

def test_what_is_so_already_is_not_sent(api, emulator):
    box = api.sandbox(vcpus=2, timeout_ms=600000, tags={"k": "v"}, ports=[3000, 3001])
    before = api.ok("GET", path(box))
    same = {"vcpus": 2, "timeout_ms": 600000, "tags": {"k": "v"}, "ports": [3001, 3000], "persistent": True,
            "region": before.json()["region"], "mounts": {}, "failover_regions": [], "network_id": None,
            "snapshots": {"keep": 1, "expire_ms": 0, "delete_evicted": True}, "working_directory": None, "web_port": None,
            "keep_alive": None}
    with emulator.calls() as calls:
        for body in (same, {}, *({k: v} for k, v in same.items())):
            answer = api.ok("PATCH", path(box), json=body)
            assert answer.headers["ETag"] == before.headers["ETag"] and answer.json()["next_session"] == []
    assert set(by_method(calls)) == {"GET"} and len(calls) == 2 + len(same)


def test_several_fields_are_one_patch(api, emulator):
    box = api.sandbox(tags={"old": "1"})
    was = api.get(box)
    upstream = emulator.http.get(f"{emulator.url}/v2/sandboxes/{box}", timeout=60, params={"projectId": "prj_local"}).json()
    with emulator.calls() as calls:
        now = api.ok("PATCH", path(box), json={
            "vcpus": 4, "timeout_ms": 1200000, "tags": {"new": "2"}, "ports": [8080], "persistent": True, "web_port": 8080,
            "env": {"SEEN": "later"}, "snapshots": {"keep": 3}, "region": "fra1", "failover_regions": ["sfo1"]}).json()
    assert by_method(calls) == ["GET", "PATCH", "GET"]
    assert (now["vcpus"], now["memory_mb"], now["timeout_ms"], now["tags"]) == (4, 8192, 1200000, {"new": "2"})
    assert [r["port"] for r in now["routes"]] == [8080] and now["web_port"] == 8080
    assert now["snapshots"] == {"keep": 3, "expire_ms": 0, "delete_evicted": True}
    assert (now["region"], now["failover_regions"]) == ("fra1", ["sfo1"])
    assert now["next_session"] == ["vcpus", "timeout_ms", "env", "region", "failover_regions"]
    assert now["expires_at"] == was["expires_at"], "a running session keeps its time"
    reserved = {k: v for k, v in upstream["sandbox"]["tags"].items() if k.startswith("sg.")}
    assert reserved
    upstream = emulator.http.get(f"{emulator.url}/v2/sandboxes/{box}", timeout=60, params={"projectId": "prj_local"}).json()
    assert upstream["sandbox"]["tags"] == {"new": "2", **reserved}
    api.ok("PATCH", path(box), json={"region": was["region"], "failover_regions": []})  # its snapshot will be there
    api.stop(box)
    api.resume(box)
    assert api.run(box, shell="echo $SEEN; nproc")["out"].split()[0] == b"later"
    stopped_change = api.ok("PATCH", path(api.stop(box)["name"]), json={"timeout_ms": 900000}).json()
    assert stopped_change["next_session"] == [] and stopped_change["timeout_ms"] == 900000


def test_a_patch_is_checked_before_anything_is_sent_B4_P65(api, box, emulator):
    wrong = [({"vcpus": 3}, "/vcpus"), ({"timeout_ms": 1}, "/timeout_ms"), ({"ports": [80]}, "/ports/0"),
             ({"ports": [3000, 3000]}, "/ports/1"), ({"tags": {"sg.owner": "me"}}, "/tags/sg.owner"),
             ({"tags": dict.fromkeys("abcd", "x")}, "/tags"), ({"env": {"1": "x"}}, "/env/1"), ({"region": "mars1"}, "/region"),
             ({"region": "fra1", "failover_regions": ["fra1"]}, "/failover_regions/0"), ({"snapshots": {"keep": 11}}, "/snapshots/keep"),
             ({"mounts": {"relative": "d"}}, "/mounts/relative"), ({"working_directory": "a"}, "/working_directory"),
             ({"web_port": 1}, "/web_port"), ({"keep_alive": "yes"}, "/keep_alive"), ({"persistent": "no"}, "/persistent"),
             ({"current_snapshot_id": "a/b"}, "/current_snapshot_id"), ({"network_id": ""}, "/network_id")]
    with emulator.calls() as calls:
        for body, pointer in wrong:
            refused = api.refused("PATCH", path(box), 422, "invalid_field", json=body)
            assert refused["pointer"] == pointer and refused["outcome"] == "not_sent"
        for field in ("image", "name", "architecture", "vcpu", "lease"):
            assert api.refused("PATCH", path(box), 422, "unknown_field", json={field: 1})["pointer"] == "/" + field
    assert len(calls) == 0
    assert api.refused("PATCH", path(box), 422, "invalid_field", json={"web_port": 3000})["pointer"] == "/web_port"
    api.refused("PATCH", path("t-none"), 404, "sandbox_not_found", json={"vcpus": 2})


def test_lost_answers_of_a_patch_are_found_out(api, box, emulator):
    emulator.fault({"lose_answer": True}, method="PATCH", times=3)
    assert api.ok("PATCH", path(box), json={"tags": {"lost": "answer"}}).json()["tags"] == {"lost": "answer"}
    emulator.clear_faults()
    emulator.fault({"status": 503}, method="PATCH", times=3)
    refused = api.refused("PATCH", path(box), 503, "upstream_unavailable", json={"tags": {"never": "there"}})
    assert refused["outcome"] == "unknown" and api.get(box)["tags"] == {"lost": "answer"}
    emulator.clear_faults()
    assert api.ok("PATCH", path(box), json={"tags": {}}).json()["tags"] == {}


def test_what_only_the_gateway_knows_is_changed_too(api, box, emulator):
    with emulator.calls() as calls:
        now = api.ok("PATCH", path(box), json={"keep_alive": {"max_ms": 7200000}, "working_directory": "/tmp"}).json()
    assert "PATCH" not in by_method(calls)
    assert now["keep_alive"] == {"max_ms": 7200000} and now["working_directory"] == "/tmp"
    seen = api.get(box)
    assert seen["keep_alive"] == {"max_ms": 7200000} and seen["working_directory"] == "/tmp"
    now = api.ok("PATCH", path(box), json={"keep_alive": False, "working_directory": None}).json()
    assert now["keep_alive"] is False and now["working_directory"] != "/tmp"


def test_set_back_to_a_snapshot_A6(api):
    box = api.sandbox()
    api.put(box, "f", b"first")
    first = api.stop(box)["current_snapshot_id"]
    api.ok("PATCH", path(box), json={"snapshots": {"keep": 5}})
    api.resume(box)
    api.put(box, "f", b"second")
    assert api.stop(box)["current_snapshot_id"] != first
    now = api.ok("PATCH", path(box), json={"current_snapshot_id": first}).json()
    assert now["current_snapshot_id"] == first
    assert now["snapshots"] == {"keep": 5, "expire_ms": 0, "delete_evicted": False}
    api.resume(box)
    assert api.file(box, "f") == b"first"
    refused = api.refused("PATCH", path(box), 409, "snapshot_in_use", json={"snapshots": {"delete_evicted": True}})
    assert refused["outcome"] in ("not_sent", "not_started")
    gone = api.call("PATCH", path(box), json={"current_snapshot_id": "snap_" + "0" * 28})
    assert gone.status_code in (404, 410) and gone.json()["code"] in ("snapshot_not_found", "snapshot_gone")


def test_the_record_tells_the_effective_retention_P59(api, emu):
    box = api.create(snapshots={"keep": 4, "expire_ms": ONE_DAY, "delete_evicted": False})
    assert box["snapshots"] == {"keep": 4, "expire_ms": ONE_DAY, "delete_evicted": False}
    changed = api.ok("PATCH", path(box["name"]), json={"snapshots": {"expire_ms": 0}}).json()
    assert changed["snapshots"] == {"keep": 4, "expire_ms": 0, "delete_evicted": False}


# ---- extend ----

def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_a_session_is_made_longer(api, emulator):
    box = api.sandbox(timeout_ms=600000)
    before = moment(api.get(box)["expires_at"])
    now = api.ok("POST", path(box) + "/extend", json={"by_ms": 300000}).json()
    assert moment(now["expires_at"]) - before == datetime.timedelta(minutes=5) and now["timeout_ms"] == 600000
    wish = before + datetime.timedelta(minutes=7)
    text = wish.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    assert moment(api.ok("POST", path(box) + "/extend", json={"until": text}).json()["expires_at"]) == wish
    with emulator.calls() as calls:
        api.ok("POST", path(box) + "/extend", json={"until": text})
        api.ok("POST", path(box) + "/extend", json={"until": "2020-01-01T00:00:00Z"})
    assert by_method(calls) == ["GET", "GET"]
    with emulator.calls() as calls:
        for body, pointer in (({}, "/by_ms"), ({"by_ms": 999}, "/by_ms"), ({"by_ms": 86400001}, "/by_ms"),
                              ({"until": "soon"}, "/until"), ({"by_ms": 1000, "until": text}, "/until")):
            assert api.refused("POST", path(box) + "/extend", 422, "invalid_field", json=body)["pointer"] == pointer
    assert len(calls) == 0
    api.stop(box)
    refused = api.refused("POST", path(box) + "/extend", 409, "sandbox_not_running", json={"by_ms": 1000})
    assert refused["outcome"] == "not_started"
    assert api.get(box)["status"] == "stopped"


def test_an_extension_is_never_sent_twice(api, emulator):
    box = api.sandbox(timeout_ms=600000)
    before = moment(api.get(box)["expires_at"])
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/extend-timeout$", times=1)
    with emulator.calls() as calls:
        now = api.ok("POST", path(box) + "/extend", json={"by_ms": 300000}).json()
    assert by_method(calls).count("POST") == 1
    assert moment(now["expires_at"]) - before == datetime.timedelta(minutes=5)
    emulator.fault({"status": 502}, method="POST", path_regex="/extend-timeout$", times=1)
    with emulator.calls() as calls:
        answer = api.call("POST", path(box) + "/extend", json={"by_ms": 300000})
    assert answer.status_code in (502, 503) and answer.json()["outcome"] == "not_started"
    assert by_method(calls).count("POST") == 1
    assert api.get(box)["expires_at"] == now["expires_at"]


def test_the_plans_ceiling_is_told(own_emulator, own_gateway):
    emu = own_emulator("--plan=hobby")
    api = Client(own_gateway(url=emu.emulator.url, token=emu.emulator.token))
    box = api.sandbox(timeout_ms=2400000)
    before = api.get(box)["expires_at"]
    refused = api.refused("POST", path(box) + "/extend", 409, "session_limit", json={"by_ms": 3600000})
    assert refused["outcome"] == "not_started" and api.get(box)["expires_at"] == before
    api.clean_up()


# ---- stop and resume under faults ----

def invariants(api, box, sessions):
    """No session runs that nobody knows of, and no file is lost."""
    record = api.get(box)
    assert record["status"] in ("running", "stopped")
    assert api.resume(box)["status"] == "running"
    assert api.file(box, "kept") == b"kept"
    now = api.get(box)["session_id"]
    assert now in sessions or now != record["session_id"] or record["status"] == "running"


STOP_FAULTS = [({"lose_answer": True}, 1, 200), ({"lose_answer": True}, 3, 200), ({"status": 503}, 1, 200),
               ({"status": 503}, 3, 503), ({"close_before": True}, 3, 503), ({"html": 502}, 1, 200), ({"malformed": True}, 3, 502)]


@pytest.mark.parametrize("action,times,status", STOP_FAULTS, ids=[f"{next(iter(a))}-{t}" for a, t, _ in STOP_FAULTS])
def test_stop_under_faults_C2(api, emulator, action, times, status):
    box = api.sandbox()
    api.put(box, "kept", b"kept")
    session = api.get(box)["session_id"]
    emulator.fault(action, method="POST", path_regex="/stop$", times=times)
    answer = api.call("POST", path(box) + "/stop")
    emulator.clear_faults()
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["status"] == "stopped"
    else:
        assert answer.json()["outcome"] in ("unknown", "not_sent")
        assert api.get(box)["status"] == "running" and api.get(box)["session_id"] == session
        assert api.stop(box)["status"] == "stopped", "asked again it does"
    invariants(api, box, [session])


RESUME_FAULTS = [({"lose_answer": True}, 1, 200), ({"lose_answer": True}, 3, 200), ({"status": 503}, 1, 200),
                 ({"status": 503}, 3, 503), ({"close_before": True}, 3, 503), ({"malformed": True}, 3, 502),
                 ({"status": 422, "body": {"error": {"code": "sandbox_snapshotting", "message": "soon"}}}, 3, 200)]


@pytest.mark.parametrize("action,times,status", RESUME_FAULTS, ids=[f"{next(iter(a))}-{t}" for a, t, _ in RESUME_FAULTS])
def test_resume_under_faults_C2_A4(api, emulator, action, times, status):
    box = api.sandbox()
    api.put(box, "kept", b"kept")
    old = api.stop(box)["session_id"]
    emulator.fault(action, method="GET", path_regex=f"/{box}$", times=times)
    answer = api.call("POST", path(box) + "/resume")
    emulator.clear_faults()
    assert answer.status_code == status, answer.text
    now = api.get(box)
    if status == 200:
        assert answer.json()["status"] == "running" == now["status"] and answer.json()["session_id"] == now["session_id"] != old
        assert answer.json()["resumed"] in (True, None)
    else:
        assert answer.json()["outcome"] == "unknown" and now["status"] == "stopped"
    sessions = emulator.http.get(f"{emulator.url}/v2/sandboxes/sessions", timeout=60,
                                 params={"project": "prj_local", "name": box}).json()["sessions"]
    assert len(sessions) == (2 if status == 200 else 1), "one session for one resume, however often it was sent"
    invariants(api, box, [old])


def test_somebody_else_stops_and_resumes_meanwhile_C2(api, emulator):
    """Between the look and the stop the session ends by other hands, and a resume of theirs brings up another one."""
    box = api.sandbox()
    api.put(box, "kept", b"kept")
    old = api.get(box)["session_id"]
    emulator.fault({"delay_ms": 1500}, method="POST", path_regex="/stop$", times=1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(api.stop, box)
        until(lambda: any(e["path"].endswith(f"{old}/stop") for e in emulator.journal()) or None, "the stop is sent")
        emulator.http.post(f"{emulator.url}/v2/sandboxes/sessions/{old}/stop", params={"teamId": "team_local"}, json={}, timeout=60)
        emulator.http.get(f"{emulator.url}/v2/sandboxes/{box}", timeout=60,
                          params={"teamId": "team_local", "projectId": "prj_local", "resume": "true"})
        assert stopping.result()["status"] in ("stopped", "running")
    record = api.stop(box)
    assert record["status"] == "stopped"
    invariants(api, box, [old])


def test_resume_during_a_stop_waits_C2(api, emulator):
    box = api.sandbox()
    api.put(box, "kept", b"kept")
    old = api.get(box)["session_id"]
    emulator.fault({"delay_ms": 600}, method="POST", path_regex="/stop$", times=1)
    assert api.call("POST", path(box) + "/stop", json={"wait_ms": 0}).status_code == 202
    until(lambda: api.get(box)["status"] != "running" or None, "it stops")
    back = api.resume(box)
    assert back["status"] == "running" and back["session_id"] != old
    assert api.file(box, "kept") == b"kept"


def test_a_vanished_snapshot_is_named_and_not_retried_P58(api, emulator):
    box = api.sandbox()
    snapshot = api.stop(box)["current_snapshot_id"]
    emulator.fault({"evict_snapshot": True}, method="GET", path_regex=f"/{box}$", times=1)
    with emulator.calls() as calls:
        refused = api.refused("POST", path(box) + "/resume", 410, "snapshot_gone")
    assert snapshot in refused["detail"] and refused["retryable"] is False and refused["outcome"] == "not_started"
    assert len(resumes(calls)) == 1 and set(by_method(calls)) == {"GET"} and len(calls) == 2
    refused = api.refused("POST", path(box) + "/run", 410, "snapshot_gone", json={"argv": ["true"], "resume": True})
    assert snapshot in refused["detail"]


def test_no_files_no_resume_C2(api, emulator):
    box = api.sandbox(persistent=False)
    api.stop(box)
    with emulator.calls() as calls:
        refused = api.refused("POST", path(box) + "/resume", 409, "not_resumable")
    assert len(calls) == 1 and refused["outcome"] == "not_started"


def test_every_post_with_a_body_takes_resume(api, emulator):
    """Those that act on a process start nothing for it: it ended with its session. P64"""
    box = api.sandbox()
    api.put(box, "f", b"x")
    pid = api.start(box, "sleep", "600")
    acts = [("signal", {"signal": "TERM"}), ("cancel", {}), ("resize", {"cols": 80, "rows": 24}), ("ack", {"stdout": 1})]
    for act, body in acts:
        api.refused("POST", f"{path(box)}/processes/{pid}/{act}", 422, "invalid_field", json={**body, "resume": 1})
    api.stop(box)
    with emulator.calls() as calls:
        for act, body in acts:
            answer = api.call("POST", f"{path(box)}/processes/{pid}/{act}", json={**body, "resume": True})
            assert (answer.status_code, answer.json()["reason"]) == (409, "StaleSession"), answer.text
    assert not resumes(calls) and api.get(box)["status"] == "stopped"
    for target, body in (("/files/mkdir", {"path": "made"}), ("/files/chmod", {"path": "f", "mode": "0600"}),
                         ("/processes", {"argv": ["true"]}), ("/run", {"argv": ["true"]})):
        api.stop(box)
        answer = api.call("POST", path(box) + target, json={**body, "resume": True})
        assert answer.status_code in (200, 201, 204), answer.text
        assert api.get(box)["status"] == "running"
    assert api.process(box, pid)["state"] == "ended_by_session"
    for act, body in acts:
        api.refused("POST", f"{path(box)}/processes/{pid}/{act}", 409, "stale_session", json={**body, "resume": True})


def test_of_those_who_expect_one_state_one_changes_it_A18(own, database):
    """Changes of one sandbox come one after another, whichever gateway of one store they are asked of."""
    clients = [own(store=database)[1] for _ in range(2)]
    box = clients[0].sandbox()
    etag = tag(clients[0], box)
    assert tag(clients[1], box) == etag, "it is the same at every gateway"

    def change(i):
        return clients[i % 2].call("PATCH", path(box), json={"tags": {"by": str(i)}}, headers={"If-Match": etag})
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(change, range(6)))
    won = [i for i, a in enumerate(answers) if a.status_code == 200]
    assert len(won) == 1 and {a.status_code for a in answers} == {200, 412}, [a.text for a in answers]
    assert clients[1].get(box)["tags"] == {"by": str(won[0])}
