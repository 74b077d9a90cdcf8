"""Limits how many recordings can start, because a peer can create any number of sessions.

A recording permanently costs a catalog entry and two files, and four descriptors while it is written. So new recordings are limited
per hour, by source and in total, and by the number of descriptors that the process can open. A stream beyond a limit is not read,
which stalls its publisher. Once there is capacity, recording begins where the stream stalled.

The limits match a driver's limit of images, so all existing images can be recorded when a recorder starts. A source is an IPv4
address or an IPv6 /64 network. A peer that forges source addresses is bound by the total limit.
"""

from __future__ import annotations

import resource

from mainstem._internal.address_prefixes import AddressPrefixes, address_of
from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.validation import check_int
from mainstem.aeron.admission import ALL_SOURCES, RateLimit

# This many can start at once, and per hour. At this rate the catalog is full after some days (`catalog.MAX_CATALOG_LENGTH`).
MAX_NEW_RECORDINGS = 65_536
SOURCE_SHARE = 4  # one source can start at most 1/SOURCE_SHARE of them
HOUR_S = 3600
# How long a delayed stream waits before the limits are checked again.
RETRY_NS = NS_PER_SECOND // 10
# Descriptors of the process that are not used for recordings, and descriptors per recording: its segment, its index and the mapping
# of that, and the mapping of the image's log.
RESERVED_FILES = 128
FILES_OF_RECORDING = 4


class StartLimits:
    """Counts new recordings: up to ``most`` per hour, and a quarter of them from one source."""

    def __init__(self, most: int = MAX_NEW_RECORDINGS) -> None:
        check_int({"max_new_recordings": most}, min_value=1)
        of_source = max(most // SOURCE_SHARE, 1)
        self._of_source = RateLimit(of_source / HOUR_S, of_source)
        self._of_all = RateLimit(most / HOUR_S, most)
        self._texts = (
            f"its source has begun {of_source} recordings in an hour",
            f"{most} recordings have begun in an hour",
        )
        self._prefixes = AddressPrefixes()

    def refusal(self, source_identity: str, written: int, now_ns: int) -> str:
        """Return why a source's recording cannot start now, or an empty string if it can, in which case it is counted.

        ``written`` is the number of recordings that are being written.
        """
        source = self._prefixes.prefix_of(address_of(source_identity))
        if not self._of_source.has(source, now_ns):
            return self._texts[0]
        if not self._of_all.has(ALL_SOURCES, now_ns):
            return self._texts[1]
        if written >= (most := max_written()):
            return f"{most} are being written, as many as the limit of open files allows (ulimit -n)"
        return "" if self._of_source.take(source, now_ns) and self._of_all.take(ALL_SOURCES, now_ns) else self._texts[0]


def max_written() -> int:
    """Return how many recordings can be written at once, given the process's limit of descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 30
    return max((soft - RESERVED_FILES) // FILES_OF_RECORDING, 1)
