"""Which requests for retransmission are granted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem._core.driver.retransmit import RetransmitHandler
from mainstem._core.layout import NEVER_NS

UNICAST_ACTIONS = 64

TERM = 65_536
MS = 1_000_000


def handler(**options: int | bool) -> RetransmitHandler:
    return RetransmitHandler(TERM, **options)  # type: ignore[arg-type]


def ask(
    retransmits: RetransmitHandler, position: int, length: int = 64, *, sent: int = 20_000, now_ns: int = 0
) -> tuple[int, int] | None:
    return retransmits.on_nak(position, length, sender_position=sent, now_ns=now_ns)


def test_answers_at_once_and_then_not_again_for_ten_milliseconds() -> None:
    retransmits = handler()
    assert ask(retransmits, 64, 128) == (64, 128)
    assert ask(retransmits, 64, 128) is None
    assert ask(retransmits, 160) is None
    assert ask(retransmits, 192) == (192, 64)
    assert retransmits.on_time(10 * MS, sender_position=20_000) == []
    assert retransmits.deadline_ns == NEVER_NS
    assert ask(retransmits, 64, now_ns=10 * MS) == (64, 64)


def test_a_delayed_retransmission_waits_and_then_lingers() -> None:
    retransmits = handler(delay_ns=5 * MS)
    assert ask(retransmits, 64) is None
    assert retransmits.on_time(5 * MS - 1, sender_position=20_000) == []
    assert retransmits.on_time(5 * MS, sender_position=20_000) == [(64, 64)]
    assert ask(retransmits, 64, now_ns=6 * MS) is None
    assert retransmits.on_time(15 * MS, sender_position=20_000) == []
    assert retransmits.deadline_ns == NEVER_NS


def test_only_sent_bytes_that_are_still_in_the_log_are_retransmitted() -> None:
    retransmits = handler()
    reach = TERM // 2 + TERM // 8
    assert ask(retransmits, 20_000, sent=20_000) is None
    assert ask(retransmits, 1 << 20, sent=(1 << 20) + reach + 32) is None
    assert ask(retransmits, 1 << 20, sent=(1 << 20) + reach) == (1 << 20, 64)
    assert ask(retransmits, 64, 0) is None


def test_a_retransmission_ends_with_its_term_and_the_window_multiple() -> None:
    assert ask(handler(), TERM - 64, 4096, sent=TERM) == (TERM - 64, 64)
    small = handler(window_length=1024, window_multiple=2)
    assert ask(small, 0, 4096) == (0, 2048)
    assert ask(handler(group=True, window_length=1024), 0, 30_000) == (0, 4096)


def test_a_group_has_a_pool_that_may_overflow() -> None:
    retransmits = handler(group=True, max_actions=2)
    assert ask(retransmits, 0) == (0, 64)
    assert ask(retransmits, 64) == (64, 64)
    assert ask(retransmits, 128) is None
    assert retransmits.overflows == 1


def test_one_receivers_newest_request_always_has_room() -> None:
    retransmits = handler()
    for i in range(UNICAST_ACTIONS + 1):
        assert ask(retransmits, 64 * i) == (64 * i, 64)
    assert ask(retransmits, 0) == (0, 64)
    assert retransmits.overflows == 0


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(1, 64), st.integers(0, 12)), max_size=60), st.booleans())
def test_nothing_is_sent_twice_within_the_linger(requests: list[tuple[int, int, int]], group: bool) -> None:
    retransmits = handler(group=group)
    last: dict[int, int] = {}
    now_ns = 0
    for block, blocks, wait in requests:
        now_ns += wait * MS
        retransmits.on_time(now_ns, sender_position=20_000)
        answer = ask(retransmits, 32 * block, 32 * blocks, now_ns=now_ns)
        if answer is not None:
            assert answer[0] not in last or now_ns - last[answer[0]] >= 10 * MS
            last[answer[0]] = now_ns
            assert answer[0] + answer[1] <= TERM


RATE = 1 << 20
SECOND = 1_000 * MS


def flood(retransmits: RetransmitHandler, first: int, seconds: int, *, of_receiver: bool = True) -> int:
    """Return the bytes retransmitted for a request every 20 µs, each for a different position, from second ``first`` on."""
    total = 0
    for n in range(seconds * 50_000):
        now_ns = first * SECOND + n * 20_000
        granted = retransmits.on_nak(32 * (n * 7 % 600), TERM, 20_000, now_ns, of_receiver)
        retransmits.on_time(now_ns, 20_000)
        total += granted[1] if granted else 0
    return total


def test_a_flood_of_requests_is_limited_to_the_rate() -> None:
    assert flood(handler(rate=0), 1, 1) > 10 * RATE
    retransmits = handler(rate=RATE)
    # The saved-up allowance plus two seconds; the last request can overdraw.
    assert 2 * RATE < flood(retransmits, 1, 2) <= 3 * RATE + TERM
    assert retransmits.overflows > 0


def test_retransmissions_may_be_lost_too() -> None:
    retransmits = handler(rate=RATE)
    for n in range(2000):  # every byte is lost, twice
        position, now_ns = 1024 * n, SECOND + n * 11 * MS
        retransmits.on_time(now_ns, position)
        for _ in range(2 if n else 0):
            assert retransmits.on_nak(position - 1024, 1024, position, now_ns) == (position - 1024, 1024)
            now_ns += 11 * MS
            retransmits.on_time(now_ns, position)
    assert retransmits.overflows == 0


def test_strangers_do_not_use_up_receivers_allowance() -> None:
    retransmits = handler(rate=RATE)
    assert flood(retransmits, 1, 2, of_receiver=False) <= 3 * RATE // 16 + TERM
    assert flood(retransmits, 4, 1) >= RATE
