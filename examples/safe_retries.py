"""RPC over Jmux with safe retries: a transfer is executed once, whatever happens to its request.

    python examples/safe_retries.py

The server refuses the first request (it was not executed, so it may be sent again), breaks off the second after executing it (it
may not), and serves the rest. The client retries if ``may_retry`` allows it, and otherwise asks for the outcome.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from mainstem import jmux
from mainstem.errors import Aborted, ConnectionLost

TRANSFERS = {"t1": 10, "t2": 20, "t3": 12}
ATTEMPTS = 5


class Bank:
    """Executes transfers and counts how often each was executed."""

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()
        self.balance = 0
        self.requests = 0

    async def serve(self, session: jmux.aio.ServerSession) -> None:
        self.requests += 1
        if self.requests == 1:
            session.reject("starting up")  # before reading: nothing was executed
            return
        request = json.loads(await session.read(-1))
        if "outcome" in request:
            session.write(b"executed" if self.executed[request["outcome"]] else b"unknown")
            return
        self.executed[request["transfer"]] += 1
        self.balance += request["amount"]
        if self.executed.total() == 2:
            session.abort("a fault after the transfer")  # too late to take it back
            return
        session.write(b"executed")


async def transfer(client: jmux.aio.Client, name: str, amount: int) -> str:
    """Make a transfer once: retry only what was certainly not executed."""
    request = json.dumps({"transfer": name, "amount": amount}).encode()
    for _ in range(ATTEMPTS):
        async with client.open_session() as session:
            try:
                session.write(request)
                session.finish()
                return f"{name}: {(await session.read(-1)).decode()}"
            except (Aborted, ConnectionLost):
                if not session.may_retry:
                    break
        await asyncio.sleep(0.05)
    outcome = await client.request(json.dumps({"outcome": name}).encode())
    return f"{name}: {outcome.decode()}, as the bank says when asked"


async def main() -> None:
    bank = Bank()
    async with (
        jmux.aio.serve(bank.serve, "127.0.0.1", 0) as listener,
        jmux.aio.connect("127.0.0.1", listener.port) as client,
    ):
        for name, amount in TRANSFERS.items():
            print(await transfer(client, name, amount))
    print(f"balance {bank.balance}; each executed once: {all(count == 1 for count in bank.executed.values())}")


if __name__ == "__main__":
    asyncio.run(main())
