"""The benchmarks of files; see bench/run."""
import hashlib
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
import zlib

from stack import Stack, percentile

MIB = 1 << 20
CWD = "/vercel/sandbox"
ROOM = 5      # times the size that is needed: ours plain and packed, and two of theirs, with something to spare
SPARE = 2048  # MiB of memory that are left to others


def content(path, size):
    """A file whose every MiB is another one."""
    block = bytearray(os.urandom(MIB))
    digest = hashlib.sha256()
    with open(path, "wb") as f:
        for i in range(size // MIB):
            block[:8] = i.to_bytes(8, "big")
            f.write(block)
            digest.update(block)
    return digest.hexdigest()


def packed(path, out, name, size):
    """What fs/write takes: a tar in a gzip that stores."""
    gz = zlib.compressobj(0, zlib.DEFLATED, 31)
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, int(time.time())
    with open(path, "rb") as f, open(out, "wb") as o:
        o.write(gz.compress(info.tobuf(tarfile.PAX_FORMAT)))
        while block := f.read(MIB):
            o.write(gz.compress(block))
        o.write(gz.compress(bytes(-size % 512 + 1024)) + gz.flush())


def curl(url, token, *options):
    """How many seconds it took."""
    start = time.perf_counter()
    done = subprocess.run(["curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {token}", "-H", "Expect:", *options, url],
                          capture_output=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{url}: {done.stderr.decode()} {done.stdout[:300]}")
    return time.perf_counter() - start


class Ways:
    """The same bytes both ways: straight to the emulator, and through the gateway."""

    def __init__(self, s):
        self.s = s
        self.direct = f"http://{s.emulator}/v2/sandboxes/sessions/{s.session}/fs"
        self.gateway = f"http://{s.gateway}/v1/sandboxes/bench/files/content?path="

    def remove(self, name):
        self.s.api("POST", "/run", {"argv": ["rm", "-f", name]})

    def up_direct(self, archive):
        self.remove("direct.bin")
        return curl(self.direct + "/write", self.s.emulator_token, "-H", "Content-Type: application/gzip", "-H", "x-cwd: " + CWD,
                    "-X", "POST", "-T", archive)

    def up_gateway(self, path):
        self.remove("gateway.bin")
        return curl(self.gateway + "gateway.bin", self.s.token, "-H", "Content-Type: application/octet-stream", "-T", path)

    def down_direct(self):
        return curl(self.direct + "/read", self.s.emulator_token, "-H", "Content-Type: application/json", "-o", os.devnull, "-d",
                    json.dumps({"path": CWD + "/direct.bin"}))

    def down_gateway(self):
        return curl(self.gateway + "gateway.bin", self.s.token, "-o", os.devnull)


def compare(what, s, rounds, size, direct, gateway):
    """Interleaved rounds; and what the gateway grew by."""
    ratios, rates, grown = [], [], 0
    for _ in range(rounds):
        d = direct()
        s.clear_peak()
        before = s.memory()[0]
        g = gateway()
        grown = max(grown, s.memory()[1] - before)
        ratios.append(d / g)
        rates.append((size / MIB / d, size / MIB / g))
    middle = rates[len(rates) // 2]
    print(f"{size // MIB} MiB {what}: curl to the emulator {middle[0]:.0f} MiB/s, through the gateway {middle[1]:.0f} MiB/s, "
          f"median ratio {statistics.median(ratios):.2f} (reach 0.70); the gateway grew by {grown / MIB:.1f} MiB (reach 32 MiB)",
          flush=True)


def available():
    return int(re.search(r"MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) // 1024


def place(mib):
    """Where all bytes of it have room, and how many that are: in memory, since the gateway's file is on the disk when it is
    answered and the emulator's own is not."""
    memory, disk = "/dev/shm", tempfile.gettempdir()
    if os.path.isdir(memory) and min(shutil.disk_usage(memory).free // MIB, available() - SPARE) >= ROOM * mib:
        return memory, mib
    return disk, min(mib, shutil.disk_usage(disk).free // MIB // ROOM // 64 * 64)


def large(s, size, rounds):
    ways, plain, archive, small = Ways(s), s.work / "content", s.work / "content.tgz", s.work / "small"
    digest = content(plain, size)
    packed(plain, archive, "direct.bin", size)
    content(small, 8 * MIB)
    ways.up_gateway(small)  # its buffers are there before they are counted
    ways.down_gateway()
    compare("up", s, rounds, size, lambda: ways.up_direct(archive), lambda: ways.up_gateway(plain))
    archive.unlink()
    for name in ("gateway.bin", "direct.bin"):
        got = s.api("POST", "/run", {"argv": ["sha256sum", name], "timeout_ms": 120000, "wait_ms": 25000})
        if not got["stdout"].startswith(digest):
            raise RuntimeError(f"{name} has not the bytes that were sent: {got}")
    compare("down", s, rounds, size, ways.down_direct, ways.down_gateway)


# ---- small files ----

def small_archive(name, data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as t:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o644
        t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def bench_small(s, rounds=400):
    data = os.urandom(4096)
    archive = small_archive("small-direct", data)
    conns = {"direct": http.client.HTTPConnection(s.emulator), "gateway": http.client.HTTPConnection(s.gateway)}
    base = f"/v2/sandboxes/sessions/{s.session}/fs"

    def send(way, token, method, path, body, content_type, **headers):
        conns[way].request(method, path, body, {"Authorization": "Bearer " + token, "Content-Type": content_type, **headers})
        answer = conns[way].getresponse()
        got = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{way} {method} {path}: {answer.status} {got[:300]}")
        return got

    acts = {
        ("direct", "PUT"): lambda: send("direct", s.emulator_token, "POST", base + "/write", archive, "application/gzip", **{"x-cwd": CWD}),
        ("gateway", "PUT"): lambda: send("gateway", s.token, "PUT", "/v1/sandboxes/bench/files/content?path=small", data,
                                         "application/octet-stream"),
        ("direct", "GET"): lambda: send("direct", s.emulator_token, "POST", base + "/read",
                                        json.dumps({"path": CWD + "/small-direct"}), "application/json"),
        ("gateway", "GET"): lambda: send("gateway", s.token, "GET", "/v1/sandboxes/bench/files/content?path=small", None, "text/plain"),
    }
    times = {key: [] for key in acts}
    for i in range(rounds + 20):
        for key, act in acts.items():
            start = time.perf_counter()
            got = act()
            if i >= 20:
                times[key].append((time.perf_counter() - start) * 1000)
            if key[1] == "GET" and got != data:
                raise RuntimeError(f"{key[0]}: not what was written")
    both = {way: [a + b for a, b in zip(times[way, "PUT"], times[way, "GET"])] for way in conns}
    for p, reach in ((0.5, " (reach 2 ms)"), (0.99, "")):
        parts = []
        for what, d, g in (("PUT", times["direct", "PUT"], times["gateway", "PUT"]),
                           ("GET", times["direct", "GET"], times["gateway", "GET"]), ("both", both["direct"], both["gateway"])):
            d, g = percentile(d, p), percentile(g, p)
            parts.append(f"{what} {d:.2f} → {g:.2f} ms, added {g - d:+.2f} ms")
        print(f"4 KiB p{p * 100:.0f}, emulator's own → gateway: {'; '.join(parts)}{reach}", flush=True)


# ---- lists ----

def bench_list(s, names=10000, rounds=10):
    """With an emulator of its own, which counts what arrives."""
    counted = Stack(s.work / "counted", "--admin")
    try:
        counted.api("POST", "/run", {"argv": ["sh", "-c", f"mkdir many && cd many && seq -f 'name-%06g' {names} | xargs touch"]})

        def calls():
            return len(counted.call(counted.emulator, counted.emulator_token, "GET", "/_emulator/journal")["entries"])

        before, times = calls(), []
        for _ in range(rounds):
            start = time.perf_counter()
            page = counted.api("GET", f"/files?path=many&limit={names}")
            times.append((time.perf_counter() - start) * 1000)
            if len(page["items"]) != names or page["next_cursor"]:
                raise RuntimeError("not the whole list")
        each = (calls() - before) / rounds
        print(f"list of {names} names: {each:g} upstream calls (reach 1), p50 {percentile(times, 0.5):.0f} ms", flush=True)
    finally:
        counted.stop()


def bench_files(s, mib=2048, rounds=3):
    bench_list(s)
    directory, fits = place(mib)
    if directory != "/dev/shm" or fits != mib:
        print(f"not enough memory: {fits} of {mib} MiB, in {directory}, where the disk decides", flush=True)
    with tempfile.TemporaryDirectory(prefix="sandgate-bench-", dir=directory) as work:
        own = Stack(work)
        try:
            bench_small(own)
            large(own, fits * MIB, rounds)
        finally:
            own.stop()


BENCHES = {"files": bench_files}
