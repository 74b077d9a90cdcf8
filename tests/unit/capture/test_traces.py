"""Aqueduct's trace: the lines of its log become rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.aqueduct_frames import ConnectionControl, FinishSender, Message
from tests.support.captures import rows_of

from mainstem.aqueduct import frames
from mainstem.aqueduct.observe import FrameLog

if TYPE_CHECKING:
    from pathlib import Path


def test_frames_of_the_log_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "aqueduct.log"
    log = FrameLog(path)
    log.frame_out("server:1", frames.VERSION_BYTES + ConnectionControl().encode(), 1_000)
    log.state_change("channel 3", "open", "closed", 1_500)
    log.frame_in("server:1", Message(5, 2, (9,), b"tide").encode() + FinishSender(3).encode(), 2_000)
    log.frame_in("server:1", b"\x63", 3_000)
    log.close()
    with path.open("a") as file:
        file.write('{"t": 4000, "in": "zz", "peer": "x"}\n{"t": 50')
    rows = rows_of(path)
    assert [(r["packet"], r["frame_type"]) for r in rows] == [
        (5, "TRUNCATED_FILE"),
        (1, "VERSION"),
        (1, "CONNECTION_CONTROL"),
        (3, "MESSAGE"),
        (3, "FINISH_SENDER"),
        (4, "MALFORMED_FRAME"),
        (5, "MALFORMED_FRAME"),
    ]
    message = rows[3]
    assert (message["channel_id"], message["message_number"], message["payload"]) == (5, 2, b"tide")
    assert (message["src"], message["time_ns"], message["protocol"]) == ("server:1", 2000, "aqueduct")
    assert "attaching" in message["text"]
    assert rows[1]["dst"] == "server:1"
    assert rows[4]["message_number"] == 3
    assert "99" in rows[5]["text"]


@pytest.mark.parametrize(
    "line",
    ["[" * 100_000, '{"t": 1e999, "in": "", "peer": ""}', '{"t": 9223372036854775808, "in": "", "peer": ""}', "[5]"],
)
def test_an_invalid_line_is_a_row_with_the_reason(tmp_path: Path, line: str) -> None:
    path = tmp_path / "aqueduct.log"
    log = FrameLog(path)
    log.frame_out("server:1", frames.VERSION_BYTES, 1_000)
    log.close()
    with path.open("a") as file:
        file.write(line + "\n")
    rows = rows_of(path)
    assert [(r["packet"], r["frame_type"]) for r in rows] == [(1, "VERSION"), (2, "MALFORMED_FRAME")]
    assert "no line of a trace" in rows[1]["text"]
