"""A request/response service: each request carries a oneshot for its answer.

``python examples/aqueduct/requests.py`` runs server and client in one process, over QUIC on this machine.
"""

from __future__ import annotations

import asyncio
import tempfile

from mainstem import aqueduct
from mainstem.aqueduct import MsgspecSerializer, oneshot


async def service(connection: aqueduct.Connection) -> None:
    """Answer each request where it says."""
    async for request in connection.receiver:
        await request["answer"].send(sorted(request["words"]))


async def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp())
    serializers = [MsgspecSerializer()]
    server = await aqueduct.serve(service, certificate=files.certificate, key=files.key, serializers=serializers)
    async with server, await aqueduct.connect(server.url, ca=files.ca, serializers=serializers) as connection:
        for words in (["tide", "delta", "weir"], ["spring", "bank"]):
            answer_to, answer = oneshot()
            await connection.sender.send({"words": words, "answer": answer_to})
            print(words, "→", await answer)


if __name__ == "__main__":
    asyncio.run(main())
