"""How many images there are, of whom: what invented SETUPs may make the driver do.

An image costs a log, counters and a place in every duty cycle, and a SETUP is a datagram that every host on the way can send. So
the images of one source and those of all are limited, and so are those that the conductor is making: a SETUP beyond that is
ignored, and its sender repeats it every 100 ms. A source is an IPv4 address or an IPv6 /64 network (``mainstem.prefixes``).

Only the receiver's thread uses it. Every session that is counted is uncounted by its refusal or by the end of its image.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TypeVar

from mainstem.prefixes import Prefixes

# Images that the conductor is asked for at once: it takes about half a millisecond for each. As many new streams begin together
# without a sender having to repeat its SETUP.
MAX_CREATING = 128

NO_LIMIT = 0x7FFFFFFF

K = TypeVar("K")

# The key of the endpoint, the stream, the session.
Session = tuple[int, int, int]


class Refusal(Enum):
    """Why a SETUP makes no image."""

    BUSY = "the conductor makes others; the sender will repeat it"
    OF_STREAM = "the stream has as many sessions at this endpoint as AERON_DRIVER_STREAM_SESSION_LIMIT allows"
    OF_SOURCE = "its source has as many images as AERON_DRIVER_SOURCE_IMAGE_LIMIT allows"
    OF_ALL = "there are as many images as AERON_DRIVER_IMAGE_LIMIT allows"


class ImageCensus:
    """The images of a driver and those that are being made."""

    def __init__(
        self, *, stream_limit: int = NO_LIMIT, source_limit: int = NO_LIMIT, total_limit: int = NO_LIMIT
    ) -> None:
        self._stream_limit = stream_limit
        self._source_limit = source_limit
        self._total_limit = total_limit
        self._prefixes = Prefixes()
        self._source_of: dict[Session, str] = {}
        self._creating: set[Session] = set()
        self._of_stream: Counter[tuple[int, int]] = Counter()
        self._of_source: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._source_of)

    def refusal(self, session: Session, address: str) -> Refusal | None:
        """Why no image of that session may be made for a source; None where it may, or where it is counted already."""
        if session in self._source_of:
            return None
        if self._of_stream[session[:2]] >= self._stream_limit:
            return Refusal.OF_STREAM
        if len(self._source_of) >= self._total_limit:
            return Refusal.OF_ALL
        if self._of_source[self._prefixes.of(address)] >= self._source_limit:
            return Refusal.OF_SOURCE
        return Refusal.BUSY if len(self._creating) >= MAX_CREATING else None

    def creating(self, session: Session, address: str) -> None:
        """The conductor was asked for an image."""
        self.gone(session)
        source = self._source_of[session] = self._prefixes.of(address)
        self._creating.add(session)
        self._of_stream[session[:2]] += 1
        self._of_source[source] += 1

    def created(self, session: Session) -> None:
        """The conductor has made it."""
        self._creating.discard(session)

    def gone(self, session: Session) -> None:
        """The conductor has refused it, or the image has ended. Twice is fine."""
        source = self._source_of.pop(session, None)
        if source is None:
            return
        self._creating.discard(session)
        _uncount(self._of_stream, session[:2])
        _uncount(self._of_source, source)


def _uncount(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
