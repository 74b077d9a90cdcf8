"""A replay that something else ends: its reader gets everything that it asked for or an error, never less with an orderly end.

One thread runs the driver, the archive, a reader and another client, so each round is decided by its seed alone.
"""

from __future__ import annotations

import random
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_server import CHANNEL, SEGMENT, RunningArchive
from tests.support.case_selection import long_after

from mainstem import archive
from mainstem.archive import RecordingSignal
from mainstem.errors import ArchiveError, ArchiveErrorCode, ConnectionLost, MainstemError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = 544  # bytes of a message with its header, aligned
STREAM_ID, REPLAY_STREAM_ID = 1001, 1002
ROUNDS = 40


def payload(number: int) -> bytes:
    return b"%06d" % number + bytes(500)


class Recorded:
    """An archive with one recording of numbered messages, its reader, and somebody else's client."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.running = stack.enter_context(RunningArchive(directory))
        self.reader = stack.enter_context(archive.connect("aeron:ipc", aeron=self.running.aeron))
        self.other = stack.enter_context(archive.connect("aeron:ipc", aeron=self.running.aeron))
        self.positions: list[int] = []  # where each message ends
        self.reader.start_recording(CHANNEL, STREAM_ID, auto_stop=True)
        self.publication = stack.enter_context(self.running.aeron.add_exclusive_publication(CHANNEL, STREAM_ID))
        self._signal(RecordingSignal.START)

    def _signal(self, wanted: RecordingSignal) -> None:
        for event in self.reader.events(timeout=60.0):
            if getattr(event, "signal", None) is wanted:
                return

    def publish(self, count: int) -> None:
        for _ in range(count):
            number = len(self.positions)
            self.running.until(lambda: self.publication.offer(payload(number)) > 0)  # noqa: B023
            self.positions.append(self.publication.position)
        self.running.until(lambda: self.other.max_recorded_position(0) == self.positions[-1], "it is recorded")

    def stop(self) -> None:
        self.publication.close()
        self._signal(RecordingSignal.STOP)

    def replay(self, **options: Any) -> Any:
        return self.reader.replay(0, "aeron:ipc?term-length=64k", REPLAY_STREAM_ID, **options)

    def messages(self, subscription: Any) -> Iterator[int]:
        for data in subscription.messages(timeout=60.0):
            assert data[6:] == bytes(500)
            yield int(data[:6])


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with ExitStack() as stack:
        yield Recorded(tmp_path, stack)


@pytest.mark.parametrize("cause", ["stop_all_replays", "truncate_recording"])
def test_a_replay_that_another_client_cuts_short_is_an_error(recorded: Recorded, cause: str) -> None:
    recorded.publish(2000)
    recorded.stop()
    arguments = [0] if cause == "stop_all_replays" else [0, 2 * SEGMENT]
    with recorded.replay() as subscription:
        messages = recorded.messages(subscription)
        got = [next(messages) for _ in range(50)]
        getattr(recorded.other, cause)(*arguments)
        with pytest.raises(ConnectionLost, match="the archive stopped it") as caught:
            got += messages
        assert got == list(range(len(got)))
        assert caught.value.end == recorded.positions[-1]
        assert caught.value.position is not None
        assert 0 < caught.value.position < recorded.positions[-1]
    if cause == "stop_all_replays":
        with recorded.replay(position=caught.value.position) as subscription:
            rest = list(recorded.messages(subscription))
        assert rest[-1] == 1999
        assert set(got) | set(rest) == set(range(2000))
        return
    with pytest.raises(ArchiveError) as refused:
        recorded.replay(position=recorded.positions[-1])
    assert refused.value.code is ArchiveErrorCode.INVALID_POSITION


def test_a_replay_follows_an_active_recording_to_where_it_stops(recorded: Recorded) -> None:
    recorded.publish(10)
    with recorded.replay() as subscription, recorded.replay(length=20 * FRAME) as longer:
        messages = recorded.messages(subscription)
        assert [next(messages) for _ in range(10)] == list(range(10))
        recorded.publish(5)
        recorded.stop()
        assert list(messages) == list(range(10, 15))
        assert list(recorded.messages(longer)) == list(range(15))


@pytest.mark.parametrize("is_active", [True, False])
def test_a_length_extends_to_the_end_of_its_last_frame(recorded: Recorded, is_active: bool) -> None:
    recorded.publish(130)
    if not is_active:
        recorded.stop()
    # The first term has 120 messages and then padding.
    for length, count in (
        (1, 1),
        (FRAME, 1),
        (FRAME + 1, 2),
        (2 * FRAME - 1, 2),
        (65_300, 120),
        (65_536, 120),
        (65_537, 121),
    ):
        with recorded.replay(length=length) as subscription:
            assert list(recorded.messages(subscription)) == list(range(count)), length


CAUSES = ("stop", "truncate", "purge segments", "delete", "publish", "end", "own stop", "close the archive", "nothing")


@pytest.mark.parametrize("seed", long_after(8, range(ROUNDS)))
def test_a_reader_gets_everything_or_an_error(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    with ExitStack() as stack:
        recorded = Recorded(tmp_path, stack)
        recorded.publish(randomness.randrange(1, 900))
        is_active = randomness.random() < 0.4
        if not is_active:
            recorded.stop()
        at_start = len(recorded.positions)
        first = randomness.choice([0, randomness.randrange(at_start)])
        position = recorded.positions[first - 1] if first else 0
        length = randomness.choice([None, randomness.randrange(1, 400_000)])
        follows = length is not None or randomness.random() < 0.5
        replay = recorded.replay(position=position, length=length, follow=follows)
        messages = recorded.messages(stack.enter_context(replay))
        got: list[int] = []
        causes = randomness.choices(CAUSES, k=randomness.randrange(3))
        error: MainstemError | None = None
        try:
            for cause in causes:
                for _ in range(randomness.randrange(200)):
                    if first + len(got) < at_start and (length is None or (len(got) + 2) * FRAME < length):
                        got.append(next(messages))
                for _ in range(randomness.randrange(20)):
                    recorded.running.work()
                is_active = act(recorded, cause, randomness, is_active=is_active)
            if is_active:
                recorded.stop()
            got += messages
        except (ConnectionLost, ArchiveError) as raised:
            error = raised
        except StopIteration:
            pass
        assert got == list(range(first, first + len(got)))
        starts = [end - FRAME for end in recorded.positions[: None if follows else at_start]]
        promised = sum(start < position + length for start in starts) if length is not None else len(starts)
        if error is None and "own stop" not in causes:
            assert first + len(got) == promised, causes
        if not set(causes) & {"stop", "truncate", "delete", "close the archive"}:
            assert error is None, causes


def act(recorded: Recorded, cause: str, randomness: random.Random, *, is_active: bool) -> bool:
    """Let something happen to the recording or its replay. Return whether the recording is active after that."""
    other = recorded.other
    if cause == "publish" and is_active:
        recorded.publish(randomness.randrange(1, 200))
    elif cause == "end" and is_active:
        recorded.stop()
        return False
    elif cause == "close the archive":
        recorded.running.stop()
        recorded.running.server = None
        return False
    with suppress(MainstemError):
        if cause == "stop":
            other.stop_all_replays(randomness.choice([None, 0]))
        elif cause == "truncate":
            other.truncate_recording(0, randomness.choice([0, *recorded.positions]))
        elif cause == "purge segments":
            other.purge_segments(0, SEGMENT * randomness.randrange(4))
        elif cause == "delete":
            other.purge_recording(0)
        elif cause == "own stop":
            recorded.reader.stop_all_replays()
    return is_active
