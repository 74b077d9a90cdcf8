"""Limits the images that invented SETUPs can make the driver create.

An image costs a log, counters and a place in every duty cycle, and any host on the way can send a SETUP. A real publisher
follows its SETUP with data, or with a heartbeat every 100 ms. So images that have received nothing yet, and those being made,
are limited per source and in total. SETUPs beyond these limits are ignored; senders repeat them every 100 ms, so a real stream
is only delayed.

A host that keeps invented streams alive looks like a publisher and is limited only by its total of images. A source is an IPv4
address or an IPv6 /64 network (``mainstem._internal.address_prefixes``).

Only the receiver's thread uses it. Every counted session is uncounted when it is refused or its image ends.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TypeVar

from mainstem._internal.address_prefixes import AddressPrefixes

# Images that the conductor is asked for at once: it takes about half a millisecond for each. As many new streams begin together
# without a sender having to repeat its SETUP.
MAX_CREATING = 128

# Images that have received nothing but their SETUP, of one source and in all. Real streams are among them for about 100 ms, in
# which the conductor makes a few hundred images.
MAX_SILENT_OF_SOURCE = 1_024
MAX_SILENT = 4_096

NO_LIMIT = 0x7FFFFFFF

K = TypeVar("K")

# The key of the endpoint, the stream, the session.
Session = tuple[int, int, int]


class Refusal(Enum):
    BUSY = "the conductor is busy creating others; the sender will repeat it"
    SILENT_OF_SOURCE = f"{MAX_SILENT_OF_SOURCE} images of its source have received no data and no heartbeat yet"
    SILENT = f"{MAX_SILENT} images have received no data and no heartbeat yet"
    OF_STREAM = "the stream has as many sessions at this endpoint as AERON_DRIVER_STREAM_SESSION_LIMIT allows"
    OF_SOURCE = "its source has as many images as AERON_DRIVER_SOURCE_IMAGE_LIMIT allows"
    OF_ALL = "there are as many images as AERON_DRIVER_IMAGE_LIMIT allows"


class ImageLimiter:
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
        """Why a session of that source may not have an image; None if it may, or if it is counted already."""
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
        self.gone(session)
        source = self._source_of[session] = self._prefixes.prefix_of(address)
        self._creating.add(session)
        self._silent.add(session)
        self._of_stream[session[:2]] += 1
        self._of_source[source] += 1
        self._silent_of_source[source] += 1

    def created(self, session: Session) -> None:
        self._creating.discard(session)

    def heard(self, session: Session) -> None:
        if session in self._silent:
            self._silent.remove(session)
            _uncount(self._silent_of_source, self._source_of[session])

    def gone(self, session: Session) -> None:
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
