"""Options behind a frame, reserved for the encrypted transport (13.9). Nothing here sends them; tools name them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from mainstem.aeron.protocol.header import violation

IGNORE_IF_UNKNOWN = 0x8000
ALIGNMENT = 4

_HEADER = struct.Struct("<HH")


class OptionType(IntEnum):
    """The reserved types, without the bit that says that who does not know it may ignore it."""

    ATS_SUITE = 1
    ATS_RSA_KEY = 2
    ATS_RSA_KEY_ID = 3
    ATS_EC_KEY = 4
    ATS_EC_SIGNATURE = 5
    ATS_SECRET = 6
    ATS_GROUP_TAG = 7


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its type and its bytes."""

    type: int
    value: bytes
    may_ignore: bool = False

    def encode(self) -> bytes:
        """Header and value, padded to a multiple of 4; the length counts the header."""
        kind = self.type | (IGNORE_IF_UNKNOWN if self.may_ignore else 0)
        data = _HEADER.pack(_HEADER.size + len(self.value), kind) + self.value
        return data + bytes(-len(data) % ALIGNMENT)


def decode_options(data: bytes | memoryview) -> list[Option]:
    """The options that fill ``data``. Raises RemoteProtocolError naming the rule that is broken."""
    found = []
    at = 0
    while at < len(data):
        if at + _HEADER.size > len(data):
            raise violation("option length", f"{len(data) - at} bytes are left for an option")
        length, kind = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise violation("option length", f"{length} is below 4 or exceeds the {len(data) - at} bytes that are left")
        value = bytes(data[at + _HEADER.size : at + length])
        found.append(Option(kind & ~IGNORE_IF_UNKNOWN, value, bool(kind & IGNORE_IF_UNKNOWN)))
        at += length + -length % ALIGNMENT
    return found
