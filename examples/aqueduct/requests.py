"""A request/response service: each request carries a oneshot for its response. Calls block, and handlers are threads.

``python examples/aqueduct/requests.py`` runs server and client in one process, over QUIC on this machine.
"""

from __future__ import annotations

import tempfile

from mainstem import aqueduct
from mainstem.aqueduct import MsgspecSerializer, oneshot


def service(connection: aqueduct.Connection) -> None:
    """Send each response on the channel that came with the request."""
    for request in connection.receiver:
        request["response"].send(sorted(request["words"]))


def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp())
    serializers = [MsgspecSerializer()]
    with (
        aqueduct.serve(service, certificate=files.certificate, key=files.key, serializers=serializers) as server,
        aqueduct.connect("localhost", server.port, ca=files.ca, serializers=serializers) as connection,
    ):
        for words in (["tide", "delta", "weir"], ["spring", "bank"]):
            respond, response = oneshot()
            connection.sender.send({"words": words, "response": respond})
            print(words, "→", response.receive(timeout=10))


if __name__ == "__main__":
    main()
