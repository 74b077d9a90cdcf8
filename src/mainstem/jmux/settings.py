"""The limits and timeouts of a Jmux client or server."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem._internal.validation import check_int
from mainstem.errors import ConfigurationError
from mainstem.jmux.codec import MAX_LENGTH, RATION_UNIT
from mainstem.mux.settings import ConnectionSettings

# Maximum unread bytes of one session. Times 128 sessions, it limits a connection to 32 MiB.
INITIAL_RATION = 256 * 1024
# Maximum body of a Data message: at 100 Mbit/s, it occupies the link for little more than a millisecond.
FRAGMENT_LIMIT = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """The limits and timeouts of a client or server and its connections.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> settings = Settings(initial_ration=1 << 20)
    """

    initial_ration: int = INITIAL_RATION
    """Bytes that this end buffers for each session, a multiple of 256 up to 65535 * 256. 0 makes rations infinite, which
    forces this end to buffer everything that arrives."""

    fragment_limit: int = FRAGMENT_LIMIT
    """Maximum body of a Data message in bytes, 1..65535."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int({"initial_ration": self.initial_ration}, min_value=0)
        units, rest = divmod(self.initial_ration, RATION_UNIT)
        if rest or units > 0xFFFF:
            raise ConfigurationError(
                f"initial_ration={self.initial_ration} is not a multiple of {RATION_UNIT} in 0..{0xFFFF * RATION_UNIT} bytes"
            )
        check_int({"fragment_limit": self.fragment_limit}, min_value=1, max_value=MAX_LENGTH)
