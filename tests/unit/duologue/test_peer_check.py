"""What an end concludes from its peer's stream while the driver changes that stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.duologue.streams import Exchange
from mainstem.errors import Aborted


class RevokedMeanwhile:
    """An image that the driver ends and revokes right after its first check."""

    closed = False

    def __init__(self) -> None:
        self._looks = 0

    def _look(self) -> bool:
        self._looks += 1
        return self._looks > 1

    is_end_of_stream = is_publication_revoked = property(_look)


def test_a_stream_revoked_during_the_check_counts_as_aborted() -> None:
    exchange: Any = SimpleNamespace(
        image=RevokedMeanwhile(),
        publication=SimpleNamespace(closed=False, is_connected=True),
        peer_has_ended=False,
        _peer="the peer",
    )
    with pytest.raises(Aborted):
        Exchange.check_peer(exchange, 0)
