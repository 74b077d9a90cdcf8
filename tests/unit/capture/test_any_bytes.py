"""Reading arbitrary bytes as a capture returns rows that Arrow accepts, the same ones compiled and uncompiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import captures as make
from tests.support.tunnels import WRAPPED
from tests.unit._core import uncompiled

from mainstem._core.capture import aeron_frames, frame_rows, layout, mux_frames, packet_index, records

if TYPE_CHECKING:
    from types import ModuleType

SEEDS = [
    make.pcap(
        [make.link(make.ip(make.udp(make.data_frame(b"x" * n) + make.nak_frame())), make.ETHERNET) for n in range(3)]
    ),
    make.section()
    + make.interface(make.COOKED, resolution=9)
    + make.enhanced(make.link(make.ip(make.udp(make.nak_frame()), source="::1", to="::2"), make.COOKED), 5),
    make.pcap([make.ip(make.tcp(b"\x20\x00\x03abc\x30\x01", to=9000), protocol=6)] * 2, kind=make.RAW),
    make.pcap([make.ip(make.udp(bytes(40))[:24], more=True), make.ip(bytes(24), fragment=24)], kind=make.RAW),
    make.pcap([make.ip(make.tcp(b"tide", to=9000)[:24], protocol=6, more=True)], kind=make.RAW),
]
SEEDS += [make.pcap([wrap(make.ip(make.udp(make.data_frame(b"tide"))))]) for wrap in WRAPPED.values()]
ALL = (1 << layout.FLOW_BUCKETS) - 1


class Modules:
    """The compiled modules, or the same modules run by Python from source."""

    def __init__(self, load: Any) -> None:
        self.records: ModuleType = load("capture.records")
        self.frame_rows: ModuleType = load("capture.frame_rows")
        self.aeron_frames: ModuleType = load("capture.aeron_frames")
        self.mux_frames: ModuleType = load("capture.mux_frames")
        self.packet_index: ModuleType = load("capture.packet_index")


COMPILED = Modules(
    {
        m.__name__.removeprefix("mainstem._core."): m
        for m in (records, frame_rows, aeron_frames, mux_frames, packet_index)
    }.__getitem__
)
PLAIN = Modules(uncompiled.load)


def decoded(modules: Modules, data: bytes, *, named: bool) -> Any:
    """Return everything that the compiled part decodes from a file's records."""
    memory = bytearray(data)
    out: list[Any] = []
    blocks = data[:4] == b"\n\r\r\n"
    start = 0 if blocks else 24
    kind = int.from_bytes(data[20:22], "little") if len(data) >= 24 else make.ETHERNET
    if not blocks and len(memory) < start:
        return out
    for index in (True, False):
        walk = modules.records.RecordWalk(blocks)
        if not blocks:
            walk.set_records(False, False, kind, 262144)
        if index:
            over = modules.packet_index.PacketIndex(walk)
            stopped = over.run(memory, start, len(memory))
            out.append((stopped, over.offset, over.packets, over.first_ns, over.last_ns, over.tcp, over.fragments))
            continue
        rows = modules.frame_rows.FrameRows(-1, 64)
        decoder = modules.aeron_frames.CaptureDecoder(walk, rows)
        decoder.guess = not named
        decoder.set_ports([40123] if named else [], [9000])
        decoder.set_buckets(ALL, ALL)
        at = start
        for _ in range(200):
            stopped = decoder.run(memory, at, len(memory))
            at = decoder.offset
            packet = decoder.packet
            out.append((stopped, at, decoder.number))
            if stopped == layout.DECODE_SEGMENT:
                out.append((packet.kind, packet.payload, packet.available, packet.length, packet.bucket))
                out.append(packet.addresses(memory))
            elif stopped == layout.DECODE_FULL:
                out.append(taken(rows))
            else:
                break
        out.append(taken(rows))
    return out


def taken(rows: Any) -> Any:
    count, columns, text, payload = rows.take()
    length = int.from_bytes(columns[layout.ROW_TEXT][0][count * 4 : count * 4 + 4], "little")
    size = int.from_bytes(columns[layout.ROW_PAYLOAD][0][count * 4 : count * 4 + 4], "little")
    kept = {index: (bytes(values), bytes(valid)) for index, (values, valid) in columns.items()}
    return count, kept, bytes(text[:length]), bytes(payload[:size])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(damaged() | st.binary(max_size=200), st.booleans())
def test_compiled_and_plain_code_agree_on_every_file(data: bytes, named: bool) -> None:
    assert decoded(COMPILED, data, named=named) == decoded(PLAIN, data, named=named)


@given(st.binary(max_size=120), st.booleans(), st.integers(1, 16))
def test_compiled_and_plain_code_agree_on_every_stream(data: bytes, jmux: bool, size: int) -> None:
    results = []
    for modules in (COMPILED, PLAIN):
        rows = modules.frame_rows.FrameRows(-1, 200)
        rows.begin(1, 5, True, 9)
        parser = modules.mux_frames.MuxParser(rows, jmux, True)
        stops = [parser.settles(data, 0, len(data))]
        parser.restart(0)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            stops.append(parser.feed(piece, 0, len(piece)))
            stops.append((parser.position, parser.reason))
        results.append((stops, taken(rows)))
    assert results[0] == results[1]


@given(damaged() | st.binary(max_size=300))
def test_any_bytes_are_read_to_the_end(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        from pathlib import Path

        path = Path(file.name)
        rows = make.rows_of(path, bymux_ports=(9000,), jmux_ports=(9001,))
        assert all(row["protocol"] in ("aeron", "bymux", "tcp", "problem") for row in rows)
        make.rows_of(path, aeron_ports=(40123, 1), jmux_ports=(9000,))


def test_accesses_outside_are_refused() -> None:
    walk = records.RecordWalk()
    decoder = aeron_frames.CaptureDecoder(walk, frame_rows.FrameRows(-1, 8))
    with pytest.raises(IndexError):
        decoder.run(bytearray(10), 0, 11)
    with pytest.raises(IndexError):
        walk.next(bytearray(10), 11, 10)
    with pytest.raises(IndexError):
        decoder.packet.read(bytearray(10), 4, 7, 1)
    with pytest.raises(IndexError):
        mux_frames.MuxParser(decoder.rows, False).feed(b"", 0, 1)
    with pytest.raises(TypeError):
        aeron_frames.CaptureDecoder(None, None)  # type: ignore[arg-type]
