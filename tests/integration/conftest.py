"""Fixtures: `box` is a fresh sandbox's name, `api` a client of a gateway in front of `emulator`.

    def test_it(api, box):
        assert api.run(box, "echo", "hi")["out"] == b"hi\\n"

Emulator and gateway are shared by the tests of one worker, which run one after another: faults are cleared and
sandboxes destroyed after each test.  A test that needs its own takes `own_gateway`.  The logs of a failed test's
processes are attached to its report.
"""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from client import Client  # noqa: E402
from databases import Postgres, Sqlite  # noqa: E402
from emulator_api import Api  # noqa: E402
from harness import Emulator, Gateway, shared_base  # noqa: E402
from pg_server import PgServer  # noqa: E402


class Stack:
    """The processes of one worker, started when first asked for and again after one has died."""

    def __init__(self, directory, base):
        self.directory, self.base, self.n = directory, base, 0
        self.running = {}

    def new_directory(self, name):
        self.n += 1
        return self.directory / f"{name}{self.n}"

    def get(self, name, make):
        process = self.running.get(name)
        if process is None or not process.alive():
            process = self.running[name] = make()
        return process

    def emulator(self):
        return self.get("emulator", lambda: Emulator(self.new_directory("emulator"), self.base))

    def gateway(self):
        up = self.emulator()
        found = self.running.get("gateway")
        if found is not None and found.alive() and found.upstream_token != up.token:
            found.end()
        return self.get("gateway", lambda: Gateway(self.new_directory("gateway"), up.url, up.token))

    def no_secret_in(self, process):
        """P50: over all tests of this worker, at the most verbose level."""
        secrets = {name: p.token for name, p in self.running.items()}
        for name, token in secrets.items():
            assert token.rsplit("_", 1)[-1] not in process.text(), f"the {name}'s token is in {process.log}"

    def end(self):
        codes = {name: self.running[name].end() for name in ("gateway", "emulator") if name in self.running}
        bad = {name: code for name, code in codes.items() if code != 0}
        for process in self.running.values():
            self.no_secret_in(process)
        assert not bad, "\n".join(f"{name} ended with {code}:\n{self.running[name].text()[-6000:]}"
                                  for name, code in bad.items())


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    root = tmp_path_factory.getbasetemp()
    return shared_base(root.parent if root.name.startswith("popen-") else root)


@pytest.fixture(scope="session")
def stack(tmp_path_factory, base):
    s = Stack(tmp_path_factory.mktemp("stack"), base)
    yield s
    s.end()


def watched(request, process):
    """Attaches what the process logs from here on to the report, should the test fail."""
    seen = getattr(request.node, "watched", [])
    seen.append((process, len(process.text())))
    request.node.watched = seen
    return process


@pytest.fixture
def emulator(request, stack):
    e = watched(request, stack.emulator())
    yield e
    if e.alive():
        e.clear_faults()


@pytest.fixture
def emu(request, emulator):
    """The emulator's own API, in a project of this test."""
    api = Api(emulator, "prj_" + request.node.name.translate(str.maketrans("[]-.", "____"))[:100])
    yield api
    if emulator.alive():
        api.clean_up()


@pytest.fixture
def own_emulator(request, tmp_path, base):
    """own_emulator("--plan=hobby", state="s"): one for this test alone; must end cleanly unless it was killed."""
    made = []

    def make(*options, state=None):
        directory = tmp_path / (state or f"emulator{len(made)}")
        e = Emulator(directory, base, *options)
        made.append(watched(request, e))
        return Api(e, "prj_own")

    yield make
    for e in made:
        if e.alive():
            code = e.end()
            assert code == 0, f"the emulator ended with {code}:\n{e.text()[-6000:]}"


@pytest.fixture
def gateway(request, stack, emulator):
    return watched(request, stack.gateway())


@pytest.fixture
def api(gateway):
    client = Client(gateway)
    yield client
    if gateway.alive():
        client.clean_up()


@pytest.fixture
def box(api):
    return api.sandbox()


@pytest.fixture(scope="session")
def postgres():
    """The PostgreSQL of this worker."""
    with PgServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    """An empty database that gateways of this test share: own_gateway(store=database).  The test runs on each kind."""
    if request.param == "sqlite":
        return Sqlite(tmp_path / "database")
    return Postgres(tmp_path / "database", request.getfixturevalue("postgres"))


@pytest.fixture
def own_gateway(request, tmp_path, emulator):
    """own_gateway(url=…, token=…, store=database, SERVER_WORKERS=2): a gateway for this test alone; must end cleanly."""
    made = []

    def make(url=None, token=None, store=None, **env):
        env = {**(store.settings() if store else {}), **env}
        g = Gateway(tmp_path / f"gateway{len(made)}", url or emulator.url, token or emulator.token, env)
        made.append(watched(request, g))
        return g

    yield make
    for g in made:
        code = g.end()
        assert code == 0, f"the gateway ended with {code}:\n{g.text()[-6000:]}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for process, start in getattr(item, "watched", []):
            text = process.text()
            report.sections.append((f"log {process.log}", text[start if start < len(text) else 0:][-8000:]))


@pytest.fixture
def own(request, tmp_path, emulator):
    """own(store=database, …settings): (gateway, client) for this test alone; what is killed need not end cleanly."""
    made = []

    def make(store=None, **settings):
        settings = {**(store.settings() if store else {}), **settings}
        gateway = watched(request, Gateway(tmp_path / f"gateway{len(made)}", emulator.url, emulator.token, settings))
        made.append((gateway, Client(gateway)))
        return made[-1]

    yield make
    for gateway, client in made:
        if gateway.alive():
            client.clean_up()
            code = gateway.end()
            assert code == 0, f"the gateway ended with {code}:\n{gateway.text()[-6000:]}"
