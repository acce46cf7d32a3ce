"""Upstream calls are counted: each costs latency, rate limit and money."""
import pytest

from client import Client


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


def test_a_small_file_is_one_call_to_read_and_two_to_write(api, warm, emulator):
    data = bytes(range(256)) * 512  # 128 KiB
    with emulator.calls() as calls:
        api.put(warm, "f", data)
    assert len(calls) == 2, calls.seen()
    with emulator.calls() as calls:
        assert api.file(warm, "f") == data
    assert calls.seen() == [("POST", "cmd")]
    content = f"/v1/sandboxes/{warm}/files/content"
    with emulator.calls() as calls:
        head = api.ok("HEAD", content, params={"path": "f"})
    assert calls.seen() == [("POST", "cmd")] and head.headers["Content-Length"] == str(len(data))
    for headers, status in (({"Range": "bytes=5-9"}, 206), ({"If-None-Match": head.headers["ETag"]}, 304)):
        with emulator.calls() as calls:
            api.ok("GET", content, status, params={"path": "f"}, headers=headers)
        assert calls.seen() == [("POST", "cmd")], headers


def test_a_large_file_is_two_calls_a_part_and_one_to_clear_up(own_gateway, emulator):
    """One puts a part aside, one reads it; the next part is put aside meanwhile."""
    part = 256 * 1024
    api = Client(own_gateway(FILES_DOWNLOAD_PART_BYTES=part))
    box = api.sandbox()
    try:
        for size in (part // 2 + 1, part, 4 * part, 4 * part + 1):
            data = (b"0123456789abcde\n" * (size // 16 + 1))[:size]
            api.put(box, "f", data)
            with emulator.calls() as calls:
                assert api.file(box, "f") == data
            parts, seen = -(-size // part), calls.seen()
            assert parts - 1 <= seen.count(("POST", "read")) <= parts, (size, seen)  # a short rest comes with the answer
            assert len(calls) <= 2 * parts + 1, (size, seen)
    finally:
        api.clean_up()


def test_a_large_file_goes_up_with_one_call_a_part_and_two_to_end(own_gateway, emulator):
    """Parts are joined several at a time, beside the next one's way."""
    part = 256 * 1024
    api = Client(own_gateway(FILES_UPLOAD_PART_BYTES=part))
    box = api.sandbox()
    try:
        api.run(box, "true")
        for size in (part, 3 * part, 8 * part + 1):
            with emulator.calls() as calls:
                api.put(box, "f", b"x" * size)
            parts, seen = -(-size // part), calls.seen()
            assert seen.count(("POST", "write")) == parts, (size, seen)
            assert len(calls) <= 2 if parts == 1 else len(calls) <= 2 * parts + 1, (size, seen)
    finally:
        api.clean_up()


def test_an_archive_is_two_calls_a_part_and_one_to_clear_up(own_gateway, emulator):
    part = 256 * 1024
    api = Client(own_gateway(FILES_DOWNLOAD_PART_BYTES=part))
    box = api.sandbox()
    content = f"/v1/sandboxes/{box}/files/archive"
    try:
        api.run(box, shell="mkdir few many; echo x > few/a; for i in 1 2 3 4; do head -c 200000 /dev/zero > many/$i; done")
        with emulator.calls() as calls:
            small = api.ok("GET", content, params={"path": "few"}).content
        assert calls.seen() == [("POST", "cmd")]
        with emulator.calls() as calls:
            large = api.ok("GET", content, params={"path": "many"}).content
        assert len(large) > 3 * part and len(calls) <= 2 * -(-len(large) // part) + 1, calls.seen()
        with emulator.calls() as calls:
            api.ok("PUT", content, params={"path": "copy", "parents": "true"}, data=small, headers={"Content-Type": "application/x-tar"})
        assert calls.seen() == [("POST", "write"), ("POST", "cmd")]
    finally:
        api.clean_up()


def test_an_operation_on_files_is_one_call(api, warm, emulator):
    base = f"/v1/sandboxes/{warm}/files"
    api.run(warm, shell="mkdir d; echo x > d/f; ln -s f d/l; mkdir d/t; echo y > d/t/g")
    gets = [("", {"path": "d"}), ("/stat", {"path": "d/f"}), ("/exists", {"path": "d/f"}), ("/readlink", {"path": "d/l"}),
            ("/realpath", {"path": "d/l"}), ("/glob", {"path": "d", "pattern": "**"}), ("/grep", {"path": "d", "pattern": "x"}),
            ("/text", {"path": "d/f"})]
    for what, query in gets:
        with emulator.calls() as calls:
            api.ok("GET", base + what, params=query)
        assert calls.seen() == [("POST", "cmd")], what
    posts = [("mkdir", {"path": "d/a/b", "parents": True}, 201), ("copy", {"path": "d/t", "to": "d/u", "recursive": True}, 204),
             ("move", {"path": "d/u", "to": "d/v"}, 204), ("symlink", {"path": "d/m", "target": "f"}, 201),
             ("link", {"path": "d/f", "to": "d/h"}, 201), ("chmod", {"path": "d", "mode": "755", "recursive": True}, 204),
             ("truncate", {"path": "d/f", "size": 1}, 204), ("utimes", {"path": "d/f"}, 204), ("mktemp", {"path": "d"}, 201)]
    for what, body, status in posts:
        with emulator.calls() as calls:
            api.ok("POST", f"{base}/{what}", status, json=body)
        assert calls.seen() == [("POST", "cmd")], what
    for what, query in (("/content", {"path": "d/f"}), ("", {"path": "d", "recursive": "true"})):
        with emulator.calls() as calls:
            api.ok("DELETE", base + what, 204, params=query)
        assert calls.seen() == [("POST", "cmd")], what


def test_ten_thousand_names_are_one_call(api, warm, emulator):
    api.run(warm, shell="mkdir big && cd big && seq -f 'name-%05g' 1 10000 | xargs touch")
    with emulator.calls() as calls:
        page = api.ok("GET", f"/v1/sandboxes/{warm}/files", params={"path": "big", "limit": 10000}).json()
    assert calls.seen() == [("POST", "cmd")]
    assert [i["name"] for i in page["items"]] == [f"name-{i:05}" for i in range(1, 10001)] and page["next_cursor"] is None


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
