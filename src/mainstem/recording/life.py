"""Which life of a stream a recording belongs to.

A publisher that ends and starts again may reuse its session, stream and term ids, and its positions then name other messages.
The image tells the lives apart: a driver numbers its images (IPC subscribers and spies have the publication's number), and with
the driver's start time the number identifies one life of a stream, or a part of one.
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
    """Whether an image came over the network, where a driver makes another one if it meets the stream again."""
    return not channel.startswith("aeron-spy:") and source_identity != "aeron:ipc"
