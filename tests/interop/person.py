"""Runs a program on a terminal of its own and plays a person's part: python3 person.py STEPS PROGRAM [ARG…]

STEPS is a JSON array, done in order: {"await": TEXT} waits until that has been shown since the last one awaited
(without carriage returns: the terminal of a client in raw mode doubles them),
{"type": TEXT} types it, {"resize": [COLUMNS, ROWS]} drags the window, {"signal": NAME} is sent to the program itself.
{"start": [COLUMNS, ROWS]} comes first, if at all.  Prints {"code": …, "shown": …} when the program has ended.
"""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

PATIENCE = 30


def resize(fd, columns, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def main():
    steps, argv = json.loads(sys.argv[1]), sys.argv[2:]
    size = steps.pop(0)["start"] if steps and "start" in steps[0] else [80, 24]
    pid, fd = pty.fork()
    if pid == 0:
        resize(0, *size)
        os.execvp(argv[0], argv)
    shown, seen, deadline = b"", 0, time.monotonic() + PATIENCE
    while True:
        while steps and "await" not in steps[0]:
            step = steps.pop(0)
            if "type" in step:
                os.write(fd, step["type"].encode())
            elif "resize" in step:
                resize(fd, *step["resize"])
            else:
                os.kill(pid, getattr(signal, step["signal"]))
        if steps:
            text = steps[0]["await"].encode()
            at = shown.find(text, seen)
            if at >= 0:
                seen = at + len(text)
                steps.pop(0)
                continue
        if not select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
            break
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        shown += more.replace(b"\r", b"")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps({"code": code, "shown": shown.decode(errors="replace"), "left": steps}))


main()
