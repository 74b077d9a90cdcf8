"""Datagrams of one stream and a receiver's verdict on each: the reference's, and Mainstem's if it differs.

The stream is that of ``tests.unit._core.network``, at its start, with a window of half a term. ``tests/interop`` compares the table
with a reference driver, and ``tests/unit`` compares it with the compiled receive path.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit._core.network import INITIAL_TERM_ID, STREAM_ID, TERM_LENGTH, frame

from mainstem._core import layout

PAD, DATA, SETUP = layout.TYPE_PAD, layout.TYPE_DATA, layout.TYPE_SETUP
INSERTED, INVALID, HEARTBEAT, OVER_RUN, IGNORED = "inserted", "invalid", "heartbeat", "over run", "ignored"


@dataclass(frozen=True)
class Case:
    """``mainstem`` is None if Mainstem's verdict is the same as the reference's."""

    name: str
    datagram: bytes
    reference: str
    mainstem: str | None = None

    @property
    def verdict(self) -> str:
        """Return Mainstem's verdict."""
        return self.mainstem or self.reference


def data(offset: int, payload: int = 32, **fields: int) -> bytes:
    """Return a data frame."""
    return frame(b"d" * payload, term_offset=offset, **fields)


def pad(offset: int, length: int = 32, body: int = 0) -> bytes:
    """Return a padding frame that covers ``length`` bytes, with ``body`` of them after its header."""
    return frame(bytes(body), term_offset=offset, kind=PAD, length=length)


CASES = [
    Case("data", data(0), INSERTED),
    Case("data that does not fill its alignment", data(0, 7) + data(64), INSERTED),
    Case("data without payload", data(0, 0) + data(32, 0), INSERTED),
    Case("a PAD of its header alone", pad(0), INSERTED),
    Case("a PAD between data", data(0) + pad(64) + data(96), INSERTED),
    Case("a PAD before data", pad(0) + data(32), INSERTED),
    Case("PADs in a row", pad(0) + pad(32) + pad(64) + data(96), INSERTED),
    Case("a PAD with all that it covers before data", pad(0, 128, 96) + data(128), INSERTED),
    Case("a PAD behind data", data(0) + pad(64, 4096), INSERTED),
    Case("a PAD behind data, with some of what it covers", data(0) + pad(64, 4096, 96), INSERTED),
    Case("a PAD that covers what looks like data", pad(0, 4096) + data(32), INSERTED),
    Case("a PAD whose length is not aligned", pad(0, 33, 32) + data(64), INSERTED),
    Case("a PAD up to the end of the term", data(0) + pad(64, TERM_LENGTH // 2 - 64), INSERTED),
    Case("a heartbeat", data(0, 0, length=0), HEARTBEAT),
    Case("a heartbeat of type PAD", data(0, 0, length=0, kind=PAD), HEARTBEAT),
    Case("data that ends behind the datagram", data(0, 32, length=128), INVALID),
    Case("data that ends behind the datagram, behind a PAD", pad(0) + data(32, 32, length=128), INVALID),
    Case("zeroes behind data", data(0) + bytes(32), INVALID),
    Case("zeroes behind a PAD", pad(0) + bytes(32), INVALID),
    Case("a heartbeat of 64 bytes", data(0, 32, length=0), INVALID),
    Case("a heartbeat behind data", data(0) + data(64, 0, length=0), INVALID),
    Case("a hole between frames", data(0) + data(96), INVALID),
    Case("frames that overlap", data(0) + data(32), INVALID),
    Case("a SETUP behind data", data(0) + data(64, 32, kind=SETUP), INVALID),
    Case("an offset that is not aligned", data(8), INVALID),
    Case("an offset behind the term", data(TERM_LENGTH), INVALID),
    Case("data over the end of the term", data(TERM_LENGTH - 32), INVALID),
    Case("a PAD over the end of the term", data(0) + pad(64, TERM_LENGTH), INVALID),
    Case("a negative length behind data", data(0) + data(64, 32, length=-64), INVALID),
    Case("cut behind the alignment", (data(0) + data(64))[:-8], INVALID),
    Case("data half a term ahead", data(TERM_LENGTH // 2), OVER_RUN),
    Case("data up to half a term ahead", data(TERM_LENGTH // 2 - 64), INSERTED),
    Case("a term before the first", data(0, term_id=INITIAL_TERM_ID - 1), IGNORED),
    # Padding beyond half a term: docs/protocols/aeron.md, 15.3.
    Case("a PAD beyond half a term", data(0) + pad(64, TERM_LENGTH - 64), OVER_RUN, INSERTED),
    Case("a heartbeat beyond half a term", data(TERM_LENGTH - 32, 0, length=0), OVER_RUN),
    # No sender writes such frames, and a subscriber could not tell which session they belong to or where their payload ends.
    Case("a frame shorter than its header", data(0, 0, length=16), INSERTED, INVALID),
    Case("a frame of another session", data(0) + data(64, session_id=1), INSERTED, INVALID),
    Case("a frame of another stream", data(0) + data(64, stream_id=STREAM_ID + 1), INSERTED, INVALID),
    Case("a frame of another term", data(0) + data(64, term_id=INITIAL_TERM_ID + 1), INSERTED, INVALID),
    Case("a frame of another version", data(0) + data(64, version=1), INSERTED, INVALID),
]
