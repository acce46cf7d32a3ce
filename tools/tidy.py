#!/usr/bin/env python3
"""Runs clang-tidy over the project's own sources in a compile database, two at a time, and prints what it found.
Files whose text and headers did not change since a clean run are not looked at again (stamps in the build dir)."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

build = pathlib.Path(sys.argv[1])
root = pathlib.Path.cwd()
ours = {"base", "config", "guest", "vercel", "store", "guestlink", "auth", "control", "transfer", "relay", "routes", "server",
        "emulator"}
files = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
    if path.is_relative_to(root) and path.suffix == ".c" and path.relative_to(root).parts[0] in ours:
        files.setdefault(path, entry)  # the room's own compilation comes before those of tests

state = hashlib.sha256(pathlib.Path(".clang-tidy").read_bytes())
for header in sorted(p for room in ours for p in pathlib.Path(room).rglob("*.h")):
    state.update(header.read_bytes())
stamps = build / "tidy"
stamps.mkdir(exist_ok=True)
(stamps / "compile_commands.json").write_text(json.dumps(list(files.values())))  # once each


def check(path):
    key = state.copy()
    key.update(path.read_bytes())
    stamp = stamps / (path.relative_to(root).as_posix().replace("/", "_") + "." + key.hexdigest()[:16])
    if stamp.exists():
        return ""
    # The compiler's own warnings are the build's business; gcc's flags mean nothing to clang.
    run = subprocess.run(["clang-tidy-14", "-quiet", "-p", str(stamps), "--extra-arg=-Wno-everything", "--extra-arg=-Wno-unknown-warning-option", str(path)],
                         capture_output=True, text=True)
    found = [line for line in run.stdout.splitlines() if " warning: " in line or " error: " in line]
    if run.returncode == 0 and not found:
        stamp.touch()
        return ""
    return "\n".join(found) or run.stderr


with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
    for text in pool.map(check, sorted(files)):
        if text:
            print(text)
