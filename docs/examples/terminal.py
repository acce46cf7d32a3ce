#!/usr/bin/env python3
"""A terminal in a sandbox: terminal.py SANDBOX [PROGRAM [ARGUMENT…]], or terminal.py --attach ID SANDBOX

URL and TOKEN come from the environment; needs python3-websocket.  Ctrl-] detaches and prints how to come back: the
program goes on.  The connection may break at any time: what was typed is kept until it was accepted, and output goes
on where it was.
"""
import argparse
import fcntl
import json
import os
import secrets
import select
import signal
import struct
import sys
import termios
import time
import tty

import websocket

args = argparse.ArgumentParser()
args.add_argument("--attach", metavar="ID", help="go on with this process")
args.add_argument("sandbox")
args.add_argument("argv", nargs=argparse.REMAINDER)
args = args.parse_args()

base = os.environ["URL"].replace("http", "ws", 1) + f"/v1/sandboxes/{args.sandbox}"
auth = {"Authorization": "Bearer " + os.environ["TOKEN"]}
process = args.attach or "tty-" + secrets.token_hex(8)  # our own id: asking twice starts once
started = bool(args.attach)
shown = None if args.attach else 0   # offset after the last byte of output that was shown
typed, accepted = bytearray(), None  # input that was not accepted yet, and where it begins


def size():
    try:
        rows, cols = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))[:2]
    except OSError:
        rows = cols = 0
    return {"cols": cols or 80, "rows": rows or 24}


def connect():
    """A socket that is attached, or about to be: the first time what to run goes first."""
    where = size()
    if started:
        offset = 0 if shown is None else shown
        path = f"{base}/processes/{process}/attach?pty={offset}&cols={where['cols']}&rows={where['rows']}&mode=write&takeover=1"
    else:
        path = f"{base}/exec"
    ws = websocket.create_connection(path, header=auth, subprotocols=["sandgate.v1"], timeout=60)
    ws.settimeout(None)
    if not started:
        ws.send(json.dumps({"id": process, "argv": args.argv or ["bash", "-l"], "pty": where}))
    return ws


def send(ws, data, offset):
    ws.send_binary(b"\0" + offset.to_bytes(8, "big") + data)


def session(ws):
    """Until the connection ends: (exit status, None), or (None, close code)."""
    global started, shown, accepted
    greeted = False
    while True:
        watched = [ws.sock] + ([0] if greeted and len(typed) < 64 * 1024 else [])  # never more than the window
        ready = select.select(watched, [], [])[0]
        if 0 in ready:
            data = os.read(0, 4096)
            keys, detach, _ = data.partition(b"\x1d")  # Ctrl-]
            if keys:
                send(ws, keys, accepted + len(typed))
                typed.extend(keys)
            if detach or not data:
                ws.send(json.dumps({"type": "detach"}))
                return 0, None
        if ws.sock not in ready:
            continue
        kind, frame = ws.recv_data()
        if kind == websocket.ABNF.OPCODE_CLOSE:
            return None, int.from_bytes(frame[:2], "big")
        if kind == websocket.ABNF.OPCODE_BINARY:
            os.write(1, frame[9:])
            shown = int.from_bytes(frame[1:9], "big") + len(frame) - 9
            continue
        message = json.loads(frame)
        if message["type"] in ("hello", "stdin"):
            now = message["stdin"]["accepted"] if message["type"] == "hello" else message["accepted"]
            del typed[:max(0, now - (now if accepted is None else accepted))]
            accepted = now
        if message["type"] == "hello":
            started = greeted = True
            if typed:
                send(ws, bytes(typed), accepted)
        elif message["type"] == "exit":
            return (1 if message["exit_code"] is None else message["exit_code"]), None
        elif message["type"] == "error" and not message["retryable"]:
            os.write(2, f"\r\n{message['code']}: {message.get('detail', '')}\r\n".encode())


def main():
    status, wait = None, 0.1
    while status is None:
        try:
            ws = connect()
            signal.signal(signal.SIGWINCH, lambda *_: ws.send(json.dumps({"type": "resize", **size()})))
            status, code = session(ws)
            if code in (1011, 4001, 4010):  # failed, taken over, the sandbox is gone
                status = 1
            wait = 0.1
        except websocket.WebSocketBadStatusException as refused:
            sys.exit(f"\r\n{refused}\r")
        except (OSError, websocket.WebSocketException):  # again, from where we were
            time.sleep(wait)
            wait = min(wait * 2, 5)
    return status


saved = termios.tcgetattr(0) if os.isatty(0) else None
try:
    if saved:
        tty.setraw(0)
    status = main()
finally:
    if saved:
        termios.tcsetattr(0, termios.TCSADRAIN, saved)
if saved:
    print(f"\n{process}: come back with --attach {process} {args.sandbox}" if status == 0 else "")
sys.exit(status)
