"""Whatever happens to the start call's answer, the program runs once or provably not at all: U3 P57 P60."""
import pytest

LOG = "echo run >> ran; echo done"


def once(api, box, way, shell, id=None):
    """Starts and waits for the end. A start that the gateway proves not to have happened, and never to happen, is tried
    again, as its caller would; returns (output, exit code)."""
    for attempt in range(3):
        body = {"shell": shell, **({"id": f"{id}-{attempt}"} if id else {})}
        answer = api.call("POST", f"/v1/sandboxes/{box}/{way}", json=body)
        if answer.status_code < 300:
            break
        assert answer.json()["outcome"] in ("not_started", "not_sent"), answer.text
    record = answer.json()
    assert answer.status_code in (200, 201), answer.text
    if way == "run":
        return record["stdout"].encode(), record["exit_code"]
    code = api.wait(box, record["process_id"])["exit_code"]
    return api.output(box, record["process_id"]).content, code


@pytest.fixture
def warm(api, box):
    """A sandbox that has the helper, so that the next cmd call is the start itself."""
    api.run(box, "true")
    return box


FAULTS = {
    "answer lost": {"lose_answer": True},
    "cut before a line": {"cut_after_bytes": 1},
    "cut inside a line": {"cut_after_bytes": 200},
    "cut at once": {"cut_after_bytes": 0},
    "late and lost": {"delay_ms": 300, "lose_answer": True},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("way", ["run", "processes"])
def test_started_once_when_the_answer_is_lost_U3(api, warm, emulator, fault, way):
    emulator.fault(fault, method="POST", path_regex="/cmd$", times=1)
    assert once(api, warm, way, LOG) == (b"done\n", 0)
    assert api.file(warm, "ran") == b"run\n", "the program must have run exactly once"


@pytest.mark.parametrize("way", ["run", "processes"])
def test_not_started_is_proven_U3(api, warm, emulator, way):
    """The connection broke before the upstream did anything: the gateway makes sure, and says not_started."""
    emulator.fault({"close_before": True}, method="POST", path_regex="/cmd$", times=1)
    answer = api.call("POST", f"/v1/sandboxes/{warm}/{way}", json={"id": "never", "shell": LOG})
    assert answer.status_code in (502, 503, 504), answer.text
    assert answer.json()["outcome"] == "not_started"
    api.refused("GET", f"/v1/sandboxes/{warm}/files/content", 404, "file_not_found", params={"path": "ran"})
    assert api.run(warm, shell=LOG, id="second")["out"] == b"done\n"
    assert api.file(warm, "ran") == b"run\n"


def test_a_command_that_left_is_not_sent_again_P60(api, warm, emulator):
    """Upstream 503 to each command: one attempt at starting, and the settling asks; never the start twice."""
    emulator.fault({"status": 503}, method="POST", path_regex="/cmd$")
    answer = api.call("POST", f"/v1/sandboxes/{warm}/run", json={"id": "p60", "shell": LOG, "wait_ms": 5000})
    assert answer.status_code >= 500 or answer.status_code == 202, answer.text
    if answer.status_code >= 500:
        assert answer.json()["outcome"] in ("unknown", "not_started")
    emulator.clear_faults()
    api.refused("GET", f"/v1/sandboxes/{warm}/files/content", 404, "file_not_found", params={"path": "ran"})


def test_upload_of_the_helper_may_fail_midway(api, emulator):
    """The first call in a sandbox brings the helper; a lost answer on the way leaves no half of it."""
    for fault in ({"lose_answer": True}, {"cut_after_bytes": 0}, {"status": 503}):
        box = api.sandbox()
        emulator.fault(fault, method="POST", path_regex="/fs/write$", times=1)
        answer = api.call("POST", f"/v1/sandboxes/{box}/run", json={"shell": LOG})
        emulator.clear_faults()
        if answer.status_code == 200:
            assert answer.json()["stdout"] == "done\n"
        else:
            assert answer.json()["outcome"] in ("not_started", "not_sent"), answer.text
            assert api.run(box, shell=LOG)["out"] == b"done\n"
        assert api.file(box, "ran") == b"run\n"


def test_many_starts_under_random_cuts_U3(api, warm, emulator):
    """Each of twenty command calls is cut at another place; each program runs once."""
    for i in range(20):
        emulator.fault({"cut_after_bytes": 37 * i}, method="POST", path_regex="/cmd$", times=1)
        assert once(api, warm, "run" if i % 2 else "processes", f"echo {i} >> ran", f"job-{i}")[1] == 0
        emulator.clear_faults()
    assert api.file(warm, "ran") == b"".join(b"%d\n" % i for i in range(20))
