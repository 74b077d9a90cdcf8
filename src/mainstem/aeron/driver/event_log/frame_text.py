"""A frame as a line of the event log: the reference driver's words and order. Whatever the bytes are, there is a text."""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from mainstem._core import layout
from mainstem.aeron.driver import control_frames
from mainstem.aeron.protocol.resolution import Resolution
from mainstem.errors import RemoteProtocolError

_HEADER = struct.Struct("<iBBH")
_DATA = struct.Struct("<iiii")  # term offset, session, stream, term
_NAK = struct.Struct("<iiiii")
MAX_ENTRIES = 8  # of a RES frame that are shown
# Types that are reserved for the encrypted transport, and look like those they stand for.
ATS = {8: "ATS_DATA", 9: "ATS_SETUP", 10: "ATS_SM"}
PLAIN = {8: layout.TYPE_DATA, 9: layout.TYPE_SETUP, 10: layout.TYPE_SM}


class Header(NamedTuple):
    """What every frame begins with."""

    length: int
    version: int
    flags: int
    kind: int


NAMES = {
    layout.TYPE_PAD: "PAD",
    layout.TYPE_DATA: "DATA",
    layout.TYPE_NAK: "NAK",
    layout.TYPE_SM: "SM",
    layout.TYPE_ERR: "ERR",
    layout.TYPE_SETUP: "SETUP",
    layout.TYPE_RTTM: "RTT",
    layout.TYPE_RES: "RES",
    layout.TYPE_RSP_SETUP: "RSP_SETUP",
    **ATS,
}
LEAST = {
    layout.TYPE_PAD: layout.DATA_HEADER_LENGTH,
    layout.TYPE_DATA: layout.DATA_HEADER_LENGTH,
    layout.TYPE_NAK: layout.NAK_LENGTH,
    layout.TYPE_SM: layout.SM_LENGTH,
    layout.TYPE_ERR: layout.ERR_LENGTH,
    layout.TYPE_SETUP: layout.SETUP_LENGTH,
    layout.TYPE_RTTM: layout.RTTM_LENGTH,
    layout.TYPE_RES: layout.RES_HEADER_LENGTH,
    layout.TYPE_RSP_SETUP: layout.RSP_SETUP_LENGTH,
}


def one_line(text: str) -> str:
    """A text without what would end the line, or could not be written."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def flag_text(flags: int) -> str:
    """Eight bits, the highest first."""
    return f"{flags:08b}"


def header_of(datagram: bytes) -> Header | None:
    """The header of a datagram's first frame; None where there is none."""
    return Header(*_HEADER.unpack_from(datagram)) if len(datagram) >= _HEADER.size else None


def frame_text(datagram: bytes) -> str:
    """The first frame of a datagram; one that is cut short is told by its header alone."""
    header = header_of(datagram)
    if header is None:
        return f"type=unknown frame type length={len(datagram)}"
    kind = PLAIN.get(header.kind, header.kind)
    if kind not in LEAST:
        return (
            f"type=unknown frame type (0x{header.kind:x}) version=0x{header.version:x} "
            f"flags={flag_text(header.flags)} frameLength={header.length}"
        )
    start = f"type={NAMES[header.kind]} flags={flag_text(header.flags)} frameLength={header.length}"
    if len(datagram) < LEAST[kind]:
        return f"{start} (cut short at {len(datagram)} bytes)"
    return start + _fields(kind, datagram)


class Nak(NamedTuple):
    """What a NAK asks for."""

    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    length: int


def read_nak(datagram: bytes) -> Nak | None:
    """The NAK frame in a datagram; None where it holds another, or none that is whole."""
    header = header_of(datagram)
    if header is None or header.kind != layout.TYPE_NAK or header.version or len(datagram) < layout.NAK_LENGTH:
        return None
    return Nak(*_NAK.unpack_from(datagram, _HEADER.size))


def nak_text(nak: Nak) -> str:
    """What it asks for."""
    return (
        f"sessionId={nak.session_id} streamId={nak.stream_id} termId={nak.term_id} termOffset={nak.term_offset} "
        f"length={nak.length}"
    )


def _fields(kind: int, datagram: bytes) -> str:
    if kind in (layout.TYPE_DATA, layout.TYPE_PAD):
        offset, session_id, stream_id, term_id = _DATA.unpack_from(datagram, _HEADER.size)
        return f" sessionId={session_id} streamId={stream_id} termId={term_id} termOffset={offset}"
    if kind == layout.TYPE_NAK:
        return " " + nak_text(Nak(*_NAK.unpack_from(datagram, _HEADER.size)))
    if kind == layout.TYPE_SM:
        status = control_frames.read_status(datagram)
        return (
            f" sessionId={status.session_id} streamId={status.stream_id} termId={status.term_id} "
            f"termOffset={status.term_offset} receiverWindowLength={status.window} receiverId={status.receiver_id}"
        )
    if kind == layout.TYPE_SETUP:
        setup = control_frames.read_setup(datagram)
        return (
            f" sessionId={setup.session_id} streamId={setup.stream_id} activeTermId={setup.active_term_id} "
            f"initialTermId={setup.initial_term_id} termOffset={setup.term_offset} termLength={setup.term_length} "
            f"mtu={setup.mtu} ttl={setup.ttl}"
        )
    if kind == layout.TYPE_ERR:
        error = control_frames.read_error(datagram)
        tag = -1 if error.group_tag is None else error.group_tag
        return (
            f" sessionId={error.session_id} streamId={error.stream_id} receiverId={error.receiver_id} groupTag={tag} "
            f'errorCode={error.code} errorMessage="{one_line(error.text)}"'
        )
    if kind == layout.TYPE_RTTM:
        measure = control_frames.read_round_trip(datagram)
        return (
            f" sessionId={measure.session_id} streamId={measure.stream_id} echoTimestampNs={measure.echo_timestamp} "
            f"receptionDelta={measure.reception_delta} receiverId={measure.receiver_id}"
        )
    if kind == layout.TYPE_RSP_SETUP:
        answer = control_frames.read_response_setup(datagram)
        return (
            f" sessionId={answer.session_id} streamId={answer.stream_id} responseSessionId={answer.response_session_id}"
        )
    return _entries(datagram)


def _entries(datagram: bytes) -> str:
    try:
        entries = Resolution.decode(datagram).entries
    except RemoteProtocolError as error:
        return f" ({error})"
    shown = [
        f" [resType={1 if isinstance(each.address, ipaddress.IPv4Address) else 2} "
        f"flags={flag_text(layout.RES_FLAG_SELF if each.is_self else 0)} port={each.port} ageInMs={each.age_ms} "
        f"address={each.address} name={one_line(each.name)}]"
        for each in entries[:MAX_ENTRIES]
    ]
    return "".join(shown) + (" ..." if len(entries) > MAX_ENTRIES else "")
