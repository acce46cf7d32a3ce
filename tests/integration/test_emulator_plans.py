"""Limits of plans (15.4, 15.5) and the usage numbers of a session that has ended (15.11)."""
import pytest

MINUTE = 60000


@pytest.fixture
def hobby(own_emulator):
    return own_emulator("--plan=hobby")


def test_hobby_limits(hobby):
    hobby.create_refused(400, "bad_request", timeout=45 * MINUTE + 1)
    hobby.create_refused(400, "bad_request", resources={"vcpus": 6})
    message = hobby.create_refused(402, "payment_required", failoverRegions=["sfo1"])
    assert "hobby" in message
    box = hobby.create(timeout=45 * MINUTE, resources={"vcpus": 4})
    assert box.session["timeout"] == 45 * MINUTE and box.session["memory"] == 8192
    path = f"/v2/sandboxes/{box.name}"
    for body, status, code in (({"timeout": 46 * MINUTE}, 400, "bad_request"), ({"resources": {"vcpus": 8}}, 400, "bad_request"),
                               ({"failoverRegions": ["sfo1"]}, 402, "payment_required")):
        hobby.refused(status, code, "PATCH", path, body)
        hobby.refused(status, code, "POST", path + "/fork", body)
    assert hobby.get(box).sandbox == box.sandbox
    assert hobby.drive("d")["maxSizeBytes"] == 1 << 30
    hobby.call("DELETE", "/v2/sandboxes/drives/d")


def test_extension(hobby):
    box = hobby.create(timeout=44 * MINUTE)
    extended = hobby.call("POST", box.path + "/extend-timeout", {"duration": MINUTE})["session"]
    assert extended["timeout"] == 45 * MINUTE
    message = hobby.refused(400, "sandbox_timeout_invalid", "POST", box.path + "/extend-timeout", {"duration": 1000})
    assert "maximum execution timeout" in message
    assert hobby.get(box).session["timeout"] == 45 * MINUTE
    hobby.stop(box)
    assert hobby.resume(box).session["timeout"] == 44 * MINUTE


def test_concurrency(hobby):
    """The eleventh is refused without a trace, and there is room again when one stops."""
    boxes = [hobby.create(persistent=False) for _ in range(9)]
    kept = hobby.create(name="kept")
    message = hobby.create_refused(429, "too_many_requests")
    assert message == "The concurrency limit has been exceeded."
    hobby.refused(429, "too_many_requests", "POST", "/v2/sandboxes/kept/fork", {})
    hobby.stop(kept)
    last = hobby.create(persistent=False)
    hobby.refused(429, "too_many_requests", "GET", "/v2/sandboxes/kept", resume="true")
    assert len(hobby.call("GET", "/v2/sandboxes/sessions", name="kept")["sessions"]) == 1
    hobby.stop(last)
    hobby.stop(boxes[0])
    assert hobby.resume(kept).session["status"] == "running"


def test_pro_limits(own_emulator):
    pro = own_emulator("--plan=pro")
    pro.create_refused(400, "bad_request", resources={"vcpus": 10})
    box = pro.create(timeout=24 * 60 * MINUTE, resources={"vcpus": 8}, failoverRegions=["sfo1"])
    pro.refused(400, "sandbox_timeout_invalid", "POST", box.path + "/extend-timeout", {"duration": 1000})
    assert pro.drive("d")["maxSizeBytes"] == 1 << 40


def test_without_a_plan_the_largest_limits_hold(emu):
    assert emu.create(resources={"vcpus": 32}, timeout=24 * 60 * MINUTE, persistent=False).session["vcpus"] == 32
    emu.create_refused(400, "bad_request", resources={"vcpus": 34})


def test_usage(emu):
    """Nothing before the stop; the processor's time and the wall's after it, and sums over sessions."""
    box = emu.create()
    assert not {"activeCpuDurationMs", "networkTransfer", "duration"} & emu.get(box).session.keys()
    emu.sh(box, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    first = emu.stop(box)
    used = first["session"]["activeCpuDurationMs"]
    assert used >= 20 and first["session"]["duration"] > 0
    assert first["session"]["networkTransfer"] == {"ingress": 0, "egress": 0}
    assert first["sandbox"]["totalActiveCpuDurationMs"] == used
    assert first["sandbox"]["totalDurationMs"] == first["session"]["duration"]
    second = emu.stop(emu.resume(box))
    assert second["sandbox"]["totalActiveCpuDurationMs"] == used + second["session"]["activeCpuDurationMs"]
    assert second["sandbox"]["totalDurationMs"] == first["session"]["duration"] + second["session"]["duration"]
    assert second["sandbox"]["totalIngressBytes"] == second["sandbox"]["totalEgressBytes"] == 0
