#!/usr/bin/env python3
"""Runs a shell line in a sandbox and shows its output as it is printed: stream.py SANDBOX 'LINE'

URL and TOKEN come from the environment; needs python3-websocket and python3-requests.  The connection may break at
any time: the loop attaches again at the offsets it has reached, and nothing is lost or shown twice.
"""
import json
import os
import sys

import requests
import websocket

url, auth = os.environ["URL"], {"Authorization": "Bearer " + os.environ["TOKEN"]}
base = f"{url}/v1/sandboxes/{sys.argv[1]}"
answer = requests.post(base + "/processes", headers=auth, json={"shell": sys.argv[2]})
if answer.status_code != 201:
    sys.exit(answer.text)
attach = f"{base}/processes/{answer.json()['process_id']}/attach".replace("http", "ws", 1)

offset, done = {1: 0, 2: 0}, None
while done is None:
    try:
        socket = websocket.create_connection(f"{attach}?stdout={offset[1]}&stderr={offset[2]}",
                                             header=auth, subprotocols=["sandgate.v1"])
        while done is None:
            kind, frame = socket.recv_data()
            if kind == websocket.ABNF.OPCODE_BINARY:      # channel, offset, bytes
                channel, at, data = frame[0], int.from_bytes(frame[1:9], "big"), frame[9:]
                (sys.stdout if channel == 1 else sys.stderr).buffer.write(data)
                sys.stdout.flush()
                offset[channel] = at + len(data)
            elif kind == websocket.ABNF.OPCODE_TEXT:
                message = json.loads(frame)
                if message["type"] == "exit":
                    done = message["exit_code"] if message["exit_code"] is not None else 1
                elif message["type"] == "error" and not message.get("retryable"):
                    sys.exit(f"{message['code']}: {message.get('detail', '')}")
            elif kind == websocket.ABNF.OPCODE_CLOSE:
                break
    except (websocket.WebSocketConnectionClosedException, ConnectionError):
        pass  # attach again at `offset`
sys.exit(done)
