"""A request/response service: each request carries a oneshot for its response.

``python examples/aqueduct/requests.py`` runs server and client in one process, over QUIC on this machine.
"""

from __future__ import annotations

import asyncio
import tempfile

from mainstem import aqueduct
from mainstem.aqueduct import MsgspecSerializer
from mainstem.aqueduct.aio import oneshot


async def service(connection: aqueduct.aio.Connection) -> None:
    """Send each response on the channel that came with the request."""
    async for request in connection.receiver:
        await request["response"].send(sorted(request["words"]))


async def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp())
    serializers = [MsgspecSerializer()]
    server = await aqueduct.aio.serve(service, certificate=files.certificate, key=files.key, serializers=serializers)
    async with (
        server,
        aqueduct.aio.connect("localhost", server.port, ca=files.ca, serializers=serializers) as connection,
    ):
        for words in (["tide", "delta", "weir"], ["spring", "bank"]):
            respond, response = oneshot()
            await connection.sender.send({"words": words, "response": respond})
            print(words, "→", await response)


if __name__ == "__main__":
    asyncio.run(main())
