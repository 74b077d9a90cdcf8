"""The retry policy of all stores. obstore follows it in its own retries; ``Retry`` is the loop for everything else."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from mainstem.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

# Seven waits of 0.1 s to 5 s, each with jitter: at most 15 s, longer than a second of throttling or a restart.
MAX_ATTEMPTS = 8
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 5.0


class TransientError(Exception):
    """Another attempt may succeed. ``wait_s`` is the server's Retry-After."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        self.wait_s = wait_s
        super().__init__(message)


@contextmanager
def mapped_errors(url: str, what: str) -> Iterator[None]:
    """Turn a client library's exceptions into StoreError. FileNotFoundError and transient errors keep their type."""
    try:
        yield
    except (FileNotFoundError, StoreError, TransientError):
        raise
    except Exception as error:
        # Each library, and each file system of fsspec, has exception types of its own.
        raise StoreError(url, f"{what}: {sentence(error)}") from error


def sentence(error: BaseException) -> str:
    """The first paragraph of an error, in one line. obstore appends a dump of its internal state."""
    return " ".join(str(error).partition("\n\n")[0].split()) or type(error).__name__


@dataclass
class Retry:
    """Repeats a call after growing waits with jitter, ``attempts`` times at most (None: without limit)."""

    attempts: int | None = MAX_ATTEMPTS
    first_wait_s: float = FIRST_WAIT_S
    max_wait_s: float = MAX_WAIT_S
    retry_on: tuple[type[Exception], ...] = (TransientError, ConnectionError, TimeoutError)
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)

    def call(self, action: Callable[[], T], url: str, what: str) -> T:
        """The result of ``action``. Raises StoreError after the last attempt, and errors that are not retried as they are."""
        wait_s = self.first_wait_s
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
            self.sleep(wait_s * self.rng.uniform(0.5, 1.0) if asked_s is None else min(asked_s, self.max_wait_s))
            wait_s = min(wait_s * 2, self.max_wait_s)
        raise AssertionError("unreachable")
