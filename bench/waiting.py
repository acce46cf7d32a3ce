"""Health checks while 500 control calls wait for an upstream that is slow."""
import asyncio
import http.client
import json
import time

from stack import percentile

CALLS, DELAY_MS, REACH_MS = 500, 3000, 20
PATHS = ["/v1/sandboxes?limit=5", "/v1/sandboxes/bench", "/v1/snapshots", "/v1/sandboxes/bench/sessions", "/v1/drives"]


def health(s, seconds):
    """Latencies of one health check after the other, milliseconds."""
    conn, times, until = http.client.HTTPConnection(s.gateway, timeout=30), [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        conn.request("GET", "/healthz")
        answer = conn.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        times.append((time.perf_counter() - start) * 1000)
        time.sleep(0.002)
    return times


async def one(s, path, statuses):
    host, port = s.gateway.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {s.gateway}\r\nAuthorization: Bearer {s.token}\r\nConnection: close\r\n\r\n".encode())
    head = await reader.read(64)
    statuses.append(int(head.split()[1]) if head else 0)
    writer.close()


async def calls_and_health(s, statuses):
    calls = [asyncio.create_task(one(s, PATHS[i % len(PATHS)], statuses)) for i in range(CALLS)]
    await asyncio.sleep(0.5)  # all have arrived
    times = await asyncio.to_thread(health, s, DELAY_MS / 1000 - 0.8)
    waiting = CALLS - len(statuses)
    await asyncio.gather(*calls)
    return times, waiting


def bench_waiting(s):
    def rule(method, body=None):
        conn = http.client.HTTPConnection(s.emulator, timeout=30)
        conn.request(method, "/_emulator/faults", json.dumps(body) if body else None,
                     {"Authorization": "Bearer " + s.emulator_token, "Content-Type": "application/json"})
        answer = conn.getresponse()
        assert answer.status < 300, answer.read()

    idle = health(s, 2)
    rule("POST", {"match": {"path_regex": "^/v[0-9]/sandboxes"}, "action": {"delay_ms": DELAY_MS}})
    statuses = []
    try:
        times, waiting = asyncio.run(calls_and_health(s, statuses))
    finally:
        rule("DELETE")
    answers = {n: statuses.count(n) for n in sorted(set(statuses))}
    for p in (0.5, 0.99):
        print(f"health p{p * 100:.0f}: idle {percentile(idle, p):.2f} ms, with {waiting} calls waiting {percentile(times, p):.2f} ms"
              f" (reach {REACH_MS} ms), ratio {percentile(times, p) / percentile(idle, p):.1f}", flush=True)
    print(f"the calls were answered {answers}", flush=True)
