#!/usr/bin/env python3
"""Checks that #include lines follow the house: rooms include only rooms below them, and never another room's
private header (…_internal.h).  Prints one line per violation."""
import pathlib
import re
import subprocess

BELOW = {
    "base": set(),
    "config": {"base"},
    "guest": {"base"},
    "vercel": {"base"},
    "store": {"base"},
    "guestlink": {"base", "vercel", "guest"},
    "auth": {"base"},
    "control": {"base", "vercel", "guestlink", "store"},
    "transfer": {"base", "vercel", "guestlink"},
    "relay": {"base", "vercel", "guestlink", "store"},
    "routes": {"base", "vercel", "guestlink", "store", "auth", "control", "transfer", "relay"},
    "server": {"base", "vercel", "guestlink", "store", "auth", "control", "transfer", "relay", "routes", "config"},
    "emulator": {"base"},
}
CONFIG_READERS = re.compile(r"^server/(main|cli|dev|serve|check)[a-z_]*\.[ch]$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')

names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.def"],
                       capture_output=True, text=True, check=True).stdout.split()
for name in names:
    room = name.split("/")[0]
    if room not in BELOW or not pathlib.Path(name).exists():
        continue
    for number, line in enumerate(pathlib.Path(name).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match or "/" not in match[1]:
            if match and pathlib.Path(name).parent.joinpath(match[1]).exists():
                print(f"{name}:{number}: write the path from the root: {match[1]}")
            continue
        target = match[1]
        other = target.split("/")[0]
        if other not in BELOW:
            continue
        if other != room and other not in BELOW[room]:
            print(f"{name}:{number}: {room}/ may not include {target}")
        if other != room and target.endswith("_internal.h"):
            print(f"{name}:{number}: {target} is private to {other}/")
        if room == "guest" and other == "base" and not target.startswith("base/core/"):
            print(f"{name}:{number}: the static guest may only include base/core, not {target}")
        if other == "config" and room == "server" and not CONFIG_READERS.match(name):
            print(f"{name}:{number}: only main and its commands read the configuration")
