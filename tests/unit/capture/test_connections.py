"""TCP reassembly: bymux and Jmux data is restored, whatever the network and the capture did to it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures as make
from tests.support.captures import rows_of_bytes

if TYPE_CHECKING:
    from pathlib import Path

SERVER = 9000
FIRST = 0xFFFFFF00  # sequence numbers wrap during the tests
WRITES = b"".join(bytes([0x20, n % 200, 7]) + b"payload" for n in range(300))


def addressed(segment: bytes) -> bytes:
    """Wrap the segment in an IP packet from the client to the server or back."""
    ends = {"source": "10.0.0.2", "to": "10.0.0.1"} if segment[:2] == SERVER.to_bytes(2, "big") else {}
    return make.ip(segment, protocol=6, **ends)


def captured(tmp_path: Path, segments: list[bytes], *, jmux: bool = False, **wanted: Any) -> list[dict[str, Any]]:
    packets = [make.link(packet, make.ETHERNET) for packet in map(addressed, segments)]
    ports = {"jmux_ports": (SERVER,)} if jmux else {"bymux_ports": (SERVER,)}
    return rows_of_bytes(tmp_path, make.pcap(packets), **ports, **wanted)


def syn(sequence: int = FIRST - 1) -> bytes:
    return make.tcp(sequence=sequence, to=SERVER, flags=make.TCP_SYN)


def sent(data: bytes, at: int = 0, *, flags: int = make.TCP_ACK) -> bytes:
    """Return a segment from the client at an offset of its stream."""
    return make.tcp(data, sequence=FIRST + at, to=SERVER, flags=flags)


def answered(data: bytes, at: int = 0, *, ack: int = 0) -> bytes:
    return make.tcp(data, source=SERVER, to=50000, sequence=5000 + at, ack=FIRST + ack)


def pieces(data: bytes, size: int) -> list[tuple[int, bytes]]:
    return [(at, data[at : at + size]) for at in range(0, len(data), size)]


def frames(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["frame_type"], r.get("mux_stream_id"), r["stream_offset"]) for r in rows if r["protocol"] == "bymux"]


EXPECTED = [("WRITE", n % 200, 10 * n) for n in range(300)]


@pytest.mark.parametrize("size", [1, 3, 7, 10, 64, 1448])
def test_packets_are_found_wherever_the_stream_is_split(tmp_path: Path, size: int) -> None:
    rows = captured(tmp_path, [syn()] + [sent(piece, at) for at, piece in pieces(WRITES, size)])
    assert frames(rows) == EXPECTED
    opened, first = rows[0], rows[1]
    assert (opened["protocol"], opened["frame_type"]) == ("tcp", "OPEN")
    assert (first["from_client"], first["connection"], first["length"], first["frame_length"]) == (True, 1, 7, 10)
    assert first["payload"] == b"payload"
    assert (first["src_port"], first["dst_port"], first["transport"]) == (50000, SERVER, "tcp")


@pytest.mark.parametrize("seed", range(20))
def test_reordering_repeats_and_overlaps_change_no_frame(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    segments = [(at, piece) for at, piece in pieces(WRITES, 50)]
    for at, piece in list(segments):
        if rng.random() < 0.3:
            longer = WRITES[max(at - rng.randrange(40), 0) : at + len(piece) + rng.randrange(40)]
            segments.append((WRITES.index(longer), longer))
    order = sorted(range(len(segments)), key=lambda n: segments[n][0] + rng.randrange(400))
    rows = captured(tmp_path, [syn()] + [sent(segments[n][1], segments[n][0]) for n in order])
    assert frames(rows) == EXPECTED
    events = {row["frame_type"] for row in rows if row["protocol"] == "tcp"}
    assert {"OPEN", "OUT_OF_ORDER"} <= events
    assert "GAP" not in events


def test_a_missing_segment_leaves_a_gap_and_frames_continue_after_it(tmp_path: Path) -> None:
    segments = [sent(piece, at) for at, piece in pieces(WRITES, 100)]
    rows = captured(tmp_path, [syn(), *segments[:7], *segments[8:]])
    gaps = [(r["stream_offset"], r["length"]) for r in rows if r["frame_type"] == "GAP"]
    assert gaps == [(700, 100)]
    assert frames(rows) == [row for row in EXPECTED if not 700 <= row[2] < 800]


def test_a_gap_within_one_body_loses_no_frame(tmp_path: Path) -> None:
    big = b"\x21\x05\x13\x88" + bytes(5000) + b"\x20\x06\x02ok"
    segments = [sent(piece, at) for at, piece in pieces(big, 1000)]
    rows = captured(
        tmp_path,
        [syn(), *segments[:2], *segments[3:]],
        names=("frame_type", "mux_stream_id", "protocol", "stream_offset", "length"),
    )
    assert frames(rows) == [("WRITE", 5, 0), ("WRITE", 6, 5004)]


def test_a_short_capture_length_loses_no_frame_whose_header_is_there(tmp_path: Path) -> None:
    body = b"\x21\x05\x04\x00" + bytes(1024)
    segments = [syn(), *(sent(body, n * len(body)) for n in range(10))]
    packets = [make.link(make.ip(segment, protocol=6), make.ETHERNET) for segment in segments]
    rows = rows_of_bytes(tmp_path, make.pcap(packets, snaplen=96), bymux_ports=(SERVER,))
    assert frames(rows) == [("WRITE", 5, n * len(body)) for n in range(10)]


def test_acknowledged_bytes_that_were_not_captured_are_a_gap(tmp_path: Path) -> None:
    segments = [syn(), sent(WRITES[:100])]
    segments += [answered(b"", ack=300)]
    segments += [sent(WRITES[at : at + 10], at) for at in range(200, 1000, 10)]
    rows = captured(tmp_path, segments)
    before_the_end = [r for r in rows if r["frame_type"] == "GAP" and r["packet"] < len(segments)]
    assert [(r["stream_offset"], r["length"]) for r in before_the_end] == [(100, 100)]


def test_a_capture_that_begins_in_the_middle_finds_its_place(tmp_path: Path) -> None:
    segments = [sent(piece, at) for at, piece in pieces(WRITES, 100)]
    rows = captured(tmp_path, segments[5:])
    assert [row[1] for row in frames(rows)] == [n % 200 for n in range(50, 300)]
    assert {r["from_client"] for r in rows} == {True}


def test_both_directions_and_the_end_of_a_connection(tmp_path: Path) -> None:
    rows = captured(
        tmp_path,
        [
            syn(),
            make.tcp(source=SERVER, to=50000, sequence=4999, ack=FIRST, flags=make.TCP_SYN | make.TCP_ACK),
            sent(b"\x30\x00"),
            answered(b"\x10\x05"),
            sent(b"\x20\x00\x02hi\x80\x00", 2, flags=make.TCP_ACK | make.TCP_FIN),
            make.tcp(source=SERVER, to=50000, sequence=5002, flags=make.TCP_RST),
        ],
    )
    told = [(r["protocol"], r["frame_type"], r["from_client"], r.get("credit")) for r in rows]
    assert told == [
        ("tcp", "OPEN", True, None),
        ("bymux", "CREATE", True, None),
        ("bymux", "GLOBAL_CREDIT", False, 5),
        ("bymux", "WRITE", True, None),
        ("bymux", "CLOSE", True, None),
        ("tcp", "CLOSE", True, None),
        ("tcp", "RESET", False, None),
    ]


def test_ports_that_are_used_again_make_a_new_connection(tmp_path: Path) -> None:
    again = FIRST + 0x100000
    later = make.tcp(b"\x30\x01", sequence=again + 1, to=SERVER)
    rows = captured(tmp_path, [syn(), sent(b"\x30\x00"), syn(again), later])
    assert [(r["frame_type"], r["connection"], r["stream_offset"]) for r in rows] == [
        ("OPEN", 1, 0),
        ("CREATE", 1, 0),
        ("OPEN", 3, 0),
        ("CREATE", 3, 0),
    ]


def test_a_malformed_packet_is_a_problem_and_decoding_can_resume(tmp_path: Path) -> None:
    rows = captured(tmp_path, [syn(), sent(b"\x30\x00\xff\xff"), sent(b"\x20\x00\x02hi" * 4, 4)])
    assert [r["frame_type"] for r in rows] == ["OPEN", "CREATE", "MALFORMED_FRAME"] + ["WRITE"] * 4
    assert rows[2]["text"] == "unknown bymux packet"


def test_jmux_messages_of_every_kind(tmp_path: Path) -> None:
    client = bytes.fromhex(
        "4a6d757801008000 9400000e 6162636465666768696a6b6c6d6e 04001234 12000040 40000000 20000000 00000002 6161"
    )
    server = bytes.fromhex(
        "4a6d757801008000 8c00000a 61626364656667686970 06001234 22000000 30000000 02000003 627965"
    ) + (bytes.fromhex("08000003") + b"bad")
    rows = captured(
        tmp_path,
        [
            syn(),
            make.tcp(source=SERVER, to=50000, sequence=4999, ack=FIRST, flags=make.TCP_SYN | make.TCP_ACK),
            sent(client),
            answered(server),
        ],
        jmux=True,
    )
    found = [
        (
            r["frame_type"],
            r["from_client"],
            r.get("mux_stream_id"),
            r.get("credit"),
            r.get("cookie"),
            r["length"],
            r.get("text"),
        )
        for r in rows
        if r["protocol"] == "jmux"
    ]
    assert found == [
        ("HEADER", True, None, 32768, None, 0, None),
        ("DATA", True, 0, None, None, 14, None),
        ("PING", True, None, None, 0x1234, 0, None),
        ("INCREMENT_RATION", True, 0, 256, None, 0, None),
        ("ACKNOWLEDGMENT", True, 0, None, None, 0, None),
        ("ABORT", True, 0, None, None, 0, ""),
        ("NO_OPERATION", True, None, None, None, 2, None),
        ("HEADER", False, None, 32768, None, 0, None),
        ("DATA", False, 0, None, None, 10, None),
        ("PING_ACK", False, None, None, 0x1234, 0, None),
        ("ABORT", False, 0, None, None, 0, ""),
        ("CLOSE", False, 0, None, None, 0, None),
        ("SHUTDOWN", False, None, None, None, 3, "bye"),
        ("ERROR", False, None, None, None, 3, "bad"),
    ]


def test_the_wide_forms_of_bymux_numbers(tmp_path: Path) -> None:
    data = bytes.fromhex("33 8000000000000000 05 012c ffff 2c 0000000100000001 01 41 03 00 ffffffffffffffff")
    rows = captured(tmp_path, [syn(), sent(data)])
    found = [(r["frame_type"], r.get("mux_stream_id"), r.get("credit")) for r in rows if r["protocol"] == "bymux"]
    assert found == [
        ("CREATE", -(1 << 63), None),
        ("CREDIT", 300, 65535),
        ("WRITE", (1 << 32) + 1, None),
        ("CREDIT", 0, -1),
    ]


def test_many_tiny_packets_in_one_segment_fill_several_batches(tmp_path: Path) -> None:
    rows = captured(tmp_path, [syn(), sent(b"\x40\x07" * 20000)], rows=1000)
    assert [r["frame_type"] for r in rows if r["protocol"] == "bymux"] == ["PING"] * 20000
    assert {r["packet"] for r in rows if r["protocol"] == "bymux"} == {2}
