"""B7: what the upstream and the store do not both know is told, and taken away on request only."""
import json
import signal
import subprocess

import pytest

from client import Client
from databases import Sqlite
from emulator_api import Api
from harness import PATIENCE, Gateway

NOW = {"older_than_ms": 0}


@pytest.fixture
def db(tmp_path):
    return Sqlite(tmp_path / "database")


@pytest.fixture
def alone(own_emulator):
    """An emulator without other tests' sandboxes: alone(store) is (gateway, client) in front of it."""
    up = own_emulator().emulator
    made = []

    def make(store):
        g = Gateway(up.log.parent.parent / f"g{len(made)}", up.url, up.token, store.settings())
        made.append(g)
        return g, Client(g)

    make.emulator = up
    yield make
    for g in made:
        if g.alive():
            assert g.end() == 0, g.text()[-4000:]


def prune(api, **body):
    return api.ok("POST", "/v1/prune", json=body).json()


def names(report):
    return sorted(s["name"] for s in report["sandboxes"])


def rows(report):
    return sorted((r["kind"], r["sandbox"]) for r in report["rows"])


def test_nothing_to_prune(alone, db):
    _, api = alone(db)
    api.create(name="known")
    report = prune(api, **NOW)
    assert report["dry_run"] is True and report["complete"] is True
    assert report["sandboxes"] == [] and report["rows"] == []
    assert report["counts"] == {"sandboxes": 0, "rows": 0, "removed": 0, "failed": 0}


def test_sandboxes_that_the_store_does_not_know_B7(alone, tmp_path):
    """The store was lost.  What others created in the project is not ours to take."""
    lost, new = Sqlite(tmp_path / "lost"), Sqlite(tmp_path / "new")
    gateway, api = alone(lost)
    api.create(name="orphan")
    api.create(name="leased", lease={"ttl_ms": 600000})
    gateway.end(signal.SIGKILL)
    Api(alone.emulator, "prj_local").create(name="foreign")
    _, api = alone(new)
    api.create(name="known")
    young = prune(api)
    assert names(young) == [], "what is young may be under way"
    report = prune(api, **NOW)
    assert names(report) == ["leased", "orphan"] and rows(report) == []
    assert report["counts"]["removed"] == 0
    assert api.get("orphan")["status"] == "running", "a dry run changes nothing"
    done = prune(api, dry_run=False, **NOW)
    assert names(done) == ["leased", "orphan"] and done["counts"]["removed"] == 2 and done["counts"]["failed"] == 0
    for name in ("orphan", "leased"):
        api.refused("GET", f"/v1/sandboxes/{name}", 404, "sandbox_not_found")
    assert api.get("known")["status"] == "running" and api.get("foreign")["status"] == "running"
    assert names(prune(api, **NOW)) == []


def test_rows_whose_sandbox_is_gone_B7(alone, db):
    _, api = alone(db)
    api.create(name="gone", lease={"ttl_ms": 600000})
    api.create(name="there", lease={"ttl_ms": 600000})
    Api(alone.emulator, "prj_local").call("DELETE", "/v2/sandboxes/gone")
    assert rows(prune(api)) == []
    report = prune(api, **NOW)
    assert rows(report) == [("lease", "gone"), ("settings", "gone")] and names(report) == []
    assert api.ok("GET", "/v1/sandboxes/gone/lease").json()["ttl_ms"] == 600000
    done = prune(api, dry_run=False, **NOW)
    assert done["counts"]["removed"] == 2
    api.refused("GET", "/v1/sandboxes/gone/lease", 404, "lease_not_found")
    assert api.ok("GET", "/v1/sandboxes/there/lease").json()["ttl_ms"] == 600000
    assert rows(prune(api, **NOW)) == []


def test_rows_where_the_upstream_has_nothing_at_all_B7(alone, db):
    _, api = alone(db)
    api.create(name="gone")
    Api(alone.emulator, "prj_local").call("DELETE", "/v2/sandboxes/gone")
    assert rows(prune(api, **NOW)) == [("settings", "gone")]
    assert prune(api, dry_run=False, **NOW)["counts"] == {"sandboxes": 0, "rows": 1, "removed": 1, "failed": 0}
    assert rows(prune(api, **NOW)) == []


def test_what_cannot_be_destroyed_now_is_remembered_B7(alone, tmp_path):
    gateway, api = alone(Sqlite(tmp_path / "lost"))
    api.create(name="orphan")
    gateway.end(signal.SIGKILL)
    db = Sqlite(tmp_path / "new")
    _, api = alone(db)
    alone.emulator.fault({"status": 503}, method="DELETE")
    done = prune(api, dry_run=False, **NOW)
    assert done["counts"]["removed"] == 0 and done["counts"]["failed"] == 1
    assert [r["target"] for r in db.rows("SELECT target FROM cleanups")] == ["orphan"]
    assert names(prune(api, **NOW)) == [], "it is known: it is to be cleaned up"


def test_a_sandbox_that_was_given_a_lease_is_known_B7(alone, db):
    """Created by others, and leased here: the tag alone does not make it ours to prune."""
    _, api = alone(db)
    Api(alone.emulator, "prj_local").create(name="foreign", tags={"a": "b"})
    api.ok("POST", "/v1/sandboxes/foreign/lease", json={"ttl_ms": 600000})
    assert api.get("foreign")["tags"] == {"a": "b"}
    assert names(prune(api, **NOW)) == []


def test_refused(api):
    assert api.refused("POST", "/v1/prune", 422, "unknown_field", json={"apply": True})["pointer"] == "/apply"
    assert api.refused("POST", "/v1/prune", 422, "invalid_field", json={"dry_run": "no"})["pointer"] == "/dry_run"


def test_the_command_B7(alone, tmp_path):
    gateway, api = alone(Sqlite(tmp_path / "lost"))
    api.create(name="orphan")
    gateway.end(signal.SIGKILL)
    gateway, api = alone(Sqlite(tmp_path / "new"))
    program, _, env = gateway.command

    def command(*options):
        done = subprocess.run([program[0], "prune", *options], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "0 sandboxes, 0 rows" in command()
    text = command("--older-than", "0")
    assert "sandbox orphan: not in the store (running" in text and "nothing was changed" in text
    assert names(json.loads(command("--older-than", "0", "--json"))) == ["orphan"]
    assert api.get("orphan")["status"] == "running"
    assert "1 taken away, 0 not" in command("--older-than", "0", "--apply")
    api.refused("GET", "/v1/sandboxes/orphan", 404, "sandbox_not_found")
    wrong = subprocess.run([program[0], "prune", "--older-than", "x"], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert wrong.returncode == 64 and "proper value" in wrong.stderr
