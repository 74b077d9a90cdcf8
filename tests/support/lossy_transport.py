"""A datagram relay that loses the datagrams a test chooses."""

from __future__ import annotations

import select
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

HOST = "127.0.0.1"
_HEADER = struct.Struct("<iBBHiiii")
_POLL_S = 0.05


class HoledWay:
    """Relays datagrams from ``port`` to ``back``, and responses to the sender, in a thread for the duration of the block.

    It calls ``loses`` for each datagram with a data header toward ``back``, with its frame length, term offset and term id.
    """

    def __init__(self, port: int, back: int, loses: Callable[[int, int, int], bool]) -> None:
        self._back = (HOST, back)
        self._loses = loses
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind((HOST, port))
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._control.bind((HOST, 0))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holed way")

    def __enter__(self) -> HoledWay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._front.close()
        self._control.close()

    def _run(self) -> None:
        sender = None
        while not self._ended.is_set():
            ready, _, _ = select.select([self._front, self._control], [], [], _POLL_S)
            if self._front in ready:
                datagram, sender = self._front.recvfrom(65_536)
                if not self._is_lost(datagram):
                    self._control.sendto(datagram, self._back)
            if self._control in ready:
                datagram = self._control.recv(65_536)
                if sender is not None:
                    self._front.sendto(datagram, sender)

    def _is_lost(self, datagram: bytes) -> bool:
        if len(datagram) < _HEADER.size:
            return False
        length, _, _, kind, offset, _, _, term_id = _HEADER.unpack_from(datagram)
        return kind in (0, 1) and self._loses(length, offset, term_id)
