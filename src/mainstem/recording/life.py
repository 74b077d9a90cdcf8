"""Identifies the life of a stream to which a recording belongs.

A publisher that ends and starts again can reuse its session, stream and term ids. Its positions then refer to other messages. The
image distinguishes the lives: a driver numbers its images (IPC subscribers and spies have the publication's number). Together with
the driver's start time, the number identifies one life of a stream, or a part of one.
"""

from __future__ import annotations

from typing import NamedTuple


class StreamLife(NamedTuple):
    """An image at a driver."""

    driver_start_ms: int
    image_id: int


NO_LIFE = StreamLife(-1, -1)  # of a log that its recorder builds itself: its positions never belong to another log
OF_ARCHIVE = StreamLife(0, 0)  # the value that an Aeron Archive writes into a new entry
ENDED = StreamLife(-2, -2)  # the publisher ended the stream, so nothing continues it


def is_of_network(channel: str, source_identity: str) -> bool:
    """Return whether an image came over the network, where a driver creates another image if it meets the stream again."""
    return not channel.startswith("aeron-spy:") and source_identity != "aeron:ipc"
