"""The client removes the resources of operations that nobody waits for any longer."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.aeron.client.hand_driver import DIRECTORY, HandDriver

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.command import commands
from mainstem.errors import ClosedError, DriverTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANNEL = "aeron:udp?control=localhost:20121|control-mode=manual"
DESTINATION = "aeron:udp?endpoint=localhost:20122"


class World:
    """A client whose driver responds when the test says so."""

    def __init__(self) -> None:
        self.driver = HandDriver()
        self.driver.tick_ns = 10_000_000
        context = ClientContext(
            settings=ClientSettings(dir=DIRECTORY),
            files=self.driver.files,
            clock=self.driver.clock,
            use_invoker=True,
            driver_invoker=self.driver.do_work,
        )
        self.aeron = Aeron.connect(context=context)
        self.publication = self.aeron.add_publication(CHANNEL, 1)
        self.subscription = self.aeron.add_subscription(CHANNEL, 1)
        self.before = set(self.aeron._conductor.resources)
        self.driver.commands.clear()

    def run(self, cycles: int = 3) -> None:
        for _ in range(cycles):
            self.driver.do_work()
            self.aeron.invoke()

    def respond(self) -> None:
        """Send the late responses to every command so far."""
        late, self.driver.commands[:] = list(self.driver.commands), []
        self.driver.silent = False
        for command in late:
            getattr(self.driver, f"on_{type(command).__name__}", self.driver.succeed)(command)
        self.run()

    def sent(self) -> list[str]:
        return [type(command).__name__ for command in self.driver.commands]

    def removals(self) -> list[Any]:
        """Check that the client has kept nothing, and return its commands after the late responses."""
        assert set(self.aeron._conductor.resources) == self.before
        assert not self.aeron._conductor.pending
        assert not self.aeron._conductor.abandoned
        return self.driver.commands


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.driver.silent = False
    world.aeron.close()


KINDS: dict[str, tuple[Callable[[World], Any], Callable[..., Any]]] = {
    "RemovePublication": (
        lambda world: world.aeron.async_add_publication(CHANNEL, 2),
        lambda world, **timeout: world.aeron.add_publication(CHANNEL, 2, **timeout),
    ),
    "RemovePublication exclusive": (
        lambda world: world.aeron.async_add_exclusive_publication(CHANNEL, 2),
        lambda world, **timeout: world.aeron.add_exclusive_publication(CHANNEL, 2, **timeout),
    ),
    "RemoveSubscription": (
        lambda world: world.aeron.async_add_subscription(CHANNEL, 2),
        lambda world, **timeout: world.aeron.add_subscription(CHANNEL, 2, **timeout),
    ),
    "RemoveCounter": (
        lambda world: world.aeron.async_add_counter(1001, "c"),
        lambda world, **timeout: world.aeron.add_counter(1001, "c", **timeout),
    ),
    "RemoveDestinationById": (
        lambda world: world.publication.async_add_destination(DESTINATION),
        lambda world, **timeout: world.publication.add_destination(DESTINATION, **timeout),
    ),
    "RemoveReceiveDestination": (
        lambda world: world.subscription.async_add_destination(DESTINATION),
        lambda world, **timeout: world.subscription.add_destination(DESTINATION, **timeout),
    ),
}


def timed_out(world: World, begin: Callable[[World], Any], wait: Callable[..., Any]) -> None:
    del begin
    with pytest.raises(DriverTimeout, match="did not answer"):
        wait(world, timeout=1e-5)


def past_the_driver_timeout(world: World, begin: Callable[[World], Any], wait: Callable[..., Any]) -> None:
    del begin
    world.driver.tick_ns = 1_000_000_000
    with pytest.raises(DriverTimeout, match="did not answer"):
        wait(world)


def interrupted(world: World, begin: Callable[[World], Any], wait: Callable[..., Any]) -> None:
    del begin
    do_work = world.driver.do_work

    def interrupt() -> int:
        raise KeyboardInterrupt

    world.aeron._conductor.invokers = (interrupt,)
    with pytest.raises(KeyboardInterrupt):
        wait(world)
    world.aeron._conductor.invokers = (do_work, world.aeron.invoke)


def cancelled(world: World, begin: Callable[[World], Any], wait: Callable[..., Any]) -> None:
    del wait
    operation = begin(world)
    operation.cancel()
    operation.cancel()
    with pytest.raises(ClosedError, match="was cancelled"):
        operation.poll()


def dropped(world: World, begin: Callable[[World], Any], wait: Callable[..., Any]) -> None:
    del wait
    begin(world)
    gc.collect()
    world.run(1)


WAYS = (timed_out, past_the_driver_timeout, interrupted, cancelled, dropped)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_results_that_arrive_after_a_timeout_are_removed(world: World, kind: str, way: Callable[..., None]):
    world.driver.silent = True
    way(world, *KINDS[kind])
    world.run()
    add, *early = world.driver.commands
    # The client removes a receive destination at once, so that its port is free for the next try.
    assert len(early) == (kind == "RemoveReceiveDestination")
    world.respond()
    (removal,) = early + world.removals()
    assert type(removal).__name__ == kind.split()[0]
    if isinstance(removal, commands.RemoveDestinationById):
        assert removal.resource_registration_id == world.publication.registration_id
        assert removal.destination_registration_id == add.correlation_id
    elif isinstance(removal, commands.RemoveReceiveDestination):
        assert (removal.registration_id, removal.channel) == (world.subscription.registration_id, DESTINATION)
    else:
        assert removal.registration_id == add.correlation_id


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "Destination" not in kind])
def test_a_result_that_is_dropped_untaken_is_closed(world: World, kind: str):
    operation = KINDS[kind][0](world)
    world.run()
    assert operation.is_done
    world.driver.commands.clear()
    del operation
    gc.collect()
    world.run()
    (removal,) = world.removals()
    assert type(removal).__name__ == kind.split()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_is_taken_stays(world: World, kind: str):
    operation = KINDS[kind][0](world)
    world.run()
    result = operation.poll()
    operation.cancel()
    del operation
    gc.collect()
    world.driver.commands.clear()
    world.run()
    assert not world.driver.commands
    if not isinstance(result, int):
        assert not result.closed
        result.close()


def test_a_destination_that_the_driver_has_added_stays_without_a_handle(world: World):
    operation = world.publication.async_add_destination(DESTINATION)
    world.run()
    del operation
    world.run()
    assert world.sent() == ["AddDestination"]


def test_cancelling_an_unclaimed_destination_removes_it(world: World):
    operation = world.publication.async_add_destination(DESTINATION)
    world.run()
    operation.cancel()
    world.run()
    assert world.sent() == ["AddDestination", "RemoveDestinationById"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [timed_out, cancelled, dropped])
def test_closing_the_client_in_between_leaves_the_removal_to_the_driver(kind: str, way: Callable[..., None]):
    world = World()
    world.driver.silent = True
    way(world, *KINDS[kind])
    world.aeron.close()
    world.driver.do_work()
    assert world.sent()[0].startswith("Add")
    assert [each for each in world.sent()[1:] if each != "RemoveReceiveDestination"] == ["ClientClose"]


def test_a_destination_whose_publication_was_closed_needs_no_removal(world: World):
    world.driver.silent = True
    world.publication.async_add_destination(DESTINATION).cancel()
    world.publication.close()
    world.before.discard(world.publication.registration_id)
    world.run()
    world.driver.commands.pop()
    world.respond()
    assert world.removals() == []


def test_a_refused_command_that_timed_out_is_forgotten(world: World):
    world.driver.silent = True
    world.aeron.async_add_subscription(CHANNEL, 2).cancel()
    world.run()
    world.driver.silent, world.driver.refusal = False, (11, "no")
    world.driver.on_command(commands.AddSubscription.TYPE, world.driver.commands.pop().encode())
    world.run()
    world.driver.commands.clear()
    assert world.removals() == []


def test_a_publication_whose_log_cannot_be_mapped_is_removed(world: World):
    operation = world.aeron.async_add_publication(CHANNEL, 2)
    world.driver.do_work()
    world.driver.files.delete(f"{DIRECTORY}/{operation.correlation_id}.logbuffer")
    world.run()
    with pytest.raises(OSError, match="logbuffer"):
        operation.poll()
    assert world.sent() == ["AddPublication", "RemovePublication"]
    assert world.driver.commands[1].registration_id == operation.correlation_id


def test_a_removal_waits_for_room_in_the_command_buffer(world: World):
    ring = world.aeron._conductor.cnc.to_driver
    operation = world.aeron.async_add_subscription(CHANNEL, 2)
    world.run()
    while ring.write(commands.ClientKeepalive.TYPE, bytes(16)):
        pass
    operation.cancel()
    assert "RemoveSubscription" not in world.sent()
    world.run()
    assert world.sent().count("RemoveSubscription") == 1
