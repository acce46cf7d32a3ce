"""What a sandbox is created with, and what is run when it is made and when its sessions begin: A5 A8 B15 E3 E4 E13."""
import concurrent.futures
import secrets
import time

import pytest

from emulator_api import Api
from harness import until


def new_name():
    return "c-" + secrets.token_hex(8)


def create(api, status, **body):
    body.setdefault("name", new_name())
    api.made.append(body["name"])
    return api.ok("POST", "/v1/sandboxes", status, json=body)


# ---- the working directory ----

@pytest.mark.parametrize("where", ["/vercel/made/here", "/srv/only root/may", "/tmp"])
def test_programs_and_files_begin_in_the_working_directory(api, where):
    """It is made where it is missing, also where only root may, and belongs to the sandbox's user then."""
    box = api.create(working_directory=where)
    name = box["name"]
    assert box["working_directory"] == where and api.get(name)["working_directory"] == where
    assert api.run(name, "pwd")["out"].decode() == where + "\n"
    api.put(name, "relative.txt", b"here")
    assert api.run(name, "cat", where + "/relative.txt")["out"] == b"here"
    assert api.run(name, shell="echo x > mine && stat -c %U .")["exit_code"] == 0
    api.stop(name)
    api.resume(name)
    assert api.run(name, "pwd")["out"].decode() == where + "\n", "also in the next session"


def test_another_gateway_knows_the_working_directory(api, own, gateway, tmp_path, emulator):
    shared = tmp_path / "shared.db"
    one, first = own(STORE_STATE_FILE=shared)
    two, second = own(STORE_STATE_FILE=shared)
    name = first.sandbox(working_directory="/vercel/w")
    assert second.run(name, "pwd")["out"] == b"/vercel/w\n"
    second.get(name)
    assert second.run(name, "pwd")["out"] == b"/vercel/w\n", "a look at the record does not forget it"
    assert second.get(name)["working_directory"] == "/vercel/w"


def test_a_namesake_does_not_inherit_it(api):
    name = api.sandbox(working_directory="/vercel/w")
    api.destroy(name)
    api.create(name=name)
    assert api.run(name, "pwd")["out"] != b"/vercel/w\n"


def test_one_that_cannot_be_made_is_refused_and_nothing_stays(api):
    name = new_name()
    refused = api.refused("POST", "/v1/sandboxes", 422, "invalid_field", json={"name": name,
                                                                               "working_directory": "/proc/none/x"})
    assert refused["pointer"] == "/working_directory" and refused["outcome"] == "not_started"
    api.refused("GET", f"/v1/sandboxes/{name}", 404, "sandbox_not_found")


# ---- init (E13) ----

def test_init_runs_in_order_once_E13(api):
    box = create(api, 201, working_directory="/vercel/w", init=[
        {"argv": ["sh", "-c", "echo one >> log; pwd > where"], "name": "first"},
        {"shell": "echo $WHAT >> log", "env": {"WHAT": "two"}}]).json()
    assert box["init"] == "done"
    assert api.file(box["name"], "log") == b"one\ntwo\n" and api.file(box["name"], "where") == b"/vercel/w\n"
    got = create(api, 200, name=box["name"], if_exists="get", init=[{"argv": ["false"]}]).json()
    assert got["ignored"] == ["init"] and got["init"] == "done", "what it was created with counts (E4)"
    assert api.file(box["name"], "log") == b"one\ntwo\n"


def test_a_failed_init_keeps_the_sandbox_and_is_run_again_E13(api):
    name = new_name()
    api.made.append(name)
    init = [{"shell": "echo tried >> log"}, {"argv": ["sh", "-c", "test -e allowed || { echo not yet >&2; exit 7; }"],
                                             "name": "gate"}]
    answer = api.call("POST", "/v1/sandboxes", json={"name": name, "init": init})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "step_failed"), problem
    assert answer.headers["Location"] == f"/v1/sandboxes/{name}"
    assert "gate" in problem["detail"] and "7" in problem["detail"] and "not yet" in problem["detail"]
    assert problem["outcome"] == "finished"
    assert api.get(name)["status"] == "running" and api.get(name)["init"] == "failed"
    again = api.call("POST", "/v1/sandboxes", json={"name": name, "if_exists": "get"})
    assert again.status_code == 422 and again.json()["code"] == "step_failed"
    api.put(name, "allowed", b"")
    record = create(api, 200, name=name, if_exists="get").json()
    assert record["init"] == "done"
    assert api.file(name, "log") == b"tried\n" * 3
    create(api, 200, name=name, if_exists="get")
    assert api.file(name, "log") == b"tried\n" * 3, "once it succeeded it is not run again"


def test_concurrent_callers_run_init_once_E3_E13(api):
    body = {"name": new_name(), "if_exists": "get", "init": [{"shell": "sleep 1; echo once >> log"}]}
    api.made.append(body["name"])
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: api.call("POST", "/v1/sandboxes", json=body), range(5)))
    assert sorted(a.status_code for a in answers) == [200] * 4 + [201], [a.text for a in answers]
    assert {a.json()["init"] for a in answers} == {"done"}
    assert api.file(body["name"], "log") == b"once\n"


def test_init_goes_on_when_the_gateway_was_killed_E13(own, tmp_path):
    """With a key it is one request: the step that ran when the gateway died is waited for, not run again."""
    import signal
    shared = tmp_path / "shared.db"
    one, first = own(STORE_STATE_FILE=shared, STORE_KEY_SILENCE_MS=1500)
    body = {"name": new_name(), "init": [{"shell": "echo a >> log; touch began; sleep 3; echo b >> log"}, {"shell": "echo c >> log"}]}
    headers = {"Idempotency-Key": "k-" + secrets.token_hex(8)}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asking = pool.submit(first.call, "POST", "/v1/sandboxes", json=body, headers=headers)
        until(lambda: first.call("GET", f"/v1/sandboxes/{body['name']}/files/content", params={"path": "began"}).status_code == 200,
              "init began")
        one.end(signal.SIGKILL)
        assert asking.exception() is not None
    two, second = own(STORE_STATE_FILE=shared, STORE_KEY_SILENCE_MS=1500, AUTH_TOKENS_FILE=one.tokens)
    second.http.headers["Authorization"] = "Bearer " + one.token
    second.made.append(body["name"])
    answer = until(lambda: (lambda a: a if a.status_code == 201 else None)(
        second.call("POST", "/v1/sandboxes", json=body, headers=headers)), "another gateway goes on with it")
    assert answer.json()["created"] is True and answer.json()["init"] == "done"
    assert second.file(body["name"], "log") == b"a\nb\nc\n"


# ---- on_start (B15) ----

def started(api, name, n):
    answer = api.call("GET", f"/v1/sandboxes/{name}/files/content", params={"path": "starts"})
    return answer.status_code == 200 and answer.content.count(b"\n") == n


def test_on_start_runs_in_each_new_session_B15(api):
    box = create(api, 201, on_start=[{"shell": "echo $$ >> starts"},
                                     {"shell": "exec sleep 300", "background": True, "name": "daemon"}]).json()
    name = box["name"]
    assert box["on_start"] == "done" and started(api, name, 1)
    assert api.run(name, "pgrep", "-xc", "sleep")["out"] == b"1\n"
    api.stop(name)
    api.resume(name)
    until(lambda: started(api, name, 2), "it ran in the next session")
    until(lambda: api.get(name)["on_start"] == "done", "and is told")
    assert api.run(name, "pgrep", "-xc", "sleep")["out"] == b"1\n"
    api.get(name), api.run(name, "true")
    time.sleep(0.5)
    assert started(api, name, 2), "once in a session"


def test_on_start_runs_when_a_session_began_elsewhere_B15(api, emulator, own, gateway, tmp_path):
    """Resumed behind the gateway's back, and through another gateway: whoever first has to do with the session runs it."""
    one, first = own(STORE_STATE_FILE=tmp_path / "shared.db")
    two, second = own(STORE_STATE_FILE=tmp_path / "shared.db")
    name = first.sandbox(on_start=[{"shell": "echo $$ >> starts"}])
    first.stop(name)
    Api(emulator, "prj_local").call("GET", f"/v2/sandboxes/{name}", resume="true")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda c: c.run(name, "true"), (first, second)))
    until(lambda: started(first, name, 2), "it ran, once")
    time.sleep(0.5)
    assert started(second, name, 2)


def test_a_failed_on_start_is_told_and_keeps_the_sandbox_B15(api):
    name = new_name()
    api.made.append(name)
    answer = api.call("POST", "/v1/sandboxes", json={"name": name, "on_start": [{"argv": ["sh", "-c", "exit 3"]}]})
    assert answer.status_code == 422 and answer.json()["code"] == "step_failed"
    assert answer.headers["Location"] == f"/v1/sandboxes/{name}" and api.get(name)["status"] == "running"


# ---- get-or-create ----

def test_get_or_create_resumes_where_it_is_told_to_E3(api):
    name = api.sandbox()
    api.stop(name)
    assert create(api, 200, name=name, if_exists="get").json()["status"] == "stopped", "a look never starts a VM"
    record = create(api, 200, name=name, if_exists="get", resume=True, env={"A": "b"}).json()
    assert record["status"] == "running" and record["ignored"] == ["env"] and record["created"] is False


def test_get_or_create_of_what_is_there_costs_one_call(api, emulator):
    name = api.sandbox()
    with emulator.calls() as calls:
        create(api, 200, name=name, if_exists="get")
    assert [m for m, _ in calls.seen()] == ["GET"]


# ---- options (A8) ----

def test_provider_options_mean_the_same_A8(api, emulator):
    box = api.create(provider_options={"vercel": {"vcpus": 4, "tags": {"a": "b"}, "persistent": False}, "other": {"x": [1]}})
    assert box["vcpus"] == 4 and box["tags"] == {"a": "b"} and box["persistent"] is False
    with emulator.calls() as calls:
        refused = api.refused("POST", "/v1/sandboxes", 422, "invalid_field",
                              json={"provider_options": {"vercel": {"ports": [80]}}})
    assert refused["pointer"] == "/provider_options/vercel/ports/0" and len(calls) == 0


def test_mounts_and_a_web_port_A8(api, emulator):
    drive = "d-" + secrets.token_hex(6)
    behind = Api(emulator, "prj_local")
    behind.drive(drive)
    try:
        box = api.create(mounts={"/data": drive}, ports=[3000, 4000], web_port=4000)
        assert api.run(box["name"], shell="echo kept > /data/f")["exit_code"] == 0
        assert box["web_port"] == 4000 and sorted(r["port"] for r in box["routes"]) == [3000, 4000]
        api.destroy(box["name"])
        other = api.create(mounts={"/mnt": {"drive": drive, "mode": "snapshot"}})
        assert api.run(other["name"], "cat", "/mnt/f")["out"] == b"kept\n"
        api.destroy(other["name"])
    finally:
        behind.call("DELETE", f"/v2/sandboxes/drives/{drive}")


def test_create_from_a_template(api):
    template = "t-" + secrets.token_hex(6)
    api.ok("PUT", f"/v1/templates/{template}", 201, json={"steps": [{"shell": "echo made > made"}]})
    try:
        box = api.create(template=template)
        assert box["template"] == template and box["snapshots"]["delete_evicted"] is False
        assert api.file(box["name"], "made") == b"made\n"
        api.refused("POST", "/v1/sandboxes", 404, "template_not_found", json={"template": template + "x"})
    finally:
        api.clean_up()
        api.ok("DELETE", f"/v1/templates/{template}", 204)


def test_create_from_a_checkpoint_whose_snapshot_is_gone_E8(api, emulator):
    """A clear error, or with on_missing the base; never a raw 410."""
    checkpoint, first = "k-" + secrets.token_hex(6), api.sandbox()
    api.put(first, "made", b"kept")
    api.ok("POST", "/v1/checkpoints", 201, json={"name": checkpoint, "sandbox": first})
    try:
        box = api.create(checkpoint={"name": checkpoint})
        assert box["checkpoint"] == checkpoint and api.file(box["name"], "made") == b"kept"
        api.destroy(box["name"])
        snapshot = api.ok("GET", f"/v1/checkpoints/{checkpoint}").json()["snapshot_id"]
        Api(emulator, "prj_local").call("DELETE", f"/v2/sandboxes/snapshots/{snapshot}")
        name = new_name()
        refused = api.refused("POST", "/v1/sandboxes", 410, "checkpoint_gone",
                              json={"name": name, "checkpoint": {"name": checkpoint}})
        assert refused["outcome"] == "not_started"
        based = api.create(name=name, checkpoint={"name": checkpoint, "on_missing": "base"})
        assert api.call("GET", f"/v1/sandboxes/{name}/files/content", params={"path": "made"}).status_code == 404
        assert based["created"] is True
    finally:
        api.clean_up()
        api.call("DELETE", f"/v1/checkpoints/{checkpoint}")
