"""What the commands that take part in a stream share: options, waiting, and ending on a signal."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.client import Aeron
from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_S = 0.001  # between two checks of whether the other side is there
PING_CHANNEL = "aeron:udp?endpoint=localhost:20123"
PONG_CHANNEL = "aeron:udp?endpoint=localhost:20124"
PING_STREAM = 1002
PONG_STREAM = 1003

ChannelArgument = Annotated[
    str, typer.Argument(help="The channel, as in aeron:udp?endpoint=localhost:20121 or aeron:ipc.")
]
StreamArgument = Annotated[int, typer.Argument(help="The stream id.")]
PatienceOption = Annotated[
    float, typer.Option("--wait", "-w", help="Seconds to wait for the other side; 0: without limit.")
]
IdleOption = Annotated[bool, typer.Option("--spin", help="Use a whole processor instead of yielding it between polls.")]


def connect(directory: str, name: str) -> Aeron:
    """Connects a client that the other tools show under that name."""
    return Aeron.connect(directory or None, client_name=name)


def wait_until(condition: Callable[[], bool], what: str, *, patience: float, stop: Stop | None = None) -> None:
    """Polls a condition until it is true. Raises TimedOut after ``patience`` seconds (0 waits for ever)."""
    begin_ns = SYSTEM_CLOCK.monotonic_ns()
    while not condition():
        if stop is not None and stop.asked:
            return
        if patience > 0 and SYSTEM_CLOCK.monotonic_ns() - begin_ns > patience * 1e9:
            raise TimedOut(f"{what} within {patience:g} s", timeout=patience)
        time.sleep(POLL_S)


class Stop:
    """Whether the program was asked to end, by a signal."""

    asked = False


@contextmanager
def stopping() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM end the loop that checks ``asked``, so that what was done is still reported."""
    stop = Stop()

    def ask(*_: object) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = [(number, signal.signal(number, ask)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def say(text: str) -> None:
    """Prints to standard error: for people, not for the pipe."""
    print(text, file=sys.stderr, flush=True)


def amount(messages: float, octets: float) -> str:
    """Returns messages and bytes a second."""
    return f"{messages:>12,.0f} messages/s  {octets / 1e6:>10,.3f} MB/s"
