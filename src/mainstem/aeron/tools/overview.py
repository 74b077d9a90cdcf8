"""A driver's state for a screen or page: the driver, its clients, its streams with lag and rates, and its errors.

``overview`` compares a snapshot with the previous one. ``DriverMonitor`` takes snapshots, keeps short histories for plots, and
diagnoses a stream. Neither writes to the driver's files.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.counters import CounterType
from mainstem.aeron.tools.archives import ArchiveState, archive_states
from mainstem.aeron.tools.backlog import lag, stage_row, stages
from mainstem.aeron.tools.diagnosis import diagnose
from mainstem.aeron.tools.driver_warnings import driver_warnings
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.aeron.tools.stream_state import DRIVER_TIMEOUT_MS
from mainstem.aeron.tools.streams import clients, group_streams
from mainstem.errors import ConfigurationError, DriverTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.error_log import ErrorObservation
    from mainstem.aeron.loss_report import LossEntry
    from mainstem.aeron.tools.backlog import Stage
    from mainstem.aeron.tools.diagnosis import Diagnosis
    from mainstem.aeron.tools.snapshot import Snapshot
    from mainstem.aeron.tools.streams import Stream

HISTORY = 120  # samples in a plot: two minutes at one per second
SAMPLES = 10  # snapshots for one diagnosis
MAX_ERRORS = 100  # the newest ones; a driver's 4 MiB log can hold thousands

StreamName = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState:
    """The state of a client: its name or id, the age of its heartbeat, its publications, and its subscriptions with an image."""

    client_id: int
    name: str
    heartbeat_age_ms: int | None
    publications: int
    subscriptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The state of a stream. ``lag`` is the distance from its first stage to its last in bytes, and ``window`` is its maximum.

    ``rate`` is in bytes per second. ``naks`` counts the NAKs sent and received. ``lost`` is in bytes, from the loss report.
    """

    name: StreamName
    session_id: int
    stream_id: int
    channel: str
    publisher: str
    subscribers: tuple[str, ...]
    position: int
    lag: int
    window: int | None
    rate: float
    naks: int
    nak_rate: float
    lost: int
    is_connected: bool | None
    stages: tuple[Stage, ...]

    @property
    def fullness(self) -> float:
        """The lag as a fraction of the window, from 0 to 1; 0 if the window is unknown."""
        return min(1.0, self.lag / self.window) if self.window else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The driver's own counters, per second."""

    bytes_sent: float = 0.0
    bytes_received: float = 0.0
    naks_sent: float = 0.0
    naks_received: float = 0.0
    retransmits: float = 0.0
    lost: float = 0.0
    errors: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of a driver at one moment. If ``problem`` says why it cannot be read, everything else is empty."""

    directory: str
    epoch_ms: int
    problem: str = ""
    version: str = ""
    pid: int = 0
    start_ms: int = 0
    heartbeat_age_ms: int | None = None
    is_alive: bool = False
    rates: Rates = field(default_factory=Rates)
    error_count: int = 0
    lost: int = 0
    clients: tuple[ClientState, ...] = ()
    archives: tuple[ArchiveState, ...] = ()
    streams: tuple[StreamState, ...] = ()
    errors: tuple[ErrorObservation, ...] = ()
    warnings: tuple[str, ...] = ()


def overview(
    before: Snapshot | None,
    now: Snapshot,
    *,
    losses: Sequence[LossEntry] = (),
    lost_before: int = 0,
    errors: Sequence[ErrorObservation] = (),
) -> Overview:
    """Return the state that a snapshot shows. Rates require the previous snapshot."""
    if before is not None and (before.start_ms != now.start_ms or before.now_ns >= now.now_ns):
        before = None
    seconds = (now.now_ns - before.now_ns) / 1e9 if before is not None else 0.0
    earlier = {_name(stream): stream for stream in group_streams(before)} if before is not None else {}
    lost = sum(entry.total_bytes_lost for entry in losses)

    def rise(counter: SystemCounter) -> float:
        return max(0, now.system(counter) - before.system(counter)) / seconds if before is not None else 0.0

    return Overview(
        directory=now.directory,
        epoch_ms=now.epoch_ms,
        version=now.version_text,
        pid=now.pid,
        start_ms=now.start_ms,
        heartbeat_age_ms=now.heartbeat_age_ms,
        is_alive=now.is_driver_alive(DRIVER_TIMEOUT_MS),
        rates=Rates(
            bytes_sent=rise(SystemCounter.BYTES_SENT),
            bytes_received=rise(SystemCounter.BYTES_RECEIVED),
            naks_sent=rise(SystemCounter.NAKS_SENT),
            naks_received=rise(SystemCounter.NAKS_RECEIVED),
            retransmits=rise(SystemCounter.RETRANSMITS_SENT),
            lost=max(0, lost - lost_before) / seconds if before is not None else 0.0,
            errors=rise(SystemCounter.ERRORS),
        ),
        error_count=now.system(SystemCounter.ERRORS),
        lost=lost,
        clients=_client_states(now),
        archives=archive_states(now),
        streams=tuple(_stream_state(s, earlier.get(_name(s)), seconds, losses) for s in group_streams(now)),
        errors=tuple(sorted(errors, key=lambda e: e.last_observation_ms, reverse=True)[:MAX_ERRORS]),
        warnings=driver_warnings([before or now, now], errors),
    )


def _client_states(snapshot: Snapshot) -> tuple[ClientState, ...]:
    owned: dict[tuple[int, int], set[int]] = {}
    for counter in snapshot.counters:
        owned.setdefault((counter.type_id, counter.owner_id), set()).add(counter.registration_id)
    return tuple(
        ClientState(
            client_id=client.client_id,
            name=client.shown,
            heartbeat_age_ms=snapshot.epoch_ms - client.heartbeat_ms if client.heartbeat_ms > 0 else None,
            publications=len(owned.get((CounterType.PUBLISHER_LIMIT, client.client_id), ())),
            subscriptions=len(owned.get((CounterType.SUBSCRIBER_POSITION, client.client_id), ())),
        )
        for client in clients(snapshot)
    )


def _name(stream: Stream) -> StreamName:
    return stream.stream_id, stream.session_id, stream.key.registration_id


def _first_position(stream: Stream) -> int:
    return stream.publication.position if stream.publication else max(i.high_water_mark for i in stream.images)


def _naks(stream: Stream) -> int:
    received = (stream.publication.naks or 0) if stream.publication else 0
    return max([received, *(image.naks or 0 for image in stream.images)])


def _stream_state(stream: Stream, before: Stream | None, seconds: float, losses: Sequence[LossEntry]) -> StreamState:
    steps = stages(stream)
    position = _first_position(stream)
    windows = [i.window for i in stream.images if i.window]
    window = stream.publication.window if stream.publication else min(windows, default=None)
    naks = _naks(stream)
    own = (stream.session_id, stream.stream_id)
    return StreamState(
        name=_name(stream),
        session_id=stream.session_id,
        stream_id=stream.stream_id,
        channel=stream.channel,
        publisher=stream.publication.client.shown if stream.publication else "-",
        subscribers=tuple(dict.fromkeys(s.client.shown for s in stream.subscribers)),
        position=position,
        lag=lag(position, steps),
        window=window,
        rate=max(0, position - _first_position(before)) / seconds if before is not None else 0.0,
        naks=naks,
        nak_rate=max(0, naks - _naks(before)) / seconds if before is not None else 0.0,
        lost=sum(e.total_bytes_lost for e in losses if (e.session_id, e.stream_id) == own),
        is_connected=stream.publication.log.is_connected if stream.publication and stream.publication.log else None,
        stages=steps,
    )


class DriverMonitor:
    """A monitor that samples one driver's directory. The driver can be missing, end or restart.

    ``history`` holds the latest samples of the driver's rates, ``stream_history`` those of each stream's rate, NAKs and lag.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.history: deque[Rates] = deque(maxlen=HISTORY)
        self.stream_history: dict[StreamName, deque[tuple[float, float, int]]] = {}
        self._reader: DirectoryReader | None = None
        self._snapshots: deque[Snapshot] = deque(maxlen=SAMPLES)
        self._losses: list[LossEntry] = []

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def sample(self, *, epoch_ms: int, now_ns: int) -> Overview:
        try:
            if self._reader is None:
                self._reader = DirectoryReader(self.directory)
            now = self._reader.snapshot(epoch_ms=epoch_ms, now_ns=now_ns, logs=True)
            losses, errors = self._reader.losses(), self._reader.errors()
        except (DriverTimeout, ConfigurationError, OSError) as error:
            self.close()
            self._snapshots.clear()
            return Overview(directory=self.directory, epoch_ms=epoch_ms, problem=str(error))
        before = self._snapshots[-1] if self._snapshots else None
        if before is not None and before.start_ms != now.start_ms:
            self._snapshots.clear()
        lost_before = sum(entry.total_bytes_lost for entry in self._losses)
        state = overview(before, now, losses=losses, lost_before=lost_before, errors=errors)
        self._snapshots.append(now)
        self._losses = losses
        self._remember(state)
        return state

    def _remember(self, state: Overview) -> None:
        self.history.append(state.rates)
        names = {stream.name for stream in state.streams}
        for gone in self.stream_history.keys() - names:
            del self.stream_history[gone]
        for stream in state.streams:
            past = self.stream_history.setdefault(stream.name, deque(maxlen=HISTORY))
            past.append((stream.rate, stream.nak_rate, stream.lag))

    def why(self, session_id: int, stream_id: int) -> tuple[Diagnosis, ...]:
        if not self._snapshots:
            return ()
        return tuple(
            d
            for d in diagnose(list(self._snapshots), self._losses)
            if (d.session_id, d.stream_id) == (session_id, stream_id)
        )


def document(state: Overview) -> dict[str, object]:
    row = asdict(state)
    streams = []
    for stream, plain in zip(state.streams, row["streams"], strict=True):
        steps = [stage_row(stage) for stage in stream.stages]
        streams.append(plain | {"name": "/".join(map(str, stream.name)), "fullness": stream.fullness, "stages": steps})
    return row | {"streams": streams}
