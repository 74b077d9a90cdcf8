"""Settings that change what a driver does: each has a visible effect."""

from __future__ import annotations

import os
import threading
from itertools import pairwise

import pytest
from tests.support.invoked_driver import CLIENT, DIRECTORY, InvokedDriver, only, small_settings
from tests.support.live_driver import wait_for

from mainstem.aeron.channel_values import FlowControlParams, FlowControlStrategy
from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.conductor.sender_factory import flow_control_defaults, runs_at_once
from mainstem.aeron.driver.media.transport import BufferLimits, check_buffers
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.driver.sender.flow_control import MinMulticastFlowControl, choose_flow_control
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.aeron.driver.threads import pauses
from mainstem.errors import ConfigurationError


def test_the_idle_strategy_sets_the_pauses_of_an_agents_loop() -> None:
    settings = small_settings(
        conductor_idle_strategy="sleep-ns",
        conductor_idle_strategy_init_args="2ms",
        sender_idle_strategy="backoff",
        sender_idle_strategy_init_args="5-6-7us-8us",
        receiver_idle_strategy="yield",
        shared_idle_strategy="spin",
    )
    assert pauses(settings, "conductor") == (0, 0, 2_000_000, 2_000_000)
    assert pauses(settings, "sender") == (5, 6, 7_000, 8_000)
    assert pauses(settings, "receiver") == (0, 1, 0, 0)
    assert pauses(settings, "shared") == (0, 0, 0, 0)
    assert pauses(settings, "sharednetwork") == (10, 20, 1_000, 1_000_000)


def test_threads_are_bound_to_their_processors_and_named_for_the_system() -> None:
    cpu = min(os.sched_getaffinity(0))
    with MediaDriver.launch(
        threads=True,
        conductor_cpu_affinity=cpu,
        sender_cpu_affinity=cpu,
        receiver_cpu_affinity=cpu,
        receiver_idle_strategy="yield",
    ):
        threads = {each.name: each.native_id for each in threading.enumerate() if each.name.startswith("driver-")}
        assert set(threads) == {"driver-conductor", "driver-sender", "driver-receiver"}
        for number in threads.values():
            assert number is not None
            wait_for(lambda number=number: os.sched_getaffinity(number) == {cpu})
            with open(f"/proc/self/task/{number}/comm", encoding="ascii") as comm:
                assert comm.read().startswith("driver-")


def test_a_missing_processor_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="AERON_SENDER_CPU_AFFINITY 4000"):
        MediaDriver.launch(threads=True, sender_cpu_affinity=4000)


def test_frees_no_more_logs_in_a_duty_cycle_than_the_limit() -> None:
    driver = InvokedDriver(driver_resource_free_limit=1, publication_linger_timeout_ns=0)
    files = []
    for number in range(3):
        ready = only(driver.add_publication("aeron:ipc", 1001 + number), responses.OnPublicationReady)
        files.append(ready.log_file)
        driver.write(
            commands.RemovePublication(
                client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
            )
        )
    left = []
    for _ in range(60):
        driver.clock.advance_ns(100_000_000)
        driver.heartbeat(CLIENT)
        driver.do_work()
        left.append(sum(driver.files.exists(file) for file in files))
    assert left[-1] == 0
    assert {before - after for before, after in pairwise(left)} <= {0, 1}
    driver.close()


def test_a_log_is_deleted_if_counters_run_out() -> None:
    driver = InvokedDriver()
    while True:
        found = driver.ask(
            commands.AddCounter(
                client_id=CLIENT, correlation_id=driver.next_id(), type_id=1000, key=b"", label="filler"
            )
        )
        if any(isinstance(each, responses.OnError) for each in found):
            break
    for channel in ("aeron:ipc", "aeron:udp?endpoint=127.0.0.1:20121"):
        error = only(driver.add_publication(channel), responses.OnError)
        driver.cycle()
        assert not driver.files.exists(f"{DIRECTORY}/publications/{error.offending_correlation_id}.logbuffer")
    driver.close()


def test_the_flow_control_of_one_receiver_follows_its_setting() -> None:
    defaults = flow_control_defaults(small_settings(unicast_flowcontrol_supplier="multicast_min"))
    assert defaults.unicast is FlowControlStrategy.MIN
    assert isinstance(choose_flow_control(None, group=False, defaults=defaults), MinMulticastFlowControl)
    with pytest.raises(ConfigurationError, match="unicast_flowcontrol_supplier"):
        small_settings(unicast_flowcontrol_supplier="best")


def test_the_length_of_a_batch_follows_its_settings() -> None:
    assert runs_at_once(small_settings()) == 16
    assert runs_at_once(small_settings(network_publication_max_messages_per_send=2)) == 8
    assert runs_at_once(small_settings(sender_io_vector_capacity=1)) == 4


def test_settings_that_exceed_the_systems_buffers_are_refused() -> None:
    limits = BufferLimits(default_send=8192, max_send=8192, default_receive=65536, max_receive=65536)
    with pytest.raises(ConfigurationError, match="SO_SNDBUF"):
        check_buffers(DriverSettings(mtu_length=8224), limits)
    with pytest.raises(ConfigurationError, match="8192 exceeds the 4608 bytes"):
        check_buffers(DriverSettings(mtu_length=8192, socket_so_sndbuf=1024, socket_so_rcvbuf=65536), limits)
    with pytest.raises(ConfigurationError, match="SO_RCVBUF"):
        check_buffers(DriverSettings(rcv_initial_window_length=131073), limits)
    check_buffers(DriverSettings(socket_so_rcvbuf=65536), limits)  # the system grants twice as much
    check_buffers(DriverSettings(rcv_initial_window_length=65536, socket_so_rcvbuf=0), limits)


def test_a_log_records_its_socket_buffer_lengths() -> None:
    driver = InvokedDriver()
    channel = "aeron:udp?endpoint=127.0.0.1:20121|so-sndbuf=64k|so-rcvbuf=96k"
    ready = only(driver.add_publication(channel), responses.OnPublicationReady)
    buffer = driver.files.map(ready.log_file)
    meta = buffer.capacity - 4096
    lengths = [buffer.get_i32(meta + offset) for offset in range(292, 316, 4)]
    assert lengths == [65536, 131072, 131072, 98304, 131072, 131072]
    driver.close()


def test_threads_have_the_references_new_names_on_request() -> None:
    with MediaDriver.launch(threads=True, thread_naming="new", threading_mode="SHARED_NETWORK"):
        found = {each.name for each in threading.enumerate() if each.name.startswith(("driver-", "aeron-md-"))}
    assert found == {"aeron-md-cnd", "aeron-md-net"}
    with pytest.raises(ConfigurationError, match="thread_naming must be one of classic, new"):
        small_settings(thread_naming="fancy")


def test_a_requests_range_is_as_many_windows_as_the_settings_have() -> None:
    defaults = flow_control_defaults(small_settings(unicast_flow_control_rrwm=3, multicast_flow_control_rrwm=5))
    assert choose_flow_control(None, group=False, defaults=defaults).window_multiple == 3
    assert choose_flow_control(None, group=True, defaults=defaults).window_multiple == 5
    params = FlowControlParams(FlowControlStrategy.MAX, retransmit_window_multiple=7)
    assert choose_flow_control(params, group=True, defaults=defaults).window_multiple == 7


def test_a_publishers_window_is_half_a_term_at_most() -> None:
    driver = InvokedDriver(ipc_publication_term_window_length=1 << 20)
    ready = only(driver.add_publication("aeron:ipc?term-length=64k"), responses.OnPublicationReady)
    buffer = driver.files.map(ready.log_file)
    assert buffer.get_i32(buffer.capacity - 4096 + 284) == 32768
    driver.close()
