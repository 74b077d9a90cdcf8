"""A slow and lossy path for datagrams: ``relay.py FRONT BACK DELAY_MS LOSS SEED``.

Forwards datagrams from port FRONT to port BACK with a delay, unless it drops them, and responses the same way in reverse. One
sender at a time. Prints ``ready``, and when its input ends, the number of datagrams received and lost.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import sys
import time

HOST = "127.0.0.1"
BATCH = 64  # datagrams read from one socket before checking the others
BUFFER_BYTES = 1 << 22


def bound(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.bind((HOST, port))
    made.setblocking(False)
    return made


def main() -> None:
    front_port, back_port, delay_ms, loss, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    front, back = bound(int(front_port)), bound(0)
    sender: tuple[str, int] | None = None
    flights: list[tuple[float, int, bytes, bool]] = []
    seen = lost = 0
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        wait = max(0.0, min(0.1, flights[0][0] - now)) if flights else 0.1
        readable, _, _ = select.select([front, back, sys.stdin], [], [], wait)
        if sys.stdin in readable:
            break
        now = time.monotonic()
        for source in (front, back):
            for _ in range(BATCH if source in readable else 0):
                try:
                    datagram, address = source.recvfrom(65_536)
                except BlockingIOError:
                    break
                if source is front:
                    sender = address
                seen += 1
                if rng.random() < float(loss):
                    lost += 1
                    continue
                heapq.heappush(flights, (now + float(delay_ms) / 1000, seen, datagram, source is front))
        while flights and flights[0][0] <= now:
            _, _, datagram, onwards = heapq.heappop(flights)
            if onwards:
                back.sendto(datagram, (HOST, int(back_port)))
            elif sender is not None:
                front.sendto(datagram, sender)
    print(f"{seen} {lost}", flush=True)


if __name__ == "__main__":
    main()
