"""Python's `websockets` attaches too: a client library that checks what RFC 6455 wants from servers.  A12, U2."""
import asyncio
import json
import struct

import pytest
import websockets

from harness import sha256

LINES = b"".join(b"%d\n" % i for i in range(200000))


def options(api, protocol="sandgate.v1"):
    return {"extra_headers": {"Authorization": "Bearer " + api.token}, "subprotocols": [protocol], "max_size": None}


def url(api, box, pid, **query):
    return f"{api.url.replace('http', 'ws', 1)}/v1/sandboxes/{box}/processes/{pid}/attach?" + \
        "&".join(f"{k}={v}" for k, v in query.items())


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_exact_bytes_over_leaving_and_coming_back_U2(api, box, compression):
    pid = api.start(box, shell="seq 0 199999; exit 3")

    async def all_of_it():
        out, exit_ = bytearray(), None
        for leave in (100_000, 1, 300_000, None):
            async with websockets.connect(url(api, box, pid, stdout=len(out)), compression=compression, **options(api)) as ws:
                assert ws.subprotocol == "sandgate.v1" and ws.extensions == []
                hello = json.loads(await ws.recv())
                assert hello["type"] == "hello" and hello["streams"]["stdout"]["next"] == len(out)
                got = 0
                try:
                    while leave is None or got < leave:
                        message = await ws.recv()
                        if isinstance(message, str):
                            exit_ = json.loads(message)
                            continue
                        assert message[0] == 1 and struct.unpack(">Q", message[1:9])[0] == len(out)
                        out += message[9:]
                        got += len(message) - 9
                except websockets.ConnectionClosedOK:
                    assert ws.close_code == 1000
        return out, exit_

    out, exit_ = asyncio.run(all_of_it())
    assert (len(out), sha256(out)) == (len(LINES), sha256(LINES))
    assert exit_["type"] == "exit" and exit_["exit_code"] == 3


def test_pings_fragments_and_the_closing_handshake(api, box):
    pid = api.start(box, "sleep", "600")

    async def talk():
        async with websockets.connect(url(api, box, pid), **options(api)) as ws:
            assert json.loads(await ws.recv())["type"] == "hello"
            for payload in (b"", b"x" * 125):
                await asyncio.wait_for(await ws.ping(payload), 30)
            await ws.send(iter(['{"type":', '"det', 'ach"}']))  # a message in three frames
            with pytest.raises(websockets.ConnectionClosedOK):
                await ws.recv()
            assert (ws.close_code, ws.close_reason) == (1000, "detached")
        async with websockets.connect(url(api, box, pid), **options(api)) as ws:
            await ws.recv()
            await ws.close(4321, "own code")
            assert ws.close_code == 4321, "our code comes back"

    asyncio.run(talk())
    assert api.process(box, pid)["state"] == "running"


def test_refusals_are_http(api, box):
    async def refused(**kw):
        with pytest.raises(websockets.InvalidStatusCode) as e:
            await websockets.connect(url(api, box, "nobody"), **{**options(api), **kw})
        return e.value.status_code

    assert asyncio.run(refused(extra_headers={})) == 401
    assert asyncio.run(refused(subprotocols=["other"])) == 400
