"""What is known of a sandbox, and what acts on it, needs no database: Vercel is the truth. B5 C2"""
import time

import pytest

from databases import Postgres
from pg_server import PgServer


@pytest.fixture
def own_database(tmp_path):
    """A server that this test may kill."""
    with PgServer() as server:
        yield Postgres(tmp_path / "database", server)


def path(box):
    return f"/v1/sandboxes/{box}"


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_all_but_what_only_the_store_knows_goes_on(own, own_database, how):
    _, api = own(store=own_database)
    box = api.sandbox(working_directory="/tmp", tags={"without": "store"})
    api.put(box, "kept", b"kept")
    known = api.ok("GET", path(box))
    assert known.json()["working_directory"] == "/tmp"
    server = own_database.server
    (server.kill if how == "killed" else server.freeze)()
    try:
        start = time.monotonic()
        seen = api.ok("GET", path(box))
        assert seen.json()["status"] == "running" and time.monotonic() - start < 4
        assert seen.headers["ETag"] != known.headers["ETag"], "what is not known is not told, and so it is another state"
        start = time.monotonic()
        waited = api.ok("GET", path(box), params={"wait_ms": 500, "until": "stopped"}).json()
        assert waited["status"] == "running" and time.monotonic() - start < 6
        if how == "killed":  # a database that does not answer is waited for a while by each of these
            assert [i["name"] for i in api.ok("GET", "/v1/sandboxes", params={"tag.without": "store"}).json()["items"]] == [box]
            assert api.ok("PATCH", path(box), json={"tags": {"changed": "1"}}).json()["tags"] == {"changed": "1"}
            refused = api.refused("PATCH", path(box), 503, "store_unavailable", json={"keep_alive": True})
            assert refused["outcome"] in ("not_sent", "not_started")
            assert api.ok("POST", path(box) + "/extend", json={"by_ms": 60000}).json()["status"] == "running"
        assert api.stop(box)["status"] == "stopped"
        assert api.resume(box)["status"] == "running"
    finally:
        (server.start if how == "killed" else server.thaw)()
    for _ in range(100):
        if api.get(box)["working_directory"] == "/tmp":
            break
        time.sleep(0.2)
    else:
        raise AssertionError("the gateway does not find its database again")
    assert api.file(box, "/tmp/kept") == b"kept"
