"""Packets of a capture as rows: walks records, parses packets, decodes Aeron datagrams (docs/protocols/aeron.md, 13).

Decoding keeps no state between packets. The caller gets fragments of IP packets and segments of TCP one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.capture.frame_rows import FrameRows
    from mainstem._core.capture.layout import *
    from mainstem._core.capture.packets import Packet
    from mainstem._core.capture.records import RecordWalk
    from mainstem._core.layout import *
    from mainstem._core.log.columns import Region
    from mainstem._core.memory.plain import *

KNOWN_TYPES = cython.declare(cython.int, 0x0FFF)
# Problems of a frame; capture.problem_text has their texts.
REASON_SHORT = cython.declare(cython.int, 1)
REASON_VERSION = cython.declare(cython.int, 2)
REASON_TYPE = cython.declare(cython.int, 3)
REASON_LENGTH = cython.declare(cython.int, 4)
REASON_SIZE = cython.declare(cython.int, 5)
REASON_LONG = cython.declare(cython.int, 6)
REASON_CUT = cython.declare(cython.int, 7)
REASON_HEADERS_CUT = cython.declare(cython.int, 8)
REASON_HEADERS = cython.declare(cython.int, 9)
REASON_MANY = cython.declare(cython.int, 13)
REASON_HEARTBEAT = cython.declare(cython.int, 14)
HEADER = cython.declare(cython.int, 8)
# Bytes of text that one row may take: the text of an error (1023), or the names in one datagram.
TEXT_ROOM = cython.declare(cython.int, 2048)


@cython.cclass
class CaptureDecoder:
    """A decoder of ranges of a capture file into ``rows``.

    With ``plain``, unfragmented datagrams are decoded; with ``guess``, those on any port if every byte fits Aeron. ``number`` is
    the number of the last packet. A run stops at ``offset``; after DECODE_SEGMENT, ``packet`` is a fragment or segment in one of
    the selected buckets.
    """

    walk: readonly[RecordWalk]
    packet: readonly[Packet]
    rows: readonly[FrameRows]
    number: readonly[cython.longlong]
    offset: readonly[cython.longlong]
    plain: public[cython.bint]
    guess: public[cython.bint]
    tcp_buckets: cython.ulonglong
    fragment_buckets: cython.ulonglong
    follow_fragments: public[cython.bint]
    follow_tcp: cython.bint
    udp_ports: cython.uchar[65536]
    tcp_ports: cython.uchar[65536]
    passed: cython.longlong[8]
    passed_last: cython.longlong[8]

    def __init__(self, walk: RecordWalk, rows: FrameRows) -> None:
        if walk is None or rows is None:
            raise TypeError("a decoder needs a walk and rows")
        self.walk = walk
        self.rows = rows
        self.packet = Packet()
        self.number = 0
        self.offset = 0
        self.plain = True
        self.guess = True
        self.tcp_buckets = 0
        self.fragment_buckets = 0
        if not cython.compiled:
            set_arrays(self)
        self.follow_fragments = True
        self.set_ports([], [])
        self.take_passed()

    def set_ports(self, udp: Iterable[int], tcp: Iterable[int]) -> None:
        """Set the UDP ports whose datagrams are decoded as Aeron regardless of content, and the TCP ports to return segments of."""
        i: cython.int = 0
        for i in range(65536):
            self.udp_ports[i] = self.tcp_ports[i] = 0
        for port in udp:
            i = port
            self.udp_ports[i & 0xFFFF] = 1
        for port in tcp:
            i = port
            self.tcp_ports[i & 0xFFFF] = 1
        self.follow_tcp = bool(tcp)

    def take_passed(self) -> list[tuple[int, int]]:
        """Return how many packets had no row since the last call, and the last one's number, by ``layout.PASSED_...`` reason."""
        i: cython.int = 0
        counts = [(self.passed[i], self.passed_last[i]) for i in range(PASSED_REASONS)]
        for i in range(PASSED_REASONS):
            self.passed[i] = self.passed_last[i] = 0
        return counts

    def pass_over(self, reason: cython.int, count: cython.longlong = 1) -> None:
        """Count the packet at which the decoder stopped as one without a row; a count of -1 takes back an earlier one."""
        if not 0 <= reason < PASSED_REASONS:
            raise IndexError(f"there is no reason {reason}")
        self.passed[reason] += count
        # If another reader, of an earlier part of the file, made the count that is taken back, assign it to this packet.
        if count > 0 or self.passed[reason] < 0:
            self.passed_last[reason] = self.number

    def count(self, reason: cython.int) -> cython.void:
        self.passed[reason] += 1
        self.passed_last[reason] = self.number

    def set_buckets(self, tcp: cython.ulonglong, fragments: cython.ulonglong) -> None:
        """Set which flows (one bit per bucket) to return to the caller."""
        self.tcp_buckets = tcp
        self.fragment_buckets = fragments

    def seek(self, number: cython.longlong) -> None:
        """Set the next packet's number to ``number`` + 1."""
        self.number = number

    def run(self, source: Buffer, offset: cython.longlong, limit: cython.longlong) -> int:
        """Decode records in ``[offset, limit)``; return why it stopped (``layout.DECODE_...``). Raises IndexError."""
        region: Region = Region(source)
        if offset < 0 or limit > region.capacity or offset > limit:
            raise IndexError(f"packets [{offset}, {limit}) lie outside {region.capacity} bytes")
        stopped: cython.int = 0
        base = region.base
        self.offset = offset
        while True:
            with cython.nogil:
                stopped = self.loop(base, self.offset, limit)
            if stopped >= 0:
                return stopped

    def whole(self, source: Buffer, link: cython.int) -> int:
        """Decode one packet that was reassembled from fragments, for the rows' current packet.

        Returns its kind, or -1 if there is no room for it.
        """
        region: Region = Region(source)
        kind: cython.int = 0
        base = region.base
        with cython.nogil:
            kind = self.packet.parse(base, 0, region.capacity, link)
            self.packet.kind = kind
            if kind == PACKET_UDP and self.take_udp(base) == DECODE_FULL:
                kind = -1
        return kind

    def loop(self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong) -> cython.int:
        """Decode up to 4096 packets; return -1 if there may be more."""
        o: cython.longlong = offset
        _n: cython.int = 0
        outcome: cython.int = 0
        for _n in range(4096):
            outcome = self.walk.step(base, o, limit)
            if outcome == RECORD_MORE:
                return DECODE_END
            if outcome == RECORD_CORRUPT:
                return DECODE_CORRUPT
            if outcome == RECORD_PACKET:
                self.number += 1
                self.rows.new_packet(self.number, self.walk.time_ns, self.walk.timed, self.walk.original)
                outcome = self.take(base)
                if outcome == DECODE_FULL:
                    self.number -= 1
                    return DECODE_FULL
                if outcome == DECODE_SEGMENT:
                    self.offset = self.walk.offset
                    return DECODE_SEGMENT
            o = self.walk.offset
            self.offset = o
        return -1

    def take(self, base: cython.p_uchar) -> cython.int:
        kind: cython.int = 0
        kind = self.packet.parse(base, self.walk.data, self.walk.captured, self.walk.link)
        self.packet.kind = kind
        if kind == PACKET_UDP:
            if self.plain:
                return self.take_udp(base)
        elif kind == PACKET_TCP:
            if self.tcp_ports[self.packet.source_port] or self.tcp_ports[self.packet.destination_port]:
                if self.tcp_buckets and (self.tcp_buckets >> self.packet.bucket) & 1:
                    return DECODE_SEGMENT
            elif self.plain:
                self.count(PASSED_TCP)
        elif kind == PACKET_FRAGMENT:
            # The connection of a TCP fragment is known only once the packet is whole, so the readers of all buckets get it.
            if self.packet.protocol == 6:
                if self.tcp_buckets:
                    return DECODE_SEGMENT
                if self.plain and not self.follow_tcp:
                    self.count(PASSED_FRAGMENT)
            elif self.plain and not self.follow_fragments:
                self.count(PASSED_FRAGMENT)
            elif (self.fragment_buckets >> self.packet.bucket) & 1:
                return DECODE_SEGMENT
        elif (kind == PACKET_MALFORMED or kind == PACKET_TRUNCATED) and self.plain:
            if not self.rows.has_room(1, 0, 0):
                return DECODE_FULL
            if kind == PACKET_MALFORMED:
                self.problem(PROBLEM_MALFORMED_PACKET, REASON_HEADERS)
            else:
                self.problem(PROBLEM_TRUNCATED_PACKET, REASON_HEADERS_CUT)
        elif self.plain:
            if kind == PACKET_UNKNOWN_LINK:
                self.count(PASSED_LINK)
            else:
                self.count(PASSED_IP_PROTOCOL if self.packet.address_size else PASSED_NOT_IP)
        return DECODE_END

    def take_udp(self, base: cython.p_uchar) -> cython.int:
        named: cython.bint = self.udp_ports[self.packet.source_port] or self.udp_ports[self.packet.destination_port]
        room: cython.longlong = min(self.packet.length // RSP_SETUP_LENGTH + 2, self.rows.capacity)
        if not named:
            if not self.guess or not self.plausible(
                base, self.packet.payload, self.packet.available, self.packet.length
            ):
                self.count(PASSED_UDP_CUT if self.packet.available < min(self.packet.length, 32) else PASSED_UDP)
                return DECODE_END
        if self.packet.length == 0:
            self.count(PASSED_UDP)
            return DECODE_END
        if not self.rows.has_room(room, TEXT_ROOM, self.packet.available) and self.rows.rows:
            return DECODE_FULL
        self.rows.transport = TRANSPORT_UDP
        self.rows.set_flow(base, self.packet)
        self.decode(base, self.packet.payload, self.packet.available, self.packet.length)
        return DECODE_END

    def problem(self, kind: cython.int, reason: cython.int) -> cython.void:
        self.rows.new_row(PROTOCOL_PROBLEM, KIND_PROBLEM + kind)
        self.rows.put(ROW_REASON, reason)
        self.rows.close_row()

    def decode(
        self, base: cython.p_uchar, o: cython.longlong, available: cython.longlong, length: cython.longlong
    ) -> cython.void:
        """Add a row for each frame of a datagram; the first frame that is not Aeron ends it with a problem."""
        at: cython.longlong = 0
        kind: cython.int = 0
        reason: cython.int = 0
        while at < length:
            if not self.rows.has_room(2, TEXT_ROOM, available - at):
                self.problem(PROBLEM_MALFORMED_FRAME, REASON_MANY)
                return
            reason = examine(base, o + at, available - at, length - at)
            if reason:
                self.problem(PROBLEM_TRUNCATED_PACKET if reason == REASON_CUT else PROBLEM_MALFORMED_FRAME, reason)
                return
            kind = get16(base, o + at + FRAME_TYPE_OFFSET)
            self.emit(base, o + at, available - at, kind, length)
            at += step_of(base, o + at, kind, length - at)

    def plausible(
        self, base: cython.p_uchar, o: cython.longlong, available: cython.longlong, length: cython.longlong
    ) -> cython.bint:
        """Whether a datagram on any port is Aeron's: every frame is possible, of one stream, and nothing is left over."""
        at: cython.longlong = 0
        kind: cython.int = 0
        reason: cython.int = 0
        if length < RSP_SETUP_LENGTH or available < min(length, 32):
            return False
        while at < length:
            reason = examine(base, o + at, available - at, length - at)
            if reason == REASON_CUT:
                # This frame was not captured completely, so the ones before it decide.
                return at > 0
            if reason:
                return False
            kind = get16(base, o + at + FRAME_TYPE_OFFSET)
            if kind == TYPE_DATA or kind == TYPE_PAD:
                if length & (FRAME_ALIGNMENT - 1) or not strict_data(base, o + at, o):
                    return False
            elif not strict_control(base, o + at, available - at, length - at, kind):
                return False
            at += step_of(base, o + at, kind, length - at)
        return at == length

    def emit(
        self,
        base: cython.p_uchar,
        o: cython.longlong,
        available: cython.longlong,
        kind: cython.int,
        datagram: cython.longlong,
    ) -> cython.void:
        self.rows.new_row(PROTOCOL_AERON, KIND_AERON_EXT if kind == TYPE_EXT else KIND_AERON + kind)
        self.rows.put(ROW_TYPE, kind)
        self.rows.put(ROW_FLAGS, get8(base, o + FRAME_FLAGS_OFFSET))
        self.rows.put(ROW_FRAME_LENGTH, get32(base, o))
        self.rows.put(ROW_DATAGRAM_LENGTH, datagram)
        if kind == TYPE_DATA or kind == TYPE_PAD:
            self.emit_data(base, o, available, kind)
        elif kind == TYPE_ERR:
            self.emit_error(base, o, available)
        elif kind == TYPE_RES:
            self.emit_names(base, o, available)
        else:
            self.emit_control(base, o, available, kind)
        self.rows.close_row()

    def emit_data(
        self, base: cython.p_uchar, o: cython.longlong, available: cython.longlong, kind: cython.int
    ) -> cython.void:
        length: cython.longlong = 0
        self.rows.put(ROW_TERM_OFFSET, get32(base, o + FRAME_TERM_OFFSET_OFFSET))
        self.rows.put(ROW_SESSION_ID, get32(base, o + FRAME_SESSION_ID_OFFSET))
        self.rows.put(ROW_STREAM_ID, get32(base, o + FRAME_STREAM_ID_OFFSET))
        self.rows.put(ROW_TERM_ID, get32(base, o + FRAME_TERM_ID_OFFSET))
        self.rows.put(ROW_RESERVED_VALUE, get64(base, o + FRAME_RESERVED_VALUE_OFFSET))
        if kind == TYPE_DATA:
            length = max(get32(base, o) - DATA_HEADER_LENGTH, 0)
            if get32(base, o) == 0:
                self.rows.put(ROW_REASON, REASON_HEARTBEAT)
        self.rows.put(ROW_LENGTH, length)
        self.rows.put_payload(base, o + DATA_HEADER_LENGTH, min(length, available - DATA_HEADER_LENGTH))

    def emit_control(
        self, base: cython.p_uchar, o: cython.longlong, available: cython.longlong, kind: cython.int
    ) -> cython.void:
        self.rows.put(ROW_LENGTH, 0)
        if kind == TYPE_SETUP:
            self.rows.put(ROW_TERM_OFFSET, get32(base, o + SETUP_TERM_OFFSET_OFFSET))
            self.rows.put(ROW_SESSION_ID, get32(base, o + SETUP_SESSION_ID_OFFSET))
            self.rows.put(ROW_STREAM_ID, get32(base, o + SETUP_STREAM_ID_OFFSET))
            self.rows.put(ROW_INITIAL_TERM_ID, get32(base, o + SETUP_INITIAL_TERM_ID_OFFSET))
            self.rows.put(ROW_TERM_ID, get32(base, o + SETUP_ACTIVE_TERM_ID_OFFSET))
            self.rows.put(ROW_TERM_LENGTH, get32(base, o + SETUP_TERM_LENGTH_OFFSET))
            self.rows.put(ROW_MTU, get32(base, o + SETUP_MTU_OFFSET))
            self.rows.put(ROW_TTL, get32(base, o + SETUP_TTL_OFFSET))
        elif kind == TYPE_NAK or kind == TYPE_SM or kind == TYPE_RTTM or kind == TYPE_RSP_SETUP:
            self.rows.put(ROW_SESSION_ID, get32(base, o + NAK_SESSION_ID_OFFSET))
            self.rows.put(ROW_STREAM_ID, get32(base, o + NAK_STREAM_ID_OFFSET))
        if kind == TYPE_NAK:
            self.rows.put(ROW_TERM_ID, get32(base, o + NAK_TERM_ID_OFFSET))
            self.rows.put(ROW_TERM_OFFSET, get32(base, o + NAK_TERM_OFFSET_OFFSET))
            self.rows.put(ROW_NAK_LENGTH, get32(base, o + NAK_LENGTH_OFFSET))
        elif kind == TYPE_SM:
            self.rows.put(ROW_TERM_ID, get32(base, o + SM_CONSUMPTION_TERM_ID_OFFSET))
            self.rows.put(ROW_TERM_OFFSET, get32(base, o + SM_CONSUMPTION_TERM_OFFSET_OFFSET))
            self.rows.put(ROW_RECEIVER_WINDOW, get32(base, o + SM_RECEIVER_WINDOW_OFFSET))
            self.rows.put(ROW_RECEIVER_ID, get64(base, o + SM_RECEIVER_ID_OFFSET))
            if get32(base, o) >= SM_LENGTH_WITH_GROUP_TAG and available >= SM_LENGTH_WITH_GROUP_TAG:
                self.rows.put(ROW_GROUP_TAG, get64(base, o + SM_GROUP_TAG_OFFSET))
        elif kind == TYPE_RTTM:
            self.rows.put(ROW_ECHO_TIMESTAMP, get64(base, o + RTTM_ECHO_TIMESTAMP_OFFSET))
            self.rows.put(ROW_RECEPTION_DELTA, get64(base, o + RTTM_RECEPTION_DELTA_OFFSET))
            self.rows.put(ROW_RECEIVER_ID, get64(base, o + RTTM_RECEIVER_ID_OFFSET))
        elif kind == TYPE_RSP_SETUP:
            self.rows.put(ROW_RESPONSE_SESSION_ID, get32(base, o + RSP_SETUP_RESPONSE_SESSION_ID_OFFSET))

    def emit_error(self, base: cython.p_uchar, o: cython.longlong, available: cython.longlong) -> cython.void:
        size: cython.longlong = get32(base, o + ERR_TEXT_LENGTH_OFFSET)
        self.rows.put(ROW_LENGTH, 0)
        self.rows.put(ROW_SESSION_ID, get32(base, o + ERR_SESSION_ID_OFFSET))
        self.rows.put(ROW_STREAM_ID, get32(base, o + ERR_STREAM_ID_OFFSET))
        self.rows.put(ROW_RECEIVER_ID, get64(base, o + ERR_RECEIVER_ID_OFFSET))
        if get8(base, o + FRAME_FLAGS_OFFSET) & ERR_FLAG_GROUP_TAG:
            self.rows.put(ROW_GROUP_TAG, get64(base, o + ERR_GROUP_TAG_OFFSET))
        self.rows.put(ROW_ERROR_CODE, get32(base, o + ERR_ERROR_CODE_OFFSET))
        size = min(min(max(size, 0), ERR_MAX_TEXT_LENGTH), available - ERR_TEXT_OFFSET)
        self.rows.put_text(base, o + ERR_TEXT_OFFSET, size)

    def emit_names(self, base: cython.p_uchar, o: cython.longlong, available: cython.longlong) -> cython.void:
        """Write the names of a resolution frame into the text, one after the other."""
        at: cython.longlong = RES_HEADER_LENGTH
        end: cython.longlong = min(get32(base, o), available)
        size: cython.longlong = 0
        name: cython.longlong = 0
        n: cython.longlong = 0
        left: cython.longlong = TEXT_ROOM
        self.rows.put(ROW_LENGTH, 0)
        while at < end and left > 0:
            size = entry_length(base, o + at, end - at)
            if size == 0:
                return
            name = at + (14 if get8(base, o + at) == 1 else 26)
            n = min(get16(base, o + name - 2), left)
            self.rows.put_text(base, o + name, n)
            left -= n
            at += size


def least(kind: cython.int) -> cython.int:
    """Return the minimum length of a frame of a type, in bytes."""
    if kind == TYPE_DATA or kind == TYPE_PAD or kind == TYPE_ATS_DATA:
        return DATA_HEADER_LENGTH
    if kind == TYPE_NAK:
        return NAK_LENGTH
    if kind == TYPE_SM or kind == TYPE_ATS_SM:
        return SM_LENGTH
    if kind == TYPE_RSP_SETUP:
        return RSP_SETUP_LENGTH
    if kind == TYPE_RES or kind == TYPE_EXT:
        return HEADER
    return SETUP_LENGTH


def examine(
    base: cython.p_uchar, o: cython.longlong, available: cython.longlong, length: cython.longlong
) -> cython.int:
    """Return the problem of the frame at ``o`` (REASON_...), or 0: the checks a receiver makes before it reads on."""
    kind: cython.int = 0
    frame: cython.longlong = 0
    if length < HEADER:
        return REASON_SHORT
    if available < HEADER:
        return REASON_CUT
    frame = get32(base, o)
    kind = get16(base, o + FRAME_TYPE_OFFSET)
    if get8(base, o + FRAME_VERSION_OFFSET) != 0:
        return REASON_VERSION
    if kind != TYPE_EXT and (kind > TYPE_RSP_SETUP or not (KNOWN_TYPES >> kind) & 1):
        return REASON_TYPE
    if frame < 0:
        return REASON_LENGTH
    if length < least(kind):
        return REASON_SIZE
    if kind == TYPE_DATA or kind == TYPE_PAD:
        if frame < DATA_HEADER_LENGTH and (frame or kind == TYPE_PAD):
            return REASON_LENGTH
        if kind == TYPE_DATA and frame > length:
            return REASON_LONG
    elif frame > length:
        return REASON_LONG
    return REASON_CUT if available < least(kind) else 0


def step_of(base: cython.p_uchar, o: cython.longlong, kind: cython.int, left: cython.longlong) -> cython.longlong:
    """Return the distance from an examined frame to the next. Only the header of padding is ever sent."""
    frame: cython.longlong = get32(base, o)
    if kind == TYPE_PAD:
        return DATA_HEADER_LENGTH
    if kind == TYPE_DATA or kind == TYPE_ATS_DATA:
        return max(min((frame + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1), left), DATA_HEADER_LENGTH)
    # Status messages of equal length may have been coalesced before the capture; each states its own length.
    return frame if frame >= least(kind) else left


def strict_data(base: cython.p_uchar, o: cython.longlong, first: cython.longlong) -> cython.bint:
    """Check a data header as far as possible without knowing its stream."""
    offset: cython.longlong = get32(base, o + FRAME_TERM_OFFSET_OFFSET)
    if offset < 0 or offset & (FRAME_ALIGNMENT - 1) or offset >= TERM_MAX_LENGTH:
        return False
    if get8(base, o + FRAME_FLAGS_OFFSET) & 0x0F or get32(base, o) > TERM_MAX_LENGTH:
        return False
    return get64(base, o + FRAME_SESSION_ID_OFFSET) == get64(base, first + FRAME_SESSION_ID_OFFSET)


def strict_control(
    base: cython.p_uchar, o: cython.longlong, available: cython.longlong, length: cython.longlong, kind: cython.int
) -> cython.bint:
    """Do the same for the other frames: the length must match the type, and the values must be possible."""
    frame: cython.longlong = get32(base, o)
    flags: cython.int = get8(base, o + FRAME_FLAGS_OFFSET)
    a: cython.longlong = 0
    b: cython.longlong = 0
    if kind == TYPE_NAK:
        a = get32(base, o + NAK_TERM_OFFSET_OFFSET)
        b = get32(base, o + NAK_LENGTH_OFFSET)
        return frame == NAK_LENGTH and flags == 0 and a >= 0 and b >= 0 and not (a | b) & 31
    if kind == TYPE_SM:
        a = get32(base, o + SM_CONSUMPTION_TERM_OFFSET_OFFSET)
        b = get32(base, o + SM_RECEIVER_WINDOW_OFFSET)
        if (frame != SM_LENGTH and frame != SM_LENGTH_WITH_GROUP_TAG) or flags & 0x3F:
            return False
        return a >= 0 and not a & 31 and 0 <= b <= TERM_MAX_LENGTH // 2
    if kind == TYPE_SETUP:
        a = get32(base, o + SETUP_TERM_LENGTH_OFFSET)
        b = get32(base, o + SETUP_MTU_OFFSET)
        if frame != SETUP_LENGTH or flags & 0x3F or a < TERM_MIN_LENGTH or a > TERM_MAX_LENGTH or a & (a - 1):
            return False
        return 32 <= b <= 65504 and not b & 31 and not get32(base, o + SETUP_TERM_OFFSET_OFFSET) & 31
    if kind == TYPE_RTTM:
        return frame == RTTM_LENGTH and not flags & 0x7F
    if kind == TYPE_ERR:
        a = get32(base, o + ERR_TEXT_LENGTH_OFFSET)
        return 0 <= a <= ERR_MAX_TEXT_LENGTH and frame == ERR_LENGTH + a and not flags & 0x77
    if kind == TYPE_RSP_SETUP:
        return frame == RSP_SETUP_LENGTH and flags == 0
    if kind != TYPE_RES or frame != length or available < length:
        return False
    a = RES_HEADER_LENGTH
    while a < frame:
        b = entry_length(base, o + a, frame - a)
        if b == 0:
            return False
        a += b
    return frame > RES_HEADER_LENGTH


def entry_length(base: cython.p_uchar, o: cython.longlong, left: cython.longlong) -> cython.longlong:
    """Return the length of one entry of a resolution frame in bytes, or 0 if it cannot be one."""
    head: cython.longlong = 0
    size: cython.longlong = 0
    if left < 14:
        return 0
    if get8(base, o) == 1:
        head = 14
    elif get8(base, o) == 2:
        head = 26
    if head == 0 or left < head or get8(base, o + 1) & 0x7F:
        return 0
    size = head + get16(base, o + head - 2)
    size = (size + 7) & ~cython.cast(cython.longlong, 7)
    return size if size <= left else 0
