"""Gateways on a PostgreSQL of their own: it is killed, frozen and started again, and two gateways share it."""
import subprocess
import time

import pytest

from databases import Postgres
from harness import PATIENCE, binary, clean_env, until
from pg_server import PgServer

PROGRAM = "echo some output; exit 3"
SECRET = "hush%2Fhush"  # of the URL; never in a log


def path(name, pid, more=""):
    return f"/v1/sandboxes/{name}/processes/{pid}{more}"


@pytest.fixture
def own_database(tmp_path):
    """A server that this test may kill."""
    with PgServer() as server:
        yield Postgres(tmp_path / "database", server)


def saved_run(api):
    """A sandbox that is stopped, and a process of it that only the store knows."""
    name = api.create()["name"]
    pid = api.start(name, shell=PROGRAM)
    api.wait(name, pid)
    api.stop(name)
    return name, pid


def is_saved(api, name, pid):
    return api.call("GET", path(name, pid)).status_code == 200


def test_the_server_is_killed_and_started_again_under_two_gateways(own, own_database):
    server = own_database.server
    first, api = own(store=own_database)
    second, other = own(store=own_database)
    name, pid = saved_run(api)
    assert is_saved(other, name, pid)
    server.kill()
    for c in (api, other):
        refused = c.refused("GET", path(name, pid), 503, "store_unavailable")
        assert refused["retryable"] is True
    live = api.create()["name"]  # nothing else is stopped by it
    assert api.run(live, "echo", "well")["out"] == b"well\n"
    assert api.get(name)["status"] == "stopped"
    assert [len(g.events("store unavailable")) for g in (first, second)] == [1, 1]  # said once
    server.start()
    for c in (api, other):
        until(lambda c=c: is_saved(c, name, pid), "the gateway is connected again", 20)
        assert c.output(name, pid).content == b"some output\n"
    again, pid = saved_run(other)
    assert is_saved(api, again, pid)
    assert first.events("store available")


def test_connections_that_are_cut_are_not_noticed(own, own_database):
    gateway, api = own(store=own_database)
    name, pid = saved_run(api)
    for _ in range(3):
        assert is_saved(api, name, pid)
        own_database.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'sandgate';")
    assert is_saved(api, name, pid)
    assert not gateway.events("store unavailable")


def test_a_server_that_does_not_answer_is_waited_for_a_while(own, own_database):
    gateway, api = own(store=own_database, STORE_BUSY_MS=1000)
    name, pid = saved_run(api)
    assert is_saved(api, name, pid)
    own_database.server.freeze()
    try:
        begun = time.monotonic()
        api.refused("GET", path(name, pid), 503, "store_unavailable")
        assert time.monotonic() - begun < 20
        begun = time.monotonic()
        assert api.get(name)["status"] == "stopped"  # needs no database
        assert time.monotonic() - begun < 5
    finally:
        own_database.server.thaw()
    until(lambda: is_saved(api, name, pid), "it answers again", 20)


def test_a_gateway_starts_without_its_database_and_finds_it_later(own, own_database):
    own_database.server.kill()
    gateway, api = own(store=own_database)
    name = api.create()["name"]
    assert api.run(name, "echo", "well")["out"] == b"well\n"
    pid = api.start(name, shell=PROGRAM)
    assert api.wait(name, pid)["exit_code"] == 3
    assert api.output(name, pid).content == b"some output\n"
    api.stop(name)
    api.refused("GET", path(name, pid), 503, "store_unavailable")
    assert len(gateway.events("store unavailable")) == 1
    own_database.server.start()
    until(lambda: api.call("GET", path(name, pid)).status_code == 409, "the gateway is connected", 20)  # nothing was saved
    assert gateway.events("store available")
    assert is_saved(api, *saved_run(api))


def test_a_gateway_that_is_frozen_in_the_middle_keeps_nobody_waiting_for_long(own, own_database):
    """It loses its transaction; until then others are told that they cannot be served, in bounded time."""
    gateway, api = own(store=own_database, STORE_BUSY_MS=1500)
    name, pid = saved_run(api)
    server = own_database.server
    frozen = subprocess.Popen([server.bin / "psql", "-Xqt", own_database.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, env=clean_env())
    try:
        frozen.stdin.write("SET idle_in_transaction_session_timeout = 5000; BEGIN; LOCK TABLE processes IN ACCESS EXCLUSIVE MODE;"
                           " SELECT 1;\n")
        frozen.stdin.flush()
        assert frozen.stdout.readline().strip() == "1"
        begun = time.monotonic()
        refused = api.refused("GET", path(name, pid), 503, "store_unavailable")
        assert time.monotonic() - begun < 4.5 and "locked" in refused["detail"]
        until(lambda: is_saved(api, name, pid), "the lock is gone", 20)
        assert is_saved(api, *saved_run(api))
    finally:
        frozen.kill()
        frozen.communicate()


def serve(tmp_path, url):
    """Starts a gateway that is to refuse; its exit code and words."""
    (tmp_path / "url").write_text(url)
    (tmp_path / "url").chmod(0o600)
    (tmp_path / "token").write_text("token\n")
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "tokens").touch()
    env = {"SERVER_LISTEN": "127.0.0.1:0", "AUTH_TOKENS_FILE": tmp_path / "tokens", "UPSTREAM_TOKEN_FILE": tmp_path / "token",
           "UPSTREAM_TEAM_ID": "t", "UPSTREAM_PROJECT_ID": "p", "UPSTREAM_URL": "http://127.0.0.1:9",
           "STORE_DATABASE_URL_FILE": tmp_path / "url", "STORE_BUSY_MS": "2000"}
    return subprocess.run([binary("sandgate"), "serve"], env=clean_env(**{"SANDGATE_" + k: str(v) for k, v in env.items()}),
                          capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("url", [f"postgresql://sandgate:{SECRET}@[::1:5432/x", f"postgresql://sandgate:{SECRET}@h/x?nonsense=1",
                                 f"mysql://sandgate:{SECRET}@h/x", f"postgresql://sandgate:{SECRET}%zz@h/x"])
def test_a_url_that_cannot_be_right_is_refused_without_its_password(tmp_path, url):
    done = serve(tmp_path, url)
    assert done.returncode == 78, done.stderr
    assert "[store] database_url: the URL of the database is not understood" in done.stderr
    assert "hush" not in done.stderr + done.stdout


def test_the_password_is_in_no_log(own, own_database, tmp_path):
    server = own_database.server
    own_database.psql("CREATE ROLE teller LOGIN PASSWORD 'hush/hush';")
    hba = server.data / "pg_hba.conf"
    hba.write_text("local all teller scram-sha-256\n" + hba.read_text())
    own_database.psql("SELECT pg_reload_conf();")
    own_database.url_file.write_text(own_database.url.replace("postgresql:///", f"postgresql://teller:{SECRET}x@/").replace("&user=sandgate", ""))
    gateway, api = own(store=own_database)  # the password is wrong
    name = api.create()["name"]
    seen = until(lambda: gateway.events("store unavailable"), "it is told")
    assert "login" in seen[0]["detail"] and "teller" in seen[0]["message"]
    api.stop(name)
    refused = api.refused("GET", path(name, "x"), 503, "store_unavailable")
    assert "teller" not in refused["detail"]
    for text in (gateway.text(), str(refused)):
        assert "hush" not in text
