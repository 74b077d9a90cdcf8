# Written from tap.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing import Protocol

from mainstem._core.driver.datagram import Transport

class Watcher(Protocol):
    """What is notified of datagrams. Both calls come in the thread that uses the transport, and must not raise."""
    def came(self, source: bytes, datagram: bytes) -> None:
        """Notes a datagram that arrived from the packed address ``source``."""
    def left(self, destination: bytes, datagram: bytes) -> None:
        """Notes one that was sent to the packed address ``destination``, empty where the socket is connected."""

class TappedTransport(Transport):
    """Another transport, each of whose datagrams is reported to ``watcher``; slow, for logging only.

    Datagrams that are dropped on purpose are not reported when they come in; they are when they go out.
    """

    inner: Transport
    def __init__(self, inner: Transport, watcher: Watcher) -> None: ...
    def close(self) -> None: ...
    @property
    def dropped_data(self) -> int: ...
    @property
    def dropped_control(self) -> int: ...
    @property
    def arrived_ns(self) -> int: ...
