"""Streams between Aeron for Java and Mainstem in both directions: clients on each other's drivers, and drivers on one network."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests.interop.conftest import DriverProcess
from tests.interop.modes import named
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import wait_for

import mainstem

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 400  # over 200 kB, which is several terms
LARGEST = 8_192  # the longest message that a 64 KiB term allows
STREAM = 1001
JAVA, MAINSTEM = "java", "mainstem"


@dataclass(frozen=True)
class Mode:
    """How the two ends name a stream; ``{port}`` and the next two ports are free."""

    publish: str
    receive: str
    publisher_destinations: tuple[str, ...] = ()
    receiver_destinations: tuple[str, ...] = ()
    one_driver: bool = False


ENDPOINT = "aeron:udp?endpoint=127.0.0.1:{port}"
GROUP = "aeron:udp?endpoint=224.20.30.39:{port}|interface=localhost"
DYNAMIC = "control=127.0.0.1:{port1}|control-mode=dynamic"
MODES = {
    "ipc": Mode("aeron:ipc?term-length=64k", "aeron:ipc", one_driver=True),
    "spy": Mode(f"{ENDPOINT}|term-length=64k|ssc=true", f"aeron-spy:{ENDPOINT}", one_driver=True),
    "unicast": Mode(f"{ENDPOINT}|term-length=64k", ENDPOINT),
    "jumbo": Mode(f"{ENDPOINT}|term-length=64k|mtu=8k|so-sndbuf=1m|so-rcvbuf=1m", f"{ENDPOINT}|so-rcvbuf=1m"),
    "multicast": Mode(f"{GROUP}|term-length=64k", GROUP),
    "mdc-dynamic": Mode(f"aeron:udp?{DYNAMIC}|term-length=64k", f"{ENDPOINT}|{DYNAMIC}"),
    "mdc-manual": Mode(
        "aeron:udp?control=127.0.0.1:{port1}|control-mode=manual|term-length=64k",
        ENDPOINT,
        publisher_destinations=(ENDPOINT, "aeron:udp?endpoint=127.0.0.1:{port2}"),
    ),
    "mds": Mode(f"{ENDPOINT}|term-length=64k", "aeron:udp?control-mode=manual", receiver_destinations=(ENDPOINT,)),
    # Each message arrives twice, once at each destination.
    "mds-merged": Mode(
        "aeron:udp?control=127.0.0.1:{port1}|control-mode=manual|term-length=64k",
        "aeron:udp?control-mode=manual",
        publisher_destinations=(ENDPOINT, "aeron:udp?endpoint=127.0.0.1:{port2}"),
        receiver_destinations=(ENDPOINT, "aeron:udp?endpoint=127.0.0.1:{port2}"),
    ),
}
# Both clients on one driver, and each pair of drivers that includes Mainstem's; in each case, both implementations take part.
ONE_DRIVER = [
    (publisher, driver, driver, receiver)
    for driver in (JAVA, MAINSTEM)
    for publisher in (JAVA, MAINSTEM)
    for receiver in (JAVA, MAINSTEM)
    if {publisher, driver, receiver} == {JAVA, MAINSTEM}
]
TWO_DRIVERS = [
    (publisher, *drivers, receiver)
    for drivers in ((JAVA, MAINSTEM), (MAINSTEM, JAVA), (MAINSTEM, MAINSTEM))
    for publisher in (JAVA, MAINSTEM)
    for receiver in (JAVA, MAINSTEM)
    if {publisher, *drivers, receiver} == {JAVA, MAINSTEM}
]
CASES = [
    pytest.param(mode, ends, kind, id=f"{name}-{'-'.join(ends)}-{kind}")
    for name, mode in MODES.items()
    for number, ends in enumerate(ONE_DRIVER if mode.one_driver else TWO_DRIVERS)
    for kind in (("shared", "exclusive") if mode.one_driver else (("shared", "exclusive")[number % 2],))
]


def message(number: int) -> bytes:
    length = number * 997 % (LARGEST + 1) if number % 10 == 0 else number * 37 % 300
    return bytes((number + i) % 256 for i in range(length))


MESSAGES = [message(number) for number in range(COUNT)]


class Checksum:
    """The checksum of messages in order, and their number."""

    def __init__(self) -> None:
        self.count = self.value = 0

    def add(self, data: Any) -> None:
        self.value = zlib.crc32(len(data).to_bytes(4, "little") + bytes(data), self.value)
        self.count += 1


def claimed(publication: Any, length: int, claim: mainstem.BufferClaim) -> None:
    """Wait until the publication has space for a claim."""
    wait_for(lambda: publication.try_claim(length, claim) > 0)


class End(Protocol):
    """A client that publishes or receives one stream, and reports the number of messages and their checksum."""

    def publish(self, directory: Path, channel: str, kind: str, destinations: list[str]) -> str: ...

    def receive(self, directory: Path, channel: str, destinations: list[str]) -> str: ...


class MainstemEnd:
    """Mainstem's client, in this process."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._lock = stack, threading.Lock()
        self._clients: dict[Path, mainstem.Aeron] = {}

    def _client(self, directory: Path) -> mainstem.Aeron:
        with self._lock:
            if directory not in self._clients:
                self._clients[directory] = self._stack.enter_context(mainstem.Aeron.connect(str(directory)))
            return self._clients[directory]

    def publish(self, directory: Path, channel: str, kind: str, destinations: list[str]) -> str:
        client, sent, claim = self._client(directory), Checksum(), mainstem.BufferClaim()
        add = client.add_exclusive_publication if kind == "exclusive" else client.add_publication
        with add(channel, STREAM) as publication:
            for destination in destinations:
                publication.add_destination(destination)
            wait_for(lambda: publication.is_connected)
            for number, data in enumerate(MESSAGES):
                if number % 11 == 0:
                    claimed(publication, 100, claim)
                    claim.abort()
                if number % 7 == 0 and len(data) <= publication.max_payload_length:
                    claimed(publication, len(data), claim)
                    with claim:
                        claim.view[:] = data
                else:
                    publication.send(data)
                sent.add(data)
        return f"{sent.count} {sent.value}"

    def receive(self, directory: Path, channel: str, destinations: list[str]) -> str:
        received = Checksum()
        with self._client(directory).add_subscription(channel, STREAM) as subscription:
            for destination in destinations:
                subscription.add_destination(destination)
            wait_for(lambda: subscription.poll_messages(received.add, 10) == 0 and received.count >= COUNT)
            wait_for(
                lambda: (
                    subscription.poll_messages(received.add, 10) == 0
                    and all(image.is_end_of_stream for image in subscription.images)
                )
            )
        return f"{received.count} {received.value} ended"


class JavaEnd:
    """Java's client, in a process that runs one command after another."""

    def __init__(self, stack: ExitStack) -> None:
        self._process = stack.enter_context(java.start("StreamEnd", stderr=None))
        assert self._process.stdin is not None
        stack.callback(self._process.stdin.close)

    def publish(self, directory: Path, channel: str, kind: str, destinations: list[str]) -> str:
        return self._do("publish", directory, channel, kind, destinations)

    def receive(self, directory: Path, channel: str, destinations: list[str]) -> str:
        return self._do("receive", directory, channel, "shared", destinations)

    def _do(self, what: str, directory: Path, channel: str, kind: str, destinations: list[str]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [what, directory, channel, STREAM, COUNT, kind, *destinations]
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


# A driver's agents share a thread, so that three drivers fit on two cores.
SETTINGS = {"AERON_THREADING_MODE": "SHARED"}


def driver_command(kind: str, directory: Path) -> list[str]:
    if kind == MAINSTEM:
        return [sys.executable, "-m", "mainstem", "driver"]
    properties: dict[str, object] = {
        "aeron.dir": directory,
        "aeron.threading.mode": "SHARED",
        "aeron.term.buffer.sparse.file": "true",
        "aeron.socket.so_rcvbuf": 131_072,
    }
    return java.command("io.aeron.driver.MediaDriver", properties=properties)


class Bench:
    """The drivers and clients for all cases, with one process per role."""

    def __init__(self, stack: ExitStack) -> None:
        directory = Path(tempfile.mkdtemp(prefix="mainstem-java-streams-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        self._drivers: dict[tuple[str, str], Path] = {}
        for side, kind in (("one", JAVA), ("one", MAINSTEM), ("other", MAINSTEM)):
            driver = DriverProcess(
                driver_command(kind, directory / f"{side}-{kind}"), directory / f"{side}-{kind}", SETTINGS
            )
            stack.callback(driver.stop)
            self._drivers[side, kind] = driver.directory
        self._threads = stack.enter_context(ThreadPoolExecutor(2))
        self._publishers: dict[str, End] = {MAINSTEM: MainstemEnd(stack), JAVA: JavaEnd(stack)}
        self._receivers: dict[str, End] = {MAINSTEM: MainstemEnd(stack), JAVA: JavaEnd(stack)}

    def run(self, mode: Mode, ends: tuple[str, str, str, str], kind: str) -> tuple[str, str]:
        """Return what the publisher and the receiver report about a stream."""
        port = free_port()
        publisher, sending, receiving, receiver = ends
        to = self._drivers["one", sending]
        other = receiving == MAINSTEM and not mode.one_driver
        source = self._drivers["other" if other else "one", receiving]
        received = self._threads.submit(
            self._receivers[receiver].receive,
            source,
            named(mode.receive, port),
            [named(each, port) for each in mode.receiver_destinations],
        )
        sent = self._threads.submit(
            self._publishers[publisher].publish,
            to,
            named(mode.publish, port),
            kind,
            [named(each, port) for each in mode.publisher_destinations],
        )
        return sent.result(), received.result()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    java.require_java()
    with ExitStack() as stack:
        yield Bench(stack)


@pytest.mark.parametrize(("mode", "ends", "kind"), CASES)
def test_everything_sent_is_received_to_the_end_of_the_stream(
    bench: Bench, mode: Mode, ends: tuple[str, str, str, str], kind: str
) -> None:
    expected = Checksum()
    for data in MESSAGES:
        expected.add(data)
    whole = f"{COUNT} {expected.value}"
    assert bench.run(mode, ends, kind) == (whole, f"{whole} ended")
