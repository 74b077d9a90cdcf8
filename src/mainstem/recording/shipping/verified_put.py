"""Puts an object and reads it back, so that a manifest refers only to correct objects.

Each service has other checksums, and a local directory has none. Reading back works everywhere, and is mostly free within a
region. It can be disabled for chunks (``--no-verify``), never for pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from mainstem.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.store import Store

# A store that returns other bytes than it was given this many times in a row is broken.
ATTEMPTS = 10
# Read back at a time.
RANGE_LENGTH = 8 << 20


def put_verified(store: Store, name: str, data: bytes | Path, checksum: int | None = None) -> int:
    """Put an object until it reads back correctly; ``checksum`` is that of a file. Raises StoreError."""
    length = len(data) if isinstance(data, bytes) else data.stat().st_size
    nbytes = 0
    for _ in range(ATTEMPTS):
        store.put(name, data)
        value = position = 0
        is_same = True
        while position < length:
            try:
                back = store.read(name, position, min(position + RANGE_LENGTH, length))
            except FileNotFoundError:
                break
            # To compare bytes costs a tenth of a checksum.
            if isinstance(data, bytes):
                is_same = is_same and back == data[position : position + len(back)]
            else:
                value = crc32(back, value)
            position += len(back)
            if not back:
                break
        nbytes += position
        if position == length and (is_same if isinstance(data, bytes) else value == checksum):
            return nbytes
    raise StoreError(store.url, f"{name} read back differently {ATTEMPTS} times")
