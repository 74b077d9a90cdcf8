"""The frames of a log file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mainstem._core import layout
from mainstem.aeron.files import MappedFiles
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType, raw_tail
from mainstem.aeron.tools.log_walk import LogFile
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

TERM = 1 << 16
INITIAL = 7


@pytest.fixture
def log(tmp_path: Path) -> LogBuffers:
    parameters = LogParameters(
        correlation_id=5,
        session_id=3,
        stream_id=4,
        initial_term_id=INITIAL,
        term_length=TERM,
        mtu=1408,
        log_type=LogType.EXCLUSIVE_PUBLICATION,
    )
    return LogBuffers.create(MappedFiles().create(str(tmp_path / "log"), parameters.log_length), parameters)


def put(log: LogBuffers, partition: int, offset: int, payload: bytes, *, term: int = INITIAL, kind: int = 1) -> None:
    at = partition * TERM + offset
    log.buffer.put_bytes(at + 32, payload)
    log.buffer.put_u8(at + layout.FRAME_FLAGS_OFFSET, 0xC0)
    log.buffer.put_u8(at + layout.FRAME_TYPE_OFFSET, kind)
    log.buffer.put_i32(at + layout.FRAME_TERM_OFFSET_OFFSET, offset)
    log.buffer.put_i32(at + layout.FRAME_TERM_ID_OFFSET, term)
    log.buffer.put_i64(at + layout.FRAME_RESERVED_VALUE_OFFSET, -9)
    log.buffer.put_i32_release(at, 32 + len(payload))


def test_shows_frames_with_their_positions_and_payloads(log: LogBuffers, tmp_path: Path) -> None:
    put(log, 0, 0, b"tide")
    put(log, 0, 64, bytes(100))
    put(log, 1, 0, b"ebb", term=INITIAL + 1)
    with LogFile(str(tmp_path / "log")) as file:
        first = list(file.frames(0, payload_limit=3))
        second = list(file.frames(1))
    assert [(f.position, f.length, f.payload) for f in first] == [(0, 36, b"tid"), (64, 132, bytes(3))]
    assert (first[0].flag_letters, first[0].type_name, first[0].reserved_value) == ("BE--", "DATA", -9)
    assert [(f.position, f.term_id) for f in second] == [(TERM, INITIAL + 1)]


def test_skips_cleaned_and_missing_ranges(log: LogBuffers, tmp_path: Path) -> None:
    put(log, 0, 1024, b"a")
    put(log, 0, 40_000, b"b") if 40_000 % 32 == 0 else put(log, 0, 40_032, b"b")
    with LogFile(str(tmp_path / "log")) as file:
        assert [f.payload for f in file.frames(0, payload_limit=9)] == [b"a", b"b"]


def test_an_open_claim_is_shown_as_open(log: LogBuffers, tmp_path: Path) -> None:
    put(log, 0, 0, b"a")
    log.buffer.put_i32(64, -500)
    with LogFile(str(tmp_path / "log")) as file:
        assert [(f.length, f.term_id, f.payload) for f in file.frames(0, payload_limit=9)] == [
            (33, INITIAL, b"a"),
            (-500, INITIAL, b""),
        ]


def test_garbage_ends_the_walk(log: LogBuffers, tmp_path: Path) -> None:
    put(log, 0, 0, b"a")
    log.buffer.put_i32(64, 10 * TERM)
    put(log, 1, 0, b"b", term=INITIAL + 1)
    log.buffer.put_i32(TERM + layout.FRAME_TERM_OFFSET_OFFSET, 32)
    with LogFile(str(tmp_path / "log")) as file:
        assert len(list(file.frames(0))) == 1
        assert list(file.frames(1)) == []


def test_padding_shows_without_payload_and_ends_the_term(log: LogBuffers, tmp_path: Path) -> None:
    put(log, 0, TERM - 64, bytes(32), kind=0)
    with LogFile(str(tmp_path / "log")) as file:
        (frame,) = file.frames(0, payload_limit=9)
    assert (frame.type_name, frame.payload) == ("PAD", b"")


def test_partitions_come_from_the_oldest_term_to_the_newest(log: LogBuffers, tmp_path: Path) -> None:
    with LogFile(str(tmp_path / "log")) as file:
        assert file.partitions_in_order() == (0,)
    for partition, term in ((0, 3), (1, 1), (2, 2)):
        log.buffer.put_i64(log.metadata_offset + 8 * partition, raw_tail(INITIAL + term, 32))
    with LogFile(str(tmp_path / "log")) as file:
        assert file.partitions_in_order() == (1, 2, 0)
        assert file.tails()[0] == (INITIAL + 3, 32)


def test_walking_a_sparse_log_allocates_no_storage(log: LogBuffers, tmp_path: Path) -> None:
    put(log, 0, 0, b"a")
    before = os.stat(tmp_path / "log").st_blocks
    with LogFile(str(tmp_path / "log")) as file:
        assert [len(list(file.frames(i))) for i in range(3)] == [1, 0, 0]
    assert os.stat(tmp_path / "log").st_blocks == before


def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a log buffer"):
        LogFile(str(tmp_path / "none"))
