"""Which events the settings select, by the reference's names and numbers."""

from __future__ import annotations

import pytest

from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.event_log.events import FRAMES, Event
from mainstem.aeron.driver.event_log.log import chosen_events
from mainstem.errors import ConfigurationError


def test_every_command_and_response_is_an_event_with_a_line_of_its_fields() -> None:
    records = {*commands.COMMANDS.values(), *responses.RESPONSES.values()}
    assert {event.record for event in Event if event.record} == records
    for event in Event:
        if event.record is not None:
            assert event.name.startswith("CMD_OUT_" if event.record in responses.RESPONSES.values() else "CMD_IN_")
            fields = set(event.record.__dataclass_fields__) | {"revoke"}
            assert {each.partition("=")[0] for each in event.line.split()} <= fields


def test_records_have_the_references_names() -> None:
    assert Event.CMD_IN_ADD_PUBLICATION.record is commands.AddPublication
    assert Event.CMD_IN_REMOVE_DESTINATION_BY_ID.record is commands.RemoveDestinationById
    assert Event.CMD_IN_KEEPALIVE_CLIENT.record is commands.ClientKeepalive
    assert Event.CMD_IN_ADD_RCV_DESTINATION.record is commands.AddReceiveDestination
    assert Event.CMD_OUT_AVAILABLE_IMAGE.record is responses.OnAvailableImage
    assert Event.CMD_OUT_ON_UNAVAILABLE_IMAGE.record is responses.OnUnavailableImage


def test_events_have_the_references_numbers() -> None:
    numbers = {event.name: event.number for event in Event}
    assert (numbers["FRAME_IN"], numbers["CMD_IN_ADD_PUBLICATION"], numbers["CMD_IN_ADD_RCV_DESTINATION"]) == (1, 3, 41)
    reference = {*range(1, 9), *range(12, 18), *range(23, 27), *range(30, 61)}
    assert sorted(number for number in numbers.values() if number is not None) == sorted(reference)


def test_every_event_is_chosen_by_name_and_number() -> None:
    for event in Event:
        assert chosen_events(event.name, setting="X") == chosen_events(event.name.lower(), setting="X") == {event}
        assert event.number is None or chosen_events(str(event.number), setting="X") == {event}


def test_admin_is_everything_but_frames() -> None:
    assert chosen_events("all", setting="X") == chosen_events("0xFFFF", setting="X") == set(Event)
    assert chosen_events("admin", setting="X") == set(Event) - FRAMES
    assert chosen_events(" NAK_SENT , 58,", setting="X") == {Event.NAK_SENT, Event.NAK_RECEIVED}
    assert chosen_events("", setting="X") == set()


@pytest.mark.parametrize("text", ["FRAMES", "9", "-1", "0x", "0x10", "NAK_SENT NAK_RECEIVED"])
def test_an_unknown_event_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"AERON_EVENT_LOG: .*FRAME_IN"):
        chosen_events(text, setting="AERON_EVENT_LOG")
