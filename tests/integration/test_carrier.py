"""Carriers of input against the real emulator and helper, without a gateway in between: every byte arrives once, in order
and in few calls, whatever is cut or lost; by either transport.  C6 P63 P64"""
import hashlib
import os
import random
import re
import subprocess

import pytest

from edges import Authority, Proxy, Tls
from emulator_api import Api
from harness import BUILD, PATIENCE, Emulator, clean_env

MIB = 1024 * 1024
DRIVE = BUILD / "tests" / "unit" / "guestlink" / "carrier_drive"


def bring(emu, box, data, mode, *program, url=None, **env):
    """What the program wrote, and what the driver counted."""
    env = clean_env(SG_TOKEN=emu.emulator.token, **env)
    done = subprocess.run([DRIVE, url or emu.emulator.url, box.id, "p" + os.urandom(4).hex(), mode, *program], input=data,
                          capture_output=True, env=env, timeout=2 * PATIENCE)
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, said
    numbers = {k: int(v) for k, v in re.findall(r"(\w+) (\d+)", said)}
    return done.stdout, numbers


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def check(emu, box, mode, size=10 * MIB, seed=1):
    data = noise(size, seed)
    with emu.emulator.calls() as calls:
        out, numbers = bring(emu, box, data, mode, "sha256sum")
    assert out.decode().split()[0] == hashlib.sha256(data).hexdigest()
    return numbers, calls


def test_upload_by_stdin(emu):
    numbers, calls = check(emu, emu.create(), "stdin")
    assert numbers["carriers"] == 1 and numbers["by_socket"] == 0 and numbers["accepted"] == 10 * MIB
    writes = [e for e in calls.entries if e["path"].endswith("/stdin")]
    assert len(writes) <= 40, len(writes)


def test_upload_by_socket(emu):
    numbers, calls = check(emu, emu.create(), "interactive")
    assert numbers["carriers"] == 1 and numbers["by_socket"] == 1
    assert not [e for e in calls.entries if e["path"].endswith("/stdin")]


# Reads what fits its spool at once, then an eighth of a mebibyte each tenth of a second.
SLOW_READER = ("sh", "-c", "(i=0; while [ $i -lt 24 ]; do dd bs=131072 count=1 iflag=fullblock status=none; sleep 0.1; "
               "i=$((i+1)); done; cat) | sha256sum")


@pytest.mark.parametrize("mode", ["stdin", "interactive"])
def test_cut_every_300_ms(emu, mode):
    box = emu.create()
    bring(emu, box, b"x", "stdin", "cat")  # the helper is there, and every later command is a carrier or a reader
    where = {"stdin": ("POST", "/cmd$"), "interactive": ("GET", "/ws/interactive$")}[mode]
    emu.emulator.fault({"cut_after_ms": 300}, method=where[0], path_regex=where[1], times=8)
    data = noise(4 * MIB, 2)
    out, numbers = bring(emu, box, data, mode, *SLOW_READER)
    assert out.decode().split()[0] == hashlib.sha256(data).hexdigest()
    assert numbers["carriers"] > 4 and numbers["accepted"] == 4 * MIB
    assert numbers["by_socket"] == (numbers["carriers"] if mode == "interactive" else 0)


def test_answers_lost(emu):
    box = emu.create()
    emu.emulator.fault({"lose_answer": True}, method="POST", path_regex="/stdin$", nth=1)
    for n in (4, 5, 9):
        emu.emulator.fault({"lose_answer": True}, method="POST", path_regex="/stdin$", nth=n)
    numbers, _ = check(emu, box, "stdin", size=6 * MIB, seed=3)
    assert numbers["carriers"] == 1


def test_sandbox_without_offsets(emu):
    box = emu.create()
    emu.emulator.fault({"no_stdin_offsets": True}, path_regex="/stdin$")
    numbers, _ = check(emu, box, "stdin", size=3 * MIB, seed=4)
    assert numbers["carriers"] == 1


def test_sandbox_without_offsets_and_answers_lost(emu):
    """Whether a write arrived cannot be asked: the carrier ends, and the next one goes on where the program is."""
    box = emu.create()
    emu.emulator.fault({"no_stdin_offsets": True, "lose_answer": True}, path_regex="/stdin$", nth=3)
    emu.emulator.fault({"no_stdin_offsets": True}, path_regex="/stdin$")
    numbers, _ = check(emu, box, "stdin", size=3 * MIB, seed=5)
    assert numbers["carriers"] > 1


def test_refused_for_a_while(emu):
    box = emu.create()
    emu.emulator.fault({"status": 429, "headers": {"Retry-After": "1"}}, path_regex="/stdin$", nth=2, times=2)
    emu.emulator.fault({"status": 503}, path_regex="/stdin$", nth=6, times=2)
    check(emu, box, "stdin", size=2 * MIB, seed=6)


def test_terminals_that_cannot_be_had(emu):
    """The other transport is taken without a word."""
    box = emu.create()
    bring(emu, box, b"x", "stdin", "cat")
    for action in ({"status": 404}, {"html": 502}, {"close_before": True}):
        emu.emulator.clear_faults()
        emu.emulator.fault(action, path_regex="/interactive$")
        numbers, _ = check(emu, box, "interactive", size=MIB // 4, seed=7)
        assert numbers["by_socket"] == 0 and numbers["carriers"] == 1


def test_typing(emu):
    """Each key is echoed before the next is typed: over the socket it takes no upstream call."""
    box = emu.create()
    bring(emu, box, b"x", "stdin", "cat")
    with emu.emulator.calls() as calls:
        out, numbers = bring(emu, box, b"hello, world\n" * 8, "type", "cat")
    assert out == b"hello, world\n" * 8
    assert numbers["by_socket"] == 1
    assert len(calls) < 10, calls.seen()


@pytest.mark.parametrize("mode", ["stdin", "interactive"])
def test_program_of_roots(emu, mode):
    box = emu.create()
    bring(emu, box, b"x", "stdin", "cat", SG_ROOT="1")
    out, numbers = bring(emu, box, b"hello\n", mode, "sh", "-c", "id -u; cat", SG_ROOT="1")
    assert out == b"0\nhello\n"
    assert numbers["carriers"] == 1 and numbers["by_socket"] == (mode == "interactive")


@pytest.fixture
def secure(tmp_path, stack):
    """An emulator behind TLS, of an authority of its own: its API, its URL, its authority's certificate."""
    emulator = Emulator(tmp_path / "emulator", stack.base, "--edge-tls", "127.0.0.1:0", "--edge-api-hosts", "localhost")
    port = emulator.ready["edge_tls"].rsplit(":", 1)[1]
    yield Api(emulator, "prj_secure"), f"https://localhost:{port}", str(emulator.ready["edge_ca"])
    assert emulator.end() == 0


def test_tls_and_proxy(secure):
    emu, url, ca = secure
    box, data = emu.create(), noise(100000, 9)
    proxy = Proxy()
    try:
        for env in {}, {"SG_PROXY": proxy.url}:
            out, numbers = bring(emu, box, data, "interactive", "cat", url=url, SG_CA=ca, **env)
            assert out == data and numbers["by_socket"] == numbers["carriers"] == 1
        assert {a for a in proxy.asked} == {("CONNECT", url.removeprefix("https://"))}
    finally:
        proxy.close()


def test_terminal_of_somebody_else(secure, tmp_path):
    """A certificate that the upstream's authority did not sign, or for another name, or no TLS at all: no token goes there."""
    emu, url, ca = secure
    box = emu.create()
    bring(emu, box, b"x", "stdin", "cat", url=url, SG_CA=ca)
    other = Tls(Authority(tmp_path, "other").server(), emu.emulator.url)
    edge_port = url.rsplit(":", 1)[1]
    try:
        for there in (f"wss://localhost:{other.port}/ws/interactive", f"wss://127.0.0.1:{edge_port}/ws/interactive",
                      emu.emulator.url.replace("http", "ws") + "/ws/interactive"):
            emu.emulator.clear_faults()
            emu.emulator.fault({"status": 200, "body": '{"url":"%s","token":"t0k"}' % there}, path_regex="/interactive$")
            with emu.emulator.calls() as calls:
                out, numbers = bring(emu, box, b"hello", "interactive", "cat", url=url, SG_CA=ca)
            assert out == b"hello" and numbers["by_socket"] == 0 and numbers["carriers"] == 1
            assert not [e for e in calls.entries if e["path"].endswith("/ws/interactive")]
        assert other.connections == 1
    finally:
        other.close()
