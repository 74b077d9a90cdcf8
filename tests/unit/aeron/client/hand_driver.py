"""A driver operated by hand: reads commands from a CnC file in memory and writes the responses that a test asks for.

It knows only the first steps of IPC: a publication's log is the image of every subscription, and limits stay where they are put.
"""

from __future__ import annotations

from typing import Any

from mainstem._core.memory.counters import CountersManager
from mainstem.aeron.cnc import CncFile, CncLayout
from mainstem.aeron.command import commands, responses
from mainstem.aeron.counters import client_heartbeat
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType
from mainstem.sim.clock import ManualClock

DIRECTORY = "/driver"
SMALL = CncLayout(
    to_driver_length=65536 + 768,
    to_clients_length=65536 + 128,
    counters_metadata_length=512 * 256,
    counters_values_length=128 * 256,
    error_log_length=4096,
)
LIVENESS_NS = 10_000_000_000


class HandDriver:
    def __init__(self, *, ready: bool = True) -> None:
        self.files = MemoryFiles()
        self.clock = ManualClock()
        self.cnc = CncFile.create(
            self.files,
            DIRECTORY,
            client_liveness_timeout_ns=LIVENESS_NS,
            start_timestamp_ms=self.clock.epoch_ms(),
            pid=1,
            cnc_layout=SMALL,
        )
        self.counters = CountersManager(self.cnc.counters_metadata, self.cnc.counters_values)
        self.transmitter = self.cnc.transmitter()
        self.commands: list[Any] = []
        self.clients: dict[int, int] = {}
        self.publications: dict[int, responses.OnPublicationReady] = {}
        self.subscriptions: dict[int, commands.AddSubscription] = {}
        self.silent = False
        self.tick_ns = 1_000_000
        self.alive = True
        self.refusal: tuple[int, str] | None = None
        if ready:
            self.beat()
            self.cnc.signal_ready()

    def beat(self) -> None:
        self.cnc.to_driver.consumer_heartbeat_ms = self.clock.epoch_ms()

    def do_work(self) -> int:
        """Read commands and respond to them, and let a little time pass."""
        self.clock.advance_ns(self.tick_ns)
        if self.alive:
            self.beat()
        return int(self.cnc.to_driver.read(self.on_command))

    def answer(self, response: Any) -> None:
        self.transmitter.transmit(response.TYPE, response.encode())

    def on_command(self, type_id: int, payload: bytes) -> None:
        command = commands.decode_command(type_id, payload)
        self.commands.append(command)
        if self.silent:
            return
        if self.refusal is not None:
            code, message = self.refusal
            error = responses.OnError(offending_correlation_id=command.correlation_id, error_code=code, message=message)
            self.answer(error)
            return
        name = type(command).__name__
        if name.startswith("Add") and command.client_id not in self.clients:
            self.add_client(command.client_id)
        getattr(self, f"on_{name}", self.succeed)(command)

    def add_client(self, client_id: int) -> None:
        spec = client_heartbeat(client_id)
        counter_id = self.counters.allocate(
            *spec, now_ms=self.clock.epoch_ms(), registration_id=client_id, owner_id=client_id
        )
        self.clients[client_id] = counter_id
        self.answer(responses.OnCounterReady(correlation_id=client_id, counter_id=counter_id))

    def succeed(self, command: Any) -> None:
        self.answer(responses.OnOperationSuccess(correlation_id=command.correlation_id))

    def allocate(self, type_id: int = 1, value: int = 0) -> int:
        return self.counters.allocate(type_id, b"", "x", now_ms=self.clock.epoch_ms(), value=value)

    def on_AddPublication(self, command: Any, exclusive: bool = False) -> None:  # noqa: N802
        path = f"{DIRECTORY}/{command.correlation_id}.logbuffer"
        kind = LogType.EXCLUSIVE_PUBLICATION if exclusive else LogType.CONCURRENT_PUBLICATION
        parameters = LogParameters(
            correlation_id=command.correlation_id,
            session_id=1000 + len(self.publications),
            stream_id=command.stream_id,
            initial_term_id=7,
            term_length=65536,
            mtu=1408,
            log_type=kind,
        )
        log = LogBuffers.create(self.files.create(path, parameters.log_length), parameters)
        log.is_connected = True
        answer = responses.OnExclusivePublicationReady if exclusive else responses.OnPublicationReady
        ready = answer(
            correlation_id=command.correlation_id,
            original_registration_id=command.correlation_id,
            session_id=parameters.session_id,
            stream_id=command.stream_id,
            position_limit_id=self.allocate(value=32768),
            channel_status_id=-1,
            log_file=path,
        )
        self.publications[command.correlation_id] = ready
        self.answer(ready)
        for subscription in self.subscriptions.values():
            self.give_image(ready, subscription)

    def on_AddExclusivePublication(self, command: Any) -> None:  # noqa: N802
        self.on_AddPublication(command, exclusive=True)

    def on_AddSubscription(self, command: Any) -> None:  # noqa: N802
        self.subscriptions[command.correlation_id] = command
        self.answer(responses.OnSubscriptionReady(correlation_id=command.correlation_id, channel_status_id=-1))
        for ready in self.publications.values():
            self.give_image(ready, command)

    def give_image(self, ready: responses.OnPublicationReady, subscription: commands.AddSubscription) -> None:
        if ready.stream_id == subscription.stream_id:
            self.answer(
                responses.OnAvailableImage(
                    image_correlation_id=ready.correlation_id,
                    session_id=ready.session_id,
                    stream_id=ready.stream_id,
                    subscription_registration_id=subscription.correlation_id,
                    subscriber_position_id=self.allocate(type_id=4),
                    log_file=ready.log_file,
                    source_identity="aeron:ipc",
                )
            )

    def take_image(self, publication_id: int) -> None:
        for subscription in self.subscriptions.values():
            self.answer(
                responses.OnUnavailableImage(
                    image_correlation_id=publication_id,
                    subscription_registration_id=subscription.correlation_id,
                    stream_id=subscription.stream_id,
                    channel=subscription.channel,
                )
            )

    def on_AddCounter(self, command: Any) -> None:  # noqa: N802
        counter_id = self.counters.allocate(
            command.type_id,
            command.key,
            command.label,
            now_ms=self.clock.epoch_ms(),
            registration_id=command.correlation_id,
            owner_id=command.client_id,
        )
        self.answer(responses.OnCounterReady(correlation_id=command.correlation_id, counter_id=counter_id))

    def on_AddStaticCounter(self, command: Any) -> None:  # noqa: N802
        counter_id = self.counters.allocate(command.type_id, command.key, command.label, now_ms=self.clock.epoch_ms())
        self.answer(responses.OnStaticCounter(correlation_id=command.correlation_id, counter_id=counter_id))

    def on_GetNextAvailableSessionId(self, command: Any) -> None:  # noqa: N802
        self.answer(responses.OnNextAvailableSessionId(correlation_id=command.correlation_id, session_id=4711))
