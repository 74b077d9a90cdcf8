"""The UDP socket, which reads and writes in batches. No other module of Aqueduct uses sockets."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections import deque
from typing import Any

Address = tuple[Any, ...]

RECEIVE_BATCH = 64
"""Datagrams read at once: more would delay timers, fewer would cost more turns of the event loop."""

SOCKET_BUFFER = 4 << 20
"""Buffer size for each direction; the system may grant less."""

MAX_BACKLOG = 4096
"""Datagrams kept while the system's buffer is full; more are dropped, and QUIC sends them again."""

# Linux: level and option to make a socket queue the errors that ICMP reports.
_KEEP_ERRORS = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}

_FULL = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS}


class UdpSocket:
    """A non-blocking UDP socket, not connected. Without ``bound`` it is bound here."""

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
        self._batched = _batched_state(self._socket)
        self._keeps_errors = False
        self.backlog: deque[tuple[bytes, Address]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def address(self) -> Address:
        return self._socket.getsockname()  # type: ignore[no-any-return]

    def report_refusals(self, enabled: bool = True) -> None:
        """Have `take_refusal` report ICMP errors, or not any longer. Only on Linux."""
        if sys.platform == "linux" and enabled != self._keeps_errors:
            self._keeps_errors = enabled
            level, option = _KEEP_ERRORS[self._socket.family]
            self._socket.setsockopt(level, option, enabled)

    def take_refusal(self) -> bool:
        """Whether ICMP has reported since the last call that an address is unreachable, or nobody listens there."""
        refused = False
        while self._keeps_errors:
            try:
                self._socket.recvmsg(0, 0, socket.MSG_ERRQUEUE)
            except OSError:
                break
            refused = True
        return refused

    def receive(self) -> list[tuple[bytes, Address]]:
        """Return what has arrived, up to a batch."""
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
        """Send what the system accepts; the rest waits in ``backlog`` for `flush`."""
        if len(datagrams) == 1 and not self.backlog and self._batched is not None:
            # Most often it is one, and nothing waits.
            data, address = datagrams[0]
            try:
                if self._batched.send([data], address) == 1:
                    return
            except OSError as error:
                if error.errno not in _FULL:
                    # A permanent error (no route, too large): lost, as the network might have lost it.
                    return
        room = MAX_BACKLOG - len(self.backlog)
        self.backlog.extend(datagrams[:room])
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
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
        """Send the datagrams to one address in one call; False if the system's buffer is full."""
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
                # A permanent error (no route, too large): lost, as the network might have lost it.
                sent += 1
        for _ in range(sent):
            backlog.popleft()
        return not full

    def close(self) -> None:
        # It has its own descriptor, which would keep the port.
        self._batched = None
        self.backlog.clear()
        self._socket.close()


def _batched_state(sock: socket.socket) -> Any:
    """Batched system calls with segmentation offload, if the installed library has them."""
    try:
        from qh3._hazmat import UdpSocketState
    except ImportError:
        return None
    return UdpSocketState(sock.fileno())
