"""Terminals of the emulator over raw WebSockets: the protocol of the official CLI, frame by frame.

The real service's own terminals are what CONNECT, EXEC -i and SH of its CLI use; tests/interop has those.
"""
import hashlib
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time

import pytest
import requests
import websocket
from edges import Authority
from harness import PATIENCE, Emulator, binary, clean_env, until

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Box:
    """One sandbox of the emulator, by its raw API."""

    def __init__(self, emulator, name, **settings):
        self.emulator, self.name = emulator, name
        answer = self.call("POST", "/v2/sandboxes", {"name": name, "projectId": "prj_local", **settings})
        self.session = answer["session"]["id"]

    def call(self, method, path, body=None, status=200):
        r = self.emulator.http.request(method, self.emulator.url + path, json=body, timeout=PATIENCE,
                                       params={"teamId": "team_local", "projectId": "prj_local"})
        assert r.status_code == status, (r.status_code, r.text)
        return r.json()

    def ask(self):
        answer = self.call("POST", f"/v2/sandboxes/sessions/{self.session}/interactive", {})
        assert set(answer) == {"url", "token"}
        assert answer["url"] == self.emulator.url.replace("http", "ws") + "/ws/interactive"
        return answer

    def run(self, line):
        """stdout of a shell line, over the command API."""
        r = self.emulator.http.post(f"{self.emulator.url}/v2/sandboxes/sessions/{self.session}/cmd", timeout=PATIENCE,
                                    json={"command": "sh", "args": ["-c", line], "wait": True, "logs": True})
        lines = [json.loads(x) for x in r.text.splitlines()]
        return "".join(x["data"] for x in lines if x.get("stream") == "stdout")

    def open(self, command="sh", args=(), **more):
        return Terminal(self.ask(), {"type": "start", "command": command, "args": list(args), "env": [], **more})

    def sh(self, line, **more):
        return self.open("sh", ["-c", line], **more)


class Terminal:
    def __init__(self, where, start=None, **options):
        self.socket = websocket.create_connection(f"{where['url']}?token={where['token']}", timeout=PATIENCE,
                                                  http_no_proxy=["*"], enable_multithread=True, **options)
        self.out, self.exit, self.closed = b"", None, None
        if start:
            self.say(**start)

    def say(self, **message):
        self.socket.send(json.dumps(message))

    def type(self, data):
        self.socket.send_binary(data)

    def step(self):
        """Takes one frame; False after the close frame."""
        op, data = self.socket.recv_data()
        if op == BINARY:
            self.out += data
        elif op == TEXT:
            assert self.exit is None, "one exit frame"
            assert data == b'{"type":"exit","code":%d}' % json.loads(data)["code"], data
            self.exit = json.loads(data)["code"]
        elif op == CLOSE:
            self.closed = struct.unpack("!H", data[:2])[0] if data else 1005
            return False
        return True

    def until(self, text):
        while text not in self.out:
            assert self.step(), self.out
        return self

    def finish(self):
        """(exit code, close code) at the server's end."""
        while self.step():
            pass
        self.socket.close()
        return self.exit, self.closed


@pytest.fixture
def box(emulator):
    b = Box(emulator, "pty-" + os.urandom(4).hex())
    yield b
    if emulator.alive():
        b.call("DELETE", f"/v2/sandboxes/{b.name}")


def test_program_size_and_exit_code(box):
    """CONNECT: start, output, the exit frame with the code, then the server closes with 1000."""
    t = box.sh("stty size; tty; pwd; id -un; exit 7", cols=100, rows=30, cwd="/tmp")
    assert t.finish() == (7, 1000)
    lines = t.out.decode().split("\r\n")
    assert lines[0] == "30 100" and lines[1].startswith("/dev/pts/") and lines[2:] == ["/tmp", "vercel-sandbox", ""]


def test_without_a_size_it_is_80_by_24(box):
    t = box.sh("stty size")
    assert t.finish() == (0, 1000)
    assert t.out == b"24 80\r\n"


def test_environment(emulator):
    """The sandbox's variables, over them those of the start message; the later of two wins."""
    box = Box(emulator, "pty-env", env={"A": "sandbox", "B": "sandbox"})
    t = box.sh("echo $A $B $C $TERM", env=["TERM=vt100", "B=first", "B=start", "C=x=y z"])
    assert t.finish() == (0, 1000)
    assert t.out == b"sandbox start x=y z vt100\r\n"
    t = box.open("sudo", ["sh", "-c", "id -u; echo $HOME $USER $SUDO_USER $A"])
    assert t.finish() == (0, 1000)
    assert t.out == b"0\r\n/root root vercel-sandbox sandbox\r\n"
    box.call("DELETE", "/v2/sandboxes/pty-env")


def test_resize(box):
    t = box.sh("trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done", cols=80, rows=24)
    t.until(b"ready\r\n").say(type="resize", cols=132, rows=50)
    assert t.finish() == (3, 1000)
    assert t.out == b"ready\r\n50 132\r\n"


def test_what_nobody_knows_is_ignored(box):
    t = box.sh("echo ready; read x; stty size; echo $x").until(b"ready\r\n")
    for message in ({"type": "resize", "cols": 0, "rows": 5}, {"type": "resize", "cols": "9"}, {"type": "ready"}, {}):
        t.say(**message)
    t.socket.send("no json")
    t.socket.ping(b"hello")
    op, data = t.socket.recv_data(control_frame=True)
    assert (op, data) == (PONG, b"hello")
    t.type(b"typed\r")
    assert t.finish() == (0, 1000)
    assert t.out == b"ready\r\ntyped\r\n24 80\r\ntyped\r\n"


def test_control_c_is_130(box):
    t = box.sh("echo ready; exec sleep 1000").until(b"ready\r\n")
    t.type(b"\x03")
    assert t.finish() == (130, 1000)
    assert t.out == b"ready\r\n^C"


def test_control_d_is_the_end_of_input(box):
    t = box.sh("echo ready; cat; echo done").until(b"ready\r\n")
    t.type(b"line\r\x04")
    assert t.finish() == (0, 1000)
    assert t.out == b"ready\r\nline\r\nline\r\ndone\r\n"


def test_every_byte_passes_unchanged(box):
    t = box.sh("stty raw -echo; echo ready; exec head -c 65536").until(b"ready\n")
    data = bytes(range(256)) * 256
    t.type(data)
    assert t.finish() == (0, 1000)
    assert t.out == b"ready\n" + data


def test_interactive_shell_with_jobs(box):
    """The shell has its terminal: job control works, and Ctrl-C ends the job but not the shell."""
    t = box.open("bash", ["--norc", "-i"], env=["PS1=> "]).until(b"> ")
    t.type(b"sleep 1000\r")
    until(lambda: box.run("pgrep -x sleep").strip(), "the job runs")
    t.type(b"\x03")
    t.until(b"^C\r\n")
    t.type(b"echo survived $?\r")
    t.until(b"survived 130\r\n").type(b"exit 5\r")
    assert t.finish() == (5, 1000)
    assert b"no job control" not in t.out


def test_missing_program_and_directory(box):
    t = box.open("no-such-program")
    assert t.finish() == (127, 1000)
    assert b"no-such-program" in t.out
    t = box.sh("true", cwd="/no/such/dir")
    assert t.finish() == (126, 1000)
    assert b"/no/such/dir" in t.out


def test_program_that_lets_go_of_its_terminal(emulator, box):
    """It runs on, unheard, without keeping the emulator busy; it may come back to its terminal."""
    t = box.sh("echo ready; exec <&- >&- 2>&-; sleep 0.7; echo back >/dev/tty; exit 8").until(b"ready\r\n")
    assert t.finish() == (8, 1000)
    assert t.out == b"ready\r\nback\r\n"


def test_end_of_the_program_is_the_end(box):
    """What it leaves behind in the background keeps no terminal open, and lives on if it ignores SIGHUP."""
    t = box.sh("(trap '' HUP; exec sleep 1000) & exit 4")
    assert t.finish() == (4, 1000)
    t = box.sh("trap '' HUP; sleep 1000 & exec sh -c 'exit 5'")
    assert t.finish() == (5, 1000)
    assert len(box.run("pgrep -x sleep").split()) in (1, 2)  # the first may have been too slow to ignore it


def test_last_output_is_complete(box):
    """What the program writes just before its end arrives before the exit frame, also at a slow reader's."""
    t = box.sh("stty -opost; head -c 300000 /dev/zero | tr '\\0' x; printf end; exit 9")
    until(lambda: not box.run("pgrep -x tr").strip() or select.select([t.socket.sock], [], [], 0)[0], "output")
    assert t.finish() == (9, 1000)
    assert t.out == b"x" * 300000 + b"end"


def test_five_megabytes_are_pasted_through_cat(box):
    """Neither side is read ahead without bound, and nothing is lost: the writer waits for the reader."""
    data = os.urandom(5 << 20)
    t = box.sh("stty raw -echo; echo ready; exec cat").until(b"ready\n")
    t.out = b""
    writer = threading.Thread(target=lambda: [t.type(data[i:i + 65536]) for i in range(0, len(data), 65536)])
    writer.start()
    digest, seen = hashlib.sha256(), 0
    while seen < len(data):
        assert t.step()
        digest.update(t.out)
        seen += len(t.out)
        t.out = b""
    writer.join()
    assert digest.digest() == hashlib.sha256(data).digest()
    t.socket.close()


def test_who_does_not_read_is_waited_for(emulator, box):
    """A client that does not read stops the program; the emulator's memory and processor stay where they are."""
    t = box.sh("stty -opost; echo ready; exec yes").until(b"ready\n")
    status = f"/proc/{emulator.child.pid}"

    def cpu():
        fields = open(status + "/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def written():
        return int(box.run("grep -h wchar /proc/$(pgrep -x yes)/io").split()[1])

    def stalled():
        before = written()
        time.sleep(0.2)
        return written() == before

    until(stalled, "the program waits")
    assert written() < 16 << 20
    before = cpu()
    time.sleep(0.5)
    assert cpu() - before < 15, "no busy waiting"
    t.socket.close()
    until(lambda: not box.run("pgrep -x yes").strip(), "the program ends with its client")


def test_input_nobody_reads_is_bounded(box):
    t = box.sh("stty raw -echo; echo ready; exec sleep 1000").until(b"ready\n")
    t.socket.sock.setblocking(False)
    sent, quiet = 0, 0
    frame = b"\x82\xff" + struct.pack("!Q", 1 << 26) + b"\0\0\0\0"
    t.socket.sock.send(frame)
    while quiet < 20:
        try:
            sent += t.socket.sock.send(bytes(65536))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.02)
        assert sent < 32 << 20, "input is taken without bound"
    t.socket.sock.close()
    until(lambda: not box.run("pgrep -x sleep").strip(), "the program ends with its client")


@pytest.mark.parametrize("how", ["close frame", "vanished"])
def test_disconnect_hangs_up(box, how):
    """The program gets SIGHUP, as from a real terminal."""
    t = box.sh("trap 'echo hup > /tmp/hup; exit' HUP; echo ready; while :; do sleep 0.05; done").until(b"ready\r\n")
    if how == "close frame":
        t.socket.send_close(1000)
        assert t.finish() == (None, 1000)
    else:
        t.socket.sock.close()
    until(lambda: box.run("cat /tmp/hup 2>/dev/null") == "hup\n", "SIGHUP arrives")
    until(lambda: box.run("ls /dev/pts") == "ptmx\n", "the terminal is gone")


def test_foreground_job_goes_with_the_terminal(box):
    t = box.open("bash", ["--norc", "-i"], env=["PS1=> "]).until(b"> ")
    t.type(b"sleep 1000\r")
    until(lambda: box.run("pgrep -x sleep").strip(), "the job runs")
    t.socket.close()
    until(lambda: not box.run("pgrep -x sleep; pgrep -x bash").strip(), "shell and job end")


def test_nohup_survives_and_is_forgotten_with_the_session(emulator):
    """A program that ignores SIGHUP lives on without a client; its end and the session's are no trouble."""
    box = Box(emulator, "pty-nohup")
    t = box.sh("trap '' HUP; echo ready; exec sleep 1000").until(b"ready\r\n")
    t.socket.close()
    until(lambda: not box.run("ls -l /proc/*/fd 2>/dev/null | grep -c 'master'").strip("0\n"), "nothing holds it")
    assert box.run("pgrep -x sleep").strip()
    box.call("POST", f"/v2/sandboxes/sessions/{box.session}/stop")
    box.call("DELETE", "/v2/sandboxes/pty-nohup")


def refusal(url):
    with pytest.raises(websocket.WebSocketBadStatusException) as e:
        websocket.create_connection(url, timeout=PATIENCE, http_no_proxy=["*"])
    return e.value.status_code


def test_tokens_are_used_once(box):
    where = box.ask()
    t = Terminal(where, {"type": "start", "command": "true"})
    assert t.finish() == (0, 1000)
    assert refusal(f"{where['url']}?token={where['token']}") == 401
    assert refusal(where["url"]) == 401
    assert refusal(f"{where['url']}?token=pty_{'0' * 43}") == 401
    assert box.ask()["token"] != where["token"]


def test_token_of_an_ended_session(emulator):
    """Not attached to the session that follows."""
    box = Box(emulator, "pty-ended", persistent=True)
    where = box.ask()
    box.call("POST", f"/v2/sandboxes/sessions/{box.session}/stop")
    assert refusal(f"{where['url']}?token={where['token']}") == 410
    refused = box.call("POST", f"/v2/sandboxes/sessions/{box.session}/interactive", {}, status=410)
    assert refused["error"]["code"] == "sandbox_stopped"
    box.call("POST", "/v2/sandboxes/sessions/sbx_none/interactive", {}, status=404)
    box.call("DELETE", "/v2/sandboxes/pty-ended")


def test_who_is_no_websocket(box):
    where = box.ask()
    url = where["url"].replace("ws", "http", 1)
    http = requests.Session()
    http.trust_env = False
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert http.get(f"{url}?token={where['token']}").status_code == 426
    assert http.get(url, headers={**upgrade, "Sec-WebSocket-Version": "8"}).status_code == 426
    assert http.get(url, headers={**upgrade, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}).status_code == 400
    Terminal(where).socket.close()  # none of that used the token up


@pytest.mark.parametrize("first", [{"type": "resize", "cols": 1, "rows": 1}, {"type": "start"}, b"bytes",
                                   {"type": "start", "command": "sh", "args": "x"},
                                   {"type": "start", "command": "sh", "env": ["novalue"]},
                                   {"type": "start", "command": "sh", "cols": -1, "rows": 2}])
def test_start_comes_first_and_makes_sense(box, first):
    t = Terminal(box.ask())
    t.type(first) if isinstance(first, bytes) else t.say(**first)
    assert t.finish() == (None, 1008)


def test_start_comes_once(box):
    t = box.sh("echo ready; exec sleep 1000").until(b"ready\r\n")
    t.say(type="start", command="true")
    assert t.finish() == (None, 1008)
    until(lambda: not box.run("pgrep -x sleep").strip(), "the program ends with its client")


def test_broken_frames(box):
    """RFC 6455: an unmasked frame is answered with 1002, and hangs up."""
    t = box.sh("echo ready; exec sleep 1000").until(b"ready\r\n")
    t.socket.sock.sendall(b"\x82\x01x")
    assert t.finish() == (None, 1002)
    until(lambda: not box.run("pgrep -x sleep").strip(), "the program ends with its client")


def test_stopping_the_session_ends_the_terminal(emulator):
    box = Box(emulator, "pty-stop")
    t = box.sh("echo ready; exec sleep 1000").until(b"ready\r\n")
    idle = Terminal(box.ask())
    box.call("POST", f"/v2/sandboxes/sessions/{box.session}/stop")
    assert t.finish() == (137, 1001)
    assert idle.finish() == (None, 1001)
    box.call("DELETE", "/v2/sandboxes/pty-stop")


def test_a_client_that_does_not_read_cannot_hold_the_stop(emulator):
    box = Box(emulator, "pty-stall")
    t = box.sh("exec yes")
    until(lambda: box.run("pgrep -x yes").strip(), "it runs")
    box.call("POST", f"/v2/sandboxes/sessions/{box.session}/stop")
    box.call("DELETE", "/v2/sandboxes/pty-stall")
    t.socket.sock.close()


def test_extending_never_fails_at_a_terminal(emulator):
    """The CLI does not survive a refusal: the extension ends silently at the maximum."""
    box = Box(emulator, "pty-extend")
    path, day = f"/v2/sandboxes/sessions/{box.session}/extend-timeout", 86400000
    assert box.call("POST", path, {"duration": 300000})["session"]["timeout"] == 600000
    box.call("POST", path, {"duration": 10 * day}, status=400)
    t = box.sh("echo ready; exec sleep 1000").until(b"ready\r\n")
    assert box.call("POST", path, {"duration": 10 * day})["session"]["timeout"] == day
    assert box.call("POST", path, {"duration": 10 * day})["session"]["timeout"] == day
    t.socket.close()
    until(lambda: not box.run("pgrep -x sleep").strip(), "the client has left")
    box.call("POST", path, {"duration": 10 * day}, status=400)
    box.call("DELETE", "/v2/sandboxes/pty-extend")


def test_faults_cut_a_terminal(emulator, box):
    emulator.fault({"cut_after_bytes": 100000}, path_regex="^/ws/interactive$", times=1)
    t = box.sh("exec yes")
    with pytest.raises((websocket.WebSocketConnectionClosedException, ConnectionError)):
        t.finish()
    assert 80000 < len(t.out) <= 100000
    until(lambda: not box.run("pgrep -x yes").strip(), "the program ends with its client")


def test_health_needs_no_token(emulator):
    http = requests.Session()
    http.trust_env = False
    assert http.get(emulator.url + "/health").status_code == 200


def test_leaving_with_terminals_open(tmp_path, base):
    """SIGTERM in the middle of it: every client hears of it and nothing is left (leaks end a sanitized emulator)."""
    emulator = Emulator(tmp_path, base)
    box = Box(emulator, "pty-leave")
    t = box.sh("echo ready; exec sleep 1000").until(b"ready\r\n")
    idle = Terminal(box.ask())
    stalled = box.sh("exec yes")
    emulator.child.terminate()
    assert t.finish() == (137, 1001)
    assert idle.finish() == (None, 1001)
    assert emulator.end(None) == 0
    stalled.socket.sock.close()


def test_many_come_and_go(emulator, box):
    """No descriptor is left of any."""
    def descriptors():
        return len(os.listdir(f"/proc/{emulator.child.pid}/fd"))

    box.sh("true").finish()
    before = until(lambda: descriptors(), "descriptors")
    for _ in range(3):
        open_ones = [box.sh("exec cat") for _ in range(8)]
        for t in open_ones:
            t.socket.close()
    until(lambda: descriptors() <= before, "all are closed")
    assert box.run("ls /dev/pts") == "ptmx\n"


def test_early_frames_are_not_lost(emulator, box):
    """A client that sends its start message right behind its handshake."""
    where = box.ask()
    host, port = emulator.url.removeprefix("http://").split(":")
    start = json.dumps({"type": "start", "command": "echo", "args": ["early"]}).encode()
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as s:
        s.sendall(f"GET /ws/interactive?token={where['token']} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                  "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
                  + b"\x81" + bytes([0x80 | len(start)]) + b"\0\0\0\0" + start)
        got = b""
        while b"\x88" not in got:
            more = s.recv(65536)
            assert more, got
            got += more
    head, frames = got.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 101 ") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert frames == b'\x82\x07early\r\n\x81\x18{"type":"exit","code":0}\x88\x02\x03\xe8'


def test_over_tls(tmp_path, base):
    """An address that was asked for over TLS is wss, and what a person types passes it both ways.  (Bulk and the last
    frame are promised behind the edge's TLS only: docs/emulator.md.)"""
    authority = Authority(tmp_path, "pty")
    cert, key = authority.server()
    emulator = Emulator(tmp_path / "emulator", base, "--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
    box = Box(emulator, "pty-tls")
    where = emulator.http.post(f"{emulator.ready['tls_url']}/v2/sandboxes/sessions/{box.session}/interactive", json={},
                               verify=str(authority.ca), timeout=PATIENCE).json()
    assert where["url"] == emulator.ready["tls_url"].replace("https", "wss") + "/ws/interactive"
    start = {"type": "start", "command": "sh", "args": ["-c", "stty raw -echo; echo ready; head -c 64; exec sleep 1000"]}
    t = Terminal(where, start, sslopt={"ca_certs": str(authority.ca)}).until(b"ready\n")
    data = os.urandom(64)
    for i in range(0, len(data), 8):
        t.type(data[i:i + 8])
    while len(t.out) < len(b"ready\n") + len(data):
        assert t.step()
    assert t.out == b"ready\n" + data
    t.socket.sock.close()
    until(lambda: not box.run("pgrep -x sleep").strip(), "the program ends with its client")
    again = {**where, "token": emulator.http.post(f"{emulator.url}/v2/sandboxes/sessions/{box.session}/interactive",
                                                  json={}, timeout=PATIENCE).json()["token"]}
    t = Terminal(again, {"type": "start", "command": "sleep", "args": ["1000"]}, sslopt={"ca_certs": str(authority.ca)})
    until(lambda: box.run("pgrep -x sleep").strip(), "it runs")
    t.socket.sock.close()
    until(lambda: not box.run("pgrep -x sleep").strip(), "the program ends with its client")
    assert emulator.end() == 0


def test_without_isolation(tmp_path):
    """--isolation=none: the same terminal, around a process of this host."""
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run([binary("sandgate-emulator"), "import-base", "--isolation=none", "--state", tmp_path / "base",
                           empty], env=clean_env(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    emulator = Emulator(tmp_path / "emulator", tmp_path / "base", "--isolation=none")
    box = Box(emulator, "pty-plain")
    t = box.sh("stty size; test -t 0 && echo terminal; exec sleep 1000", cols=70, rows=20).until(b"terminal\r\n")
    assert t.out == b"20 70\r\nterminal\r\n"
    t.type(b"\x03")
    assert t.finish() == (130, 1000)
    assert emulator.end() == 0
