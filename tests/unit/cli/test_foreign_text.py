"""Text chosen by other programs and hosts never reaches a terminal as control characters, and is never markup."""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.many_recordings import make_recordings
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import cli
from mainstem.aeron import counters as names
from mainstem.aeron.counters import CounterType
from mainstem.aeron.directory import image_path, loss_report_path, publication_path
from mainstem.aeron.error_log import DistinctErrorLog
from mainstem.aeron.logbuffer import LogType
from mainstem.aeron.loss_report import LossReport
from mainstem.cli import _process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOSTILE = "\x1b[2J\x1b]0;owned\x9b31m\u202e[/bold][ff02::1]:40456"
SHOWN = "\\x1b[2J\\x1b]"  # as much as a narrow terminal has room for
CHANNEL = f"aeron:udp?endpoint=localhost:20121|alias={HOSTILE}"
IMPOSSIBLE_MS = 1 << 60
PUBLICATION, IMAGE, CLIENT = 7, 8, 9


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[io.StringIO, Terminal])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in a pipe or a terminal and return its output."""

    def call(*arguments: str) -> str:
        out: io.StringIO = request.param()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", "400")
            patch.setenv("TERM", "dumb")
            patch.setattr(sys, "stdout", out)
            with pytest.raises(SystemExit) as end:
                cli.main(arguments)
        assert end.value.code == 0
        return out.getvalue()

    return call


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[str]:
    files = DriverFiles(tmp_path)
    files.cnc.to_driver.consumer_heartbeat_ms = time.time_ns() // 1_000_000
    for kind, own in ((CounterType.PUBLISHER_LIMIT, PUBLICATION), (CounterType.RECEIVER_POSITION, IMAGE)):
        spec = names.stream_counter(kind, own, session_id=3, stream_id=4, channel=CHANNEL)
        files.counters.allocate(*spec, now_ms=0, registration_id=own, value=4096, owner_id=CLIENT)
    position = names.publisher_position(PUBLICATION, session_id=3, stream_id=4, channel=CHANNEL, exclusive=True)
    files.counters.allocate(*position, now_ms=0, registration_id=PUBLICATION, owner_id=CLIENT, value=4096)
    files.log(publication_path(files.directory, PUBLICATION), PUBLICATION, LogType.EXCLUSIVE_PUBLICATION)
    files.log(image_path(files.directory, IMAGE), IMAGE, LogType.IMAGE)
    DistinctErrorLog(files.cnc.error_log).record(f"refused: {HOSTILE}", now_ms=IMPOSSIBLE_MS)
    report = LossReport(files.files.create(loss_report_path(files.directory), 1 << 16))
    entry = report.create_entry(5, now_ms=IMPOSSIBLE_MS, session_id=3, stream_id=4, channel=CHANNEL, source=HOSTILE)
    assert entry is not None
    yield files.directory
    files.cnc.close()


def check(text: str, shown: str = SHOWN) -> None:
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert shown in text


@pytest.mark.parametrize(
    "command",
    [
        ["errors"],
        ["errors", "--csv"],
        ["loss"],
        ["loss", "--csv"],
        ["stat"],
        ["streams"],
        ["backlog"],
        ["why", "--all", "--samples", "2", "--duration", "0.01"],
    ],
    ids=" ".join,
)
def test_a_driver_directory_is_shown_printable(command: list[str], driver: str, run: Callable[..., str]) -> None:
    check(run(*command, "--dir", driver))


@pytest.mark.parametrize("command", ["errors", "loss", "stat", "streams", "backlog"])
def test_json_of_a_driver_directory_is_printable(command: str, driver: str, run: Callable[..., str]) -> None:
    text = run(command, "--json", "--dir", driver)
    check(text, "\\u009b31m\\u202e")
    assert texts_with(HOSTILE, json.loads(text))


def texts_with(part: str, document: object) -> list[str]:
    if isinstance(document, dict | list):
        values = document.values() if isinstance(document, dict) else document
        return [text for value in values for text in texts_with(part, value)]
    return [document] if isinstance(document, str) and part in document else []


@pytest.mark.parametrize("command", [["ls"], ["ls", "--csv"], ["show"]], ids=" ".join)
def test_recordings_are_shown_printable(command: list[str], tmp_path: Path, run: Callable[..., str]) -> None:
    make_recordings(tmp_path, 1, channel=CHANNEL)
    check(run("recordings", *command, str(tmp_path)), "aeron:udp")


def test_log_lines_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.getLogger("mainstem").makeRecord("mainstem", 30, "", 0, "peer says %s", (HOSTILE,), None)
    check(_process.TextFormatter(_process.TEXT).format(record))
    _process.say(f"mainstem: {HOSTILE}")
    check(capsys.readouterr().err)
