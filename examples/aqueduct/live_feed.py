"""A live feed: updates are unreliable, because an old update is worthless; control messages are reliable, because each one matters.

``python examples/aqueduct/live_feed.py``
"""

from __future__ import annotations

import asyncio
import math
import tempfile

from mainstem import aqueduct
from mainstem.aqueduct import Mode, MsgspecSerializer
from mainstem.aqueduct.aio import Receiver, Sender, channel
from mainstem.errors import MainstemError


async def measure(updates: Sender[dict[str, float]], control: Receiver[str]) -> None:
    """Send the water level until told to stop."""
    updates.configure(mode=Mode.UNRELIABLE)
    stop = asyncio.ensure_future(control.receive())
    step = 0
    while not stop.done():
        step += 1
        await updates.send({"step": step, "level": round(2 + math.sin(step / 10), 3)})
        await asyncio.sleep(0.005)
    print("the gauge was told:", stop.result())
    updates.finish()


async def gauge(connection: aqueduct.aio.Connection) -> None:
    async for request in connection.receiver:
        await measure(request["updates"], request["control"])


async def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp())
    serializers = [MsgspecSerializer()]
    server = await aqueduct.aio.serve(gauge, certificate=files.certificate, key=files.key, serializers=serializers)
    async with (
        server,
        aqueduct.aio.connect("localhost", server.port, ca=files.ca, serializers=serializers) as connection,
    ):
        updates_to, updates = channel()
        control, control_from = channel()
        await connection.sender.send({"updates": updates_to, "control": control_from})
        try:
            async for update in updates:
                if update["step"] % 20 == 0:
                    print(update)
                if update["step"] == 100:
                    await control.send("that is enough")
        except MainstemError as error:
            print("the feed ended:", error)


if __name__ == "__main__":
    asyncio.run(main())
