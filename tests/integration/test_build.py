"""The build itself: what --version says, installing with a prefix, and guests that come out the same every time."""
import hashlib
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SANDGATE_BUILD", ROOT / "build" / "asan"))


def output(*argv, **options):
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True, timeout=300,
                          **options).stdout


def test_version_names_commit_and_libraries():
    text = output(BUILD / "server" / "sandgate", "--version")
    for name in ("sandgate 0.", "commit", "libmicrohttpd", "libcurl", "jansson", "OpenSSL", "libuv"):
        assert name.lower() in text.lower(), text
    head = output("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    assert re.search(r"\b[0-9a-f]{7,40}\b", text)[0] in head or "unknown" in text


def test_install_with_prefix(tmp_path):
    subprocess.run(["meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(tmp_path)], check=True,
                   capture_output=True)
    installed = {p.name: p for p in tmp_path.rglob("*") if p.is_file() and os.access(p, os.X_OK)}
    assert {"sandgate", "sandgate-emulator"} <= set(installed), sorted(installed)
    for name in ("sandgate", "sandgate-emulator"):
        assert installed[name].parent.name == "bin"
        assert output(installed[name], "--version").startswith(name)


def test_guests_are_static_and_reproducible(tmp_path):
    """The gateway names a guest by its hash, so the same sources must give the same bytes wherever they are built."""
    options = ["--buildtype=debug", "-Dtests=false"]
    subprocess.run(["meson", "setup", str(tmp_path / "b"), str(ROOT), *options], check=True, capture_output=True)
    for arch, machine in (("x86_64", "X86-64"), ("aarch64", "AArch64")):
        name = f"guest/sandgate-guest-{arch}"
        subprocess.run(["ninja", "-C", str(tmp_path / "b"), name], check=True, capture_output=True)
        first, second = (BUILD / name).read_bytes(), (tmp_path / "b" / name).read_bytes()
        assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
        head = output("readelf", "-hl", BUILD / name)
        assert machine in head and "INTERP" not in head
        assert str(ROOT).encode() not in first and str(tmp_path).encode() not in first
