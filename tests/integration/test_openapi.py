"""docs/openapi.yaml names exactly the routes of routes/table.c and the codes of base/errors.def."""
import re

from harness import ROOT

TEXT = (ROOT / "docs" / "openapi.yaml").read_text()


def test_every_route_is_described_and_no_other():
    table = set(re.findall(r'\{"([A-Z]+)", +"([^"]+)", +ROUTE_', (ROOT / "routes" / "table.c").read_text()))
    assert len(table) >= 20
    described = set()
    paths = TEXT[TEXT.index("\npaths:\n"):TEXT.index("\ncomponents:\n")]
    for path, body in re.findall(r"^  (/\S*):\n((?:    .*\n)*)", paths + "\n", re.M):
        described |= {(method.upper(), path) for method in re.findall(r"^    (get|head|put|post|delete|patch):$", body, re.M)}
    by_get = {("HEAD", path) for method, path in table if method == "GET"}  # served with it, and described where it differs
    assert described - (by_get - table) == table


def test_every_error_code_is_listed():
    codes = re.findall(r'^X\(\w+, "(\w+)"', (ROOT / "base" / "errors.def").read_text(), re.M)
    listed = TEXT[TEXT.index("    ErrorCode:\n"):]
    assert re.findall(r"^        - (\w+)$", listed, re.M) == codes


def test_every_post_with_json_takes_a_key():
    posts = re.findall(r'\{"POST", +"([^"]+)", +ROUTE_\w+, +AUTH_\w+, +BODY_JSON', (ROOT / "routes" / "table.c").read_text())
    assert len(posts) >= 20
    for path in posts:
        described = re.search(rf"^  {re.escape(path)}:\n((?:    .*\n|\n)*)", TEXT, re.M)[1]
        post = described[described.index("    post:\n"):]
        post = re.split(r"^    (?!post:)\S", post, maxsplit=1, flags=re.M)[0]
        assert "#/components/parameters/idempotency_key" in post, path
