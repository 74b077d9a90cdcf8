"""A server's log about its peers: one line per protocol error, and no traceback when a peer disconnects."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import warnings
from typing import Any

import pytest
from tests.support.waiting import STALL_S, soon, until

from mainstem import bymux
from mainstem.jmux import aio as jmux

pytestmark = pytest.mark.system


async def hold(stream: Any) -> None:
    await stream.readexactly(10)


def over(listener: Any) -> bool:
    """Return whether every connection has ended and finished logging."""
    return not listener._connections


def handled(listener: Any) -> set[Any]:
    """Return the handlers that are running."""
    return {task for connection in listener._connections for task in connection.tasks}


def garbage(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(data)
        peer.settimeout(STALL_S)
        try:
            while peer.recv(4096):
                pass
        except OSError:
            pass


@pytest.mark.parametrize(
    ("protocol", "data", "rule"),
    [(bymux.aio, b"\xc0", "undefined-packet-type"), (jmux, b"Jmux\x01\0\x80\0\x80\x05\0\0", "inactive-session")],
)
async def test_a_protocol_error_is_logged_once_with_the_peer_and_the_rule(
    protocol: Any, data: bytes, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with await protocol.serve(hold, "127.0.0.1", 0) as listener:
        await asyncio.to_thread(garbage, listener.port, data)
        await until(lambda: listener.stats().connections_opened == 1 and over(listener))
        records = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(records) == 1
        assert records[0].levelno == logging.WARNING
        assert records[0].exc_info is None
        assert "127.0.0.1:" in records[0].getMessage()
        assert rule in records[0].getMessage()
        for _ in range(30):
            await asyncio.to_thread(garbage, listener.port, data)
        await until(lambda: listener.stats().connections_opened == 31 and over(listener))
        assert len(caplog.records) == 1, "a flood is cut"


async def test_a_peer_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    report = b"\nERROR all data is lost"
    async with await jmux.serve(hold, "127.0.0.1", 0) as listener:
        header = b"Jmux\x01\0\x80\0"
        await asyncio.to_thread(garbage, listener.port, header + b"\x08\0" + len(report).to_bytes(2, "big") + report)
        await until(lambda: listener.stats().connections_opened == 1 and over(listener))
    (record,) = caplog.records
    assert "error-received" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
@pytest.mark.parametrize("how", ["early end", "reset", "abort", "inside a message"])
async def test_a_peer_that_disconnects_is_not_logged_as_an_error(
    protocol: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    begun = asyncio.Event()

    async def pour(stream: Any) -> None:
        await stream.readexactly(3)
        if how == "early end":
            begun.set()
        await stream.readexactly(7)
        stream.write(bytes(1_000_000))
        begun.set()
        await stream.drain()

    async with await protocol.serve(pour, "127.0.0.1", 0) as listener:
        client = await protocol.connect("127.0.0.1", listener.port)
        stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
        stream.write(b"abc" if how == "early end" else bytes(10))
        await stream.drain()
        await soon(begun.wait())
        connection = client._protocol if protocol is bymux.aio else stream._connection
        if how == "early end":
            stream.finish()
        elif how == "reset":
            raw = connection.transport._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.end(abort=True)
        elif how == "abort":
            stream.abort()
        else:
            connection.transport.write([b"\x21" if protocol is bymux.aio else b"\x80"])
            connection.end()
        await until(lambda: not handled(listener))
        await client.close()
        await until(lambda: over(listener))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # from objects that other tests left
        gc.collect()  # asyncio logs an exception that was never retrieved when its future is collected
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
