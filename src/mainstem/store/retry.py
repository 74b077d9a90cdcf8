"""The retry policy of all stores. obstore uses it in its own retries; ``Retry`` implements it for everything else."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from mainstem._internal.pauses import GrowingPause
from mainstem.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

# Up to seven waits of 0.1 s to 5 s with jitter: about 11 s in total at most, which outlasts a second of throttling or a restart.
MAX_ATTEMPTS = 8
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 5.0


class TransientError(Exception):
    """A failure after which another attempt can succeed. ``wait_s`` is the server's Retry-After."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        self.wait_s = wait_s
        super().__init__(message)


@contextmanager
def mapped_errors(url: str, what: str) -> Iterator[None]:
    """Convert a client library's exceptions to StoreError. FileNotFoundError and transient errors are not converted."""
    try:
        yield
    except (FileNotFoundError, StoreError, TransientError):
        raise
    except Exception as error:
        # Each library, and each file system of fsspec, has its own exception types.
        raise StoreError(url, f"{what}: {sentence(error)}") from error


def sentence(error: BaseException) -> str:
    """Return the first paragraph of an error message in one line. obstore appends a dump of its internal state."""
    return " ".join(str(error).partition("\n\n")[0].split()) or type(error).__name__


@dataclass
class Retry:
    """Repeats a call, with growing waits and jitter, up to ``attempts`` times. None means no limit."""

    attempts: int | None = MAX_ATTEMPTS
    first_wait_s: float = FIRST_WAIT_S
    max_wait_s: float = MAX_WAIT_S
    retry_on: tuple[type[Exception], ...] = (TransientError, ConnectionError, TimeoutError)
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)

    def call(self, action: Callable[[], T], url: str, what: str) -> T:
        """Return the result of ``action``. Raises StoreError after the last attempt.

        Errors that are not retried are raised unchanged.
        """
        pause = GrowingPause(self.first_wait_s, self.max_wait_s, self.rng)
        for attempt in count(1):
            try:
                return action()
            except FileNotFoundError:
                raise
            except self.retry_on as error:
                if attempt == self.attempts:
                    if isinstance(error, StoreError):
                        raise
                    raise StoreError(url, f"{what} failed {attempt} times: {sentence(error)}") from error
                asked_s = getattr(error, "wait_s", None)
            wait_s = pause.next_s()
            self.sleep(wait_s if asked_s is None else min(asked_s, self.max_wait_s))
        raise AssertionError("unreachable")
