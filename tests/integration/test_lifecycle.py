"""Sandboxes live, sleep and die as promised: C1 C2 A3 A4 A5 A6 B5 E3 P55 P59 P65."""
import concurrent.futures
import secrets

import pytest


def test_smoke_from_nothing_to_output(api):
    """The whole path once: create, run, write, read, stop, resume, read again, destroy (C2)."""
    box = api.create(vcpus=1)
    name = box["name"]
    assert box["created"] is True and box["status"] == "running"
    assert api.run(name, "echo", "hello")["out"] == b"hello\n"
    api.put(name, "note.txt", b"kept")
    first = api.get(name)["session_id"]
    assert api.stop(name)["status"] == "stopped"
    back = api.resume(name)
    assert back["status"] == "running" and back["session_id"] != first
    assert api.file(name, "note.txt") == b"kept"
    api.destroy(name)
    api.refused("GET", f"/v1/sandboxes/{name}", 404, "sandbox_not_found")


def test_record_of_a_default_sandbox_A5_A6_P59(api):
    """A5: persistent, one hour. A6: one snapshot kept, without expiry, and the record says so."""
    r = api.create()
    assert r["persistent"] is True and r["timeout_ms"] == 3600000
    assert r["snapshots"] == {"keep": 1, "expire_ms": 0, "delete_evicted": True}
    assert r["tags"] == {} and r["routes"] == [] and r["upstream"] == "default"
    assert r["working_directory"].startswith("/")
    assert r["created_at"].endswith("Z") and r["observed_at"] >= r["created_at"]
    seen = api.get(r["name"])
    assert {k: v for k, v in seen.items() if k != "observed_at"}.items() >= \
        {k: r[k] for k in ("name", "session_id", "status", "region", "vcpus", "memory_mb", "snapshots")}.items()


def test_create_answers_where_it_is(api):
    name = "t-" + secrets.token_hex(8)
    answer = api.ok("POST", "/v1/sandboxes", 201, json={"name": name, "tags": {"team": "a:b"}, "ports": [3000],
                                                        "env": {"GREETING": "moin"}})
    api.made.append(name)
    assert answer.headers["Location"] == f"/v1/sandboxes/{name}"
    record = answer.json()
    assert record["tags"] == {"team": "a:b"}
    assert [r["port"] for r in record["routes"]] == [3000] and record["routes"][0]["url"].startswith("http")
    assert api.run(name, shell="echo $GREETING")["out"] == b"moin\n"


def test_names_C1(api, emulator):
    with emulator.calls() as calls:
        for bad in ("", "-x", "_x", "a b", "a/b", "x" * 64, "sessions", "snapshots", "drives", "ü"):
            assert api.refused("POST", "/v1/sandboxes", 422, "invalid_field", json={"name": bad})["pointer"] == "/name"
        api.refused("GET", "/v1/sandboxes/sessions", 404, "sandbox_not_found")
        api.refused("GET", "/v1/sandboxes/" + "x" * 129, 404, "sandbox_not_found")
    assert len(calls) == 0, "nothing may be sent upstream"
    made = api.ok("POST", "/v1/sandboxes", 201, json={}).json()
    api.made.append(made["name"])
    assert made["name"].startswith("sb-")
    longest = "Z" + secrets.token_hex(31)
    assert api.create(name=longest)["name"] == longest


def test_unknown_and_unbuilt_fields_reach_nobody_P65(api, emulator):
    with emulator.calls() as calls:
        for field, code in (("nmae", "unknown_field"), ("request_rules", "unsupported"), ("mount", "unknown_field"),
                            ("initial", "unknown_field"), ("network", "unknown_field")):
            refused = api.refused("POST", "/v1/sandboxes", 422, code, json={"name": "p65", field: {}})
            assert refused["pointer"] == "/" + field and refused["outcome"] == "not_sent"
    assert len(calls) == 0


def test_existing_name_is_a_conflict_A3_P55(api, emulator):
    box = api.sandbox()
    refused = api.refused("POST", "/v1/sandboxes", 409, "sandbox_exists", json={"name": box})
    assert refused["reason"] == "AlreadyExistsError" and refused["retryable"] is False
    # the older spelling: 400 with a sentence
    emulator.fault({"status": 400, "body": {"error": {"code": "bad_request", "message":
                    f"A sandbox with the name '{box}' already exists for this project."}}}, method="POST",
                   path_regex="/sandboxes$")
    api.refused("POST", "/v1/sandboxes", 409, "sandbox_exists", json={"name": box})


def test_get_or_create_E3_E4(api):
    """E3: concurrent callers get one sandbox, created:true once. E4: ignored wishes are named."""
    name = "t-" + secrets.token_hex(8)
    api.made.append(name)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: api.call("POST", "/v1/sandboxes", json={"name": name, "if_exists": "get"}),
                                range(6)))
    assert sorted(a.status_code for a in answers) == [200] * 5 + [201]
    assert len({a.json()["session_id"] for a in answers}) == 1
    again = api.create(status=200, name=name, if_exists="get", vcpus=2, env={"A": "b"})
    assert again["created"] is False and again["ignored"] == ["vcpus", "env"]


def test_resume_never_creates_A4(api):
    name = "t-" + secrets.token_hex(8)
    api.refused("POST", f"/v1/sandboxes/{name}/resume", 404, "sandbox_not_found")
    api.refused("GET", f"/v1/sandboxes/{name}", 404, "sandbox_not_found")
    box = api.sandbox()
    api.destroy(box)
    api.refused("POST", f"/v1/sandboxes/{box}/resume", 404, "sandbox_not_found")


def test_stop_and_destroy_succeed_again_C2(api):
    box = api.sandbox()
    assert api.stop(box)["status"] == "stopped"
    assert api.stop(box)["status"] == "stopped"
    refused = api.refused("POST", f"/v1/sandboxes/{box}/run", 409, "sandbox_not_running", json={"argv": ["true"]})
    assert refused["outcome"] == "not_sent"
    assert api.get(box)["status"] == "stopped", "a read never resumes"
    api.destroy(box)
    api.destroy(box)
    api.refused("POST", f"/v1/sandboxes/{box}/stop", 404, "sandbox_not_found")


def test_stop_ends_processes_and_keeps_files_C2(api):
    box = api.sandbox()
    api.put(box, "dir/deep/file", b"\0\xff", parents="true")
    pid = api.start(box, "sleep", "600")
    old = api.get(box)["session_id"]
    api.stop(box)
    record = api.resume(box)
    assert record["resumed"] is True
    assert api.file(box, "dir/deep/file") == b"\0\xff"
    assert api.process(box, pid)["state"] == "ended_by_session" and api.process(box, pid)["session_id"] == old
    api.refused("POST", f"/v1/sandboxes/{box}/processes/{pid}/signal", 409, "stale_session", json={"signal": 9})
    assert api.run(box, shell="pgrep -c sleep || true")["out"] == b"0\n"
    assert api.resume(box)["resumed"] is False


def test_a_session_that_ended_elsewhere_is_found_out(api, emulator):
    """The gateway's memory of a session may be out of date: nothing started, so it looks again and goes on."""
    box = api.sandbox()
    assert api.run(box, "true")["exit_code"] == 0
    old = api.get(box)["session_id"]
    for path in (f"sandboxes/sessions/{old}/stop", None):  # behind the gateway's back
        if path:
            answer = emulator.http.post(f"{emulator.url}/v2/{path}", params={"teamId": "team_local"}, json={}, timeout=60)
        else:
            answer = emulator.http.get(f"{emulator.url}/v2/sandboxes/{box}", timeout=60,
                                       params={"teamId": "team_local", "projectId": "prj_local", "resume": "true"})
        assert answer.status_code == 200, answer.text
    new = answer.json()["session"]["id"]
    assert new != old
    result = api.run(box, "echo", "again")
    assert result["out"] == b"again\n" and result["session_id"] == new


def test_not_persistent_cannot_be_resumed(api):
    box = api.sandbox(persistent=False)
    api.stop(box)
    refused = api.refused("POST", f"/v1/sandboxes/{box}/resume", 409, "not_resumable")
    assert refused["reason"] == "StaleSession"


def test_a_shared_snapshot_survives_those_made_from_it_A6(api):
    """A6: destroying or stopping a sandbox that began as somebody's snapshot never takes that snapshot along."""
    first = api.sandbox()
    api.put(first, "f", b"shared")
    snapshot = api.stop(first)["current_snapshot_id"]
    source = {"type": "snapshot", "snapshot_id": snapshot}
    second = api.create(source=source)
    assert second["snapshots"] == {"keep": 1, "expire_ms": 0, "delete_evicted": False}
    assert api.file(second["name"], "f") == b"shared"
    api.destroy(first)
    api.stop(second["name"])
    api.destroy(second["name"])
    third = api.sandbox(source=source)
    assert api.file(third, "f") == b"shared"
    api.refused("POST", "/v1/sandboxes", 410, "snapshot_gone", json={"source": {"type": "snapshot",
                                                                                "snapshot_id": "snap_" + "0" * 28}})


def test_stop_without_waiting(api):
    box = api.sandbox()
    answer = api.call("POST", f"/v1/sandboxes/{box}/stop", json={"wait_ms": 0})
    assert answer.status_code in (200, 202)
    if answer.status_code == 202:
        assert answer.headers["Location"] == f"/v1/sandboxes/{box}"
    assert api.stop(box)["status"] == "stopped"
    assert api.refused("POST", f"/v1/sandboxes/{box}/stop", 422, "invalid_field",
                       json={"wait_ms": 25001})["pointer"] == "/wait_ms"


def test_resume_waits_out_a_stop_C2(api, emulator):
    box = api.sandbox()
    api.put(box, "f", b"kept")
    emulator.fault({"delay_ms": 800}, method="POST", path_regex="/stop$")
    assert api.call("POST", f"/v1/sandboxes/{box}/stop", json={"wait_ms": 0}).status_code == 202
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(api.stop, box)
        stopping.result()
    assert api.resume(box)["status"] == "running"
    assert api.file(box, "f") == b"kept"


def test_lost_answers_of_stop_and_destroy_C2_U9(api, emulator):
    """Repeating these is safe, so the gateway does."""
    box = api.sandbox()
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/stop$", times=1)
    assert api.stop(box)["status"] == "stopped"
    emulator.fault({"lose_answer": True}, method="DELETE", times=1)
    api.destroy(box)
    api.refused("GET", f"/v1/sandboxes/{box}", 404, "sandbox_not_found")


def test_lost_answer_of_create_is_not_repeated_P57(api, emulator):
    """It is looked for by its tag instead (test_create_faults.py has all the ways in which a create can go wrong)."""
    name = "t-" + secrets.token_hex(8)
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/sandboxes$", times=1)
    with emulator.calls() as calls:
        record = api.create(name=name)
    assert record["created"] is True and record["status"] == "running"
    assert calls.seen() == [("POST", "sandboxes"), ("GET", name)]


def test_head_is_get_without_a_body(api):
    box = api.sandbox()
    answer = api.ok("HEAD", f"/v1/sandboxes/{box}")
    assert answer.content == b"" and int(answer.headers["Content-Length"]) > 100
    api.put(box, "f", b"x" * 100000)
    answer = api.ok("HEAD", f"/v1/sandboxes/{box}/files/content", params={"path": "f"})
    assert answer.content == b""
    assert api.call("HEAD", f"/v1/sandboxes/{box}/files/content", params={"path": "none"}).status_code == 404
    assert api.file(box, "f") == b"x" * 100000


def test_list_pages_and_filters(api):
    prefix = "t-" + secrets.token_hex(6)
    names = [f"{prefix}-{i}" for i in range(3)]
    for i, name in enumerate(names):
        api.create(name=name, tags={"n": str(i), "set": prefix})
    seen, cursor = [], None
    for _ in range(3):
        query = {"name_prefix": prefix, "limit": 2, **({"cursor": cursor} if cursor else {})}
        answer = api.ok("GET", "/v1/sandboxes", params=query)
        page = answer.json()
        seen += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        assert bool(cursor) == ('rel="next"' in answer.headers.get("Link", ""))
        if not cursor:
            break
    assert sorted(seen) == names
    for query, pointer in (({"limit": 0}, "?limit"), ({"limit": 101}, "?limit"), ({"cursor": "x"}, "?cursor"),
                           ({"status": "up"}, "?status"), ({"sort": "size"}, "?sort"), ({"tag.sg.alloc": "x"}, "?tag.sg.alloc")):
        assert api.refused("GET", "/v1/sandboxes", 422, "invalid_field", params=query)["pointer"] == pointer
    for unknown in ("tag", "tag.", "state"):
        api.refused("GET", "/v1/sandboxes", 422, "unknown_field", params={unknown: "a:b"})


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_token(api, path):
    api.http.headers.pop("Authorization")
    assert api.ok("GET", path).json()["status"] in ("ok", "ready")


def test_version_and_limits(api):
    assert api.ok("GET", "/v1/version").json()["name"] == "sandgate"
    limits = api.ok("GET", "/v1/limits").json()
    assert limits["process"]["saved_output_bytes"] == 1 << 20 and limits["process"]["saved_output_keep_ms"] == 86400000
    assert limits["sandbox"]["ports"] == 15 and limits["json_body_bytes"] == 1048576
