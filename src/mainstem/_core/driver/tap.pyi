from typing import Protocol

from mainstem._core.driver.datagram import Transport

class Watcher(Protocol):
    """Who is told of datagrams. Both calls come in the thread that uses the transport, and must not raise."""

    def came(self, source: bytes, datagram: bytes) -> None:
        """One arrived from the packed address ``source``."""
    def left(self, destination: bytes, datagram: bytes) -> None:
        """One was sent to the packed address ``destination``, empty where the socket is connected."""

class TappedTransport(Transport):
    """Another transport, each of whose datagrams is shown to ``watcher``: for what must be seen, not for speed.

    Datagrams that are dropped on purpose are not shown when they come in; they are when they go out.
    """

    inner: Transport
    def __init__(self, inner: Transport, watcher: Watcher) -> None: ...
