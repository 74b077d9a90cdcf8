"""pyzmq: PUSH/PULL for throughput, PAIR for round trips, over ipc:// or tcp://."""

from __future__ import annotations

import time

import zmq
from common import CHECK_EVERY, LAST, Options, rate, ready, report, report_round_trips, run, send_for


def address(options: Options) -> str:
    return (
        f"ipc:///tmp/mainstem-bench-{options.port}" if options.transport == "ipc" else f"tcp://127.0.0.1:{options.port}"
    )


def sub(options: Options) -> None:
    socket = zmq.Context().socket(zmq.PULL)
    socket.bind(address(options))
    ready()
    count = 1
    socket.recv()
    first = time.monotonic_ns()
    receive = socket.recv
    while len(receive()) != 1:
        count += 1
    report(rate=rate(count, first, time.monotonic_ns()))


def pub(options: Options) -> None:
    socket = zmq.Context().socket(zmq.PUSH)
    socket.connect(address(options))
    payload = bytes(options.size)
    deliver = socket.send

    def send() -> None:
        for _ in range(CHECK_EVERY):
            deliver(payload)

    count = send_for(options.seconds, send)
    deliver(LAST)
    socket.close()
    report(sent=count)


def pong(options: Options) -> None:
    socket = zmq.Context().socket(zmq.PAIR)
    socket.bind(address(options))
    ready()
    while len(message := socket.recv()) != 1:
        socket.send(message)
    report(done=1)


def ping(options: Options) -> None:
    socket = zmq.Context().socket(zmq.PAIR)
    socket.connect(address(options))
    payload = bytes(options.size)
    times = []
    for _ in range(options.rounds // 10):
        start = time.monotonic_ns()
        socket.send(payload)
        socket.recv()
        times.append(time.monotonic_ns() - start)
    socket.send(LAST)
    socket.close()
    report_round_trips(times)


if __name__ == "__main__":
    run({"sub": sub, "pub": pub, "ping": ping, "pong": pong})
