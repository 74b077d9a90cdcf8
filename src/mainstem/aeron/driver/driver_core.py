"""The shared memory and the agents of one driver. Threads or an invoker run them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.ipc_path import IpcCycle
from mainstem._core.memory.counters import CountersManager
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.file_modes import parse_mode
from mainstem._internal.units import format_duration_ns
from mainstem._version import __version__
from mainstem.aeron.cnc import CncFile, CncLayout
from mainstem.aeron.directory import loss_report_path
from mainstem.aeron.driver.agent_proxies import ReceiverProxy, SenderProxy
from mainstem.aeron.driver.conductor.client_proxy import ClientProxy
from mainstem.aeron.driver.conductor.conductor import DriverConductor
from mainstem.aeron.driver.conductor.raw_log_factory import RawLogFactory
from mainstem.aeron.driver.conductor.resources import Resources
from mainstem.aeron.driver.conductor_proxy import DriverConductorProxy
from mainstem.aeron.driver.counters import DriverCounters, SystemCounters, cycle_time_suffixes
from mainstem.aeron.driver.directory_lock import claim_directory, delete_own_directory
from mainstem.aeron.driver.errors import ErrorRecorder
from mainstem.aeron.driver.media.transport import check_buffers
from mainstem.aeron.driver.naming.name_resolver import NameResolver
from mainstem.aeron.driver.receiver.image_limiter import ImageLimiter
from mainstem.aeron.driver.receiver.receiver import Receiver
from mainstem.aeron.driver.sender.sender import Sender
from mainstem.aeron.error_log import DistinctErrorLog
from mainstem.aeron.logbuffer import align
from mainstem.aeron.loss_report import LossReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.driver.loop import Loop
    from mainstem.aeron.driver.context import DriverContext
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.aeron.driver.media.transport import Transports
    from mainstem.aeron.driver.settings import DriverSettings


class DriverCore:
    """The CnC file of one driver and the agents that use it. Raises ActiveDriverError if a live driver uses the directory."""

    def __init__(self, context: DriverContext) -> None:
        self.context = context
        # Clients wait for a driver whose CnC file they find, so one that doesn't start leaves none.
        with ExitStack() as undo:
            self._event_log, transports = _watched(context)
            if self._event_log is not None:
                undo.callback(self._event_log.close)
            check_buffers(context.settings, transports.buffer_limits())
            now_ms = context.clock.epoch_ms()
            _claim(context, now_ms)
            undo.callback(delete_own_directory, context.files, context.directory)
            self.cnc = _create_cnc(context, now_ms)
            undo.callback(self.cnc.close)
            self._make_agents(transports, now_ms)
            undo.pop_all()

    def _make_agents(self, transports: Transports, now_ms: int) -> None:
        context, cnc, events = self.context, self.cnc, self._event_log
        settings, now_ns = context.settings, context.clock.monotonic_ns()
        self._loss_buffer = context.files.create(
            loss_report_path(context.directory),
            align(settings.loss_report_buffer_length, settings.file_page_size),
            prefault=False,
        )
        manager = CountersManager(
            cnc.counters_metadata, cnc.counters_values, settings.counters_free_to_reuse_timeout_ns // NS_PER_MS
        )
        counters = DriverCounters(manager, context.clock)
        self.system_counters = SystemCounters(manager, now_ms=now_ms, suffixes=_label_suffixes(settings))
        self.system_counters[SystemCounter.SOFTWARE_VERSION].set_release(composite_version(__version__))
        self.errors = ErrorRecorder(DistinctErrorLog(cnc.error_log), context.clock, self.system_counters, events)
        self.to_conductor = DriverConductorProxy()
        self.ipc_cycle = IpcCycle()
        self.sender = self._make_sender(now_ns)
        self.receiver = self._make_receiver(now_ns)
        resources = Resources(
            settings=settings,
            clock=context.clock,
            rng=context.rng,
            instrument=context.instrument,
            events=events,
            buffer_limits=transports.buffer_limits(),
            transports=transports,
            names=NameResolver.of_settings(
                settings,
                transports,
                context.clock,
                counters,
                self.system_counters,
                context.instrument,
                self.errors,
                events,
            ),
            counter_values=cnc.counters_values,
            counters=counters,
            system_counters=self.system_counters,
            to_driver=cnc.to_driver,
            clients=ClientProxy(cnc.transmitter(), context.clock, context.instrument, events),
            errors=self.errors,
            loss_report=LossReport(self._loss_buffer),
            logs=RawLogFactory(
                context.files,
                context.directory,
                self.system_counters,
                self.errors.warn,
                check_storage=settings.perform_storage_checks,
                low_storage_warning=settings.low_file_store_warning_threshold,
            ),
            ipc_cycle=self.ipc_cycle,
            sender=SenderProxy(self.sender),
            receiver=ReceiverProxy(self.receiver),
        )
        self.conductor = DriverConductor(resources, self.to_conductor, now_ns)
        cnc.to_driver.next_correlation_id()  # skip 0, the owner id of resources without a client
        cnc.to_driver.consumer_heartbeat_ms = now_ms
        cnc.signal_ready()

    def _make_sender(self, now_ns: int) -> Sender:
        settings = self.context.settings
        return Sender(
            counters=self.cnc.counters_values,
            to_conductor=self.to_conductor,
            status_poll_ratio=settings.send_to_status_poll_ratio,
            status_poll_interval_ns=settings.rcv_status_message_timeout_ns // 2,
            resolve_interval_ns=settings.driver_reresolution_check_interval_ns,
            now_ns=now_ns,
        )

    def _make_receiver(self, now_ns: int) -> Receiver:
        settings = self.context.settings
        return Receiver(
            counters=self.cnc.counters_values,
            to_conductor=self.to_conductor,
            limiter=ImageLimiter(
                stream_limit=settings.driver_stream_session_limit,
                source_limit=settings.driver_source_image_limit,
                total_limit=settings.driver_image_limit,
            ),
            resolve_interval_ns=settings.driver_reresolution_check_interval_ns,
            now_ns=now_ns,
            source_filter=self.context.source_filter(),
        )

    def attach(self, loop: Loop, agents: Iterable[str]) -> None:
        """Make a compiled loop return to Python when one of these agents has work."""
        if "conductor" in agents:
            ring = self.cnc.to_driver
            loop.watch(ring.buffer, ring.capacity + layout.RING_TAIL_OFFSET)
            self.to_conductor.on_append = loop.wake
        if "sender" in agents:
            self.sender.commands.on_append, self.sender.wake_by = loop.wake, loop.wake_by
        if "receiver" in agents:
            self.receiver.commands.on_append, self.receiver.wake_by = loop.wake, loop.wake_by

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self.conductor.close()
        self.errors.close()
        self.context.files.unmap(self._loss_buffer)
        self.cnc.close()
        if self._event_log is not None:
            self._event_log.close()
        if self.context.settings.dir_delete_on_shutdown:
            delete_own_directory(self.context.files, self.context.directory)


def _watched(context: DriverContext) -> tuple[EventLog | None, Transports]:
    """Return the event log, if configured, and the transports, wrapped if the log includes events of sockets."""
    settings, network = context.settings, context.network()
    if not settings.event_log and not settings.event_log_disable:
        return None, network
    # Imported here because few drivers log events.
    from mainstem.aeron.driver.event_log.log import event_log
    from mainstem.aeron.driver.event_log.watching import watched

    events = event_log(settings)
    return events, watched(network, events, context.clock)


def _claim(context: DriverContext, now_ms: int) -> None:
    settings = context.settings
    claim_directory(
        context.files,
        context.directory,
        now_ms=now_ms,
        driver_timeout_ms=settings.driver_timeout_ns // NS_PER_MS,
        delete_on_start=settings.dir_delete_on_start,
        warn_if_exists=settings.dir_warn_if_exists,
        mode=parse_mode(settings.dir_mode or "", name="dir_mode"),
        group=settings.dir_group,
    )


def _create_cnc(context: DriverContext, now_ms: int) -> CncFile:
    settings = context.settings
    return CncFile.create(
        context.files,
        context.directory,
        client_liveness_timeout_ns=settings.client_liveness_timeout_ns,
        start_timestamp_ms=now_ms,
        pid=context.pid,
        cnc_layout=cnc_layout(settings),
    )


def cnc_layout(settings: DriverSettings) -> CncLayout:
    """Return the lengths of the sections of the CnC file. Raises ConfigurationError if they are invalid."""
    return CncLayout(
        to_driver_length=settings.conductor_buffer_length,
        to_clients_length=settings.clients_buffer_length,
        counters_metadata_length=4 * settings.counters_buffer_length,
        counters_values_length=settings.counters_buffer_length,
        error_log_length=settings.error_buffer_length,
        page_size=settings.file_page_size,
    )


def _label_suffixes(settings: DriverSettings) -> dict[SystemCounter, str]:
    suffixes = cycle_time_suffixes(
        settings.threading_mode,
        {
            SystemCounter.CONDUCTOR_CYCLE_TIME_EXCEEDED: settings.driver_conductor_cycle_threshold_ns,
            SystemCounter.SENDER_CYCLE_TIME_EXCEEDED: settings.driver_sender_cycle_threshold_ns,
            SystemCounter.RECEIVER_CYCLE_TIME_EXCEEDED: settings.driver_receiver_cycle_threshold_ns,
        },
    )
    software = f": version={__version__} commit="
    threshold = format_duration_ns(settings.driver_name_resolver_threshold_ns)
    return suffixes | {
        SystemCounter.ERRORS: software,
        SystemCounter.SOFTWARE_VERSION: software,
        SystemCounter.RESOLUTION_CHANGES: f": driverName={settings.driver_resolver_name or ''}",
        SystemCounter.NAME_RESOLVER_TIME_EXCEEDED: f": threshold={threshold}",
    }


def composite_version(version: str) -> int:
    """Return a version such as ``1.53.0`` as major << 16 | minor << 8 | patch."""
    numbers = [int(part) for part in version.split(".")[:3]]
    return numbers[0] << 16 | numbers[1] << 8 | numbers[2]
