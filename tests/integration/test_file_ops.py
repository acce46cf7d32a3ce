"""Operations on files: C8 E10 E11 P35, each one upstream call."""
import base64
import concurrent.futures
import json
import secrets
import socket
import urllib.parse

import pytest

from harness import until

NAMES = [b"with space", b"quo'te\"s", b"new\nline", b"$(touch pwned)", b"-rf", "ünï".encode(), b"\xff\xfe raw", b"a\x7fb", b"x" * 255,
         b"..dots", b"a\\n"]


class Files:
    def __init__(self, api, box):
        self.api, self.base = api, f"/v1/sandboxes/{box}/files"

    def query(self, **q):
        return {k: str(v).lower() if isinstance(v, bool) else v for k, v in q.items()}

    def get(self, what="", **q):
        return self.api.ok("GET", self.base + (what and "/" + what), params=self.query(**q)).json()

    def post(self, what, status=204, **body):
        answer = self.api.ok("POST", f"{self.base}/{what}", status, json=body)
        return answer.json() if answer.content else None

    def remove(self, **q):
        self.api.ok("DELETE", self.base, 204, params=self.query(**q))

    def refused(self, method, what, status, code, errno=None, body=None, **q):
        kw = {"json": body} if body is not None else {}
        problem = self.api.refused(method, self.base + (what and "/" + what), status, code, params=self.query(**q), **kw)
        assert errno is None or problem["errno"] == errno, problem
        return problem

    def all(self, what="", **q):
        """Every item, page by page."""
        items, cursor = [], {}
        while True:
            page = self.get(what, **q, **cursor)
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            assert page["items"] and page["next_cursor"] != cursor.get("cursor")
            cursor = {"cursor": page["next_cursor"]}


@pytest.fixture
def files(api, box):
    return Files(api, box)


def raw(item, key="name"):
    """The bytes of a name, whichever form it came in: never both, and base64 only where it has to be."""
    assert (key in item) != (key + "_b64" in item), item
    if key in item:
        return item[key].encode()
    value = base64.b64decode(item[key + "_b64"], validate=True)
    with pytest.raises(UnicodeDecodeError):
        value.decode()
    return value


def b64(data):
    return base64.b64encode(data).decode()


def test_names_round_trip_P35_E10(api, box, files):
    files.post("mkdir", 201, path="d")
    for name in NAMES:
        path = b"d/" + name
        made = files.post("mktemp", 201, path="d")["path"]
        files.post("move", path=made, to_b64=b64(path))
        quoted = urllib.parse.quote_from_bytes(path, safe="")
        assert raw(api.ok("GET", f"{files.base}/stat?path={quoted}").json()) == name
        assert raw(files.get("stat", path_b64=b64(path))) == name
        assert api.ok("GET", f"{files.base}/exists?path={quoted}").json() == {"exists": True}
    assert [raw(i) for i in files.get(path="d")["items"]] == sorted(NAMES)
    assert [raw(i) for i in files.all(path="d", limit=1)] == sorted(NAMES)
    assert [raw(i, "path") for i in files.all("glob", path="d", pattern="*", hidden=True, limit=2)] == sorted(NAMES)
    assert files.get("exists", path="pwned") == {"exists": False}
    for name in NAMES:
        api.ok("DELETE", f"{files.base}/content?path=" + urllib.parse.quote_from_bytes(b"d/" + name, safe=""), 204)
    assert files.get(path="d") == {"items": [], "next_cursor": None}


def test_list_pages_in_the_order_of_bytes_C8(api, box, files):
    api.run(box, shell="mkdir many && cd many && i=0; while [ $i -lt 120 ]; do : > f$i; i=$((i+1)); done; mkdir A; ln -s f1 z")
    names = [i["name"] for i in files.get(path="many")["items"]]
    assert len(names) == 122 and names == sorted(names, key=str.encode)
    assert [i["name"] for i in files.all(path="many", limit=50)] == names
    answer = api.ok("GET", files.base, params={"path": "many", "limit": 100})
    assert answer.links["next"]["url"].startswith(files.base)
    rest = api.ok("GET", answer.links["next"]["url"]).json()
    assert [i["name"] for i in answer.json()["items"] + rest["items"]] == names and rest["next_cursor"] is None
    types = {i["name"]: (i["type"], i.get("target")) for i in files.get(path="many")["items"]}
    assert (types["A"], types["f1"], types["z"]) == (("directory", None), ("file", None), ("symlink", "f1"))


def test_stat_tells_what_stat_tells_C8(api, box, files):
    api.put(box, "f", b"hello", mode="640")
    api.run(box, shell="ln f g; ln -s f l; mkfifo p; touch -d '1999-12-31T23:59:59.123456789Z' f")
    facts = files.get("stat", path="f")
    uid, gid, inode_links = api.run(box, "stat", "-c", "%u %g %h", "f")["out"].split()
    assert facts["changed_at"].endswith("Z")
    assert {k: facts[k] for k in facts if k != "changed_at"} == {
        "name": "f", "type": "file", "mode": "0640", "uid": int(uid), "gid": int(gid), "size": 5, "links": int(inode_links),
        "modified_at": "1999-12-31T23:59:59.123456789Z"}
    assert files.get("stat", path="l")["type"] == "file"
    link = files.get("stat", path="l", follow=False)
    assert (link["type"], link["target"], link["name"]) == ("symlink", "f", "l")
    assert files.get("stat", path="p")["type"] == "fifo"
    assert files.get("stat", path="/dev/null")["type"] == "character_device"
    assert files.get("readlink", path="l") == {"target": "f"}
    assert files.get("realpath", path="./l") == {"path": api.get(box)["working_directory"] + "/f"}
    files.refused("GET", "readlink", 422, "file_error", "EINVAL", path="f")


def test_changes_C8(api, box, files):
    files.post("mkdir", 201, path="a/b/c", parents=True, mode="750")
    files.post("mkdir", 204, path="a/b/c", parents=True)
    assert files.get("stat", path="a/b/c")["mode"] == "0750"
    api.put(box, "a/f", b"0123456789")
    files.post("copy", path="a/f", to="a/g")
    files.post("truncate", path="a/g", size=4)
    assert (api.file(box, "a/f"), api.file(box, "a/g")) == (b"0123456789", b"0123")
    files.post("move", path="a/g", to="a/f")
    assert api.file(box, "a/f") == b"0123" and files.get("exists", path="a/g") == {"exists": False}
    files.post("chmod", path="a/f", mode="0600")
    assert files.get("stat", path="a/f")["mode"] == "0600"
    files.post("utimes", path="a/f", modified_at="2001-02-03T04:05:06.5Z", accessed_at="1969-12-31T23:59:59Z")
    assert files.get("stat", path="a/f")["modified_at"] == "2001-02-03T04:05:06.500000000Z"
    assert api.run(box, "stat", "-c", "%X", "a/f")["out"] == b"-1\n"
    files.post("symlink", 201, path="a/l", target="no where")
    assert files.get("readlink", path="a/l") == {"target": "no where"}
    files.post("symlink", 201, path="a/m", target_b64=b64(b"\xfe"))
    assert raw(files.get("readlink", path="a/m"), "target") == b"\xfe"
    files.post("link", 201, path="a/f", to="a/h")
    assert files.get("stat", path="a/h")["links"] == 2
    files.post("copy", path="a", to="copy", recursive=True)
    assert [(i["name"], i["type"]) for i in files.get(path="copy")["items"]] == \
        [("b", "directory"), ("f", "file"), ("h", "file"), ("l", "symlink"), ("m", "symlink")]
    made = files.post("mktemp", 201, path="a", prefix="job-", directory=True)["path"]
    assert made.startswith("a/job-")
    assert [files.get("stat", path=made)[k] for k in ("type", "mode")] == ["directory", "0700"]
    files.remove(path="copy", recursive=True)
    assert files.get("exists", path="copy") == {"exists": False} and api.file(box, "a/f") == b"0123"
    files.remove(path="copy", force=True)


def test_root_acts_where_asked(api, box, files):
    files.refused("POST", "mkdir", 403, "permission_denied", "EACCES", body={"path": "/root/d"})
    files.post("mkdir", 201, path="/root/d", sudo=True)
    assert files.get(path="/root/d", sudo=True) == {"items": [], "next_cursor": None}
    files.refused("GET", "", 403, "permission_denied", "EACCES", path="/root/d")
    api.put(box, "f", b"")
    files.post("chown", path="f", uid=0, gid=0, sudo=True)
    assert [files.get("stat", path="f")[k] for k in ("uid", "gid")] == [0, 0]
    files.refused("GET", "access", 403, "permission_denied", "EACCES", path="f", mode="w")
    api.ok("GET", f"{files.base}/access", 204, params={"path": "f", "mode": "r"})
    files.remove(path="/root/d", sudo="true")


def test_errors_are_typed_C8(api, box, files):
    api.put(box, "f", b"x")
    files.post("mkdir", 201, path="d")
    api.put(box, "d/in", b"x")
    for method, what, body, query, expected in [
            ("GET", "", None, {"path": "no"}, (404, "file_not_found", "ENOENT")),
            ("GET", "", None, {"path": "f"}, (422, "not_directory", "ENOTDIR")),
            ("GET", "stat", None, {"path": "no"}, (404, "file_not_found", "ENOENT")),
            ("GET", "stat", None, {"path": "f/x"}, (422, "not_directory", "ENOTDIR")),
            ("GET", "text", None, {"path": "d"}, (422, "is_directory", "EISDIR")),
            ("GET", "grep", None, {"path": ".", "pattern": "("}, (422, "file_error", "EINVAL")),
            ("DELETE", "", None, {"path": "no"}, (404, "file_not_found", "ENOENT")),
            ("DELETE", "", None, {"path": "d"}, (422, "not_empty", "ENOTEMPTY")),
            ("DELETE", "content", None, {"path": "d"}, (422, "not_empty", "ENOTEMPTY")),
            ("POST", "mkdir", {"path": "d"}, {}, (409, "file_exists", "EEXIST")),
            ("POST", "mkdir", {"path": "no/x"}, {}, (404, "file_not_found", "ENOENT")),
            ("POST", "move", {"path": "f", "to": "d/in", "exclusive": True}, {}, (409, "file_exists", "EEXIST")),
            ("POST", "copy", {"path": "d", "to": "e"}, {}, (422, "is_directory", "EISDIR")),
            ("POST", "symlink", {"path": "f", "target": "x"}, {}, (409, "file_exists", "EEXIST")),
            ("POST", "chmod", {"path": "/etc/passwd", "mode": "777"}, {}, (403, "permission_denied", "EPERM")),
            ("POST", "truncate", {"path": "d", "size": 0}, {}, (422, "is_directory", "EISDIR"))]:
        files.refused(method, what, *expected, body=body, **query)
    assert api.file(box, "d/in") == b"x"


def test_removing_does_not_follow_links(api, box, files):
    api.run(box, shell="mkdir keep; echo 1 > keep/f; mkdir d; ln -s ../keep d/l; ln -s keep l")
    files.remove(path="d", recursive=True)
    files.remove(path="l", recursive=True)
    assert api.file(box, "keep/f") == b"1\n" and [i["name"] for i in files.get(path=".")["items"]] == ["keep"]


def test_lines_by_number_E11(api, box, files):
    api.put(box, "t", b"one\ntwo\n\xff three\n\n" + b"5" * 10000 + b"\nlast")
    page = files.get("text", path="t", line=2, limit=3)
    assert page["items"] == [{"line": 2, "offset": 4, "text": "two", "truncated": False},
                             {"line": 3, "offset": 8, "text_b64": b64(b"\xff three"), "truncated": False},
                             {"line": 4, "offset": 16, "text": "", "truncated": False}]
    assert page["next_line"] == 5 and page["size"] == 10022
    page = files.get("text", path="t", line=5)
    assert page["items"][0] == {"line": 5, "offset": 17, "text": "5" * 4096, "truncated": True}
    assert page["items"][1:] == [{"line": 6, "offset": 10018, "text": "last", "truncated": False}] and page["next_line"] is None
    assert files.get("text", path="t", line=5, max_line_bytes=65536)["items"][0]["text"] == "5" * 10000
    assert files.get("text", path="t", line=7)["items"] == []
    small = files.get("text", path="t", max_bytes=1)
    assert len(small["items"]) == 1 and small["next_line"] == 2


def test_glob_and_grep_C8(api, box, files):
    api.run(box, shell="mkdir -p s/a s/.git; printf 'x\\nneedle 1\\ny\\n' > s/a/one.c; printf 'needle\\nNEEDLE\\nneedle\\n' > s/two.h;"
                       "printf 'needle' > s/.git/c; printf 'needle\\0' > s/bin; touch s/a/three.c")
    assert [i["path"] for i in files.get("glob", path="s", pattern="**/*.{c,h}")["items"]] == ["a/one.c", "a/three.c", "two.h"]
    assert [i["path"] for i in files.get("glob", path="s", pattern="**/c", hidden=True)["items"]] == [".git/c"]

    def found(**q):
        return [(i.get("path"), i["line"], i["text"]) for i in files.all("grep", path="s", **q)]
    every = [("a/one.c", 2, "needle 1"), ("two.h", 1, "needle"), ("two.h", 3, "needle")]
    assert found(pattern="need+le") == every
    assert found(pattern="need+le", limit=1) == every
    assert found(pattern="need+le", fixed=True) == []
    assert found(pattern="needle", ignore_case=True, glob="*.h") == [("two.h", n, t) for n, t in ((1, "needle"), (2, "NEEDLE"), (3, "needle"))]
    assert (".git/c", 1, "needle") in found(pattern="needle", hidden=True)
    assert "bin" in [i["path"] for i in files.get("grep", path="s", pattern="needle", binary=True)["items"]]
    near = files.get("grep", path="s/a/one.c", pattern="needle", context=1)["items"]
    assert [(i["line"], i["context"], "path" in i) for i in near] == [(1, True, False), (2, False, False), (3, True, False)]
    assert [(i["line"], i["offset"]) for i in files.all("grep", path="s/two.h", pattern="needle", limit=1)] == [(1, 0), (3, 14)]


def test_exclusive_moves_have_one_winner_A17(api, box, files):
    for i in range(8):
        api.put(box, f"from{i}", b"%d" % i)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda i: api.call("POST", files.base + "/move", json={"path": f"from{i}", "to": "to", "exclusive": True})
                              .status_code, range(8)))
    assert sorted(codes) == [204] + [409] * 7
    assert api.file(box, "to") == b"%d" % codes.index(204)


def test_bad_requests_send_nothing(api, box, files, emulator):
    api.get(box)
    with emulator.calls() as calls:
        for query in ({}, {"path": ""}, {"path": "a\0b"}, {"path": "x" * 4097}, {"path_b64": ""}, {"path_b64": b64(b"a\0")}):
            files.refused("GET", "", 422, "invalid_path", **query)
        for what, query in (("", {"limit": 0}), ("", {"limit": 10001}), ("", {"cursor": "?"}), ("", {"cursor": ""}), ("", {"path_b64": "eA=="}),
                            ("stat", {"follow": "no"}), ("access", {"mode": "rr"}), ("glob", {}), ("glob", {"pattern": "x" * 1025}),
                            ("grep", {"pattern": "x", "cursor": "eA"}), ("text", {"line": 0}), ("stat", {"sudo": "1"})):
            files.refused("GET", what, 422, "invalid_field", path="f", **query)
        files.refused("GET", "stat", 422, "unknown_field", path="f", cursor="eA")
        for what, body in (("chmod", {}), ("chmod", {"mode": "8"}), ("chmod", {"mode": 420}), ("truncate", {}), ("truncate", {"size": -1}),
                           ("chown", {}), ("chown", {"uid": 1, "recursive": True, "follow": False}), ("mkdir", {"parents": "true"}),
                           ("utimes", {"modified_at": "2001-02-30T00:00:00Z"}), ("utimes", {"modified_at": "2001-02-03 00:00:00"}),
                           ("utimes", {"modified_at": 5}), ("mktemp", {"prefix": "a/b"}), ("move", {"to": "x", "to_b64": "eA=="}),
                           ("move", {"to_b64": "!"})):
            files.refused("POST", what, 422, "invalid_field", body={"path": "f", **body})
        files.refused("POST", "move", 422, "invalid_path", body={"path": "f"})
        files.refused("POST", "move", 422, "invalid_path", body={"to": "f"})
        files.refused("POST", "mkdir", 422, "unknown_field", body={"path": "f", "recursive": True})
        files.refused("POST", "mkdir", 422, "unknown_field", body={"path": "f"}, path="g")
        api.refused("DELETE", files.base + "/content", 412, "precondition_failed", params={"path": "f"}, headers={"If-Match": '"x"'})
    assert len(calls) == 0


def test_a_read_whose_answer_is_cut_is_asked_again(api, box, files, emulator):
    api.put(box, "f", b"x")
    emulator.fault({"cut_after_bytes": 10}, method="POST", path_regex="/cmd$", times=1)
    with emulator.calls() as calls:
        assert files.get("stat", path="f")["size"] == 1
    assert len(calls) > 1


def helper_says(emulator, *lines):
    """The next call into the sandbox answers this instead of being made."""
    text = "".join(line + "\n" for line in lines)
    answer = [{"command": {"id": "cmd_1", "name": "h", "exitCode": None}}, {"stream": "stdout", "data": text},
              {"command": {"id": "cmd_1", "name": "h", "exitCode": 0}}]
    emulator.fault({"status": 200, "content_type": "application/x-ndjson", "body": "".join(json.dumps(a) + "\n" for a in answer)},
                   times=1, path_regex="/cmd$")


def test_a_search_out_of_time_goes_on_where_it_says_C8(api, box, files, emulator):
    """The helper ends a search after 20 s, also when it found nothing yet."""
    api.run(box, shell="mkdir t; for f in a b c; do printf '1 x\\n2\\n3 x\\n' > t/$f; done")
    helper_says(emulator, f"R 1 0 - {b64(b'a')} {b64(b'1 x')}", f"R 2 0 m {b64(b'b')} -", "M")
    page = files.get("grep", path="t", pattern="x")
    assert [(i["path"], i["line"]) for i in page["items"]] == [("a", 1)]
    rest = files.get("grep", path="t", pattern="x", cursor=page["next_cursor"])
    assert [(i["path"], i["line"]) for i in rest["items"]] == [("b", 3), ("c", 1), ("c", 3)] and rest["next_cursor"] is None

    helper_says(emulator, f"R 0 0 m {b64(b'b')} -", "M")
    page = files.get("grep", path="t", pattern="x")
    assert page["items"] == []
    rest = files.get("grep", path="t", pattern="x", cursor=page["next_cursor"])
    assert [(i["path"], i["line"]) for i in rest["items"]] == [("c", 1), ("c", 3)]

    helper_says(emulator, "R 2 0 m - -", "M")
    page = files.get("grep", path="t/a", pattern="x")
    assert [i["line"] for i in files.get("grep", path="t/a", pattern="x", cursor=page["next_cursor"])["items"]] == [3]

    helper_says(emulator, f"R 0 0 m {b64(b'a')} -", "M")
    page = files.get("glob", path="t", pattern="*")
    assert page["items"] == []
    assert [i["path"] for i in files.get("glob", path="t", pattern="*", cursor=page["next_cursor"])["items"]] == ["b", "c"]


def test_a_search_ends_with_the_client_who_wants_it(api, box, files, gateway):
    """Half a tebibyte of zeros takes minutes to read."""
    api.run(box, shell="truncate -s 512G zeros")
    running = "grep -lzx '[l]ines' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall((f"GET {files.base}/text?path=zeros&line=2 HTTP/1.1\r\nHost: x\r\n"
                      f"Authorization: Bearer {gateway.token}\r\n\r\n").encode())
        until(lambda: api.run(box, shell=running)["out"] != b"0\n", "it reads")
    until(lambda: api.run(box, shell=running)["out"] == b"0\n", "it ends", 20)


def test_a_stopped_sandbox_is_told_or_resumed(api, box, files):
    api.put(box, "f", b"x")
    api.stop(box)
    files.refused("GET", "stat", 409, "sandbox_not_running", path="f")
    files.refused("POST", "mkdir", 409, "sandbox_not_running", body={"path": "d"})
    files.post("mkdir", 201, path="d", resume=True)
    assert [i["name"] for i in files.get(path=".")["items"]] == ["d", "f"]


def test_a_name_cannot_add_a_header_P36(api, box, files):
    name = "a\r\nX-Evil: 1\r\n" + secrets.token_hex(4)
    files.post("mkdir", 201, path=name)
    files.post("mkdir", 201, path=name + "/d")
    files.post("mkdir", 201, path=name + "/e")
    answer = api.ok("GET", files.base, params={"path": name, "limit": 1})
    assert "X-Evil" not in answer.headers and "next" in answer.links
    assert [i["name"] for i in api.ok("GET", answer.links["next"]["url"]).json()["items"]] == ["e"]
