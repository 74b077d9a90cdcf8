"""``mainstem why`` in real situations, per transport: slow, stopped, dead, missing, or limited participants."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.interop.conftest import DriverProcess
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import StallTimeout, wait_for

import mainstem
from mainstem.aeron.tools.diagnosis import Diagnosis, diagnose
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.aeron.tools.rules import Cause
from mainstem.cli._drivers import take_snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.system
REFERENCE = os.environ.get("MAINSTEM_AERONMD", "")
STREAM = 1001
SETTINGS = {
    "AERON_TERM_BUFFER_LENGTH": "128k",
    "AERON_IPC_TERM_BUFFER_LENGTH": "128k",
    "AERON_TIMER_INTERVAL": "100ms",
    "AERON_PUBLICATION_CONNECTION_TIMEOUT": "1s",
    "AERON_IMAGE_LIVENESS_TIMEOUT": "2s",
    "AERON_CLIENT_LIVENESS_TIMEOUT": "60s",
    "AERON_PUBLICATION_UNBLOCK_TIMEOUT": "90s",
    "AERON_UNTETHERED_WINDOW_LIMIT_TIMEOUT": "300ms",
    "AERON_UNTETHERED_LINGER_TIMEOUT": "300ms",
    "AERON_THREADING_MODE": "SHARED",
}
# A separate client process: it subscribes, says so, and then either reads or does not.
CHILD = """
import sys, time
import mainstem
directory, channel, stream, mode = sys.argv[1:]
with mainstem.Aeron.connect(directory) as aeron, aeron.add_subscription(channel, int(stream)) as subscription:
    while not subscription.is_connected:
        time.sleep(0.01)
    print("ready", flush=True)
    while True:
        if mode == "read":
            subscription.poll(lambda fragment: None, 100)
        time.sleep(0.001)
"""


RECORDING_POSITION = 100


def java_name(name: str) -> str:
    return name.lower().replace("_", ".")


class World:
    """The drivers, clients, and processes of one situation; all of them end with it."""

    def __init__(self, kind: str, stack: ExitStack) -> None:
        self.kind = kind
        self.stack = stack
        self.port = free_port(4)
        self.children: list[subprocess.Popen[str]] = []
        self.drivers: list[DriverProcess] = []
        self.directory = self.driver()
        self.aeron = self.client(self.directory)

    def driver(self, kind: str = "", *, directory: str = "", **settings: str) -> str:
        kind = kind or self.kind
        if not directory:
            directory = tempfile.mkdtemp(prefix="mainstem-why-", dir="/dev/shm")
            self.stack.callback(lambda: subprocess.run(["rm", "-rf", directory], check=True))
        settings = SETTINGS | settings
        command = [REFERENCE] if kind == "reference" else [sys.executable, "-m", "mainstem", "driver"]
        if kind == "java":
            properties: dict[str, object] = {java_name(name): value for name, value in settings.items()}
            command = java.command(
                "io.aeron.driver.MediaDriver", properties=properties | {"aeron.dir": f"{directory}/aeron"}
            )
        process = DriverProcess(command, Path(directory) / "aeron", settings)
        self.drivers.append(process)
        self.stack.callback(process.kill)
        return str(process.directory)

    def client(self, directory: str) -> mainstem.Aeron:
        return self.stack.enter_context(mainstem.Aeron.connect(directory))

    def child(self, channel: str, mode: str = "hold", directory: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CHILD, directory or self.directory, channel, str(STREAM), mode]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.children.append(process)
        self.stack.callback(process.communicate)
        self.stack.callback(process.kill)
        return process

    def ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def subscribe(self, channel: str, aeron: mainstem.Aeron | None = None) -> mainstem.Subscription:
        return self.stack.enter_context((aeron or self.aeron).add_subscription(channel, STREAM))

    def publish(self, channel: str) -> mainstem.Publication:
        return self.stack.enter_context(self.aeron.add_publication(channel, STREAM))

    def udp(self, more: str = "", offset: int = 0) -> str:
        return f"aeron:udp?endpoint=127.0.0.1:{self.port + offset}{more}"

    def dynamic(self, more: str = "") -> str:
        return f"aeron:udp?control=127.0.0.1:{self.port}|control-mode=dynamic{more}"

    def group(self, more: str = "") -> str:
        return f"aeron:udp?endpoint=224.20.30.39:{self.port}|interface=127.0.0.1{more}"

    def connected(self, publication: mainstem.Publication) -> mainstem.Publication:
        wait_for(lambda: publication.is_connected)
        return publication

    def fill(self, publication: mainstem.Publication, *readers: mainstem.Subscription, seconds: float = 0.5) -> None:
        """Offer until the log has accepted nothing for `seconds`, while ``readers`` poll."""
        self.connected(publication)
        refused_since = time.monotonic()
        stall = StallTimeout("the stream is full")
        while time.monotonic() - refused_since < seconds:
            if publication.offer(bytes(1000)) > 0:
                refused_since = time.monotonic()
                stall.check(publication.position)
            for reader in readers:
                reader.poll(lambda _: None, 100)
        assert publication.is_connected

    def why(self, directory: str = "", kind: str = "publication") -> Diagnosis:
        with DirectoryReader(directory or self.directory) as reader:
            snapshots = take_snapshots(reader, 5, 0.25)
            found = [each for each in diagnose(snapshots, reader.losses()) if each.kind == kind]
        assert len(found) == 1, found
        return found[0]


class Situation(NamedTuple):
    """A situation and its verdict: ``make`` returns the directory and kind to diagnose, unless they are the defaults."""

    name: str
    make: Callable[[World], tuple[str, str] | None]
    cause: Cause
    rule: str
    says: str = ""


SITUATIONS: list[Situation] = []


def situation(
    name: str, cause: Cause, rule: str, says: str = ""
) -> Callable[[Callable[[World], tuple[str, str] | None]], Callable[[World], tuple[str, str] | None]]:
    def add(make: Callable[[World], tuple[str, str] | None]) -> Callable[[World], tuple[str, str] | None]:
        SITUATIONS.append(Situation(name, make, cause, rule, says))
        return make

    return add


# IPC.


@situation("ipc: the subscriber does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe("aeron:ipc")
    world.fill(world.publish("aeron:ipc"))


@situation("ipc: one of two does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe("aeron:ipc")
    reader = world.subscribe("aeron:ipc")
    world.fill(world.publish("aeron:ipc"), reader)


@situation("ipc: a late subscriber does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    reader = world.subscribe("aeron:ipc")
    publication = world.connected(world.publish("aeron:ipc"))
    for _ in range(70):
        publication.send(bytes(1000), timeout=5)
        wait_for(lambda: reader.poll(lambda _: None, 10))
    world.subscribe("aeron:ipc")
    time.sleep(0.3)
    world.fill(publication, reader)


@situation("ipc: the subscriber polled, and stopped", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    reader = world.subscribe("aeron:ipc")
    publication = world.connected(world.publish("aeron:ipc"))
    for _ in range(37):
        publication.send(bytes(1000), timeout=5)
        wait_for(lambda: reader.poll(lambda _: None, 10))
    world.fill(publication)


@situation("ipc: the window is small", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe("aeron:ipc")
    world.fill(world.publish("aeron:ipc?pub-wnd=8k"))


@situation("ipc: the subscriber's process is stopped", Cause.SLOW_SUBSCRIBER, "slow-subscriber", "no heartbeat for")
def _(world: World) -> None:
    publication = world.publish("aeron:ipc")
    child = world.child("aeron:ipc", "read")
    world.ready(child)
    child.send_signal(signal.SIGSTOP)
    world.fill(publication, seconds=2.5)


@situation("ipc: the subscriber's process is dead", Cause.SLOW_SUBSCRIBER, "slow-subscriber", "no heartbeat for")
def _(world: World) -> None:
    publication = world.publish("aeron:ipc")
    child = world.child("aeron:ipc", "read")
    world.ready(child)
    child.kill()
    world.fill(publication, seconds=2.5)


@situation("ipc: nobody subscribes", Cause.NO_RECEIVER, "no-subscriber")
def _(world: World) -> None:
    world.publish("aeron:ipc")


@situation("ipc: the only subscription was closed", Cause.NO_RECEIVER, "no-subscriber")
def _(world: World) -> None:
    subscription = world.subscribe("aeron:ipc")
    publication = world.publish("aeron:ipc")
    world.fill(publication)
    subscription.close()
    wait_for(lambda: not publication.is_connected)


@situation("ipc: a claim is never committed", Cause.PUBLISHER, "unfinished-claim")
def _(world: World) -> None:
    reader = world.subscribe("aeron:ipc")
    publication = world.connected(world.publish("aeron:ipc"))
    claim = mainstem.BufferClaim()
    wait_for(lambda: publication.try_claim(100, claim) > 0)
    publication.send(bytes(1000), timeout=5)
    assert reader.poll(lambda _: None, 10) == 0
    world.stack.callback(claim.abort)


@situation("ipc: an untethered subscriber fell behind", Cause.NONE, "idle", "no longer counts")
def _(world: World) -> None:
    reader = world.subscribe("aeron:ipc")
    world.subscribe("aeron:ipc?tether=false")
    publication = world.publish("aeron:ipc")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        publication.offer(bytes(1000))
        reader.poll(lambda _: None, 100)
        time.sleep(0.001)
    wait_for(lambda: not reader.poll(lambda _: None, 100))


@situation("ipc: everything was read", Cause.NONE, "idle")
def _(world: World) -> None:
    reader = world.subscribe("aeron:ipc")
    world.connected(world.publish("aeron:ipc")).send(bytes(1000), timeout=5)
    wait_for(lambda: reader.poll(lambda _: None, 10))


@situation("ipc: the recorder does not keep up", Cause.DISK, "slow-recorder")
def _(world: World) -> None:
    # Aeron Archive's recorder owns a counter of this type for each recording, whose label contains the stream.
    world.subscribe("aeron:ipc")
    publication = world.publish("aeron:ipc")
    key = struct.pack("<qii9sq", 0, publication.session_id, 9, b"aeron:ipc", 1)
    label = f"rec-pos: 0 {publication.session_id} {STREAM} aeron:ipc - archiveId=1"
    world.aeron.add_counter(RECORDING_POSITION, label, key=key)
    world.fill(publication)


@situation("ipc: everything flows through a small window", Cause.NONE, "idle")
def _(world: World) -> None:
    reader = world.subscribe("aeron:ipc")
    publication = world.connected(world.publish("aeron:ipc?pub-wnd=8k|term-length=1m"))
    stall = StallTimeout("the window moves on")
    while publication.position < 1 << 20:
        publication.offer(bytes(1000))
        reader.poll(lambda _: None, 10)
        stall.check(publication.position)
    wait_for(lambda: not reader.poll(lambda _: None, 100))


SMALL_FILES = {
    "AERON_COUNTERS_BUFFER_LENGTH": "1m",
    "AERON_LOW_FILE_STORE_WARNING_THRESHOLD": "0",
}


@situation("ipc: the file system is full", Cause.DISK, "disk-full")
def _(world: World) -> tuple[str, str]:
    mount = tempfile.mkdtemp(prefix="mainstem-why-mount-")
    world.stack.callback(os.rmdir, mount)
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", mount]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    world.stack.callback(lambda: subprocess.run(["umount", "-l", mount], check=True))
    directory = world.driver(directory=mount, **SMALL_FILES)
    aeron = world.client(directory)
    world.stack.enter_context(aeron.add_subscription("aeron:ipc", STREAM))
    publication = aeron.add_publication("aeron:ipc?term-length=1m|sparse=true", STREAM)
    world.connected(publication)
    with open(f"{mount}/filler", "wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    return directory, "publication"


# Unicast.


@situation("udp: the subscriber does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe(world.udp())
    world.fill(world.publish(world.udp()))


@situation("udp: one of two does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe(world.udp())
    reader = world.subscribe(world.udp())
    world.fill(world.publish(world.udp()), reader)


@situation("udp: the window is small", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe(world.udp("|rcv-wnd=8k"))
    world.fill(world.publish(world.udp()))


@situation("udp: the subscriber's process is stopped", Cause.SLOW_SUBSCRIBER, "slow-subscriber", "no heartbeat for")
def _(world: World) -> None:
    publication = world.publish(world.udp())
    child = world.child(world.udp(), "read")
    world.ready(child)
    child.send_signal(signal.SIGSTOP)
    world.fill(publication, seconds=2.5)


@situation("udp: the subscriber's process is dead", Cause.SLOW_SUBSCRIBER, "slow-subscriber", "no heartbeat for")
def _(world: World) -> None:
    publication = world.publish(world.udp())
    child = world.child(world.udp(), "read")
    world.ready(child)
    child.kill()
    world.fill(publication, seconds=2.5)


@situation("udp: nobody subscribes", Cause.NO_RECEIVER, "no-receiver")
def _(world: World) -> None:
    world.publish(world.udp())


@situation("udp: the only subscription was closed", Cause.NO_RECEIVER, "no-receiver")
def _(world: World) -> None:
    subscription = world.subscribe(world.udp())
    publication = world.publish(world.udp())
    world.fill(publication)
    subscription.close()
    wait_for(lambda: not publication.is_connected)


@situation("udp: a claim is never committed", Cause.PUBLISHER, "unfinished-claim")
def _(world: World) -> None:
    reader = world.subscribe(world.udp())
    publication = world.connected(world.publish(world.udp()))
    claim = mainstem.BufferClaim()
    wait_for(lambda: publication.try_claim(100, claim) > 0)
    publication.send(bytes(1000), timeout=5)
    assert reader.poll(lambda _: None, 10) == 0
    world.stack.callback(claim.abort)


@situation("udp: everything was read", Cause.NONE, "idle")
def _(world: World) -> None:
    reader = world.subscribe(world.udp())
    world.connected(world.publish(world.udp())).send(bytes(1000), timeout=5)
    wait_for(lambda: reader.poll(lambda _: None, 10))


LOSSY = {
    "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
    "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": "rate=0.3|seed=7|recv-msg-mask=0x2",
}


@situation("udp: a datagram is lost and not repaired", Cause.LOSS, "image-loss")
def _(world: World) -> tuple[str, str]:
    # Java's driver cannot be configured to lose datagrams.
    far = world.driver("mainstem" if world.kind == "java" else world.kind, **LOSSY)
    reader = world.subscribe(world.udp("|nak-delay=60s"), world.client(far))
    publication = world.connected(world.publish(world.udp()))
    for _ in range(40):
        publication.offer(bytes(1000))
    wait_for(lambda: not reader.poll(lambda _: None, 100) or None)
    return far, "image"


@situation("udp: the subscriber elsewhere does not poll", Cause.FLOW_CONTROL_WINDOW, "remote-window")
def _(world: World) -> None:
    world.subscribe(world.udp(), world.client(world.driver()))
    world.fill(world.publish(world.udp()))


@situation("udp: the subscriber does not poll, seen at the receiver", Cause.SLOW_SUBSCRIBER, "image-slow-subscriber")
def _(world: World) -> tuple[str, str]:
    far = world.driver()
    world.subscribe(world.udp(), world.client(far))
    world.fill(world.publish(world.udp()))
    return far, "image"


@situation("udp: the receiving driver is dead", Cause.NO_RECEIVER, "no-receiver")
def _(world: World) -> None:
    world.child(world.udp(), "read", world.driver())
    publication = world.connected(world.publish(world.udp()))
    world.drivers[1].kill()
    wait_for(lambda: not publication.is_connected)


@situation("udp: the sending driver is dead, seen at the receiver", Cause.PUBLISHER, "sender-gone")
def _(world: World) -> tuple[str, str]:
    near, far = world.driver(), world.driver(AERON_IMAGE_LIVENESS_TIMEOUT="10s")
    subscription = world.subscribe(world.udp(), world.client(far))
    aeron = world.client(near)
    publication = aeron.add_publication(world.udp(), STREAM)
    world.connected(publication).send(bytes(1000), timeout=5)
    wait_for(lambda: subscription.images)
    world.drivers[1].kill()
    return far, "image"


@situation("udp: the driver is dead", Cause.DRIVER, "driver-gone")
def _(world: World) -> tuple[str, str]:
    near = world.driver()
    world.client(near).add_publication(world.udp(), STREAM)
    world.drivers[1].kill()
    time.sleep(10.2)  # the time after which clients give up on a driver
    return near, "publication"


@situation("udp: the subscription is closed while it fills", Cause.NO_RECEIVER, "no-receiver")
def _(world: World) -> None:
    child = world.child(world.udp())
    publication = world.publish(world.udp())
    world.ready(child)
    world.fill(publication)
    child.send_signal(signal.SIGINT)
    wait_for(lambda: not publication.is_connected)


# Spies.


@situation("spy: it does not poll", Cause.SPY, "spy")
def _(world: World) -> None:
    world.subscribe(f"aeron-spy:{world.udp()}")
    world.fill(world.publish(world.udp("|ssc=true")))


@situation("spy: it does not poll while the receiver reads", Cause.SPY, "spy")
def _(world: World) -> None:
    reader = world.subscribe(world.udp())
    world.subscribe(f"aeron-spy:{world.udp()}")
    world.fill(world.publish(world.udp()), reader)


@situation("spy: its process is stopped", Cause.SPY, "spy", "no heartbeat for")
def _(world: World) -> None:
    publication = world.publish(world.udp("|ssc=true"))
    child = world.child(f"aeron-spy:{world.udp()}", "read")
    world.ready(child)
    child.send_signal(signal.SIGSTOP)
    world.fill(publication, seconds=2.5)


@situation("spy: alone, without ssc", Cause.NO_RECEIVER, "no-receiver", "none counts without ssc=true")
def _(world: World) -> None:
    world.subscribe(f"aeron-spy:{world.udp()}")
    world.publish(world.udp())


# Multiple destinations.


@situation("mdc: the subscriber does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe(world.udp(f"|control=127.0.0.1:{world.port}|control-mode=dynamic", 1))
    world.fill(world.publish(world.dynamic()))


@situation("mdc: nobody subscribes", Cause.NO_RECEIVER, "no-receiver", "destinations known: 0")
def _(world: World) -> None:
    world.publish(world.dynamic())


@situation("mdc: the group is not complete", Cause.NO_RECEIVER, "group-incomplete")
def _(world: World) -> None:
    subscription = world.subscribe(world.udp(f"|control=127.0.0.1:{world.port}|control-mode=dynamic", 1))
    world.publish(world.dynamic("|fc=min,g:/2"))
    wait_for(lambda: subscription.images)


@situation("mdc: one of two receivers elsewhere does not poll", Cause.FLOW_CONTROL_WINDOW, "group-window")
def _(world: World) -> None:
    back = f"|control=127.0.0.1:{world.port}|control-mode=dynamic"
    readers = [world.subscribe(world.udp(back, each), world.client(world.driver())) for each in (1, 2)]
    publication = world.publish(world.dynamic("|fc=min"))
    wait_for(lambda: all(each.images for each in readers))
    world.fill(publication, readers[0])


@situation("mdc: a destination answers nothing", Cause.NO_RECEIVER, "no-receiver", "destinations known: 1")
def _(world: World) -> None:
    publication = world.publish("aeron:udp?control-mode=manual")
    publication.add_destination(world.udp())


# Multicast.


@situation("multicast: the subscriber does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    world.subscribe(world.group())
    world.fill(world.publish(world.group()))


@situation("multicast: nobody subscribes", Cause.NO_RECEIVER, "no-receiver")
def _(world: World) -> None:
    world.publish(world.group())


@situation("multicast: the slowest decides", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    reader = world.subscribe(world.group())
    world.subscribe(world.group())
    world.fill(world.publish(world.group("|fc=min")), reader)


@situation("mds: the subscriber does not poll", Cause.SLOW_SUBSCRIBER, "slow-subscriber")
def _(world: World) -> None:
    subscription = world.subscribe("aeron:udp?control-mode=manual")
    subscription.add_destination(world.udp())
    world.fill(world.publish(world.udp()))


OTHERS = [*(["reference"] if REFERENCE else []), *([] if java.why_not() else ["java"])]
KINDS = ["mainstem", *(pytest.param(each, marks=[pytest.mark.interop, pytest.mark.long]) for each in OTHERS)]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(request.param, stack)


# These wait until a timeout declares something gone.
SLOW = re.compile("is dead|is stopped|fell behind|elsewhere")


def cases() -> Iterator[Any]:
    """Yield the situations; `make test` runs the first of each transport and rule, unless it is slow."""
    seen = set()
    for each in SITUATIONS:
        key = (each.name.partition(":")[0], each.rule)
        is_long = key in seen or SLOW.search(each.name)
        yield pytest.param(each, marks=[pytest.mark.long] if is_long else [], id=each.name)
        if not is_long:
            seen.add(key)


@pytest.mark.parametrize("situation", list(cases()))
def test_each_situation_has_its_verdict(world: World, situation: Situation) -> None:
    directory, kind = situation.make(world) or (world.directory, "publication")
    stall = StallTimeout(situation.name)
    diagnosis = world.why(directory, kind)
    end = time.monotonic() + 15  # the driver may first have to reach a timeout
    while (diagnosis.cause, diagnosis.rule) != (situation.cause, situation.rule) and time.monotonic() < end:
        diagnosis = world.why(directory, kind)
        stall.check(end)
    assert (diagnosis.cause, diagnosis.rule) == (situation.cause, situation.rule), diagnosis
    assert situation.says in diagnosis.sentence


def test_there_are_many_situations() -> None:
    assert len(SITUATIONS) >= 30
