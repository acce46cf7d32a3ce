"""docs/emulator.md names exactly the endpoints, options and fault members that the emulator has."""
import re
import subprocess

from harness import ROOT, binary

TEXT = (ROOT / "docs" / "emulator.md").read_text()


def output(*args):
    done = subprocess.run([binary("sandgate-emulator"), *args], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def rows():
    section = TEXT[TEXT.index("\n## Endpoints\n"):]
    section = section[:section.index("\n## ", 1)] if "\n## " in section[1:] else section
    for method, paths, state, notes in re.findall(r"^\| ([A-Z]+) \| (`.*?`) \| (\w+) \| (.*?) ?\|$", section, re.M):
        for path in re.findall(r"`([^`]+)`", paths):
            yield method, re.sub(r"\{\w+\}", "{}", path), state, notes


def test_every_endpoint_has_a_row_and_no_other():
    served = {tuple(line.split(" ")) for line in output("routes").splitlines()}
    assert len(served) > 40
    told = list(rows())
    named = [(method, path) for method, path, _, _ in told]
    assert len(named) == len(set(named)), "a row twice"
    assert {state for _, _, state, _ in told} <= {"supported", "differs", "not"}
    assert {(m, p) for m, p, state, _ in told if state != "not"} == served
    assert not {(m, p) for m, p, state, _ in told if state == "not"} & served
    assert all(notes for _, _, state, notes in told if state != "supported"), "how does it differ?"


def test_every_row_answers(emu):
    """No endpoint that is called supported says that it is not there."""
    for method, path, state, _ in rows():
        filled = re.sub(r"\{\}", "no-such", path)
        answer = emu.request(method, filled, {} if method != "GET" else None)
        said = answer.text
        if state == "not":
            assert answer.status_code in (400, 404), (method, path, said)
        else:
            assert "requested path" not in said and "does not support" not in said, (method, path, said)
            assert answer.status_code < 500, (method, path, said)


def test_every_option_is_explained():
    options = set(re.findall(r"--[a-z][a-z-]*", output("--help")))
    assert len(options) > 15
    section = TEXT[TEXT.index("\n## Options\n"):TEXT.index("\n## Endpoints\n")]
    assert set(re.findall(r"--[a-z][a-z-]*", section)) == options


def test_every_fault_is_explained():
    source = (ROOT / "emulator" / "faults.c").read_text()
    known = set()
    for members in re.findall(r"members\[\] = \{(.*?)NULL\}", source, re.S):
        known |= set(re.findall(r'"(\w+)"', members))
    assert {"status", "lose_answer", "times"} <= known
    section = TEXT[TEXT.index("\n## Faults and journal\n"):]
    assert known <= set(re.findall(r"`\"?(\w+)\"?`", section)), known - set(re.findall(r"`\"?(\w+)\"?`", section))
