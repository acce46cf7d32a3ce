"""Tokens of the upstream that change while the gateway runs: files, commands, the CLI's login.  E1 E1b E2."""
import base64
import concurrent.futures
import json
import subprocess
import time

import pytest
import requests

from client import Client
from harness import PATIENCE, binary, clean_env, until


def jwt(seconds):
    """An unsigned token that expires so many seconds from now; the emulator takes none of it."""
    part = lambda o: base64.urlsafe_b64encode(json.dumps(o).encode()).decode().rstrip("=")
    return f"{part({'alg': 'none'})}.{part({'owner_id': 'team_local', 'project_id': 'prj_local', 'exp': int(time.time()) + seconds})}.x"


def write(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)


def works(api):
    return api.call("GET", "/v1/sandboxes").status_code == 200


def refused(api):
    answer = api.call("GET", "/v1/sandboxes")
    return answer.status_code == 502 and answer.json()["code"] == "upstream_auth"


@pytest.fixture
def away(tmp_path):
    """A directory for what the gateway reads its token from."""
    d = tmp_path / "away"
    d.mkdir()
    return d


def test_e2_a_file_that_changes_is_followed_and_no_stream_ends(own_gateway, emulator):
    gateway = own_gateway()
    api = Client(gateway)
    path = gateway.log.parent / "upstream-token"
    box = api.sandbox()
    pid = api.start(box, "cat", stdin="open")
    with api.attach(box, pid) as a:
        a.send(b"one\n", 0)
        a.until_bytes(4)
        write(path, "wrong\n")
        until(lambda: refused(api), "the new token is used, and refused")
        a.send(b"two\n", 4)
        write(path, emulator.token + "\n")
        until(lambda: works(api), "the next one is used")
        a.until_bytes(8)
        a.say("stdin_close", offset=8)
        a.until_close()
    assert bytes(a.data["stdout"]) == b"one\ntwo\n" and a.closed == 1000
    write(path, jwt(-5) + "\n")  # an expired one is not taken: the one before goes on
    until(lambda: any("expired" in e["why"] for e in gateway.events("upstream_token_not_renewed")), "it is told")
    assert works(api)
    path.unlink()
    assert works(api)


def test_e2_an_expiry_is_named_and_nothing_is_sent(own_gateway, emulator):
    gateway = own_gateway(token=jwt(3))
    api = Client(gateway)
    until(lambda: "expired" in api.call("GET", "/v1/sandboxes").json().get("detail", ""), "it expires")
    with emulator.calls() as calls:
        problem = api.call("GET", "/v1/sandboxes").json()
    assert (problem["code"], problem["outcome"]) == ("upstream_auth", "not_sent")
    assert len(calls) == 0
    write(gateway.log.parent / "upstream-token", emulator.token)
    until(lambda: works(api), "a new one is taken")


def test_e1b_a_command_runs_again_when_its_token_is_refused(own_gateway, emulator, away):
    (away / "token").write_text(emulator.token)
    gateway = own_gateway(UPSTREAM_TOKEN_FILE="", UPSTREAM_TOKEN_COMMAND=f"echo run >> {away}/runs; cat {away}/token")
    api = Client(gateway)
    assert works(api)
    assert (away / "runs").read_text().count("run") == 1
    # as JSON, with a time that is near: fetched again ahead of it, by one run at a time
    (away / "token").write_text(json.dumps({"token": emulator.token, "expires_at": int(time.time()) + 3600}))
    (away / "token").rename(away / "good")
    gateway2 = own_gateway(UPSTREAM_TOKEN_FILE="", UPSTREAM_TOKEN_COMMAND=
                           f"echo run >> {away}/runs2; if [ $(wc -l < {away}/runs2) = 1 ]; then "
                           f"echo '{{\"token\":\"old\",\"expires_at\":'$(($(date +%s)+3600))'}}'; else cat {away}/good; fi")
    api2 = Client(gateway2)
    assert works(api2), "the refused token is replaced within the request"
    assert (away / "runs2").read_text().count("run") == 2
    # it fails: told without its output
    (away / "good").write_text("")
    gateway3 = own_gateway(UPSTREAM_TOKEN_FILE="", UPSTREAM_TOKEN_COMMAND=
                           f"echo run >> {away}/runs3; if [ $(wc -l < {away}/runs3) = 1 ]; then echo canary-old; "
                           "else echo canary-new; exit 3; fi")
    problem = Client(gateway3).call("GET", "/v1/sandboxes").json()
    assert problem["code"] == "upstream_auth" and "token_command failed" in problem["detail"]
    assert "canary" not in gateway3.text()


def test_e1b_a_command_that_gives_nothing_keeps_the_gateway_from_starting(emulator, tmp_path):
    for command, said in [("exit 1", "token_command failed"), ("echo two words", "blank"), ("true", "empty"),
                          ("head -c 100000 /dev/zero | tr '\\0' x", "printed too much")]:
        done = subprocess.run([binary("sandgate"), "check"], capture_output=True, text=True, timeout=PATIENCE, env=clean_env(
            SANDGATE_UPSTREAM_URL=emulator.url, SANDGATE_UPSTREAM_TOKEN_COMMAND=command,
            SANDGATE_UPSTREAM_TEAM_ID="t", SANDGATE_UPSTREAM_PROJECT_ID="p"))
        assert done.returncode != 0 and said in done.stderr, (command, done.stderr)


def test_e1b_the_cli_s_login_is_followed(own_gateway, emulator, away):
    login = lambda token, seconds=3600: write(away / "auth.json", json.dumps({"token": token, "expiresAt": int(time.time()) + seconds, "refreshToken": "r"}))
    login(emulator.token)
    (away / "config.json").write_text(json.dumps({"currentTeam": "team_local"}))
    gateway = own_gateway(UPSTREAM_TOKEN_FILE="", UPSTREAM_CREDENTIALS="cli", UPSTREAM_CLI_DIR=away, UPSTREAM_TEAM_ID="")
    api = Client(gateway)
    assert works(api)
    login("wrong")
    until(lambda: refused(api), "the new login is used")
    login(emulator.token)
    until(lambda: works(api), "and the next")
    write(away / "auth.json", "{}")  # logged out: what is in force goes on until it is refused
    until(lambda: gateway.events("upstream_token_not_renewed"), "it is told")
    assert works(api)


def test_e1b_without_a_login_it_says_what_to_do(emulator, away):
    done = subprocess.run([binary("sandgate"), "check"], capture_output=True, text=True, timeout=PATIENCE, env=clean_env(
        SANDGATE_UPSTREAM_URL=emulator.url, SANDGATE_UPSTREAM_CREDENTIALS="cli", XDG_DATA_HOME=str(away)))
    assert done.returncode != 0 and "log in with Vercel's CLI" in done.stderr, done.stderr


def log_in(emulator):
    """A login by the device flow: {access_token, refresh_token, expires_in}."""
    post = lambda path, **form: requests.post(emulator.url + path, data=form, timeout=PATIENCE)
    begun = post("/api/login/oauth/device-authorization", client_id="c").json()
    page = post("/login/device", user_code=begun["user_code"], token=emulator.token, action="approve")
    assert page.status_code == 200, page.text
    found = {}

    def granted():
        found["it"] = post("/api/login/oauth/token", client_id="c", grant_type="urn:ietf:params:oauth:grant-type:device_code",
                           device_code=begun["device_code"]).json()
        return "access_token" in found["it"]
    until(granted, f"the login is granted: {found}")
    return found["it"]


def renewals(emulator, after):
    return [e for e in emulator.journal(after) if e["path"].endswith("/oauth/token")]


def test_e1b_the_cli_s_login_is_renewed_once_for_all(own_gateway, emulator, away):
    grant = log_in(emulator)
    keep = {"token": grant["access_token"], "refreshToken": grant["refresh_token"], "expiresAt": int(time.time()) + 60, "// note": "kept"}
    write(away / "auth.json", json.dumps(keep))
    seen = emulator.journal()[-1]["seq"]
    settings = dict(UPSTREAM_TOKEN_FILE="", UPSTREAM_CREDENTIALS="cli", UPSTREAM_CLI_DIR=away, UPSTREAM_CLI_ISSUER=emulator.url)
    gateways = [own_gateway(**settings) for _ in range(2)]  # less than two minutes are left: renewed at the start
    for g in gateways:
        assert works(Client(g))
    assert len(renewals(emulator, seen)) == 1
    now = json.loads((away / "auth.json").read_text())
    assert now["token"] != keep["token"] and now["refreshToken"] != keep["refreshToken"] and now["// note"] == "kept"
    assert now["expiresAt"] > time.time() + 120 and (away / "auth.json").stat().st_mode & 0o777 == 0o600
    # refused before its time: renewed within the request that finds it out, by one of them, for both
    seen = emulator.journal()[-1]["seq"]
    write(away / "auth.json", json.dumps({**now, "token": "refused"}))

    def renewed():
        assert all(works(Client(g)) for g in gateways), "no request notices"
        return len(renewals(emulator, seen)) == 1 and all(g.events("upstream_token_renewed") for g in gateways)
    until(renewed, "both have used the new token")
    assert len(renewals(emulator, seen)) == 1
    now = json.loads((away / "auth.json").read_text())
    for text in [g.text() for g in gateways]:
        for secret in (keep["token"], keep["refreshToken"], now["token"], now["refreshToken"]):
            assert secret not in text


def test_e1b_a_login_that_cannot_be_renewed_says_so(emulator, away):
    write(away / "auth.json", json.dumps({"token": "t", "refreshToken": "canary-refresh", "expiresAt": int(time.time()) - 5}))
    for issuer, said in [(emulator.url, "log in with Vercel's CLI"), ("http://127.0.0.1:9", "expired")]:
        done = subprocess.run([binary("sandgate"), "check"], capture_output=True, text=True, timeout=PATIENCE, env=clean_env(
            SANDGATE_UPSTREAM_URL=emulator.url, SANDGATE_UPSTREAM_CREDENTIALS="cli", SANDGATE_UPSTREAM_CLI_DIR=str(away),
            SANDGATE_UPSTREAM_CLI_ISSUER=issuer, SANDGATE_UPSTREAM_TEAM_ID="t", SANDGATE_UPSTREAM_PROJECT_ID="p"))
        assert done.returncode != 0 and said in done.stderr and "canary" not in done.stderr, done.stderr
    assert "canary-refresh" in (away / "auth.json").read_text()
