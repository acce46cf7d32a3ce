#!/usr/bin/python3
"""A PostgreSQL of a test's own: made in a directory of its own, reached by a Unix socket, gone with who started it.

As a module: `with PgServer() as pg: pg.url, pg.pid, pg.kill(), pg.start()`.  As a program it prints {"url": …, "pid": …}
and obeys lines on its input: `kill` (SIGKILL), `start` (again), `freeze` and `thaw` (SIGSTOP and SIGCONT to all of it),
each answered by such a line; the end of its input ends it.

PostgreSQL does not run as root: started by root, it becomes the system user postgres or nobody.
"""
import ctypes
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 60
SETTINGS = {"listen_addresses": "", "max_connections": "100", "shared_buffers": "16MB", "fsync": "off",
            "unix_socket_permissions": "0777", "logging_collector": "off", "log_min_messages": "warning",
            "autovacuum_naptime": "3600"}


def programs():
    """The folder of the newest version's programs."""
    found = [p.parent for p in pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if not found:
        on_path = shutil.which("postgres")
        if not on_path:
            raise RuntimeError("PostgreSQL is not installed: run tools/deps test")
        return pathlib.Path(on_path).resolve().parent
    return max(found, key=lambda p: int(re.sub(r"\D", "", p.parent.name) or 0))


def user():
    """Who it runs as: None is who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody")


class PgServer:
    def __init__(self, directory=None, **settings):
        self.settings = {**SETTINGS, **settings}
        self.bin, self.user, self.child = programs(), user(), None
        # Short: the path of a Unix socket is.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="sg-pg-", dir=directory))
        self.data, self.log = self.root / "data", self.root / "log"
        try:
            if self.user:
                os.chown(self.root, self.user.pw_uid, self.user.pw_gid)
            self.root.chmod(0o755)
            made = subprocess.run([self.bin / "initdb", "-D", self.data, "-U", "sandgate", "-A", "trust", "-E", "UTF8", "--no-sync",
                                   "--locale=C.UTF-8"], preexec_fn=self.become, env=self.env(), capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)
            if made.returncode != 0:
                raise RuntimeError("initdb: " + made.stdout + made.stderr)
            self.start()
        except BaseException:
            self.end()
            raise

    def env(self):
        return {"PATH": f"{self.bin}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(self.root)}

    def become(self):
        if self.user:
            os.setgroups([])
            os.setgid(self.user.pw_gid)
            os.setuid(self.user.pw_uid)
        os.setsid()
        os.chdir("/")
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG: it does not outlive us

    @property
    def url(self):
        return f"postgresql:///postgres?host={self.root}&user=sandgate"

    @property
    def pid(self):
        return self.child.pid if self.child else 0

    def ready(self):
        return subprocess.run([self.bin / "pg_isready", "-q", "-h", self.root], env=self.env(), check=False).returncode == 0

    def start(self):
        """Again after it was killed; its children need a moment to be gone."""
        deadline = time.monotonic() + PATIENCE
        options = [x for k, v in self.settings.items() for x in ("-c", f"{k}={v}")]
        while time.monotonic() < deadline:
            with open(self.log, "ab") as log:
                self.child = subprocess.Popen([self.bin / "postgres", "-D", self.data, "-k", self.root, *options],
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.become, env=self.env())
            while self.child.poll() is None and time.monotonic() < deadline:
                if self.ready():
                    return
                time.sleep(0.02)
            time.sleep(0.05)
        raise RuntimeError("PostgreSQL does not start:\n" + self.log.read_text(errors="replace")[-4000:])

    def kill(self, number=signal.SIGKILL):
        if self.child and self.child.poll() is None:
            self.child.send_signal(number)
            self.child.wait(PATIENCE)

    def signal_all(self, number):
        """To the postmaster and everybody whom it started."""
        kids = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, kids)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def freeze(self):
        self.signal_all(signal.SIGSTOP)

    def thaw(self):
        self.signal_all(signal.SIGCONT)

    def end(self):
        if self.child and self.child.poll() is None:
            self.thaw()
            self.kill(signal.SIGQUIT)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def main():
    with PgServer(**dict(a.split("=", 1) for a in sys.argv[1:])) as pg:
        acts = {"kill": pg.kill, "start": pg.start, "freeze": pg.freeze, "thaw": pg.thaw}
        line = "ready"
        while line:
            acts.get(line.strip(), lambda: None)()
            print(json.dumps({"url": pg.url, "pid": pg.pid}), flush=True)
            line = sys.stdin.readline()


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as e:
        sys.exit(str(e))
