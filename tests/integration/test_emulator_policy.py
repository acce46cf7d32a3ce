"""A network policy is never accepted and ignored: it is refused, or remembered by an emulator that says so each time."""

DENY = {"mode": "deny-all"}


def test_policies_are_refused_without_enforcement(own_emulator):
    emu = own_emulator()
    assert "record-only" in emu.create_refused(400, "bad_request", networkPolicy=DENY)
    box = emu.create(networkPolicy={"mode": "allow-all"})
    emu.refused(400, "bad_request", "POST", box.path + "/network-policy", DENY)
    assert "X-Sandgate-Policy" not in emu.request("GET", f"/v2/sandboxes/{box.name}").headers


def test_record_only_says_so_in_every_answer(own_emulator):
    emu = own_emulator("--policy=record-only")
    box = emu.create(networkPolicy=DENY)
    assert box.sandbox["networkPolicy"] == DENY
    for path, status in ((f"/v2/sandboxes/{box.name}", 200), ("/v2/sandboxes/none", 404), ("/v2/nowhere", 404)):
        answer = emu.request("GET", path)
        assert (answer.status_code, answer.headers["X-Sandgate-Policy"]) == (status, "record-only")
