"""The limits on the cost of repair, each broken here once."""

from __future__ import annotations

import pytest

from mainstem._internal.clock import NS_PER_MS
from mainstem.sim.checkers import Violation
from mainstem.sim.wire import Efficiency


def test_repairing_each_loss_once_is_efficient() -> None:
    efficiency = Efficiency(
        lost=100, lost_bytes=100_000, resent_bytes=150_000, naks=150, judged=150, round_trip_ns=NS_PER_MS
    )
    for number in range(100):
        efficiency.on_lost((number,), 1_000, 0)
        efficiency.on_arrived((number,), 20 * NS_PER_MS)
    efficiency.finish()


@pytest.mark.parametrize(
    ("sums", "words"),
    [
        ({"lost": 100, "naks": 10_000}, "NAKs per lost datagram"),
        ({"lost": 100, "lost_bytes": 1_000, "resent_bytes": 100_000}, "bytes retransmitted"),
        ({"status": 1_000, "status_due": 10.0}, "status messages"),
        ({"judged": 640, "ignored": 10}, "share of NAKs ignored"),
        ({"repairs_ns": [10_000 * NS_PER_MS] * 100}, "round trips until a loss is repaired"),
    ],
)
def test_each_bound_can_be_broken(sums: dict[str, object], words: str) -> None:
    with pytest.raises(Violation, match=words):
        Efficiency(**sums).finish()  # type: ignore[arg-type]


def test_small_samples_are_not_judged() -> None:
    Efficiency(lost=3, naks=1_000).finish()
