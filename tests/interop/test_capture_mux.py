"""Captures of real bymux and Jmux connections: every stream's bytes can be read back, and the TCP totals equal tshark's."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.captures import rows_of
from tests.support.dumpcap import Dumpcap
from tests.support.ports import free_port

from mainstem import bymux
from mainstem.jmux import aio as jmux

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]
HOST = "127.0.0.1"


def bytes_by_tshark(path: Path) -> int:
    """Return the TCP payload size, counting each byte once."""
    only = "tcp.len > 0 and not tcp.analysis.retransmission"
    command = ["tshark", "-r", str(path), "-Y", only, "-T", "fields", "-e", "tcp.len"]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return sum(map(int, output.split()))


def check(rows: list[dict[str, Any]], protocol: str, path: Path) -> None:
    """Check that the capture has no problems and no gaps."""
    assert {row["protocol"] for row in rows} == {protocol, "tcp"}
    assert "GAP" not in {row["frame_type"] for row in rows}
    assert sum(row["frame_length"] for row in rows if row["protocol"] == protocol) == bytes_by_tshark(path)


def check_echoes(rows: list[dict[str, Any]], frame_type: str, datas: list[bytes]) -> None:
    """Check that every stream carried `datas` in each direction: the payloads of its frames of that type, in order."""
    for from_client in (True, False):
        streams: dict[int, bytes] = defaultdict(bytes)
        for row in rows:
            if row["frame_type"] == frame_type and row["from_client"] is from_client:
                streams[row["mux_stream_id"]] += row["payload"]
        assert sorted(streams.values()) == sorted(datas)


async def test_bymux_streams_come_out_of_a_capture(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "bymux.pcapng"
    rng = random.Random(3)
    datas = [rng.randbytes(size) for size in (1, 100, 5_000, 200_000)]

    async def echo(stream: bymux.aio.Stream) -> None:
        async for data in stream:
            stream.write(data)
            await stream.drain()
        await stream.close()

    async def call(connection: bymux.aio.Connection, data: bytes) -> None:
        async with connection.open_stream() as stream:
            stream.write(data)
            stream.finish()
            assert await stream.read(-1) == data

    with Dumpcap(path, f"tcp port {port}"):
        async with bymux.aio.serve(echo, HOST, port), bymux.aio.connect(HOST, port) as connection:
            await asyncio.gather(*(call(connection, data) for data in datas))
    rows = rows_of(path, bymux_ports=(port,))
    check(rows, "bymux", path)
    check_echoes(rows, "WRITE", datas)
    assert sum(row["frame_type"] == "CREATE" for row in rows) == len(datas)


async def test_jmux_requests_come_out_of_a_capture(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "jmux.pcapng"
    rng = random.Random(4)
    datas = [rng.randbytes(size) for size in (1, 100, 5_000, 200_000)]

    async def echo(session: jmux.ServerSession) -> None:
        async for data in session:
            session.write(data)
            await session.drain()
        session.finish()

    with Dumpcap(path, f"tcp port {port}"):
        async with jmux.serve(echo, HOST, port), await jmux.connect(HOST, port) as client:
            assert await asyncio.gather(*(client.request(data) for data in datas)) == datas
    rows = rows_of(path, jmux_ports=(port,))
    check(rows, "jmux", path)
    check_echoes(rows, "DATA", datas)
    assert sum(row["frame_type"] == "HEADER" for row in rows) == 2
