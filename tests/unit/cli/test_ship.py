"""``mainstem ship`` and ``mainstem recordings``: what they print, and what they refuse with a one-sentence error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.object_stores import s3_options, s3_server
from tests.support.shipping import TERM, ManualClock, Station, payloads

from mainstem import cli
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording import messages, open_recording

if TYPE_CHECKING:
    from pathlib import Path

DAY_NS = 86_400 * 10**9


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), out, err


@pytest.fixture
def locations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, Path]:
    """A recorder's directory with recordings more than a day old, and the store they were shipped to."""
    clock = ManualClock(SYSTEM_CLOCK.epoch_ns() - 2 * DAY_NS)
    station = Station(tmp_path / "recorder", clock)
    for hour in range(8):
        station.send(payloads(60, seed=hour))
        clock.advance(3600)
    station.stop()
    store = tmp_path / "store"
    code, out, _ = run(capsys, "ship", station.directory, store, "--once", "--json", "--chunk-size", "64k")
    assert code == 0
    result = json.loads(out)
    assert (result["lag_bytes"], result["errors"]) == (0, 0)
    assert result["objects"] > 8
    return station.directory, store


def test_verify_exits_with_1_if_an_object_has_changed(
    locations: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, store = locations
    for where in locations:
        assert run(capsys, "recordings", "verify", where, "--check-frames")[::2] == (0, "no problems found\n")
    piece = min(store.rglob("*.seg"))
    piece.write_bytes(piece.read_bytes()[:-1] + b"\xff")
    code, out, _ = run(capsys, "recordings", "verify", store)
    assert code == 1
    assert "checksum" in out
    assert str(piece.name) in out
    code, out, _ = run(capsys, "recordings", "verify", store, "--json")
    assert (code, [row["kind"] for row in json.loads(out)]) == (1, ["checksum"])


def test_compact_and_rm_change_the_store(locations: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    directory, store = locations
    code, out, _ = run(capsys, "recordings", "compact", store, "--json", "--grace-period", "0s", "--remove-orphans")
    (row,) = json.loads(out)
    assert code == 0
    assert row["chunks"] > row["objects"] > 2
    assert row["deleted"] >= row["chunks"]
    assert len(list(store.rglob("*.seg"))) < row["chunks"]
    code, out, _ = run(capsys, "recordings", "rm", store, "--older-than", "44h", "--json")
    (removed,) = json.loads(out)
    assert (code, removed["start"], removed["end"] % (2 * TERM)) == (0, 0, 0)
    with open_recording(store, 0) as there, open_recording(directory, 0) as here:
        assert there.start_position == removed["end"]
        left = list(messages(there, there.start_position, there.end_position()))
        assert left == list(messages(here, there.start_position, here.end_position()))
    assert run(capsys, "recordings", "rm", store, "--older-than", "44h")[2] == "nothing to remove\n"
    # Removed data is not shipped again.
    assert json.loads(run(capsys, "ship", directory, store, "--once", "--json")[1])["objects"] == 0
    code, out, _ = run(capsys, "recordings", "rm", store, "--older-than", "2999-01-01", "--json")
    assert json.loads(run(capsys, "recordings", "ls", store, "--json")[1]) == []
    assert json.loads(run(capsys, "ship", directory, store, "--once", "--json")[1])["objects"] == 0


def test_local_retention_deletes_old_shipped_segments(
    locations: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, store = locations
    before = len(list(directory.glob("*.rec")))
    code, out, _ = run(capsys, "ship", directory, store, "--once", "--local-retention", "0s", "--json")
    assert (code, json.loads(out)["segments_deleted"]) == (0, before - 1)
    assert len(list(directory.glob("*.rec"))) == 1
    with open_recording(store, 0) as reader:
        assert reader.messages_before(reader.end_position()) == 480


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ship", "{none}", "{store}"], "is not a directory"),
        (["ship", "{recorder}", "gopher://x/y"], "gopher"),
        (["ship", "{recorder}", "{store}", "--local-retention", "soon"], "--local-retention must be an age"),
        (["ship", "{recorder}", "{store}", "--chunk-size", "1k"], "--chunk-size"),
        (["ship", "{recorder}", "{store}", "--bandwidth-limit", "10"], "--bandwidth-limit"),
        (["ship", "{recorder}", "{store}", "--flush-interval", "soon"], "--flush-interval"),
        (["ship", "{recorder}", "{store}", "--store-option", "x"], "--store-option: 'x' is not of the form name=value"),
        (["ship", "{recorder}", "{store}", "--metrics-listen", "nowhere:x"], "--metrics-listen"),
        (["recordings", "ls", "{none}"], "holds no recordings"),
        (["recordings", "ls", "{store}", "--archive", "x"], "has no archive x"),
        (["recordings", "rm", "{store}"], "rm needs --older-than"),
        (["recordings", "rm", "{store}", "--older-than", "soon"], "--older-than: 'soon' is neither"),
        (["recordings", "rm", "{store}", "--consumed-by", "{none}"], "is not a checkpoint"),
        (["recordings", "rm", "{store}", "--older-than", "1d", "--grace-period", "soon"], "--grace-period"),
        (["recordings", "rm", "{recorder}", "--older-than", "1d"], "does not hold shipped recordings"),
        (["recordings", "compact", "{store}", "--dry-run"], "--dry-run is for a directory of recordings"),
        (["recordings", "checksum", "{none}"], "holds no recordings"),
        (["recordings", "delete-orphans", "{store}"], "holds no recordings"),
        (["recordings", "mark-invalid", "{recorder}", "9"], "has no recording 9"),
        (["recordings", "checksum", "{recorder}", "--recording", "9"], "has no valid recording 9"),
        (["recordings", "capacity", "{recorder}", "--grow-to", "1"], "the capacity must be from"),
    ],
)
def test_a_failure_is_reported_in_one_line(
    locations: tuple[Path, Path], capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    names = {"recorder": locations[0], "store": locations[1], "none": locations[0].parent / "none"}
    code, _, err = run(capsys, *(each.format(**names) for each in arguments))
    assert code in (1, 2)
    assert text in err
    assert "Traceback" not in err


def test_ship_once_reports_an_unusable_store(
    locations: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")
    with s3_server() as endpoint:
        options = [
            part for name, value in s3_options(endpoint).items() for part in ("--store-option", f"{name}={value}")
        ]
        for store, text in ((tmp_path / "file" / "x", "Not a directory"), ("s3://none/x", "no such bucket")):
            code, out, err = run(
                capsys, "ship", locations[0], store, "--once", *(options if "s3" in str(store) else [])
            )
            assert (code, out) == (1, "")
            *_, last = err.splitlines()
            assert last.startswith("mainstem: ")
            assert text in last
            assert last.count(str(store)) == 1
            assert "Traceback" not in err


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no idle tasks")
def test_a_shipper_starts_beside_a_recorder_in_the_idle_class() -> None:
    # Only root may move such a process to another scheduling class.
    code = (
        "import os; from mainstem.cli.ship import _give_way; os.geteuid() or os.setuid(65534); os.nice(19); "
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); _give_way(); "
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
