"""A worker's garbage collector does not look at what was imported long ago."""

from __future__ import annotations

import itertools
import subprocess
import sys

PROGRAM = """
import gc
from mainstem.spark.sources import batches

seen = []
for task in range(batches.SETTLING_TASKS + 2):
    batches.settle()
    seen.append(gc.get_freeze_count())
    kept = globals().setdefault("kept", [])
    kept.append([[] for _ in range(10_000)])
    gc.collect()
print(*seen)
"""


def test_what_the_first_tasks_leave_behind_is_not_looked_at_again_and_what_later_ones_leave_is() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seen = [int(word) for word in done.stdout.split()]
    settling, later = seen[:-2], seen[-2:]
    assert all(after >= before + 10_000 for before, after in itertools.pairwise(settling))
    # A worker lives for days: what its tasks drop must be found.
    assert later == [settling[-1]] * 2
