"""The settings that both multiplexers share."""

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

# Maximum number of bytes that one read(-1) collects.
READ_ALL_LIMIT = 64 * 1024 * 1024

# A reader may pause, because of a page of output or a busy disk. One that takes nothing for this many seconds is not coming
# back. Until then, it occupies one window of memory, a stream, and the stream's handler.
STALL_TIMEOUT_S = 600.0

# Seconds that closing waits for streams that make no progress, and for cancelled handlers.
CLOSE_TIMEOUT_S = 10.0

# A peer that has sent nothing for the first interval is pinged. If it also sends nothing for the second, it is presumed dead.
# This is long enough for a process that is stopped for a moment, and short enough that a lost peer does not hold streams and
# handlers for long.
PING_INTERVAL_S = 10.0
PING_TIMEOUT_S = 30.0

# Maximum number of connections that one server has at once. Each can use as much memory as its windows allow.
MAX_CONNECTIONS = 1024
# Maximum number of these from one address. Streams share a connection, so a host needs few.
MAX_CONNECTIONS_PER_ADDRESS = 256
# Seconds for the TLS handshake and the peer's first byte, which Mainstem's clients send immediately.
HANDSHAKE_TIMEOUT_S = 15.0


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The settings that both multiplexers share."""

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
        """Return the settings, or the defaults if None, with overrides applied."""
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
