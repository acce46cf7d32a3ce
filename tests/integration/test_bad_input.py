"""Each wrong input gives one clear message or problem document, and nothing worse: C10 P62 P65 B2."""
import secrets
import signal
import socket
import subprocess

import pytest
import requests

from client import Client, problem
from harness import PATIENCE, Scripted, binary, clean_env, http_answer


# ---- requests ----

def test_missing_and_wrong_tokens(api, gateway):
    good = api.http.headers.pop("Authorization")
    missing = api.refused("GET", "/v1/sandboxes", 401, "unauthenticated")
    assert missing["reason"] == "AuthenticationError" and missing["retryable"] is False
    assert missing["outcome"] == "not_sent"
    wrong = "Bearer " + good.removeprefix("Bearer ")[:-1] + ("a" if good[-1] != "a" else "b")
    for value in (wrong, "Bearer x", "Bearer ", "Basic " + good[7:], good[7:], "Bearer " + "x" * 5000):
        answer = api.call("GET", "/v1/sandboxes", headers={"Authorization": value})
        problem(answer, 401, "unauthenticated")
        assert "bearer" in answer.headers["WWW-Authenticate"].lower()
    api.ok("GET", "/v1/sandboxes", headers={"Authorization": "bearer " + good[7:]})


def test_credentials_in_the_url_are_refused(api):
    api.refused("GET", "/v1/sandboxes", 400, "credential_in_url", params={"token": "x"})


def test_unknown_sandbox_and_route(api):
    name = "t-" + secrets.token_hex(8)
    path = f"/v1/sandboxes/{name}"
    api.refused("GET", path, 404, "sandbox_not_found")
    api.refused("POST", path + "/run", 404, "sandbox_not_found", json={"argv": ["true"]})
    api.refused("POST", path + "/processes", 404, "sandbox_not_found", json={"argv": ["true"]})
    api.refused("GET", path + "/processes/x/output", 404, "sandbox_not_found")
    api.refused("GET", path + "/files/content", 404, "sandbox_not_found", params={"path": "x"})
    api.refused("PUT", path + "/files/content", 404, "sandbox_not_found", params={"path": "x"}, data=b"x")
    api.refused("GET", "/v1/nothing", 404, "route_not_found")
    answer = api.call("PATCH", "/v1/sandboxes")
    problem(answer, 405, "method_not_allowed")
    assert {"GET", "POST"} <= {m.strip() for m in answer.headers["Allow"].split(",")}


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"name":}', b'"x"', b"{}{}", b'{"name":"a","name":"b"}', b'{"name":"\xff"}',
                                  b'{"name":"a\\u0000b"}', b"nope", b"\x00", b"[" * 100000])
def test_malformed_json(api, body):
    refused = api.refused("POST", "/v1/sandboxes", 400, "invalid_json", data=body,
                          headers={"Content-Type": "application/json"})
    assert refused["outcome"] == "not_sent" and refused["detail"]


def test_unknown_fields_P65(api, box, emulator):
    api.run(box, "true")
    with emulator.calls() as calls:
        refused = api.refused("POST", f"/v1/sandboxes/{box}/run", 422, "unknown_field", json={"argv": ["true"], "x/y": 1})
        assert refused["pointer"] == "/x~1y"
        refused = api.refused("POST", "/v1/sandboxes", 422, "unsupported", json={"network_policy": {"allow": []}})
        assert refused["pointer"] == "/network_policy" and refused["reason"] == "UnsupportedError"
        api.refused("POST", f"/v1/sandboxes/{box}/stop", 422, "unknown_field", json={"force": True})
        api.refused("GET", f"/v1/sandboxes/{box}", 422, "unknown_field", params={"verbose": "1"})
        api.refused("POST", f"/v1/sandboxes/{box}/run", 422, "invalid_field", json={"argv": "true"})
    assert len(calls) == 0


def test_too_large_a_body(api):
    big = {"name": "x", "env": {"A": "x" * (1 << 20)}}
    refused = api.refused("POST", "/v1/sandboxes", 413, "body_too_large", json=big)
    assert refused["outcome"] == "not_sent"


def test_ambiguous_http_is_refused(gateway):
    """What two parsers could read differently."""
    host, port = gateway.url.removeprefix("http://").split(":")
    auth = f"Authorization: Bearer {gateway.token}\r\n"
    for head in ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 2\r\nContent-Length: 3\r\n",
                 "Transfer-Encoding: gzip, chunked\r\n", "Host: y\r\nContent-Length: 2\r\n"):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as peer:
            peer.sendall((f"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\n{auth}{head}\r\n" + "{}").encode())
            answer = b""
            while True:
                more = peer.recv(65536)
                if not more:
                    break
                answer += more
        assert answer.startswith(b"HTTP/1.1 400 "), (head, answer)
        assert answer.count(b"HTTP/1.1 ") == 1, "closed after the refusal"


# ---- a bad upstream ----

def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def test_upstream_down_U10(own_gateway):
    gateway = own_gateway(url=f"http://127.0.0.1:{closed_port()}", UPSTREAM_RETRY_BUDGET_MS=500)
    api = Client(gateway)
    for method, path, body in (("GET", "/v1/sandboxes/x", None), ("POST", "/v1/sandboxes", {}),
                               ("DELETE", "/v1/sandboxes/x", None), ("GET", "/v1/sandboxes", None),
                               ("POST", "/v1/sandboxes/x/run", {"argv": ["true"]}),
                               ("POST", "/v1/sandboxes/x/stop", {})):
        refused = api.refused(method, path, 503, "upstream_unreachable", json=body)
        assert refused["outcome"] == "not_sent" and refused["retryable"] is True
        assert refused["reason"] == "UnavailableError"
    assert api.ok("GET", "/healthz").json()["status"] == "ok"


@pytest.mark.parametrize("fault", [{"html": 502}, {"html": 200}, {"html": 404}, {"html": 403}, {"malformed": True}],
                         ids=lambda f: str(f))
def test_html_and_nonsense_from_upstream_P62(api, box, emulator, fault):
    emulator.fault(fault, path_regex="^/v[0-9]+/sandboxes")
    for method, path, body in (("GET", f"/v1/sandboxes/{box}", None), ("POST", "/v1/sandboxes", {"name": "p62"})):
        refused = api.refused(method, path, 502, "upstream_bad_response", json=body)
        assert "<" not in refused["detail"] and "html" not in refused["title"].lower()
        assert refused["outcome"] in (("unknown", "not_started") if method == "POST" else ("unknown", "not_started", "finished"))
    emulator.clear_faults()
    assert api.get(box)["status"] == "running"


def test_upstream_errors_become_typed_C10(own_gateway, emulator):
    api = Client(own_gateway())  # what a 429 says holds for all who create through it
    for fault, status, code, reason in (
            ({"status": 401}, 502, "upstream_auth", "UnknownError"),
            ({"status": 402}, 403, "plan_limit", "PermissionDenied"),
            ({"status": 503}, 503, "upstream_unavailable", "UnavailableError"),
            ({"status": 429, "headers": {"Retry-After": "60"}}, 429, "upstream_rate_limited", "RateLimited")):
        emulator.fault(fault, path_regex="/sandboxes$", method="POST")
        refused = api.refused("POST", "/v1/sandboxes", status, code, json={"name": "c10"})
        assert refused["reason"] == reason and refused["upstream"]["status"] == fault["status"]
        if status == 429:
            assert 59000 <= refused["retry_after_ms"] <= 60000
        emulator.clear_faults()


GOOD = ('{"sandbox":{"name":"x","persistent":true,"createdAt":1,"updatedAt":1,"currentSessionId":"sbx_1","status":"running",'
        '"statusUpdatedAt":1},"session":{"id":"sbx_1","status":"running","cwd":"/w","vcpus":2,"memory":4096,"region":"iad1",'
        '"timeout":300000,"requestedAt":1,"createdAt":1,"updatedAt":1},"routes":[],"resumed":false}')


def test_upstream_closing_mid_line(own_gateway):
    """An answer that stops inside a line, announced longer than it is; then a command stream that does."""
    def reply(head):
        if b"/cmd" in head.split(b"\r\n")[0]:
            return b'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{"command":{"id":"cm'
        return http_answer(GOOD[:100], length=len(GOOD)) if b"/half" in head else http_answer(GOOD)
    upstream = Scripted(reply)
    try:
        api = Client(own_gateway(url=upstream.url, token="opaque", UPSTREAM_RETRY_BUDGET_MS=500))
        refused = api.call("GET", "/v1/sandboxes/half")
        assert refused.status_code in (502, 503), refused.text
        assert refused.json()["code"] in ("upstream_bad_response", "upstream_unreachable")
        upstream.heads.clear()
        answer = api.call("POST", "/v1/sandboxes/x/run", json={"argv": ["true"], "wait_ms": 2000})
        assert answer.status_code in (202, 502, 503, 504), answer.text
        if answer.status_code != 202:
            assert answer.json()["outcome"] == "unknown", "it may have started, and nobody can say"
        assert api.ok("GET", "/healthz")
    finally:
        upstream.close()


@pytest.mark.parametrize("body", ["", "null", "[]", "{}", '{"sandbox":null}', '{"sandbox":{"name":7}}', GOOD.replace('"sbx_1"', "7"),
                                  GOOD[:-1]])
def test_upstream_answers_json_of_another_shape(own_gateway, body):
    upstream = Scripted(lambda head: http_answer(body))
    try:
        api = Client(own_gateway(url=upstream.url, token="opaque", UPSTREAM_RETRY_BUDGET_MS=500))
        api.refused("GET", "/v1/sandboxes/x", 502, "upstream_bad_response")
    finally:
        upstream.close()


# ---- the command line ----

def one_sentence(done, *words):
    lines = [line for line in done.stderr.strip().splitlines() if line]
    assert done.returncode not in (0, None) and done.returncode > 0, (done.returncode, done.stderr)
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word.lower() in lines[0].lower(), lines[0]
    return lines[0]


def sandgate(*argv, **env):
    return subprocess.run([binary("sandgate"), *argv], env=clean_env(**env), capture_output=True, text=True, timeout=PATIENCE)


def test_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        done = sandgate("serve", "--listen", address, SANDGATE_UPSTREAM_TOKEN="t", SANDGATE_UPSTREAM_TEAM_ID="a",
                        SANDGATE_UPSTREAM_PROJECT_ID="b", SANDGATE_AUTH_TOKENS_FILE=str(tmp_path / "tokens"))
        one_sentence(done, address, "another program uses the port")


def test_missing_credentials_never_fall_back_A1(tmp_path):
    done = sandgate("serve", "--listen", "127.0.0.1:0", SANDGATE_AUTH_TOKENS_FILE=str(tmp_path / "tokens"),
                    VERCEL_TOKEN="ambient", VERCEL_TEAM_ID="team_a", VERCEL_PROJECT_ID="prj_a")
    assert "token" in one_sentence(done)


def test_check_says_what_is_wrong_B2(emulator, tmp_path):
    env = {"SANDGATE_UPSTREAM_URL": emulator.url, "SANDGATE_UPSTREAM_TEAM_ID": "team_local",
           "SANDGATE_UPSTREAM_PROJECT_ID": "prj_local", "SANDGATE_AUTH_TOKENS_FILE": str(tmp_path / "tokens")}
    assert sandgate("check", SANDGATE_UPSTREAM_TOKEN=emulator.token, **env).returncode == 0
    wrong = sandgate("check", SANDGATE_UPSTREAM_TOKEN="wrong", **env)
    assert wrong.returncode > 0 and "token" in wrong.stderr.lower() and "wrong" not in wrong.stderr.split()
    env["SANDGATE_UPSTREAM_URL"] = f"http://127.0.0.1:{closed_port()}"
    down = sandgate("check", SANDGATE_UPSTREAM_TOKEN="t", **env)
    assert down.returncode > 0 and "url" in down.stderr.lower()


def emulator_once(argv, wrap=()):
    return subprocess.run([*wrap, binary("sandgate-emulator"), *argv], env=clean_env(), capture_output=True, text=True,
                          timeout=PATIENCE)


def test_emulator_port_in_use(tmp_path, base):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        done = emulator_once(["--listen", address, "--state", tmp_path / "state", "--base-from", base])
        one_sentence(done, address)
        assert done.returncode == 75


def test_emulator_unwritable_state_directory(tmp_path, base):
    (tmp_path / "file").write_text("")
    done = emulator_once(["--listen", "127.0.0.1:0", "--state", tmp_path / "file" / "state", "--base-from", base])
    one_sentence(done, str(tmp_path / "file"))
    assert done.returncode == 73


def test_emulator_without_permission_for_namespaces(tmp_path, base):
    """Inside a user namespace whose limits forbid any further one."""
    forbid = "for n in user mnt pid net ipc uts cgroup; do echo 0 > /proc/sys/user/max_${n}_namespaces; done; exec \"$@\""
    done = emulator_once(["--listen", "127.0.0.1:0", "--state", tmp_path / "state", "--base-from", base],
                         ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"])
    one_sentence(done, "namespace")
    assert done.returncode == 69


def test_gateway_ends_cleanly_on_sigterm(own_gateway):
    gateway = own_gateway()
    Client(gateway).ok("GET", "/healthz")
    assert gateway.end(signal.SIGTERM) == 0
    with pytest.raises(requests.ConnectionError):
        Client(gateway).call("GET", "/healthz")


def test_gateway_drains_what_is_in_flight(own_gateway, emulator):
    """SIGTERM while streams, runs and lookups are open: each is answered or closed with 1001, nothing leaks."""
    gateway = own_gateway(SERVER_DRAIN_TIMEOUT_MS=3000)
    api = Client(gateway)
    box = api.sandbox()
    try:
        pid = api.start(box, "sleep", "600")
        with api.attach(box, pid) as a:
            assert a.next() == "hello"
            gateway.child.send_signal(signal.SIGTERM)
            a.until_close()
        assert a.closed == 1001
        assert gateway.end(None) == 0
    finally:
        emulator.http.delete(f"{emulator.url}/v2/sandboxes/{box}", params={"teamId": "team_local", "projectId": "prj_local"},
                             timeout=PATIENCE)


