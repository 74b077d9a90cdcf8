"""Untethered subscriptions: cut off when they fall too far behind, let in again after a rest (docs/protocols/aeron.md, 19.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.conductor.subscription_link import TetherState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.params import TetherTimeouts
    from mainstem.aeron.driver.conductor.subscription_link import StreamSource, SubscriberPosition


def untethered_limit(reference_position: int, window_length: int) -> int:
    """Below this an untethered subscriber is eligible for eviction: the last quarter of the window behind the reference."""
    return reference_position - window_length + window_length // 4


def untethered_image_limit(reference_position: int, window_length: int, reported_position: int, mtu: int) -> int:
    """The same at a receiver, which reports to its sender every quarter of the window only.

    A subscriber that is inactive less than a quarter beyond ``reported_position`` keeps the receiver from reporting more: once
    the sender has used up what was reported, down to the last quarter or the last datagram, it is eligible too. By the
    plain limit it would hold the stream up for ever.
    """
    limit = untethered_limit(reference_position, window_length)
    quarter = window_length // 4
    if reference_position + max(quarter, mtu) >= reported_position + window_length:
        return max(limit, reported_position + quarter)
    return limit


def have_read(
    subscribers: Iterable[SubscriberPosition], end: int, timeouts: TetherTimeouts, *, draining_ns: int
) -> bool:
    """Whether every subscriber that a draining stream waits for has read to ``end``.

    An untethered subscriber has as long as it may be far behind; an inactive one does not keep a stream from ending.
    """
    patient = draining_ns < timeouts.window_limit_ns
    return all(
        position.cell.get_acquire() >= end
        for position in subscribers
        if position.is_counted and (patient or position.interest.params.tether)
    )


def check_untethered(
    source: StreamSource, limit: int, timeouts: TetherTimeouts, links: ImageLinks, *, now_ns: int
) -> None:
    """Move every untethered subscriber of ``source`` one state on where its time has come."""
    for position in list(source.subscribers):
        if position.interest.params.tether:
            continue
        state = position.state
        if state is TetherState.ACTIVE:
            if position.cell.get_acquire() > limit:
                position.since_ns = now_ns
            elif now_ns - position.since_ns >= timeouts.window_limit_ns:
                _move(position, TetherState.LINGER, now_ns)
                links.enter_linger(source, position)
        elif state is TetherState.LINGER:
            if now_ns - position.since_ns >= timeouts.linger_ns:
                rejoin = position.interest.params.rejoin
                _move(position, TetherState.RESTING if rejoin else TetherState.CLOSED, now_ns)
                links.enter_resting(source, position)
        elif state is TetherState.RESTING and now_ns - position.since_ns >= timeouts.resting_ns:
            # Before it counts again: else it would join where it had become inactive.
            position.cell.set_release(source.join_position)
            _move(position, TetherState.ACTIVE, now_ns)
            links.enter_active(source, position)


def _move(position: SubscriberPosition, state: TetherState, now_ns: int) -> None:
    assert state in position.state.successors
    position.state = state
    position.since_ns = now_ns
