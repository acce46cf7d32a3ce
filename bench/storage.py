"""What the store adds to a call, on SQLite and on a PostgreSQL that syncs to its disk."""
import pathlib
import subprocess
import sys

from stack import BUILD, ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))
from pg_server import PgServer  # noqa: E402

REACH_MS = 0.3


def measured(kind, place):
    out = subprocess.run([BUILD / "bench" / "store", kind, place], check=True, capture_output=True, text=True, timeout=600).stdout
    for line in out.splitlines():
        what, callers, rate, p50, p99, failed = line.split()
        reach = f" (reach {REACH_MS} ms)" if callers == "1" and what != "durable" else ""
        print(f"store {kind} {what}, {callers} callers: p50 {float(p50) / 1000:.3f} ms{reach}, p99 {float(p99) / 1000:.2f} ms, "
              f"{rate}/s, {failed} failed", flush=True)


def bench_store(work):
    """Without a gateway: a call through it has the noise of everything else."""
    subprocess.run(["ninja", "-C", BUILD, "bench/store"], check=True, stdout=subprocess.DEVNULL)
    measured("sqlite", pathlib.Path(work) / "bench.db")
    with PgServer(fsync="on", full_page_writes="on") as pg:
        measured("postgres", pg.url)
