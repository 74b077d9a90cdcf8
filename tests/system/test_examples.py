"""The examples run the way a reader would run them, and print what docs/how-to/examples.md shows."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.captures import ETHERNET, data_frame, ip, link, pcap, udp
from tests.support.doc_runner import ROOT, blocks, matches
from tests.support.ports import with_own_ports

pytestmark = pytest.mark.system

EXAMPLES = ROOT / "examples"
# What the extra that the page names for an example installs.
NEEDED = {
    "examples/aqueduct/certificates.py": "aioquic",
    "examples/game_server.py": "cryptography",
    "examples/mux_certificates.py": "cryptography",
    "examples/polars_and_duckdb.py": "polars",
    "examples/quotes_to_delta.py": "deltalake",
}


def shown() -> list[tuple[str, str]]:
    """Return the examples whose output the gallery shows, with it."""
    page = list(blocks((ROOT / "docs" / "how-to" / "examples.md").read_text()))
    return [
        (command.code.split()[1], output.code)
        for command, output in itertools.pairwise(page)
        if command.language == "sh" and output.language == "text"
    ]


def gallery() -> list[object]:
    """Return the same as parameters. Those over QUIC take a second each; the others are long."""
    marks = {"examples/quotes_to_delta.py": [pytest.mark.spark]}
    return [
        pytest.param(
            program,
            expected,
            id=Path(program).stem,
            marks=[] if "aqueduct" in program else [pytest.mark.long, *marks.get(program, [])],
        )
        for program, expected in shown()
    ]


def run(program: Path, *arguments: str, timeout: float = 110) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / program.name
        copy.write_text(with_own_ports(program.read_text()))
        command = [sys.executable, str(copy), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("program", "expected"), gallery())
def test_an_example_prints_what_the_gallery_shows(program: str, expected: str) -> None:
    pytest.importorskip(NEEDED.get(program, "msgspec" if "aqueduct" in program else "mainstem"))
    printed = run(ROOT / program, timeout=800)
    assert matches(expected, printed), printed


def test_the_gallery_names_every_example() -> None:
    page = (ROOT / "docs" / "how-to" / "examples.md").read_text()
    assert [path.name for path in EXAMPLES.rglob("*.py") if str(path.relative_to(ROOT)) not in page] == []


@pytest.mark.long
def test_a_capture_is_replayed_into_a_program(tmp_path: Path) -> None:
    levels = [12, 98, 40, 7]
    frames = [data_frame(b"%d" % level, at=64 * n) for n, level in enumerate(levels)]
    order = [0, 2, 1, 1, 3]  # out of order, with one message repeated
    capture = tmp_path / "day.pcap"
    capture.write_bytes(pcap([link(ip(udp(frames[n])), ETHERNET) for n in order]))
    printed = run(EXAMPLES / "capture_into_test.py", str(capture), "1001")
    assert printed == "4 messages, three replays, the highest is 98 in each\n"
