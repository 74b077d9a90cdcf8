"""Hosts of a world: crashes and restarts, pauses, local clocks, full disks."""

from __future__ import annotations

import pytest

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.errors import ClientTimeout, DriverTimeout, RegistrationError
from mainstem.sim.world import World


def test_a_crashed_host_restarts_once_its_last_driver_is_presumed_dead() -> None:
    with World(1) as world:
        host = world.add_host("one", driver_timeout_ns=2 * NS_PER_SECOND)
        publication = host.aeron.add_publication("aeron:ipc", 1001)
        host.crash()
        assert publication.closed
        assert not host.is_up
        assert world.network.sockets(host.address) == []
        assert host.files.exists("/one/cnc.dat")
        assert not host.start()
        world.run_for(3 * NS_PER_SECOND)
        assert host.start()
        assert host.starts == 2
        subscription = host.aeron.add_subscription("aeron:ipc", 1001)
        again = host.aeron.add_publication("aeron:ipc", 1001)
        world.run_until(lambda: again.is_connected and subscription.is_connected, what="a stream of the new driver")


def test_a_paused_client_times_out_and_a_new_one_may_connect() -> None:
    with World(1) as world:
        world.expected_errors = (ClientTimeout, DriverTimeout)
        host = world.add_host("one", client_liveness_timeout_ns=NS_PER_SECOND, timer_interval_ns=NS_PER_SECOND // 2)
        host.is_client_paused = True
        world.run_for(3 * NS_PER_SECOND)
        assert not host.aeron.closed
        host.is_client_paused = False
        world.run_for(NS_PER_SECOND)
        assert host.aeron.closed
        host.connect()
        assert not host.aeron.closed


def test_an_error_that_ends_a_client_is_a_violation_unless_it_is_expected() -> None:
    with World(1) as world:
        host = world.add_host("one", client_liveness_timeout_ns=NS_PER_SECOND, timer_interval_ns=NS_PER_SECOND // 2)
        host.is_client_paused = True
        world.run_for(3 * NS_PER_SECOND)
        host.is_client_paused = False
        with pytest.raises(AssertionError, match="a client failed"):
            world.run_for(NS_PER_SECOND)


def test_a_clock_drifts_without_going_back_and_its_time_of_day_jumps() -> None:
    with World(1) as world:
        host = world.add_host("one")
        start_ns = host.clock.monotonic_ns() - world.now_ns
        host.clock.drift(500)
        world.run_for(NS_PER_SECOND)
        assert host.clock.monotonic_ns() - world.now_ns - start_ns in range(490_000, 560_000)
        before_ns = host.clock.monotonic_ns()
        host.clock.drift(-500)
        assert host.clock.monotonic_ns() == before_ns
        host.clock.jump_ms(-1_000)
        assert host.clock.epoch_ms() == world.clock.epoch_ms() - 1_000
        assert host.clock.epoch_ns() // NS_PER_MS == host.clock.epoch_ms()
        assert host.clock.monotonic_ns() == before_ns


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_clients_and_their_driver_survive_a_clock_that_is_set(jump_ms: int) -> None:
    with World(1) as world:
        host = world.add_host("one")
        publication = host.aeron.add_publication("aeron:ipc", 1001)
        world.run_for(2 * NS_PER_SECOND)
        host.clock.jump_ms(jump_ms)
        world.run_for(15 * NS_PER_SECOND)
        assert not host.aeron.closed
        assert not publication.closed


def test_a_full_disk_refuses_a_log_until_there_is_space() -> None:
    with World(1) as world:
        host = world.add_host("one")
        host.files.space -= host.files.free_space("/") - 1_000
        with pytest.raises(RegistrationError):
            host.aeron.add_publication("aeron:ipc", 1001)
        host.files.space = 1 << 40
        host.aeron.add_publication("aeron:ipc", 1001)
