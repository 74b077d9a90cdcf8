"""The settings that both multiplexers have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._internal.handler_threads import MAX_HANDLERS, MAX_HANDLERS_PER_ADDRESS
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.validation import check_int, check_seconds
from mainstem.mux.engine import CONTROL_LIMIT

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

# Bytes that one read(-1) collects at most.
READ_ALL_LIMIT = 64 * 1024 * 1024

# A reader may pause, for a page of output or a busy disk; one that takes nothing for this long is not coming back. What it
# keeps here until then is one window of memory, a stream and its handler.
STALL_TIMEOUT_S = 600.0

# Seconds that closing waits: for streams without progress, and for handlers that were cancelled.
CLOSE_TIMEOUT_S = 10.0

# A peer that has sent nothing for the first is pinged, and presumed dead if it sends nothing for the second either: long enough for
# a process that is stopped for a moment, short enough that a lost one does not hold streams and handlers for long.
PING_INTERVAL_S = 10.0
PING_TIMEOUT_S = 30.0

# Connections that one listener serves at once; each may hold its windows' worth of memory.
MAX_CONNECTIONS = 1024
# Of these, from one address: multiplexed streams share a connection, so that a host needs few.
MAX_CONNECTIONS_PER_ADDRESS = 256
# Seconds for TLS and the peer's first byte, which every client of ours sends at once.
HANDSHAKE_TIMEOUT_S = 15.0


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Settings that both multiplexers have."""

    control_limit: int = CONTROL_LIMIT
    read_limit: int = READ_ALL_LIMIT
    ping_interval: float | None = PING_INTERVAL_S
    ping_timeout: float = PING_TIMEOUT_S
    stall_timeout: float | None = STALL_TIMEOUT_S
    close_timeout: float = CLOSE_TIMEOUT_S
    handshake_timeout: float | None = HANDSHAKE_TIMEOUT_S
    max_connections: int | None = None
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS
    max_handlers: int = MAX_HANDLERS
    max_handlers_per_address: int = MAX_HANDLERS_PER_ADDRESS
    certificate: str | Path | None = None
    key: str | Path | None = None
    ca: str | Path | None = None
    client_ca: str | Path | None = None

    @classmethod
    def of(cls, settings: Self | None, overrides: dict[str, Any]) -> Self:
        """The settings, or the defaults, with some of them replaced."""
        return apply_overrides(cls, settings, overrides)

    def __post_init__(self) -> None:
        limits = (
            "control_limit",
            "read_limit",
            "max_connections_per_address",
            "max_handlers",
            "max_handlers_per_address",
        )
        check_int({name: getattr(self, name) for name in limits}, min_value=1)
        if self.max_connections is not None:
            check_int({"max_connections": self.max_connections}, min_value=1)
        times = ("ping_interval", "stall_timeout", "handshake_timeout")
        check_seconds({name: getattr(self, name) for name in times}, may_be_none=True)
        check_seconds({"ping_timeout": self.ping_timeout, "close_timeout": self.close_timeout})
