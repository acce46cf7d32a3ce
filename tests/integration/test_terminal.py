"""Terminals over attached WebSockets: what people do in them, over both ways that input can take.

U3–U7, C7; P37 in a scaled form.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from client import APPEND, Client
from harness import PATIENCE, ROOT, clean_env, until

ENV = {"PS1": "$ ", "TERM": "xterm", "HOME": "/tmp", "HISTFILE": ""}
BASH = ["bash", "--norc", "--noprofile", "-i"]


@pytest.fixture(params=["interactive", "command"])
def way(request, emulator):
    """Whether the interactive socket is to be had."""
    if request.param == "command":
        emulator.fault({"status": 404}, method="POST", path_regex="/interactive$")
    return request.param


def shell(api, box, **more):
    return api.start(box, *BASH, pty={"cols": 80, "rows": 24}, env=ENV, **more)


class Typist:
    """A person in front of an attached terminal."""

    def __init__(self, a):
        self.a, self.seen = a, 0

    def type(self, text):
        self.a.send(text.encode() if isinstance(text, str) else text)
        return self

    def sees(self, text):
        """Waits for it, after what was seen before; returns what came until then."""
        text = text.encode() if isinstance(text, str) else text
        start, self.seen = self.seen, self.a.until_text(text, after=self.seen)
        return bytes(self.a.data["pty"][start:self.seen])

    def line(self, text, answer):
        """Types a line and waits for the answer, and for the next prompt."""
        self.type(text + "\r")
        self.sees("\n")
        said = self.sees(answer)
        self.sees("$ ")
        return said


# ---- shells ----


def test_u3_history_jobs_and_interrupts(api, box, way):
    pid = shell(api, box)
    with api.attach(box, pid, pty=0, cols=80, rows=24) as a:
        t = Typist(a)
        t.sees("$ ")
        assert a.message("hello")["terminal"] and a.message("hello")["mode"] == "write"
        t.line("echo one-$((1+1))", "one-2\r\n")
        t.type("\x1b[A").sees("echo one-$((1+1))")  # the line before, by arrow
        t.type("\r").sees("one-2\r\n")
        t.sees("$ ")
        t.type("sleep 1000\r").sees("sleep 1000\r\n")
        until(lambda: b"sleep" in api.run(box, "sh", "-c", "cat /proc/[0-9]*/comm")["out"], "it sleeps")
        t.type("\x03").sees("^C")
        t.sees("$ ")
        t.line("echo $?", "130\r\n")
        t.type("sleep 1000\r").sees("sleep 1000\r\n")
        until(lambda: b"sleep" in api.run(box, "sh", "-c", "cat /proc/[0-9]*/comm")["out"], "it sleeps")
        t.type("\x1a").sees("Stopped")
        t.sees("$ ")
        t.line("bg", "sleep 1000 &")
        t.line("jobs", "Running")
        t.line("kill %1; wait; echo gone", "gone\r\n")
        t.type("exit 7\r")
        a.until_close()
    assert a.message("exit")["exit_code"] == 7
    assert a.closed == 1000


def test_u3_bytes_go_through_as_they_are(api, box, way):
    """Every byte, in raw mode, both directions; UTF-8 in cooked mode."""
    pid = api.start(box, "sh", "-c", "stty raw -echo; echo ready; head -c 256 | od -An -v -tx1 | tr -d ' \\n'; stty sane; echo; echo sane; cat",
                    pty={"cols": 80, "rows": 24}, env=ENV)
    with api.attach(box, pid, pty=0) as a:
        a.until_text(b"ready")
        everything = bytes(range(256))
        for i in range(0, 256, 7):
            a.send(everything[i:i + 7])
        a.until_text(everything.hex().encode())
        a.until_text(b"sane\r\n")
        a.send("grüße 🙂\n".encode())
        a.until_text("grüße 🙂".encode(), after=a.until_text("grüße 🙂".encode()))  # echo, then the answer
        a.send(b"\x04")
        a.until_close()
    assert a.message("exit")["exit_code"] == 0


def test_closing_the_input_of_a_shell_ends_it(api, box):
    pid = api.start(box, "sh", "-c", "cat; echo end", pty={"cols": 80, "rows": 24})
    with api.attach(box, pid, pty=0) as a:
        a.send(b"half a line")
        a.say("stdin_close")
        a.until_close()
    assert a.message("exit")["exit_code"] == 0
    assert b"end" in a.data["pty"]


# ---- sizes ----


def test_u4_the_size_is_the_writers(api, box, way):
    pid = shell(api, box)
    with api.attach(box, pid, pty=0, cols=100, rows=30) as a, api.attach(box, pid, pty=0, cols=20, rows=10) as watcher:
        t = Typist(a)
        t.sees("$ ")
        assert watcher.until("hello")["mode"] == "watch"
        t.line("stty size", "30 100\r\n")
        t.line("trap 'echo resized:$(stty size)' WINCH", "")
        a.say("resize", cols=90, rows=25)
        t.sees("resized:25 90")
        watcher.say("resize", cols=10, rows=10)
        assert watcher.until("error")["code"] == "writer_exists"
        t.type("\r").sees("$ ")
        t.line("stty size", "25 90\r\n")
        a.say("resize", cols=0, rows=10)
        assert a.until("error")["pointer"] == "/cols"


# ---- several clients ----


def test_u5_viewers_see_the_same_and_one_writes(api, box):
    pid = shell(api, box)
    with api.attach(box, pid, pty=0) as a:
        t = Typist(a)
        t.sees("$ ")
        watchers = [api.attach(box, pid, pty=0, protocol=p) for p in ("sandgate.v1", "sandgate.v1.json", "sandgate.v1")]
        t.line("echo to-all-$((40+2))", "to-all-42\r\n")
        for w in watchers:
            w.until_text(b"$ ", after=w.until_text(b"to-all-42\r\n"))
            w.send(b"echo intruder\r")
            assert w.until("error")["code"] == "writer_exists"
        a.until("presence", lambda m: (m["writers"], m["watchers"]) == (1, 3))
        with api.attach(box, pid, pty=0, takeover=1) as b:
            a.until_close()
            assert a.closed == 4001
            u = Typist(b)
            u.sees("to-all-42\r\n")
            u.sees("$ ")
            u.line("echo mine-$((1+1))", "mine-2\r\n")
            for w in watchers:
                w.until_text(b"$ ", after=w.until_text(b"mine-2\r\n"))
            u.type("exit\r")
            b.until_close()
        for w in watchers:
            w.until_close()
            assert w.data["pty"] == b.data["pty"] and w.closed == 1000
            assert b"intruder" not in w.data["pty"]


def test_u5_a_client_comes_back_where_it_was(api, box):
    """Cut, back at the offset, as the same writer; the other gateway process does as well."""
    pid = shell(api, box)
    shown, accepted = bytearray(), 0
    for i in range(6):
        with api.attach(box, pid, pty=len(shown), takeover=1) as a:
            a.until("hello")
            accepted = a.until("stdin")["accepted"]
            line = b"echo r%d-$((%d*2))\r" % (i, i)
            a.send(line, accepted)
            a.until_text(b"$ ", after=a.until_text(b"r%d-%d\r\n" % (i, i * 2)))
            shown += a.data["pty"]
            a.socket.sock.close()
    with api.attach(box, pid, pty=0) as whole:
        whole.until_bytes(len(shown), "pty")
        assert bytes(whole.data["pty"]).startswith(bytes(shown))


# ---- full-screen programs ----

# Paints when its size has changed, as programs over ncurses do, and reads keys one by one.
PAINTER = r"""
import os, select, signal
read, write = os.pipe()
os.set_blocking(write, False)
signal.signal(signal.SIGWINCH, lambda *_: None)
signal.set_wakeup_fd(write)
painted, was = 0, None
while True:
    size = os.get_terminal_size(0)
    if size != was:
        painted, was = painted + 1, size
        os.write(1, b"\x1b[2J\x1b[Hpainted %d at %dx%d\x1b[%d;1Hbottom" % (painted, size.columns, size.lines, size.lines - 1))
    ready = select.select([0, read], [], [])[0]
    if read in ready:
        os.read(read, 100)
    if 0 in ready and os.read(0, 1) == b"q":
        break
"""


def test_u6_a_screen_is_painted_again_for_who_comes_back(api, box, way):
    """At the end of the output, with the size that the terminal has already: nothing would come without help."""
    api.put(box, "painter.py", PAINTER.encode())
    pid = api.start(box, "sh", "-c", "stty raw -echo; exec python3 painter.py", pty={"cols": 70, "rows": 20}, env=ENV)
    with api.attach(box, pid, pty=0) as a:
        a.until_text(b"painted 1 at 70x20")
        a.until_text(b"bottom")
        at = len(a.data["pty"])
        a.say("detach")
        a.until_close()
    with api.attach(box, pid, pty=at, cols=70, rows=20) as b:
        b.until_text(b"at 70x20")
        b.until_text(b"bottom")
        with api.attach(box, pid, pty=at, cols=70, rows=20) as watcher:
            watcher.until_text(b"at 70x20")  # it sees the writer's
            before = len(b.data["pty"])
            assert watcher.message("hello")["mode"] == "watch"
        b.send(b"q")
        b.until_close()
        assert len(re.findall(rb"painted", b.data["pty"][before:])) == 0, "a watcher's coming paints nothing"
    assert b.message("exit")["exit_code"] == 0


def test_top(api, box, way):
    pid = api.start(box, "top", "-d", "0.5", pty={"cols": 80, "rows": 24}, env=ENV)
    with api.attach(box, pid, pty=0, cols=80, rows=24) as a:
        at = a.until_text(b"load average")
        at = a.until_text(b"load average", after=at)  # it goes on
        a.say("resize", cols=100, rows=40)
        a.until_text(b"load average", after=at)
        a.send(b"q")
        a.until_close()
    assert a.message("exit")["exit_code"] == 0


def borrowed_vim(api, box):
    """The sandbox's base has no editor: this machine's goes there, with its libraries."""
    vim = shutil.which("vim") or shutil.which("vim.tiny") or shutil.which("vi")
    assert vim, "this test needs a vim on this machine: install vim-tiny"
    libraries = re.findall(r"=> (/\S+)", subprocess.run(["ldd", vim], capture_output=True, text=True, check=True).stdout)
    api.put(box, "vim/vim", pathlib.Path(os.path.realpath(vim)).read_bytes(), mode="755", parents="true")
    for library in libraries:
        name = os.path.basename(library)
        if name.startswith(("libc.so", "ld-linux", "libm.so", "libpthread")):
            continue  # those of the sandbox: they belong to its loader
        api.put(box, "vim/" + name, pathlib.Path(os.path.realpath(library)).read_bytes())
    where = api.run(box, "pwd")["out"].decode().strip() + "/vim"
    return f"{where}/vim", {**ENV, "LD_LIBRARY_PATH": where}


def test_vim(api, box, way):
    vim, env = borrowed_vim(api, box)
    check = api.run(box, vim, "--version", env=env)
    assert check["exit_code"] == 0, (check["out"], check["err"])
    pid = api.start(box, vim, "-u", "NONE", "-N", "letter.txt", pty={"cols": 80, "rows": 24}, env=env)
    with api.attach(box, pid, pty=0, cols=80, rows=24) as a:
        a.until_shown(b"letter.txt")
        a.send(b"i")
        a.until_shown(b"INSERT")
        for key in b"Dear sandbox,\rall is well.":
            a.send(bytes([key]))
        a.until_shown(b"is well.")
        at = len(a.data["pty"])
        a.socket.sock.close()
    with api.attach(box, pid, pty=at, cols=80, rows=24, takeover=1) as b:
        b.until_shown(b"Dear sandbox,")  # the whole screen again
        b.until_shown(b"all is well.")
        b.send(b"\x1b")
        time.sleep(0.1)  # an escape that something follows at once is an arrow key to an editor
        b.send(b":wq\r")
        b.until_close()
    assert b.message("exit")["exit_code"] == 0
    assert api.file(box, "letter.txt") == b"Dear sandbox,\nall is well.\n"


# ---- what it costs, and what may fail ----


def test_a_keystroke_costs_no_call_over_the_socket(api, box, emulator):
    pid = shell(api, box)
    with api.attach(box, pid, pty=0) as a:
        t = Typist(a)
        t.sees("$ ")
        t.line("echo warm-$((1+1))", "warm-2\r\n")
        with emulator.calls() as calls:
            t.type("echo ")
            for i in range(60):
                t.type("k").sees("k")  # each echo is waited for, as a person does
            t.type("\r").sees("k" * 60 + "\r\n")
        assert len(calls) == 0, calls.seen()
        t.type("exit\r")
        a.until_close()


def test_keystrokes_share_calls_without_it(api, box, emulator):
    emulator.fault({"status": 404}, method="POST", path_regex="/interactive$")
    pid = shell(api, box)
    with api.attach(box, pid, pty=0) as a:
        t = Typist(a)
        t.sees("$ ")
        t.line("echo warm-$((1+1))", "warm-2\r\n")
        emulator.fault({"delay_ms": 100}, method="POST", path_regex="/stdin$")
        with emulator.calls() as calls:
            t.type("echo ")
            for i in range(100):
                t.type("k")
                time.sleep(0.005)
            t.type("\r").sees("k" * 100 + "\r\n")
        assert 1 <= len(calls) <= 30, calls.seen()


def test_u2_typing_through_cuts(api, box, emulator, way):
    """Everything upstream is cut again and again; each line runs exactly once, in order."""
    pid = shell(api, box)
    emulator.fault({"cut_after_ms": 400}, path_regex="/ws/interactive$")
    emulator.fault({"cut_after_ms": 500}, method="POST", path_regex="/cmd$")
    emulator.fault({"lose_answer": True}, nth=3, times=3, method="POST", path_regex="/stdin$")
    with api.attach(box, pid, pty=0, cols=80, rows=24) as a:
        t = Typist(a)
        t.sees("$ ")
        for i in range(30):
            t.type(f"echo line-$(({i}+1)) | tee -a log\r").sees(f"line-{i + 1}\r\n")
        t.type("exit\r")
        a.until_close()
    assert not [m for m in a.messages if m["type"] in ("gap", "error")], a.messages
    emulator.clear_faults()
    assert api.file(box, "log") == b"".join(b"line-%d\n" % (i + 1) for i in range(30))


def test_p37_an_idle_terminal_stays(api, box, own_gateway):
    """Quiet for several times what gives a process's own stream up; the next key works as before."""
    mine = Client(own_gateway(RELAY_QUIET_MS=300))
    pid = shell(api, box)
    with mine.attach(box, pid, pty=0) as a:
        t = Typist(a)
        t.sees("$ ")
        for i in range(3):
            t.line(f"echo awake-$(({i}+1))", f"awake-{i + 1}\r\n")
            time.sleep(1.2)  # idle: nothing is to happen
        assert not [m for m in a.messages if m["type"] == "error"]


# ---- exec, and the terminal of the documentation ----


def test_exec_with_a_terminal(api, box, way):
    with api.exec(box, {"argv": BASH, "pty": {"cols": 90, "rows": 33}, "env": ENV}) as a:
        hello = a.until("hello")
        assert hello["terminal"] and hello["mode"] == "write"
        t = Typist(a)
        t.sees("$ ")
        t.line("stty size", "33 90\r\n")
        a.say("signal", signal="TERM", whole=True)  # an interactive shell ignores it
        t.line("echo still", "still\r\n")
        a.say("signal", signal="KILL")
        a.until_close()
    assert a.message("exit")["signal"] == "SIGKILL"


class Screen:
    """A program in a terminal of our own."""

    def __init__(self, argv, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 95, 0, 0))
        self.out, self.seen = b"", 0

    def sees(self, text, patience=PATIENCE):
        end = time.monotonic() + patience
        while (at := self.out.find(text, self.seen)) < 0:
            assert time.monotonic() < end, f"no {text}: {self.out}"
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.out += os.read(self.fd, 65536)
                except OSError:
                    raise AssertionError(f"it ended without {text}: {self.out}") from None
        self.seen = at + len(text)

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_the_terminal_of_the_documentation(api, box, gateway, emulator):
    env = clean_env(URL=gateway.url, TOKEN=gateway.token, TERM="xterm")
    program = [sys.executable, str(ROOT / "docs/examples/terminal.py")]
    one = Screen([*program, box, "env", "PS1=$ ", *BASH], env)
    one.sees(b"$ ")
    one.type(b"stty size\r")
    one.sees(b"31 95\r\n")
    fcntl.ioctl(one.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    one.type(b"sleep 0.5; stty size\r")
    one.sees(b"20 60\r\n")
    one.type(b"echo kept > note\r\x1d")
    one.sees(b"come back with --attach ")
    one.sees(b"tty-")
    name = b"tty-" + re.search(rb"--attach tty-([0-9a-f]{16})", one.out)[1]
    assert one.end() == 0
    two = Screen([*program, "--attach", name.decode(), box], env)
    two.sees(b"31 95")  # all that was said before comes again
    two.sees(b"20 60")
    two.type(b"cat note; exit 5\r")
    two.sees(b"kept\r\n")
    assert two.end() == 5
    os.close(one.fd)
    os.close(two.fd)
