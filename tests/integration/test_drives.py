"""Drives and their mounts.  E9 E9+"""
import secrets

import pytest

from client import problem


@pytest.fixture
def drive(api):
    """drive(): the name of a new drive, away after the test with the sandboxes that have it."""
    made = []

    def make(**body):
        name = "d-" + secrets.token_hex(6)
        made.append(name)
        record = api.ok("PUT", f"/v1/drives/{name}", 201, json=body).json()
        assert record["name"] == name and record["sandbox"] is None
        return name

    yield make
    api.clean_up()
    for name in made:
        api.ok("DELETE", f"/v1/drives/{name}", 204)


def test_e9_get_create_list_delete(api, drive):
    names = sorted(drive(max_size_bytes=1 << 30) for _ in range(3))
    record = api.ok("PUT", f"/v1/drives/{names[0]}", 200, json={}).json()
    assert record == api.ok("GET", f"/v1/drives/{names[0]}").json() and record["max_size_bytes"] == 1 << 30
    problem(api.call("PUT", f"/v1/drives/{names[0]}", json={"max_size_bytes": 1 << 31}), 409, "drive_conflict")
    problem(api.call("PUT", f"/v1/drives/{names[0]}", json={"region": "sfo1"}), 409, "drive_conflict")
    found, cursor = [], None
    while True:
        page = api.call("GET", "/v1/drives", params={"limit": 1, "name_prefix": "d-", **({"cursor": cursor} if cursor else {})})
        found += [d["name"] for d in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        if not cursor:
            break
        assert 'rel="next"' in page.headers["Link"] and "name_prefix=d-" in page.headers["Link"]
    assert [n for n in found if n in names] == names
    api.ok("DELETE", f"/v1/drives/{names[0]}", 204)
    api.ok("DELETE", f"/v1/drives/{names[0]}", 204)
    problem(api.call("GET", f"/v1/drives/{names[0]}"), 404, "drive_not_found")


def test_e9_what_is_wrong_is_said_before_anything_is_sent(api, emulator):
    with emulator.calls() as calls:
        for body, pointer in [({"region": "mars1"}, "/region"), ({"max_size_bytes": 4097}, "/max_size_bytes"),
                              ({"max_size_bytes": 0}, "/max_size_bytes"), ({"size": 1}, "/size")]:
            answer = api.call("PUT", "/v1/drives/d", json=body)
            assert answer.status_code == 422 and answer.json()["pointer"] == pointer, answer.text
        assert api.call("PUT", "/v1/drives/" + "x" * 65, json={}).status_code == 422
        assert api.call("POST", "/v1/drives/d/fork", json={"name": "a.b"}).json()["pointer"] == "/name"
        assert api.call("GET", "/v1/drives", params={"name_prefix": "a b"}).status_code == 422
        problem(api.call("GET", "/v1/drives/a.b"), 404, "drive_not_found")
        api.ok("DELETE", "/v1/drives/a.b", 204)
    assert len(calls) == 0


def test_e9_mounts_conflicts_and_forks(api, drive):
    name = drive()
    answer = api.call("POST", "/v1/sandboxes", json={"name": "t-" + secrets.token_hex(6), "mounts": {"/data": {"drive": name, "mode": "snapshot"}}})
    problem(answer, 409, "drive_unwritten")
    box = api.sandbox(mounts={"/data": name})
    api.run(box, shell="echo kept > /data/f")
    assert api.ok("GET", f"/v1/drives/{name}").json()["sandbox"] == box
    answer = api.call("POST", "/v1/sandboxes", json={"name": "t-" + secrets.token_hex(6), "mounts": {"/data": name}})
    problem(answer, 409, "drive_in_use")
    assert box in answer.json()["detail"] or name in answer.json()["detail"]
    problem(api.call("DELETE", f"/v1/drives/{name}"), 409, "drive_in_use")
    api.destroy(box)
    other = name + "-f"
    fork = api.ok("POST", f"/v1/drives/{name}/fork", 201, json={"name": other}).json()
    assert fork["parent_id"] == api.ok("GET", f"/v1/drives/{name}").json()["id"]
    problem(api.call("POST", f"/v1/drives/{name}/fork", json={"name": other}), 409, "drive_conflict")
    again = api.sandbox(mounts={"/data": {"drive": other, "mode": "snapshot"}})
    assert api.run(again, shell="cat /data/f; echo x > /data/g || echo read-only")["out"].startswith(b"kept\n")
    api.destroy(again)
    api.ok("DELETE", f"/v1/drives/{other}", 204)
