"""The way to the upstream: TLS, proxies, HTTP/2, and answers that are lost on it.  A1 A2 U3 P60."""
import concurrent.futures
import socket

import pytest

import harness
from client import Client, problem
from edges import Authority, Http2, Proxy, Tls, nginx
from harness import clean_env, until


@pytest.fixture
def through(own_gateway):
    """through(**settings): a client of a gateway of this test's own; its sandboxes are destroyed."""
    clients = []

    def make(**settings):
        clients.append(Client(own_gateway(**settings)))
        return clients[-1]

    yield make
    for c in clients:
        c.clean_up()


@pytest.fixture
def closing():
    """Ends what it is given."""
    things = []
    yield lambda thing: things.append(thing) or thing
    for thing in things:
        thing.close()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "test-authority")


def dead_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def everything_works(api):
    """JSON calls, command streams and file bodies: each has connections of its own."""
    box = api.sandbox()
    assert api.run(box, "echo", "hi")["out"] == b"hi\n"
    data = bytes(range(256)) * 4096
    api.put(box, "f", data)
    assert api.file(box, "f") == data
    assert api.get(box)["name"] == box


# ---- TLS ----


def test_upstream_with_an_authority_of_ones_own_A2(through, emulator, authority, closing):
    tls = closing(Tls(authority.server(), emulator.url))
    everything_works(through(url=tls.url, UPSTREAM_CA_BUNDLE=authority.ca))
    assert tls.connections >= 3


@pytest.mark.parametrize("bundle", ["none", "another"])
def test_untrusted_upstream_is_refused_A2(through, emulator, authority, tmp_path, closing, bundle):
    """Nothing is sent to an upstream that is not trusted, and the error says why."""
    tls = closing(Tls(authority.server(), emulator.url))
    other = Authority(tmp_path, "other-authority")
    settings = {"UPSTREAM_CA_BUNDLE": other.ca} if bundle == "another" else {}
    api = through(url=tls.url, **settings)
    with emulator.calls() as calls:
        p = problem(api.call("POST", "/v1/sandboxes", json={"name": "x"}), 503, "upstream_unreachable")
    assert "certificate" in p["detail"] and p["outcome"] == "not_sent"
    assert calls.seen() == []
    assert tls.connections == 1, "an untrusted certificate is not asked for again"


def test_certificate_of_another_host_is_refused_A2(through, emulator, authority, closing):
    tls = closing(Tls(authority.server("DNS:example.test"), emulator.url))
    p = problem(through(url=tls.url, UPSTREAM_CA_BUNDLE=authority.ca).call("GET", "/v1/sandboxes"), 503, "upstream_unreachable")
    assert "certificate" in p["detail"] or "SSL" in p["detail"], p


@pytest.mark.skipif(not nginx(), reason="nginx is not installed")
def test_http2_is_used_and_shared_fairly_A2(through, emulator, authority, tmp_path, request):
    """Short calls and streams go over HTTP/2, at most 25 streams on one connection; file bodies over HTTP/1.1."""
    edge = Http2(tmp_path / "nginx", authority.server(), emulator.url)
    request.addfinalizer(lambda: edge.end())
    api = through(url=edge.url, UPSTREAM_CA_BUNDLE=authority.ca)
    box = api.sandbox()
    api.put(box, "f", b"x" * 100000)  # and the helper: from here on a stream's connection is open
    assert api.run(box, "true")["exit_code"] == 0
    many = 40
    with concurrent.futures.ThreadPoolExecutor(many) as pool:
        before = len(edge.requests())
        runs = [pool.submit(Client.run, api, box, shell="until [ -e go ]; do sleep 0.1; done") for _ in range(many)]
        until(lambda: len(running(api, box)) == many, f"{many} programs run")
        api.put(box, "go", b"")
        assert [r.result()["exit_code"] for r in runs] == [0] * many
    until(lambda: sum(p.endswith("/cmd") for _, _, _, p in edge.requests()[before:]) >= many + 1, "all streams have ended")
    streams = {}
    for connection, protocol, method, path in edge.requests():
        http2 = "/fs/" not in path
        assert protocol == ("HTTP/2.0" if http2 else "HTTP/1.1"), (protocol, method, path)
    for connection, _, _, path in edge.requests()[before:]:
        if path.endswith("/cmd"):
            streams[connection] = streams.get(connection, 0) + 1
    others = sum(streams.values()) - many  # the commit and the lists, each of which may follow on any connection
    assert max(streams.values()) <= 25 + others, streams
    assert 2 <= len(streams) <= 1 + many - 24, "streams share connections"


def running(api, box):
    listed = api.ok("GET", f"/v1/sandboxes/{box}/processes").json()["items"]
    return [p for p in listed if p["state"] == "running"]


# ---- proxies ----


def test_proxy_is_used_when_configured_A2(through, emulator, closing):
    """Plain HTTP: every request in absolute form."""
    proxy = closing(Proxy())
    everything_works(through(UPSTREAM_PROXY=proxy.url))
    assert proxy.asked and all(t.startswith(emulator.url + "/") for _, t in proxy.asked), proxy.asked


def test_proxy_with_tls_A2(through, emulator, authority, closing):
    """HTTPS: a tunnel, in which the upstream's own certificate is checked."""
    proxy = closing(Proxy())
    tls = closing(Tls(authority.server(), emulator.url))
    everything_works(through(url=tls.url, UPSTREAM_PROXY=proxy.url, UPSTREAM_CA_BUNDLE=authority.ca))
    assert set(proxy.asked) == {("CONNECT", tls.url.removeprefix("https://"))}
    with emulator.calls() as calls:
        p = problem(through(url=tls.url, UPSTREAM_PROXY=proxy.url).call("GET", "/v1/sandboxes"), 503, "upstream_unreachable")
    assert "certificate" in p["detail"] and calls.seen() == []


def test_proxy_that_is_not_there_A2(through):
    api = through(UPSTREAM_PROXY=f"http://127.0.0.1:{dead_port()}", UPSTREAM_RETRIES=0)
    p = problem(api.call("POST", "/v1/sandboxes", json={"name": "x"}), 503, "upstream_unreachable")
    assert p["outcome"] == "not_sent"


def test_proxy_of_the_environment_is_ignored_A1(through, emulator, authority, closing, monkeypatch):
    dead = f"http://127.0.0.1:{dead_port()}"
    names = [n for name in ("http_proxy", "https_proxy", "all_proxy") for n in (name, name.upper())]
    monkeypatch.setattr(harness, "clean_env", lambda **more: clean_env(**dict.fromkeys(names, dead), **more))
    tls = closing(Tls(authority.server(), emulator.url))
    everything_works(through())
    everything_works(through(url=tls.url, UPSTREAM_CA_BUNDLE=authority.ca))


def test_no_proxy_of_the_environment_is_ignored_A1(through, emulator, closing, monkeypatch):
    proxy = closing(Proxy())
    monkeypatch.setattr(harness, "clean_env", lambda **more: clean_env(NO_PROXY="*", no_proxy="127.0.0.1", **more))
    through(UPSTREAM_PROXY=proxy.url).sandbox()
    assert proxy.asked


# ---- answers that are lost: read again from the command's log, the act not repeated ----


CUTS = range(340, 520, 6)  # inside the first line, which names the command, then inside the answer after it


def test_an_exclusive_write_whose_answer_was_cut_U3(api, box, emulator):
    """Repeated, the last step would find its own file and fail."""
    api.run(box, "true")
    from_log = 0
    for i, cut in enumerate(CUTS):
        emulator.fault({"cut_after_bytes": cut}, method="POST", path_regex="/cmd$", times=1)
        with emulator.calls() as calls:
            answer = api.call("PUT", f"/v1/sandboxes/{box}/files/content", params={"path": f"f{i}"}, data=b"%d" % i,
                              headers={"Content-Type": "application/octet-stream", "If-None-Match": "*"})
        emulator.clear_faults()
        if ("GET", "logs") in calls.seen():
            from_log += 1
            assert answer.status_code == 201, answer.text
            assert calls.seen() == [("POST", "write"), ("POST", "cmd"), ("GET", "logs")]
        if answer.status_code == 201:
            assert api.file(box, f"f{i}") == b"%d" % i
        else:  # the stream was cut before the command was named: then nobody can know
            assert answer.json()["outcome"] == "unknown", answer.text
    assert from_log >= 3


def test_a_signal_whose_answer_was_cut_arrives_once_U3(api, box, emulator):
    pid = api.start(box, shell="trap 'echo got >> got' USR1; echo ready; while :; do sleep 0.05; done")
    with api.attach(box, pid) as a:
        a.until_bytes(6)
    from_log, sent = 0, 0
    for cut in CUTS:
        emulator.fault({"cut_after_bytes": cut}, method="POST", path_regex="/cmd$", times=1)
        with emulator.calls() as calls:
            answer = api.call("POST", f"/v1/sandboxes/{box}/processes/{pid}/signal", json={"signal": 10, "target": "program"})
        emulator.clear_faults()
        sent += 1
        if ("GET", "logs") in calls.seen():
            from_log += 1
            assert answer.status_code == 202, answer.text
            assert calls.seen() == [("POST", "cmd"), ("GET", "logs")]
        until(lambda: api.run(box, shell="wc -l < got || echo 0")["out"].strip() == b"%d" % sent, "the signal arrived")
    assert from_log >= 3


def test_a_log_that_is_cut_too_U3(api, box, emulator):
    """Then the end of the command is awaited and its log read once more."""
    api.run(box, "true")
    recalled = 0
    for i, cut in enumerate(CUTS):
        emulator.fault({"cut_after_bytes": cut}, method="POST", path_regex="/cmd$", times=1)
        emulator.fault({"cut_after_bytes": 3}, method="GET", path_regex="/logs$", times=1)
        with emulator.calls() as calls:
            api.put(box, f"f{i}", b"x")
        emulator.clear_faults()
        seen = calls.seen()
        if ("GET", "logs") in seen:
            recalled += 1
            assert seen[:3] == [("POST", "write"), ("POST", "cmd"), ("GET", "logs")] and seen[4] == ("GET", "logs"), seen
            assert seen[3][0] == "GET" and len(seen) == 5, seen
    assert recalled >= 3
