"""`sandgate check` says which part is wrong and what to do about it.  B2 A2."""
import os
import socket
import subprocess

import pytest

from edges import Authority, Proxy, Tls
from harness import PATIENCE, Scripted, binary, clean_env, http_answer

OK, UNAVAILABLE, TEMPORARY, DENIED, CONFIG = 0, os.EX_UNAVAILABLE, os.EX_TEMPFAIL, os.EX_NOPERM, os.EX_CONFIG


@pytest.fixture
def check(emulator):
    """check(url=…, UPSTREAM_PROXY=…) runs it; returns (exit code, what it said)."""

    def run(url=None, token=None, environment=None, **settings):
        given = {"UPSTREAM_URL": url or emulator.url, "UPSTREAM_TOKEN": token or emulator.token, "UPSTREAM_TEAM_ID": "team_x",
                 "UPSTREAM_PROJECT_ID": "prj_x", "UPSTREAM_RETRIES": 0, **settings}
        env = clean_env(**{"SANDGATE_" + k: str(v) for k, v in given.items() if v is not None}, **(environment or {}))
        done = subprocess.run([binary("sandgate"), "check"], env=env, capture_output=True, text=True, timeout=PATIENCE)
        said = done.stdout + done.stderr
        assert given["UPSTREAM_TOKEN"] not in said, "the token is shown"
        assert len(said.strip().splitlines()) == 1, f"one line says it:\n{said}"
        assert (done.returncode == OK) == (done.stderr == ""), said
        return done.returncode, said

    return run


@pytest.fixture
def scripted():
    """scripted(answer): the URL of an upstream that always answers this."""
    made = []

    def make(answer):
        made.append(Scripted(lambda head: answer))
        return made[-1].url

    yield make
    for s in made:
        s.close()


def refusal(status, code, message="No."):
    return http_answer(f'{{"error":{{"code":"{code}","message":"{message}"}}}}', status=status)


def says(result, code, *parts):
    assert result[0] == code, result
    for part in parts:
        assert part in result[1], result


def test_good_B2(check, emulator):
    says(check(), OK, "ok", emulator.url, "prj_x", "team_x")


def test_wrong_token_B2(check):
    says(check(token="emu_wrong"), DENIED, "403", "token")


@pytest.mark.parametrize("status, code, exit_code, parts", [
    ("401 Unauthorized", "unauthorized", DENIED, ("401", "token_file", "create a new one")),
    ("402 Payment Required", "payment_required", DENIED, ("402", "plan")),
    ("403 Forbidden", "forbidden", DENIED, ("403", "team_id", "scope")),
    ("404 Not Found", "not_found", CONFIG, ("404", "project_id", "prj_x")),
    ("429 Too Many Requests", "rate_limited", TEMPORARY, ("429", "try again later")),
    ("500 Internal Server Error", "internal_server_error", UNAVAILABLE, ("500", "try again later")),
])
def test_refusals_name_the_fix_B2(check, scripted, status, code, exit_code, parts):
    says(check(scripted(refusal(status, code))), exit_code, *parts)


def test_page_instead_of_the_api_B2(check, scripted):
    """A captive portal, a login page, another service."""
    page = "<!doctype html><title>Log in</title>"
    for status in ("200 OK", "403 Forbidden", "404 Not Found"):
        result = check(scripted(http_answer(page, "text/html", status)))
        says(result, CONFIG, "not as the Sandbox API", "[upstream] url")
        assert "<" not in result[1]


def test_redirect_B2(check, scripted):
    url = scripted(b"HTTP/1.1 301 Moved\r\nLocation: https://elsewhere.test/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    says(check(url), CONFIG, "redirect", "[upstream] url")


def test_wrong_path_of_the_url_B2(check, emulator):
    result = check(emulator.url + "/no/such/base")
    says(result, CONFIG)
    assert "url" in result[1] or "project_id" in result[1], result


def test_unusable_url_B2(check):
    says(check("ftp://example.test/"), CONFIG, "URL", "https://")


def test_name_that_does_not_resolve_B2(check):
    says(check("http://no-such-host.invalid"), UNAVAILABLE, "cannot be resolved", "[upstream] url", "DNS")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def test_refused_connection_B2(check):
    port = free_port()
    says(check(f"http://127.0.0.1:{port}"), UNAVAILABLE, "nothing answers", str(port), "[upstream] url")


def test_upstream_that_hangs_up_B2(check, scripted):
    says(check(scripted(b"")), UNAVAILABLE)


def test_untrusted_certificate_B2_A2(check, emulator, tmp_path):
    mine, other = Authority(tmp_path, "mine"), Authority(tmp_path, "other")
    tls = Tls(mine.server(), emulator.url)
    try:
        says(check(tls.url), UNAVAILABLE, "certificate", "not trusted", "ca_bundle")
        says(check(tls.url, UPSTREAM_CA_BUNDLE=other.ca), UNAVAILABLE, "certificate", "not trusted", "ca_bundle")
        says(check(tls.url, UPSTREAM_CA_BUNDLE=mine.ca), OK, "ok")
        (tmp_path / "garbage.pem").write_text("no certificate\n")
        says(check(tls.url, UPSTREAM_CA_BUNDLE=tmp_path / "garbage.pem"), CONFIG, "ca_bundle")
        says(check(tls.url, UPSTREAM_CA_BUNDLE=tmp_path / "absent.pem"), CONFIG, "ca_bundle")
    finally:
        tls.close()


def test_certificate_of_another_host_B2_A2(check, emulator, tmp_path):
    tls = Tls(Authority(tmp_path, "mine").server("DNS:example.test"), emulator.url)
    try:
        says(check(tls.url, UPSTREAM_CA_BUNDLE=tmp_path / "mine" / "ca.pem"), UNAVAILABLE, "certificate")
    finally:
        tls.close()


def test_https_to_a_port_that_speaks_http_B2(check, emulator):
    says(check(emulator.url.replace("http:", "https:")), UNAVAILABLE, "does the port speak https?")


def test_proxies_B2_A2(check, emulator):
    proxy = Proxy()
    try:
        says(check(UPSTREAM_PROXY=proxy.url), OK, "ok")
        assert proxy.asked
        says(check(f"http://127.0.0.1:{free_port()}", UPSTREAM_PROXY=proxy.url), UNAVAILABLE)
    finally:
        proxy.close()
    dead = f"http://127.0.0.1:{free_port()}"
    says(check(UPSTREAM_PROXY=dead), UNAVAILABLE, "proxy")
    says(check(UPSTREAM_PROXY="http://no-such-proxy.invalid:3128"), UNAVAILABLE, "proxy", "cannot be resolved")
    says(check(environment={"HTTP_PROXY": dead, "HTTPS_PROXY": dead, "http_proxy": dead, "ALL_PROXY": dead}), OK, "ok")


def test_what_is_missing_is_named_B2(check):
    says(check(UPSTREAM_TEAM_ID=None), DENIED, "set team_id in [upstream]")
    says(check(UPSTREAM_PROJECT_ID=None), DENIED, "set project_id in [upstream]")
