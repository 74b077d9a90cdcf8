"""How many recordings a recorder begins: what a peer with ever new sessions may make it do.

A recording costs an entry in the catalog and two files forever, and, while it is written, four descriptors. So new ones are
limited: in an hour, of one source and in all, and by the descriptors that the process may have. A stream beyond a limit waits
without being read, which holds its publisher back: it is recorded from where it was met as soon as there is room.

The limits are those of a driver's images: whatever a driver has when a recorder begins, it records at once. A source is an
IPv4 address or an IPv6 /64 network; a peer that invents source addresses meets the limit for all.
"""

from __future__ import annotations

import resource

from mainstem._internal.address_prefixes import AddressPrefixes, address_of
from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.validation import check_int
from mainstem.aeron.admission import ALL_SOURCES, RateLimit

# As many at once, and in an hour. At this rate the catalog is full after some days (`catalog.MAX_CATALOG_LENGTH`).
MAX_NEW_RECORDINGS = 65_536
SOURCE_SHARE = 4  # a source may begin this part of them
HOUR_S = 3600
# A stream that waits is asked about again after this.
RETRY_NS = NS_PER_SECOND // 10
# Descriptors of a process that are not for recordings; and those of a recording: its segment, its positions and their mapping, and
# the mapping of the image's log.
RESERVED_FILES = 128
FILES_OF_RECORDING = 4


class StartLimits:
    """Counts what begins. ``most`` recordings begin in an hour, and a quarter of them of one source."""

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
        """Why a recording of a source may not begin now; empty where it may, which is counted.

        ``written`` is how many are being written.
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
    """How many recordings may be written at once, by the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 30
    return max((soft - RESERVED_FILES) // FILES_OF_RECORDING, 1)
