"""Formatting frames for the event log, with the words and the order of the reference driver.

Malformed bytes never raise an exception.
"""

from __future__ import annotations

from mainstem._core import layout
from mainstem._internal.printable import printable
from mainstem.aeron.protocol.frames import NO_GROUP_TAG, VERSION, ErrorFrame, Nak, Resolution
from mainstem.aeron.protocol.layouts import HEADER_LENGTH, LAYOUTS, FrameType, Header
from mainstem.errors import RemoteProtocolError

MAX_ENTRIES = 8  # number of entries to show of a RES frame

_STREAM = {"sessionId": "session_id", "streamId": "stream_id"}
_DATA = _STREAM | {"termId": "term_id", "termOffset": "term_offset"}
_STATUS = _STREAM | {
    "termId": "consumption_term_id",
    "termOffset": "consumption_term_offset",
    "receiverWindowLength": "receiver_window",
    "receiverId": "receiver_id",
}
_SETUP = _STREAM | {
    "activeTermId": "active_term_id",
    "initialTermId": "initial_term_id",
    "termOffset": "term_offset",
    "termLength": "term_length",
    "mtu": "mtu",
    "ttl": "ttl",
}
# The fields to show for each frame type, by the reference's word. For ERR and RES, the line shows more than these.
_SHOWN: dict[int, dict[str, str]] = {
    FrameType.PAD: _DATA,
    FrameType.DATA: _DATA,
    FrameType.NAK: _DATA | {"length": "length"},
    FrameType.STATUS_MESSAGE: _STATUS,
    FrameType.ERROR: _STREAM | {"receiverId": "receiver_id"},
    FrameType.SETUP: _SETUP,
    FrameType.RTTM: _STREAM
    | {"echoTimestampNs": "echo_timestamp", "receptionDelta": "reception_delta", "receiverId": "receiver_id"},
    FrameType.RESOLUTION: {},
    FrameType.ATS_DATA: _DATA,
    FrameType.ATS_SETUP: _SETUP,
    FrameType.ATS_STATUS_MESSAGE: _STATUS,
    FrameType.RESPONSE_SETUP: _STREAM | {"responseSessionId": "response_session_id"},
}
# Frame types whose name in the event log differs from the one in the protocol.
_NAMES: dict[int, str] = {FrameType.RTTM: "RTT"}


def flag_text(flags: int) -> str:
    """Return the flags as eight binary digits, the most significant first."""
    return f"{flags:08b}"


def frame_text(datagram: bytes, *, with_data: bool = False) -> str:
    """Describe the first frame of a datagram, optionally with its payload in hexadecimal.

    For a truncated frame, describe only the header.
    """
    if len(datagram) < HEADER_LENGTH:
        return f"type=unknown frame type length={len(datagram)}"
    header = Header.read(datagram)
    layout_of = LAYOUTS.get(header.type)
    if layout_of is None:
        return (
            f"type=unknown frame type (0x{header.type:x}) version=0x{header.version:x} "
            f"flags={flag_text(header.flags)} frameLength={header.frame_length}"
        )
    name = _NAMES.get(header.type, layout_of.name)
    start = f"type={name} flags={flag_text(header.flags)} frameLength={header.frame_length}"
    if len(datagram) < layout_of.length:
        return f"{start} (cut short at {len(datagram)} bytes)"
    values = layout_of.read(datagram)
    start += "".join(f" {word}={values[field]}" for word, field in _SHOWN[header.type].items())
    if header.type == FrameType.ERROR:
        return start + _error(ErrorFrame.read(datagram))
    if header.type == FrameType.DATA and with_data:
        return f"{start} payload={datagram[layout_of.length : header.frame_length].hex()}"
    return start + _entries(datagram) if header.type == FrameType.RESOLUTION else start


def read_nak(datagram: bytes) -> Nak | None:
    """Return the NAK frame in a datagram, or None if the datagram is truncated or holds another frame."""
    if len(datagram) < layout.NAK_LENGTH:
        return None
    header = Header.read(datagram)
    return Nak.read(datagram) if header.type == FrameType.NAK and header.version == VERSION else None


def nak_text(nak: Nak) -> str:
    return " ".join(f"{word}={getattr(nak, field)}" for word, field in _SHOWN[FrameType.NAK].items())


def _error(error: ErrorFrame) -> str:
    tag = NO_GROUP_TAG if error.group_tag is None else error.group_tag
    return f' groupTag={tag} errorCode={error.error_code} errorMessage="{printable(error.text)}"'


def _entries(datagram: bytes) -> str:
    try:
        entries = Resolution.decode(datagram).entries
    except RemoteProtocolError as error:
        return f" ({error})"
    shown = [
        f" [resType={1 if each.address.version == 4 else 2} "
        f"flags={flag_text(layout.RES_FLAG_SELF if each.is_self else 0)} port={each.port} ageInMs={each.age_ms} "
        f"address={each.address} name={printable(each.name)}]"
        for each in entries[:MAX_ENTRIES]
    ]
    return "".join(shown) + (" ..." if len(entries) > MAX_ENTRIES else "")
