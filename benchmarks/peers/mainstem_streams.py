"""Mainstem: its client, with its media driver in a separate process, or in INVOKER mode inside each end (``invoker=1``)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from common import (
    CHECK_EVERY,
    LAST,
    Options,
    rate,
    ready,
    receive_from_all,
    report,
    report_round_trips,
    run,
    run_until_stopped,
    send_for,
)

import mainstem

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 1_000  # messages per batch
POLL_LIMIT = 64  # fragments per poll, as for the peers
WAIT_S = 0.001  # the longest wait for a response; a message ends it earlier


def channel(options: Options, offset: int = 0) -> str:
    if options.there:
        return options.there
    return "aeron:ipc" if options.transport == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{options.port + offset}"


class Ends:
    """A client, and in INVOKER mode a driver, whose duty cycle the owner runs."""

    def __init__(self, options: Options) -> None:
        self._work: Callable[[], int] | None = None
        self._is_ipc = options.transport == "ipc"
        if options.invoker:
            driver = mainstem.MediaDriver.launch(threading_mode="INVOKER")
            self._work = driver.do_work
            self.aeron = mainstem.Aeron.connect(driver.directory, driver_invoker=driver.do_work)
            self._open = [self.aeron, driver]
        else:
            self.aeron = mainstem.Aeron.connect(options.directory)
            self._open = [self.aeron]

    def idle(self) -> None:
        if self._work is None:
            os.sched_yield()
        else:
            self._work()

    def waiter(self, subscription: mainstem.aeron.client.Subscription) -> Callable[..., object]:
        """Return a function that waits for a response.

        Over IPC it is the subscription's own wait, which spins at first. Otherwise a driver needs the core.
        """
        return subscription.wait_for_data if self._is_ipc else lambda timeout: self.idle()

    def wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.idle()

    def linger(self, seconds: float) -> None:
        """Keep running for ``seconds``, so that sent messages can arrive."""
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > end)

    def close(self) -> None:
        for one in self._open:
            one.close()


def driver(options: Options) -> None:
    # One thread for all agents, like pyaeron's driver.
    with mainstem.MediaDriver.launch(options.directory, dir_delete_on_shutdown=True, threading_mode="SHARED"):
        ready()
        run_until_stopped()


def sub(options: Options) -> None:
    ends = Ends(options)
    subscription = ends.aeron.add_subscription(channel(options), 1001)
    ready()
    count, first, last = (receive_batches if options.mode == "batch" else receive_calls)(ends, subscription)
    report(rate=rate(count, first, last), count=count)
    ends.close()


def subs(options: Options) -> None:
    ends = Ends(options)
    subscriptions = [ends.aeron.add_subscription(channel, 1001) for channel in options.here.split(";")]
    ready()
    report(rate=rate(*receive_from_all([each.poll for each in subscriptions], ends.idle)))
    ends.close()


def receive_calls(ends: Ends, subscription: mainstem.aeron.client.Subscription) -> tuple[int, int, int]:
    last = 0

    def on_fragment(fragment: object) -> None:
        nonlocal last
        if len(fragment) == 1:  # type: ignore[arg-type]
            last = time.monotonic_ns()

    poll, idle = subscription.poll, ends.idle
    while not (count := poll(on_fragment, POLL_LIMIT)):
        idle()
    first = time.monotonic_ns()
    before = count
    while not last:
        received = poll(on_fragment, POLL_LIMIT)
        count += received
        if not received:
            idle()
    return count - before + 1, first, last


def receive_batches(ends: Ends, subscription: mainstem.aeron.client.Subscription) -> tuple[int, int, int]:
    count = first = 0
    poll, idle = subscription.poll_arrow, ends.idle
    while True:
        batch = poll()
        if not batch.num_rows:
            idle()
            continue
        if not count:
            first = time.monotonic_ns()
        count += batch.num_rows
        if len(batch["payload"][-1].as_buffer()) == 1:
            return count, first, time.monotonic_ns()


def pub(options: Options) -> None:
    ends = Ends(options)
    publication = ends.aeron.add_publication(channel(options), 1001)
    ends.wait(lambda: publication.is_connected)
    payload = bytes(options.size)
    offer, idle = publication.offer, ends.idle
    batch = pa.array([payload] * BATCH, pa.binary())

    def send_calls() -> None:
        for _ in range(CHECK_EVERY):
            while offer(payload) < 0:
                idle()
        if options.invoker:
            idle()

    def send_batches() -> None:
        taken = 0
        while taken < BATCH:
            count, _ = offer_columns(taken)
            taken += count
            if not count or options.invoker:
                idle()

    def offer_columns(first: int) -> tuple[int, int]:
        return publication.offer_columns(data, offsets, first=first, count=BATCH - first)

    _, offsets, data = batch.buffers()
    count = send_for(options.seconds, send_batches if options.mode == "batch" else send_calls)
    while offer(LAST) < 0:
        idle()
    ends.linger(0.5)
    report(sent=count)
    ends.close()


def pong(options: Options) -> None:
    ends = Ends(options)
    subscription = ends.aeron.add_subscription(channel(options), 1001)
    publication = ends.aeron.add_publication(channel(options, 1), 1002)
    ready()
    done = False
    offer, poll, idle, wait = publication.offer, subscription.poll, ends.idle, ends.waiter(subscription)

    def on_fragment(fragment: object) -> None:
        nonlocal done
        done = done or len(fragment) == 1  # type: ignore[arg-type]
        while offer(fragment) < 0:
            idle()

    while not done:
        if not poll(on_fragment, 10):
            wait(timeout=WAIT_S)
    ends.linger(0.3)
    report(done=1)
    ends.close()


def ping(options: Options) -> None:
    ends = Ends(options)
    subscription = ends.aeron.add_subscription(channel(options, 1), 1002)
    publication = ends.aeron.add_publication(channel(options), 1001)
    ends.wait(lambda: publication.is_connected and subscription.is_connected)
    payload = bytes(options.size)
    times = []
    poll, offer, idle, now = subscription.poll, publication.offer, ends.idle, time.monotonic_ns
    wait = ends.waiter(subscription)
    arrived = 0

    def on_fragment(fragment: object) -> None:
        nonlocal arrived
        arrived += 1

    for _ in range(options.rounds):
        before = arrived
        start = now()
        while offer(payload) < 0:
            idle()
        while arrived == before:
            if not poll(on_fragment, 10):
                wait(timeout=WAIT_S)
        times.append(now() - start)
    while offer(LAST) < 0:
        idle()
    ends.linger(0.3)
    report_round_trips(times)
    ends.close()


if __name__ == "__main__":
    run({"driver": driver, "sub": sub, "subs": subs, "pub": pub, "ping": ping, "pong": pong})
