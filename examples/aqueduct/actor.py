"""An actor: a bank account behind a channel. Anyone who holds the sender can use it, from anywhere.

``python examples/aqueduct/actor.py``
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from mainstem import aqueduct
from mainstem.aqueduct import MsgspecSerializer
from mainstem.aqueduct.aio import Receiver, channel, oneshot


async def account(mailbox: Receiver[dict[str, Any]]) -> None:
    """Handle one message at a time, without a lock: that is what an actor is."""
    balance = 0
    async for message in mailbox:
        balance += message.get("deposit", 0)
        if "balance" in message:
            await message["balance"].send(balance)


async def bank(connection: aqueduct.aio.Connection) -> None:
    """Give each caller a mailbox of an account of their own."""
    accounts: set[asyncio.Future[None]] = set()
    async for request in connection.receiver:
        mailbox_sender, mailbox = channel()
        accounts.add(asyncio.ensure_future(account(mailbox)))
        await request["open"].send(mailbox_sender)
    await asyncio.gather(*accounts)


async def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp())
    serializers = [MsgspecSerializer()]
    server = await aqueduct.aio.serve(bank, certificate=files.certificate, key=files.key, serializers=serializers)
    async with (
        server,
        aqueduct.aio.connect("localhost", server.port, ca=files.ca, serializers=serializers) as connection,
    ):
        opened, open_to = oneshot()
        await connection.sender.send({"open": opened})
        mine = await open_to
        for amount in (10, 20, 12):
            await mine.send({"deposit": amount})
        asked, balance = oneshot()
        await mine.send({"balance": asked})
        print("balance:", await balance)
        mine.finish()


if __name__ == "__main__":
    asyncio.run(main())
