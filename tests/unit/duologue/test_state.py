"""The state transitions of a duologue, and the timeouts that end it."""

from __future__ import annotations

from itertools import product

import pytest

from mainstem.duologue.session import SUCCESSORS, DuologueState, Lifetime
from mainstem.duologue.settings import Settings
from mainstem.errors import InternalError

S = DuologueState


def lifetime(*path: DuologueState, idle_timeout: float | None = 100e-9) -> Lifetime:
    settings = Settings(join_timeout=10e-9, left_timeout=5e-9, idle_timeout=idle_timeout, closing_timeout=7e-9)
    made = Lifetime(settings, now_ns=0)
    for state in path:
        made.move(state, 0)
    return made


PATHS = {
    S.OPENING: (),
    S.WAITING: (S.WAITING,),
    S.JOINED: (S.WAITING, S.JOINED),
    S.LEFT: (S.WAITING, S.JOINED, S.LEFT),
    S.CLOSING: (S.WAITING, S.JOINED, S.CLOSING),
    S.CLOSED: (S.CLOSED,),
}


@pytest.mark.parametrize(("state", "following"), list(product(DuologueState, DuologueState)))
def test_only_the_listed_transitions_are_allowed(state: DuologueState, following: DuologueState) -> None:
    made = lifetime(*PATHS[state])
    if following in SUCCESSORS[state]:
        made.move(following, 1)
        assert made.state is following
    else:
        with pytest.raises(InternalError):
            made.move(following, 1)


@pytest.mark.parametrize(
    ("state", "limit_ns", "reason"),
    [
        (S.OPENING, 10, "the driver did not make it in time"),
        (S.WAITING, 10, "nobody joined"),
        (S.JOINED, 100, "idle for too long"),
        (S.LEFT, 5, "everybody left"),
        (S.CLOSING, 7, "closed by the server"),
    ],
)
def test_each_state_has_its_own_timeout(state: DuologueState, limit_ns: int, reason: str) -> None:
    made = lifetime(*PATHS[state])
    assert made.expired(limit_ns - 1) == ""
    assert made.expired(limit_ns) == reason


def test_a_client_that_sends_is_not_idle() -> None:
    made = lifetime(S.WAITING, S.JOINED)
    made.heard(90)
    assert made.expired(189) == ""
    assert made.expired(190) == "idle for too long"
    assert lifetime(S.WAITING, S.JOINED, idle_timeout=None).expired(1 << 60) == ""
