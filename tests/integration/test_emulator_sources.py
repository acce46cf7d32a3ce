"""Git and tarball sources of the emulator (5.1): what arrives, and what is refused with nothing left behind. (A8, P33)"""
import base64
import concurrent.futures
import functools
import gzip
import http.server
import io
import os
import pathlib
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading

import pytest

from harness import clean_env, sha256

USER, PASSWORD = "me@example", "p%s 'w$x\"y"


def git(cwd, *args):
    env = clean_env(HOME=str(cwd), GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_DATE="2001-02-03T04:05:06Z", GIT_COMMITTER_DATE="2001-02-03T04:05:06Z")
    done = subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main", "-C", cwd, *args],
                          env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, some behind a password, some that redirect."""

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        want = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.path.startswith("/private/") and self.headers.get("Authorization") != want:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/moved/", "/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/to-file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *args):
        pass


def add(tar, name, data=b"", kind=tarfile.REGTYPE, link="", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(data)
    tar.addfile(info, io.BytesIO(data))


def tarball(path, entries):
    with tarfile.open(path, "w:gz") as tar:
        for entry in entries:
            add(tar, *entry[:1], **entry[1])


@pytest.fixture(scope="module")
def web():
    """A server on loopback over a directory that anybody may read (git runs as nobody)."""
    with tempfile.TemporaryDirectory(prefix="sandgate-test-web-") as name:
        root = pathlib.Path(name)
        root.chmod(0o755)
        work = root / "work"
        work.mkdir()
        git(work, "init", "-q")
        (work / "f").write_text("one\n")
        (work / "run").write_text("#!/bin/sh\necho ran\n")
        (work / "run").chmod(0o755)
        (work / "link").symlink_to("f")
        git(work, "add", ".")
        git(work, "commit", "-q", "-m", "one")
        git(work, "tag", "v1")
        (work / "f").write_text("two\n")
        git(work, "commit", "-q", "-a", "-m", "two")
        git(work, "branch", "side")
        (work / "f").write_text("three\n")
        git(work, "commit", "-q", "-a", "-m", "three")
        bare = root / "my.repo.git"
        git(root, "clone", "-q", "--bare", work, bare)
        git(bare, "update-server-info")
        (root / "private").mkdir()
        git(root, "clone", "-q", "--bare", work, root / "private" / "secret.git")
        git(root / "private" / "secret.git", "update-server-info")
        tarball(root / "good.tar.gz", [("d/", {"kind": tarfile.DIRTYPE, "mode": 0o755}), ("d/f", {"data": b"in a tar\n"}),
                                       ("./x", {"data": b"#!/bin/sh\necho x\n", "mode": 0o755}), ("l", {"kind": tarfile.SYMTYPE, "link": "d/f"})])
        tarball(root / "up.tar.gz", [("ok", {"data": b"1"}), ("../up", {"data": b"1"})])
        tarball(root / "through.tar.gz", [("l", {"kind": tarfile.SYMTYPE, "link": "/tmp"}), ("l/f", {"data": b"1"})])
        tarball(root / "device.tar.gz", [("null", {"kind": tarfile.CHRTYPE})])
        (root / "cut.tar.gz").write_bytes((root / "good.tar.gz").read_bytes()[:-30])
        (root / "page.tar.gz").write_text("<html>not found</html>")
        (root / "noise.tar.gz").write_bytes(gzip.compress(os.urandom(4096)))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=name))
        server.seen, server.root, server.work = [], root, work
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
        server.server_close()


@pytest.fixture
def open_emu(own_emulator):
    api = own_emulator("--allow-private-sources")
    yield api
    assert leftovers(api) == []


def leftovers(api):
    """Scratch files in the state directory, and clones in the directory for temporary files."""
    state = (api.emulator.log.parent / "state").resolve()
    own = f"sandgate-source-{sha256(str(state).encode())[:12]}-*"
    return [p for p in state.iterdir() if p.name.startswith("source-")] + list(pathlib.Path(tempfile.gettempdir()).glob(own))


def from_git(url, **more):
    return {"source": {"type": "git", "url": url, **more}}


def from_tar(url):
    return {"source": {"type": "tarball", "url": url}}


def test_clone(open_emu, web):
    """v3: a directory of the repository's name; v2: the working directory itself."""
    box = open_emu.create(**from_git(web.url + "/my.repo.git"))
    assert open_emu.sh(box, "cd my.repo && cat f link && ./run && git status --porcelain 2>/dev/null; test -O f && ls -A | tr '\\n' ' '") \
        == "three\nthree\nran\n.git f link run "
    flat = open_emu.create(version=2, **from_git(web.url + "/my.repo.git"))
    assert open_emu.sh(flat, "cat f; test -d .git && echo .git") == "three\n.git\n"
    assert "source" not in flat.sandbox
    open_emu.sh(box, "echo changed > my.repo/f")
    open_emu.stop(box)
    assert open_emu.sh(open_emu.resume(box), "cat my.repo/f") == "changed\n", "fetched once, at creation"


@pytest.mark.parametrize("revision,text", [("v1", "one"), ("side", "two"), ("main", "three"), ("commit", "two"), ("short", "two")])
def test_revision(open_emu, web, revision, text):
    named = {"commit": git(web.work, "rev-parse", "side"), "short": git(web.work, "rev-parse", "--short", "side")}
    box = open_emu.create(version=2, **from_git(web.url + "/my.repo.git", revision=named.get(revision, revision)))
    assert open_emu.sh(box, "cat f") == text + "\n"


def test_depth_over_files(own_emulator, web):
    """file:// is for tests, and only when it is allowed."""
    api = own_emulator("--allow-file-sources")
    box = api.create(version=2, **from_git(f"file://{web.root}/my.repo.git", depth=1))
    assert api.sh(box, "cat f; cat .git/shallow | wc -l") == "three\n1\n"
    tar = api.create(**from_tar(f"file://{web.root}/good.tar.gz"))
    assert api.sh(tar, "cat l") == "in a tar\n"
    assert "private" in api.create_refused(400, "bad_request", **from_git(web.url + "/my.repo.git"))
    assert leftovers(api) == []


def test_password(open_emu, web):
    """It reaches the server and neither the clone nor the log."""
    url = web.url + "/private/secret.git"
    box = open_emu.create(**from_git(url, username=USER, password=PASSWORD))
    assert open_emu.sh(box, "cat secret/f") == "three\n"
    assert open_emu.run(box, f"grep -rF '{USER}' secret")[0] == 1
    assert PASSWORD not in open_emu.emulator.text()
    for wrong in ({}, {"username": USER, "password": "wrong"}):
        message = open_emu.create_refused(400, "bad_request", **from_git(url, **wrong))
        assert "cloned" in message and PASSWORD not in message


@pytest.mark.parametrize("more", [
    {"url": "/none.git"}, {"url": "/my.repo.git", "revision": "no-such"}, {"url": "/page.tar.gz"}, {"url": "/moved/my.repo.git"}])
def test_clone_refused(open_emu, web, more):
    message = open_emu.create_refused(400, "bad_request", name="again", **from_git(**{**more, "url": web.url + more["url"]}))
    assert message.startswith("The repository could not be cloned: ") and len(message) > 45
    assert open_emu.create(name="again").name == "again", "the name is free"


def test_tarball(open_emu, web):
    box = open_emu.create(**from_tar(web.url + "/good.tar.gz"))
    assert open_emu.sh(box, "./x; cat l d/f; stat -c %U d/f | tr -d '\\n'; test -O d && echo ' mine'") \
        == "x\nin a tar\nin a tar\nvercel-sandbox mine\n"
    assert open_emu.sh(open_emu.create(version=2, **from_tar(web.url + "/moved/good.tar.gz")), "cat d/f") == "in a tar\n"


@pytest.mark.parametrize("path,said", [
    ("none.tar.gz", "404"), ("up.tar.gz", "leads out"), ("through.tar.gz", "unpacked"), ("device.tar.gz", "only files"), ("cut.tar.gz", "unpacked"),
    ("page.tar.gz", "unpacked"), ("noise.tar.gz", "unpacked"), ("to-file", "fetched")])
def test_tarball_refused(open_emu, web, path, said):
    """A bad archive leaves no sandbox, no session and no snapshot."""
    message = open_emu.create_refused(400, "bad_request", name="again", **from_tar(f"{web.url}/{path}"))
    assert said in message
    assert open_emu.call("GET", "/v2/sandboxes/sessions")["sessions"] == []
    assert open_emu.call("GET", "/v2/sandboxes/snapshots")["snapshots"] == []
    assert open_emu.create(name="again").name == "again"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "0.0.0.0", "127.1", "[::ffff:127.0.0.1]"])
def test_this_machine_is_no_source(emu, web, host):
    """Not through the emulator either: nothing of this network is dialled. (SSRF)"""
    before = len(web.seen)
    port = web.server_address[1]
    assert "private" in emu.create_refused(400, "bad_request", **from_tar(f"http://{host}:{port}/good.tar.gz"))
    emu.create_refused(400, "bad_request", **from_git(f"http://{host}:{port}/my.repo.git"))
    assert len(web.seen) == before


@pytest.mark.parametrize("url", ["ssh://h/r.git", "ext::sh -c id", "file:///etc", "git://h/r", "http://u:p@h/r", "https://", "x", "-x"])
def test_other_urls(emu, url):
    emu.create_refused(400, "bad_request", **from_git(url))
    emu.create_refused(400, "bad_request", **from_tar(url))


def test_a_kill_while_cloning_leaves_nothing(own_emulator, web):
    """The next emulator removes the half of a clone; git ends with the one that started it."""
    first = own_emulator("--allow-private-sources", state="killed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/r.git"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(first.request, "POST", "/v3/sandboxes", from_git(url))
            peer, _ = silent.accept()
            with peer:
                assert leftovers(first), "it is cloning"
                first.emulator.end(signal.SIGKILL)
                assert isinstance(asked.exception(30), Exception)
                while peer.recv(4096):  # git's own end of the connection
                    pass
    second = own_emulator("--allow-private-sources", state="killed")
    assert leftovers(second) == []
    assert second.names() == []


def test_shutting_down_does_not_wait_for_a_clone(own_emulator):
    api = own_emulator("--allow-private-sources")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/r.git"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(api.request, "POST", "/v3/sandboxes", from_git(url))
            peer, _ = silent.accept()
            with peer:
                assert api.emulator.end() == 0
                asked.exception(30)
    assert leftovers(api) == []


def test_a_taken_name_fetches_nothing(open_emu, web):
    open_emu.create(name="taken")
    before = len(web.seen)
    assert "already exists" in open_emu.create_refused(400, "bad_request", name="taken", **from_tar(web.url + "/good.tar.gz"))
    assert len(web.seen) == before
