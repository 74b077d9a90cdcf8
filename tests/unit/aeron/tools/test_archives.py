"""Archives in a driver's directory.

Covers the names of their counters, recordings and replays in the diagnosis, and sums for `mainstem top`.
"""

from __future__ import annotations

import pytest
from tests.unit.aeron.tools.directory import (
    ARCHIVE,
    CLIENT,
    PUBLICATION,
    SESSION,
    STREAM,
    TERM,
    UDP,
    WINDOW,
    MadeUpDirectory,
)

from mainstem.aeron.counters import ArchiveCounterType, CounterSpec
from mainstem.aeron.tools.archives import ArchiveState, archive_id, archive_states
from mainstem.aeron.tools.backlog import stages
from mainstem.aeron.tools.diagnosis import diagnose
from mainstem.aeron.tools.driver_warnings import driver_warnings
from mainstem.aeron.tools.select import Selection, counter_row, type_name
from mainstem.aeron.tools.streams import group_streams

FAR = 10 * TERM


def sentence(made: MadeUpDirectory) -> str:
    return diagnose([made.sample(0), made.sample(1000)])[0].sentence


def slow_recorder() -> MadeUpDirectory:
    top = FAR + WINDOW
    made = MadeUpDirectory().publication(top + WINDOW, limit=top + WINDOW, sent=top, sender_limit=top)
    made.image(top).subscriber(FAR)
    made.recording(FAR)
    return made


def test_counters_are_named_and_have_the_ids_of_archive_and_recording() -> None:
    made = MadeUpDirectory()
    made.recording(640)
    made.archive(ArchiveCounterType.MAX_CYCLE_TIME, 5, "archive-conductor max cycle time in ns: DEDICATED")
    made.archive(ArchiveCounterType.ERRORS, 2)
    assert [type_name(each) for each in made.counters] == ["rec-pos", "archive-max-cycle-time", "archive-errors"]
    row = counter_row(made.counters[0])
    assert (row["archive_id"], row["recording_id"], row["session_id"], row["stream_id"], row["channel"]) == (
        ARCHIVE,
        7,
        SESSION,
        STREAM,
        UDP,
    )
    assert counter_row(made.counters[2])["archive_id"] == ARCHIVE
    chosen = Selection(types=frozenset({"rec-pos"}), stream_id=STREAM)
    assert [chosen.matches(each) for each in made.counters] == [True, False, False]


@pytest.mark.parametrize("length", [-17, -1, 89, 1 << 30])
def test_a_key_too_short_for_an_archive_id_has_none(length: int) -> None:
    made = MadeUpDirectory()
    key = bytes(12) + length.to_bytes(4, "little", signed=True)
    made.add(CounterSpec(ArchiveCounterType.RECORDING_POSITION, key, "rec-pos: 1"), 0)
    assert archive_id(made.counters[0]) is None
    assert group_streams(made.sample()) == ()


def test_every_archive_of_a_driver_has_its_sums() -> None:
    made = MadeUpDirectory()
    for kind, value in (
        (ArchiveCounterType.ERRORS, 1),
        (ArchiveCounterType.CONTROL_SESSIONS, 2),
        (ArchiveCounterType.RECORDING_SESSIONS, 3),
        (ArchiveCounterType.REPLAY_SESSIONS, 4),
        (ArchiveCounterType.CYCLE_TIME_EXCEEDED, 5),
        (ArchiveCounterType.CYCLE_TIME_EXCEEDED, 6),
    ):
        made.archive(kind, value)
    assert archive_states(made.sample()) == (
        ArchiveState(archive_id=ARCHIVE, recordings=3, replays=4, control_sessions=2, errors=1, late_cycles=11),
    )


def test_new_errors_of_an_archive_are_a_warning() -> None:
    before, after = MadeUpDirectory(), MadeUpDirectory()
    before.archive(ArchiveCounterType.ERRORS, 1)
    after.archive(ArchiveCounterType.ERRORS, 3)
    assert driver_warnings([before.sample(0), after.sample(1000)]) == ("2 errors of archive 42",)


def test_a_slow_recorder_is_named_with_the_speed_of_its_writes() -> None:
    made = slow_recorder()
    assert "it writes recording 7 of archive 42" in sentence(made)
    assert "counters cannot tell" in sentence(made)
    made.archive(ArchiveCounterType.RECORDER_WRITE_BYTES, 500_000_000)
    made.archive(ArchiveCounterType.RECORDER_WRITE_TIME, 10_000_000_000)
    made.archive(ArchiveCounterType.RECORDER_MAX_WRITE_TIME, 812_000_000)
    assert sentence(made).endswith(
        "while writing, this archive's recorder wrote 50 MB/s, and its longest write took 812.0 ms"
    )


@pytest.mark.parametrize("is_ipc", [False, True])
def test_a_stream_that_an_archive_does_not_record_is_named(is_ipc: bool) -> None:
    if is_ipc:
        made = (
            MadeUpDirectory().publication(FAR, limit=FAR, channel="aeron:ipc").subscriber(FAR - WINDOW, of=PUBLICATION)
        )
    else:
        made = MadeUpDirectory().image(FAR + WINDOW).subscriber(FAR)
    assert "archive" not in sentence(made)
    made.archive(ArchiveCounterType.ERRORS, 1)
    assert "; it is of archive 42, which is not recording this stream" in sentence(made)
    assert "max_concurrent_recordings" in sentence(made)


def test_a_stalled_recording_reports_its_position() -> None:
    made = MadeUpDirectory().image(FAR).subscriber(FAR)
    made.recording(FAR)
    assert sentence(made).endswith(f"; recording 7 of archive 42 is at {FAR:,}")


def test_a_replay_that_its_subscriber_stalls_is_called_a_replay() -> None:
    replay = f"{UDP}|init-term-id=0|term-id=3|term-offset=64"
    made = MadeUpDirectory().publication(FAR, limit=FAR, channel="aeron:ipc?" + replay.partition("?")[2])
    made.subscriber(FAR - WINDOW, of=PUBLICATION)
    assert not sentence(made).startswith("replay")
    made.archive(ArchiveCounterType.ERRORS, 0)
    found = diagnose([made.sample(0), made.sample(1000)])[0]
    assert found.rule == "slow-subscriber"
    assert found.sentence.startswith(
        f"replay of archive {ARCHIVE}: subscription 30 of client {CLIENT} has 32,768 bytes"
    )


def test_responses_that_a_client_does_not_read_are_called_responses() -> None:
    made = MadeUpDirectory().publication(FAR, limit=FAR, channel="aeron:ipc").subscriber(FAR - WINDOW, of=PUBLICATION)
    made.archive(ArchiveCounterType.ERRORS, 0)
    label = "control-session: name=billing version=1 commit=2 sourceIdentity=aeron:ipc sessionId=4"
    made.archive(ArchiveCounterType.CONTROL_SESSION, 3, label, reference=PUBLICATION)
    assert sentence(made).startswith(f"responses of archive {ARCHIVE} to billing: subscription 30")


def test_a_recording_is_the_last_stage_of_a_stream() -> None:
    made = MadeUpDirectory().image(FAR).subscriber(FAR - 96)
    made.recording(FAR - 160)
    last = stages(group_streams(made.sample())[0])[-1]
    assert (last.kind, last.registration_id, last.position, last.backlog) == ("recording", 7, FAR - 160, 64)
