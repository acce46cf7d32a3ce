"""At the most verbose level, logs hold no token and no payload: P49 P50."""
import secrets

from client import Client


def test_nothing_secret_in_the_logs_P50(own_gateway, emulator):
    gateway = own_gateway(SERVER_LOG_LEVEL="debug")
    api = Client(gateway)
    canary = {kind: f"canary-{kind}-{secrets.token_hex(8)}" for kind in ("env", "argv", "file", "output", "tag")}
    box = api.sandbox(env={"SECRET": canary["env"]})
    try:
        api.put(box, "f", canary["file"].encode())
        assert api.run(box, "cat", "f", env={"S": canary["env"]})["out"] == canary["file"].encode()
        pid = api.start(box, "echo", canary["argv"])
        with api.attach(box, pid) as a:
            a.until_close()
        assert api.output(box, pid).content == canary["argv"].encode() + b"\n"
        # refusals and failures are where logs grow careless
        api.refused("GET", "/v1/sandboxes", 401, "unauthenticated", headers={"Authorization": "Bearer " + gateway.token[:-1] + "!"})
        api.refused("GET", "/v1/sandboxes", 400, "credential_in_url", params={"token": gateway.token})
        api.refused("GET", "/v1/sandboxes", 400, "credential_in_url", params={"access_token": gateway.token})
        for fault in ({"status": 401}, {"html": 502}, {"lose_answer": True}):
            emulator.fault(fault, path_regex="/sandboxes$", method="POST", times=1)
            api.call("POST", "/v1/sandboxes", json={"name": "x", "env": {"A": canary["env"]}})
        emulator.clear_faults()
        emulator.fault({"close_before": True}, path_regex="/cmd$", method="POST", times=1)
        api.call("POST", f"/v1/sandboxes/{box}/run", json={"argv": ["echo", canary["argv"]], "env": {"A": canary["env"]}})
    finally:
        emulator.clear_faults()
        api.call("DELETE", "/v1/sandboxes/x")
        api.clean_up()
    log = gateway.text()
    assert gateway.events("request"), "the log is there"
    for name, value in {"gateway token": gateway.token, "its secret": gateway.token.rsplit("_", 1)[1],
                        "upstream token": emulator.token, **canary}.items():
        assert value not in log, f"{name} is in the log"
        assert value not in emulator.text() or name == "upstream token"


def test_token_file_holds_hashes_only(gateway):
    text = gateway.tokens.read_text()
    assert gateway.token.rsplit("_", 1)[1] not in text
    assert gateway.tokens.stat().st_mode & 0o777 == 0o600
