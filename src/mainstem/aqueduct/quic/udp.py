"""A UDP socket that reads and writes in batches, through qh3 if it is installed.

``qh3._hazmat`` is the library's private module, but nothing public has its batched system calls.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections import deque
from typing import Any

Address = tuple[Any, ...]
"""A peer's address in the form that `socket` uses: host and port first."""

RECEIVE_BATCH = 64
"""Maximum number of datagrams to read at once: more would delay timers, fewer would cost more turns of the event loop."""

SOCKET_BUFFER = 4 << 20
"""Requested size in bytes of the socket's receive and send buffers; the system may grant less."""

MAX_BACKLOG = 4096
"""Maximum number of datagrams kept while the system's buffer is full. Excess ones are dropped, and QUIC retransmits them."""

# On Linux, the level and option that make a socket queue errors reported by ICMP.
_KEEP_ERRORS = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}

_FULL = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS}


class UdpSocket:
    """A non-blocking, unconnected UDP socket: ``bound``, or a new socket bound to ``host`` and ``port``."""

    def __init__(self, *, host: str = "", port: int = 0, family: int = 0, bound: socket.socket | None = None) -> None:
        self._socket = bound or socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
        try:
            if bound is None:
                self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.address: Address = self._socket.getsockname()
        self._batched = _batched_state(self._socket)
        self._keeps_errors = False
        self.backlog: deque[tuple[bytes, Address]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def report_refusals(self, enabled: bool = True) -> None:
        """Enable or disable the reporting of ICMP errors by `take_refusal`. Has an effect only on Linux."""
        if sys.platform == "linux" and enabled != self._keeps_errors:
            self._keeps_errors = enabled
            level, option = _KEEP_ERRORS[self._socket.family]
            self._socket.setsockopt(level, option, enabled)

    def take_refusal(self) -> bool:
        """Return whether ICMP has reported, since the last call, that an address is unreachable or that nobody listens there."""
        refused = False
        while self._keeps_errors:
            try:
                self._socket.recvmsg(0, 0, socket.MSG_ERRQUEUE)
            except OSError:
                break
            refused = True
        return refused

    def receive(self) -> list[tuple[bytes, Address]]:
        """Return the datagrams that have arrived, at most one batch."""
        if self._batched is not None:
            try:
                return self._batched.recv()  # type: ignore[no-any-return]
            except OSError:
                return []
        out = []
        for _ in range(RECEIVE_BATCH):
            try:
                out.append(self._socket.recvfrom(65536))
            except (BlockingIOError, ConnectionError):
                break
        return out

    def send(self, datagrams: list[tuple[bytes, Address]]) -> None:
        """Send as many datagrams as the system accepts; the rest wait in ``backlog`` for `flush`."""
        if len(datagrams) == 1 and not self.backlog and self._batched is not None:
            # The common case: a single datagram, and no backlog.
            data, address = datagrams[0]
            try:
                if self._batched.send([data], address) == 1:
                    return
            except OSError as error:
                if error.errno not in _FULL:
                    # A permanent error (no route, too large): treat the datagram as lost.
                    return
        room = MAX_BACKLOG - len(self.backlog)
        self.backlog.extend(datagrams[:room])
        self.flush()

    def flush(self) -> None:
        """Send the backlog, as far as the system accepts it."""
        backlog = self.backlog
        while backlog:
            if self._batched is None:
                data, address = backlog[0]
                try:
                    self._socket.sendto(data, address)
                except OSError as error:
                    if error.errno in _FULL:
                        return
                backlog.popleft()
            elif not self._flush_run(self._batched):
                return

    def _flush_run(self, batched: Any) -> bool:
        """Send the next datagrams to one address in a single call; return False if the system's buffer is full."""
        backlog = self.backlog
        address = backlog[0][1]
        run: list[bytes] = []
        for data, to in backlog:
            if to != address or len(run) == RECEIVE_BATCH:
                break
            run.append(data)
        full = False
        try:
            sent = batched.send(run, address)
            full = sent < len(run)
        except OSError as error:
            sent = getattr(error, "datagrams_sent", 0)
            full = error.errno in _FULL
            if not full:
                # A permanent error (no route, too large): treat the datagram as lost.
                sent += 1
        for _ in range(sent):
            backlog.popleft()
        return not full

    def close(self) -> None:
        # The batched state has its own descriptor, which would keep the port in use.
        self._batched = None
        self.backlog.clear()
        self._socket.close()


def _batched_state(sock: socket.socket) -> Any:
    """Return an object for batched system calls with segmentation offload, or None if the installed library has none."""
    try:
        from qh3._hazmat import UdpSocketState
    except ImportError:
        return None
    return UdpSocketState(sock.fileno())
