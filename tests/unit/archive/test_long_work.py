"""Requests that work on data of any length do so in slices of a duty cycle, beside other clients' requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archive_server import CHANNEL, SEGMENT, RunningArchive
from tests.support.many_recordings import make_recordings

from mainstem.archive.channels import extension_channel
from mainstem.archive.messages import RecordingSignal, encode
from mainstem.archive.server import duty_cycle, files
from mainstem.archive.server.channel_updates import MAX_UPDATES
from mainstem.archive.server.listings import MAX_SEARCHES
from mainstem.errors import ArchiveErrorCode
from mainstem.recording import catalog, earlier_frames, find_problems, open_recordings, read_catalog
from mainstem.recording.index import index_file
from mainstem.recording.segments import segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.archive_server import ControlClient

FRAMES, FRAME_LENGTH = 400, 1024


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An archive whose slices have room for one small step."""
    monkeypatch.setattr(duty_cycle, "SLICE_NS", 0)
    monkeypatch.setattr(earlier_frames, "STEP_LENGTH", FRAME_LENGTH)
    with RunningArchive(tmp_path / "archive") as running:
        yield running


def publish(archive: RunningArchive, publication: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        message = number.to_bytes(8, "big") * ((FRAME_LENGTH - 32) // 8)
        archive.until(lambda: publication.offer(message) > 0, "a frame is published")  # noqa: B023


def recorded(archive: RunningArchive, client: ControlClient) -> int:
    client.record(auto_stop=True)
    with archive.aeron.add_exclusive_publication(CHANNEL, 1001) as publication:
        publish(archive, publication, 0, FRAMES)
        recording_id = client.signal()[1]
    assert client.signal()[0] == RecordingSignal.STOP
    return recording_id


def extend(archive: RunningArchive, client: ControlClient, recording_id: int) -> Any:
    """Ask to extend a recording, and return the publication that continues it."""
    client.ask(
        "ExtendRecordingRequest2",
        recording_id=recording_id, stream_id=1001, source_location=0, auto_stop=1, channel=CHANNEL,
    )  # fmt: skip
    channel = extension_channel("aeron:ipc", read_catalog(archive.directory)[recording_id])
    return archive.aeron.add_exclusive_publication(channel, 1001)


def is_served(client: ControlClient) -> bool:
    return client.ask("StopReplayRequest", replay_session_id=-5) == 0


def test_a_recording_without_an_index_is_extended_beside_other_requests(archive: RunningArchive) -> None:
    client, other = archive.connected(), archive.connected()
    recording_id = recorded(archive, client)
    index_file(archive.directory, recording_id).unlink()
    with extend(archive, client, recording_id) as publication:
        # Before the extension has begun, others are served, and nobody changes the recording.
        code, _ = other.error("TruncateRecordingRequest", recording_id=recording_id, position=0)
        assert code == ArchiveErrorCode.ACTIVE_RECORDING
        served = 0
        while archive.server.stats().recordings == 0:
            assert is_served(other)
            served += 1
        assert served > 0
        assert client.signal() == (RecordingSignal.EXTEND, recording_id, FRAMES * FRAME_LENGTH)
        publish(archive, publication, FRAMES, 10)
    assert client.signal() == (RecordingSignal.STOP, recording_id, (FRAMES + 10) * FRAME_LENGTH)
    with open_recordings(archive.directory) as recordings:
        (reader,) = recordings
        assert list(find_problems(reader, reader.start_position, reader.end_position())) == []
        assert reader.count_before(reader.end_position()).messages == FRAMES + 10


def test_an_extension_can_be_stopped_before_it_begins(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id = recorded(archive, client)
    index_file(archive.directory, recording_id).unlink()
    with extend(archive, client, recording_id):
        assert is_served(client)
        assert client.ask("StopRecordingRequest", stream_id=1001, channel=CHANNEL) == 0
    # The recording is nobody's any longer.
    assert client.ask("TruncateRecordingRequest", recording_id=recording_id, position=SEGMENT) >= 0
    assert client.ask("StopPositionRequest", recording_id=recording_id) == SEGMENT


def test_an_extension_of_a_recording_that_cannot_be_read_fails(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id = recorded(archive, client)
    index_file(archive.directory, recording_id).unlink()
    (archive.directory / segment_name(recording_id, SEGMENT)).unlink()
    with extend(archive, client, recording_id):
        late = client.take(lambda each: each.name == "ControlResponse" and each.values.get("error_message"))
    assert "is missing" in late.error_message
    assert client.ask("PurgeRecordingRequest", recording_id=recording_id) > 0


def test_segments_are_attached_beside_other_requests(archive: RunningArchive) -> None:
    client, other = archive.connected(), archive.connected()
    recording_id = recorded(archive, client)
    assert client.ask("DetachSegmentsRequest", recording_id=recording_id, new_start_position=3 * SEGMENT) == 0
    attaching = client.send("AttachSegmentsRequest", recording_id=recording_id)
    again = client.send("AttachSegmentsRequest", recording_id=recording_id)
    assert is_served(other)
    assert "another delete operation in progress" in client.response(again).error_message
    assert client.response(attaching).relevant_id == 3
    assert client.ask("StartPositionRequest", recording_id=recording_id) == 0
    # A segment that begins with a hole is attached from its first frame on, and the search ends there.
    assert client.ask("DetachSegmentsRequest", recording_id=recording_id, new_start_position=3 * SEGMENT) == 0
    with (archive.directory / segment_name(recording_id, SEGMENT)).open("r+b") as file:
        file.write(bytes(20 * FRAME_LENGTH))
    assert client.ask("AttachSegmentsRequest", recording_id=recording_id) == 2
    assert client.ask("StartPositionRequest", recording_id=recording_id) == SEGMENT + 20 * FRAME_LENGTH


def test_segments_of_a_recording_that_changes_are_not_attached(archive: RunningArchive) -> None:
    client = archive.connected()
    recording_id = recorded(archive, client)
    for start in (2 * SEGMENT, 3 * SEGMENT):
        assert client.ask("DetachSegmentsRequest", recording_id=recording_id, new_start_position=start) == 0
        if start == 2 * SEGMENT:
            attaching = client.send("AttachSegmentsRequest", recording_id=recording_id)
    assert "was changed while" in client.response(attaching).error_message
    assert client.ask("StartPositionRequest", recording_id=recording_id) == 3 * SEGMENT


def test_searches_and_listings_of_many_recordings_leave_time_for_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty_cycle, "SLICE_NS", 0)
    make_recordings(tmp_path / "archive", 150)
    with RunningArchive(tmp_path / "archive") as archive:
        first, second, other = (archive.connected() for _ in range(3))

        def search(correlation_id: int, session_id: int, stream_id: int) -> int:
            ids = {"control_session_id": first.session_id, "correlation_id": correlation_id}
            wanted = {"min_recording_id": 0, "session_id": session_id, "stream_id": stream_id, "channel": ""}
            first.send_bytes(encode("FindLastMatchingRecordingRequest", **ids, **wanted))
            return correlation_id

        searches = [search(-100 - number, -12345, 1) for number in range(3)]
        listing = second.send("ListRecordingsRequest", from_recording_id=0, record_count=150)
        assert is_served(other)
        first.poll()
        second.poll()
        assert sum(each.values.get("correlation_id") == listing for each in second.received) < 60
        assert not [each for each in first.received if each.values.get("correlation_id") in searches]
        for each in searches:
            assert first.response(each).relevant_id == -1
        archive.until(lambda: second.poll() or len(second.received) >= 150, "the whole listing")
        # A listing is over with its last message, wherever the cycle ends.
        for count in (1, 2, 3, 4, 63, 64, 65):
            assert len(second.listed("ListRecordingsRequest", from_recording_id=150 - count, record_count=99)) == count
        newest = read_catalog(archive.directory)[-1]
        assert first.response(search(-200, newest.session_id, newest.stream_id)).relevant_id == newest.recording_id
        # A session can have a limited number of them.
        for number in range(MAX_SEARCHES + 1):
            search(-300 - number, -12345, 1)
        refused = first.take(lambda each: each.values.get("correlation_id") == -300 - MAX_SEARCHES)
        assert "searches of this session are in progress" in refused.error_message


def test_channels_are_updated_beside_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty_cycle, "SLICE_NS", 0)
    monkeypatch.setattr(catalog, "COPY_LENGTH", 512)
    make_recordings(tmp_path / "archive", 150)
    before = {each.recording_id: each for each in read_catalog(tmp_path / "archive")}
    with RunningArchive(tmp_path / "archive") as archive:
        client, other = archive.connected(), archive.connected()
        channels = {recording_id: f"aeron:ipc?alias={'long' * 40}{recording_id}" for recording_id in (3, 70, 149)}
        updates = [
            client.send("UpdateChannelRequest", recording_id=key, channel=text) for key, text in channels.items()
        ]
        # Meanwhile, recordings start, stop, move and go, before and after the ones that are updated.
        new_id = recorded(archive, other)
        for recording_id, position in ((2, 0), (70, 128), (148, 128)):
            assert other.ask("TruncateRecordingRequest", recording_id=recording_id, position=position) >= 0
            before[recording_id] = replace(before[recording_id], stop_position=position)
        for recording_id in (1, 147):
            assert other.ask("PurgeRecordingRequest", recording_id=recording_id) == 1
            del before[recording_id]
        client.poll()
        assert not [each for each in client.received if each.values.get("correlation_id") in updates]
        for each in updates:
            assert client.response(each).code == 0
        for recording_id, text in channels.items():
            before[recording_id] = replace(before[recording_id], stripped_channel=text, original_channel=text)
        found = {each.recording_id: each for each in read_catalog(archive.directory)}
        added = found.pop(new_id)
        assert added.stop_position == FRAMES * FRAME_LENGTH
        assert found == before
        for recording_id, descriptor in before.items():
            assert client.ask("StopPositionRequest", recording_id=recording_id) == descriptor.stop_position
        assert recorded(archive, archive.connected()) == new_id + 1


def test_an_update_of_a_recording_that_is_purged_meanwhile_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty_cycle, "SLICE_NS", 0)
    monkeypatch.setattr(catalog, "COPY_LENGTH", 512)
    make_recordings(tmp_path / "archive", 150)
    with RunningArchive(tmp_path / "archive") as archive:
        client, other = archive.connected(), archive.connected()
        updates = [client.send("UpdateChannelRequest", recording_id=9, channel="aeron:ipc?alias=x") for _ in range(20)]
        for _ in range(4):
            archive.work()
        other.ask("PurgeRecordingRequest", recording_id=9)
        errors = [client.response(each).error_message for each in updates]
        assert f"{MAX_UPDATES} updates of this session" in errors[-1]
        assert errors[1] == "unknown recording id: 9"
        assert [each.recording_id for each in read_catalog(archive.directory)] == [*range(9), *range(10, 150)]


def test_segments_in_a_very_large_directory_are_found_beside_other_requests(
    archive: RunningArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "NAMES_PER_STEP", 10)
    client, other = archive.connected(), archive.connected()
    recording_id = recorded(archive, client)
    for number in range(500):
        (archive.directory / f"other-{number}").touch()
    assert len(list(archive.directory.glob(f"{recording_id}-*.rec"))) == 4

    def ask_beside_others(name: str, **fields: int) -> int:
        searching = client.send(name, recording_id=recording_id, **fields)
        for _ in range(5):
            assert is_served(other)
        client.poll()
        assert searching not in {each.values.get("correlation_id") for each in client.received}
        if name != "PurgeRecordingRequest":
            again = other.error("DeleteDetachedSegmentsRequest", recording_id=recording_id)
            assert "another delete operation in progress" in again[1]
        response = client.response(searching)
        assert client.signal()[0] == RecordingSignal.DELETE
        return int(response.relevant_id)

    assert ask_beside_others("PurgeSegmentsRequest", new_start_position=SEGMENT) == 1
    assert client.ask("DetachSegmentsRequest", recording_id=recording_id, new_start_position=2 * SEGMENT) == 0
    assert ask_beside_others("DeleteDetachedSegmentsRequest") == 1
    # A recording that loses its end is not extended before it is known which of its files go.
    truncating = client.send("TruncateRecordingRequest", recording_id=recording_id, position=2 * SEGMENT + FRAME_LENGTH)
    archive.until(lambda: archive.server._conductor._deletions.is_changing(recording_id))
    fields = {"recording_id": recording_id, "stream_id": 1001, "source_location": 0, "auto_stop": 1}
    assert "outstanding delete" in other.error("ExtendRecordingRequest2", channel=CHANNEL, **fields)[1]
    assert client.response(truncating).relevant_id == 1
    assert client.signal()[0] == RecordingSignal.DELETE
    assert ask_beside_others("PurgeRecordingRequest") == 1
    assert list(archive.directory.glob("*.rec")) == []


def test_a_directory_that_cannot_be_read_to_its_end_is_reported(
    archive: RunningArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = archive.connected()
    recording_id = recorded(archive, client)

    def broken(*_: object) -> Any:
        yield
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.ArchiveFiles, "find_segments", broken)
    assert "Input/output error" in client.error("PurgeRecordingRequest", recording_id=recording_id)[1]
    assert is_served(client)
