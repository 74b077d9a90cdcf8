"""The operator's commands on a directory laid out as by a driver."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import cli
from mainstem.aeron import counters as names
from mainstem.aeron.counters import CounterType
from mainstem.aeron.directory import loss_report_path, publication_path
from mainstem.aeron.error_log import DistinctErrorLog
from mainstem.aeron.logbuffer import LogType
from mainstem.aeron.loss_report import LossReport
from mainstem.cli import _drivers
from mainstem.cli._output import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

CHANNEL = "aeron:udp?endpoint=localhost:20121"
STAMP_MS = 1_800_000_000_000


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverFiles]:
    made = DriverFiles(tmp_path)
    made.cnc.to_driver.consumer_heartbeat_ms = time.time_ns() // 1_000_000
    for kind, value in (
        (CounterType.PUBLISHER_LIMIT, 4096),
        (CounterType.SENDER_POSITION, 1024),
        (CounterType.SENDER_LIMIT, 1024),
    ):
        made.counter(kind, 7, value)
    position = names.publisher_position(7, session_id=3, stream_id=4, channel=CHANNEL, exclusive=True)
    made.counters.allocate(*position, now_ms=0, registration_id=7, owner_id=9, value=4096)
    log = made.log(publication_path(made.directory, 7), 7, LogType.EXCLUSIVE_PUBLICATION)
    log.is_connected = True
    log.buffer.put_bytes(32, b"tide")
    log.buffer.put_u8(6, 1)
    log.buffer.put_i32(20, 9)
    log.buffer.put_i32(0, 36)
    log.buffer.put_i32(1024 + 8, 1024)
    log.buffer.put_i32(1024, 96)  # the next frame for the sender
    yield made
    made.cnc.close()


@pytest.fixture
def run(driver: DriverFiles, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(command: str, *arguments: str) -> str:
        with pytest.raises(SystemExit) as end:
            cli.main([command, *arguments, "--dir", driver.directory])
        said = capsys.readouterr()
        assert end.value.code == 0, said.err
        return said.out

    return call


def document(text: str) -> Any:
    return json.loads(text)


def test_stat_prints_the_driver_and_every_counter(run: Callable[..., str]) -> None:
    lines = run("stat").splitlines()
    assert "CnC v0.2.0" in lines[0]
    assert "pid 77" in lines[0]
    assert "heartbeat age" in lines[0]
    assert lines[1].split() == ["id", "value", "label"]
    assert [line.split()[:2] for line in lines[2:]] == [["0", "4,096"], ["1", "1,024"], ["2", "1,024"], ["3", "4,096"]]


def test_stat_as_json_has_the_selected_counters(run: Callable[..., str]) -> None:
    found = document(run("stat", "--json", "--type", "snd-pos"))
    assert found["pid"] == 77
    (row,) = found["counters"]
    assert (row["type"], row["value"], row["session_id"], row["stream_id"]) == ("snd-pos", 1024, 3, 4)


def test_a_watched_counter_that_rises_has_its_rate(
    run: Callable[..., str], driver: DriverFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show_twice(show: Callable[[Console], None], *, watch: bool, **_: object) -> None:
        assert watch
        show(console())
        driver.counters.cell(1).set(1024 + 1_000_000_000)
        show(console())

    monkeypatch.setattr(_drivers, "show_again", show_twice)
    lines = [line.split() for line in run("stat", "--watch").splitlines() if "heartbeat" not in line]
    before, after = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert before[0] == after[0] == ["id", "value", "rate", "label"]
    assert [line[:2] for line in after[1:3]] == [["0", "4,096"], ["1", "1,000,001,024"]]
    assert [any(cell.endswith("/s") for cell in line) for line in before[1:]] == [False] * 4
    assert [line[2].endswith("/s") for line in after[1:]] == [False, True, False, False]


def test_stat_rejects_an_invalid_regular_expression(driver: DriverFiles, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["stat", "--label", "(", "--dir", driver.directory])
    assert end.value.code == cli.EXIT_ERROR
    assert "must be a regular expression" in capsys.readouterr().err


def test_streams_gives_each_stream_one_line(run: Callable[..., str]) -> None:
    lines = run("streams").splitlines()
    assert lines[2].split()[:5] == ["4", "3", "4,096", "4,096", "1,024"]
    (stream,) = document(run("streams", "--json"))["streams"]
    assert stream["publication"]["sender_limit"] == 1024
    assert stream["publication"]["is_connected"] is True


def test_backlog_shows_each_stage_and_its_backlog(run: Callable[..., str]) -> None:
    (stream,) = document(run("backlog", "--json"))["streams"]
    assert [(s["stage"], s["behind"], s["room"]) for s in stream["stages"]] == [
        ("publisher", None, 0),
        ("sender", 3072, 0),
    ]
    assert "in the receivers' window" in run("backlog")


def test_filters_select_streams(run: Callable[..., str]) -> None:
    assert "no streams" in run("streams", "--stream", "99")
    assert "no streams" in run("backlog", "--session", "99")
    assert "no streams" in run("why", "--samples", "1", "--channel", "elsewhere")


def test_why_prints_sentences_and_json(run: Callable[..., str]) -> None:
    said = run("why", "--samples", "2", "--duration", "0.05")
    assert "FLOW-CONTROL WINDOW: the receiver's window holds the sender back" in " ".join(said.split())
    assert "remote-window in 2 of 2 samples" in " ".join(said.split())
    (found,) = document(run("why", "--samples", "2", "--duration", "0.05", "--json"))["streams"]
    assert (found["stalled"], found["cause"], found["rule"]) == (True, "flow-control window", "remote-window")
    assert found["figures"]["snd_lmt"] == 1024


def test_errors_are_shown_once_each(run: Callable[..., str], driver: DriverFiles) -> None:
    log = DistinctErrorLog(driver.cnc.error_log)
    log.record("(1) first\nwith a second line", now_ms=STAMP_MS)
    log.record("(1) first\nwith a second line", now_ms=STAMP_MS + 1000)
    log.record("(2) second", now_ms=STAMP_MS)
    said = run("errors")
    assert "2 observations from" in said
    assert "1 observation at" in said
    assert said.rstrip().endswith("2 distinct errors")
    assert [e["observation_count"] for e in document(run("errors", "--json"))] == [2, 1]
    rows = list(csv.DictReader(io.StringIO(run("errors", "--csv"))))
    assert rows[0]["text"] == "(1) first\nwith a second line"


def test_errors_are_read_from_a_log_file(run: Callable[..., str], driver: DriverFiles) -> None:
    DistinctErrorLog(driver.cnc.error_log).record("kept", now_ms=STAMP_MS)
    offset = driver.cnc.layout.content_length - driver.cnc.layout.error_log_length
    copy = Path(driver.directory) / "copy"
    copy.write_bytes((Path(driver.directory) / "cnc.dat").read_bytes())
    (error,) = document(run("errors", "--json", "--log-file", str(copy), "--offset", str(offset)))
    assert error["text"] == "kept"


def test_losses_are_shown_as_a_table_csv_and_json(run: Callable[..., str], driver: DriverFiles) -> None:
    assert "0 images with losses" in run("loss")
    report = LossReport(driver.files.create(loss_report_path(driver.directory), 1 << 16))
    report.create_entry(64, now_ms=STAMP_MS, session_id=3, stream_id=4, channel=CHANNEL, source="127.0.0.1:5")
    (entry,) = document(run("loss", "--json"))
    assert (entry["total_bytes_lost"], entry["source"]) == (64, "127.0.0.1:5")
    (row,) = csv.DictReader(io.StringIO(run("loss", "--csv")))
    assert (row["observation_count"], row["channel"]) == ("1", CHANNEL)
    assert "1 image with losses" in run("loss")
    assert "0 images" in run("loss", "--stream", "99")


def test_log_shows_metadata_tails_and_frames(run: Callable[..., str]) -> None:
    said = run("log", "7", "--payload-bytes", "16")
    assert "exclusive publication" in said
    assert "tail 0" in said
    assert "74 69 64 65" in said
    found = document(run("log", "7", "--json", "--payload-bytes", "2"))
    assert found["metadata"]["session_id"] == 3
    assert [(f["length"], f["payload"]) for f in found["frames"]] == [(36, b"ti".hex()), (96, "")]


def test_config_shows_where_each_value_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_TERM_BUFFER_LENGTH", "64k")
    (tmp_path / "settings.toml").write_text('[driver]\nmtu_length = "4k"\n')
    with pytest.raises(SystemExit):
        cli.main(["config", "show", "driver", "--changed", "--json", "--config", str(tmp_path / "settings.toml")])
    rows = {r["name"]: (r["value"], r["source"]) for r in document(capsys.readouterr().out)["driver"]}
    assert rows == {"term_buffer_length": ("64k", "environment"), "mtu_length": ("4k", "toml")}


def test_config_shows_values_of_set_and_their_origin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_TERM_BUFFER_LENGTH", "64k")
    monkeypatch.setenv("AERON_MTU_LENGTH", "8k")
    file = tmp_path / "settings.toml"
    file.write_text('[driver]\nipc_term_buffer_length = "128k"\nmtu_length = "2k"\n')
    with pytest.raises(SystemExit):
        cli.main(["config", "show", "--changed", "--json", "--config", str(file), "--set", "AERON_MTU_LENGTH=4k"])
    tables = document(capsys.readouterr().out)
    assert {r["name"]: (r["value"], r["source"], r["origin"]) for r in tables["driver"]} == {
        "term_buffer_length": ("64k", "environment", "environment AERON_TERM_BUFFER_LENGTH"),
        "ipc_term_buffer_length": ("128k", "toml", f"toml {file}"),
        "mtu_length": ("4k", "option", "--set"),
    }
    with pytest.raises(SystemExit):
        cli.main(["config", "explain", "mtu_length", "--set", "mtu_length=4k"])
    assert "mtu_length = 4k  [--set]" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        cli.main(["config", "show", "--set", "mtu_lenght=4k"])
    assert end.value.code == cli.EXIT_ERROR
    assert (
        "'mtu_lenght' (--set) is not a setting of DriverSettings; did you mean mtu_length?" in capsys.readouterr().err
    )


def test_config_explains_a_setting_by_either_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mtu_length", "AERON_MTU_LENGTH"):
        with pytest.raises(SystemExit) as end:
            cli.main(["config", "explain", name])
        assert end.value.code == 0
        assert "mtu_length = " in capsys.readouterr().out


def test_config_rejects_an_unknown_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["config", "explain", "mtu_lenght"])
    assert end.value.code == cli.EXIT_ERROR
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stat", "streams", "backlog", "errors", "loss", "why"])
def test_every_command_reports_a_missing_driver(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--dir", str(tmp_path)])
    assert end.value.code == cli.EXIT_ERROR
    assert "no media driver in" in capsys.readouterr().err
