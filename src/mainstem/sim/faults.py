"""What a link does to datagrams, as probabilities and limits; every draw comes from the simulation's own ``random.Random``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS, NS_PER_US
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

# The faults of a link that may be switched off by name; each is the field of ``Faults`` that begins it.
LINK_KINDS = ("loss", "burst", "duplication", "reorder", "jitter", "corruption", "truncation", "mtu", "clog")
_FIELDS = {"jitter": "jitter_ns", "clog": "rate"}
_LIKELIHOODS = ("loss", "burst", "duplication", "reorder", "corruption", "truncation")
_SIZES = ("delay_ns", "jitter_ns", "reorder_ns", "burst_length", "mtu", "rate", "queue_length")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """A link's behaviour. Probabilities are for each datagram, delays in nanoseconds, one way.

    ``reorder`` is the share of datagrams held back by up to ``reorder_ns`` more than their delay, so that later ones overtake
    them. ``burst`` is how likely a datagram begins a run of losses, of ``burst_length`` datagrams on average. ``corruption`` flips
    bits, ``truncation`` takes the end away: with ``checksum``, as UDP has one, such a datagram is dropped, and without it arrives
    as it is. A datagram longer than ``mtu`` bytes vanishes (0: none does). ``rate`` is the link's bytes in a second (0: any
    number); ``queue_length`` bytes wait for their turn there, and later datagrams are dropped.
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
        for name in _LIKELIHOODS:
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigurationError(f"{name} is a probability between 0 and 1, not {value}")
        for name in _SIZES:
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} cannot be negative: {getattr(self, name)}")

    def without(self, kinds: Collection[str]) -> Faults:
        """The same link with some kinds of faults switched off.

        Args:
            kinds: Names out of ``LINK_KINDS``; others are ignored.

        Returns:
            The faults that are left.

        Example:
            ``Faults(loss=0.1).without(["loss"])``
        """
        fields: dict[str, Any] = {_FIELDS.get(kind, kind): 0 for kind in kinds if kind in LINK_KINDS}
        return replace(self, **fields) if fields else self

    @classmethod
    def drawn(cls, chance: Random, *, max_loss: float = 0.3) -> Faults:
        """Draws a link: from perfect to very bad, with each fault absent in a good share of the draws.

        Args:
            chance: The random source that is drawn from.
            max_loss: The highest probability of loss.

        Returns:
            The faults of one link.

        Example:
            ``world.network.faults = Faults.drawn(world.chance)``
        """

        def share(limit: float) -> float:
            return chance.choice((0.0, chance.uniform(0, limit / 4), chance.uniform(0, limit)))

        return cls(
            loss=share(max_loss),
            duplication=share(0.2),
            reorder=share(0.3),
            delay_ns=chance.randrange(10 * NS_PER_US, 5 * NS_PER_MS),
            jitter_ns=chance.choice((0, chance.randrange(1, 3 * NS_PER_MS))),
            burst=chance.choice((0.0, 0.0, chance.uniform(0, max_loss / 20))),
            burst_length=chance.randrange(2, 20),
        )


PERFECT = Faults(delay_ns=10 * NS_PER_US)
