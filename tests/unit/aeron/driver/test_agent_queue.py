"""Queues between the driver's agents: waking, and commands in order."""

from __future__ import annotations

from collections import deque

import pytest

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.driver.agent_proxies import ReceiverProxy, SenderProxy
from mainstem.aeron.driver.agent_queue import COMMANDS_PER_CYCLE, CommandQueue
from mainstem.aeron.driver.conductor_proxy import DriverConductorProxy, NetworkFault
from mainstem.aeron.driver.receiver.receiver import Receiver
from mainstem.aeron.driver.sender.sender import Sender


def test_each_item_wakes_the_agent() -> None:
    wakes: list[int] = []
    queue = DriverConductorProxy()
    queue.append(NetworkFault(text="before there is a loop to wake"))
    queue.on_append = lambda: wakes.append(len(queue))
    queue.append(NetworkFault(text="after"))
    assert wakes == [2]


def test_a_burst_of_commands_is_run_over_several_cycles_in_its_order() -> None:
    order: list[int] = []
    queue = CommandQueue()
    for number in range(COMMANDS_PER_CYCLE + 1):
        queue.append(lambda number=number: order.append(number))  # type: ignore[misc]
    wakes: list[bool] = []
    queue.on_append = lambda: wakes.append(True)
    assert queue.run() == COMMANDS_PER_CYCLE
    assert wakes == [True], "what is left must not wait for another command"
    assert queue.run() == 1
    assert order == list(range(COMMANDS_PER_CYCLE + 1))


def test_a_command_that_raises_is_not_run_again() -> None:
    queue = CommandQueue()
    queue.append(lambda: [].pop())
    with pytest.raises(IndexError):
        queue.run()
    assert queue.run() == 0


def test_every_command_of_an_agent_is_a_method_of_its_proxy() -> None:
    for agent, proxy in ((Sender, SenderProxy), (Receiver, ReceiverProxy)):
        commands = {name.removeprefix("on_") for name in vars(agent) if name.startswith("on_")}
        assert commands == {name for name in vars(proxy) if not name.startswith("_")}


def test_a_proxy_changes_nothing_before_the_agent_s_next_cycle() -> None:
    counters = AtomicBuffer(bytearray(128 * 64))
    sender = Sender(counters=counters, to_conductor=deque())
    sender.commands.clear()
    proxy = SenderProxy(sender)
    calls: list[object] = []
    proxy.call(lambda agent, value: calls.append((agent, value)), 5)
    assert calls == []
    sender.decide(1)
    assert calls == [(sender, 5)]
