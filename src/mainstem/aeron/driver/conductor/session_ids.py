"""Session ids, which count up from a random start and skip a reserved range (docs/protocols/aeron.md, 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.logbuffer import wrap_i32
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

SESSION_IDS = 1 << 32
MAX_DRAWS = 64  # attempts to draw a start outside the reserved range, which can cover almost all ids


def random_i32(rng: Random) -> int:
    return wrap_i32(rng.getrandbits(32))


class SessionIds:
    """An allocator of session ids outside ``[reserved_low, reserved_high]``."""

    def __init__(self, rng: Random, *, reserved_low: int, reserved_high: int) -> None:
        self._low = reserved_low
        self._high = reserved_high
        self._unreserved = SESSION_IDS - (reserved_high - reserved_low + 1)
        self._next = random_i32(rng)
        # Draw again instead of starting right after the reserved range. With half of all ids reserved, half of all drivers would
        # start at the same id, but hosts that send to the same endpoint must use different sessions.
        for _ in range(MAX_DRAWS):
            if not reserved_low <= self._next <= reserved_high:
                break
            self._next = random_i32(rng)

    def take(self, in_use: Collection[int]) -> int:
        """Return the next id that is neither reserved nor in ``in_use``. Raises RegistrationError if there is none."""
        # The candidates are distinct, so one more of them than there are ids in use must include a free id.
        for _ in range(min(self._unreserved, len(in_use) + 1)):
            candidate = self._next
            if self._low <= candidate <= self._high:
                candidate = wrap_i32(self._high + 1)
            self._next = wrap_i32(candidate + 1)
            if candidate not in in_use:
                return candidate
        raise RegistrationError(
            f"no session id is free: {self._unreserved} ids are outside the reserved range {self._low} to {self._high},"
            " and publications of this stream use them all; reserve fewer, or add session-id= to the channel",
            code=ErrorCode.GENERIC_ERROR,
        )
