"""Every frame on every kind of stream: accepted where the specification allows it; anywhere else, it ends the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.aqueduct_frames import (
    AckNackUnreliable,
    AckReliable,
    ChannelControl,
    ClosedChannelLost,
    CloseReceiver,
    ConnectionControl,
    FinishSender,
    Frame,
    SentUnreliable,
    Version,
)
from victim import Victim, attached_client, client, message, server

from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES: dict[str, Frame] = {
    "Version": Version(),
    "ConnectionControl": ConnectionControl(),
    "ChannelControl": ChannelControl(2),
    "Message": message(),
    "SentUnreliable": SentUnreliable(1),
    "AckReliable": AckReliable((1,)),
    "AckNackUnreliable": AckNackUnreliable(()),
    "FinishSender": FinishSender(0),
    "CloseReceiver": CloseReceiver(),
    "ClosedChannelLost": ClosedChannelLost(8),
}


def _to(victim: Victim, stream_id: int) -> Callable[[Frame], Victim]:
    def write(frame: Frame) -> Victim:
        victim.stream(stream_id, frame.encode())
        return victim

    return write


def _datagram(frame: Frame) -> Victim:
    victim = server()
    victim.datagram(frame)
    return victim


# For each place: how to send a frame there, and which frames belong there.
PLACES: dict[str, tuple[Callable[[Frame], Victim], set[str]]] = {
    "first on a stream of one direction": (
        lambda frame: _to(server(), 2)(frame),
        {"Version", "Message", "ClosedChannelLost"},
    ),
    "first on a stream of two directions": (lambda frame: _to(server(), 4)(frame), {"Version", "ChannelControl"}),
    "in a datagram": (_datagram, {"Version", "Message"}),
    "on the client's half of the connection control stream": (lambda frame: _to(server(), 0)(frame), set()),
    "on the server's half of the connection control stream": (lambda frame: _to(client(), 0)(frame), set()),
    "from sender to receiver, on a control stream that the receiver opened": (
        lambda frame: _to(server(), 1)(frame),
        {"SentUnreliable", "FinishSender"},
    ),
    "from receiver to sender, on a control stream that the receiver opened": (
        lambda frame: _to(attached_client()[0], 1)(frame),
        {"AckReliable", "AckNackUnreliable", "CloseReceiver"},
    ),
}
# A stream that the peer opened may start with a Version frame, but none may follow its first frame.
VERSION_OPENS = {"from sender to receiver, on a control stream that the receiver opened"}


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("name", list(FRAMES))
def test_each_frame_is_accepted_only_where_it_belongs(name: str, place: str) -> None:
    put, belong = PLACES[place]
    victim = put(FRAMES[name])
    allowed = name in belong or (name == "Version" and place in VERSION_OPENS)
    if allowed:
        assert not victim.ended, f"refused: {victim.error}"
    else:
        assert victim.ended, "handed_over"
        assert isinstance(victim.error, RemoteProtocolError)
        assert victim.error.rule in (
            "frame place",
            "version place",
            "connection control once",
            "connection control place",
        )
