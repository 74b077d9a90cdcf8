"""Which events the settings select, by the reference's names and numbers."""

from __future__ import annotations

import pytest

from mainstem.aeron.driver.event_log.names import FRAMES, NUMBERS, chosen_events, known_events, record_event
from mainstem.errors import ConfigurationError


def test_a_record_has_the_references_name() -> None:
    assert record_event("AddPublication") == "CMD_IN_ADD_PUBLICATION"
    assert record_event("RemoveDestinationById") == "CMD_IN_REMOVE_DESTINATION_BY_ID"
    assert record_event("ClientKeepalive") == "CMD_IN_KEEPALIVE_CLIENT"
    assert record_event("AddReceiveDestination") == "CMD_IN_ADD_RCV_DESTINATION"
    assert record_event("OnAvailableImage") == "CMD_OUT_AVAILABLE_IMAGE"
    assert record_event("OnUnavailableImage") == "CMD_OUT_ON_UNAVAILABLE_IMAGE"


def test_every_event_of_the_reference_is_known_by_name_and_number() -> None:
    for number, name in NUMBERS.items():
        assert chosen_events(name, setting="X") == chosen_events(str(number), setting="X") == {name}
        assert chosen_events(name.lower(), setting="X") == {name}
    # The log also has records for which the reference has no event.
    assert known_events() - set(NUMBERS.values()) == {
        "CMD_IN_ADD_STATIC_COUNTER",
        "CMD_IN_GET_NEXT_AVAILABLE_SESSION_ID",
        "CMD_OUT_STATIC_COUNTER",
        "CMD_OUT_PUBLICATION_ERROR",
        "CMD_OUT_NEXT_AVAILABLE_SESSION_ID",
    }


def test_admin_is_everything_but_frames() -> None:
    assert chosen_events("all", setting="X") == chosen_events("0xFFFF", setting="X") == known_events()
    assert chosen_events("admin", setting="X") == known_events() - FRAMES
    assert chosen_events(" NAK_SENT , 58,", setting="X") == {"NAK_SENT", "NAK_RECEIVED"}
    assert chosen_events("", setting="X") == set()


@pytest.mark.parametrize("text", ["FRAMES", "9", "-1", "0x", "0x10", "NAK_SENT NAK_RECEIVED"])
def test_an_unknown_event_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"AERON_EVENT_LOG: .*FRAME_IN"):
        chosen_events(text, setting="AERON_EVENT_LOG")
