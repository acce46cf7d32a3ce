#!/usr/bin/env python3
"""Uploads a file into a sandbox, whatever happens to the connection on the way: upload.py SANDBOX FILE PATH

URL and TOKEN come from the environment; needs nothing but Python.  The upload is made first, so it has an address; then
the file is sent there, and after every failure from where the sandbox has it.  The old file at PATH stays as it is until
all of the new one is there, and the sandbox has compared its digest.
"""
import base64
import hashlib
import http.client
import os
import sys
import time
import urllib.parse

PIECE = 1 << 20
target, sandbox, name, path = urllib.parse.urlsplit(os.environ["URL"]), *sys.argv[1:4]


def ask(method, place, body=None, **fields):
    """The answer's status and headers, its body read; OSError or HTTPException when there is none."""
    connect = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    connection = connect(target.netloc, timeout=60)
    try:
        headers = {key.replace("_", "-"): str(value) for key, value in fields.items()}
        connection.request(method, target.path.rstrip("/") + place, body,
                           {"Authorization": "Bearer " + os.environ["TOKEN"], **headers})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status in (400, 401, 403, 404, 412, 413, 422, 507) or \
                (answer.status >= 400 and answer.headers.get("Upload-Complete") == "?1"):
            sys.exit(f"{answer.status} {text}")  # the same once more would not help
        return answer.status, answer.headers
    finally:
        connection.close()


def pieces(file, at, size):
    file.seek(at)
    while at < size:
        data = file.read(min(PIECE, size - at))
        if not data:
            sys.exit(f"{name} became shorter")
        at += len(data)
        yield data


with open(name, "rb") as file:
    size, digest = os.fstat(file.fileno()).st_size, hashlib.sha256()
    for data in pieces(file, 0, size):
        digest.update(data)
    status, head = ask("POST", f"/v1/sandboxes/{sandbox}/files/uploads?" + urllib.parse.urlencode({"path": path}), b"",
                       Upload_Complete="?0", Upload_Length=size,
                       Repr_Digest=f"sha-256=:{base64.b64encode(digest.digest()).decode()}:")
    if status != 201:
        sys.exit(f"the upload was not made: {status}")
    place, offset, tries = head["Location"], 0, 0
    while True:
        try:
            status, head = ask("PATCH", place, pieces(file, offset, size), Content_Length=size - offset,
                               Content_Type="application/partial-upload", Upload_Offset=offset, Upload_Complete="?1")
            if status < 300:
                break
        except (OSError, http.client.HTTPException) as reason:
            print(f"{reason or 'cut'}: going on", file=sys.stderr)
        time.sleep(min(0.2 * 2 ** tries, 10))
        try:
            status, head = ask("HEAD", place)
            if head.get("Upload-Complete") == "?1":
                break  # only the answer was lost
            if status < 300:
                tries = 0 if int(head["Upload-Offset"]) > offset else tries + 1
                offset = int(head["Upload-Offset"])
        except (OSError, http.client.HTTPException):
            tries += 1
        if tries > 12:
            sys.exit("given up")
print(f"{size} bytes")
