"""Channels that do not fit into a description: refused at every entrance, and listed if they are already in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.archive_server import CHANNEL, RunningArchive
from tests.support.streams import Stream, record
from tests.unit.recording.test_recorder_starts import Subscription, recorder_of

from mainstem.archive.messages import RecordingSignal
from mainstem.errors import RecordingError
from mainstem.recording import Recorder, read_catalog
from mainstem.recording import catalog as catalogs
from mainstem.recording.catalog import MAX_SOURCE_LENGTH, MAX_TEXTS_LENGTH, Catalog

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.archive_server import ControlClient

    from mainstem.archive.messages import Message

PREFIX = "aeron:ipc?alias="
# The stripped channel is as long as this one.
LONGEST = PREFIX + "q" * ((MAX_TEXTS_LENGTH - MAX_SOURCE_LENGTH) // 2 - len(PREFIX))
LONGER = f"{LONGEST}q"


def listed(client: ControlClient) -> list[Message]:
    return client.listed("ListRecordingsRequest", from_recording_id=0, record_count=1000)


def test_an_archive_accepts_only_channels_that_it_can_describe(tmp_path: Path) -> None:
    with RunningArchive(tmp_path / "archive") as archive:
        client = archive.connected()
        fields = {"stream_id": 1001, "source_location": 0, "auto_stop": 1}
        assert "too long" in client.error("StartRecordingRequest2", channel=LONGER, **fields)[1]
        client.record(1001, channel=LONGEST, auto_stop=True)
        archive.aeron.add_exclusive_publication(CHANNEL, 1001).close()
        assert [client.signal()[0] for _ in range(2)] == [RecordingSignal.START, RecordingSignal.STOP]
        (found,) = listed(client)
        assert (found.original_channel, found.stripped_channel) == (LONGEST, LONGEST)
        assert "too long" in client.error("UpdateChannelRequest", recording_id=0, channel=LONGER)[1]
        assert "too long" in client.error("ExtendRecordingRequest2", recording_id=0, channel=LONGER, **fields)[1]
        assert [each.original_channel for each in listed(client)] == [LONGEST]
        client.record(1001, channel=LONGEST)
        fields = {"pseudo_index": 0, "subscription_count": 9, "apply_stream_id": 0, "stream_id": 0, "channel": ""}
        (subscription,) = client.listed("ListRecordingSubscriptionsRequest", **fields)
        assert subscription.stripped_channel.endswith("qqq")


def test_a_recorder_accepts_only_channels_that_an_archive_can_describe(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        with pytest.raises(RecordingError, match="too long"):
            Stream().start(recorder, channel=LONGER)
        Stream().start(recorder, channel=LONGEST)
    subscription = Subscription()
    subscription.channel = LONGER
    with pytest.raises(RecordingError, match="too long"):
        recorder_of(tmp_path / "other", subscription)


def test_recordings_of_longer_channels_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program recorded them. They are listed and found like the others, with the beginnings of their channels."""
    with monkeypatch.context() as patched:
        patched.setattr(catalogs, "MAX_TEXTS_LENGTH", 1 << 20)
        for number, channel in enumerate((CHANNEL, LONGER + "q" * 5000, CHANNEL)):
            with Recorder(tmp_path, segment_length=1 << 17) as recorder:
                stream = Stream(session_id=70 + number)
                record(stream.start(recorder, channel=channel), stream, [b"tide"])
    with RunningArchive(tmp_path) as archive:
        client = archive.connected()
        found = listed(client)
        assert [each.recording_id for each in found] == [0, 1, 2]
        assert found[0].original_channel == CHANNEL
        shown = found[1].original_channel
        assert shown.endswith("...")
        assert LONGER.startswith(shown[:2000])
        assert found[1].stop_position == found[0].stop_position
        assert found[1].session_id == 71
        assert client.ask("UpdateChannelRequest", recording_id=1, channel="aeron:ipc?alias=short") == 0
        assert [each.original_channel for each in listed(client)] == [CHANNEL, "aeron:ipc?alias=short", CHANNEL]
    assert len(read_catalog(tmp_path)) == 3


def test_the_catalog_refuses_what_cannot_be_described(tmp_path: Path) -> None:
    """Replications enter a recording through the catalog, with texts from another archive."""
    catalog = Catalog(tmp_path)
    for name in ("stripped_channel", "original_channel", "source_identity"):
        fields = {"recording_id": 0, "start_timestamp": 0, name: "s" * (MAX_TEXTS_LENGTH + 1)}
        with pytest.raises(RecordingError, match="too long"):
            catalog.add(catalogs.RecordingDescriptor(**fields))  # type: ignore[arg-type]
    assert catalog.recordings() == []
    catalog.close()
