"""What keeps Spark's Python workers quick."""

from __future__ import annotations

import gc

# Tasks of a worker after which nothing more is imported: the modules of what was read, and those that Spark loads late.
SETTLING_TASKS = 4

_tasks = 0


def settle() -> None:
    """To be called at a task's start, before it makes anything.

    Spark's worker collects garbage after every task, over every module that was ever imported: most of the time of a small
    task. What lives when a task starts has just been looked through, and what its first tasks import lives as long as the
    worker: so it need not be looked at again.
    """
    global _tasks
    if _tasks < SETTLING_TASKS:
        _tasks += 1
        gc.freeze()
