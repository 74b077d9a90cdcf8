"""What the commands that take part in a stream share: options, waiting, and ending on a signal."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.client import Aeron
from mainstem.aeron.client.base import Attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS
from mainstem.cli._directory import INT32, hint_of_drivers
from mainstem.cli._logs import say
from mainstem.cli._numbers import finite
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, DriverTimeout, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SILENT_NS = NS_PER_SECOND  # what takes no longer is done in silence
POLL_S = 0.001  # between two checks of whether the other side is there
PING_CHANNEL = "aeron:udp?endpoint=localhost:20123"
PONG_CHANNEL = "aeron:udp?endpoint=localhost:20124"
PING_STREAM = 1002
PONG_STREAM = 1003

ChannelArgument = Annotated[
    str, typer.Argument(help="The channel, as in aeron:udp?endpoint=localhost:20121 or aeron:ipc.")
]
StreamArgument = Annotated[int | None, typer.Argument(help="The stream id; --stream does the same.", **INT32)]
StreamIdOption = Annotated[int | None, typer.Option("--stream", "-s", help="The stream id.", **INT32)]
PatienceOption = Annotated[
    float, typer.Option("--wait", "-w", callback=finite, help="Seconds to wait for the other side; 0: without limit.")
]
IdleOption = Annotated[bool, typer.Option("--spin", help="Use a whole processor instead of yielding it between polls.")]


def connect(directory: str, command: str) -> Aeron:
    """Connects a client that the other tools show as ``mainstem-COMMAND-PID``; reports a wait that takes longer than a second."""
    name = {} if "AERON_CLIENT_NAME" in os.environ else {"client_name": f"mainstem-{command}-{os.getpid()}"}
    context = ClientContext.build(directory or None, None, None, name)
    place = context.settings.dir
    attaching = Attaching(context)
    word = Word(
        f"waiting for a media driver in {place}, {context.settings.driver_timeout_ns / NS_PER_SECOND:g} s at most"
    )
    try:
        while (conductor := attaching.step()) is None:
            word.step()
            time.sleep(ATTACH_POLL_INTERVAL_NS / NS_PER_SECOND)
    except DriverTimeout as error:
        raise DriverTimeout(f"{error}; {hint_of_drivers(place)}", timeout=error.timeout) from None
    return Aeron(conductor)


def stream_id(argument: int | None, option: int | None) -> int:
    """Returns the stream id of an argument or of ``--stream``. Raises ConfigurationError unless exactly one is there."""
    if argument is not None and option is not None:
        raise ConfigurationError(f"the stream is {argument} and --stream {option}: one of them is enough")
    chosen = argument if argument is not None else option
    if chosen is None:
        raise ConfigurationError("which stream? add its id, as in --stream 1001")
    return chosen


class Word:
    """One line on standard error, once something has taken longer than a second."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._due_ns = SYSTEM_CLOCK.monotonic_ns() + SILENT_NS

    def step(self) -> None:
        """Prints the line when it is due, once."""
        if self._text and SYSTEM_CLOCK.monotonic_ns() >= self._due_ns:
            say(f"mainstem: {self._text}")
            self._text = ""


def wait_until(condition: Callable[[], bool], what: str, *, patience: float, stop: Stop | None = None) -> None:
    """Waits until a condition is true. Raises Timeout after ``patience`` seconds; 0 waits forever."""
    begin_ns = SYSTEM_CLOCK.monotonic_ns()
    limit = f"for {patience:g} s" if patience > 0 else "without limit"
    word = Word(f"{what} yet; waiting {limit} (--wait)")
    while not condition():
        word.step()
        if stop is not None and stop.asked:
            return
        if patience > 0 and SYSTEM_CLOCK.monotonic_ns() - begin_ns > patience * 1e9:
            raise Timeout(f"{what} within {patience:g} s", timeout=patience)
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


def amount(messages: float, octets: float) -> str:
    """Returns messages and bytes a second."""
    return f"{messages:>12,.0f} messages/s  {octets / 1e6:>10,.3f} MB/s"
