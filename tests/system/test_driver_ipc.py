"""IPC through a real driver: every threading mode, clients that die, and drivers that die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.case_selection import long_after
from tests.support.live_driver import TIMEOUT_S, exchange, shared_memory, wait_for
from tests.support.ports import free_port

import mainstem
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.errors import ActiveDriverError, DriverTimeout

pytestmark = pytest.mark.system

IPC = "aeron:ipc?term-length=64k"


@pytest.mark.parametrize("mode", ["DEDICATED", "SHARED_NETWORK", "SHARED"])
def test_carries_messages_in_threads_of_this_process(mode: str) -> None:
    with MediaDriver.launch(threads=True, threading_mode=mode) as driver, Aeron.connect(driver.directory) as aeron:
        exchange(aeron, IPC, messages=2000)
    assert not shared_memory()


def test_carries_messages_when_the_caller_drives() -> None:
    with (
        MediaDriver.launch(threading_mode="INVOKER") as driver,
        Aeron.connect(driver.directory, driver_invoker=driver.do_work) as aeron,
    ):
        exchange(aeron, IPC, messages=500, invoke=driver.do_work)


def test_carries_messages_through_a_separate_process() -> None:
    with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        assert driver.pid != os.getpid()
        exchange(aeron, IPC, messages=2000)
    assert not driver.is_running
    assert not shared_memory()


@pytest.mark.parametrize("channel", [IPC, "aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k"])
def test_abandoned_subscriptions_do_not_stall_a_publisher(channel: str) -> None:
    channel = channel.format(port=free_port())
    with MediaDriver.launch(threads=True) as driver, Aeron.connect(driver.directory) as aeron:
        subscription = aeron.add_subscription(channel, 7)
        publication = aeron.add_publication(channel, 7)
        wait_for(lambda: publication.is_connected)
        for _ in range(5):
            with suppress(DriverTimeout):
                aeron.add_subscription(channel, 7, timeout=1e-5).close()
            aeron.async_add_subscription(channel, 7)
            aeron.async_add_subscription(channel, 7).cancel()
            asyncio.run(cancelled_add(driver.directory, channel))
        wait_for(lambda: positions(aeron) == 1)
        sent = bytes(1024)
        for _ in range(200):  # three terms: an unread subscription would stop the publication in the first
            publication.send(sent, timeout=TIMEOUT_S)
            wait_for(lambda: subscription.poll(lambda *_: None, 10))


async def cancelled_add(directory: str, channel: str) -> None:
    async with mainstem.aio.connect(directory) as aeron:
        task = asyncio.ensure_future(aeron.add_subscription(channel, 7))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        other = await aeron.add_subscription(channel, 7)
        await other.close()


def positions(aeron: Aeron) -> int:
    """Return how many subscriber positions the driver has."""
    return sum(aeron.counters.type_id(counter_id) == CounterType.SUBSCRIBER_POSITION for counter_id in aeron.counters)


def test_never_takes_over_an_active_driver(tmp_path: Path) -> None:
    with MediaDriver.launch(tmp_path / "driver", threads=True) as driver:
        for threads in (True, False):
            with pytest.raises(ActiveDriverError, match=str(os.getpid())):
                MediaDriver.launch(tmp_path / "driver", threads=threads)
        assert driver.is_running
        with Aeron.connect(driver.directory) as aeron:
            aeron.add_subscription(IPC, 7).close()


def test_takes_the_directory_of_a_driver_that_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with MediaDriver.launch(tmp_path / "driver", threads=True) as driver, Aeron.connect(driver.directory) as aeron:
            aeron.add_publication(IPC, 7).close()


CHILD = """
import os, sys, time
from mainstem.aeron.client.client import Aeron
aeron = Aeron.connect(sys.argv[1])
publication = aeron.add_publication(sys.argv[2], 1001)
print(aeron.client_id, flush=True)
time.sleep(600)
"""


@pytest.mark.long
def test_reaps_a_client_that_was_killed() -> None:
    liveness_ns = 2_000_000_000
    with (
        MediaDriver.launch(client_liveness_timeout_ns=liveness_ns, publication_linger_timeout_ns=1_000_000) as driver,
        Aeron.connect(driver.directory) as aeron,
    ):
        command = [sys.executable, "-c", CHILD, driver.directory, IPC]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE) as child,
            aeron.add_subscription(IPC, 1001) as subscription,
        ):
            assert child.stdout is not None
            client_id = int(child.stdout.readline())
            wait_for(lambda: subscription.is_connected)
            assert aeron.counters.find(11, client_id) >= 0
            child.kill()
            killed = time.monotonic()
            wait_for(lambda: aeron.counters.find(11, client_id) < 0)
            assert time.monotonic() - killed > 1.0
            wait_for(lambda: not subscription.is_connected)
        assert aeron.counters.value(24) == 1
        assert not aeron.closed


def test_a_client_reports_that_its_driver_was_shut_down() -> None:
    with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        aeron.add_publication(IPC, 1001)
        driver.close()
        wait_for(lambda: aeron.closed)
        assert isinstance(aeron.error, DriverTimeout)


def test_a_client_reports_that_its_driver_died() -> None:
    with MediaDriver.launch() as driver:
        aeron = Aeron.connect(driver.directory, driver_timeout_ns=1_500_000_000)
        os.kill(driver.pid, signal.SIGKILL)
        wait_for(lambda: aeron.closed)
        assert isinstance(aeron.error, DriverTimeout)
        aeron.close()
    assert not Path(driver.directory).exists()


PARENT = """
import sys, time
from mainstem.aeron.driver.media_driver import MediaDriver
driver = MediaDriver.launch()
print(driver.pid, driver.directory, flush=True)
while True:  # a signal that arrives just before a sleep begins is handled when it ends
    time.sleep(0.1)
"""


@pytest.mark.parametrize("number", long_after(2, [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
def test_a_driver_process_ends_with_its_parent(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().decode().split()
        assert Path(directory, "cnc.dat").exists()
        # Ctrl-C goes to the terminal's whole process group, including the driver's process.
        (os.killpg if number == signal.SIGINT else os.kill)(parent.pid, number)
        parent.wait(TIMEOUT_S)
        wait_for(lambda: not Path(f"/proc/{pid}").exists())
        assert not Path(directory).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_standalone_driver_ends_cleanly(tmp_path: Path, number: int) -> None:
    directory = tmp_path / "driver"
    command = [sys.executable, "-c", "from mainstem.cli import main; main()", "driver", "--dir", str(directory)]
    command += ["--threading-mode", "shared", "--set", "dir_delete_on_shutdown=true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"media driver in ")
        with Aeron.connect(directory) as aeron:
            exchange(aeron, IPC, messages=100)
        process.send_signal(number)
        _, complaints = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, complaints) == (0, b"")
    assert not directory.exists()
