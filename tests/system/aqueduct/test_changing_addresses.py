"""Clients whose address changes, as behind a NAT that drops its mapping, or when moving to another network and back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lossy_relay import LossyRelay
from tests.support.waiting import soon

from mainstem import aqueduct
from mainstem.errors import ConnectionLost

if TYPE_CHECKING:
    from mainstem.aqueduct.aio import Connection, Server
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

FOLLOWED = 3  # number of new addresses that qh3 follows


class Rounds:
    """A server that sends something after each message, and the outcome of its handler."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.ended = asyncio.Event()

    async def handler(self, connection: Connection) -> None:
        try:
            with contextlib.suppress(ConnectionLost):
                async for message in connection.receiver:
                    sender = message.attachments[0]
                    await sender.send(b"back")
                    sender.finish()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                try:
                    await connection.wait_closed()
                except ConnectionLost as error:
                    self.error = error
            self.ended.set()


async def serving(certificates: CertificateFiles, rounds: Rounds, backend: str) -> Server:
    return await aqueduct.aio.serve(
        rounds.handler, certificate=certificates.certificate, key=certificates.key, backend=backend
    )


async def ask(connection: Connection) -> Any:
    respond, response = aqueduct.aio.oneshot()
    await connection.sender.send(aqueduct.Message(b"there", [respond]))
    return await soon(response.receive())


@pytest.mark.parametrize("client", ["qh3", "aioquic"])
@pytest.mark.parametrize(("server", "changes"), [("qh3", FOLLOWED), ("aioquic", 8)])
async def test_a_connection_follows_its_client(
    certificates: CertificateFiles, client: str, server: str, changes: int
) -> None:
    rounds = Rounds()
    async with await serving(certificates, rounds, server) as listening, LossyRelay(listening.port) as relay:
        async with aqueduct.aio.connect("localhost", relay.port, ca=certificates.ca, backend=client) as connection:
            for _ in range(changes):
                assert await ask(connection) == b"back"
                await relay.rebind()
            assert await ask(connection) == b"back"
        await soon(rounds.ended.wait())
    assert rounds.error is None


@pytest.mark.parametrize("client", ["qh3", "aioquic"])
async def test_a_client_that_migrates_too_often_for_qh3_gets_an_error(
    certificates: CertificateFiles, client: str
) -> None:
    rounds = Rounds()
    async with await serving(certificates, rounds, "qh3") as server, LossyRelay(server.port) as relay:
        connection = await aqueduct.aio.connect("localhost", relay.port, ca=certificates.ca, backend=client)
        for _ in range(FOLLOWED):
            assert await ask(connection) == b"back"
            await relay.rebind()
        assert await ask(connection) == b"back"
        await relay.rebind()
        with pytest.raises(ConnectionLost, match="address changed too often"):
            await ask(connection)
        with pytest.raises(ConnectionLost, match="address changed too often"):
            await connection.wait_closed()
        await soon(rounds.ended.wait())
        assert rounds.error is not None
        assert "follows to three new addresses" in str(rounds.error)
        connection.abort()
        await connection.close()


@pytest.mark.parametrize("server", ["qh3", "aioquic"])
async def test_a_client_can_alternate_between_two_addresses(certificates: CertificateFiles, server: str) -> None:
    rounds = Rounds()
    async with await serving(certificates, rounds, server) as listening, LossyRelay(listening.port) as relay:
        async with aqueduct.aio.connect("localhost", relay.port, ca=certificates.ca) as connection:
            assert await ask(connection) == b"back"
            for _ in range(6):
                await relay.swap()
                assert await ask(connection) == b"back"
        await soon(rounds.ended.wait())
    assert rounds.error is None
