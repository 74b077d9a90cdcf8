"""Counters grouped into streams."""

from __future__ import annotations

from tests.unit.aeron.tools.directory import (
    IMAGE,
    PUBLICATION,
    SESSION,
    STREAM,
    SUBSCRIPTION,
    UDP,
    WINDOW,
    MadeUpDirectory,
)

from mainstem.aeron.counters import CounterType
from mainstem.aeron.tools.snapshot import stream_key
from mainstem.aeron.tools.streams import group_streams


def test_a_publication_and_its_image_on_one_driver_are_one_stream() -> None:
    made = MadeUpDirectory().publication(960, limit=4096, sent=640, sender_limit=2048).image(640).subscriber(320)
    (stream,) = group_streams(made.sample())
    assert (stream.session_id, stream.stream_id, stream.channel) == (SESSION, STREAM, UDP)
    assert stream.publication is not None
    assert (stream.publication.position, stream.publication.sender_position) == (960, 640)
    assert [i.key.registration_id for i in stream.images] == [IMAGE]
    assert [s.registration_id for s in stream.images[0].subscribers] == [SUBSCRIPTION]


def test_a_spy_belongs_to_the_publication_and_not_to_the_image() -> None:
    made = MadeUpDirectory().publication(960, limit=4096, sent=640, sender_limit=2048).image(640).spy(960)
    (stream,) = group_streams(made.sample())
    assert stream.publication is not None
    assert [s.is_spy for s in stream.publication.subscribers] == [True]
    assert stream.images[0].subscribers == ()


def test_an_image_from_another_host_is_a_separate_stream() -> None:
    (stream,) = group_streams(MadeUpDirectory().image(64).sample())
    assert stream.publication is None
    assert stream.channel == UDP


def test_session_ids_that_repeat_on_another_address_are_told_apart_by_the_address() -> None:
    other = "aeron:udp?endpoint=localhost:20999|session-id=-5"
    made = MadeUpDirectory().publication(0, limit=0, sent=0, sender_limit=0)
    made.publication(0, limit=0, sent=0, sender_limit=0, registration_id=11, channel=other)
    made.image(0, channel=other)
    owners = {s.publication.key.registration_id: len(s.images) for s in group_streams(made.sample()) if s.publication}
    assert owners == {PUBLICATION: 0, 11: 1}


def test_a_truncated_channel_is_completed_from_the_label() -> None:
    channel = "aeron:udp?endpoint=localhost:20121|alias=" + "x" * 100
    made = MadeUpDirectory().image(0, channel=channel).subscriber(0, channel=channel)
    keys = [stream_key(c) for c in made.counters]
    assert {k.channel for k in keys if k} == {channel}
    assert {k.join_position for k in keys if k} == {None, 0}


def test_the_client_is_known_by_its_name_and_the_recording_by_its_owner() -> None:
    made = MadeUpDirectory().image(0).subscriber(0).subscriber(0, registration_id=31, client=41)
    made.client(name="orders book", records=True)
    recorder, other = group_streams(made.sample())[0].images[0].subscribers
    assert recorder.client.name == "orders book"
    assert recorder.recording is not None
    assert recorder.recording.name == "recording 7 of archive 42"
    assert other.recording is None


def test_a_recorder_that_reads_another_stream_records_only_its_own() -> None:
    made = MadeUpDirectory().image(0).subscriber(0)
    made.recording(0, session=6)
    assert group_streams(made.sample())[0].images[0].subscribers[0].recording is None


def test_counters_of_applications_are_not_streams() -> None:
    made = MadeUpDirectory()
    made.stream(CounterType.PUBLISHER_LIMIT, 5, 7)
    made.counters[0] = type(made.counters[0])(
        counter_id=1, type_id=1001, value=0, registration_id=0, owner_id=0, reference_id=0, key=bytes(112), label="mine"
    )
    assert group_streams(made.sample()) == ()


def test_a_receiver_s_window_is_at_most_half_a_term() -> None:
    (stream,) = group_streams(MadeUpDirectory().image(0, receiver_window_length=131_072).sample())
    assert stream.images[0].window == WINDOW
