"""Channel commands of every kind, and a driver's response to each: accepted, or an error code.

A case is one line: steps separated by `` ;; ``, each a kind and a channel. The last step is the case; the earlier steps create what
it refers to and are accepted. ``{p}`` and ``{q}`` stand for two ports of the case's own, ``{id}`` for the first step's registration
id, ``{long}`` for a long text. ``tests/vectors/channel_outcomes.txt`` records the outcome of each case on the reference's C driver,
on its Java driver and on this one: ``ok``, or the error code.

This driver accepts what the C driver accepts, except for the cases in ACCEPTANCE. It refuses with the C driver's code, with one
exception: for an invalid channel it uses INVALID_CHANNEL where C uses GENERIC_ERROR. If the operating system refuses something, all
three use GENERIC_ERROR.

Kinds: ``pub``, ``xpub`` (exclusive), ``sub``, ``dst`` and ``undst`` (a publication's destinations), ``rcv`` and ``unrcv`` (a
subscription's).
"""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.ports import free_port
from tests.support.waiting import StallTimeout

from mainstem.aeron.command import commands, responses

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.cnc import CncFile

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "channel_outcomes.txt"
SEPARATOR = " ;; "
ACCEPTED = "ok"
STREAM = 1001


class Recorded(NamedTuple):
    """One line of the table."""

    c: str
    java: str
    here: str
    case: str


class Exceptional(NamedTuple):
    """Cases that this driver accepts and C refuses, or the other way around, on purpose."""

    pattern: str
    reason: str


ACCEPTANCE = (
    Exceptional(
        r".*endpoint=224\.20\.30\.39:\{p\}\|interface=\[::1\]",
        "the reference reads the IPv6 address of the interface as an IPv4 address, and takes any interface",
    ),
    Exceptional(
        r".*\|linger=5[mun]",
        "a unit without its s is refused as it is before another parameter; the reference reads the byte behind the text",
    ),
    Exceptional(
        r"pub .*\|(mtux|mtu-max)=x|sub aeron:ipc\?session-id-x=x|sub .*\|rcv-wnds=x",
        "the reference takes a key that only begins like a known one for that one; here it is another key",
    ),
)

# Cases that crash the reference driver (SIGSEGV), with the outcome here.
FATAL = {
    "pub aeron:udp?endpoint=127.0.0.1:{p}|tags=": ACCEPTED,  # no tags, like any other parameter without a value
    "sub aeron:ipc?tags=": ACCEPTED,
    "sub aeron:udp?endpoint=127.0.0.1:{p}|interface=127.0.0.1/8:40": "1",  # the port must come before the prefix
    # Status messages would be sent to port 0.
    "sub aeron:udp?control-mode=manual ;; rcv aeron:udp?endpoint=127.0.0.1:{p}|control=127.0.0.1:0": "1",
}


def recorded() -> list[Recorded]:
    """Return the rows of the table."""
    lines = VECTORS.read_text(encoding="utf-8").split("\n")
    return [Recorded(*line.split("\t", 3)) for line in lines if line and not line.startswith("#")]


def record(driver: str, outcomes: dict[str, str]) -> None:
    """Write a driver's outcomes, by case, into the table; keep the table's comments."""
    lines = VECTORS.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            old = Recorded(*line.split("\t", 3))
            lines[number] = "\t".join(old._replace(**{driver: outcomes[old.case]}))
    VECTORS.write_text("\n".join(lines), encoding="utf-8")


SETTINGS = {
    "AERON_TERM_BUFFER_LENGTH": "64k",
    "AERON_IPC_TERM_BUFFER_LENGTH": "64k",
    "AERON_PUBLICATION_LINGER_TIMEOUT": "0",
    "AERON_COUNTERS_FREE_TO_REUSE_TIMEOUT": "0",
    "AERON_TIMER_INTERVAL": "50ms",
    "AERON_CLIENT_LIVENESS_TIMEOUT": "600s",
    "AERON_PUBLICATION_UNBLOCK_TIMEOUT": "900s",
}  # the settings with which the table is recorded: small buffers and short timeouts


class RawClient:
    """A client without checks: it writes commands as they are and reads the response to each.

    ``work`` runs agents that have no thread of their own.
    """

    def __init__(self, cnc: CncFile, *, work: Callable[[], object] = lambda: time.sleep(0.0002)) -> None:
        self._cnc = cnc
        self._work = work
        self._receiver = cnc.receiver()
        self.client_id = cnc.to_driver.next_correlation_id()
        self._streams = itertools.count(STREAM)

    def outcome(self, case: str) -> str:
        """Run a case, free what it created, and return its outcome: ``ok``, or the error's code."""
        port = free_port(2)
        names = {"{p}": str(port), "{q}": str(port + 1), "{id}": "4611686018427387904", "{long}": "x" * 2100}
        stream_id = next(self._streams)
        registered: list[tuple[str, int]] = []
        outcome = ""
        steps = case.split(SEPARATOR)
        for number, step in enumerate(steps):
            kind, _, template = step.partition(" ")
            channel = re.sub(r"\{(p|q|id|long)\}", lambda match: names[match[0]], template)
            correlation_id = self._cnc.to_driver.next_correlation_id()
            outcome = self._ask(_command(kind, channel, self.client_id, correlation_id, int(names["{id}"]), stream_id))
            if outcome == ACCEPTED and kind in ("pub", "xpub", "sub"):
                registered.append((kind, correlation_id))
                if number == 0:
                    names["{id}"] = str(correlation_id)
            if outcome != ACCEPTED and number < len(steps) - 1:
                outcome = f"step {number}: {outcome}"
                break
        for kind, registration_id in registered:
            remove = commands.RemoveSubscription if kind == "sub" else commands.RemovePublication
            correlation_id = self._cnc.to_driver.next_correlation_id()
            self._ask(remove(client_id=self.client_id, correlation_id=correlation_id, registration_id=registration_id))
        return outcome

    def _ask(self, command: commands.Command) -> str:
        assert self._cnc.to_driver.write(command.TYPE, command.encode())
        stall = StallTimeout(f"a response to {command}")
        found: list[str] = []

        def take(type_id: int, payload: bytes) -> None:
            response = responses.decode_response(type_id, payload)
            if isinstance(response, responses.OnError):
                if response.offending_correlation_id == command.correlation_id:
                    found.append(str(response.error_code))
            elif getattr(response, "correlation_id", None) == command.correlation_id and not isinstance(
                response, responses.OnAvailableImage | responses.OnUnavailableImage
            ):
                found.append(ACCEPTED)

        while not found:
            if self._receiver.receive(take, 100) <= 0:
                self._work()
            stall.check()
        return found[0]


def _command(
    kind: str, channel: str, client_id: int, correlation_id: int, registration_id: int, stream_id: int
) -> commands.Command:
    owner = {"client_id": client_id, "correlation_id": correlation_id}
    if kind in ("pub", "xpub"):
        publication = commands.AddPublication if kind == "pub" else commands.AddExclusivePublication
        return publication(**owner, stream_id=stream_id, channel=channel)
    if kind == "sub":
        return commands.AddSubscription(**owner, stream_id=stream_id, channel=channel)
    destination = {
        "dst": commands.AddDestination,
        "undst": commands.RemoveDestination,
        "rcv": commands.AddReceiveDestination,
        "unrcv": commands.RemoveReceiveDestination,
    }[kind]
    return destination(**owner, registration_id=registration_id, channel=channel)
