"""A publisher that dies between two stores to shared memory, leaving in the log what the compiled appender would."""

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


def leave_half(publication: Publication | ExclusivePublication, rng: Random) -> str:
    """Claim space for ``publication``'s next message, and stop before the commit at a step drawn from ``rng``.

    Returns the last of the ``STEPS`` taken; empty if there was no space.
    """
    claim = BufferClaim()
    length = rng.randrange(1, MAX_LENGTH)
    if publication.closed or publication.try_claim(length, claim) < 0:
        return ""
    step = rng.choice(STEPS)
    log, term_length = publication._log, publication.term_length
    assert log is not None, "an open publication has its log"
    framed = (length + layout.DATA_HEADER_LENGTH + layout.FRAME_ALIGNMENT - 1) & -layout.FRAME_ALIGNMENT
    # The claim took every step but the payload's; undo the steps after the last one.
    frame = (claim.position - framed) % (layout.PARTITION_COUNT * term_length)
    if step == "payload":
        log.put_bytes(frame + layout.DATA_HEADER_LENGTH, rng.randbytes(length // 2))
    elif step == "length":
        log.put_bytes(frame + LENGTH_BYTES, bytes(layout.DATA_HEADER_LENGTH - LENGTH_BYTES))
    elif step == "tail":
        log.put_bytes(frame, bytes(layout.DATA_HEADER_LENGTH))
    return step
