"""The benchmarks of process streams; see bench/run."""
import base64
import http.client
import json
import os
import socket
import statistics
import struct
import subprocess
import time

from stack import LWS_SERVER, WSLOAD, free_port, percentile

MIB = 1 << 20


def attach_path(process, query=""):
    return f"/v1/sandboxes/bench/processes/{process}/attach{query}"


def wsload(s, paths, *options, host_port=None, token=True, **popen):
    port = host_port or int(s.gateway.split(":")[1])
    argv = [str(WSLOAD), "--port", str(port)]
    for path in paths:
        argv += ["--path", path]
    if token:
        argv += ["--token", s.token]
    argv += [str(o) for o in options]
    if popen:
        return subprocess.Popen(argv, text=True, **popen)
    out = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if out.returncode:
        raise RuntimeError(f"wsload: {out.stderr}")
    return json.loads(out.stdout.splitlines()[-1])


def start_process(s, shell, **spec):
    return s.api("POST", "/processes", {"argv": ["sh", "-c", shell], **spec})["process_id"]


def end_process(s, process):
    s.api("DELETE", f"/processes/{process}")


# ---- retained ----

def bench_retained(s, rounds=5):
    size = MIB
    process = start_process(s, f"head -c {size} /dev/zero | tr '\\0' x; sleep 600")
    keeper = wsload(s, [attach_path(process)], "--hold", 300, stdout=subprocess.PIPE)
    keeper.stdout.readline()
    port = free_port()
    plain = s.start([LWS_SERVER, port, size], "lws", stdout=subprocess.PIPE)
    plain.stdout.readline()
    try:
        for connections, reach, repeat in ((1, 1.0, 60), (100, 0.9, 4)):
            ratios, rates, firsts = [], [], []
            for _ in range(rounds):
                load = ("--connections", connections, "--bytes", size, "--rounds", repeat)
                lws = wsload(s, ["/"], *load, host_port=port, token=False)
                ours = wsload(s, [attach_path(process)], *load)
                ratios.append(ours["mib_per_s"] / lws["mib_per_s"])
                rates.append((lws["mib_per_s"], ours["mib_per_s"]))
                firsts.append(ours["first_p99_ms"])
            middle = rates[len(rates) // 2]
            print(f"retained output to {connections} clients: plain libwebsockets {middle[0]:.0f} MiB/s, gateway "
                  f"{middle[1]:.0f} MiB/s, median ratio {statistics.median(ratios):.2f} (reach {reach:.1f})", flush=True)
            if connections == 1:
                print(f"attach to first replayed byte: p99 {statistics.median(firsts):.2f} ms (reach 10 ms)",
                      flush=True)
    finally:
        keeper.kill()
        keeper.wait()
        plain.terminate()
        end_process(s, process)


# ---- live ----

def helper_path(s):
    """Where the gateway has put its helper in this sandbox's session."""
    found = s.api("POST", "/run", {"argv": ["sh", "-c", "ls /var/tmp/.sandgate/guest-*"]})
    return found["stdout"].split()[0]


def curl_follow(s, helper, process, total):
    """Reads the log stream of the same process as the gateway does, into nothing."""
    at = 0
    start = time.perf_counter()
    while at < total:
        body = {"command": helper, "args": ["follow", "--session", s.session, "--id", process, "--stdout", str(at),
                                            "--stderr", "0"], "env": {}, "sudo": False, "wait": True, "logs": True}
        subprocess.run(["curl", "-sfo", os.devnull, "-H", f"Authorization: Bearer {s.emulator_token}", "-H",
                        "Content-Type: application/json", "-d", json.dumps(body),
                        f"http://{s.emulator}/v2/sandboxes/sessions/{s.session}/cmd"], check=True)
        at += 16 * MIB  # what one follow says before it asks to be called again
    return total / MIB / (time.perf_counter() - start)


def bench_live(s, mib=96, rounds=3):
    helper = helper_path(s)
    shell = f"yes 'a line of output that is not very long, but long enough' | head -c {mib * MIB}; sleep 600"
    ratios, rates = [], []
    for _ in range(rounds):
        process = start_process(s, shell)
        curl = curl_follow(s, helper, process, mib * MIB)
        end_process(s, process)
        process = start_process(s, shell)
        ours = wsload(s, [attach_path(process)], "--bytes", mib * MIB)["mib_per_s"]
        end_process(s, process)
        ratios.append(ours / curl)
        rates.append((curl, ours))
    middle = rates[len(rates) // 2]
    print(f"live output of {mib} MiB: curl on the log stream {middle[0]:.0f} MiB/s, gateway to a WebSocket client "
          f"{middle[1]:.0f} MiB/s, median ratio {statistics.median(ratios):.2f} (reach 0.50)", flush=True)


# ---- echo ----

class Socket:
    """A WebSocket client that is just fast enough to time a keystroke."""

    def __init__(self, url, headers=""):
        host, path = url.split("//")[1].split("/", 1)
        address, port = host.split(":")
        self.sock = socket.create_connection((address, int(port)), 20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{headers}\r\n".encode())
        self.buf = b""
        while b"\r\n\r\n" not in self.buf:
            self.buf += self.more()
        head, self.buf = self.buf.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0] + b" ":
            raise RuntimeError(head.decode())

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise RuntimeError("closed by the server")
        return data

    def send(self, opcode, data):
        assert len(data) < 65536
        head = bytes([0x80 | opcode]) + (bytes([0x80 | len(data)]) if len(data) < 126
                                         else bytes([0xFE]) + struct.pack(">H", len(data)))
        self.sock.sendall(head + b"\0\0\0\0" + data)

    def frame(self):
        while True:
            if len(self.buf) >= 2:
                n, at = self.buf[1] & 127, 2
                if n == 126 and len(self.buf) >= 4:
                    n, at = struct.unpack(">H", self.buf[2:4])[0], 4
                elif n == 127 and len(self.buf) >= 10:
                    n, at = struct.unpack(">Q", self.buf[2:10])[0], 10
                if not (n in (126, 127) and at == 2) and len(self.buf) >= at + n:
                    opcode, data = self.buf[0] & 15, self.buf[at:at + n]
                    self.buf = self.buf[at + n:]
                    if opcode == 9:
                        self.send(10, data)
                        continue
                    return opcode, data
            self.buf += self.more()


# Every key comes back once, from the program.
MIRROR = ["sh", "-c", "stty raw -echo; echo ready; exec cat"]


class DirectTerminal:
    def __init__(self, s):
        got = s.call(s.emulator, s.emulator_token, "POST", f"/v2/sandboxes/sessions/{s.session}/interactive", {})
        self.ws = Socket(f"{got['url']}?token={got['token']}")
        self.ws.send(1, json.dumps({"type": "start", "command": MIRROR[0], "args": MIRROR[1:], "env": [], "cols": 80,
                                    "rows": 24}).encode())
        self.until(b"ready")

    def until(self, wanted):
        got = b""
        while wanted not in got:
            opcode, data = self.ws.frame()
            if opcode == 8:
                raise RuntimeError(data)
            got += data if opcode == 2 else b""

    def key(self, byte):
        self.ws.send(2, byte)
        self.until(byte)


class GatewayTerminal:
    def __init__(self, s):
        self.process = s.api("POST", "/processes", {"argv": MIRROR, "pty": {"cols": 80, "rows": 24}})["process_id"]
        self.ws = Socket(f"http://{s.gateway}" + attach_path(self.process, "?mode=write"),
                         f"Authorization: Bearer {s.token}\r\nSec-WebSocket-Protocol: sandgate.v1\r\n")
        self.at = 0
        self.until(b"ready")

    def until(self, wanted):
        got = b""
        while wanted not in got:
            opcode, data = self.ws.frame()
            if opcode == 8:
                raise RuntimeError(data)
            got += data[9:] if opcode == 2 and data[0] == 3 else b""

    def key(self, byte):
        self.ws.send(2, b"\0" + struct.pack(">Q", self.at) + byte)
        self.at += 1
        self.until(byte)


def bench_echo(s, rounds=400):
    times = {"direct": [], "gateway": []}
    ends = {"direct": DirectTerminal(s), "gateway": GatewayTerminal(s)}
    for i in range(rounds + 20):
        for name, end in ends.items():
            start = time.perf_counter()
            end.key(b"abcdefgh"[i % 8:i % 8 + 1])
            if i >= 20:
                times[name].append((time.perf_counter() - start) * 1000)
    end_process(s, ends["gateway"].process)
    d, g = percentile(times["direct"], 0.5), percentile(times["gateway"], 0.5)
    print(f"keystroke echo p50: emulator's terminal {d:.2f} ms, gateway {g:.2f} ms, added {g - d:+.2f} ms (reach 1 ms);"
          f" p99 {percentile(times['direct'], 0.99):.2f} and {percentile(times['gateway'], 0.99):.2f} ms", flush=True)


# ---- memory ----

def bench_slow(s, mib=1024):
    process = start_process(s, f"yes 'a line of output that is not very long, but long enough' | head -c {mib * MIB};"
                            " sleep 600", retention={"bytes": 1 << 30})
    warm = start_process(s, "yes x | head -c 8388608; sleep 600")
    wsload(s, [attach_path(warm)], "--bytes", 8 * MIB)
    end_process(s, warm)
    s.clear_peak()
    before = s.memory()[0]
    rate = wsload(s, [attach_path(process)], "--bytes", mib * MIB, "--rate", 30)["mib_per_s"]
    grown = (s.memory()[1] - before) / MIB
    end_process(s, process)
    print(f"{mib} MiB to a slow reader ({rate:.0f} MiB/s): the gateway grew by {grown:.1f} MiB (reach 5 MiB: a window "
          "of 1 MiB and 4 more)", flush=True)


def bench_idle(s, processes=500, connections=10000, seconds=20):
    conn = http.client.HTTPConnection(s.gateway, timeout=120)
    names = [s.api("POST", "/processes", {"argv": ["sleep", "900"]}, conn)["process_id"] for _ in range(processes)]
    before = s.memory()[0]
    load = wsload(s, [attach_path(n) for n in names], "--connections", connections, "--hold", 60 + seconds,
                  stdout=subprocess.PIPE)
    if load.stdout.readline() != "held\n":
        raise RuntimeError("not all attachments were made")
    time.sleep(45)  # measured, not waited for: the processes have to be quiet for a while
    cpu = s.cpu_seconds()
    time.sleep(seconds)
    cpu = (s.cpu_seconds() - cpu) / seconds
    rss = s.memory()[0]
    load.terminate()
    load.wait()
    for name in names:
        s.api("DELETE", f"/processes/{name}", None, conn)
    print(f"{connections} idle attachments over {processes} processes: {rss / MIB:.0f} MiB resident (reach 128 MiB; "
          f"{before / MIB:.0f} before), {cpu * 100:.1f} % of a core", flush=True)


def bench_restart(s, connections=1000, processes=1000):
    conn = http.client.HTTPConnection(s.gateway, timeout=120)
    names = [s.api("POST", "/processes", {"argv": ["sh", "-c", "echo tick; exec sleep 900"]}, conn)["process_id"]
             for _ in range(processes)]
    load = wsload(s, [attach_path(n) for n in names], "--connections", connections, "--reattach", 60,
                  stdout=subprocess.PIPE)
    if load.stdout.readline() != "held\n":
        raise RuntimeError("not all attachments were made")
    s.restart_gateway()
    back = json.loads(load.stdout.readline())
    load.wait()
    conn = http.client.HTTPConnection(s.gateway, timeout=120)
    for name in names:
        s.api("DELETE", f"/processes/{name}", None, conn)
    print(f"restart with {connections} attached to {processes} processes: {back['back']} back at their offset after {back['seconds']:.1f} s "
          "(reach 5 s)", flush=True)


BENCHES = {"retained": bench_retained, "live": bench_live, "echo": bench_echo, "slow": bench_slow, "idle": bench_idle,
           "restart": bench_restart}
