"""pyaeron: a CPython extension over Aeron's C client, with Aeron's C driver in a separate process."""

from __future__ import annotations

import os
import signal
import time

import pyaeron
from common import CHECK_EVERY, LAST, Options, rate, ready, receive_from_all, report, report_round_trips, run, send_for


def driver(options: Options) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with_driver = pyaeron.MediaDriver(dir=options.directory)
    ready()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    with_driver.close()


def channel(options: Options, offset: int = 0) -> str:
    if options.there:
        return options.there
    return (
        pyaeron.IPC_CHANNEL if options.transport == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{options.port + offset}"
    )


def sub(options: Options) -> None:
    aeron = pyaeron.Aeron(dir=options.directory)
    subscription = aeron.add_subscription(channel(options), 1001)
    ready()
    last = 0

    def on_fragment(buffer: object, header: object) -> None:
        nonlocal last
        if len(buffer) == 1:  # type: ignore[arg-type]
            last = time.monotonic_ns()

    poll = subscription.poll
    while not (count := poll(on_fragment, 64)):
        os.sched_yield()
    first = time.monotonic_ns()
    before = count
    while not last:
        received = poll(on_fragment, 64)
        count += received
        if not received:
            os.sched_yield()
    report(rate=rate(count - before + 1, first, last))


def subs(options: Options) -> None:
    aeron = pyaeron.Aeron(dir=options.directory)
    subscriptions = [aeron.add_subscription(channel, 1001) for channel in options.here.split(";")]
    ready()
    report(rate=rate(*receive_from_all([each.poll for each in subscriptions], os.sched_yield)))


def pub(options: Options) -> None:
    aeron = pyaeron.Aeron(dir=options.directory)
    publication = aeron.add_publication(channel(options), 1001)
    publication.await_connected()
    offer = publication.offer
    payload = bytes(options.size)

    def send() -> None:
        for _ in range(CHECK_EVERY):
            while not offer(payload):
                os.sched_yield()

    count = send_for(options.seconds, send)
    while not offer(LAST):
        os.sched_yield()
    time.sleep(0.3)
    report(sent=count)


def pong(options: Options) -> None:
    aeron = pyaeron.Aeron(dir=options.directory)
    subscription = aeron.add_subscription(channel(options), 1001)
    publication = aeron.add_publication(channel(options, 1), 1002)
    ready()
    state = {"done": False}

    def on_fragment(buffer: object, header: object) -> None:
        if len(buffer) == 1:  # type: ignore[arg-type]
            state["done"] = True
        while not publication.offer(bytes(buffer)):  # type: ignore[call-overload]
            pass

    poll = subscription.poll
    while not state["done"]:
        if not poll(on_fragment, 10):
            os.sched_yield()
    report(done=1)


def ping(options: Options) -> None:
    aeron = pyaeron.Aeron(dir=options.directory)
    subscription = aeron.add_subscription(channel(options, 1), 1002)
    publication = aeron.add_publication(channel(options), 1001)
    publication.await_connected()
    subscription.await_connected()
    payload = bytes(options.size)
    times = []
    poll, offer, now = subscription.poll, publication.offer, time.monotonic_ns
    arrived = [0]

    def on_fragment(buffer: object, header: object) -> None:
        arrived[0] += 1

    for _ in range(options.rounds):
        start = now()
        while not offer(payload):
            pass
        before = arrived[0]
        while arrived[0] == before:
            if not poll(on_fragment, 10):
                os.sched_yield()
        times.append(now() - start)
    while not offer(LAST):
        pass
    report_round_trips(times)


if __name__ == "__main__":
    run({"driver": driver, "sub": sub, "subs": subs, "pub": pub, "ping": ping, "pong": pong})
