"""Small programs over shared memory, every execution of which is explored: who runs what, and what must hold.

Each scenario builds its memory from few locations, names the functions that it tests (their mutants are tried too), and has one
function per thread. ``finish`` checks an end state: it reads what is left over, and compares the messages read with those written.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.models.explorer import Explorer, Fault, Outcome, Recorder
from tests.models.modelled import ModelledBuffer, ModelledMemory, World

from mainstem._core import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

INITIAL, SESSION, STREAM = 7, -7, 1001
LIMIT, POSITION, PRODUCED = 0, 1, 2
# A 32-byte slot of a term: length, version, flags, type, term offset, session, stream, term id, reserved value.
FRAME_CELLS = (4, 1, 1, 2, 4, 4, 4, 4, 8)
ROUNDS = 3


def check(condition: object, what: str) -> None:
    if not condition:
        raise Fault(what)


def cells(begin: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    out = []
    for size in sizes:
        out.append((begin, size))
        begin += size
    return out


class Scenario:
    """One program. ``core`` holds the modules, mutated or not."""

    functions: tuple[tuple[str, str], ...] = ()

    def __init__(self, core: SimpleNamespace) -> None:
        self.core = core

    def build(self) -> SimpleNamespace:
        raise NotImplementedError

    def threads(self) -> list[Callable[[Any], Any]]:
        raise NotImplementedError

    def finish(self, w: Any, results: list[Any]) -> None:
        raise NotImplementedError

    def protected(self, w: Any) -> list[int]:
        """Return the locations whose plain loads must happen before every later store."""
        return []

    def fresh(self) -> Any:
        self.core.holder.world = World()
        return self.build()

    def explore(self) -> Outcome:
        first = self.fresh()
        bodies = self.threads()

        def run(thread: int, recorder: Recorder) -> Any:
            w = self.fresh()
            self.core.holder.world.recorder = recorder
            return bodies[thread](w)

        def finish(results: list[Any], values: list[int]) -> None:
            w = self.fresh()
            self.core.holder.world.values = list(values)
            self.finish(w, results)

        world = self.core.holder.world
        protected = frozenset(self.protected(first))
        return Explorer(list(world.values), len(bodies), run, finish, protected).explore()


class W:
    """The attributes that a scenario built."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


# -- logs ----------------------------------------------------------------------------------------------------------


class LogScenario(Scenario):
    """A log of three small terms, a publisher limit and a subscriber position."""

    term = 128
    mtu = 64
    start = 0
    tracked = ((0, 384),)  # [from, to) of the log
    exclusive = False
    limit = 1 << 40

    def build(self) -> Any:
        w: Any = W()
        meta = self.meta = 3 * self.term
        slots = [at for begin, end in self.tracked for at in range(begin, end, 32)]
        log_cells = [cell for at in slots for cell in cells(at, FRAME_CELLS)]
        log_cells += cells(meta, (8, 8, 8, 4))
        length = meta + layout.LOG_METADATA_LENGTH
        world = self.core.holder.world
        w.log = ModelledBuffer(ModelledMemory(world, "log", length, log_cells), length)
        counters = [(LIMIT * 128, 8), (POSITION * 128, 8)]
        w.counters = ModelledBuffer(ModelledMemory(world, "counters", 512, counters), 512)
        w.counters.put_i64(LIMIT * 128, self.limit)
        w.counters.put_i64(POSITION * 128, self.start)
        header = meta + layout.LOG_DEFAULT_HEADER_OFFSET
        count = self.start // self.term
        for offset, value in (
            (meta + layout.LOG_TERM_LENGTH_OFFSET, self.term),
            (meta + layout.LOG_MTU_LENGTH_OFFSET, self.mtu),
            (meta + layout.LOG_INITIAL_TERM_ID_OFFSET, INITIAL),
            (meta + layout.LOG_IS_CONNECTED_OFFSET, 1),
            (header + layout.FRAME_SESSION_ID_OFFSET, SESSION),
            (header + layout.FRAME_STREAM_ID_OFFSET, STREAM),
            (meta + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, count),
        ):
            w.log.put_i32(offset, value)
        for i in range(3):
            term_id = INITIAL + count + (i if i == 0 else i - 3)
            offset = self.start % self.term if i == 0 else 0
            w.log.put_i64(meta + (count + i) % 3 * 8, (term_id << 32) + offset)
        appender = self.core.append.ExclusiveAppender if self.exclusive else self.core.append.ConcurrentAppender
        w.appenders = [appender(w.log, w.counters, LIMIT) for _ in range(1 if self.exclusive else 2)]
        w.image = self.core.read.ImageReader(w.log, w.counters, POSITION)
        w.read = []
        self.prepare(w)
        return w

    def prepare(self, w: Any) -> None:
        """Complete the set-up; scenarios override this."""

    def protected(self, w: Any) -> list[int]:
        return [index for index, name in enumerate(self.core.holder.world.names) if name.startswith("log+")]

    def receive(self, w: Any) -> Callable[[Any], None]:
        def handler(fragment: Any) -> None:
            payload = bytes(fragment)
            position = fragment.position
            check(fragment.session_id == SESSION and fragment.stream_id == STREAM, "a header that is not complete: ids")
            check(fragment.reserved_value == 0, "a header that is not complete: reserved value")
            check(fragment.type == layout.TYPE_DATA and fragment.version == 0, "a header that is not complete: type")
            check(
                fragment.term_offset == (position - 1) % self.term // 32 * 32 + 32 - (len(payload) + 63) // 32 * 32,
                "a header that is not complete: term offset",
            )
            check(not w.read or w.read[-1][0] < position, "positions that fall")
            w.read.append((position, fragment.flags, payload))

        return handler

    def poll(self, w: Any, rounds: int = ROUNDS) -> list[Any]:
        for _ in range(rounds):
            w.image.poll(self.receive(w), 10)
        return list(w.read)

    def rest(self, w: Any) -> list[Any]:
        return self.poll(w, 6)

    def offer(self, appender: Any, message: bytes) -> int:
        for _ in range(3):
            position = int(appender.offer(message))
            if position > 0:
                return position
            check(position == layout.OFFER_ADMIN_ACTION, f"an offer returned {position}")
        raise Fault("an offer that never ends")

    def check_messages(self, read: list[Any], sent: list[list[tuple[int, bytes]]]) -> None:
        """Check that each message was read once, at the position that its producer got, and that each producer's positions rise."""
        expected = sorted(each for producer in sent for each in producer)
        check([(position, payload) for position, _, payload in read] == expected, f"{read} was read of {expected}")
        for producer in sent:
            check(producer == sorted(producer), "positions of a producer that fall")


APPEND = tuple(
    ("log.append", name)
    for name in (
        "Appender.put_header", "Appender.put_pad", "Appender.put_message", "ConcurrentAppender.next_offset",
        "ConcurrentAppender.take", "ConcurrentAppender.rotate",
    )
)  # fmt: skip
READ = (("log.read", "ImageReader.deliver"), ("log.read", "ImageReader.leave"))


class TwoPublications(LogScenario):
    """Two publications with one message each; the second to claim pads the end of the term and rotates. One subscriber."""

    functions = (*APPEND, *READ)
    start = 32
    tracked = ((32, 192),)

    def threads(self) -> list[Callable[[Any], Any]]:
        return [
            lambda w: [(self.offer(w.appenders[0], b"aaaaA"), b"aaaaA")],
            lambda w: [(self.offer(w.appenders[1], b"bbbbB"), b"bbbbB")],
            lambda w: self.poll(w, 2),
        ]

    def finish(self, w: Any, results: list[Any]) -> None:
        self.check_messages(results[2] + self.rest(w), results[:2])


class Rotation(LogScenario):
    """Two publications that both reach the end of a term, and a third party that reads their position twice."""

    functions = (
        ("log.append", "ConcurrentAppender.next_offset"),
        ("log.append", "ConcurrentAppender.take"),
        ("log.append", "ConcurrentAppender.rotate"),
        ("log.term", "tail_position"),
        ("log.append", "Appender.position"),
    )
    term = 64
    start = 64
    tracked = ((128, 192),)

    def prepare(self, w: Any) -> None:
        w.log.put_i64(self.meta + 8, ((INITIAL + 1) << 32) + 64)  # the term is full

    def threads(self) -> list[Callable[[Any], Any]]:
        def observe(w: Any) -> None:
            positions = [int(w.appenders[0].position), self.core.term.tail_position(w.log.base, 192, 64, INITIAL)]
            check(positions[0] >= 128 and positions[1] >= positions[0], f"the position fell: {positions}")
            check(positions[1] % 32 == 0 and positions[1] <= 256, f"no position: {positions}")

        return [
            lambda w: [(self.offer(w.appenders[0], b""), b"")],
            lambda w: [(position, b"")] if (position := int(w.appenders[1].offer(b""))) > 0 else [],
            observe,
        ]

    def finish(self, w: Any, results: list[Any]) -> None:
        w.counters.put_i64(POSITION * 128, 128)
        self.check_messages(self.rest(w), results[:2])


class Fragments(LogScenario):
    """One message of two frames, and a subscriber."""

    functions = (("log.append", "Appender.put_header"), ("log.append", "Appender.put_message"), *READ[:1])
    term = 512
    tracked = ((0, 128),)
    exclusive = True
    message = b"0123456789abcdefghijklmnopqrstuvWXYZ"

    def threads(self) -> list[Callable[[Any], Any]]:
        return [lambda w: self.offer(w.appenders[0], self.message), lambda w: self.poll(w, 2)]

    def finish(self, w: Any, results: list[Any]) -> None:
        read = results[1] + self.rest(w)
        expected = [(64, layout.FLAG_BEGIN, self.message[:32]), (128, layout.FLAG_END, self.message[32:])]
        check(read == expected, f"{read} was read")


class Claims(LogScenario):
    """Two claims in one term, the first committed and the second aborted, then a message in the next term."""

    functions = (
        ("log.append", "Appender.put_header"),
        ("log.append", "BufferClaim._finish"),
        *READ[:1],
    )
    term = 128
    tracked = ((0, 192),)
    exclusive = True

    def threads(self) -> list[Callable[[Any], Any]]:
        def write(w: Any) -> list[tuple[int, bytes]]:
            claim = self.core.append.BufferClaim()
            first = int(w.appenders[0].try_claim(5, claim))
            claim.view[:] = b"aaaaA"
            claim.commit()
            check(w.appenders[0].try_claim(5, claim) > 0, "no claim")
            claim.view[:] = b"xxxxX"
            claim.abort()
            return [(first, b"aaaaA"), (self.offer(w.appenders[0], b"bbbbB"), b"bbbbB")]

        return [write, self.poll]

    def finish(self, w: Any, results: list[Any]) -> None:
        self.check_messages(results[1] + self.rest(w), results[:1])


class ExclusiveRotation(LogScenario):
    """An exclusive publication continues into the next term; another process reads its position twice, in two ways."""

    functions = (
        ("log.append", "ExclusiveAppender.publish_tail"),
        ("log.append", "ExclusiveAppender.rotate"),
        ("log.term", "tail_position"),
        ("log.append", "Appender.position"),
    )
    term = 64
    start = 32
    tracked = ((32, 128),)
    exclusive = True

    def threads(self) -> list[Callable[[Any], Any]]:
        def observe(w: Any) -> None:
            positions = [int(w.appenders[0].position), self.core.term.tail_position(w.log.base, 192, 64, INITIAL)]
            check(32 <= positions[0] <= positions[1] <= 128, f"the position fell: {positions}")

        return [lambda w: [(self.offer(w.appenders[0], b""), b"") for _ in range(3)], observe]

    def finish(self, w: Any, results: list[Any]) -> None:
        self.check_messages(self.rest(w), results[:1])


class Batch(LogScenario):
    """Three messages offered as a batch, and a subscriber that must find all of them at once."""

    functions = (("log.append", "Appender.put_run"), *READ[:1])
    term = 2048
    tracked = ((0, 192),)
    exclusive = True
    messages = (b"aaaaA", b"", b"ccccC")

    def threads(self) -> list[Callable[[Any], Any]]:
        def read(w: Any) -> list[Any]:
            self.poll(w, 1)
            check(len(w.read) in (0, 3), f"a run of which {len(w.read)} of 3 messages were there")
            return self.poll(w, 1)

        return [lambda w: w.appenders[0].offer_many(list(self.messages)), read]

    def finish(self, w: Any, results: list[Any]) -> None:
        check(results[0] == (3, 160), f"offer_many returned {results[0]}")
        self.check_messages(results[1] + self.rest(w), [list(zip((64, 96, 160), self.messages, strict=True))])


def frame(position: int, payload: bytes, term: int) -> bytes:
    data = struct.pack(
        "<iBBHiiiiq",
        32 + len(payload),
        0,
        layout.FLAG_UNFRAGMENTED,
        layout.TYPE_DATA,
        position % term,
        SESSION,
        STREAM,
        INITIAL + position // term,
        0,
    )
    return (data + payload).ljust(-(-len(payload) // 32) * 32 + 32, b"\0")


class Block(LogScenario):
    """Two prepared frames appended as one block, and a subscriber."""

    functions = (("log.append", "ExclusiveAppender.append_block"), *READ[:1])
    term = 2048
    tracked = ((0, 128),)
    exclusive = True

    def threads(self) -> list[Callable[[Any], Any]]:
        block = frame(0, b"aaaaA", 2048) + frame(64, b"bbbbB", 2048)
        return [lambda w: w.appenders[0].offer_block(bytearray(block)), lambda w: self.poll(w, 2)]

    def finish(self, w: Any, results: list[Any]) -> None:
        self.check_messages(results[1] + self.rest(w), [[(64, b"aaaaA"), (128, b"bbbbB")]])


class Insert(LogScenario):
    """A receiver inserts two datagrams, the later one first, and then repeats one; a subscriber polls."""

    functions = (("log.term", "insert_frames"), *READ[:1])
    tracked = ((0, 128),)
    exclusive = True

    def threads(self) -> list[Callable[[Any], Any]]:
        def receive(w: Any) -> None:
            second, first = bytearray(frame(64, b"bbbbB", 128)), bytearray(frame(0, b"aaaaA", 128))
            for at, datagram in ((64, second), (0, first), (64, second)):
                self.core.term.insert(w.log, at, ModelledBuffer(datagram))

        return [receive, lambda w: self.poll(w, 2)]

    def finish(self, w: Any, results: list[Any]) -> None:
        self.check_messages(results[1] + self.rest(w), [[(64, b"aaaaA"), (128, b"bbbbB")]])


class Cleaning(LogScenario):
    """A full cycle of flow control.

    The subscriber reads three terms, the driver cleans and raises the limit, and the publication writes where the first term was.
    """

    functions = (
        ("driver.ipc_path", "IpcPath.work"),
        ("log.term", "clean_bytes"),
        ("driver.positions", "PositionSet.lowest"),
        ("log.append", "ConcurrentAppender.next_offset"),
        *READ,
    )
    term = 64
    start = 0
    tracked = ((0, 192),)
    limit = 64

    def prepare(self, w: Any) -> None:
        w.path = self.core.ipc_path.IpcPath(w.log, w.counters, INITIAL, 64, 64, LIMIT, PRODUCED)
        w.path.subscribers.add(POSITION)
        w.path.populated_position = 1 << 60
        # Three terms are full; the fourth is active and occupies the memory of the first.
        for i in range(3):
            w.log.put_bytes(64 * i, frame(64 * i, b"old", 64))
            w.log.put_i64(64 * i + layout.FRAME_RESERVED_VALUE_OFFSET, i)
            w.log.put_i64(self.meta + 8 * i, ((INITIAL + i) << 32) + 64)
        w.log.put_i64(self.meta, (INITIAL + 3) << 32)
        w.log.put_i32(self.meta + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, 3)

    def threads(self) -> list[Callable[[Any], Any]]:
        def drive(w: Any) -> None:
            for _ in range(5):
                w.path.work(0)

        def write(w: Any) -> int:
            return int(w.appenders[0].offer(b"newNE"))

        def read(w: Any) -> list[int]:
            # One field per frame is enough to detect overwriting, and keeps the number of states small.
            for _ in range(3):
                w.image.poll(lambda fragment: w.read.append(fragment.reserved_value), 10)
            return list(w.read)

        return [write, read, drive]

    def finish(self, w: Any, results: list[Any]) -> None:
        new = [(256, b"newNE")] if results[0] > 0 else []
        check(results[1] == [0, 1, 2][: len(results[1])], f"{results[1]} was read")
        if results[0] > 0:
            w.read.clear()
            w.counters.put_i64(POSITION * 128, 192)
            rest = self.poll(w, 1)
            check([(p, m) for p, _, m in rest] == new, f"the new message is spoilt: {rest}")


# -- the ring buffer -----------------------------------------------------------------------------------------------


class RingScenario(Scenario):
    """A ring of 64 bytes with records of 16 bytes."""

    start = 0

    def build(self) -> Any:
        w: Any = W()
        trailer = [
            (64 + at, 8) for at in (layout.RING_TAIL_OFFSET, layout.RING_HEAD_CACHE_OFFSET, layout.RING_HEAD_OFFSET)
        ]
        length = 64 + layout.RING_TRAILER_LENGTH
        memory = ModelledMemory(self.core.holder.world, "ring", length, [(at, 4) for at in range(0, 64, 4)] + trailer)
        w.buffer = ModelledBuffer(memory, length)
        for at, _ in trailer:
            w.buffer.put_i64(at, self.start)
        w.ring = self.core.ring_buffer.ManyToOneRingBuffer(w.buffer)
        w.read = []
        self.prepare(w)
        return w

    def prepare(self, w: Any) -> None:
        """Complete the set-up; scenarios override this."""

    def protected(self, w: Any) -> list[int]:
        return list(range(16))

    def receive(self, w: Any, rounds: int) -> list[Any]:
        for _ in range(rounds):
            w.ring.read(lambda kind, payload: w.read.append((kind, payload)))
        return list(w.read)

    def check_end(self, w: Any, read: list[Any], expected: list[list[Any]]) -> None:
        read = read + self.receive(w, 4)
        check(sorted(read) == sorted(each for one in expected for each in one), f"{read} was read of {expected}")
        for one in expected:
            check([each for each in read if each in one] == one, f"{read}: not in the order of {one}")
        check(w.ring.size == 0, "records that were never read")
        check(not any(self.core.holder.world.values[:16]), "a consumed record that was not zeroed")


RING = tuple(
    ("memory.ring_buffer", f"ManyToOneRingBuffer.{name}")
    for name in ("claim_record", "try_claim", "commit", "write", "read")
)


class TwoProducers(RingScenario):
    """Two producers, with eight bytes left before the end: one of them pads. One consumer."""

    functions = RING
    start = 56

    def threads(self) -> list[Callable[[Any], Any]]:
        return [
            lambda w: [(1, b"aaaaAAAA")] if w.ring.write(1, b"aaaaAAAA") else [],
            lambda w: [(2, b"bbbbBBBB")] if w.ring.write(2, b"bbbbBBBB") else [],
            lambda w: self.receive(w, 2),
        ]

    def finish(self, w: Any, results: list[Any]) -> None:
        self.check_end(w, results[2], results[:2])


class FullRing(RingScenario):
    """A full ring: the two producers can write only where the consumer has read and zeroed."""

    functions = RING
    old = tuple((9, b"old%d...." % i) for i in range(4))

    def prepare(self, w: Any) -> None:
        for kind, payload in self.old:
            w.ring.write(kind, payload)

    def threads(self) -> list[Callable[[Any], Any]]:
        return [
            lambda w: [(1, b"aaaaAAAA")] if w.ring.write(1, b"aaaaAAAA") else [],
            lambda w: [(2, b"bbbbBBBB")] if w.ring.write(2, b"bbbbBBBB") else [],
            lambda w: w.ring.read(lambda kind, payload: w.read.append((kind, payload)), 2) and list(w.read),
        ]

    def finish(self, w: Any, results: list[Any]) -> None:
        w.read.clear()
        self.check_end(w, results[2], [list(self.old), results[0], results[1]])


class DeadProducer(RingScenario):
    """A producer that died between its claim and its first store, a live producer, and a consumer that unblocks."""

    functions = (*RING[1:], ("memory.ring_buffer", "ManyToOneRingBuffer.unblock_record"))

    def prepare(self, w: Any) -> None:
        w.ring.claim_record(8)

    def threads(self) -> list[Callable[[Any], Any]]:
        def consume(w: Any) -> list[Any]:
            unblocked = w.ring.unblock()
            return [unblocked, *self.receive(w, 2)]

        return [lambda w: [(1, b"aaaaAAAA")] if w.ring.write(1, b"aaaaAAAA") else [], consume]

    def finish(self, w: Any, results: list[Any]) -> None:
        unblocked, *read = results[1]
        if not unblocked:
            check(w.ring.unblock(), "a dead producer's record that stays")
        self.check_end(w, read, results[:1])


# -- the broadcast buffer ------------------------------------------------------------------------------------------


class Broadcast(Scenario):
    """A receiver that its transmitter laps. Every record is received, or the loss of some is detected."""

    functions = (
        ("memory.broadcast", "BroadcastTransmitter.transmit"),
        ("memory.broadcast", "BroadcastReceiver.validate"),
        ("memory.broadcast", "BroadcastReceiver.receive_next"),
        ("memory.broadcast", "BroadcastReceiver.receive"),
    )
    # The first record of the second lap covers two of the first lap. If all records had the same length, the intent of the previous
    # record would already rule out the one that is overwritten.
    before: tuple[bytes, ...] = (b"", b"1111....", b"2222....", b"3333....", b"")
    after: tuple[bytes, ...] = (b"4444....", b"5555....")
    first = 1  # records received before the test
    rounds = 3

    def build(self) -> Any:
        w: Any = W()
        length = 64 + layout.BROADCAST_TRAILER_LENGTH
        regions = [(at, 4) for at in range(0, 64, 4)] + [(64 + at, 8) for at in (0, 8, 16)]
        buffer = ModelledBuffer(ModelledMemory(self.core.holder.world, "broadcast", length, regions), length)
        w.transmitter = self.core.broadcast.BroadcastTransmitter(buffer)
        w.receiver = self.core.broadcast.BroadcastReceiver(buffer)
        w.read = []
        for i, payload in enumerate(self.before):
            w.transmitter.transmit(i + 1, payload)
            if i < self.first:
                w.receiver.receive(lambda kind, payload: None)
        return w

    def threads(self) -> list[Callable[[Any], Any]]:
        def transmit(w: Any) -> None:
            for i, payload in enumerate(self.after):
                w.transmitter.transmit(len(self.before) + i + 1, payload)

        records = list(enumerate(self.before + self.after, 1))

        def receive(w: Any) -> list[Any]:
            for _ in range(self.rounds):
                if w.receiver.receive(lambda kind, payload: w.read.append((kind, payload))) < 0:
                    break
                check(set(w.read) <= set(records), f"a record that was never written: {w.read}")
                expected = records[self.first : self.first + len(w.read)]
                check(w.read == expected, f"records were lost unnoticed: {w.read}")
            kinds = [kind for kind, _ in w.read]
            check(kinds == sorted(set(kinds)), f"records twice, or out of order: {kinds}")
            return list(w.read)

        return [transmit, receive]

    def finish(self, w: Any, results: list[Any]) -> None:
        return


class BroadcastNext(Broadcast):
    """A receiver that keeps up: it reads records that were written just before."""

    before = (b"1111....",)
    after = (b"2222....", b"3333....")
    rounds = 2


class BroadcastPadding(Broadcast):
    """Like Broadcast, but the record of the second lap follows padding."""

    before = (b"", b"1111....", b"2222....", b"3333....")
    after = (b"4444....",)
    first = 1
    rounds = 3


class BroadcastMisread(Broadcast):
    """Payload overwrites the next record's header and reads as padding of a huge length."""

    before = (b"", b"", b"2222....", b"3333....", b"4444....")
    after = (struct.pack("<ii", 0x40000000, -1),)
    first = 1
    rounds = 2


# -- counters ------------------------------------------------------------------------------------------------------


class Counters(Scenario):
    """A process allocates a counter and its label grows, while another process looks for it."""

    functions = (
        ("memory.counters", "CountersManager.allocate"),
        ("memory.counters", "CountersReader.set_label"),
        ("memory.counters", "CountersReader.label_bytes"),
        ("memory.counters", "CountersReader.next_allocated"),
        ("memory.counters", "CountersReader.find"),
    )

    def build(self) -> Any:
        w: Any = W()
        world = self.core.holder.world
        regions = [*cells(0, (4, 4, 8)), (16, 8), *cells(layout.COUNTER_LABEL_LENGTH_OFFSET, (4, 2, 2))]
        metadata = ModelledBuffer(ModelledMemory(world, "metadata", 512, regions), 512)
        values = ModelledBuffer(ModelledMemory(world, "values", 128, cells(0, (8, 8, 8, 8))), 128)
        w.manager = self.core.counters.CountersManager(metadata, values)
        w.reader = self.core.counters.CountersReader(metadata, values)
        return w

    def threads(self) -> list[Callable[[Any], Any]]:
        def allocate(w: Any) -> None:
            w.manager.allocate(5, b"keykeyke", b"ab", registration_id=77, owner_id=3, value=9)
            w.manager.set_label(0, b"abcd")

        def find(w: Any) -> None:
            counter_id = w.reader.find(5, 77)
            for found in w.reader:
                check(w.reader.registration_id(found) == 77, "a counter without its registration id")
                counter_id = found
            if counter_id >= 0:
                check(w.reader.value(counter_id) == 9, "a counter without its value")
                check(w.reader.type_id(counter_id) == 5, "a counter without its type")
                check(w.reader.key(counter_id)[:8] == b"keykeyke", "a counter without its key")
                check(w.reader.label_bytes(counter_id) in (b"ab", b"abcd"), "a label that is neither old nor new")

        return [allocate, find]

    def finish(self, w: Any, results: list[Any]) -> None:
        check(w.reader.find(5, 77) == 0, "a counter that is not found")


# -- guarded mappings ----------------------------------------------------------------------------------------------


class ReusedPlace(Scenario):
    """A place of the table of guarded mappings is withdrawn and reused, while an access to another mapping finds a missing page.

    The address of the access is in neither of the two ranges of the reused place, but between the begin of the later one and the
    end of the earlier one.
    """

    functions = tuple(("memory.bus_guard", name) for name in ("is_free", "publish", "withdraw", "end_around", "cover"))
    address = 0x3000
    own = (0x3000, 0x4000)
    earlier = (0x5000, 0x9000)
    later = (0x1000, 0x2000)

    def build(self) -> Any:
        w: Any = W()
        world = self.core.holder.world
        guard = self.core.bus_guard
        length = 2 * guard.PLACE_LENGTH
        w.table = ModelledMemory(world, "table", length, cells(0, (8,) * (length // 8)))
        guard.publish(w.table, 0, *self.earlier)
        guard.publish(w.table, guard.PLACE_LENGTH, *self.own)
        return w

    def threads(self) -> list[Callable[[Any], Any]]:
        guard = self.core.bus_guard

        def close(w: Any) -> None:
            guard.withdraw(w.table, 0)

        def open_another(w: Any) -> bool:
            if not guard.is_free(w.table, 0):
                return False
            guard.publish(w.table, 0, *self.later)
            # This thread accesses its mapping, so what it has just published is there, and nothing of the earlier range.
            found = guard.end_around(w.table, 0, self.later[0])
            check(found == self.later[1], "a mapping is not guarded by the thread that opened it")
            return True

        def access(w: Any) -> int:
            end: int = guard.cover(w.table, 2, self.address)
            return end

        return [close, open_another, access]

    def finish(self, w: Any, results: list[Any]) -> None:
        guard = self.core.bus_guard
        _, is_reused, end = results
        check(end == self.own[1], f"zeros are mapped up to {end:#x}")
        check(guard.ld64(w.table, guard.CUT_OFFSET) == 0, "the flag of another mapping is set")
        check(guard.ld64(w.table, guard.PLACE_LENGTH + guard.CUT_OFFSET) == 1, "the flag of the mapping is not set")
        found = guard.end_around(w.table, 0, self.later[0])
        check(found == (self.later[1] if is_reused else 0), f"the reused place guards a range up to {found:#x}")


class ReusedPlaceAbove(ReusedPlace):
    """Like ReusedPlace, but the address is between the begin of the earlier range and the end of the later one."""

    earlier = (0x1000, 0x2000)
    later = (0x5000, 0x9000)


class ReusedAddress(ReusedPlace):
    """Two more places contain the address for a moment, because the addresses of a closed mapping are reused at once."""

    address = 0x6000
    own = (0x5000, 0x7000)
    later = (0x5000, 0x8000)

    def finish(self, w: Any, results: list[Any]) -> None:
        guard = self.core.bus_guard
        _, is_reused, end = results
        check(end == self.own[1], f"zeros are mapped up to {end:#x}")
        check(guard.ld64(w.table, guard.PLACE_LENGTH + guard.CUT_OFFSET) == 1, "the flag of the mapping is not set")
        found = guard.end_around(w.table, 0, self.later[0])
        check(found == (self.later[1] if is_reused else 0), f"the reused place guards a range up to {found:#x}")


SCENARIOS = (
    TwoPublications, Rotation, Fragments, Claims, ExclusiveRotation, Batch, Block, Insert, Cleaning, TwoProducers, FullRing,
    DeadProducer, Broadcast, BroadcastNext, BroadcastPadding, BroadcastMisread, Counters, ReusedPlace,
    ReusedPlaceAbove, ReusedAddress,
)  # fmt: skip
