"""Directories up and down as tar and tar.gz: B11 P34 P36 A16."""
import base64
import gzip
import io
import os
import pathlib
import secrets
import socket
import tarfile
import zlib

import pytest

from harness import sha256, until

MIB = 1 << 20
SMALL_FILES = 100000 if "SANDGATE_LONG" in os.environ else 5000


def place(box):
    return f"/v1/sandboxes/{box}/files/archive"


def down(api, box, path, status=200, **query):
    return api.ok("GET", place(box), status, params={"path": path, **query})


def up(api, box, path, data, kind="application/x-tar", **query):
    return api.ok("PUT", place(box), params={"path": path, **query}, data=data, headers={"Content-Type": kind}).json()["entries"]


def refused(api, box, data, code="archive_refused", status=422, kind="application/x-tar", **query):
    return api.refused("PUT", place(box), status, code, params={"path": "t", "parents": "true", **query}, data=data,
                       headers={"Content-Type": kind})


def tree(api, box, path):
    """Every entry below path: type, mode, time, target, name, and the digest of every file."""
    script = ("cd \"$0\" && find . -mindepth 1 -printf '%y %m %T@ %l %P\\0' | sort -z | base64 -w0; echo; "
              "find . -type f -print0 | sort -z | xargs -0 -r sha256sum -z | base64 -w0")
    facts, sums = api.run(box, "sh", "-c", script, path)["out"].split(b"\n")[:2]
    return base64.b64decode(facts), base64.b64decode(sums)


def make_tree(api, box, where):
    """Whatever a tree may hold: modes, times, links, hard links, empty directories, long and odd names."""
    api.run(box, shell=f"""set -e; mkdir -p {where} && cd {where}
        mkdir -p empty deep/er/and/deeper; printf hello > hello; chmod 751 hello; : > nothing
        printf x > deep/er/and/deeper/x; ln -s ../hello deep/link; ln -s nowhere dangling; ln hello hard
        printf odd > "$(printf 'a\\377\\376b')"; printf nl > "$(printf 'new\\nline')"; printf q > "it's \\"quoted\\" \\$(x)"
        printf ü > ünï; mkdir "$(printf 'd\\303')"; head -c 3000000 /dev/urandom > big
        n=$(printf 'n%.0s' $(seq 1 250)); mkdir -p $n/$n && printf long > $n/$n/$n && ln -s $n/$n/$n longlink
        chmod 700 empty; chmod 555 deep/er; find . -exec touch -h -d '2001-02-03 04:05:06.789' {{}} +""")


@pytest.fixture(scope="module")
def entries_of():
    def read(data):
        with tarfile.open(fileobj=io.BytesIO(data), errorlevel=2) as tar:
            return {m.name.encode("utf-8", "surrogateescape"): m for m in tar}
    return read


# ---- down and up again ----

def test_round_trip_B11(api, box, entries_of):
    make_tree(api, box, "src")
    api.run(box, shell="mkfifo src/fifo")
    plain, packed = down(api, box, "src"), down(api, box, "src", format="tar.gz")
    assert (plain.headers["Content-Type"], packed.headers["Content-Type"]) == ("application/x-tar", "application/gzip")
    assert plain.headers["Content-Disposition"] == 'attachment; filename="src.tar"'
    assert packed.headers["Content-Disposition"] == 'attachment; filename="src.tar.gz"'
    data = plain.content
    assert gzip.decompress(packed.content) == data
    entries = entries_of(data)
    assert b"a\xff\xfeb" in entries and "ünï".encode() in entries and b"fifo" not in entries
    assert entries[b"hello"].mode & 0o7777 == 0o751 and int(entries[b"hello"].mtime) == entries[b"big"].mtime // 1
    assert (entries[b"dangling"].issym(), entries[b"dangling"].linkname) == (True, "nowhere")
    assert entries[b"big"].size == 3000000
    api.run(box, shell="rm src/fifo")
    for i, (body, kind) in enumerate([(data, "application/x-tar"), (packed.content, "application/gzip"),
                                      (data, "application/octet-stream"), (packed.content, "application/octet-stream")]):
        assert up(api, box, f"to/{i}", body, kind, parents="true") >= len(entries)
        assert whole_seconds(tree(api, box, f"to/{i}")) == whole_seconds(tree(api, box, "src"))


def whole_seconds(facts):
    """tar keeps seconds; a directory is as its entry says."""
    names, sums = facts
    return [line.replace(b".7890000000", b".0000000000") for line in names.split(b"\0")], sums


def test_both_ways_with_the_tar_inside_B11(api, box):
    make_tree(api, box, "src")
    api.put(box, "ours.tar", down(api, box, "src").content)
    api.run(box, shell="set -e; mkdir by-tar && tar -C by-tar -xpf ours.tar")
    assert whole_seconds(tree(api, box, "by-tar")) == whole_seconds(tree(api, box, "src"))
    for kind in ("gnu", "pax"):
        api.run(box, shell=f"tar -C src --format={kind} -cf {kind}.tar . && gzip -k {kind}.tar")
        for name, of in ((f"{kind}.tar", "application/x-tar"), (f"{kind}.tar.gz", "application/gzip")):
            up(api, box, f"to/{name}", api.file(box, name), of, parents="true")
            assert whole_seconds(tree(api, box, f"to/{name}")) == whole_seconds(tree(api, box, "src"))


def test_python_makes_and_reads_it_B11(api, box, tmp_path):
    source = tmp_path / "s"
    (source / "d").mkdir(parents=True)
    names = [f"d/{i}-{'x' * (i % 200)}" for i in range(300)]
    for i, name in enumerate(names):
        (source / name).write_bytes(secrets.token_bytes(i * 7))
    (source / "l").symlink_to("d/0-")
    for mode, kind in (("w", "application/x-tar"), ("w:gz", "application/gzip")):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode=mode) as tar:
            tar.add(source, ".")
        where = "py" + kind[-3:]
        up(api, box, where, made.getvalue(), kind, parents="true")
        back = tmp_path / where
        with tarfile.open(fileobj=io.BytesIO(down(api, box, where, format="tar.gz").content)) as tar:
            tar.extractall(back, filter="fully_trusted") if hasattr(tarfile, "fully_trusted_filter") else tar.extractall(back)
        for name in names:
            assert (back / name).read_bytes() == (source / name).read_bytes()
        assert os.readlink(back / "l") == "d/0-"


def test_format_and_names_P36(api, box):
    api.run(box, shell="mkdir -p 'ünï \"q\"/x' && printf 'X: y' > \"ünï \\\"q\\\"/f\"; mkdir \"$(printf 'a\\r\\nX-Evil: 1')\"")
    answer = api.ok("GET", place(box), params={"path": 'ünï "q"'}, headers={"Accept": "application/gzip, */*"})
    assert answer.headers["Content-Type"] == "application/gzip" and "Accept" in answer.headers["Vary"]
    assert answer.headers["Content-Disposition"] == \
        "attachment; filename=\"__n__ _q_.tar.gz\"; filename*=UTF-8''%C3%BCn%C3%AF%20%22q%22.tar.gz"
    answer = down(api, box, "a\r\nX-Evil: 1")
    assert "X-Evil" not in answer.headers and answer.headers["Content-Disposition"].isascii()
    assert down(api, box, ".").headers["Content-Disposition"] == 'attachment; filename="archive.tar"'
    head = api.ok("HEAD", place(box), params={"path": "."})
    assert head.headers["Content-Type"] == "application/x-tar" and not head.content
    assert api.call("HEAD", place(box), params={"path": "nowhere"}).status_code == 404


def test_include_and_exclude_B11(api, box, entries_of):
    api.run(box, shell="mkdir -p s/node_modules/m s/src/lib s/.git && cd s && touch a.c b.h src/c.c src/lib/d.c src/lib/e.o node_modules/m/f.c .git/g")

    def files(**query):
        return sorted(n.decode() for n, m in entries_of(down(api, box, "s", **query).content).items() if m.isfile())
    assert files(include="**/*.c") == ["a.c", "node_modules/m/f.c", "src/c.c", "src/lib/d.c"]
    assert files(include=["**/*.c", "*.h"], exclude=["node_modules", ".git"]) == ["a.c", "b.h", "src/c.c", "src/lib/d.c"]
    assert files(exclude=["**/*.c", ".git/**", "**/*.o"]) == ["b.h"]
    api.refused("GET", place(box), 422, "invalid_field", params={"path": "s", "include": ""})
    api.refused("GET", place(box), 422, "invalid_field", params={"path": "s", "format": "zip"})
    api.refused("GET", place(box), 422, "unknown_field", params={"path": "s", "depth": "1"})


def test_errors_come_before_a_200(api, box, emulator):
    api.put(box, "f", b"x")
    api.refused("GET", place(box), 404, "file_not_found", params={"path": "nowhere"})
    api.refused("GET", place(box), 422, "not_directory", params={"path": "f"})
    api.refused("GET", place(box), 403, "permission_denied", params={"path": "/root"})
    assert down(api, box, "/root", sudo="true").content
    api.refused("GET", place(box), 422, "invalid_path")


def test_a_cut_upstream_is_repeated_or_seen(api, box, emulator):
    """Parts that are cut are read again; what cannot be had cuts the answer, which never looks complete."""
    api.run(box, shell="mkdir d && head -c 6000000 /dev/urandom > d/f")
    whole = down(api, box, "d").content
    emulator.fault({"cut_after_bytes": 1000000}, method="POST", path_regex="/fs/read$", times=2)
    assert down(api, box, "d").content == whole
    emulator.fault({"cut_after_bytes": 1000000}, method="POST", path_regex="/fs/read$")
    for query in ({}, {"format": "tar.gz"}):
        with pytest.raises(Exception):
            got = api.call("GET", place(box), params={"path": "d", **query})
            assert got.status_code >= 500, "a part of it as the whole"
            raise ConnectionError


# ---- hostile archives ----

def tar_of(*members, end=True):
    """A tar, byte by byte where tarfile would not."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, more in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = 0o777
            if kind == tarfile.REGTYPE:
                info.size = len(more)
                tar.addfile(info, io.BytesIO(more))
            else:
                info.linkname = more or ""
                if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
                    info.devmajor, info.devminor = 1, 3
                tar.addfile(info)
    data = out.getvalue()
    return data if end else data.rstrip(b"\0")


GOOD = ("good", tarfile.REGTYPE, b"fine")
HOSTILE = {
    "dotdot": [GOOD, ("../evil", tarfile.REGTYPE, b"x")],
    "dotdot_inside": [GOOD, ("a/../../evil", tarfile.REGTYPE, b"x")],
    "absolute": [GOOD, ("/tmp/evil", tarfile.REGTYPE, b"x")],
    "link_then_write": [GOOD, ("l", tarfile.SYMTYPE, "/tmp"), ("l/evil", tarfile.REGTYPE, b"x")],
    "link_up_then_write": [GOOD, ("l", tarfile.SYMTYPE, ".."), ("l/evil", tarfile.REGTYPE, b"x")],
    "link_leaves": [GOOD, ("l", tarfile.SYMTYPE, "../../../etc/passwd")],
    "absolute_link": [GOOD, ("l", tarfile.SYMTYPE, "/etc/passwd")],
    "chain": [GOOD, ("a", tarfile.SYMTYPE, "b"), ("b", tarfile.SYMTYPE, ".."), ("a/evil", tarfile.REGTYPE, b"x")],
    "hard_link_out": [GOOD, ("h", tarfile.LNKTYPE, "/etc/passwd")],
    "hard_link_up": [GOOD, ("h", tarfile.LNKTYPE, "../outside")],
    "character_device": [GOOD, ("null", tarfile.CHRTYPE, None)],
    "block_device": [GOOD, ("sda", tarfile.BLKTYPE, None)],
    "fifo": [GOOD, ("p", tarfile.FIFOTYPE, None)],
    "two_types": [GOOD, ("x", tarfile.DIRTYPE, None), ("x", tarfile.REGTYPE, b"x")],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives_are_refused_whole_P34(api, box, kind):
    api.run(box, shell="mkdir t; printf old > t/good; printf out > outside")
    before = tree(api, box, ".")
    data = tar_of(*HOSTILE[kind])
    for body, form in ((data, "application/x-tar"), (gzip.compress(data), "application/gzip")):
        document = refused(api, box, body, kind=form)
        assert document["outcome"] == "not_started"
        named = HOSTILE[kind][-1][0]
        assert named in document["detail"] or HOSTILE[kind][1][0] in document["detail"], document["detail"]
    assert tree(api, box, ".") == before
    assert api.run(box, shell="ls /tmp/evil evil ../evil 2>/dev/null | wc -l")["out"] == b"0\n"


def test_links_elsewhere_are_taken_where_it_is_said_B11(api, box):
    """A Python environment is full of them; what lies behind them is as safe as before."""
    links = [("python", tarfile.SYMTYPE, "/usr/bin/python3"), ("up", tarfile.SYMTYPE, "../.."), GOOD]
    assert up(api, box, "t", tar_of(*links), parents="true", any_links="true") == 3
    assert api.run(box, "readlink", "t/python", "t/up")["out"] == b"/usr/bin/python3\n../..\n"
    for kind in ("link_then_write", "link_up_then_write", "chain", "dotdot", "hard_link_out"):
        refused(api, box, tar_of(*HOSTILE[kind]), any_links="true")
    refused(api, box, tar_of(("up/evil", tarfile.REGTYPE, b"x")), any_links="true")
    assert api.run(box, shell="ls evil ../evil /tmp/evil 2>/dev/null | wc -l")["out"] == b"0\n"


def test_links_that_are_there_lead_nowhere_P34(api, box):
    """An entry through a link that exists in the target and leads out of it."""
    api.run(box, shell="mkdir t other; ln -s ../other t/out; ln -s /tmp t/tmp")
    for name in ("out/evil", "tmp/evil"):
        refused(api, box, tar_of(GOOD, (name, tarfile.REGTYPE, b"x")))
    assert api.run(box, shell="ls other /tmp/evil t/good 2>/dev/null")["out"] == b"other:\n"


def test_damaged_archives_are_refused_whole_P34(api, box):
    data = tar_of(GOOD, ("b", tarfile.REGTYPE, secrets.token_bytes(3000)))
    broken = bytearray(data)
    broken[512 + 512 + 3] ^= 1  # in the second entry's name: its sum is wrong
    packed = gzip.compress(data)
    cases = [(b"", "application/x-tar"), (b"no tar at all" * 100, "application/x-tar"), (data[:2000], "application/x-tar"),
             (bytes(broken), "application/x-tar"), (data + b"trailing", "application/x-tar"), (packed[:-5], "application/gzip"),
             (packed + b"trailing", "application/gzip"), (data, "application/gzip"), (packed, "application/x-tar"),
             (packed[:40] + bytes(20) + packed[60:], "application/octet-stream"), (b"", "application/gzip")]
    for i, (body, kind) in enumerate(cases):
        assert refused(api, box, body, kind=kind)["detail"], i
    api.refused("GET", f"/v1/sandboxes/{box}/files", 404, "file_not_found", params={"path": "t"})


def test_what_archives_do_not_take(api, box, emulator):
    data = tar_of(GOOD)
    api.get(box)
    with emulator.calls() as calls:
        refused(api, box, data, "unsupported_media_type", 415, kind="application/zip")
        refused(api, box, data, "unknown_field", strip="1")
        api.refused("PUT", place(box), 422, "unsupported", params={"path": "t"}, data=data,
                    headers={"Content-Type": "application/x-tar", "Content-Encoding": "gzip"})
        api.refused("PUT", place(box), 422, "unsupported", params={"path": "t"}, data=data,
                    headers={"Content-Type": "application/x-tar", "If-Match": "*"})
    assert len(calls) == 0
    api.refused("PUT", place(box), 404, "file_not_found", params={"path": "missing"}, data=data,
                headers={"Content-Type": "application/x-tar"})
    sha = base64.b64encode(bytes.fromhex(sha256(data))).decode()
    packed = gzip.compress(data)
    api.refused("PUT", place(box), 422, "digest_mismatch", params={"path": "t", "parents": "true"}, data=packed,
                headers={"Content-Type": "application/gzip", "Content-Digest": f"sha-256=:{sha}:"})  # that of what is in it
    api.ok("PUT", place(box), params={"path": "t", "parents": "true"}, data=data, headers={"Content-Digest": f"sha-256=:{sha}:"})
    assert api.file(box, "t/good") == b"fine"


def test_ordinary_users_get_no_setuid(api, box):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("s")
        info.mode, info.size, info.uid, info.uname = 0o6755, 1, 0, "root"
        tar.addfile(info, io.BytesIO(b"x"))
    up(api, box, ".", out.getvalue())
    user = api.run(box, "id", "-un")["out"]
    assert api.run(box, "stat", "-c", "%a %U", "s")["out"] == b"755 " + user


# ---- bounds ----

def resident(gateway):
    return int(pathlib.Path(f"/proc/{gateway.child.pid}/statm").read_text().split()[1]) * 4096


def test_a_bomb_is_bounded(api, box, own_gateway):
    """What grows out of all proportion is refused, and neither gateway nor sandbox keep it."""
    from client import Client
    gateway = own_gateway(FILES_UNPACK_FREE_BYTES=4 * MIB)
    client = Client(gateway)
    client.get(box)
    before = resident(gateway)
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MIB)
    data = b"".join(bomb.compress(zeros) for _ in range(512)) + bomb.flush()  # 512 MiB in half a one
    document = refused(client, box, data, kind="application/gzip")
    assert "proportion" in document["detail"]
    assert resident(gateway) - before < 96 * MIB
    until(lambda: api.run(box, shell="find / -xdev -name '.up-*' -size +1k 2>/dev/null | wc -l")["out"] == b"0\n", "nothing is left of it")
    entries = tar_of(*[(f"f{i}", tarfile.REGTYPE, b"") for i in range(3000)])
    up(client, box, "fine", gzip.compress(entries), "application/gzip", parents="true")  # in proportion, or short


def test_many_small_files_in_bounded_memory_B11(api, box, own_gateway, entries_of):
    from client import Client
    gateway = own_gateway()
    client = Client(gateway)
    client.get(box)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for i in range(SMALL_FILES):
            info = tarfile.TarInfo(f"d{i % 7}/file-{i:06}")
            info.size, info.mtime = 5, 10 ** 9
            tar.addfile(info, io.BytesIO(b"%05d" % (i % 100000)))
    data = out.getvalue()
    before = resident(gateway)
    assert up(client, box, "many", gzip.compress(data, 1), "application/gzip", parents="true") >= SMALL_FILES
    assert api.run(box, shell="find many -type f | wc -l")["out"] == b"%d\n" % SMALL_FILES
    with client.call("GET", place(box), params={"path": "many"}, stream=True) as answer:
        assert answer.status_code == 200
        got = b"".join(answer.iter_content(MIB))
    grown = resident(gateway) - before
    entries = entries_of(got)
    assert sum(m.isfile() for m in entries.values()) == SMALL_FILES
    assert grown < 96 * MIB, f"grew by {grown >> 20} MiB"


def test_a_client_that_leaves_leaves_nothing_behind(api, box, gateway):
    """In the middle of a download, and of an upload."""
    api.run(box, shell="mkdir d && head -c 80000000 /dev/zero > d/f")
    for query in ({}, {"format": "tar.gz"}):
        answer = api.call("GET", place(box), params={"path": "d", **query}, stream=True)
        assert answer.status_code == 200 and len(next(answer.iter_content(65536))) > 0
        answer.close()
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall((f"PUT {place(box)}?path=u&parents=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
                      f"Content-Type: application/x-tar\r\nContent-Length: {8 * MIB}\r\n\r\n").encode())
        peer.sendall(tar_of(GOOD)[:1024] + bytes(2 * MIB))
    until(lambda: api.run(box, shell="find / -xdev \\( -name '.down-*' -o -name '.up-*' \\) -size +1k 2>/dev/null | wc -l")["out"] == b"0\n",
          "what was put aside is removed")
    api.refused("GET", f"/v1/sandboxes/{box}/files", 404, "file_not_found", params={"path": "u"})


def test_extracting_that_lasts_is_answered_202(api, box, own_gateway, emulator):
    """No call is silent for longer than 25 s; here, than 0.3."""
    from client import Client
    hasty = Client(own_gateway(RELAY_KEEPALIVE_MS=300))
    hasty.run(box, "true")
    for members, status in ([GOOD], 200), (HOSTILE["dotdot"], 422):
        emulator.fault({"delay_ms": 1500}, times=1, path_regex="/cmd$")
        where = hasty.ok("PUT", place(box), 202, params={"path": "late", "parents": "true"}, data=gzip.compress(tar_of(*members))).headers["Location"]
        answer, _ = until(lambda: (a := hasty.call("GET", where, params={"wait_ms": 200})).status_code != 202 and (a, True), "it ends")
        assert answer.status_code == status, answer.text
        assert answer.json().get("entries") == 1 or answer.json()["code"] == "archive_refused"
    assert api.file(box, "late/good") == b"fine"


def test_a_gateway_that_stops_ends_them(api, box, own_gateway, emulator):
    from client import Client
    gateway = own_gateway(SERVER_DRAIN_TIMEOUT_MS=300)
    api.run(box, shell="mkdir d && head -c 80000000 /dev/urandom > d/f")
    answers = [Client(gateway).call("GET", place(box), params={"path": "d", **query}, stream=True)
               for query in ({}, {"format": "tar.gz"})]
    assert [answer.status_code for answer in answers] == [200, 200]
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall((f"PUT {place(box)}?path=u&parents=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
                      f"Content-Length: {8 * MIB}\r\n\r\n").encode())
        peer.sendall(gzip.compress(bytes(MIB)))
        assert gateway.end() == 0, gateway.text()[-4000:]
    for answer in answers:
        with pytest.raises(OSError):
            assert len(answer.content) > 80000000, "a part of it as the whole"
            raise ConnectionError
