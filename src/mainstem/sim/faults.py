"""The effects of a link on datagrams: probabilities and limits. All random choices come from the simulation's ``random.Random``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS, NS_PER_US
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from random import Random

# The link faults that can be switched off by name. Each name is that of the field in ``Faults`` that enables the fault, unless
# ``_FIELDS`` maps it to another.
LINK_KINDS = ("loss", "burst", "duplication", "reorder", "jitter", "corruption", "truncation", "mtu", "clog")
_FIELDS = {"jitter": "jitter_ns", "clog": "rate"}
_PROBABILITIES = ("loss", "burst", "duplication", "reorder", "corruption", "truncation")
_SIZES = ("delay_ns", "jitter_ns", "reorder_ns", "burst_length", "mtu", "rate", "queue_length")


def check_faults(faults: object, probabilities: Iterable[str], sizes: Iterable[str]) -> None:
    """Check fields: ``probabilities`` are from 0 to 1, ``sizes`` at least 0. Raises ConfigurationError."""
    for name in probabilities:
        value = getattr(faults, name)
        if not 0.0 <= value <= 1.0:
            raise ConfigurationError(f"{name} must be a probability from 0 to 1 (got {value})")
    for name in sizes:
        value = getattr(faults, name)
        if value < 0:
            raise ConfigurationError(f"{name} must be >= 0 (got {value})")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The behavior of a link. Probabilities are per datagram; delays are one way, in nanoseconds.

    ``reorder`` is the share of datagrams delayed by up to ``reorder_ns`` more, so that later ones overtake them. ``burst`` is the
    probability that a datagram begins a run of losses, of ``burst_length`` datagrams on average. ``corruption`` flips bits and
    ``truncation`` cuts off the end: with ``checksum``, as in UDP, such a datagram is dropped; without, it arrives as it is. A
    datagram longer than ``mtu`` bytes is dropped (0 = no limit). ``rate`` is the link's bandwidth in bytes per second (0 =
    unlimited); up to ``queue_length`` bytes queue for it, and datagrams beyond that are dropped.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    delay_ns: int = 50 * NS_PER_US
    jitter_ns: int = 0
    reorder_ns: int = 2 * NS_PER_MS
    burst: float = 0.0
    burst_length: int = 10
    corruption: float = 0.0
    truncation: float = 0.0
    checksum: bool = True
    mtu: int = 0
    rate: int = 0
    queue_length: int = 64 * 1024

    def __post_init__(self) -> None:
        check_faults(self, _PROBABILITIES, _SIZES)

    def without(self, kinds: Collection[str]) -> Faults:
        """Return the same link without the faults named in ``kinds``. Names that are not in ``LINK_KINDS`` are ignored."""
        fields: dict[str, Any] = {_FIELDS.get(kind, kind): 0 for kind in kinds if kind in LINK_KINDS}
        return replace(self, **fields) if fields else self

    @classmethod
    def drawn(cls, rng: Random, *, max_loss: float = 0.3) -> Faults:
        """Return the faults of a link drawn from ``rng``, from perfect to very bad; loss is at most ``max_loss``."""

        def share(limit: float) -> float:
            return rng.choice((0.0, rng.uniform(0, limit / 4), rng.uniform(0, limit)))

        return cls(
            loss=share(max_loss),
            duplication=share(0.2),
            reorder=share(0.3),
            delay_ns=rng.randrange(10 * NS_PER_US, 5 * NS_PER_MS),
            jitter_ns=rng.choice((0, rng.randrange(1, 3 * NS_PER_MS))),
            burst=rng.choice((0.0, 0.0, rng.uniform(0, max_loss / 20))),
            burst_length=rng.randrange(2, 20),
        )


PERFECT = Faults(delay_ns=10 * NS_PER_US)
