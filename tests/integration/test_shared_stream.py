"""One upstream stream per process for all its clients, and one for all quiet processes: P08 P12 P18 U2 U6."""
import os
import secrets
import threading
import time

from client import Client
from harness import PATIENCE, sha256, until

MIB = 1 << 20


def upstream_connections(gateway, emulator):
    """Connections that the gateway holds to its upstream: one for each stream, and what is kept for the next calls."""
    port = int(emulator.url.split(":")[2].split("/")[0])
    inodes, fds = set(), f"/proc/{gateway.child.pid}/fd"
    for fd in os.listdir(fds):
        try:
            inodes.add(os.readlink(f"{fds}/{fd}")[len("socket:["):-1])
        except OSError:  # closed meanwhile
            pass
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(1 for r in rows if r[9] in inodes and int(r[2].split(":")[1], 16) == port and r[3] == "01")


def guest_calls(calls):
    return [c for c in calls.seen() if c == ("POST", "cmd")]


def test_fifty_clients_cost_one_upstream_stream(api, box, emulator):
    pid = api.start(box, shell="i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 4")
    with emulator.calls() as calls:
        clients = [api.attach(box, pid, protocol="sandgate.v1" if i % 2 else "sandgate.v1.json") for i in range(50)]
        for a in clients:
            a.until_close()
    assert len(guest_calls(calls)) == 1, calls.seen()
    for a in clients:
        assert bytes(a.data["stdout"]) == b"".join(b"%d\n" % i for i in range(200))
        assert a.message("exit")["exit_code"] == 4
        a.socket.close()
    with emulator.calls() as calls:  # and what was said lately is still at hand
        assert api.output(box, pid, limit=100).content == bytes(clients[0].data["stdout"])[:100]
        with api.attach(box, pid) as late:
            late.until_close()
    assert late.data == clients[0].data and not guest_calls(calls), calls.seen()


def test_attaching_at_any_moment_misses_and_repeats_nothing_P08(api, box):
    """A fast writer, and clients that come while it writes, at the beginning or where another one was."""
    data = secrets.token_bytes(12 * MIB)
    api.put(box, "f", data)
    pid = api.start(box, shell="for i in 0 1 2 3 4 5 6 7 8 9 10 11; do dd if=f bs=1M skip=$i count=1 2>/dev/null; sleep 0.1; done",
                    retention={"bytes": 64 * MIB})
    done, failures = [], []

    def come(number):
        try:
            at, out = 0, bytearray()
            while True:
                with api.attach(box, pid, stdout=at) as a:
                    if number % 3 == 0 and at < len(data):
                        a.until_bytes(min(1 + secrets.randbelow(2 * MIB), len(data) - at))
                    else:
                        a.until_close()
                out += a.data["stdout"]
                at = len(out)
                if a.closed == 1000:
                    break
            assert sha256(out) == sha256(data), f"client {number}"
            done.append(number)
        except Exception as e:  # noqa: BLE001 told below
            failures.append(f"client {number}: {e!r}")

    threads = []
    for number in range(24):
        threads.append(threading.Thread(target=come, args=(number,)))
        threads[-1].start()
        time.sleep(0.02 * secrets.randbelow(5))
    for t in threads:
        t.join(PATIENCE)
    assert not failures and len(done) == 24, failures


def test_a_stuck_client_delays_nobody_P12(api, box):
    pid = api.start(box, shell="head -c 8388608 /dev/zero; while [ ! -e go ]; do sleep 0.05; done; head -c 1048576 /dev/zero")
    with api.attach(box, pid), api.attach(box, pid) as busy:  # the first never reads
        busy.until_bytes(8 * MIB)
        begin = time.monotonic()
        api.put(box, "go", b"")
        busy.until_close()
        took = time.monotonic() - begin
    assert len(busy.data["stdout"]) == 9 * MIB
    assert took < 5, f"1 MiB took {took:.1f} s beside a client that reads nothing"


def test_quiet_processes_share_one_stream(api, own_gateway, emulator):
    """Also an attached client of a quiet process hears its next byte and its end."""
    gateway = own_gateway(RELAY_QUIET_MS=700)
    mine = Client(gateway)
    box = api.sandbox()
    pids = [api.start(box, shell=f"echo up; while [ ! -e go{i} ]; do sleep 0.1; done; echo {i} awake; exit {i}") for i in range(12)]
    clients = [mine.attach(box, pid) for pid in pids]
    for a in clients:
        a.until_bytes(3)
    assert upstream_connections(gateway, emulator) >= 12
    until(lambda: upstream_connections(gateway, emulator) <= 5, "the quiet processes share a stream")
    with emulator.calls() as calls:
        time.sleep(2)  # not a wait for something: nothing is to happen
    assert not calls.seen(), "a quiet process costs no calls"
    begin = time.monotonic()
    api.put(box, "go7", b"")
    clients[7].until_close()
    assert bytes(clients[7].data["stdout"]) == b"up\n7 awake\n" and clients[7].message("exit")["exit_code"] == 7
    assert time.monotonic() - begin < 10
    api.run(box, shell="for i in 0 1 2 3 4 5 6 8 9 10 11; do : > go$i; done")
    for i, a in enumerate(clients):
        if a.closed is None:
            a.until_close()
        assert bytes(a.data["stdout"]) == b"up\n%d awake\n" % i and a.message("exit")["exit_code"] == i
        a.socket.close()


def test_a_quiet_process_knows_that_somebody_is_attached(api, own_gateway):
    """While it is watched with others, too; and what was to end with its last client ends once that has left."""
    gateway = own_gateway(RELAY_QUIET_MS=300)
    mine = Client(gateway)
    box = api.sandbox()
    pid = api.start(box, "sleep", "600", on_disconnect={"kill_after_ms": 1500})
    with mine.attach(box, pid) as a:
        assert a.next() == "hello"
        time.sleep(5)  # more than three times what it would live without
        assert api.process(box, pid)["state"] == "running"
    until(lambda: api.process(box, pid)["state"] == "finished", "it ends without its client")
    assert api.process(box, pid)["ended_by"] == "scope"
