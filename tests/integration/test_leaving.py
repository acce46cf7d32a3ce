"""Clients that leave and a gateway that stops, in the middle of everything: nothing leaks, nothing is used after its end
(the sanitizers' verdict is the exit code), and what was sent upstream goes on."""
import signal
import socket
import threading

import pytest

from client import Client
from harness import PATIENCE, until

MIB = 1 << 20


def requests_that_wait(box, pid):
    """(name, method, path, JSON body): each waits for something that does not come soon."""
    base = f"/v1/sandboxes/{box}"
    return [
        ("run", "POST", base + "/run", '{"argv":["sleep","600"]}'),
        ("start", "POST", base + "/processes", '{"argv":["sleep","600"]}'),
        ("status", "GET", f"{base}/processes/{pid}?wait_ms=25000", None),
        ("output", "GET", f"{base}/processes/{pid}/output?wait_ms=25000", None),
        ("long output", "GET", f"{base}/processes/big/output", None),
        ("file", "GET", base + "/files/content?path=big", None),
        ("upload", "PUT", base + "/files/content?path=up", "x" * 1000),
        ("get", "GET", base, None),
        ("list", "GET", "/v1/sandboxes?limit=100", None),
        ("create", "POST", "/v1/sandboxes", '{"name":"%s-more"}' % box),
        ("resume", "POST", base + "/resume", "{}"),
        ("run with input", "POST", base + "/run", '{"argv":["sleep","600"],"stdin":"%s"}' % ("x" * 100_000)),
        ("stdin", "POST", f"{base}/processes/{pid}/stdin", "x" * 1000),
        ("stdin appended", "POST", f"{base}/processes/open/stdin?close=1", "x" * 1000),
        ("long stdin", "POST", f"{base}/processes/deaf/stdin", "x" * 3 * MIB),
        ("half a stdin", "POST", f"{base}/processes/deaf/stdin?takeover=1", "x" * 300_000),
        ("cancel", "POST", f"{base}/processes/{pid}/cancel", '{"signal":"WINCH","grace_ms":600000}'),
        ("ack", "POST", f"{base}/processes/{pid}/ack", '{"stdout":1}'),
        ("scope", "PATCH", f"{base}/processes/{pid}", '{"lease":null,"on_disconnect":"keep"}'),
    ]


def send(gateway, method, path, body):
    host, port = gateway.url.removeprefix("http://").split(":")
    peer = socket.create_connection((host, int(port)), timeout=PATIENCE)
    length = 8 * MIB if method == "PUT" or "takeover" in path else len(body or "")
    peer.sendall((f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body or ''}").encode())
    return peer


def furnish(api, box):
    api.put(box, "big", bytes(8 * MIB))
    assert api.start(box, "cat", "big", id="big") == "big"
    api.wait(box, "big")
    api.start(box, "cat", id="open", stdin="open")
    api.start(box, "sleep", "600", id="deaf", stdin="open")
    return api.start(box, "sleep", "600")


def test_clients_leave_in_the_middle(own_gateway, emulator):
    gateway = own_gateway()
    api = Client(gateway)
    box = api.sandbox()
    try:
        pid = furnish(api, box)
        for delay in (0, 0.05, 0.3):
            emulator.fault({"delay_ms": 150}, path_regex="/sandboxes")
            peers = [send(gateway, method, path, body) for _, method, path, body in requests_that_wait(box, pid)]
            threading.Event().wait(delay)  # how far each has come is the point of the test, not a condition
            for peer in peers:
                peer.close()
            emulator.clear_faults()
        assert api.run(box, "echo", "well")["out"] == b"well\n"
        assert api.process(box, pid)["state"] == "running"
        until(lambda: len(gateway.events("request")) >= 3 * len(peers), "every request has ended")
    finally:
        emulator.clear_faults()
        api.made.append(box + "-more")
        api.clean_up()


@pytest.mark.parametrize("patience_ms", [0, 300, 5000])
def test_gateway_stops_in_the_middle(own_gateway, emulator, patience_ms):
    gateway = own_gateway(SERVER_DRAIN_TIMEOUT_MS=patience_ms)
    api = Client(gateway)
    box = api.sandbox()
    try:
        pid = furnish(api, box)
        emulator.fault({"delay_ms": 400}, path_regex="/sandboxes")
        with api.attach(box, pid) as a:
            peers = [send(gateway, method, path, body) for _, method, path, body in requests_that_wait(box, pid)]
            threading.Event().wait(0.2)
            gateway.child.send_signal(signal.SIGTERM)
            assert gateway.end(None) == 0
            for peer in peers:
                peer.close()
            a.socket.close()
    finally:
        emulator.clear_faults()
        for name in (box, box + "-more"):
            emulator.http.delete(f"{emulator.url}/v2/sandboxes/{name}", timeout=PATIENCE,
                                 params={"teamId": "team_local", "projectId": "prj_local"})


def test_a_process_outlives_its_watchers_P26(api, box):
    pid = api.start(box, shell="echo a; sleep 1; echo b")
    for _ in range(3):
        api.attach(box, pid).socket.close()
    with api.attach(box, pid) as a:
        a.until_close()
    assert bytes(a.data["stdout"]) == b"a\nb\n" and a.message("exit")["exit_code"] == 0
