"""Many at once: P56, shared lookups, interleaved runs."""
import concurrent.futures
import secrets

from harness import sha256


def test_twenty_creates_of_one_name_P56(api, emulator):
    name = "t-" + secrets.token_hex(8)
    api.made.append(name)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(lambda _: api.call("POST", "/v1/sandboxes", json={"name": name}).status_code, range(20)))
    assert sorted(codes) == [201] + [409] * 19
    listed = api.ok("GET", "/v1/sandboxes", params={"name_prefix": name}).json()["items"]
    assert [s["name"] for s in listed] == [name]


def test_lookups_are_shared(api, own_gateway, emulator, box):
    """A gateway that has not seen this sandbox asks once, however many callers wait."""
    from client import Client
    fresh = Client(own_gateway())
    api.put(box, "f", b"x")
    emulator.fault({"delay_ms": 500}, method="GET", path_regex=f"/sandboxes/{box}$")
    with emulator.calls() as calls, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: fresh.file(box, "f"), range(8))) == [b"x"] * 8
    assert calls.seen().count(("GET", box)) == 1, calls.seen()


def test_thirty_runs_at_once_keep_apart(api, box):
    def one(i):
        r = api.run(box, shell=f"head -c {i * 1000} /dev/urandom | tee f{i} | sha256sum; echo {i} >&2; exit {i}")
        return r["exit_code"] == i and r["err"] == b"%d\n" % i and \
            r["out"].split()[0].decode() == sha256(api.file(box, f"f{i}"))
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert all(pool.map(one, range(30)))
