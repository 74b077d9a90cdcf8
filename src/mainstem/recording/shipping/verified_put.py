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
    """Put an object until it reads back correctly. Raises StoreError."""
    length = len(data) if isinstance(data, bytes) else data.stat().st_size
    expected = crc32(data) if isinstance(data, bytes) else checksum
    nbytes = 0
    for _ in range(ATTEMPTS):
        store.put(name, data)
        value = position = 0
        while position < length:
            try:
                back = store.read(name, position, min(position + RANGE_LENGTH, length))
            except FileNotFoundError:
                break
            value = crc32(back, value)
            position += len(back)
            if not back:
                break
        nbytes += position
        if position == length and value == expected:
            return nbytes
    raise StoreError(store.url, f"{name} read back with another checksum {ATTEMPTS} times")
