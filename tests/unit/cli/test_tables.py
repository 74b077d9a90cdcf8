"""Every number that a command prints in a table is complete, at any terminal width and in a pipe."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import cli
from mainstem.aeron import counters as names
from mainstem.aeron.counters import CounterType
from mainstem.aeron.directory import image_path, loss_report_path, publication_path
from mainstem.aeron.error_log import DistinctErrorLog
from mainstem.aeron.logbuffer import LogType
from mainstem.aeron.loss_report import LossReport
from mainstem.cli import streams
from mainstem.cli._output import Column, Table, shorten
from mainstem.demo.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PIPE = 0
WIDTHS = [PIPE, 60, 64, 72, 80, 92, 100, 116, 130, 139, 140, 141, 160, 200]
NUMBER = re.compile(r"(?<![\w.,])-?\d(?:[\d,]*\d)?(?![\w])")
CHANNEL = "aeron:udp?endpoint=a-rather-long-name.of-a-host.example:20121|alias=prices"
PUBLICATION, IMAGE, CLIENT = 7, 8, 9
POSITION = 123_456_789_012
STAMP_MS = 1_800_000_000_000

# Which numbers of --json a command's text has to show, by key.
SHOWN = {
    "stat": {"id", "value"},
    "streams": {"stream_id", "session_id", "position", "limit", "sender_position"},
    "backlog": {"stream_id", "session_id", "registration_id", "position", "behind", "room"},
    "loss": {"observation_count", "total_bytes_lost", "session_id", "stream_id"},
    "why": {"stream_id", "session_id", "registration_id", "pub_pos", "pub_lmt", "snd_pos", "rcv_hwm", "unread"},
    "errors": {"observation_count"},
    "log": {"registration_id", "session_id", "length", "term_length", "producer_position", "position", "term_offset"},
    "config": set[str](),
}
ARGUMENTS = {
    "why": ["--all", "--samples", "2", "--duration", "0.01"],
    "log": [str(PUBLICATION)],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverFiles]:
    files = DriverFiles(tmp_path)
    files.cnc.to_driver.consumer_heartbeat_ms = time.time_ns() // 1_000_000

    def counter(kind: CounterType, own: int, value: int) -> None:
        spec = names.stream_counter(kind, own, session_id=-2_147_483_648, stream_id=1001, channel=CHANNEL)
        files.counters.allocate(*spec, now_ms=0, registration_id=own, value=value, owner_id=CLIENT)

    counter(CounterType.PUBLISHER_LIMIT, PUBLICATION, POSITION + 1_689_984)
    counter(CounterType.SENDER_POSITION, PUBLICATION, POSITION - 4_096)
    counter(CounterType.SENDER_LIMIT, PUBLICATION, POSITION + 131_072)
    counter(CounterType.RECEIVER_HIGH_WATER_MARK, IMAGE, POSITION - 4_096)
    counter(CounterType.RECEIVER_POSITION, IMAGE, POSITION - 8_192)
    stream = {"session_id": -2_147_483_648, "stream_id": 1001, "channel": CHANNEL}
    own = names.publisher_position(PUBLICATION, exclusive=True, **stream)  # type: ignore[arg-type]
    files.counters.allocate(*own, now_ms=0, registration_id=PUBLICATION, owner_id=CLIENT, value=POSITION)
    for i in range(4):
        subscriber = names.subscriber_position(100 + i, join_position=0, **stream)  # type: ignore[arg-type]
        value = POSITION - 65_536 * (i + 1)
        files.counters.allocate(
            *subscriber, now_ms=0, registration_id=100 + i, owner_id=CLIENT, reference_id=IMAGE, value=value
        )
    log = files.log(publication_path(files.directory, PUBLICATION), PUBLICATION, LogType.EXCLUSIVE_PUBLICATION)
    files.log(image_path(files.directory, IMAGE), IMAGE, LogType.IMAGE).is_connected = True
    log.is_connected = True
    for offset in (0, 1024):
        log.buffer.put_i32(offset + 8, offset)
        log.buffer.put_i32(offset + 20, 9)
        log.buffer.put_u8(offset + 6, 1)
        log.buffer.put_i32(offset, 1024)
    errors = DistinctErrorLog(files.cnc.error_log)
    for _ in range(1_234):
        errors.record("(1) first\nwith a second line", now_ms=STAMP_MS)
    report = LossReport(files.files.create(loss_report_path(files.directory), 1 << 16))
    entry = report.create_entry(
        12_345_678, now_ms=STAMP_MS, session_id=-2_147_483_648, stream_id=1001, channel=CHANNEL, source="127.0.0.1:5"
    )
    assert entry is not None
    entry.record(1, now_ms=STAMP_MS + 1)
    yield files
    files.cnc.close()


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], str]:
    """Run a function that prints, in a terminal of a given width or in a pipe."""

    def call(width: int, program: Callable[[], object]) -> str:
        out = io.StringIO() if width == PIPE else Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(width or 80))  # a pipe has no width, whatever the shell exports
            patch.setenv("LINES", "50")
            patch.setenv("TERM", "dumb")
            patch.setattr(sys, "stdout", out)
            program()
        return out.getvalue()

    return call


def run(command: str, driver: DriverFiles, *more: str) -> None:
    arguments = ["show"] if command == "config" else [*ARGUMENTS.get(command, []), "--dir", driver.directory]
    with pytest.raises(SystemExit) as end:
        cli.main([command, *arguments, *more])
    assert end.value.code == 0


def numbers(text: str) -> set[str]:
    return {found.replace(",", "") for found in NUMBER.findall(text)}


def numbers_of(document: Any, keys: set[str]) -> set[str]:
    if isinstance(document, dict):
        own = {str(v) for k, v in document.items() if k in keys and isinstance(v, int) and not isinstance(v, bool)}
        return own.union(*(numbers_of(v, keys) for v in document.values()))
    if isinstance(document, list):
        return set().union(*(numbers_of(v, keys) for v in document))
    return set()


@pytest.mark.long
@pytest.mark.parametrize("command", SHOWN)
def test_text_has_every_number_of_json_at_every_width(
    command: str, driver: DriverFiles, show: Callable[[int, Callable[[], object]], str]
) -> None:
    document = json.loads(show(PIPE, lambda: run(command, driver, "--json")))
    expected = numbers_of(document, SHOWN[command])
    assert expected or not SHOWN[command]
    whole: set[str] = set()
    for width in WIDTHS:
        text = show(width, lambda: run(command, driver))
        assert expected <= numbers(text), f"in {width} columns"
        # Nor may part of a number replace it. Only the header shows ages and times, which differ between runs.
        body = numbers(text[text.index("stream ") :]) if command in ("streams", "backlog", "loss") else set()
        whole = whole or body
        assert body <= whole, f"in {width} columns"


def test_the_demo_shows_its_numbers_at_every_width(show: Callable[[int, Callable[[], object]], str]) -> None:
    from mainstem.cli.demo import _show

    result = Result(
        source="flights",
        loss=0.02,
        offered=336_776,
        received=336_775,
        lost=1,
        recording="out/demo/work/recording",
        stages={"a stage with a name": 12.5},
    )
    for width in WIDTHS:
        text = show(width, lambda: _show(result))
        assert {"336776", "336775", "1"} <= numbers(text), f"in {width} columns"
        assert "Recording: out/demo/work/recording\n" in text, f"in {width} columns"


def test_a_shortened_text_never_ends_inside_a_number() -> None:
    assert shorten("endpoint=localhost:20121", 23) == "endpoint=localhost:…"
    assert shorten("endpoint=localhost:20121|a=b", 25) == "endpoint=localhost:20121…"
    assert shorten("short", 5) == "short"


def test_a_table_without_room_is_wider_than_the_terminal() -> None:
    table = Table(
        [Column("n", "right"), Column("text", "cut")], [["123456789", "a long text of forty characters and so"]]
    )
    assert not table.fits(10)
    assert table.lines(10)[1].plain == "123456789  a long text…"
    assert table.fits(30)
    assert len(table.lines(30)[1].plain) == 30


def test_a_new_column_is_in_the_table_the_json_and_the_help(
    driver: DriverFiles, show: Callable[[int, Callable[[], object]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column(
        "sent", "right", "How far half of it was sent.", cell=lambda stream: stream.publication.sender_position // 2
    )
    monkeypatch.setattr(streams, "COLUMNS", (*streams.COLUMNS[:4], column, *streams.COLUMNS[4:]))
    half = (POSITION - 4_096) // 2
    (row,) = json.loads(show(PIPE, lambda: run("streams", driver, "--json")))["streams"]
    assert row["sent"] == half
    for width in (PIPE, 60):
        text = show(width, lambda: run("streams", driver))
        assert "sent" in text
        assert f"{half:,}" in text

    def show_help() -> None:
        with pytest.raises(SystemExit):
            cli.main(["streams", "--help"])

    assert re.search(r"  sent +How far half of it was sent\.", show(PIPE, show_help))


def test_a_loss_is_the_same_in_json_and_csv(
    driver: DriverFiles, show: Callable[[int, Callable[[], object]], str]
) -> None:
    (entry,) = json.loads(show(PIPE, lambda: run("loss", driver, "--json")))
    names, values = show(PIPE, lambda: run("loss", driver, "--csv")).splitlines()
    assert dict(zip(names.split(","), values.split(","), strict=True)) == {k: str(v) for k, v in entry.items()}


def test_the_help_of_a_group_has_all_of_its_text(show: Callable[[int, Callable[[], object]], str]) -> None:
    def show_help() -> None:
        with pytest.raises(SystemExit):
            cli.main(["recordings", "--help"])

    assert "They refuse one that a recorder or an archive uses." in " ".join(show(80, show_help).split())
