"""How much one end of a Jmux connection holds, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import ConfigurationError
from mainstem.mux.jmux.codec import MAX_LENGTH, RATION_UNIT
from mainstem.mux.sans_io import ConnectionSettings

# Bytes of one session that wait unread here; times 128 sessions it bounds a connection at 32 MiB.
INITIAL_RATION = 256 * 1024
# A Data message's largest body: at 100 Mbit/s it occupies the line for little more than a millisecond.
FRAGMENT_LIMIT = 16 * 1024
HANDSHAKE_TIMEOUT_NS = 15_000_000_000


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """A connection's configuration.

    ``initial_ration``: bytes that this end holds for each session, a multiple of 256 up to 65535 * 256; 0 makes rations
    infinite, which obliges this end to take whatever comes. ``fragment_limit``: the largest body of a Data message, 1..65535.
    Heartbeats: an interval of 0 switches them off. ``handshake_timeout_ns``: how long the peer's header may take.
    """

    initial_ration: int = INITIAL_RATION
    fragment_limit: int = FRAGMENT_LIMIT
    handshake_timeout_ns: int = HANDSHAKE_TIMEOUT_NS

    def __post_init__(self) -> None:
        units, rest = divmod(self.initial_ration, RATION_UNIT)
        if rest or not 0 <= units <= 0xFFFF:
            raise ConfigurationError(
                f"initial_ration={self.initial_ration} is not a multiple of {RATION_UNIT} in 0..{0xFFFF * RATION_UNIT} bytes"
            )
        if not 1 <= self.fragment_limit <= MAX_LENGTH:
            raise ConfigurationError(f"fragment_limit={self.fragment_limit} lies outside 1..{MAX_LENGTH} bytes")
