"""Property tests: gateways, emulator and guest as real processes, random programs, random cuts.  See tests/run."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent / "support")]

from exact import TRANSPORTS  # noqa: E402
from harness import shared_base  # noqa: E402


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    root = tmp_path_factory.getbasetemp()
    return shared_base(root.parent if root.name.startswith("popen-") else root)


@pytest.fixture(scope="session")
def transports():
    return list(TRANSPORTS)
