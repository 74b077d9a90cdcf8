"""Streams, subscribers, destinations and messages, over one driver in INVOKER mode; and drivers that have nothing to do."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from harness.curve import Curve, memory_mb, processor_s_of
from harness.drivers import has_reference, launched
from harness.processes import free_port

import mainstem
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 2.0  # of a point that is run for a time
IDLE_SECONDS = 5.0
SMALL_TERM = "|term-length=64k"
TIMEOUT_S = 120  # less than a point may take: what it started ends with it


class Ends:
    """A driver in INVOKER mode and a client, with what belongs to them."""

    def __init__(self, **settings: Any) -> None:
        self._stack = ExitStack()
        # Nothing is lost for want of room: a thousand streams share one socket.
        values = {"threading_mode": "INVOKER", "socket_so_rcvbuf": "4m", "socket_so_sndbuf": "4m", **settings}
        self.driver = self._stack.enter_context(MediaDriver.launch(**values))
        self.aeron = self._stack.enter_context(
            mainstem.Aeron.connect(self.driver.directory, driver_invoker=self.driver.do_work)
        )

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, self.driver.do_work)

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def wait_until(
    condition: Callable[[], bool],
    idle: Callable[[], object] = lambda: time.sleep(0.01),
    *,
    within_s: float = TIMEOUT_S,
) -> None:
    """Return once the condition holds. Raise TimeoutError if it takes too long."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not hold within {within_s} s")
        idle()


class Count:
    """A handler that counts."""

    def __init__(self) -> None:
        self.messages = 0

    def __call__(self, _: object) -> None:
        self.messages += 1


def traffic(ends: Ends, publications: list[Any], subscriptions: list[Any], message: bytes, copies: int) -> float:
    """Microseconds of processor time for each message that arrives, where one goes onto each publication in turn."""
    received, sent = Count(), 0
    ends.until(lambda: all(end.is_connected for end in (*publications, *subscriptions)))

    def turn() -> None:
        nonlocal sent
        for publication in publications:
            sent += publication.offer(message) > 0
        # A round takes so many datagrams from a socket and no more: what a thousand streams send fills the socket otherwise.
        ends.until(lambda: not ends.driver.do_work())
        for subscription in subscriptions:
            subscription.poll_messages(received, 100)

    turn()
    begin, before, start = received.messages, time.process_time(), time.monotonic()
    while time.monotonic() - start < SECONDS or received.messages < begin + 10 * copies:
        turn()
    cost = (time.process_time() - before) / (received.messages - begin)

    def all_arrived() -> bool:
        for subscription in subscriptions:
            subscription.poll_messages(received, 100)
        return received.messages == sent * copies

    ends.until(all_arrived)
    return cost * 1e6


def busy_streams(count: int) -> dict[str, float]:
    with Ends() as ends:
        before = memory_mb()
        port = free_port()
        channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
        subscriptions = [ends.aeron.add_subscription(channel, 1 + number) for number in range(count)]
        publications = [ends.aeron.add_exclusive_publication(channel + SMALL_TERM, 1 + n) for n in range(count)]
        cost = traffic(ends, publications, subscriptions, bytes(32), 1)
        return {"a message [us]": cost, "memory": max(memory_mb() - before, 0.1)}


def subscribers(count: int) -> dict[str, float]:
    with Ends() as ends:
        before = memory_mb()
        subscriptions = [ends.aeron.add_subscription("aeron:ipc", 1001) for _ in range(count)]
        publication = ends.aeron.add_exclusive_publication("aeron:ipc?term-length=1m", 1001)
        cost = traffic(ends, [publication], subscriptions, bytes(32), count)
        return {"a message at each [us]": cost, "memory": max(memory_mb() - before, 0.1)}


def destinations(count: int) -> dict[str, float]:
    with Ends() as ends:
        before = memory_mb()
        publication = ends.aeron.add_exclusive_publication("aeron:udp?control-mode=manual|fc=max" + SMALL_TERM, 1001)
        subscriptions = []
        for _ in range(count):
            endpoint = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
            subscriptions.append(ends.aeron.add_subscription(endpoint, 1001))
            publication.add_destination(endpoint)
        cost = traffic(ends, [publication], subscriptions, bytes(1_024), count)
        return {"a message at each [us]": cost, "memory": max(memory_mb() - before, 0.1)}


def message_length(length: int) -> dict[str, float]:
    with Ends(ipc_term_buffer_length="128m") as ends:
        subscription = ends.aeron.add_subscription("aeron:ipc", 1001)
        publication = ends.aeron.add_exclusive_publication("aeron:ipc", 1001)
        cost = traffic(ends, [publication], [subscription], bytes(length), 1)
        return {"a message [us]": cost, "a kilobyte of it [us]": cost / max(length / 1e3, 1e-9)}


def idle_streams(count: int) -> dict[str, float]:
    costs = {}
    lines = {"mainstem": "Mainstem", "reference": "reference"} if has_reference() else {"mainstem": "Mainstem"}
    for kind, line in lines.items():
        with launched(kind) as driver, mainstem.Aeron.connect(driver.directory) as aeron:
            pid = driver.process.pid
            channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
            ends: list[Any] = []
            for number in range(count):
                ends.append(aeron.add_subscription(channel, 1 + number))
                ends.append(aeron.add_exclusive_publication(channel + SMALL_TERM, 1 + number))
            # The reference driver keeps losing some of 1,000 streams to its timeouts: its status messages come in bursts.
            with suppress(TimeoutError) if kind == "reference" else nullcontext():
                wait_until(lambda ends=ends: all(end.is_connected for end in ends), within_s=30)  # type: ignore[misc]
            before = processor_s_of(pid)
            time.sleep(IDLE_SECONDS)
            costs[f"{line} [ms a second]"] = max((processor_s_of(pid) - before) / IDLE_SECONDS * 1e3, 0.1)
            if kind == "mainstem":
                costs["memory"] = memory_mb(pid)
    return costs


CURVES = (
    Curve(
        name="busy streams",
        over="streams between one pair of sockets",
        cost="processor time",
        points=(1, 3, 10, 30, 100, 300, 1_000),
        quick=(1, 100),
        measure=busy_streams,
        why="With few streams, few messages share a duty cycle. Beyond 100 the cost bends upward: the state of a "
        "thousand streams no longer fits the caches. Memory is the log buffers of both ends, in terms of 64 KiB.",
    ),
    Curve(
        name="idle streams",
        over="streams that are connected and silent",
        cost="the driver's processor time",
        points=(1, 10, 100, 1_000),
        quick=(1, 100),
        measure=idle_streams,
        why="Each stream sends ten heartbeats and five status messages a second. The rest of the time goes into "
        "looking for work. The reference driver loses some of 1,000 streams again and again, since its status "
        "messages come in bursts.",
    ),
    Curve(
        name="subscribers",
        over="subscriptions to one stream over IPC",
        cost="processor time",
        points=(1, 3, 10, 30, 100),
        quick=(1, 10),
        measure=subscribers,
        why="A message is written once and read by each subscription, which share the driver's duty cycle.",
    ),
    Curve(
        name="destinations",
        over="destinations of one publication",
        cost="processor time",
        points=(1, 3, 10, 30, 100),
        quick=(1, 10),
        measure=destinations,
        why="Each destination gets its own datagrams and, in this benchmark, has its receiver in the same process. At "
        "100, the cost bends upward: the log buffers of 100 receivers no longer fit the caches.",
    ),
    Curve(
        name="message length",
        over="bytes",
        cost="processor time over IPC",
        points=(32, 256, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24),
        quick=(32, 1 << 16),
        measure=message_length,
        why="A short message costs a call, a long one two copies.",
    ),
)
