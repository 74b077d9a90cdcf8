"""Aqueduct over exactly what QUIC guarantees, with applications that do anything they are allowed to.

The bytes of one stream arrive once and in order. Everything else is drawn: streams overtake each other, some arrive seconds late,
a reset overtakes earlier data and discards it, datagrams are lost and reordered, stream credit runs out, and the connection
breaks. The applications send, attach, receive, finish, cancel, close and drop at random. At some step, one may end all its
channels, close its connection, be killed, or be suspended for a while, or its network may be cut, which the two ends notice at
different times. Every step checks the invariants. After everything has settled, the run checks that nothing is left.

Whatever happens, whoever reads a channel to its orderly end has received every reliable message that was sent on it, ordered ones
in order, and a message that was reported acknowledged has arrived.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.events import (
    Acknowledged,
    Attach,
    CloseConnection,
    ConnectionEnded,
    Lost,
    Mode,
    PeerHeaders,
    ReceiverEnded,
    ResetStream,
    SendDatagram,
    SenderEnded,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.limits import Limits
from mainstem.aqueduct.state import ReceiverState, SenderState
from mainstem.aqueduct.timing import Timing
from mainstem.errors import BackPressured, ConnectionLost, LocalProtocolError
from mainstem.sim.checkers import CHECKED, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from mainstem.aqueduct.halves import Incoming, ReceiverHalf, SenderHalf
    from mainstem.sim.world import World

ACTIONS = 120  # by each application
SETTLE_STEPS = 200_000
INTERRUPTIONS = ("break", "cancel", "close", "hang up", "cut", "kill", "suspend")
CUT = ConnectionLost("the peer has not been heard")
SMALL = Limits(receive_messages=6, send_messages=12, unreliable_outstanding=64)


@dataclass
class Faults:
    """The behavior of the network, drawn from the seed."""

    datagram_loss: float
    late_stream: float
    split: float
    max_delay_ns: int
    vanish_on_reset: float
    stream_credit: int
    break_at_ns: int | None

    @classmethod
    def draw(cls, rng: Random) -> Faults:
        return cls(
            datagram_loss=rng.choice((0.0, 0.1, 0.5)),
            late_stream=rng.choice((0.0, 0.05, 0.3)),
            split=rng.choice((0.0, 0.5)),
            max_delay_ns=rng.choice((1, 5, 60)) * NS_PER_MS,
            vanish_on_reset=rng.choice((0.0, 0.5, 1.0)),
            stream_credit=rng.choice((4, 10, 1000)),
            break_at_ns=rng.randrange(3 * NS_PER_SECOND) if rng.random() < 0.15 else None,
        )


@dataclass
class Direction:
    chunks: list[tuple[bytes, bool]] = field(default_factory=list)
    ready_at: int = 0
    delivered: int = 0
    reset: bool = False
    done: bool = False
    watched_at: int | None = None


class Side:
    """One end of a connection: its protocol engine, and an application that drives it at random."""

    def __init__(self, run: AqueductRun, name: str, *, is_client: bool) -> None:
        self.run = run
        self.name = name
        self.is_client = is_client
        timing = Timing(grace_ns=300 * NS_PER_MS)
        self.conn = AqueductEngine(is_client=is_client, limits=SMALL, timing=timing, peer=f"peer of {name}")
        self.peer: Side
        self.out: dict[int, Direction] = {}
        self.live: list[int] = []  # streams opened by this side that count against its credit
        self.opened = 0
        self.senders: dict[int, Mode] = {0: Mode.ORDERED} if is_client else {}
        self.fast_modes: dict[int, Mode] = {}  # the mode of the last message that was sent by `send`
        self.receivers: set[int] = set() if is_client else {0}
        # The halves that the application has ever held, and how they ended.
        self.had: set[tuple[int, str]] = {(0, "sender")} if is_client else set()
        self.ended: dict[tuple[int, str], object] = {}
        # The reliable messages sent on each channel; the last ordered message received; the channels read until nothing was left.
        self.sent: dict[int, list[int]] = {}
        self.last_ordered: dict[int, int] = {}
        self.read_out: set[int] = set()
        self.over: object = None
        self.is_over = False
        self.is_killed = False
        self.is_cut = False  # nothing arrives any longer
        self.resumes_at = 0  # until then, the process is suspended

    @property
    def runs(self) -> bool:
        """Whether the process is alive and not suspended."""
        return not self.is_killed and self.resumes_at <= self.run.now

    # The application.

    def act(self) -> None:
        rng = self.run.rng
        if not self.is_client and not self.conn.is_ready:
            return
        action = rng.random()
        if action < 0.45 and self.senders:
            self.send(rng.choice(sorted(self.senders)))
        elif action < 0.8 and self.receivers:
            self.receive(rng.choice(sorted(self.receivers)))
        elif action < 0.84 and self.senders:
            self.end_sender(rng.choice(sorted(self.senders)), finish=True)
        elif action < 0.88 and self.senders:
            self.end_sender(rng.choice(sorted(self.senders)), finish=False)
        elif action < 0.92 and self.receivers:
            channel_id = rng.choice(sorted(self.receivers))
            if channel_id or rng.random() < 0.02:
                self.conn.close_receiver(channel_id)
                self.receivers.discard(channel_id)

    def end_sender(self, channel_id: int, *, finish: bool) -> None:
        if channel_id == 0 and self.run.rng.random() < 0.98:
            return
        (self.conn.finish if finish else self.conn.cancel)(channel_id)
        del self.senders[channel_id]

    def send(self, channel_id: int) -> None:
        run, rng = self.run, self.run.rng
        count = rng.choice((0, 0, 0, 1, 1, 2)) if len(self.senders) + len(self.receivers) < 60 else 0
        attach = [(rng.choice((Attach.SENDER, Attach.RECEIVER)), rng.random() < 0.3) for _ in range(count)]
        mode = self.senders[channel_id]
        if mode is Mode.UNRELIABLE and rng.random() < 0.2:
            mode = Mode.UNORDERED
        tag = run.new_message(self, channel_id, mode)
        payload = tag.to_bytes(4, "big") + bytes(rng.choice((0, 10, 3000)))
        if run.uses_fast_path and not count and rng.random() < 0.7:
            sender = self.conn.channels.senders.get(channel_id)
            if sender is not None and mode is self.fast_modes.get(channel_id) and sender.put(payload):
                run.messages[tag].is_unreported = True
                self.note_sent(tag)
                return
        try:
            ids = self.conn.send(channel_id, payload, mode=mode, attach=attach, tag=tag)
        except (BackPressured, LocalProtocolError):  # the latter if the channel has just ended
            run.messages.pop(tag)
            return
        self.fast_modes[channel_id] = mode
        self.note_sent(tag)
        if channel_id & 4:
            del self.senders[channel_id]
        for (kind, _), new_id in zip(attach, ids, strict=True):
            if kind is Attach.RECEIVER:
                self.senders[new_id] = rng.choice(list(Mode))
                self.had.add((new_id, "sender"))
            else:
                self.receivers.add(new_id)
                self.had.add((new_id, "receiver"))

    def note_sent(self, tag: int) -> None:
        fate = self.run.messages[tag]
        if fate.mode is not Mode.UNRELIABLE:
            self.sent.setdefault(fate.channel_id, []).append(tag)

    def receive(self, channel_id: int) -> None:
        takes_several = self.run.uses_fast_path and self.run.rng.random() < 0.5
        incoming = self.receive_several(channel_id) if takes_several else self.conn.receive(channel_id)
        if isinstance(incoming, deque):
            for payload in incoming:
                self.run.delivered(payload, self, channel_id)
            return
        if incoming is None:
            # No message is queued, so the channel is now waiting for one.
            assert self.receive_several(channel_id) is None
            if self.conn.is_ready and channel_id not in (*self.conn.channels.receivers, *self.conn.channels.drained):
                self.receivers.discard(channel_id)
                self.read_out.add(channel_id)
            return
        self.run.delivered(incoming.payload, self, channel_id)
        rng = self.run.rng
        for attachment in incoming.attachments:
            if not attachment.state.is_final:
                self.had.add((attachment.channel_id, "sender" if attachment.is_sender else "receiver"))
            if rng.random() < 0.15:
                self.conn.drop(attachment)
            elif attachment.is_sender:
                if attachment.state is SenderState.OPEN:
                    self.senders[attachment.channel_id] = rng.choice(list(Mode))
            elif attachment.state in (ReceiverState.OPEN, ReceiverState.FINISHING, ReceiverState.FINISHED):
                self.receivers.add(attachment.channel_id)

    def receive_several(self, channel_id: int) -> deque[bytes] | Incoming | None:
        receiver = self.conn.channels.receivers.get(channel_id) or self.conn.channels.drained.get(channel_id)
        return None if receiver is None else self.conn.receive_from(receiver)

    def wind_down(self) -> None:
        """End everything that the application holds. Anything left afterward is a leak."""
        if not self.runs or (not self.conn.is_ready and not self.is_over):
            return
        self.end_senders(self.conn.finish)
        if self.run.reads_to_end:
            self.read_everything()
        else:
            self.close_receivers()

    def read_everything(self) -> None:
        """Receive everything that has arrived, including what came on channels that this brings; finish their senders."""
        before = -1
        while before != CHECKED.messages:
            before = CHECKED.messages
            for channel_id in sorted(self.receivers):
                self.receive(channel_id)
            self.end_senders(self.conn.finish)

    def has_had(self, tag: int, channel_id: int) -> bool:
        """Whether a message arrived here, as far as can be told: a channel that is over or was closed keeps nothing."""
        receiver = self.conn.channels.receivers.get(channel_id) or self.conn.channels.drained.get(channel_id)
        if receiver is None or self.is_killed or "delivered" in self.run.messages[tag].reports:
            return True
        queued = (each if isinstance(each, deque) else (each.payload,) for each in receiver.queue)
        return any(int.from_bytes(payload[:4], "big") == tag for payloads in queued for payload in payloads)

    def end_senders(self, end: Callable[[int], object]) -> None:
        for channel_id in sorted(self.senders):
            end(channel_id)
        self.senders.clear()

    def close_receivers(self) -> None:
        for channel_id in sorted(self.receivers):
            self.conn.close_receiver(channel_id)
        self.receivers.clear()

    def handle_events(self) -> None:
        while (event := self.conn.next_event()) is not None:
            if isinstance(event, PeerHeaders):
                if not self.is_client:
                    self.had.add((0, "receiver"))
                    self.conn.accept((("server", b"1"),), self.run.now)
            elif isinstance(event, Acknowledged):
                fate = self.run.report(event.tag, "acknowledged")
                assert isinstance(event.tag, int)
                if fate.mode is not Mode.UNRELIABLE and not self.peer.has_had(event.tag, fate.channel_id):
                    raise Violation(f"{self.name}: message {event.tag} was acknowledged, but has not arrived: {fate}")
            elif isinstance(event, Lost):
                self.run.report(event.tag, "lost")
            elif isinstance(event, SenderEnded | ReceiverEnded):
                kind = "sender" if isinstance(event, SenderEnded) else "receiver"
                key = (event.channel_id, kind)
                if key in self.ended:
                    raise Violation(f"{self.name}: {key} ended twice: {self.ended[key]} and {event.state}")
                if not event.state.is_final:
                    raise Violation(f"{self.name}: {key} ended in state {event.state}, which is not final")
                self.ended[key] = event.state
                if kind == "sender":
                    self.senders.pop(event.channel_id, None)
            elif isinstance(event, ConnectionEnded):
                self.over = event.error
                self.is_over = True

    # The network.

    def transmit(self) -> None:
        run, rng = self.run, self.run.rng
        self.live = [stream_id for stream_id in self.live if not self.is_over_both(stream_id)]
        uni_live = sum(stream_id & 2 for stream_id in self.live) // 2
        uni = max(0, run.faults.stream_credit - uni_live)
        bidi = max(0, run.faults.stream_credit - (len(self.live) - uni_live))
        self.conn.output.transport_state(
            bidi_streams=bidi, uni_streams=uni, datagrams=8, max_datagram=1150, rtt_ns=2 * NS_PER_MS
        )
        for command in self.conn.data_to_send(run.now):
            if isinstance(command, SendStream):
                self.send_stream(command)
            elif isinstance(command, ResetStream):
                direction = self._direction(command.stream_id)
                if direction.reset:
                    raise Violation(f"{self.name}: stream {command.stream_id} reset twice")
                direction.reset = True
                if rng.random() < run.faults.vanish_on_reset:
                    direction.chunks.clear()
                run.at(run.delay(), self.peer.take_reset, command.stream_id, direction, command.code)
            elif isinstance(command, SendDatagram):
                if rng.random() >= run.faults.datagram_loss:
                    run.at(run.delay(), self.peer.take_datagram, command.data)
            elif isinstance(command, WatchDelivery):
                direction = self.out[command.stream_id]
                direction.watched_at = len(direction.chunks) + direction.delivered
                self.check_watch(command.stream_id, direction)
            elif isinstance(command, CloseConnection):
                run.at(run.delay(), self.peer.connection_lost)

    def send_stream(self, command: SendStream) -> None:
        run, rng = self.run, self.run.rng
        is_new = command.stream_id not in self.out
        direction = self._direction(command.stream_id)
        if is_new and rng.random() < run.faults.late_stream:
            direction.ready_at = run.now + rng.randrange(2 * NS_PER_SECOND)
        if direction.reset:
            raise Violation(f"{self.name}: wrote to stream {command.stream_id} after its reset")
        data = command.data
        if len(data) > 1 and rng.random() < run.faults.split:
            cut = rng.randrange(1, len(data))
            direction.chunks.append((data[:cut], False))
            data = data[cut:]
            run.at(max(run.delay(), direction.ready_at), self.peer.take_stream, command.stream_id, direction)
        direction.chunks.append((data, command.fin))
        run.at(max(run.delay(), direction.ready_at), self.peer.take_stream, command.stream_id, direction)

    def _direction(self, stream_id: int) -> Direction:
        direction = self.out.get(stream_id)
        if direction is None:
            direction = self.out[stream_id] = Direction()
            if stream_id & 1 == (0 if self.is_client else 1):
                self.live.append(stream_id)
        return direction

    def is_over_both(self, stream_id: int) -> bool:
        """Whether both directions have ended. Until then, a stream counts against the credit."""
        direction = self.out[stream_id]
        back = self.peer.out.get(stream_id)
        return direction.done and (bool(stream_id & 2) or (back is not None and back.done))

    def check_watch(self, stream_id: int, direction: Direction) -> None:
        if direction.watched_at is not None and direction.delivered >= direction.watched_at and not direction.reset:
            direction.watched_at = None
            self.run.at(self.run.delay(), self.stream_delivered, stream_id)

    def stream_delivered(self, stream_id: int) -> None:
        self.conn.stream_delivered(stream_id, self.run.now)

    def take_stream(self, stream_id: int, direction: Direction) -> None:
        if direction.done or not direction.chunks:
            return
        data, fin = direction.chunks.pop(0)
        direction.delivered += 1
        direction.done = fin
        self.conn.receive_stream(stream_id, data, fin, self.run.now)
        self.peer.check_watch(stream_id, direction)

    def take_reset(self, stream_id: int, direction: Direction, code: int) -> None:
        if not direction.done:
            direction.done = True
            direction.chunks.clear()
            self.conn.receive_reset(stream_id, code, self.run.now)

    def take_datagram(self, data: bytes) -> None:
        self.conn.receive_datagram(data, self.run.now)

    def connection_lost(self, error: ConnectionLost | None = None) -> None:
        self.conn.connection_lost(error, self.run.now)

    def check_read_out(self) -> None:
        """Check that no channel that was read to its orderly end lacks a message."""
        for channel_id in sorted(self.read_out):
            if self.ended.get((channel_id, "receiver")) is ReceiverState.FINISHED:
                sent = self.peer.sent.get(channel_id, ())
                missing = [tag for tag in sent if "delivered" not in self.run.messages[tag].reports]
                if missing:
                    raise Violation(f"{self.name}: channel {channel_id} ended in order without messages {missing}")


# Reports that exclude each other. Each may come at most once, and "lost" never together with another.
CONTRADICTIONS = {
    "delivered": {"delivered", "lost"},
    "acknowledged": {"acknowledged", "lost"},
    "lost": {"lost", "acknowledged", "delivered"},
}


@dataclass
class MessageFate:
    sent_by: str
    channel_id: int
    mode: Mode
    reports: list[str] = field(default_factory=list)
    is_unreported: bool = False  # sent with a fire-and-forget call, which does not report its fate


class AqueductRun:
    """One to three connections and their applications, from the handshake to the last frame."""

    def __init__(self, world: World, *, is_killed_later: bool = False) -> None:
        self.world = world
        self.rng = rng = world.rng
        self.faults = Faults.draw(rng)
        # Whether plain messages may use fire-and-forget calls, which do not report their fate.
        self.uses_fast_path = rng.random() < 0.4
        # Whether the applications read every channel to its end at last, or close it.
        self.reads_to_end = rng.random() < 0.5
        self.messages: dict[int, MessageFate] = {}
        self._next_message = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0
        self.sides: list[Side] = []
        for index in range(rng.choice((1, 1, 1, 1, 2, 3))):
            client = Side(self, f"client {index}", is_client=True)
            server = Side(self, f"server {index}", is_client=False)
            client.peer, server.peer = server, client
            self.sides += (client, server)
            client.conn.start(self.now)
        # The number of the action at which something happens to one application or its connection.
        self.interrupt_at = rng.randrange(ACTIONS) if rng.random() < 0.5 and not is_killed_later else -1
        if is_killed_later:
            self.faults.break_at_ns = None
        if self.faults.break_at_ns is not None:
            client = self.sides[0]
            self.at(self.now + self.faults.break_at_ns, client.connection_lost)
            self.at(self.now + self.faults.break_at_ns, client.peer.connection_lost)

    @property
    def now(self) -> int:
        return self.world.now_ns

    def delay(self) -> int:
        """Return the time at which something sent now arrives."""
        return self.now + self.rng.randrange(1, self.faults.max_delay_ns)

    def at(self, when: int, what: Callable[..., None], *arguments: object) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (when, self._sequence, what, arguments))

    # A model of the fate of each message.

    def new_message(self, side: Side, channel_id: int, mode: Mode) -> int:
        self._next_message += 1
        self.messages[self._next_message] = MessageFate(side.name, channel_id, mode)
        return self._next_message

    def report(self, tag: object, what: str) -> MessageFate:
        assert isinstance(tag, int)
        fate = self.messages[tag]
        if before := CONTRADICTIONS[what].intersection(fate.reports):
            raise Violation(f"message {tag} was reported {what} after it was {' and '.join(before)}")
        fate.reports.append(what)
        return fate

    def delivered(self, payload: bytes, side: Side, channel_id: int) -> None:
        tag = int.from_bytes(payload[:4], "big")
        fate = self.report(tag, "delivered")
        if fate.sent_by != side.peer.name:
            raise Violation(
                f"message {tag} from {fate.sent_by} arrived at {side.name}, expected {side.peer.name} as its sender"
            )
        if fate.channel_id != channel_id:
            raise Violation(f"message {tag} was sent on channel {fate.channel_id}, but arrived on channel {channel_id}")
        if fate.mode is Mode.ORDERED:
            last = side.last_ordered.get(channel_id, 0)
            if tag < last:
                raise Violation(f"{side.name}: message {tag} of channel {channel_id} arrived after message {last}")
            side.last_ordered[channel_id] = tag
        CHECKED.messages += 1

    # The run.

    def next_due_ns(self) -> int | None:
        """Return the time of the next event; None if there is none."""
        due = [
            side.conn.next_timeout_ns() if side.runs else side.resumes_at for side in self.sides if not side.is_killed
        ]
        if self._queue:
            due.append(self._queue[0][0])
        return min((each for each in due if each is not None), default=None)

    def turn(self) -> None:
        while self._queue and self._queue[0][0] <= self.now:
            _, _, what, arguments = heapq.heappop(self._queue)
            self.carry_out(what, arguments)
        for side in self.sides:
            if side.runs:
                side.conn.handle_timeout(self.now)
        self.exchange()

    def carry_out(self, what: Callable[..., None], arguments: tuple[object, ...]) -> None:
        """Tell a side what reaches it now, or after it has been resumed."""
        side = getattr(what, "__self__", None)
        assert isinstance(side, Side)
        if side.is_killed or (side.is_cut and what != side.connection_lost):
            return
        if side.runs:
            what(*arguments)
        else:
            self.at(side.resumes_at, what, *arguments)

    def exchange(self) -> None:
        for side in self.sides:
            if side.runs:
                side.handle_events()
                side.transmit()

    def play(self) -> None:
        """Run everything. Raises Violation if an invariant is broken."""
        for _ in self.procedure():
            due_ns = self.next_due_ns()
            if due_ns is not None:
                self.world.clock.advance_ns(max(0, due_ns - self.now))

    def procedure(self) -> Iterator[None]:
        """Run everything, yielding whenever time should advance. Raises Violation."""
        self.exchange()
        for number in range(ACTIONS):
            if number == self.interrupt_at:
                self.interrupt(self.rng.choice(INTERRUPTIONS))
            for side in self.sides:
                if side.runs and not side.is_over:
                    side.act()
            self.exchange()
            for _ in range(self.rng.randrange(4)):
                yield
                self.turn()
        yield from self.settle()
        self.check_quiescent()

    def kill(self, number: int) -> None:  # noqa: ARG002 - both ends lose it
        """Kill the host of one end, which closes every connection."""
        for side in self.sides:
            side.connection_lost()
        self.exchange()

    def interrupt(self, how: str) -> None:
        rng = self.rng
        side = rng.choice(self.sides)
        if how == "break":
            side.connection_lost()
            side.peer.connection_lost()
        elif how == "hang up":
            side.conn.close()
        elif how == "cut":
            for end in (side, side.peer):
                end.is_cut = True
                self.at(self.now + rng.randrange(2 * NS_PER_SECOND), end.connection_lost, CUT)
        elif how == "kill":
            side.is_killed = True
            self.at(self.now + rng.randrange(2 * NS_PER_SECOND), side.peer.connection_lost, CUT)
        elif how == "suspend":
            side.resumes_at = self.now + rng.randrange(5 * NS_PER_SECOND)
        elif how == "cancel":
            side.end_senders(side.conn.cancel)
        else:
            side.close_receivers()
        self.exchange()

    def settle(self) -> Iterator[None]:
        """End everything and deliver what is in flight."""
        for _ in range(SETTLE_STEPS):
            for side in self.sides:
                side.wind_down()
            self.exchange()
            if self.next_due_ns() is None:
                break
            yield
            self.turn()
        else:
            raise Violation(f"the connections were still active after {SETTLE_STEPS} steps")

    def check_quiescent(self) -> None:
        for side in self.sides:
            side.check_read_out()
            if side.is_killed:
                continue
            if side.over is not None and side.over is not CUT:
                raise Violation(f"{side.name}: the connection failed: {side.over}")
            conn = side.conn
            endless = side.had - side.ended.keys()
            if endless:
                raise Violation(f"{side.name}: no end was reported for {sorted(endless)}")
            if conn.live_halves != 0:
                raise Violation(f"{side.name}: {conn.live_halves} halves are left: {_described(conn)}")
            if conn.buffer.size != 0:
                raise Violation(f"{side.name}: {conn.buffer.size} buffered bytes are left")
            left = len(conn.streams.open) - (0 if side.is_over else 1)
            if left != 0:
                raise Violation(f"{side.name}: {left} streams are left besides the connection's")
        broken = any(side.is_over or side.is_killed for side in self.sides)
        for tag, fate in self.messages.items():
            if not (broken or fate.is_unreported or {"acknowledged", "lost"}.intersection(fate.reports)):
                raise Violation(f"message {tag} was reported neither acknowledged nor lost: {fate}")


def _described(conn: AqueductEngine) -> list[str]:
    halves: list[SenderHalf | ReceiverHalf] = [
        *conn.channels.senders.values(),
        *conn.channels.receivers.values(),
        *conn.channels.drained.values(),
    ]
    return [
        f"{type(half).__name__} {half.channel_id} {half.state.name} "
        f"minted_here={half.minted_here} control={half.control is not None}"
        for half in halves
    ]


def aqueduct(world: World) -> str:
    """The fate of each message is reported once and correctly, and a channel that has ended leaves nothing behind."""
    run = AqueductRun(world)
    began_ns = world.now_ns
    run.play()
    reports = Counter(report for fate in run.messages.values() for report in fate.reports)
    return (
        f"{len(run.sides) // 2} connections, {len(run.messages)} messages, {reports['delivered']} delivered, "
        f"{reports['acknowledged']} acknowledged, {reports['lost']} lost, "
        f"in {(world.now_ns - began_ns) / NS_PER_SECOND:.2f} simulated seconds, {run.faults}"
    )
