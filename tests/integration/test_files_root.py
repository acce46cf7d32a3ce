"""P33: a token with --files-root keeps its holder's file requests below one directory of the sandbox."""
import base64
import io
import json
import subprocess
import tarfile
import time

import pytest
import websocket

from client import Client, problem
from harness import binary, clean_env, until
from test_files_watch import Watch

ROOT = "/vercel/sandbox/in"

SECRET = b"SECRET-of-the-outside"
# The outside has the same names as the root, so that a way out is seen by what it finds.
SETUP = r"""
set -e
cd /vercel/sandbox
mkdir -p in/sub in/real out in-not
for d in out in-not; do printf %s SECRET-of-the-outside > $d/f; mkdir $d/sub; printf %s SECRET-of-the-outside > $d/sub/f; done
printf 'inside\n' > in/f; printf 'inside\n' > in/sub/f; printf 'inside\n' > in/real/f
cd in
ln -s /vercel/sandbox/out dir-abs
ln -s ../out dir-rel
ln -s ../../out sub/dir-up
ln -s /vercel/sandbox/out/f file-abs
ln -s ../out/f file-rel
ln -s sub/f file-in
ln -s sub dir-in
ln -s dir-rel dir-twice
ln -s /vercel/sandbox/out/none file-none
ln -s ../out/none file-none-rel
ln -s /proc/self/root proc
"""
# Directories that are none of the root's.
OUTSIDE = ["/vercel/sandbox/out", "../out", "dir-abs", "dir-rel", "sub/dir-up", "sub/../../out", "dir-twice", "dir-in/../../out",
           ROOT + "/../out", ROOT + "/dir-abs", "/vercel/sandbox/in-not", "proc/vercel/sandbox/out",
           "/proc/self/root/vercel/sandbox/in", "/proc/self/cwd", "/", "../..", "/vercel/sandbox/in/./..//out"]
LINKS = ["file-abs", "file-rel", "file-none", "file-none-rel", "sub/../file-rel", "dir-in/../file-abs"]


class Rooted:
    """The same sandbox, as the holder of a token with a root sees it."""

    def __init__(self, gateway, box, root):
        self.gateway, self.api, self.base = gateway, Client(gateway), f"/v1/sandboxes/{box}/files"
        self.token = gateway.new_token("--files-root", root)
        self.api.http.headers["Authorization"] = "Bearer " + self.token
        until(lambda: self.api.call("GET", "/v1/version").status_code == 200, "the token is known")

    def get(self, what="", **q):
        return self.api.call("GET", self.base + (what and "/" + what), params=q)

    def post(self, what, **body):
        return self.api.call("POST", f"{self.base}/{what}", json=body)

    def delete(self, what="", **q):
        return self.api.call("DELETE", self.base + (what and "/" + what), params=q)

    def put(self, path, data, **q):
        return self.api.call("PUT", self.base + "/content", params={"path": path, **q}, data=data,
                             headers={"Content-Type": "application/octet-stream"})

    def append(self, path, data, **q):
        return self.api.call("POST", self.base + "/append", params={"path": path, **q}, data=data,
                             headers={"Content-Type": "application/octet-stream"})

    def extract(self, path, data, **q):
        return self.api.call("PUT", self.base + "/archive", params={"path": path, **q}, data=data,
                             headers={"Content-Type": "application/x-tar"})

    def upload(self, path, data, **q):
        """All at once."""
        return self.api.call("POST", self.base + "/uploads", params={"path": path, **q}, data=data,
                             headers={"Content-Type": "application/octet-stream", "Upload-Complete": "?1"})

    def begin_upload(self, path):
        return self.api.call("POST", self.base + "/uploads", params={"path": path}, headers={"Upload-Complete": "?0"})

    def go_on(self, where, offset, data):
        return self.api.call("PATCH", where, data=data, headers={
            "Content-Type": "application/partial-upload", "Upload-Offset": str(offset), "Upload-Complete": "?1"})


def tar(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def rooted(gateway, api, box):
    assert api.run(box, shell=SETUP)["exit_code"] == 0
    return Rooted(gateway, box, ROOT)


def outside(answer, what):
    assert answer.status_code == 403, (what, answer.status_code, answer.text)
    assert answer.json()["code"] == "path_outside_root", (what, answer.text)
    assert SECRET not in answer.content, what


def state(api, box):
    """All of the outside, with what would show a change."""
    return api.run(box, shell="cd /vercel/sandbox && find out in-not -printf '%p %m %s %T@ %n %y %U\\n' | sort && cat out/f in-not/f "
                              "&& ls -A /vercel/sandbox")["out"]


def requests_to(r, path, tag):
    """Every request that would follow the last part of a path, or make something there."""
    yield "stat", r.get("stat", path=path)
    yield "text", r.get("text", path=path)
    yield "access", r.get("access", path=path)
    yield "exists", r.get("exists", path=path)
    yield "realpath", r.get("realpath", path=path)
    yield "grep", r.get("grep", path=path, pattern=".")
    yield "content", r.get("content", path=path)
    yield "chmod", r.post("chmod", path=path, mode="777")
    yield "chmod -r", r.post("chmod", path=path, mode="777", recursive=True)
    yield "truncate", r.post("truncate", path=path, size=0)
    yield "utimes", r.post("utimes", path=path, modified_at="2001-01-01T00:00:00Z")
    yield "put", r.put(path, b"changed")
    yield "append", r.append(path, b"changed")
    yield "upload", r.upload(path, b"changed")
    yield "put parents", r.put(path, b"changed", parents="true")


def requests_in(r, d, tag):
    """Every request for something in a directory."""
    for name in ("f", "new" + tag, "sub/f"):
        yield from requests_to(r, f"{d}/{name}", tag)
        yield "lstat", r.get("stat", path=f"{d}/{name}", follow="false")
        yield "readlink", r.get("readlink", path=f"{d}/{name}")
        yield "remove", r.delete(path=f"{d}/{name}", recursive="true", force="true")
        yield "delete", r.delete("content", path=f"{d}/{name}")
    yield "mkdir", r.post("mkdir", path=f"{d}/new{tag}")
    yield "mkdir -p", r.post("mkdir", path=f"{d}/new{tag}/deep/er", parents=True)
    yield "symlink", r.post("symlink", path=f"{d}/new{tag}", target="f")
    yield "move in", r.post("move", path=f"{d}/f", to=f"stolen{tag}")
    yield "move out", r.post("move", path="f", to=f"{d}/f")
    yield "copy in", r.post("copy", path=f"{d}/f", to=f"stolen{tag}")
    yield "copy out", r.post("copy", path="f", to=f"{d}/new{tag}")
    yield "copy -r", r.post("copy", path=f"{d}/sub", to=f"stolen{tag}", recursive=True)
    yield "link in", r.post("link", path=f"{d}/f", to=f"stolen{tag}")
    yield "link out", r.post("link", path="f", to=f"{d}/new{tag}")
    yield "list", r.get(path=d)
    yield "glob", r.get("glob", path=d, pattern="*")
    yield "grep", r.get("grep", path=d, pattern=".")
    yield "mktemp", r.post("mktemp", path=d)
    yield "archive", r.get("archive", path=d)
    yield "extract", r.extract(d, tar(f=b"changed"))
    yield "extract parents", r.extract(f"{d}/new{tag}/deep", tar(f=b"changed"), parents="true")


@pytest.mark.parametrize("directory", OUTSIDE)
def test_no_way_out_P33(api, box, rooted, directory):
    before = state(api, box)
    for what, answer in requests_in(rooted, directory, ""):
        outside(answer, f"{what} {directory}")
    assert state(api, box) == before
    assert api.run(box, shell="cat /vercel/sandbox/in/f; ls /vercel/sandbox/in | grep stolen")["out"] == b"inside\n"


@pytest.mark.parametrize("path", LINKS)
def test_the_last_part_of_a_path_is_no_way_out_P33(api, box, rooted, path):
    before = state(api, box)
    for what, answer in requests_to(rooted, path, ""):
        outside(answer, f"{what} {path}")
    # The links themselves lie inside.
    assert rooted.get("stat", path=path, follow="false").json()["type"] == "symlink"
    assert rooted.get("readlink", path=path).status_code == 200
    assert rooted.post("move", path=path, to="moved").status_code == 204
    assert rooted.post("copy", path="moved", to="copied").status_code == 204
    outside(rooted.get("text", path="copied"), "a copy of a link is a link")
    assert rooted.delete(path="moved").status_code == 204
    assert rooted.delete("content", path="copied").status_code == 204
    assert state(api, box) == before


def test_inside_all_goes_and_relative_paths_begin_at_the_root_P33(api, box, rooted):
    r = rooted
    assert [i["name"] for i in r.get(path=".").json()["items"]][:3] == ["dir-abs", "dir-in", "dir-rel"]
    assert r.get("text", path="f").json()["items"][0]["text"] == "inside"
    for path in ("dir-in/f", "file-in", ROOT + "/f", ROOT + "/sub/../f", "/vercel//sandbox/./in/f", "sub/../dir-in/../f"):
        assert r.get("content", path=path).content == b"inside\n", path
        assert r.get("exists", path=path).json() == {"exists": True}
    assert r.get("realpath", path="dir-in/f").json() == {"path": ROOT + "/sub/f"}
    assert r.put("new/er/x", b"1", parents="true").status_code == 201
    assert r.put("file-in", b"through a link").status_code == 204
    assert r.post("mkdir", path="a/b/c", parents=True).status_code == 201
    assert r.post("copy", path="new", to="newer", recursive=True).status_code == 204
    assert r.post("move", path="newer", to="sub/moved").status_code == 204
    assert r.post("symlink", path="l", target="f").status_code == 201
    assert r.get("stat", path="l").json()["type"] == "file"
    assert r.post("mktemp", path="sub").json()["path"].startswith("sub/")
    assert [i["path"] for i in r.get("glob", path=".", pattern="**/x").json()["items"]] == ["new/er/x", "sub/moved/er/x"]
    assert [i["path"] for i in r.get("grep", path=".", pattern="thr.ugh").json()["items"]] == ["sub/f"]
    assert r.delete(path="new", recursive="true").status_code == 204
    assert r.delete(path=".", recursive="true").status_code == 422  # the root itself stays
    assert api.run(box, shell="cd /vercel/sandbox/in && cat sub/f sub/moved/er/x && ls new a/b 2>&1")["out"] == \
        b"through a link1ls: cannot access 'new': No such file or directory\na/b:\nc\n"


def test_trees_with_links_are_handled_inside_P33(api, box, rooted):
    """Removing, copying, changing and searching a tree follows none of the links in it."""
    before = state(api, box)
    assert rooted.post("mkdir", path="../in/t", parents=True).status_code == 403
    assert api.run(box, shell="cd /vercel/sandbox/in && mkdir t && ln -s ../../out t/a && ln -s ../../out/f t/b && "
                              "ln -s /vercel/sandbox/out t/c")["exit_code"] == 0
    assert rooted.post("chmod", path="t", mode="700", recursive=True).status_code == 204
    assert rooted.get("grep", path=".", pattern="SECRET").json()["items"] == []
    assert [i["path"] for i in rooted.get("glob", path="t", pattern="**").json()["items"]] == ["a", "b", "c"]
    assert rooted.post("copy", path="t", to="u", recursive=True).status_code == 204
    outside(rooted.get(path="u/a"), "list of a copied link")
    assert rooted.delete(path="t", recursive="true").status_code == 204
    assert rooted.delete(path="u", recursive="true").status_code == 204
    assert state(api, box) == before


def test_uploads_and_archives_stay_inside_P33(api, box, rooted):
    before = state(api, box)
    # What is inside when it is begun may be outside when it is finished.
    begun = rooted.begin_upload("real/f")
    assert begun.status_code == 201, begun.text
    assert api.run(box, shell="cd /vercel/sandbox/in && mv real was && ln -s ../out real")["exit_code"] == 0
    outside(rooted.go_on(begun.headers["Location"], 0, b"changed"), "the end of an upload")
    # An upload belongs to those who have the root that it was begun with.
    begun = rooted.begin_upload("sub/f")
    where = begun.headers["Location"]
    for stranger in (Rooted(rooted.gateway, box, ROOT + "/sub"), Rooted(rooted.gateway, box, "/vercel")):
        assert stranger.api.call("HEAD", where).status_code == 404
        assert stranger.go_on(where, 0, b"changed").json()["code"] == "upload_not_found"
        assert stranger.api.call("DELETE", where).json()["code"] == "upload_not_found"
    assert rooted.go_on(where, 0, b"inside, too").status_code == 204
    assert rooted.get("content", path="sub/f").content == b"inside, too"
    # Links are packed as links, and are not gone through by what is extracted.
    with tarfile.open(fileobj=io.BytesIO(rooted.get("archive", path=".").content)) as t:
        assert t.getmember("real").issym() and t.getmember("dir-abs").issym()
        assert not any(m.name.startswith(("real/", "dir-abs/", "dir-rel/")) for m in t.getmembers())
    for name in ("real/f", "dir-abs/f", "dir-rel/sub/f", "../out/f", "/vercel/sandbox/out/f"):
        answer = rooted.extract(".", tar(**{"fine": b"1", name: b"changed"}))
        assert answer.status_code in (403, 422), (name, answer.text)
        assert rooted.get("exists", path="fine").json() == {"exists": False}, name
    assert rooted.extract("dir-in", tar(**{"a/b": b"2"})).json() == {"entries": 1}
    assert rooted.get("content", path="sub/a/b").content == b"2"
    assert state(api, box) == before


def test_a_cursor_of_a_watch_leads_nowhere_P33(api, gateway, box, rooted):
    """Neither one that watches the outside, nor one of the same path below another root, nor by way of its process."""
    other = Rooted(gateway, box, "/vercel/sandbox/out").api
    with Watch(api, box, path="/vercel/sandbox/out") as all_, Watch(other, box, path=".") as out:
        for cursor in (all_.cursor, out.cursor):
            for path in (".", ROOT, "/vercel/sandbox/out"):
                for q, header in (({"cursor": cursor}, {}), ({}, {"Last-Event-ID": cursor})):
                    a = rooted.api.call("GET", rooted.base + "/watch", params={"path": path, **q}, headers=header)
                    problem(a, 422, "invalid_field")
            process = f"/v1/sandboxes/{box}/processes/{cursor.rsplit('.', 1)[0]}"
            for method, what in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("GET", "/output?stream=stdout"), ("POST", "/stdin")):
                problem(rooted.api.call(method, process + what), 404, "process_not_found")
            problem(rooted.api.call("POST", process + "/signal", json={"signal": 9}), 404, "process_not_found")
            with pytest.raises(websocket.WebSocketBadStatusException, match="404"):
                rooted.api.attach(box, cursor.rsplit(".", 1)[0])
        api.run(box, shell="touch out/heard")
        for w in (all_, out):
            w.until(("create", "heard", "file"))


def test_bytes_that_are_no_text_lead_nowhere_either_P33(api, box, rooted):
    for path in (b"../out/f", b"/vercel/sandbox/out/f", b"dir-rel/f", b"file-abs"):
        outside(rooted.get("text", path_b64=base64.b64encode(path).decode()), path)


def test_a_root_that_is_not_there_or_a_link(api, gateway, box):
    """Nobody gets more when the root is missing; a root that is a link is what it leads to."""
    api.run(box, shell="mkdir -p /vercel/sandbox/real /vercel/sandbox/out; cd /vercel/sandbox; echo a > real/f; echo b > out/f; ln -s real link")
    gone = Rooted(gateway, box, "/vercel/sandbox/none")
    for path in ("f", "/vercel/sandbox/out/f", "/vercel/sandbox/none/f"):
        answer = gone.get("text", path=path)
        assert answer.status_code in (403, 404), answer.text
    link = Rooted(gateway, box, "/vercel/sandbox/link")
    for path in ("f", "/vercel/sandbox/link/f", "/vercel/sandbox/real/f"):
        assert link.get("text", path=path).json()["items"][0]["text"] == "a", path
    outside(link.get("text", path="../out/f"), "..")


def test_processes_are_not_confined(api, box, rooted):
    """The root is one of file requests, as the documentation says."""
    assert rooted.api.run(box, "cat", "/vercel/sandbox/out/f")["out"] == SECRET


def test_the_command_line_says_what_a_root_may_be(tmp_path):
    def token(*args):
        return subprocess.run([binary("sandgate"), "token", *args, "--tokens", tmp_path / "tokens"], env=clean_env(),
                              capture_output=True, text=True, timeout=60)

    for bad in ("", "/", "relative", "/a/", "/a//b", "/a/./b", "/a/..", "/" + "x" * 1023):
        done = token("create", "--name", "n", "--files-root", bad)
        assert done.returncode == 64 and not done.stdout and "root" in done.stderr, (bad, done)
    assert token("create", "--name", "all").returncode == 0
    assert token("create", "--name", "some", "--files-root", "/vercel/sandbox/a b").returncode == 0
    lines = token("list").stdout.splitlines()
    assert "files below" not in lines[1] and lines[2].endswith("some  (files below /vercel/sandbox/a b)")
    stored = [json.loads(line) for line in (tmp_path / "tokens").read_text().splitlines()]
    assert [s.get("files_root") for s in stored] == [None, "/vercel/sandbox/a b"]


# Swaps `turn` for something else as fast as the kernel does it, and back; what lies outside is never changed by it.
FLIPPER = r"""
chdir "/vercel/sandbox/in" or die; $| = 1;
my $nr = `uname -m` =~ /x86_64/ ? 316 : 276; # renameat2
sub put { open(my $f, ">", $_[0]) or die; print $f "inside\n"; close $f; }
sub swap { my ($a, $b) = @_; syscall($nr, -100, $a, -100, $b, 2) == 0 or die "renameat2: $!"; }
mkdir "turn" or die; mkdir "turn/sub" or die; put("turn/f"); put("turn/sub/f"); put("turn-file");
symlink("TARGET", "other") or die; symlink("TARGET/f", "other-file") or die;
print "ready\n";
my ($n, $end) = (0, time + 120);
while (time < $end) {
    last if $n % 64 == 0 && -e "/tmp/enough";
    swap("turn", "other"); swap("turn-file", "other-file"); $n++;
    select(undef, undef, undef, 0.0005) if $n % 64 == 0; # others want the processor, too
}
print "$n\n";
"""


@pytest.mark.parametrize("target", ["../out", "/vercel/sandbox/out"])
def test_a_directory_that_becomes_a_link_meanwhile_P33(api, box, rooted, target):
    """A program in the sandbox swaps directory and link thousands of times while it is looked at, written and removed."""
    code = FLIPPER.replace("TARGET", target)
    before = state(api, box)
    pid = api.start(box, "perl", "-e", code)
    until(lambda: api.output(box, pid).content.startswith(b"ready") or api.process(box, pid)["state"] == "finished", "the flipper runs")
    assert api.output(box, pid).content.startswith(b"ready"), api.output(box, pid, "stderr").content
    r, seen = rooted, {}

    def tries(n):
        d = "turn/sub/.." if n % 3 == 0 else "turn"
        yield r.get("text", path=f"{d}/f")
        yield r.get("content", path=f"{d}/f")
        yield r.get("text", path="turn-file")
        yield r.get("content", path="turn-file")
        yield r.get(path=d)
        yield r.get("grep", path=d, pattern="S.CRET")
        yield r.get("glob", path=d, pattern="**")
        yield r.put(f"{d}/f", b"inside\n")
        yield r.put("turn-file", b"inside\n")
        yield r.append(f"{d}/log", b"inside\n")
        yield r.upload(f"{d}/f", b"inside\n")
        yield r.get("archive", path=d)
        yield r.extract(d, tar(f=b"inside\n", new=b"inside\n"))
        yield r.put(f"turn/deep{n}/f", b"inside\n", parents="true")
        yield r.post("copy", path=f"{d}/f", to=f"got{n}")
        yield r.get("content", path=f"got{n}")
        yield r.post("move", path=f"{d}/f", to=f"moved{n}")
        yield r.get("content", path=f"moved{n}")
        yield r.post("copy", path=d, to=f"tree{n}", recursive=True)
        yield r.get("content", path=f"tree{n}/f")
        yield r.post("copy", path="f", to=f"{d}/f")
        yield r.post("mkdir", path=f"{d}/m{n}")
        yield r.post("truncate", path="turn-file", size=7)
        yield r.post("chmod", path=d, mode="755", recursive=True)
        yield r.delete(path=f"{d}/m{n}", recursive="true")
        yield r.delete(path=f"tree{n}", recursive="true", force="true")

    end, n, total = time.monotonic() + 40, 0, 0
    while time.monotonic() < end and (total < 1000 or seen.get("path_outside_root", 0) < 30):
        for answer in tries(n):
            assert b"SECRET" not in answer.content, answer.request.url
            assert answer.status_code < 500, (answer.request.url, answer.text)
            key = answer.json().get("code", "ok") if answer.status_code >= 400 else "ok"
            seen[key] = seen.get(key, 0) + 1
            total += 1
        n += 1
    api.run(box, "touch", "/tmp/enough")
    record = api.wait(box, pid)
    swaps = int(api.output(box, pid).content.split()[1])
    assert record["exit_code"] == 0 and swaps > 1000
    assert seen.get("path_outside_root", 0) > 5 and seen["ok"] > 5, seen
    assert state(api, box) == before
    assert b"SECRET" not in api.run(box, shell="cd /vercel/sandbox/in; find . -type f -exec cat {} +")["out"]
