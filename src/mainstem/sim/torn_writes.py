"""A publisher that ends between two stores to shared memory: what it leaves in the log, as the compiled appender would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.log.append import BufferClaim

if TYPE_CHECKING:
    from random import Random

    from mainstem.aeron.client.publication import ExclusivePublication, Publication

MAX_LENGTH = 1_000  # of the message that is never finished
LENGTH_BYTES = 4  # of a frame's length, the first field
# How far the appender came: the tail has moved; the length is there, negative; the header too; some of the payload.
STEPS = ("tail", "length", "header", "payload")


def leave_half(publication: Publication | ExclusivePublication, chance: Random) -> str:
    """Claims room for a message and stops before it is committed.

    Args:
        publication: Whose next message it is.
        chance: Draws how far the appender came.

    Returns:
        The last of the ``STEPS`` that it took; empty where there was no room.
    """
    claim = BufferClaim()
    length = chance.randrange(1, MAX_LENGTH)
    if publication.closed or publication.try_claim(length, claim) < 0:
        return ""
    step = chance.choice(STEPS)
    log, term_length = publication._log, publication.term_length
    assert log is not None, "an open publication has its log"
    framed = (length + layout.DATA_HEADER_LENGTH + layout.FRAME_ALIGNMENT - 1) & -layout.FRAME_ALIGNMENT
    # The claim took every step but the payload's; what comes after the last one is taken back.
    frame = (claim.position - framed) % (layout.PARTITION_COUNT * term_length)
    if step == "payload":
        log.put_bytes(frame + layout.DATA_HEADER_LENGTH, chance.randbytes(length // 2))
    elif step == "length":
        log.put_bytes(frame + LENGTH_BYTES, bytes(layout.DATA_HEADER_LENGTH - LENGTH_BYTES))
    elif step == "tail":
        log.put_bytes(frame, bytes(layout.DATA_HEADER_LENGTH))
    return step
