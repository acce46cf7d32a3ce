"""Upstream calls are counted: each costs latency, rate limit and money."""
import pytest


@pytest.fixture
def warm(api, box):
    api.run(box, "true")
    return box


def test_run_is_one_call(api, warm, emulator):
    with emulator.calls() as calls:
        api.run(warm, "echo", "hi")
    assert calls.seen() == [("POST", "cmd")]


def test_start_is_one_call(api, warm, emulator):
    with emulator.calls() as calls:
        pid = api.start(warm, "true")
    assert calls.seen() == [("POST", "cmd")]
    api.wait(warm, pid)


def test_attach_is_one_call(api, warm, emulator):
    pid = api.start(warm, shell="echo a; echo b >&2; exit 3")
    api.wait(warm, pid)
    with emulator.calls() as calls, api.attach(warm, pid) as a:
        a.until_close()
    assert a.message("exit")["exit_code"] == 3
    assert calls.seen() == [("POST", "cmd")]


def test_output_is_one_call(api, warm, emulator):
    pid = api.start(warm, "echo", "x")
    api.wait(warm, pid)
    with emulator.calls() as calls:
        assert api.output(warm, pid).content == b"x\n"
    assert calls.seen() == [("POST", "cmd")]


def test_file_read_is_one_call_and_write_two(api, warm, emulator):
    with emulator.calls() as calls:
        api.put(warm, "f", b"x")
    assert len(calls) == 2, calls.seen()
    with emulator.calls() as calls:
        assert api.file(warm, "f") == b"x"
    assert calls.seen() == [("POST", "cmd")]


def test_sandbox_calls(api, emulator):
    with emulator.calls() as calls:
        box = api.sandbox()
    assert calls.seen() == [("POST", "sandboxes")]
    with emulator.calls() as calls:
        api.get(box)
    assert calls.seen() == [("GET", box)]
    with emulator.calls() as calls:
        api.resume(box)
    assert calls.seen() == [("GET", box)]
    with emulator.calls() as calls:
        api.destroy(box)
    assert calls.seen() == [("GET", box), ("DELETE", box)], "one look at whose its snapshots are"


def test_the_helper_is_uploaded_once(api, box, emulator):
    with emulator.calls() as calls:
        api.run(box, "true")
        api.run(box, "true")
    assert [c for c in calls.seen() if c == ("POST", "write")] == [("POST", "write")]
