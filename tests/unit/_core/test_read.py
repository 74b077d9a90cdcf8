from __future__ import annotations

import array
import gc
import threading
import time
from typing import Any

import pytest
from tests.support.waiting import StallTimeout, wait_for
from tests.unit._core.logs import COMPILED, POSITION, UNCOMPILED, Core, Log, T

from mainstem._core import layout
from mainstem.errors import LocalProtocolError

ABORT, BREAK, COMMIT, CONTINUE = 1, 2, 3, 4


@pytest.fixture(params=[COMPILED, UNCOMPILED], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Core:
    return request.param


@pytest.fixture
def log(core: Core) -> Log:
    return Log(core)


def subscription_of(core: Core, *images: Any) -> Any:
    subscription = core.read.SubscriptionReader()
    subscription._set_images(images)
    return subscription


class Bag(list):
    """A handler that keeps the payloads."""

    def __call__(self, fragment: Any) -> None:
        self.append(bytes(fragment))


def test_polls_up_to_the_limit_and_moves_the_position_once_at_the_end(log: Log):
    log.concurrent().offer_many([b"a", b"b", b"c"])
    image, seen = log.image(), []
    assert image.poll(lambda f: seen.append((bytes(f), log.position)), 2) == 2
    assert seen == [(b"a", 0), (b"b", 0)]
    assert log.position == image.position == 128
    assert image.poll(lambda f: seen.append((bytes(f), log.position))) == 1
    assert image.poll(Bag()) == 0
    assert log.position == 192


def test_a_fragment_knows_its_header_and_its_position(log: Log):
    publication = log.concurrent()
    publication.offer(b"first")
    publication.offer(b"second!", reserved_value=-9)
    seen = []

    def handler(fragment: Any) -> None:
        names = "frame_length version flags type term_offset session_id stream_id term_id reserved_value position"
        seen.append([getattr(fragment.header, name) for name in [*names.split(), "initial_term_id", "position_bits"]])
        seen.append((len(fragment), bytes(fragment.view), fragment[0], fragment[1:3], repr(fragment)))

    image = log.image()
    image.poll(handler)
    assert seen[2] == [39, 0, 0xC0, 1, 64, -7, 1001, (1 << 31) - 2, -9, 128, (1 << 31) - 2, 16]
    assert seen[3] == (7, b"second!", ord("s"), b"ec", "<Fragment of 7 bytes, session -7, position 128>")


def test_a_fragment_is_not_valid_after_the_call(log: Log):
    log.concurrent().offer(b"x")
    kept = []
    log.image().poll(kept.append)
    assert len(kept[0]) == 0
    assert repr(kept[0]) == "<Fragment, no longer valid>"
    for use in (lambda f: bytes(f), lambda f: f.view, lambda f: f.position, lambda f: f[0], lambda f: f.session_id):
        with pytest.raises(LocalProtocolError, match="valid only inside the call"):
            use(kept[0])


def test_a_view_that_is_kept_holds_the_memory():
    log = Log()
    log.concurrent().offer(b"kept")
    kept: list[memoryview] = []
    log.image().poll(lambda f: kept.append(f.view))
    assert (kept[0].readonly, bytes(kept[0]), kept[0].format, kept[0].shape) == (True, b"kept", "B", (4,))
    with pytest.raises(BufferError):
        log.memory.close()
    assert bytes(kept[0]) == b"kept"
    kept.clear()
    gc.collect()
    log.memory.close()


def test_padding_is_skipped_and_not_counted(log: Log):
    publication, claim = log.concurrent(), log.core.append.BufferClaim()
    publication.try_claim(40, claim)
    claim.abort()
    publication.offer(b"x")
    publication.append_padding(64)
    bag = Bag()
    image = log.image()
    assert image.poll(bag, 1) == 1
    assert bag == [b"x"]
    assert image.poll(bag) == 0
    assert image.position == 96 + 64 + 96


def test_stops_at_a_claim_that_is_open(log: Log):
    publication, claim = log.concurrent(), log.core.append.BufferClaim()
    publication.try_claim(1, claim)
    publication.offer(b"behind")
    image, bag = log.image(), Bag()
    assert image.poll(bag) == 0
    claim.view[:] = b"c"
    claim.commit()
    assert image.poll(bag) == 2
    assert bag == [b"c", b"behind"]


def test_a_poll_ends_at_the_end_of_a_term_and_the_next_continues_in_the_next_one(log: Log):
    publication = log.concurrent()
    messages = [b"%06d" % i for i in range(2500)]
    assert publication.offer_many(messages)[0] == 2500
    image, bag = log.image(), Bag()
    assert image.poll(bag, 5000) == 1024
    assert image.poll(bag, 5000) == 1024
    assert image.poll(bag, 5000) == 452
    assert bag == messages
    assert image.position == 2500 * 64


def test_the_position_moves_past_what_the_handler_raised_on(log: Log):
    log.concurrent().offer_many([b"a", b"b", b"c"])
    image, seen = log.image(), []

    def handler(fragment: Any) -> None:
        seen.append(bytes(fragment))
        if len(seen) == 2:
            raise KeyError

    with pytest.raises(KeyError):
        image.poll(handler)
    assert image.position == 128
    assert image.poll(handler) == 1
    assert seen == [b"a", b"b", b"c"]


def test_a_poll_inside_its_own_handler_is_refused(log: Log):
    log.concurrent().offer_many([b"a", b"b"])
    image = log.image()
    with pytest.raises(LocalProtocolError, match="polled already"):
        image.poll(lambda f: image.poll(Bag()))
    assert image.poll(Bag()) == 1


def test_an_image_may_be_closed_by_its_own_handler(log: Log):
    log.concurrent().offer_many([b"a", b"b"])
    image = log.image()
    seen = []

    def handler(fragment: Any) -> None:
        seen.append(bytes(fragment))
        image._detach()

    assert image.poll(handler) == 1
    assert seen == [b"a"]
    assert image.position == 0 == log.position
    assert image.poll(handler) == 0
    assert image.poll_bytes() == []
    assert image.block_poll(handler, 100) == 0
    assert image.controlled_poll(handler) == 0
    assert (image.is_end_of_stream, image.end_of_stream_position, image.active_transport_count) == (False, 0, 0)
    image._detach()


def test_a_bounded_poll_takes_only_fragments_before_the_position(log: Log):
    log.concurrent().offer_many([b"a", b"b", b"c"])
    image, bag = log.image(), Bag()
    assert image.bounded_poll(bag, 128) == 2
    assert image.bounded_poll(bag, 128) == 0
    assert image.bounded_poll(bag, 64) == 0
    assert image.bounded_poll(bag, 1 << 40, limit=1) == 1
    assert bag == [b"a", b"b", b"c"]


def test_a_controlled_poll_does_what_its_handler_answers(log: Log):
    log.concurrent().offer_many([b"%d" % i for i in range(8)])
    image, seen = log.image(), []

    def poll(*answers: int | None) -> int:
        left = list(answers)

        def handler(fragment: Any) -> int | None:
            seen.append((bytes(fragment), log.position))
            return left.pop(0)

        return int(image.controlled_poll(handler, 3))

    assert poll(CONTINUE, None, CONTINUE) == 3
    assert (log.position, seen[-1]) == (192, (b"2", 0))
    assert poll(CONTINUE, ABORT) == 1
    assert (log.position, seen[-1]) == (256, (b"4", 192))
    assert poll(BREAK) == 1
    assert (log.position, seen[-1]) == (320, (b"4", 256))
    assert poll(COMMIT, COMMIT, CONTINUE) == 3
    assert (log.position, seen[-2:]) == (512, [(b"6", 384), (b"7", 448)])


def test_a_controlled_polls_handler_must_answer_an_action(log: Log):
    log.concurrent().offer_many([b"a", b"b"])
    image = log.image()
    with pytest.raises(ValueError, match="not an action"):
        image.controlled_poll(lambda f: 7)
    assert image.position == 64


def test_a_block_is_a_run_of_whole_frames_and_ends_before_padding(log: Log):
    publication = log.concurrent()
    publication.offer_many([b"a", b"b", b"c"])
    publication.append_padding(64)
    publication.offer(b"d")
    image, seen = log.image(), []

    def handler(block: Any) -> None:
        seen.append((len(block), block.term_offset, block.type, block.position, bytes(block)[:4]))

    assert image.block_poll(handler, 63) == 0
    assert image.block_poll(handler, 150) == 128
    assert image.block_poll(handler, 4096) == 64
    assert image.block_poll(handler, 4096) == 96
    assert image.block_poll(handler, 4096) == 64
    assert [part[:4] for part in seen] == [(128, 0, 1, 128), (64, 128, 1, 192), (96, 192, 0, 288), (64, 288, 1, 352)]
    assert image.position == 352


def test_split_messages_are_put_together(core: Core):
    log = Log(core, mtu=96)
    publication = log.concurrent()
    messages = [bytes([i]) * (i * 37) for i in range(20)]
    for message in messages:
        assert publication.offer(message, reserved_value=len(message)) > 0
    position = publication.position
    image, seen = log.image(), []

    def handler(f: Any) -> None:
        seen.append((bytes(f), f.header.flags, f.header.frame_length, f.reserved_value, f.position))

    while image.poll(core.assemble.FragmentAssembler(handler), 1000):
        pass
    assert [part[0] for part in seen] == messages
    assert all(part[1:4] == (0xC0, len(part[0]) + 32, len(part[0])) for part in seen)
    assert seen[-1][4] == position
    assert [part[4] for part in seen] == sorted(part[4] for part in seen)


@pytest.mark.parametrize("method", ["poll_messages", "poll_bytes"])
def test_whole_messages_may_be_polled_without_an_assembler(core: Core, method: str):
    log = Log(core, mtu=96)
    publication = log.concurrent()
    messages = [bytes([i]) * (i * 37) for i in range(20)]
    publication.offer_many(messages)
    subscription = subscription_of(core, log.image())
    bag = Bag()
    while len(bag) < 20:
        if method == "poll_bytes":
            bag += subscription.poll_bytes(3)
        else:
            assert subscription.poll_messages(bag, 3) <= 3
    assert bag == messages
    assert log.position == publication.position


def test_a_message_without_its_beginning_or_middle_is_dropped(core: Core):
    log = Log(core, mtu=96)
    publication = log.concurrent()
    publication.offer(b"1" * 150)
    publication.offer(b"2" * 150)
    publication.offer(b"3" * 150)
    log.counters.put_i64(2 * 128, 96)
    image, bag = log.image(), Bag()
    # The middle fragment of the second message is missing.
    log.memory.put_u8(256 + 96 + 6, 0)
    assert image.poll(core.assemble.FragmentAssembler(bag), 100) == 7
    assert bag == [b"3" * 150]


def test_an_assembler_keeps_sessions_apart_and_can_forget_one(core: Core):
    one, two = Log(core, mtu=96), Log(core, mtu=96)
    two.memory.put_i32(two.buffers.metadata_offset + layout.LOG_DEFAULT_HEADER_OFFSET + 12, 5)
    one.concurrent().offer(b"1" * 100)
    two.concurrent().offer(b"2" * 100)
    bag = Bag()
    assembler = core.assemble.FragmentAssembler(bag)
    images = [one.image(), two.image()]
    for image in images:
        image.poll(assembler, 1)
    assert assembler.free_session(5)
    assert not assembler.free_session(5)
    for image in images:
        image.poll(assembler, 1)
    assert bag == [b"1" * 100]
    assembler.clear()


def test_a_controlled_abort_of_a_split_message_delivers_it_again(core: Core):
    log = Log(core, mtu=96)
    log.concurrent().offer_many([b"1" * 150, b"x"])
    image, seen, answers = log.image(), [], [ABORT, COMMIT, CONTINUE]

    def handler(fragment: Any) -> int:
        seen.append(bytes(fragment))
        return answers.pop(0)

    assembler = core.assemble.FragmentAssembler(handler)
    assert image.controlled_poll(assembler, 10) == 2
    assert image.position == 192
    assert image.controlled_poll(assembler, 10) == 2
    assert seen == [b"1" * 150, b"1" * 150, b"x"]


def test_an_assembler_is_a_handler_like_any_other(core: Core):
    log = Log(core, mtu=96)
    log.concurrent().offer_many([b"1" * 150, b"x"])
    bag = Bag()
    assembler = core.assemble.FragmentAssembler(bag)
    log.image().poll(lambda fragment: assembler(fragment))
    assert bag == [b"1" * 150, b"x"]
    assert assembler.handler is bag


def test_scan_locates_payloads_and_release_frees_them(log: Log):
    publication = log.concurrent()
    publication.offer_many([b"one", b"three"])
    publication.append_padding(10)
    publication.offer(b"two")
    image = log.image()
    offsets, lengths = log.core.memory(8 * 10), log.core.memory(4 * 10)
    assert image.scan(offsets, lengths, 1) == (1, 64)
    count, position = image.scan(offsets, lengths)
    assert (count, position, log.position) == (3, 64 * 4, 0)
    entries = [(offsets.get_i64(8 * i), lengths.get_i32(4 * i)) for i in range(count)]
    assert entries == [(32, 3), (96, 5), (224, 3)]
    assert [log.memory.get_bytes(*entry) for entry in entries] == [b"one", b"three", b"two"]
    for wrong in (63, 65, position + 2 * T):
        with pytest.raises(ValueError, match="cannot be released"):
            image.release(wrong)
    image.release(position)
    assert log.position == 256
    with pytest.raises(ValueError, match="cannot be released"):
        image.release(192)
    assert image.scan(offsets, lengths) == (0, 256)
    assert image.readable() == (256, T)


def test_a_subscription_polls_its_images_in_turn(core: Core):
    logs = [Log(core) for _ in range(3)]
    for number, one in enumerate(logs):
        one.concurrent().offer_many([b"%d" % number] * 4)
    subscription = subscription_of(core, *(one.image() for one in logs))
    order = []
    for _ in range(6):
        bag = Bag()
        assert subscription.poll(bag, 2) == 2
        order.append(bag[0])
    assert order == [b"0", b"1", b"2"] * 2
    assert subscription.poll(Bag()) == 0


def test_the_limit_of_a_poll_is_shared_by_the_images(core: Core):
    logs = [Log(core) for _ in range(2)]
    for one in logs:
        one.concurrent().offer_many([b"x"] * 4)
    subscription = subscription_of(core, *(one.image() for one in logs))
    assert subscription.poll(Bag(), 6) == 6
    assert [one.position for one in logs] == [256, 128]
    assert subscription.controlled_poll(lambda f: None, 1) == 1
    assert len(subscription.poll_bytes(10)) == 1
    assert subscription_of(core).poll(Bag()) == 0
    with pytest.raises(TypeError, match="not an image"):
        subscription._set_images([object()])


def test_a_subscription_hands_over_a_block_of_every_image(core: Core):
    logs = [Log(core) for _ in range(2)]
    for one in logs:
        one.concurrent().offer_many([b"x"] * 4)
    seen = []
    subscription = subscription_of(core, *(one.image() for one in logs))
    assert subscription.block_poll(lambda block: seen.append(len(block)), 128) == 256
    assert seen == [128, 128]


def test_the_end_of_a_stream_is_seen_when_everything_was_read(log: Log):
    log.concurrent().offer(b"last")
    image = log.image()
    log.buffers.end_of_stream_position = 64
    log.buffers.active_transport_count = 1
    assert not image.is_end_of_stream
    image.poll(Bag())
    assert image.is_end_of_stream
    assert (image.end_of_stream_position, image.active_transport_count, image.is_publication_revoked) == (64, 1, False)
    log.buffers.is_publication_revoked = True
    assert image.is_publication_revoked
    image._detach()
    assert image.is_end_of_stream


def test_only_images_with_frames_an_end_or_an_error_are_ready(core: Core) -> None:
    logs = [Log(core) for _ in range(6)]
    images = [each.image() for each in logs]
    for each in logs:
        each.buffers.end_of_stream_position = 1 << 40
    assert core.read.find_ready(images) == []
    assert core.read.find_ready([]) == []
    logs[1].concurrent().offer(b"x")
    logs[3].buffers.end_of_stream_position = 0
    images[4]._detach()
    logs[5].counters.put_i64(POSITION * 128, 33)
    assert core.read.find_ready(images) == [1, 3, 4, 5]
    images[1].poll(Bag())
    assert core.read.find_ready(images) == [3, 4, 5]


READS = {
    "poll": lambda image, bag: image.poll(bag, 100),
    "bounded_poll": lambda image, bag: image.bounded_poll(bag, T, limit=100),
    "poll_messages": lambda image, bag: image.poll_messages(bag, 100),
    "controlled_poll": lambda image, bag: image.controlled_poll(bag, 100),
    "block_poll": lambda image, bag: image.block_poll(bag, 1 << 30),
    "poll_bytes": lambda image, bag: bag.extend(image.poll_bytes(100)),
    "scan": lambda image, bag: image.scan(image.log.__class__(bytearray(8000)), image.log.__class__(bytearray(4000))),
    "readable": lambda image, bag: image.readable(),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("length", [1, 31, T - 64 + 1, T, 3 * T, (1 << 31) - 1])
@pytest.mark.parametrize("kind", [layout.TYPE_DATA, layout.TYPE_PAD])
def test_a_length_that_leaves_the_term_is_an_error_and_no_frame(log: Log, name: str, length: int, kind: int):
    log.concurrent().offer_many([b"first", b"spoilt", b"third"])
    log.memory.put_u8(64 + 6, kind)
    log.memory.put_i32(64, length)
    image, bag = log.image(), Bag()
    reason = f"log 9, position 64: a frame of {length} bytes is not possible where {T - 64} are left of the term"
    if name == "readable":
        image.release(64)
    for _ in range(2):
        with pytest.raises(ValueError, match=reason):
            READS[name](image, bag)
    assert len(bag) <= 1
    assert log.position in (0, 64)


def test_the_longest_frame_that_fits_is_read(log: Log):
    log.concurrent().offer(b"x")
    for offset in (0, 2 * T - 32):
        log.counters.put_i64(POSITION * 128, offset)
        log.memory.put_i32(offset, 2 * T - offset if offset else T)
        log.memory.put_u8(offset + 5, layout.FLAG_UNFRAGMENTED)
        log.memory.put_u8(offset + 6, layout.TYPE_DATA)
        bag = Bag()
        assert log.image().poll(bag) == 1
        assert [len(payload) for payload in bag] == [0 if offset else T - 32]


def test_an_image_starts_at_its_position_counter(log: Log):
    log.concurrent().offer_many([b"a", b"b"])
    log.counters.put_i64(2 * 128, 64)
    image, bag = log.image(), Bag()
    assert (image.join_position, image.position) == (64, 64)
    image.poll(bag)
    assert bag == [b"b"]


def test_rejects_an_invalid_log_or_counter(core: Core, log: Log):
    for counter in (-1, 8):
        with pytest.raises(ValueError, match="outside"):
            core.read.ImageReader(log.memory, log.counters, counter)
    for position in (-64, -(1 << 40), 33):
        log.counters.put_i64(POSITION * 128, position)
        with pytest.raises(ValueError, match="read from position"):
            log.image()
    log.counters.put_i64(POSITION * 128, 0)
    log.memory.put_i32(log.buffers.metadata_offset + layout.LOG_TERM_LENGTH_OFFSET, 1 << 20)
    with pytest.raises(ValueError, match="terms of"):
        log.image()


def test_a_wait_ends_when_a_message_comes():
    log = Log()
    publication, subscription = log.concurrent(), subscription_of(COMPILED, log.image())
    assert not subscription.has_data()
    started = time.monotonic()
    assert not subscription._wait_for_data(0.001)
    assert time.monotonic() - started >= 0.001
    timer = threading.Timer(0.02, publication.offer, [b"x"])
    timer.start()
    stall = StallTimeout("the message")
    while not subscription._wait_for_data(1.0):
        stall.check()
    timer.join()
    assert subscription.has_data()
    assert subscription.poll_bytes() == [b"x"]
    assert not subscription_of(COMPILED)._wait_for_data(1e-6)


def test_closing_an_image_waits_for_a_wait_in_another_thread():
    log = Log()
    image = log.image()
    subscription = subscription_of(COMPILED, image)
    waits, over = [0, 0, 0], threading.Event()

    def wait_again_and_again(number: int) -> None:
        while not over.is_set():
            subscription._wait_for_data(1.0)
            waits[number] += 1

    threads = [threading.Thread(target=wait_again_and_again, args=(number,)) for number in range(len(waits))]
    for thread in threads:
        thread.start()
    wait_for(lambda: all(waits))
    # The subscription still has the image, and the threads keep running.
    image._detach()
    log.memory.close()
    over.set()
    for thread in threads:
        thread.join()
    assert not subscription._wait_for_data(0)


def test_received_data_can_be_offered_on_at_once():
    one, two = Log(), Log()
    one.concurrent().offer_many([b"a", bytes(3000)])
    target = two.concurrent()
    one.image().poll_messages(target.offer)
    assert two.image().poll_bytes() == [b"a", bytes(3000)]


def test_memory_stays_valid_for_array_views():
    log = Log()
    log.concurrent().offer(array.array("d", [1.5, 2.5]))
    seen: list[float] = []
    log.image().poll(lambda f: seen.extend(memoryview(f).cast("d")))
    assert seen == [1.5, 2.5]
