"""Signal handlers that raise in an archive client: whenever they do, the next call works and each event arrives once."""
# ruff: noqa: B023 - every function is called in the loop iteration that defines it

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.support.interruptions import interruptions

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.archive.calls import Calls, Events
from mainstem.archive.messages import decode, encode

if TYPE_CHECKING:
    from collections.abc import Generator

PACKAGE = "mainstem.archive"
IDS = {"control_session_id": 71}
RECORDING = dict.fromkeys(
    (
        *("start_timestamp", "stop_timestamp", "start_position", "stop_position", "initial_term_id", "session_id"),
        *("segment_file_length", "term_buffer_length", "mtu_length", "stream_id"),
    ),
    0,
)


class Archive:
    """Both streams of a control session, in memory, for an archive with the recordings 0 to 4."""

    is_connected = True
    closed = False

    def __init__(self) -> None:
        self.outgoing: list[bytes] = []
        self.answer = 96  # the position or the id that the archive answers with

    def offer(self, data: bytes) -> int:
        request = decode(data)
        ids = IDS | {"correlation_id": request.correlation_id}
        if request.name == "ListRecordingsRequest":
            for number in range(request.from_recording_id, 5)[: request.record_count]:
                self.outgoing.append(encode("RecordingDescriptor", **ids, **RECORDING, recording_id=number))
        code = 2 if request.name == "ListRecordingsRequest" else 0
        self.outgoing.append(encode("ControlResponse", **ids, relevant_id=self.answer, code=code, version=0))
        return 32

    def signal(self, position: int) -> None:
        values = {"correlation_id": 1, "recording_id": 1, "subscription_id": 1, "position": position, "signal": 1}
        self.outgoing.append(encode("RecordingSignalEvent", **IDS, **values))

    def poll_bytes(self, limit: int) -> list[bytes]:
        taken = self.outgoing[:limit]
        del self.outgoing[:limit]
        return taken


def connected() -> tuple[Calls[Any], Archive]:
    numbers = iter(range(100, 10_000))
    aeron: Any = SimpleNamespace(
        _conductor=None, context=SimpleNamespace(clock=SYSTEM_CLOCK), next_correlation_id=lambda: next(numbers)
    )
    options: dict[str, Any] = {"response_channel": None, "stream_id": 10, "response_stream_id": 20}
    options |= {"credentials": b"", "on_challenge": None, "client_name": ""}
    calls: Calls[Any] = Calls(aeron, "aeron:ipc", **options)
    archive = Archive()
    calls._requests = calls._responses = archive
    calls.session.control_session_id, calls.session.is_connected = 71, True
    return calls, archive


def run(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_the_call_after_an_interrupted_one_gets_its_own_response() -> None:
    for interruption in interruptions(PACKAGE):
        calls, _ = connected()
        interruption.during(lambda: run(calls.stop_position(1, timeout=5.0)))
        assert run(calls.stop_position(1, timeout=5.0)) == 96
        assert calls.session.pending == 0


def test_a_listing_after_an_interrupted_one_is_whole() -> None:
    for interruption in interruptions(PACKAGE):
        calls, _ = connected()
        interruption.during(lambda: run(calls.list_recordings(timeout=5.0).next_page()))
        found = run(calls.list_recordings(timeout=5.0).next_page())
        assert [each.recording_id for each in found] == [0, 1, 2, 3, 4]
        assert calls.session.pending == 0


def test_events_come_once_and_in_order() -> None:
    for interruption in interruptions(PACKAGE):
        calls, archive = connected()
        for position in range(5):
            archive.signal(position)
        got: list[int] = []

        def work() -> None:
            while len(got) < 5 and run(Events(calls).wait(5.0)):
                while calls.session.events:
                    event: Any = calls.session.events.popleft()
                    got.append(event.position)

        interruption.during(work)
        work()
        assert got == [0, 1, 2, 3, 4]
