"""Systems other than Linux: what does not need Linux works, and what does is refused with one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

import mainstem
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
REFUSED = "needs Linux, and this is darwin"


def elsewhere(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of tests/support/without_linux.py to its end."""
    command = [sys.executable, "-m", "tests.support.without_linux", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def output(*words: str | Path) -> str:
    done = elsewhere(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[mainstem.MediaDriver]:
    with mainstem.MediaDriver.launch(tmp_path / "driver") as running:
        yield running


@pytest.mark.long
def test_every_module_is_imported() -> None:
    assert int(output("imports")) > 400


def test_a_client_uses_a_driver_over_ipc(driver: mainstem.MediaDriver) -> None:
    assert output("client", driver.directory) == "True"


def test_a_multiplexer_carries_a_stream() -> None:
    assert output("multiplexer") == "b'tide'"


def test_aqueduct_carries_a_message(tmp_path: Path) -> None:
    assert output("aqueduct", tmp_path) == "4"


def test_recordings_are_written_read_and_decoded(tmp_path: Path) -> None:
    payloads = [b'{"height": %d}' % height for height in (3, 1, 4)]
    with Recorder(tmp_path, segment_length=131072) as recorder:
        writer = Stream(session_id=7).start(recorder)
        record(writer, Stream(session_id=7, stream_id=1001), payloads, time_ns=0, step_ns=1)
    assert output("reader", tmp_path) == "[3, 1, 4]"


def test_a_driver_is_refused() -> None:
    assert output("driver").startswith(f"a media driver {REFUSED}")


@pytest.mark.parametrize(("command", "part"), [("driver", "a media driver"), ("demo", "the demo")])
def test_a_command_refused_by_the_driver_prints_one_sentence(command: str, part: str) -> None:
    done = elsewhere("command", command)
    assert done.returncode != 0
    assert done.stderr.startswith(f"mainstem: {part} {REFUSED}")
    assert len(done.stderr.splitlines()) == 1


def test_the_doctor_reports_why_there_is_no_driver() -> None:
    done = elsewhere("command", "doctor", "--json")
    assert done.returncode == 1, done.stderr
    assert done.stdout, done.stderr
    [system] = [check for check in json.loads(done.stdout) if check["name"] == "system"]
    assert system["figure"].startswith(f"a media driver {REFUSED}")
