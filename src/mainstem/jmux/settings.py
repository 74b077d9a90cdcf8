"""How much one end of a Jmux connection stores, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.amounts import check_seconds, check_whole
from mainstem.errors import ConfigurationError
from mainstem.jmux.codec import MAX_LENGTH, RATION_UNIT
from mainstem.mux.sans_io import ConnectionSettings

# Bytes of one session that wait unread here; times 128 sessions it bounds a connection at 32 MiB.
INITIAL_RATION = 256 * 1024
# A Data message's largest body: at 100 Mbit/s it occupies the line for little more than a millisecond.
FRAGMENT_LIMIT = 16 * 1024
HANDSHAKE_TIMEOUT_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """A connection's configuration.

    Args:
        initial_ration: Bytes that this end holds for each session, a multiple of 256 up to 65535 * 256. 0 makes rations
            infinite, which obliges this end to hold whatever comes.
        fragment_limit: Bytes of the largest Data message, 1..65535.
        read_limit: Bytes that one ``read(-1)`` collects at most (64 MiB); beyond it the read raises ``LimitExceeded``.
        control_limit: Bytes of responses that may wait because the peer does not read; beyond it the connection fails.
        ping_interval: Seconds without received data after which the peer is pinged (10); None switches heartbeats off.
        ping_timeout: Seconds after such a ping without received data until the peer is presumed dead (30), which ends the
            connection with ``Timeout``.
        handshake_timeout: Seconds within which the peer's connection header must come (15).
        stall_timeout: Seconds without progress after which a response that the client does not take is aborted (600); None
            for no limit.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> settings = Settings(initial_ration=1 << 20)
    """

    initial_ration: int = INITIAL_RATION
    fragment_limit: int = FRAGMENT_LIMIT
    handshake_timeout: float = HANDSHAKE_TIMEOUT_S

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole({"initial_ration": self.initial_ration}, least=0)
        units, rest = divmod(self.initial_ration, RATION_UNIT)
        if rest or units > 0xFFFF:
            raise ConfigurationError(
                f"initial_ration={self.initial_ration} is not a multiple of {RATION_UNIT} in 0..{0xFFFF * RATION_UNIT} bytes"
            )
        check_whole({"fragment_limit": self.fragment_limit}, least=1, most=MAX_LENGTH)
        check_seconds({"handshake_timeout": self.handshake_timeout})
