"""Plain sockets from Python: AF_UNIX SEQPACKET for ipc, UDP for udp. UDP loses data, so only received messages count."""

from __future__ import annotations

import os
import socket
import time

from common import CHECK_EVERY, LAST, Options, rate, ready, report, report_round_trips, run, send_for

IDLE_S = 0.5  # a UDP receiver ends after this much silence, because the last datagram can be lost


def listening(options: Options) -> socket.socket:
    if options.transport == "ipc":
        path = f"/tmp/mainstem-bench-{options.port}.sock"
        if os.path.exists(path):
            os.unlink(path)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(path)
        server.listen()
        ready()
        connection = server.accept()[0]
        os.unlink(path)
        return connection
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    receiver.bind(("127.0.0.1", options.port))
    ready()
    return receiver


def connected(options: Options) -> socket.socket:
    if options.transport == "ipc":
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(f"/tmp/mainstem-bench-{options.port}.sock")
        return client
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("127.0.0.1", options.port))
    return sender


def sub(options: Options) -> None:
    receiver = listening(options)
    buffer = bytearray(65536)
    receive = receiver.recv_into
    receive(buffer)
    first = last = time.monotonic_ns()
    count = 1
    receiver.settimeout(IDLE_S if options.transport == "udp" else None)
    try:
        while receive(buffer) != 1:
            count += 1
            if not count % CHECK_EVERY:
                last = time.monotonic_ns()
        last = time.monotonic_ns()
    except TimeoutError:
        pass
    report(rate=rate(count, first, last), received=count)


def pub(options: Options) -> None:
    sender = connected(options)
    payload = bytes(options.size)
    deliver = sender.send

    def send() -> None:
        for _ in range(CHECK_EVERY):
            deliver(payload)

    count = send_for(options.seconds, send)
    deliver(LAST)
    report(sent=count)


def pong(options: Options) -> None:
    receiver = listening(options)
    while True:
        message, source = receiver.recvfrom(65536)
        if len(message) == 1:
            break
        if options.transport == "ipc":
            receiver.send(message)
        else:
            receiver.sendto(message, source)
    report(done=1)


def ping(options: Options) -> None:
    sender = connected(options)
    payload = bytes(options.size)
    times = []
    for _ in range(options.rounds // 10):
        start = time.monotonic_ns()
        sender.send(payload)
        sender.recv(65536)
        times.append(time.monotonic_ns() - start)
    sender.send(LAST)
    report_round_trips(times)


if __name__ == "__main__":
    run({"sub": sub, "pub": pub, "ping": ping, "pong": pong})
