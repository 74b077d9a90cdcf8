"""Jobs of Spark side by side: while one plans or writes its last file, another's tasks use the cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

T = TypeVar("T")
# Tasks still share the cores, and so memory is what one job's tasks take; more threads than these only wait.
THREADS = 4


def in_parallel(spark: SparkSession, jobs: Sequence[Callable[[], T]]) -> list[T]:
    """The results of the jobs, in their order. Raises what the first to fail raised.

    They belong to the caller's job group, so that cancelling the group cancels them.
    """
    from pyspark import inheritable_thread_target

    with ThreadPoolExecutor(THREADS) as threads:
        # Each has properties of its own: Spark notes in them which query a thread runs.
        running = [threads.submit(inheritable_thread_target(spark)(job)) for job in jobs]
        try:
            for each in as_completed(running):
                each.result()
        except BaseException:
            for each in running:
                each.cancel()
            raise
        return [each.result() for each in running]
