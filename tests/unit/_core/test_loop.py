"""The thread loop without the GIL."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import socket
import sys
import threading
import time

import pytest
from tests.support.waiting import STALL_S, wait_for
from tests.unit._core import uncompiled

from mainstem._core.driver.loop import Cycle, Loop
from mainstem._core.layout import NEVER_NS
from mainstem._core.memory.buffer import AtomicBuffer

DEADLINE, ATTENTION, WOKEN, WATCHED, STOPPED = range(5)
SOON_NS = int(STALL_S * 1e9)
EPOLL_PWAIT2 = 441


def sleeps_until_arrivals() -> bool:
    """Return whether the kernel, or its emulation, has the call: it then rejects the descriptor -1 with EBADF."""
    libc = ctypes.CDLL(None, use_errno=True)
    return (
        sys.platform == "linux"
        and libc.syscall(EPOLL_PWAIT2, -1, None, 1, None, None, 0) == -1
        and ctypes.get_errno() == errno.EBADF
    )


def test_the_loop_returns_at_the_deadline_after_running_its_cycles() -> None:
    loop = Loop([Cycle()], max_park_ns=100_000)
    start = time.monotonic_ns()
    assert loop.run(start + 20_000_000) == DEADLINE
    assert time.monotonic_ns() - start >= 20_000_000
    assert loop.rounds > 1


def test_a_cycles_deadline_ends_the_compiled_loop() -> None:
    cycle = Cycle()
    loop = Loop([cycle])
    start = time.monotonic_ns()
    cycle.set_deadline(start + 5_000_000)
    assert loop.run(start + SOON_NS) == ATTENTION
    assert time.monotonic_ns() >= start + 5_000_000
    assert cycle.due(time.monotonic_ns())
    cycle.set_deadline(NEVER_NS)
    cycle.run_cycle(0)
    assert not cycle.due(time.monotonic_ns())


def test_another_thread_can_wake_and_stop_the_loop_without_the_gil() -> None:
    loop = Loop([Cycle()])
    reasons: list[int] = []
    thread = threading.Thread(target=lambda: reasons.extend(loop.run(time.monotonic_ns() + SOON_NS) for _ in range(2)))
    thread.start()
    loop.wake()
    wait_for(lambda: reasons)
    loop.stop()
    thread.join()
    assert reasons == [WOKEN, STOPPED]
    assert loop.is_stopped
    assert loop.run(NEVER_NS) == STOPPED


def test_a_change_in_watched_memory_ends_the_compiled_loop() -> None:
    memory = AtomicBuffer(bytearray(16))
    loop = Loop()
    loop.watch(memory, 8)
    assert loop.run_once(0) == DEADLINE
    memory.put_i64_release(8, 1)
    assert loop.run(time.monotonic_ns() + SOON_NS) == WATCHED
    assert loop.run_once(0) == DEADLINE


def test_drives_a_handful_of_cycles_and_watches_a_few_places() -> None:
    loop = Loop(Cycle() for _ in range(8))
    with pytest.raises(OverflowError, match="8"):
        loop.add(Cycle())
    memory = AtomicBuffer(bytearray(8))
    for _ in range(4):
        loop.watch(memory, 0)
    with pytest.raises(OverflowError, match="4"):
        loop.watch(memory, 0)
    with pytest.raises(IndexError):
        Loop().watch(memory, 8)


@pytest.mark.parametrize(
    "idle", [{"max_park_ns": 0}, {"max_park_ns": 0, "max_yields": 0}, {"max_spins": 0, "max_yields": 0}]
)
def test_spinning_yielding_and_sleeping_all_return(idle: dict[str, int]) -> None:
    assert Loop([Cycle()], **idle).run(time.monotonic_ns() + 2_000_000) == DEADLINE


@pytest.mark.parametrize(("round_ns", "spins"), [(50, 10), (2_000, 1)])
def test_spinning_ends_after_a_microsecond(round_ns: int, spins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = uncompiled.load("driver.loop")
    now_ns = 0
    waits: list[str] = []

    def steady_ns() -> int:
        nonlocal now_ns
        now_ns += round_ns
        return now_ns

    monkeypatch.setattr(module, "steady_ns", steady_ns)
    monkeypatch.setattr(module, "pause_core", lambda: waits.append("pause"))
    monkeypatch.setattr(module, "yield_core", lambda: waits.append("yield"))
    monkeypatch.setattr(module, "nap_or_arrival", lambda *_: waits.append("nap"))
    module.Loop([module.Cycle()]).run(100 * round_ns)
    assert waits[:spins] == ["pause"] * spins
    assert waits[spins : spins + 20] == ["yield"] * 20
    assert set(waits[spins + 20 :]) == {"nap"}


@pytest.mark.skipif(not sleeps_until_arrivals(), reason="the kernel has no epoll_pwait2")
def test_a_datagram_ends_a_sleep() -> None:
    hour = 3600 * 10**9
    loop = Loop([Cycle()], max_spins=0, max_yields=0, min_park_ns=hour, max_park_ns=hour)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        loop.wake_by(receiver.fileno())
        thread = threading.Thread(target=lambda: loop.run(NEVER_NS))
        thread.start()
        for _ in range(5):
            before = loop.rounds
            # Nothing reads the socket, so each datagram that arrives ends one sleep.
            sender.sendto(b"x", receiver.getsockname())
            wait_for(lambda before=before: loop.rounds > before)
        loop.stop()
        sender.sendto(b"x", receiver.getsockname())
        thread.join()


def test_a_loop_that_was_refused_closes_no_file() -> None:
    with pytest.raises(TypeError):
        Loop(max_spins="many")  # type: ignore[arg-type]
    gc.collect()
    os.fstat(0)


def test_runs_uncompiled_too() -> None:
    module = uncompiled.load("driver.loop")
    loop = module.Loop([module.Cycle()])
    assert loop.run(time.monotonic_ns() + 1_000_000) == DEADLINE
    loop.wake()
    assert loop.run_once(0) == WOKEN


def test_a_busy_application_in_the_process_does_not_slow_the_driver() -> None:
    loop = Loop([Cycle()], max_park_ns=0, max_yields=0)
    thread = threading.Thread(target=lambda: loop.run(time.monotonic_ns() + SOON_NS))
    thread.start()
    begin = time.thread_time()
    while loop.rounds < 5_000 and time.thread_time() - begin < 3:
        pass
    rounds = loop.rounds
    loop.stop()
    thread.join()
    # A loop that needed the interpreter would turn once per switch interval of 5 ms, about 600 times in all.
    assert rounds >= 5_000
