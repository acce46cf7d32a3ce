"""Emulator and gateway as real processes, each with a port and a state directory of its own.

Binaries come from the build tree SANDGATE_BUILD (the emulator from SANDGATE_EMULATOR_BUILD where that is set); the
imported base tree from SANDGATE_TEST_BASE, a state directory that is only read.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SANDGATE_BUILD", ROOT / "build" / "asan"))
PATIENCE = 60  # seconds for anything that must happen; sanitizers and shared cores are slow


def binary(name):
    """The gateway of one build variant may be tested against the emulator of another."""
    if name == "sandgate":
        return BUILD / "server" / name
    return pathlib.Path(os.environ.get("SANDGATE_EMULATOR_BUILD", BUILD)) / "emulator" / name


def clean_env(**more):
    """No setting of this machine reaches the programs under test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDGATE_", "VERCEL_")) and "proxy" not in k.lower()}
    return {**env, **more}


def until(condition, what, patience=PATIENCE):
    """Waits for a condition that something else brings about; returns its value."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.02)


class Process:
    """A child with its stderr in a file; ended by its pid."""

    def __init__(self, argv, log, env=None, stdout=None):
        self.log = pathlib.Path(log)
        with open(self.log, "ab") as err:
            self.child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stderr=err, stdout=stdout or err,
                                          env=env or clean_env())

    def text(self):
        return self.log.read_text(errors="replace")

    def alive(self):
        return self.child.poll() is None

    def end(self, number=signal.SIGTERM, patience=PATIENCE):
        """Its exit code; a leak or race that a sanitizer found shows here. number None: it is ending already."""
        if number and self.alive():
            self.child.send_signal(number)
        try:
            return self.child.wait(patience)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise AssertionError(f"pid {self.child.pid} did not end:\n{self.text()[-4000:]}") from None


class Emulator(Process):
    """sandgate-emulator with its journal and its faults."""

    def __init__(self, directory, base, *options):
        directory.mkdir(parents=True, exist_ok=True)
        read, write = os.pipe()
        argv = [binary("sandgate-emulator"), "serve", "--listen", "127.0.0.1:0", "--state", directory / "state",
                "--base-from", base, "--json", "--admin", *options]
        try:
            super().__init__(argv, directory / "emulator.log", stdout=write)
        finally:
            os.close(write)
        with os.fdopen(read) as out:
            line = out.readline()
        assert line, f"the emulator did not start:\n{self.text()}"
        self.ready = ready = json.loads(line)
        self.url, self.token, self.tier = ready["url"], ready["token"], ready["tier"]
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.headers["Authorization"] = "Bearer " + self.token

    def admin(self, method, path, **kw):
        answer = self.http.request(method, f"{self.url}/_emulator/{path}", timeout=PATIENCE, **kw)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def fault(self, action, nth=None, times=None, **match):
        """fault({"status": 503}, method="POST", path_regex="/cmd$", times=1)"""
        rule = {"match": match, "action": action}
        rule.update({k: v for k, v in (("nth", nth), ("times", times)) if v is not None})
        self.admin("POST", "faults", json=rule)

    def clear_faults(self):
        self.admin("DELETE", "faults")

    def journal(self, after=0):
        return self.admin("GET", "journal", params={"after": after})["entries"]

    def calls(self):
        return Calls(self)


class Calls:
    """What reached the emulator inside a `with` block: (method, path) in order; a sandbox's name and ids are left out."""

    def __init__(self, emulator):
        self.emulator = emulator

    def __enter__(self):
        entries = self.emulator.journal()
        self.after = entries[-1]["seq"] if entries else 0
        return self

    def __exit__(self, *_):
        self.entries = self.emulator.journal(self.after)

    def seen(self):
        return [(e["method"], e["path"].removeprefix("/api").rsplit("/", 1)[-1]) for e in self.entries]

    def __len__(self):
        return len(self.entries)


class Gateway(Process):
    """`sandgate serve` with a token file of its own."""

    def __init__(self, directory, upstream_url, upstream_token, env=None, options=()):
        directory.mkdir(parents=True, exist_ok=True)
        self.tokens = directory / "tokens"
        self.token = self.new_token()
        (directory / "upstream-token").write_text(upstream_token + "\n")
        (directory / "upstream-token").chmod(0o600)
        self.upstream_token = upstream_token
        settings = {"SERVER_LISTEN": "127.0.0.1:0", "SERVER_LOG_LEVEL": "debug", "AUTH_TOKENS_FILE": self.tokens,
                    "STORE_STATE_FILE": directory / "state.db",
                    "UPSTREAM_URL": upstream_url, "UPSTREAM_TOKEN_FILE": directory / "upstream-token",
                    "UPSTREAM_TEAM_ID": "team_local", "UPSTREAM_PROJECT_ID": "prj_local", **(env or {})}
        self.command = ([binary("sandgate"), "serve", *options], directory / "gateway.log",
                        clean_env(**{"SANDGATE_" + k: str(v) for k, v in settings.items()}))
        super().__init__(*self.command)
        self.url = until(self.listening, "the gateway listens")

    def new_token(self, *options):
        """A further token; the running gateway knows it within a second."""
        made = subprocess.run([binary("sandgate"), "token", "create", "--name", "test", "--tokens", self.tokens, *options],
                              env=clean_env(), capture_output=True, text=True, timeout=PATIENCE)
        assert made.returncode == 0, made.stderr
        return next(w for w in made.stdout.split() if w.startswith("sgt_"))

    def events(self, name):
        found = []
        for line in self.text().splitlines():
            if line.startswith("{"):
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if entry.get("event") == name:
                    found.append(entry)
        return found

    def listening(self):
        assert self.alive(), f"the gateway ended with {self.child.returncode}:\n{self.text()}"
        seen = self.events("listening")
        return seen and seen[0]["url"]


def shared_base(tmp):
    """The imported base: given, or imported once by whichever worker comes first."""
    if "SANDGATE_TEST_BASE" in os.environ:
        return pathlib.Path(os.environ["SANDGATE_TEST_BASE"])
    cache = pathlib.Path(os.environ.get("SANDGATE_CACHE", "/var/cache/sandgate" if os.geteuid() == 0
                                        else os.path.expanduser("~/.cache/sandgate")))
    state = tmp / "base"
    with open(tmp / "base.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tmp / "base.done").exists():
            subprocess.run([binary("sandgate-emulator"), "import-base", "--force", "--state", state, cache / "base.tar"],
                           env=clean_env(), check=True, timeout=300)
            (tmp / "base.done").touch()
    return state


class Scripted:
    """An upstream that plays raw bytes: each connection is answered by `reply(request_head)`, then closed."""

    def __init__(self, reply):
        self.reply, self.heads = reply, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(PATIENCE)
                head = b""
                try:
                    while b"\r\n\r\n" not in head:
                        more = peer.recv(65536)
                        if not more:
                            break
                        head += more
                    if head:
                        self.heads.append(head)
                        peer.sendall(self.reply(head))
                        peer.shutdown(socket.SHUT_WR)
                        while peer.recv(65536):
                            pass
                except OSError:
                    pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(PATIENCE)


def http_answer(body, content_type="application/json", status="200 OK", length=None):
    body = body.encode() if isinstance(body, str) else body
    size = len(body) if length is None else length
    return (f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n"
            "Connection: close\r\n\r\n").encode() + body


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Records:
    """An answer (self.answer) that comes record by record, as server-sent events (self.sse) or NDJSON."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answer.close()

    def blocks(self):
        end, rest = (b"\n\n" if self.sse else b"\n"), b""
        for chunk in self.answer.iter_content(None):
            rest += chunk
            while end in rest:
                block, rest = rest.split(end, 1)
                yield block
        assert rest == b"", "the answer ends inside a record"
