"""Changes below a directory over server-sent events and NDJSON: C8, B11, and that none is lost silently (U2, P05)."""
import base64
import json
import os
import signal

import pytest

from client import Client, problem
from harness import PATIENCE, Records, until

WORK = "/vercel/sandbox"


class Watch(Records):
    """Reads one answer record by record; what breaks the form of it fails here.  The watch is in force once it stands."""

    def __init__(self, api, box, path=WORK, sse=True, headers=None, **query):
        query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items()}
        self.sse, self.cursor, self.records = sse, None, []
        key = {} if path is None else {"path": path}
        self.answer = api.call("GET", f"/v1/sandboxes/{box}/files/watch", params={**key, **query}, stream=True, timeout=20,
                               headers={"Accept": "text/event-stream" if sse else "application/x-ndjson", **(headers or {})})
        assert self.answer.status_code == 200, self.answer.text
        assert self.answer.headers["Content-Type"] == ("text/event-stream" if sse else "application/x-ndjson")
        assert self.answer.headers["Cache-Control"] == "no-store, no-transform"
        self.raw = self.blocks()
        self.hello = self.next()
        assert self.hello["type"] == "hello" and self.hello["sandbox"] == box
        assert self.hello["session_id"] == self.answer.headers["X-Session-Id"]

    def next(self):
        """The next record; None at the end."""
        for block in self.raw:
            if self.sse and block.startswith(b":"):
                continue
            if self.sse:
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
                assert set(fields) == {b"event", b"id", b"data"}
                record = json.loads(fields[b"data"])
                assert record["type"] == fields[b"event"].decode()
                assert record.get("cursor", fields[b"id"].decode()) == fields[b"id"].decode()
            else:
                record = json.loads(block)
                if record["type"] == "keepalive":
                    continue
            assert ("cursor" in record) == (record["type"] != "error")
            self.cursor = record.get("cursor", self.cursor)
            self.records.append(record)
            return record
        return None

    def change(self):
        """("create", "a/b", "file"), ("move", "a", "b", "directory"), ("overflow",), ("end", "deleted")"""
        r = self.next()
        assert r, "the answer has ended"
        if r["type"] == "move":
            assert name(r, "path") == name(r, "to")
            return ("move", name(r, "from"), name(r, "to"), r["file_type"])
        if r["type"] == "end":
            assert self.next() is None
            return ("end", r["reason"])
        if r["type"] in ("overflow", "error"):
            return (r["type"], *([r["code"]] if "code" in r else []))
        return (r["type"], name(r, "path"), r["file_type"])

    def hears(self, *wanted):
        for w in wanted:
            assert self.change() == w, self.records[-3:]

    def until(self, wanted):
        """All changes up to this one, which is included."""
        seen = [self.change()]
        while seen[-1] != wanted:
            seen.append(self.change())
        return seen


def name(record, key):
    """As text where it is; else the bytes: never both forms."""
    assert (key in record) != (key + "_b64" in record), record
    if key in record:
        return record[key]
    data = base64.b64decode(record[key + "_b64"], validate=True)
    with pytest.raises(UnicodeDecodeError):
        data.decode()
    return data


def route(box):
    return f"/v1/sandboxes/{box}/files/watch"


def helpers(api, box):
    """How many watchers run in the sandbox."""
    script = "n=0; for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null | grep -q '^/proc/self/exe fs --op watch' " \
             "&& n=$((n+1)); done; echo $n"
    return int(api.run(box, shell=script)["out"])


def kill(gateway):
    os.kill(gateway.child.pid, signal.SIGKILL)
    gateway.child.wait()


@pytest.mark.parametrize("sse", [True, False], ids=["sse", "ndjson"])
def test_every_kind_C8(api, box, sse):
    api.run(box, shell="mkdir d; touch old")
    with Watch(api, box, sse=sse) as w:
        api.run(box, shell=": >a")
        w.hears(("create", "a", "file"), ("modify", "a", "file"))
        api.run(box, shell="echo x >a")
        w.hears(("modify", "a", "file"))
        api.run(box, shell="chmod 600 a")
        w.hears(("attrib", "a", "file"))
        api.run(box, shell="mv a b; mv b old")
        w.hears(("move", "a", "b", "file"), ("move", "b", "old", "file"))
        api.run(box, shell="rm old; mkdir new; mv new d/; mv d/new new; rmdir new")
        w.hears(("delete", "old", "file"), ("create", "new", "directory"), ("delete", "new", "directory"),
                ("create", "new", "directory"), ("delete", "new", "directory"))
        api.run(box, "sh", "-c", "mkdir '\xe4'; touch \"$(printf '\\377\\nx')\"".encode("latin-1").decode("latin-1"))
        assert w.change() == ("create", "\xe4", "directory")
        assert w.change() == ("create", b"\xff\nx", "file")
    assert len({r["cursor"] for r in w.records}) == len(w.records)


def test_one_upstream_call(api, box, emulator):
    api.run(box, "true")
    with emulator.calls() as calls, Watch(api, box) as w:
        api.put(box, "f", b"x")
        w.until(("create", "f", "file"))
    assert [c for c in calls.seen() if c == ("POST", "cmd")] == [("POST", "cmd")] * 2, calls.seen()  # one is the PUT's


def test_recursion_and_a_tree_that_comes_in(api, box):
    api.run(box, shell="mkdir -p a/b /tmp/tree/x/y; touch /tmp/tree/1 /tmp/tree/x/2 /tmp/tree/x/y/3; ln -s /tmp/tree link")
    with Watch(api, box, recursive=True) as w:
        api.run(box, shell="touch a/b/c; mv a/b moved; touch link/unseen")
        assert w.until(("move", "a/b", "moved", "directory"))[0] == ("create", "a/b/c", "file")
        api.run(box, shell="mkdir -p deep/er/est; touch deep/er/est/f")
        got = w.until(("create", "deep/er/est/f", "file"))
        assert [g for g in got if g[0] == "create"] == [("create", p, "directory") for p in ("deep", "deep/er", "deep/er/est")] \
            + [("create", "deep/er/est/f", "file")]
        api.run(box, shell="mv /tmp/tree a/tree; touch end")
        got = [g[1:] for g in w.until(("create", "end", "file")) if g[0] == "create"]
        assert sorted(got) == sorted([("a/tree", "directory"), ("a/tree/1", "file"), ("a/tree/x", "directory"),
                                      ("a/tree/x/2", "file"), ("a/tree/x/y", "directory"), ("a/tree/x/y/3", "file"),
                                      ("a/tree/unseen", "file"), ("end", "file")])
        api.run(box, shell="echo >a/tree/x/y/3; mv a/tree /tmp/out; echo >/tmp/out/1; touch end2")
        got = w.until(("create", "end2", "file"))
        assert ("modify", "a/tree/x/y/3", "file") in got and got[-2:] == [("delete", "a/tree", "directory"), ("create", "end2", "file")]


def test_not_recursive_stays_at_the_top(api, box):
    api.run(box, shell="mkdir d")
    with Watch(api, box, path="d/..") as w:
        api.run(box, shell="touch d/unseen; mkdir d/e; touch seen")
        w.hears(("create", "seen", "file"))


def test_paths_of_any_bytes(api, box):
    api.run(box, shell="mkdir \"$(printf '\\377')\"")
    coded = base64.b64encode(b"\xff").decode()
    with Watch(api, box, path=None, path_b64=coded) as w:
        api.run(box, shell="touch \"$(printf '\\377')/f\"")
        w.hears(("create", "f", "file"))


def test_five_thousand_files_are_told_or_overflow_is_said_B11(api, box):
    with Watch(api, box, recursive=True) as w:
        api.run(box, shell="mkdir many; cd many; i=0; while [ $i -lt 5000 ]; do : >f$i; i=$((i+1)); done; : >../end")
        got = w.until(("create", "end", "file"))
    told = {g[1] for g in got if g[0] == "create"}
    assert ("overflow",) in got or told == {"many", "end", *(f"many/f{i}" for i in range(5000))}


def test_refusals(api, box):
    api.run(box, shell="touch file; mkdir closed; chmod 0 closed; ln -s closed into")
    refused = lambda status, code, **q: api.refused("GET", route(box), status, code, params=q)
    assert refused(404, "file_not_found", path="none")["errno"] == "ENOENT"
    assert refused(422, "not_directory", path="file")["errno"] == "ENOTDIR"
    refused(403, "permission_denied", path="closed")
    refused(403, "permission_denied", path="into")
    refused(422, "invalid_path")
    refused(422, "invalid_field", path="/", recursive="yes")
    refused(422, "unknown_field", path="/", recursively="true")
    refused(422, "invalid_field", path=WORK, cursor="x")
    api.refused("GET", route("none"), 404, "sandbox_not_found", params={"path": "/"})
    api.refused("GET", route(box), 406, "not_acceptable", params={"path": "/"}, headers={"Accept": "text/html"})
    api.run(box, shell="mkdir many; cd many; seq 8192 | xargs mkdir")
    assert "8192" in refused(422, "watch_limit", path="many", recursive="true")["detail"]
    until(lambda: helpers(api, box) == 0, "no watcher is left of those that could not begin")


def test_a_cursor_is_good_for_its_watch_only(api, box):
    api.run(box, shell="mkdir d")
    with Watch(api, box) as w:
        cursor = w.cursor
    refused = lambda **q: api.refused("GET", route(box), 422, "invalid_field", params=q)
    refused(path="d", cursor=cursor)
    refused(path=WORK, recursive="true", cursor=cursor)
    refused(path=WORK, sudo="true", cursor=cursor)
    refused(path=WORK, cursor=cursor + "0x")
    api.refused("GET", route(box), 422, "invalid_field", params={"path": WORK}, headers={"Last-Event-ID": "stdout:0;stderr:0"})
    other = cursor.split(".")[0]
    other = other[:-1] + ("0" if other[-1] != "0" else "1")
    api.refused("GET", route(box), 410, "watch_gone", params={"path": WORK, "cursor": other + ".2"})
    assert api.call("GET", route(box), params={"path": WORK, "cursor": cursor + ";end"}).status_code == 204


def test_goes_on_exactly_where_it_was(api, box):
    seen = []
    with Watch(api, box) as w:
        api.run(box, shell="for i in 0 1 2 3 4 5 6 7 8 9; do mkdir d$i; done")
        for _ in range(4):
            seen.append(w.change())
        cursor = w.cursor
    api.run(box, shell="mkdir meanwhile")
    for how in ({"cursor": cursor}, {"headers": {"Last-Event-ID": cursor}}, {"cursor": "x", "headers": {"Last-Event-ID": cursor}}):
        with Watch(api, box, sse="headers" in how, **how) as w:
            assert w.hello["cursor"] == cursor
            rest = [w.change() for _ in range(7)]
            assert seen + rest == [("create", f"d{i}", "directory") for i in range(10)] + [("create", "meanwhile", "directory")]
            api.run(box, shell="mkdir x; rmdir x")
            w.hears(("create", "x", "directory"), ("delete", "x", "directory"))
            api.run(box, shell="rm -rf x")


def test_goes_on_at_another_gateway_also_after_kill_U2(own):
    first, api = own()
    box = api.sandbox()
    watch = Watch(api, box)
    api.run(box, shell="mkdir a b")
    watch.hears(("create", "a", "directory"))
    second, other = own()
    with Watch(other, box, cursor=watch.cursor) as w:
        w.hears(("create", "b", "directory"))
        kill(first)
        other.run(box, shell="mkdir c")
        w.hears(("create", "c", "directory"))
    cursor = w.cursor
    kill(second)
    _, third = own()
    third.made.append(box)
    third.run(box, shell="mkdir d")
    with Watch(third, box, cursor=cursor) as w:
        w.hears(("create", "d", "directory"))
        assert helpers(third, box) == 1


def test_what_was_overwritten_is_said(own):
    _, api = own(FILES_WATCH_RETAIN_BYTES=65536)
    box = api.sandbox()
    with Watch(api, box) as w:
        pass
    name = "n" * 200
    api.run(box, shell=f"seq -f {name}%g 4000 | xargs mkdir; mkdir end")
    _, other = own()  # the first still reads for a while, for who comes back to it
    with Watch(other, box, cursor=w.cursor) as again:
        got = again.until(("create", "end", "directory"))
    assert got[0] == ("overflow",) and got.count(("overflow",)) == 1
    assert 10 < len(got) < 4000
    # Whoever was cut just after the overflow goes on from there.
    place = next(r["cursor"] for r in again.records if r["type"] == "overflow")
    with Watch(other, box, cursor=place) as more:
        assert more.until(("create", "end", "directory"))[-100:] == got[-100:]


def test_a_reader_that_takes_nothing_is_cut_and_loses_nothing(own):
    _, api = own(RELAY_SLOW_READER_MS=500, RELAY_KEEPALIVE_MS=400)
    box = api.sandbox()
    slow = Watch(api, box)
    name = "n" * 200
    api.run(box, shell=f"seq -f {name}%g 9000 | xargs mkdir; mkdir end")
    with Watch(api, box, cursor=slow.cursor) as w:
        got = w.until(("create", "end", "directory"))
    assert len(got) == 9001 and ("overflow",) not in got
    slow.answer.close()


@pytest.mark.parametrize("how,reason", [("rm -rf d", "deleted"), ("mv d e", "moved"), ("rmdir d; mkdir d", "deleted")])
def test_the_directory_goes(api, box, how, reason):
    api.run(box, shell="mkdir d")
    with Watch(api, box, path="d", recursive=True) as w:
        api.run(box, shell="mkdir d/sub; rmdir d/sub; " + how)
        got = w.until(("end", reason))
        assert got[:2] == [("create", "sub", "directory"), ("delete", "sub", "directory")]
    assert w.cursor.endswith(";end")
    assert api.call("GET", route(box), params={"path": "d", "recursive": "true"},
                    headers={"Last-Event-ID": w.cursor}).status_code == 204
    # Whoever comes back from earlier hears the same end, while the watcher is there; then that it is gone.
    def gone():
        again = api.call("GET", route(box), timeout=20, params={"path": "d", "recursive": "true", "cursor": w.hello["cursor"]})
        if again.status_code == 200:
            assert reason in again.text.splitlines()[-2]
            return False
        return problem(again, 410, "watch_gone")

    until(gone, "the watcher is gone")


def test_a_directory_that_somebody_stands_in_is_gone_all_the_same(api, box):
    api.run(box, shell="mkdir d")
    pid = api.start(box, "sleep", "600", cwd=WORK + "/d")
    with Watch(api, box, path="d") as w:
        api.run(box, shell="rmdir d")
        w.until(("end", "deleted"))
    api.signal(box, pid, "KILL")


def test_the_session_ends(api):
    box = api.sandbox(persistent=True)
    with Watch(api, box) as w:
        cursor = w.cursor
        api.stop(box)
        w.hears(("end", "session_ended"))
    api.refused("GET", route(box), 409, "sandbox_not_running", params={"path": WORK, "cursor": cursor})
    api.resume(box)
    api.refused("GET", route(box), 410, "watch_gone", params={"path": WORK, "cursor": cursor})


def test_the_watcher_is_killed_inside(api, box):
    with Watch(api, box) as w:
        api.run(box, shell="for f in /proc/[0-9]*; do tr '\\0' ' ' <$f/cmdline 2>/dev/null | grep -q '^/proc/self/exe fs --op watch' "
                           "&& kill -9 ${f#/proc/}; done; true")
        assert w.change() == ("error", "watch_gone") and w.next() is None
    api.refused("GET", route(box), 410, "watch_gone", params={"path": WORK, "cursor": w.hello["cursor"]})


def test_it_ends_when_nobody_is_there(own):
    _, api = own(FILES_WATCH_GRACE_MS=2000)
    box = api.sandbox()
    with Watch(api, box) as w:
        assert helpers(api, box) == 1
    until(lambda: helpers(api, box) == 0, "the watcher has ended")
    api.refused("GET", route(box), 410, "watch_gone", params={"path": WORK, "cursor": w.cursor})


def test_it_is_no_process_of_the_api(api, box):
    with Watch(api, box) as w:
        pid = w.cursor.split(".")[0]
        assert pid.startswith("sgw-")
        base = f"/v1/sandboxes/{box}/processes"
        assert api.ok("GET", base).json()["items"] == []
        for method, what, body in (("GET", "", None), ("DELETE", "", None), ("GET", "/output", None), ("GET", "/events", None),
                                   ("POST", "/signal", {"signal": "KILL"}), ("POST", "/cancel", {})):
            kw = {"json": body} if body is not None else {}
            api.refused(method, f"{base}/{pid}{what}", 404, "process_not_found", **kw)
        for what in ("/run", "/processes"):
            api.refused("POST", f"/v1/sandboxes/{box}{what}", 422, "invalid_field", json={"argv": ["true"], "id": "sgw-mine"})
        api.run(box, shell="mkdir still")
        w.hears(("create", "still", "directory"))


def test_nothing_of_it_is_saved(api):
    box = api.sandbox()
    with Watch(api, box) as w:
        ordinary = api.start(box, "true")
        api.wait(box, ordinary)
        api.stop(box)
        w.until(("end", "session_ended"))
    items = api.ok("GET", f"/v1/sandboxes/{box}/processes", params={"session": w.hello["session_id"]}).json()["items"]
    assert [p["process_id"] for p in items] == [ordinary]


def test_streams_may_pass_proxies_P42(own):
    _, api = own(RELAY_KEEPALIVE_MS=400)
    box = api.sandbox()
    for sse, comment in ((True, b": keepalive"), (False, b'{"type":"keepalive"}')):
        w = Watch(api, box, sse=sse)
        assert w.answer.headers["X-Accel-Buffering"] == "no"
        assert next(w.raw) == comment
        w.answer.close()


def test_an_answer_that_is_lost_begins_no_second_watch(api, box, emulator):
    api.run(box, "true")
    emulator.fault({"lose_answer": True}, method="POST", path_regex="/cmd$", times=1)
    with Watch(api, box) as w:
        api.run(box, shell="mkdir a")
        w.hears(("create", "a", "directory"))
        assert helpers(api, box) == 1


def test_draining_says_so(own):
    gateway, api = own()
    box = api.sandbox()
    with Watch(api, box) as w:
        os.kill(gateway.child.pid, signal.SIGTERM)
        assert w.change() == ("error", "draining") and w.next() is None
    assert gateway.child.wait(timeout=PATIENCE) == 0
