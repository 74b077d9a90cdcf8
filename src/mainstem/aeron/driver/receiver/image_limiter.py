"""Limits on the images that the driver creates, as a defense against forged SETUPs.

Any host that can reach the socket can send a SETUP, and each image costs a log, counters, and time in every duty cycle. A real
publisher follows its SETUP with data, or with a heartbeat every 100 ms. So the driver limits how many images may be in creation
or have received nothing yet, both per source and in total. It ignores SETUPs beyond these limits. Senders repeat them every
100 ms, so a real stream is only delayed.

A host that also sends heartbeats for its forged streams looks like a publisher; only the limits on all images of a stream, of a
source and of the driver apply to it. A source is an IPv4 address or an IPv6 /64 network (``mainstem._internal.address_prefixes``).

Only the receiver's thread uses the limiter. It counts a session from the accepted SETUP until the conductor refuses the image or
the image is removed.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TypeVar

from mainstem._internal.address_prefixes import AddressPrefixes

# Images that the conductor may have in creation. It takes about half a millisecond for each. Up to this many streams can start
# at the same time without any sender having to repeat its SETUP.
MAX_CREATING = 128

# Images that have received nothing but their SETUP, for one source and in total. A real stream is one of them for about 100 ms,
# and the conductor creates only a few hundred images in that time.
MAX_SILENT_OF_SOURCE = 1_024
MAX_SILENT = 4_096

NO_LIMIT = 0x7FFFFFFF

K = TypeVar("K")

# Endpoint key, stream id, session id.
Session = tuple[int, int, int]


class Refusal(Enum):
    BUSY = "the conductor is busy creating others; the sender will repeat it"
    SILENT_OF_SOURCE = f"{MAX_SILENT_OF_SOURCE} images of its source have received no data and no heartbeat yet"
    SILENT = f"{MAX_SILENT} images have received no data and no heartbeat yet"
    OF_STREAM = (
        "exceeded session limit: it has as many sessions at this endpoint as AERON_DRIVER_STREAM_SESSION_LIMIT allows"
    )
    OF_SOURCE = "its source has as many images as AERON_DRIVER_SOURCE_IMAGE_LIMIT allows"
    OF_ALL = "there are as many images as AERON_DRIVER_IMAGE_LIMIT allows"


class ImageLimiter:
    """The counts of the receiver's images, which decide whether another one may be created.

    ``stream_limit`` is per endpoint and stream, ``source_limit`` per source address, and ``total_limit`` for the whole driver.
    """

    def __init__(
        self, *, stream_limit: int = NO_LIMIT, source_limit: int = NO_LIMIT, total_limit: int = NO_LIMIT
    ) -> None:
        self._stream_limit = stream_limit
        self._source_limit = source_limit
        self._total_limit = total_limit
        self._prefixes = AddressPrefixes()
        self._source_of: dict[Session, str] = {}
        self._creating: set[Session] = set()
        self._silent: set[Session] = set()
        self._of_stream: Counter[tuple[int, int]] = Counter()
        self._of_source: Counter[str] = Counter()
        self._silent_of_source: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._source_of)

    def refusal(self, session: Session, address: str) -> Refusal | None:
        """Return why the session may not have an image, or None if it may have one or is already counted."""
        if session in self._source_of:
            return None
        if self._of_stream[session[:2]] >= self._stream_limit:
            return Refusal.OF_STREAM
        if len(self._source_of) >= self._total_limit:
            return Refusal.OF_ALL
        source = self._prefixes.prefix_of(address)
        if self._of_source[source] >= self._source_limit:
            return Refusal.OF_SOURCE
        if self._silent_of_source[source] >= MAX_SILENT_OF_SOURCE:
            return Refusal.SILENT_OF_SOURCE
        if len(self._silent) >= MAX_SILENT:
            return Refusal.SILENT
        return Refusal.BUSY if len(self._creating) >= MAX_CREATING else None

    def creating(self, session: Session, address: str) -> None:
        """Count a session whose image the conductor was asked to create; ``address`` is the SETUP's source address."""
        # The session is still counted if the conductor never responded to an earlier request.
        self.gone(session)
        source = self._source_of[session] = self._prefixes.prefix_of(address)
        self._creating.add(session)
        self._silent.add(session)
        self._of_stream[session[:2]] += 1
        self._of_source[source] += 1
        self._silent_of_source[source] += 1

    def created(self, session: Session) -> None:
        """Record that the conductor created the image; it stays silent until ``heard``."""
        self._creating.discard(session)

    def heard(self, session: Session) -> None:
        """Record that the image received data or a heartbeat, so the limits on silent images no longer apply to it."""
        if session in self._silent:
            self._silent.remove(session)
            _uncount(self._silent_of_source, self._source_of[session])

    def gone(self, session: Session) -> None:
        """Stop counting a session whose image was refused or removed. Do nothing if it isn't counted."""
        # Before the pop: ``heard`` reads the session's source.
        self.heard(session)
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
