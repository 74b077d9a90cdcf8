"""Which life of a stream a recording is of.

A publisher that ends and begins again may have the session, the stream and the term ids that it had before. Its positions then
name other messages. The image tells two lives apart: a driver gives each image a number (IPC subscribers and spies have the
publication's), and with the start time of the driver it names one life of a stream, or a part of one.
"""

from __future__ import annotations

from typing import NamedTuple


class StreamLife(NamedTuple):
    """An image at a driver."""

    driver_start_ms: int
    image_id: int


NO_LIFE = StreamLife(-1, -1)  # of a log that its recorder lays out itself: its positions are never those of another
OF_ARCHIVE = StreamLife(0, 0)  # what an Aeron Archive writes into a new entry
ENDED = StreamLife(-2, -2)  # the publisher ended the stream: nothing continues it


def is_of_network(channel: str, source_identity: str) -> bool:
    """Whether an image came over the network, where a driver makes another of a stream that it meets again."""
    return not channel.startswith("aeron-spy:") and source_identity != "aeron:ipc"
