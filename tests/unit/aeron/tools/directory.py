"""A made-up driver's directory in memory: set the position of each stage, then take a snapshot."""

from __future__ import annotations

import struct
from typing import Any

from mainstem.aeron import counters as names
from mainstem.aeron.counters import ArchiveCounterType, CounterSnapshot, CounterSpec, CounterType
from mainstem.aeron.logbuffer import LogType
from mainstem.aeron.tools.log_state import END_OF_STREAM_UNKNOWN, LogState
from mainstem.aeron.tools.snapshot import Snapshot

NOW_MS = 1_800_000_000_000
SESSION = -5
STREAM = 1001
UDP = "aeron:udp?endpoint=localhost:20121"
TERM = 1 << 16
WINDOW = TERM // 2
PUBLICATION = 10
IMAGE = 20
SUBSCRIPTION = 30
CLIENT = 40
ARCHIVE = 42


def log_facts(registration_id: int, log_type: LogType, **changes: Any) -> LogState:
    facts: dict[str, Any] = {
        "path": f"/aeron/{registration_id}.logbuffer",
        "registration_id": registration_id,
        "session_id": SESSION,
        "stream_id": STREAM,
        "log_type": log_type,
        "term_length": TERM,
        "mtu": 1408,
        "initial_term_id": 0,
        "raw_tails": (0, 0, 0),
        "active_term_count": 0,
        "is_connected": True,
        "active_transports": 1,
        "end_of_stream": END_OF_STREAM_UNKNOWN,
        "publication_window_length": 0 if log_type is LogType.IMAGE else WINDOW,
        "receiver_window_length": WINDOW if log_type is LogType.IMAGE else 0,
        "spies_simulate_connection": False,
        "is_revoked": False,
        "length": 3 * TERM + 4096,
        "allocated": 3 * TERM + 4096,
        "created_ms": NOW_MS - 60_000,
        "next_frame_length": 1408,
    }
    return LogState(**(facts | changes))


class MadeUpDirectory:
    """Counters and logs, laid out as a driver would."""

    def __init__(self, *, heartbeat_age_ms: int = 500, free_space: int = 1 << 30) -> None:
        self.counters: list[CounterSnapshot] = []
        self.logs: dict[int, LogState] = {}
        self.heartbeat_age_ms = heartbeat_age_ms
        self.free_space = free_space

    def add(self, spec: CounterSpec, value: int, registration_id: int = 0, owner: int = -1, reference: int = 0) -> int:
        counter_id = len(self.counters) + 100
        self.counters.append(
            CounterSnapshot(
                counter_id=counter_id,
                type_id=spec.type_id,
                value=value,
                registration_id=registration_id,
                owner_id=owner,
                reference_id=reference,
                key=spec.key.ljust(112, b"\0"),
                label=spec.label,
            )
        )
        return counter_id

    def stream(
        self,
        kind: CounterType,
        value: int,
        registration_id: int,
        channel: str = UDP,
        session: int = SESSION,
        name: str = "",
        owner: int = CLIENT,
    ) -> None:
        spec = names.stream_counter(
            kind, registration_id, session_id=session, stream_id=STREAM, channel=channel, name=name
        )
        self.add(spec, value, registration_id, owner)

    def client(self, client_id: int = CLIENT, *, name: str = "", age_ms: int = 100, records: bool = False) -> None:
        spec = names.client_heartbeat(client_id)
        if name:
            spec = spec._replace(label=f"{spec.label} name={name} version=1 commit=2")
        self.add(spec, NOW_MS - age_ms, client_id, client_id)
        if records:
            self.recording(0, owner=client_id)

    def recording(self, position: int, *, recording_id: int = 7, owner: int = CLIENT, session: int = SESSION) -> None:
        """Add an archive's recording of the stream, made by a subscription of client ``owner``."""
        key = struct.pack("<qii9sq", recording_id, session, 9, b"aeron:ipc", ARCHIVE)
        label = f"rec-pos: {recording_id} {session} {STREAM} {UDP} - archiveId={ARCHIVE}"
        self.add(CounterSpec(ArchiveCounterType.RECORDING_POSITION, key, label), position, 99, owner)

    def archive(self, kind: ArchiveCounterType, value: int, label: str = "Archive", reference: int = 0) -> None:
        """Add a counter of an archive whose client is ``CLIENT``."""
        key = struct.pack("<qq", ARCHIVE, 3)
        self.add(CounterSpec(kind, key, f"{label} - archiveId={ARCHIVE}"), value, 98, CLIENT, reference)

    def publication(
        self,
        position: int,
        *,
        limit: int,
        sent: int | None = None,
        sender_limit: int | None = None,
        receivers: int | None = None,
        destinations: int | None = None,
        status: int | None = 1,
        back_pressure_events: int | None = None,
        channel: str = UDP,
        registration_id: int = PUBLICATION,
        session: int = SESSION,
        **log: Any,
    ) -> MadeUpDirectory:
        own = registration_id
        self.stream(CounterType.PUBLISHER_LIMIT, limit, own, channel, session)
        spec = names.publisher_position(own, session_id=session, stream_id=STREAM, channel=channel, exclusive=False)
        self.add(spec, position, own, CLIENT)
        for kind, value in (
            (CounterType.SENDER_POSITION, sent),
            (CounterType.SENDER_LIMIT, sender_limit),
            (CounterType.FLOW_CONTROL_RECEIVERS, receivers),
            (CounterType.SENDER_BACK_PRESSURE_EVENTS, back_pressure_events),
        ):
            if value is not None:
                self.stream(kind, value, own, channel, session)
        if destinations is not None:
            self.add(names.destinations(channel), destinations, own)
        if sent is not None and status is not None:
            self.add(names.send_channel_status(channel, "127.0.0.1:5"), status, own)
        self.logs[own] = log_facts(own, LogType.CONCURRENT_PUBLICATION, session_id=session, **log)
        return self

    def image(
        self,
        position: int,
        *,
        high_water_mark: int | None = None,
        naks: int = 0,
        cubic_window: int | None = None,
        channel: str = UDP,
        registration_id: int = IMAGE,
        session: int = SESSION,
        **log: Any,
    ) -> MadeUpDirectory:
        own = registration_id
        mark = position if high_water_mark is None else high_water_mark
        self.stream(CounterType.RECEIVER_HIGH_WATER_MARK, mark, own, channel, session)
        self.stream(CounterType.RECEIVER_POSITION, position, own, channel, session)
        self.stream(CounterType.RECEIVER_NAKS_SENT, naks, own, channel, session)
        if cubic_window is not None:
            self.stream(CounterType.PER_IMAGE, 100_000, own, channel, session, name="rcv-cc-cubic-rtt")
            self.stream(CounterType.PER_IMAGE, cubic_window, own, channel, session, name="rcv-cc-cubic-wnd")
        self.logs[own] = log_facts(own, LogType.IMAGE, session_id=session, **log)
        return self

    def subscriber(
        self,
        position: int,
        *,
        of: int = IMAGE,
        channel: str = UDP,
        registration_id: int = SUBSCRIPTION,
        client: int = CLIENT,
        session: int = SESSION,
    ) -> MadeUpDirectory:
        spec = names.subscriber_position(
            registration_id, session_id=session, stream_id=STREAM, channel=channel, join_position=0
        )
        self.add(spec, position, registration_id, client, of)
        return self

    def spy(self, position: int, **rest: Any) -> MadeUpDirectory:
        return self.subscriber(position, of=PUBLICATION, channel=f"aeron-spy:{UDP}", **rest)

    def sample(self, at_ms: int = 0) -> Snapshot:
        """Take a snapshot ``at_ms`` milliseconds after the first."""
        now = NOW_MS + at_ms
        return Snapshot(
            directory="/aeron",
            epoch_ms=now,
            now_ns=now * 1_000_000,
            version=512,
            pid=1234,
            start_ms=NOW_MS - 100_000,
            heartbeat_ms=-1 if self.heartbeat_age_ms < 0 else now - self.heartbeat_age_ms,
            client_liveness_timeout_ns=10_000_000_000,
            counters=tuple(self.counters),
            logs=dict(self.logs),
            free_space=self.free_space,
        )
