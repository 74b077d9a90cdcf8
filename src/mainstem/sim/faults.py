"""What a network does to datagrams, as probabilities; every draw comes from the simulation's own ``random.Random``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.clock import NS_PER_MS, NS_PER_US
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, kw_only=True)
class Faults:
    """A link's behaviour. Probabilities are for each datagram, delays in nanoseconds, one way.

    ``reorder`` is the share of datagrams held back by up to ``reorder_ns`` more than their delay, so that later ones overtake them.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    delay_ns: int = 50 * NS_PER_US
    jitter_ns: int = 0
    reorder_ns: int = 2 * NS_PER_MS

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reorder"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigurationError(f"{name} is a probability between 0 and 1, not {value}")
        for name in ("delay_ns", "jitter_ns", "reorder_ns"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} cannot be negative: {getattr(self, name)}")

    def arrivals_ns(self, chance: Random) -> list[int]:
        """Draws the fate of one datagram.

        Args:
            chance: The random source that is drawn from.

        Returns:
            The delay of each copy in nanoseconds: none for a lost datagram, two for a duplicated one.

        Example:
            ``Faults(loss=1.0).arrivals_ns(Random(1))`` is ``[]``.
        """
        if chance.random() < self.loss:
            return []
        copies = 2 if chance.random() < self.duplication else 1
        return [self._delay(chance) for _ in range(copies)]

    def _delay(self, chance: Random) -> int:
        delay = self.delay_ns + (chance.randrange(self.jitter_ns) if self.jitter_ns else 0)
        if chance.random() < self.reorder:
            delay += chance.randrange(self.reorder_ns) if self.reorder_ns else 0
        return delay

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
        )


PERFECT = Faults(delay_ns=10 * NS_PER_US)
