"""What is tried again, and how often: the one place that decides it for every store."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mainstem.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Seven waits of 0.1 s to 5 s, each shortened at random: 15 s at most, which outlives a throttled second and a restart.
ATTEMPTS = 8
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0

# What client libraries say of a fault that may pass. They have no common type for it.
_TRANSIENT = re.compile(
    r"Slow_?Down|Service_?Unavailable|Internal_?(?:Server_?)?(?:Error|Failure)|Request_?Timeout|Throttl|Too_?Many_?Requests"
    r"|NETWORK_CONNECTION"
    r"|(?:HTTP[ a-z]*|status(?: code)?:? ?|response code )(?:429|500|502|503|504)\b"
    r"|\b(?:500 Internal|502 Bad|503 Service|504 Gateway)"
    r"|connection (?:was )?(?:reset|refused|closed|aborted|error)|broken pipe|reset by peer|timed? ?out"
    r"|curlCode: (?:7|18|28|52|56)\b|incomplete|end of (?:file|stream) before"
    # obstore's word for whatever broke below HTTP: what a server said comes with its status.
    r"|\bHTTP error:",
    re.IGNORECASE,
)


class TransientError(Exception):
    """What a store raises for itself where it knows that another attempt may succeed; ``wait_s`` is the server's Retry-After."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        self.wait_s = wait_s
        super().__init__(message)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: throttling, a server's own fault, a connection that broke."""
    if isinstance(error, TransientError | ConnectionError | TimeoutError):
        return True
    if isinstance(error, FileNotFoundError | PermissionError | StoreError):
        return False
    # Not all of the text: obstore goes on with its settings, retry_timeout among them.
    return _TRANSIENT.search(_sentence(error)) is not None


def _sentence(error: BaseException) -> str:
    """The first paragraph of an error: some libraries go on with their own state."""
    return str(error).partition("\n\n")[0].strip() or type(error).__name__


@dataclass
class Retry:
    """Calls again what failed for a moment, after growing waits with jitter. Time and chance are arguments for tests."""

    attempts: int = ATTEMPTS
    first_wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = LONGEST_WAIT_S
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)

    def call(self, action: Callable[[], T], url: str, what: str) -> T:
        """The result of ``action``. Raises FileNotFoundError as it comes, and StoreError for all else that does not pass."""
        wait_s = self.first_wait_s
        for attempt in range(1, self.attempts + 1):
            try:
                return action()
            except (FileNotFoundError, StoreError):
                raise
            except Exception as error:
                # Client libraries raise types of their own.
                if not is_transient(error):
                    raise StoreError(url, f"{what}: {_sentence(error)}") from error
                if attempt == self.attempts:
                    raise StoreError(url, f"{what} failed {attempt} times: {_sentence(error)}") from error
                asked_s = error.wait_s if isinstance(error, TransientError) else None
                self.sleep(
                    wait_s * self.chance.uniform(0.5, 1.0) if asked_s is None else min(asked_s, self.longest_wait_s)
                )
                wait_s = min(wait_s * 2, self.longest_wait_s)
        raise AssertionError("unreachable")
