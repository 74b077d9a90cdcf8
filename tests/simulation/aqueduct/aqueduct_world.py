"""A deterministic world for Aqueduct connections: QUIC's promises and no more, and an application that does anything it
may.

What QUIC promises is kept: the bytes of one stream arrive in order, once. Everything else is drawn from the seed:
streams overtake one another, some arrive seconds late, a reset overtakes the data before it and makes it vanish,
datagrams are lost and reordered, stream credit runs out, the connection breaks. The applications send, attach, receive,
finish, cancel, close and drop at random. After every step the world checks what must never happen, and after quiescence
that nothing is left.

Run by hand: ``python tests/simulation/aqueduct/aqueduct_world.py --seed 17 --connections 3``
"""

from __future__ import annotations

import argparse
import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem.aqueduct.connection import AqueductConnection
from mainstem.aqueduct.connection_state import Timing
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
from mainstem.errors import BackPressured, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000
SECOND = 1_000_000_000
SMALL = Limits(receive_messages=6, send_messages=12, unreliable_outstanding=64)


@dataclass
class Faults:
    """How the network behaves; drawn from the seed."""

    datagram_loss: float
    late_stream: float
    split: float
    max_delay_ns: int
    vanish_on_reset: float
    stream_credit: int
    break_at_ns: int | None

    @classmethod
    def draw(cls, rng: random.Random) -> Faults:
        return cls(
            datagram_loss=rng.choice((0.0, 0.1, 0.5)),
            late_stream=rng.choice((0.0, 0.05, 0.3)),
            split=rng.choice((0.0, 0.5)),
            max_delay_ns=rng.choice((1, 5, 60)) * MS,
            vanish_on_reset=rng.choice((0.0, 0.5, 1.0)),
            stream_credit=rng.choice((4, 10, 1000)),
            break_at_ns=rng.randrange(3 * SECOND) if rng.random() < 0.15 else None,
        )


@dataclass
class Direction:
    """One stream's way from one side to the other."""

    chunks: list[tuple[bytes, bool]] = field(default_factory=list)
    ready_at: int = 0
    delivered: int = 0
    reset: bool = False
    done: bool = False
    watched_at: int | None = None


class Side:
    """One end of a connection: its protocol engine, and the application that drives it at random."""

    def __init__(self, world: World, name: str, *, is_client: bool) -> None:
        self.world = world
        self.name = name
        self.is_client = is_client
        timing = Timing(grace_ns=300 * MS)
        self.conn = AqueductConnection(is_client=is_client, limits=SMALL, timing=timing, peer=f"peer of {name}")
        self.peer: Side
        self.out: dict[int, Direction] = {}
        self.opened = 0
        self.senders: dict[int, Mode] = {0: Mode.ORDERED} if is_client else {}
        self.receivers: set[int] = set() if is_client else {0}
        # The halves that the application ever had in its hands while they lived, and how they ended.
        self.had: set[tuple[int, str]] = {(0, "sender")} if is_client else set()
        self.ended: dict[tuple[int, str], object] = {}
        self.over: object = None
        self.is_over = False

    # The application.

    def act(self) -> None:
        """Do one thing that an application may do."""
        rng, now = self.world.rng, self.world.now
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
                self.conn.close_receiver(channel_id, now)
                self.receivers.discard(channel_id)

    def end_sender(self, channel_id: int, *, finish: bool) -> None:
        if channel_id == 0 and self.world.rng.random() < 0.98:
            return
        (self.conn.finish if finish else self.conn.cancel)(channel_id, self.world.now)
        del self.senders[channel_id]

    def send(self, channel_id: int) -> None:
        world, rng = self.world, self.world.rng
        count = rng.choice((0, 0, 0, 1, 1, 2)) if len(self.senders) + len(self.receivers) < 60 else 0
        attach = [(rng.choice((Attach.SENDER, Attach.RECEIVER)), rng.random() < 0.3) for _ in range(count)]
        mode = self.senders[channel_id]
        if mode is Mode.UNRELIABLE and rng.random() < 0.2:
            mode = Mode.UNORDERED
        tag = world.new_message(self)
        payload = tag.to_bytes(4, "big") + bytes(rng.choice((0, 10, 3000)))
        if world.short is not None and not count and world.short.random() < 0.7:
            plain = self.conn.plain_sender(channel_id, mode)
            if plain is not None and plain.put(payload):
                world.messages[tag].untold = True
                return
        try:
            ids = self.conn.send(channel_id, payload, world.now, mode=mode, attach=attach, tag=tag)
        except BackPressured:
            world.messages.pop(tag)
            return
        except LocalProtocolError:
            # The channel ended, and the application has not heard of it yet.
            world.messages.pop(tag)
            return
        if channel_id & 4:
            del self.senders[channel_id]
        for (kind, _), new_id in zip(attach, ids, strict=True):
            if kind is Attach.RECEIVER:
                self.senders[new_id] = rng.choice(list(Mode))
                self.had.add((new_id, "sender"))
            else:
                self.receivers.add(new_id)
                self.had.add((new_id, "receiver"))

    def receive(self, channel_id: int) -> None:
        if self.world.short is not None and self.world.short.random() < 0.5:
            run = self.conn.receive_run(channel_id, self.world.now)
            for payload in run or ():
                self.world.delivered(int.from_bytes(payload[:4], "big"), self)
            if run is not None:
                return
        incoming = self.conn.receive(channel_id, self.world.now)
        if incoming is None:
            self.conn.want(channel_id)
            if self.conn.is_ready and self.conn.receiver_state(channel_id) is None:
                self.receivers.discard(channel_id)
            return
        tag = int.from_bytes(incoming.payload[:4], "big")
        self.world.delivered(tag, self)
        rng = self.world.rng
        for attachment in incoming.attachments:
            if not attachment.state.is_final:
                self.had.add((attachment.channel_id, "sender" if attachment.is_sender else "receiver"))
            if rng.random() < 0.15:
                self.conn.drop(attachment, self.world.now)
            elif attachment.is_sender:
                if attachment.state is SenderState.OPEN:
                    self.senders[attachment.channel_id] = rng.choice(list(Mode))
            elif attachment.state in (ReceiverState.OPEN, ReceiverState.FINISHING, ReceiverState.FINISHED):
                self.receivers.add(attachment.channel_id)

    def wind_down(self) -> None:
        """End everything that the application holds: what is left afterwards is a leak."""
        now = self.world.now
        if not self.conn.is_ready and not self.is_over:
            return
        for channel_id in sorted(self.senders):
            self.conn.finish(channel_id, now)
        for channel_id in sorted(self.receivers):
            self.conn.close_receiver(channel_id, now)
        self.senders.clear()
        self.receivers.clear()

    def hear(self) -> None:
        """Take the events."""
        while (event := self.conn.next_event()) is not None:
            if isinstance(event, PeerHeaders):
                if not self.is_client:
                    self.had.add((0, "receiver"))
                    self.conn.accept((("server", b"1"),), self.world.now)
            elif isinstance(event, Acknowledged):
                self.world.acknowledged(event.tag)
            elif isinstance(event, Lost):
                self.world.lost(event.tag)
            elif isinstance(event, SenderEnded | ReceiverEnded):
                kind = "sender" if isinstance(event, SenderEnded) else "receiver"
                key = (event.channel_id, kind)
                assert key not in self.ended, f"{self.name}: {key} ended twice: {self.ended[key]} and {event.state}"
                assert event.state.is_final, f"{self.name}: {key} ended in {event.state}"
                self.ended[key] = event.state
                if kind == "sender":
                    self.senders.pop(event.channel_id, None)
            elif isinstance(event, ConnectionEnded):
                self.over = event.error
                self.is_over = True

    # The network.

    def transmit(self) -> None:
        """Carry out the engine's commands."""
        world, rng = self.world, self.world.rng
        mine = 0 if self.is_client else 1
        live = [
            stream_id & 2
            for stream_id, way in self.out.items()
            if stream_id & 1 == mine and not self.is_over_both(stream_id, way)
        ]
        uni = max(0, world.faults.stream_credit - live.count(2))
        bidi = max(0, world.faults.stream_credit - live.count(0))
        self.conn.transport_state(bidi_streams=bidi, uni_streams=uni, datagrams=8, max_datagram=1150, rtt_ns=2 * MS)
        for command in self.conn.data_to_send(world.now):
            if isinstance(command, SendStream):
                self.send_stream(command)
            elif isinstance(command, ResetStream):
                direction = self.out.setdefault(command.stream_id, Direction())
                assert not direction.reset, f"{self.name}: stream {command.stream_id} reset twice"
                direction.reset = True
                if rng.random() < world.faults.vanish_on_reset:
                    direction.chunks.clear()
                world.at(world.delay(), self.peer.take_reset, command.stream_id, direction, command.code)
            elif isinstance(command, SendDatagram):
                if rng.random() >= world.faults.datagram_loss:
                    world.at(world.delay(), self.peer.take_datagram, command.data)
            elif isinstance(command, WatchDelivery):
                direction = self.out[command.stream_id]
                direction.watched_at = len(direction.chunks) + direction.delivered
                self.check_watch(command.stream_id, direction)
            elif isinstance(command, CloseConnection):
                world.at(world.delay(), self.peer.connection_lost)

    def send_stream(self, command: SendStream) -> None:
        world, rng = self.world, self.world.rng
        direction = self.out.get(command.stream_id)
        if direction is None:
            direction = self.out[command.stream_id] = Direction()
            if rng.random() < world.faults.late_stream:
                direction.ready_at = world.now + rng.randrange(2 * SECOND)
        assert not direction.reset, f"{self.name}: wrote to stream {command.stream_id} after its reset"
        data = command.data
        if len(data) > 1 and rng.random() < world.faults.split:
            cut = rng.randrange(1, len(data))
            direction.chunks.append((data[:cut], False))
            data = data[cut:]
            world.at(max(world.delay(), direction.ready_at), self.peer.take_stream, command.stream_id, direction)
        direction.chunks.append((data, command.fin))
        world.at(max(world.delay(), direction.ready_at), self.peer.take_stream, command.stream_id, direction)

    def is_over_both(self, stream_id: int, way: Direction) -> bool:
        """A stream counts against the credit until both its directions have ended."""
        back = self.peer.out.get(stream_id)
        return way.done and (bool(stream_id & 2) or (back is not None and back.done))

    def check_watch(self, stream_id: int, direction: Direction) -> None:
        if direction.watched_at is not None and direction.delivered >= direction.watched_at and not direction.reset:
            direction.watched_at = None
            self.world.at(self.world.delay(), lambda: self.conn.stream_delivered(stream_id, self.world.now))

    def take_stream(self, stream_id: int, direction: Direction) -> None:
        if direction.done or not direction.chunks:
            return
        data, fin = direction.chunks.pop(0)
        direction.delivered += 1
        direction.done = fin
        self.conn.receive_stream(stream_id, data, fin, self.world.now)
        self.peer.check_watch(stream_id, direction)

    def take_reset(self, stream_id: int, direction: Direction, code: int) -> None:
        if not direction.done:
            direction.done = True
            direction.chunks.clear()
            self.conn.receive_reset(stream_id, code, self.world.now)

    def take_datagram(self, data: bytes) -> None:
        self.conn.receive_datagram(data, self.world.now)

    def connection_lost(self) -> None:
        self.conn.connection_lost(None, self.world.now)


@dataclass
class MessageFate:
    """What is known of one message."""

    sent_by: str
    delivered: bool = False
    acknowledged: bool = False
    lost: bool = False
    # It went the short way: nobody is told what became of it.
    untold: bool = False


class World:
    """Everything in one run; ``run`` raises AssertionError where a promise is broken."""

    def __init__(self, seed: int, *, connections: int = 1, short: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        # What decides which messages go the short ways, where they are used at all.
        self.short = random.Random(seed) if short else None
        self.now = 1 * SECOND
        self.faults = Faults.draw(self.rng)
        self.messages: dict[int, MessageFate] = {}
        self.finished_messages = 0
        self._next_message = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0
        self.sides: list[Side] = []
        for index in range(connections):
            client = Side(self, f"client{index}", is_client=True)
            server = Side(self, f"server{index}", is_client=False)
            client.peer, server.peer = server, client
            self.sides += (client, server)
            client.conn.start(self.now)
        if self.faults.break_at_ns is not None:
            client = self.sides[0]
            self.at(self.now + self.faults.break_at_ns, client.connection_lost)
            self.at(self.now + self.faults.break_at_ns, client.peer.connection_lost)

    def delay(self) -> int:
        """When something that is sent now arrives."""
        return self.now + self.rng.randrange(1, self.faults.max_delay_ns)

    def at(self, when: int, what: Callable[..., None], *arguments: object) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (when, self._sequence, what, arguments))

    # The model of what happens to messages.

    def new_message(self, side: Side) -> int:
        self._next_message += 1
        self.messages[self._next_message] = MessageFate(side.name)
        return self._next_message

    def _fate(self, tag: object) -> MessageFate:
        assert isinstance(tag, int)
        return self.messages[tag]

    def delivered(self, tag: int, side: Side) -> None:
        fate = self._fate(tag)
        assert fate.sent_by == side.peer.name, f"message {tag} of {fate.sent_by} came to {side.name}"
        assert not fate.delivered, f"message {tag} delivered twice"
        assert not fate.lost, f"message {tag} delivered after it was reported lost"
        fate.delivered = True

    def acknowledged(self, tag: object) -> None:
        fate = self._fate(tag)
        assert not fate.acknowledged, f"message {tag} acknowledged twice"
        assert not fate.lost, f"message {tag} acknowledged after it was reported lost"
        fate.acknowledged = True

    def lost(self, tag: object) -> None:
        fate = self._fate(tag)
        assert not fate.lost, f"message {tag} reported lost twice"
        assert not fate.acknowledged, f"message {tag} reported lost after its acknowledgement"
        assert not fate.delivered, f"message {tag} reported lost after its delivery"
        fate.lost = True

    # The run.

    def step(self) -> bool:
        """One event of the network, of time, or of an application; False where nothing is due any more."""
        when = self._queue[0][0] if self._queue else None
        for side in self.sides:
            timeout = side.conn.next_timeout_ns()
            if timeout is not None and (when is None or timeout < when):
                when = timeout
        if when is None:
            return False
        self.now = max(self.now, when)
        while self._queue and self._queue[0][0] <= self.now:
            _, _, what, arguments = heapq.heappop(self._queue)
            what(*arguments)
        for side in self.sides:
            side.conn.handle_timeout(self.now)
        self.exchange()
        return True

    def exchange(self) -> None:
        for side in self.sides:
            side.hear()
            side.transmit()

    def run(self, *, actions: int = 150, interrupt: tuple[int, str] | None = None) -> None:
        """Everything, from the greeting to the last frame. ``interrupt`` says at which action all channels of the first
        client are cancelled or closed, or its connection breaks."""
        self.exchange()
        for number in range(actions):
            if interrupt is not None and number == interrupt[0]:
                self.interrupt(interrupt[1])
            for side in self.sides:
                if not side.is_over:
                    side.act()
            self.exchange()
            for _ in range(self.rng.randrange(4)):
                self.step()
        self.settle()
        self.check_quiescent()

    def interrupt(self, how: str) -> None:
        side = self.sides[0]
        if how == "break":
            side.connection_lost()
            side.peer.connection_lost()
        elif how == "cancel":
            for channel_id in sorted(side.senders):
                side.conn.cancel(channel_id, self.now)
            side.senders.clear()
        else:
            for channel_id in sorted(side.receivers):
                side.conn.close_receiver(channel_id, self.now)
            side.receivers.clear()
        self.exchange()

    def settle(self) -> None:
        """End everything and let the network run dry."""
        for _ in range(200_000):
            for side in self.sides:
                side.wind_down()
            self.exchange()
            if not self.step():
                break
        else:
            raise AssertionError("the world does not come to rest")

    def check_quiescent(self) -> None:
        for side in self.sides:
            assert side.over is None, f"{side.name}: {side.over}"
            conn = side.conn
            endless = side.had - side.ended.keys()
            assert not endless, f"{side.name} never heard how these ended: {sorted(endless)}"
            assert conn.live_halves == 0, f"{side.name} still holds {conn.live_halves} halves: {describe_halves(conn)}"
            assert conn.buffered_bytes == 0, f"{side.name} still holds {conn.buffered_bytes} bytes"
            left = conn.open_streams - (0 if side.is_over else 1)
            assert left == 0, f"{side.name} still knows {left} streams beside the connection's"
        broken = any(side.is_over for side in self.sides)
        for tag, fate in self.messages.items():
            assert broken or fate.acknowledged or fate.lost or fate.untold, f"nothing is known of message {tag}: {fate}"


def describe_halves(conn: AqueductConnection) -> list[str]:
    state = conn._state
    halves = (*state.senders.values(), *state.receivers.values(), *state.drained.values())
    return [
        f"{type(half).__name__} {half.channel_id} {half.state.name} "
        f"minted_here={half.minted_here} control={half.control is not None}"
        for half in halves
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="run one seed of the Aqueduct simulation")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="use the short ways of plain messages")
    arguments = parser.parse_args()
    world = World(arguments.seed, connections=arguments.connections, short=arguments.short)
    print(world.faults)
    world.run()
    fates = list(world.messages.values())
    print(
        f"{len(fates)} messages: {sum(f.delivered for f in fates)} delivered, "
        f"{sum(f.acknowledged for f in fates)} acknowledged, {sum(f.lost for f in fates)} lost, "
        f"in {(world.now - SECOND) / SECOND:.2f} simulated seconds"
    )


if __name__ == "__main__":
    main()
