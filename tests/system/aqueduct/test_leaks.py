"""A channel leaves nothing behind, however it ended: the test counts halves, streams, and handles on both sides."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import soon, until

from mainstem import aqueduct
from mainstem.aqueduct import Message, Mode
from mainstem.aqueduct.aio import Connection, Receiver, Sender, channel, oneshot
from mainstem.aqueduct.output import Output
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

ROUNDS = 12
PAIRS = [(client, server) for client in ("qh3", "aioquic") for server in ("qh3", "aioquic")]


def objects() -> Counter[str]:
    """Count the library's live objects by class."""
    gc.collect()
    return Counter(type(thing).__qualname__ for thing in gc.get_objects() if _is_ours(type(thing)))


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).startswith(("mainstem.aqueduct", "mainstem._core"))


async def serve_everything(connection: Connection) -> None:
    """Echo on request, cancel or close the rest, and leave attachments in their messages."""
    async for message in connection.receiver:
        for handle in message.attachments:
            if message.payload == b"leave":
                continue
            if isinstance(handle, Sender):
                with contextlib.suppress(MainstemError):
                    await handle.send(b"tide")
                    if message.payload == b"cancel":
                        handle.abort()
                    elif message.payload == b"finish":
                        handle.finish()
            elif message.payload == b"close":
                handle.abort()
            else:
                with contextlib.suppress(MainstemError):
                    await handle.receive()
        del handle, message


async def one_round(connection: Connection) -> None:
    """Open channels of both kinds in every mode, and end each one differently."""
    for ending in (b"finish", b"cancel", b"close", b"leave", b"drop"):
        for mode in Mode:
            sender, receiver = channel(mode=mode)
            given, kept = channel(mode=mode)
            await connection.sender.send(Message(ending, [receiver, given]))
            with contextlib.suppress(MainstemError):
                await sender.send(b"tide")
            if ending == b"finish":
                sender.finish()
            elif ending == b"cancel":
                sender.abort()
            elif ending == b"close":
                kept.abort()
            with contextlib.suppress(MainstemError):
                if ending in (b"finish", b"cancel"):
                    await soon(_drain(kept))
    # The last message may have been lost, and then the server waits for it until its channel ends.
    del sender, receiver, given, kept
    answer_to, answer = oneshot()
    await connection.sender.send(Message(b"finish", [answer_to]))
    assert await soon(answer) == b"tide"


async def _drain(receiver: Receiver[Any]) -> None:
    async for _ in receiver:
        pass


@pytest.mark.parametrize("ending", ["finish", "abort"])
async def test_a_receiver_closed_after_its_channel_ended_is_forgotten(
    certificates: CertificateFiles, ending: str
) -> None:
    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            (sender,) = message.attachments
            getattr(sender, ending)()

    serving = await aqueduct.aio.serve(handler, certificate=certificates.certificate, key=certificates.key)
    async with serving, aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca) as connection:
        sender, receiver = channel()
        await connection.sender.send(Message(b"", [sender]))
        pipe = receiver._pipe
        assert pipe.half is not None
        await until(lambda: pipe.end is not None, progress=lambda: pipe.end)
        receiver.abort()
        assert connection._protocol.engine.live_halves <= 1


def lose_datagram(output: Output, data: bytes) -> None:
    """Count a datagram as sent without sending it."""
    output.plain.datagram_room -= 1


@pytest.mark.long
@pytest.mark.parametrize("loses_datagrams", [False, True])
@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_channels_leave_no_state_however_they_end(
    certificates: CertificateFiles,
    client: str,
    server: str,
    loses_datagrams: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if loses_datagrams:
        monkeypatch.setattr(Output, "send_datagram", lose_datagram)
    sessions = []

    async def handler(connection: Connection) -> None:
        sessions.append(connection._protocol)
        await serve_everything(connection)

    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=server
    )
    async with (
        serving,
        aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, backend=client) as connection,
    ):
        sessions.append(connection._protocol)

        def left() -> list[tuple[int, int]]:
            gc.collect()
            return [(s.engine.live_halves, len(s.engine.streams.open)) for s in sessions]

        async def at_rest() -> None:
            # What remains is the entrypoint with its control stream, the connection's own stream, and the stream of its messages.
            await until(
                lambda: all(halves == 1 and streams <= 3 for halves, streams in left()),
                progress=left,
                poll_s=0.01,
            )

        await one_round(connection)
        assert len(sessions) == 2
        await at_rest()
        before = objects()
        for _ in range(ROUNDS):
            await one_round(connection)
        await at_rest()
        # A receiver of datagrams is checked once more after its grace period. A few objects may still be in flight; a leak per
        # channel would leave hundreds.
        await until(
            lambda: sum((objects() - before).values()) < ROUNDS, progress=lambda: objects() - before, poll_s=0.1
        )
