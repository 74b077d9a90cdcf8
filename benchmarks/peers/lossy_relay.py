"""A relay for datagrams that loses only data: ``lossy_relay.py KEY=VALUE ...``.

``port`` and ``back``: the relay forwards datagrams for 127.0.0.1:port to 127.0.0.1:back, and responses to their sender. ``port``
and ``branches``: it forwards datagrams for the group 224.20.30.1 to that many groups, 224.20.30.11, .13 and so on, each with its
own losses, and datagrams for their control groups to the sender's control group.

``loss`` is the share of data frames to lose, ``delay_ms`` the delay in each direction, and ``seed`` selects the lost frames: by a
hash of the seed, the position in the stream and the number of times that the position has been sent. So the receivers under
comparison lose the same frames, whatever they request and when. Prints ``ready``, and at the end of its input the numbers of
datagrams and bytes of data that arrived and were lost, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
import struct
import sys
import time
from collections import deque

HOST = "127.0.0.1"
BATCH = 64  # datagrams to read from one socket before the next one's turn
BUFFER_BYTES = 1 << 22
DATA_TYPES = (0, 1)  # padding frames count as data
HEADER = struct.Struct("<iBBHiiii")


class Branch:
    """One direction toward a receiver: its destination, and its losses."""

    def __init__(self, to: tuple[str, int], *, seed: int, number: int, loss: float) -> None:
        self.to = to
        self._key = seed, number
        self._limit = int(loss * (1 << 32))
        self._first_term: int | None = None
        self._seen: dict[tuple[int, int], int] = {}
        self.data = self.lost = self.data_bytes = self.lost_bytes = 0

    def loses(self, datagram: bytes) -> bool:
        if len(datagram) < HEADER.size:
            return False
        length, _, _, kind, offset, _, _, term = HEADER.unpack_from(datagram)
        if kind not in DATA_TYPES or length == 0:
            return False
        if self._first_term is None:
            self._first_term = term
        position = term - self._first_term, offset
        times = self._seen[position] = self._seen.get(position, 0) + 1
        digest = hashlib.blake2b(struct.pack("<5q", *self._key, *position, times), digest_size=4).digest()
        self.data += 1
        self.data_bytes += len(datagram)
        if int.from_bytes(digest, "little") >= self._limit:
            return False
        self.lost += 1
        self.lost_bytes += len(datagram)
        return True


def bound(address: tuple[str, int], *, group: bool) -> socket.socket:
    bound_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    if group:
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        membership = socket.inet_aton(address[0]) + socket.inet_aton(HOST)
        bound_socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        bound_socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
    bound_socket.bind(address)
    bound_socket.setblocking(False)
    return bound_socket


def main() -> None:
    options = dict(word.split("=", 1) for word in sys.argv[1:])
    port, loss, seed = int(options["port"]), float(options["loss"]), int(options["seed"])
    delay = float(options["delay_ms"]) / 1000
    count = int(options.get("branches", "0"))
    sender: tuple[str, int] | None = None
    if count:
        front = bound(("224.20.30.1", port), group=True)
        branches = [Branch((f"224.20.30.{11 + 2 * i}", port), seed=seed, number=i, loss=loss) for i in range(count)]
        controls = [bound((f"224.20.30.{12 + 2 * i}", port), group=True) for i in range(count)]
        sender = ("224.20.30.2", port)
    else:
        front = bound((HOST, port), group=False)
        branches = [Branch((HOST, int(options["back"])), seed=seed, number=0, loss=loss)]
        controls = [bound((HOST, 0), group=False)]
    forward, backward = controls[0], front
    learns = not count
    flights: deque[tuple[float, socket.socket, bytes, tuple[str, int]]] = deque()
    poller = select.poll()
    sockets = {each.fileno(): each for each in (front, *controls)}
    for each in sockets:
        poller.register(each, select.POLLIN)
    poller.register(sys.stdin, select.POLLIN | select.POLLHUP)
    print("ready", flush=True)
    while True:
        wait_ms = 100.0
        if flights:
            wait_ms = max(0.0, min(wait_ms, (flights[0][0] - time.monotonic()) * 1000))
        ready = [number for number, _ in poller.poll(wait_ms)]
        if sys.stdin.fileno() in ready:
            break
        due = time.monotonic() + delay
        for number in ready:
            source = sockets[number]
            for _ in range(BATCH):
                try:
                    datagram, address = source.recvfrom(65_536)
                except BlockingIOError:
                    break
                if source is front:
                    if learns:
                        sender = address
                    for branch in branches:
                        if not branch.loses(datagram):
                            flights.append((due, forward, datagram, branch.to))
                elif sender is not None:
                    flights.append((due, backward, datagram, sender))
        now = time.monotonic()
        while flights and flights[0][0] <= now:
            _, way, datagram, to = flights.popleft()
            way.sendto(datagram, to)
    facts = ("data", "lost", "data_bytes", "lost_bytes")
    print(json.dumps({fact: sum(getattr(branch, fact) for branch in branches) for fact in facts}))


if __name__ == "__main__":
    main()
