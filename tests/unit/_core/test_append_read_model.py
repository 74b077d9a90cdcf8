"""Publishers and readers over many rotations, compared with a model that knows only the arithmetic of positions."""

from __future__ import annotations

import array
from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.unit._core.logs import COMPILED, UNCOMPILED, Core, Log, T

from mainstem.aeron.logbuffer import align_frame, framed_length

BACK_PRESSURED, ADMIN_ACTION = -2, -3
MTU = 256
FIRST = (1 << 31) - 2
sizes = st.one_of(st.integers(0, 300), st.integers(0, 8192), st.sampled_from([0, 223, 224, 225, 448, 8191, 8192]))


class Machine(RuleBasedStateMachine):
    core: Core
    kind: str

    @initialize(start=st.integers(0, T // 32 - 1))
    def begin(self, start: int) -> None:
        self.log = Log(self.core, mtu=MTU, start_term_id=FIRST, start_term_offset=32 * start)
        self.publications = [getattr(self.log, self.kind)()]
        if self.kind == "concurrent":
            self.publications.append(self.log.concurrent())
        self.image = self.log.image()
        self.assembler = self.core.assemble.FragmentAssembler(self.take)
        self.claim = self.core.append.BufferClaim()
        self.number = 0
        self.position = self.cleaned = 32 * start
        self.sent: deque[bytes] = deque()
        self.received: list[bytes] = []
        self.log.limit = self.position + T // 2

    def message(self, size: int) -> bytes:
        self.number += 1
        return self.number.to_bytes(4, "little").ljust(size, bytes([self.number % 251]))[:size]

    def expect(self, framed: int) -> int:
        """Return the expected result of appending ``framed`` bytes now, and advance the model."""
        if self.position >= self.log.limit:
            return BACK_PRESSURED
        # A term that is full to its last byte is still active.
        offset = self.position % T or (T if self.position > 0 and not self.rotated else 0)
        if offset + framed > T:
            self.position += T - offset
            self.rotated = True
            return ADMIN_ACTION
        self.position += framed
        self.rotated = False
        return self.position

    rotated = True

    def take(self, fragment: Any) -> None:
        self.received.append(bytes(fragment))

    @rule(size=sizes, which=st.integers(0, 1), reserved=st.none() | st.integers(-5, 5))
    def offer(self, size: int, which: int, reserved: int | None) -> None:
        message = self.message(size)
        expected = self.expect(framed_length(size, MTU - 32))
        assert self.publications[which % len(self.publications)].offer(message, reserved_value=reserved) == expected
        if expected > 0:
            self.sent.append(message)

    @rule(size=st.integers(0, MTU - 32), commit=st.booleans())
    def claim_one(self, size: int, commit: bool) -> None:
        message = self.message(size)
        expected = self.expect(align_frame(size + 32))
        assert self.publications[0].try_claim(size, self.claim) == expected
        if expected > 0 and commit:
            self.claim.view[:] = message
            self.claim.commit()
            self.sent.append(message)
        elif expected > 0:
            self.claim.abort()

    @rule(size=st.integers(0, 8192))
    def pad(self, size: int) -> None:
        assert self.publications[0].append_padding(size) == self.expect(align_frame(size + 32))

    @rule(batch=st.lists(sizes, max_size=60), which=st.integers(0, 1), columns=st.booleans())
    def offer_batch(self, batch: list[int], which: int, columns: bool) -> None:
        messages = [self.message(size) for size in batch]
        publication = self.publications[which % len(self.publications)]
        if columns:
            offsets = array.array("i", [0])
            for size in batch:
                offsets.append(offsets[-1] + size)
            taken, answer = publication.offer_columns(b"".join(messages), offsets)
        else:
            taken, answer = publication.offer_many(messages)
        expected, last = 0, self.position
        for message in messages:
            framed = framed_length(len(message), MTU - 32)
            while (position := self.expect(framed)) == ADMIN_ACTION:
                pass
            if position < 0:
                break
            expected, last = expected + 1, position
            self.sent.append(message)
        assert (taken, answer) == (expected, last if expected or not batch else BACK_PRESSURED)

    def check_received(self) -> None:
        for message in self.received:
            assert message == self.sent.popleft()
        self.received.clear()

    @rule()
    def drain(self) -> None:
        """Read everything and clean, as a fast reader and its driver do. This lets a run cover several terms."""
        while self.image.poll(self.assembler, 1000) or self.image.position < self.position:
            pass
        self.check_received()
        self.clean_and_raise_the_limit()

    @rule(count=st.integers(1, 20), size=st.integers(1000, 8192))
    def offer_much(self, count: int, size: int) -> None:
        self.offer_batch([size] * count, 1, count % 2 == 0)
        self.drain()

    @rule(limit=st.integers(1, 100), how=st.sampled_from(["poll", "controlled_poll"]))
    def poll(self, limit: int, how: str) -> None:
        assert getattr(self.image, how)(self.assembler, limit) <= limit
        self.check_received()

    @rule(limit=st.integers(1, 100))
    def scan(self, limit: int) -> None:
        offsets, lengths = self.core.memory(8 * limit), self.core.memory(4 * limit)
        count, position = self.image.scan(offsets, lengths)
        assert self.image.position <= position <= self.position
        assert count <= limit
        for i in range(count):
            assert 0 <= lengths.get_i32(4 * i) <= MTU - 32

    @rule()
    def clean_and_raise_the_limit(self) -> None:
        assert self.log.limit <= self.cleaned + T // 2
        self.log.clean(self.image.position, self.cleaned)
        self.cleaned = self.image.position
        self.log.limit = self.cleaned + T // 2

    @rule(room=st.integers(0, T // 2))
    def lower_the_limit(self, room: int) -> None:
        self.log.limit = min(self.cleaned + T // 2, self.position + room)

    @invariant()
    def positions_agree(self) -> None:
        if hasattr(self, "log"):
            assert {publication.position for publication in self.publications} == {self.position}
            assert self.log.buffers.producer_position == self.position
            assert self.image.position <= self.position

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        while self.image.poll(self.assembler, 1000) or self.image.position < self.position:
            pass
        self.check_received()
        assert not self.sent


@pytest.mark.parametrize("kind", ["concurrent", "exclusive"])
@pytest.mark.parametrize("core", [COMPILED, UNCOMPILED], ids=["compiled", "uncompiled"])
def test_every_message_arrives_once_whole_and_in_order(core: Core, kind: str):
    machine = type("Machine", (Machine,), {"core": core, "kind": kind})
    examples, steps = (60, 60) if core is COMPILED else (8, 40)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )
