"""``make mutants``: plant every known bug, one at a time, and print what found it. Exit with 1 if a bug was not found.

``--sample N`` takes N of them, chosen by the commit; ``--only NAME`` takes those whose names contain a word.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.bugs import BUGS
from tests.mutants.planting import CannotRun, Found, Tree
from tests.support.case_selection import commit, order_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.bug import Bug


def sample(bugs: Sequence[Bug], count: int, chosen_by: str) -> list[Bug]:
    """Return ``count`` bugs: the same ones for the same commit, and different ones for the next commit."""
    return sorted(bugs, key=lambda bug: order_of(bug.name, chosen_by))[:count]


def search(bugs: Sequence[Bug], directory: Path, workers: int) -> list[Found]:
    """Plant each bug in a copy of the source, ``workers`` of them in parallel, and print each result."""
    clean = Tree(directory / "clean")
    trees = [Tree(directory / f"tree{number}") for number in range(workers)]
    clean.check()
    clean.passes(bugs)
    shares = [bugs[number::workers] for number in range(workers)]

    def work(number: int) -> list[Found]:
        results = []
        for bug in shares[number]:
            results.append(trees[number].find(bug))
            print(_progress(results[-1]), flush=True)
        return results

    with ThreadPoolExecutor(workers) as pool:
        found = [each for results in pool.map(work, range(workers)) for each in results]
    clean.keeps(each.by for each in found)
    return sorted(found, key=lambda each: bugs.index(each.bug))


def _progress(found: Found) -> str:
    if found.by:
        return f"  found  {found.bug.name} ({found.seconds:.0f} s)"
    return f"  MISSED {found.bug.name} ({found.seconds:.0f} s): {found.why}"


def table(found: Sequence[Found]) -> str:
    """Return the bugs as a Markdown table."""
    rows = ["| bug | in | found by | seconds |", "| --- | --- | --- | ---: |"]
    for each in found:
        by = f"`{_short(each.by)}`" if each.by else "**nothing**"
        rows.append(f"| {each.bug.name} | `{each.bug.file}` | {by} | {each.seconds:.0f} |")
    return "\n".join(rows)


def _short(by: str) -> str:
    """Return a test without its directories, or a scenario with its seed."""
    if "::" in by:
        return by.rsplit("/", maxsplit=1)[-1]
    scenario, _, seed = by.partition(":")
    return f"simulator, {scenario}, seed {seed}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N bugs, chosen by the commit")
    parser.add_argument("--only", action="append", metavar="WORD", help="only bugs whose names contain this")
    parser.add_argument("--workers", type=int, default=2, help="how many bugs are planted at a time")
    options = parser.parse_args()
    bugs: list[Bug] = [bug for bug in BUGS if not options.only or any(word in bug.name for word in options.only)]
    if options.sample:
        bugs = sample(bugs, options.sample, commit())
        print(f"the sample of commit {commit()[:10] or '(none)'}: {', '.join(bug.name for bug in bugs)}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mainstem-mutant-") as directory:
        try:
            found = search(bugs, Path(directory), max(1, min(options.workers, len(bugs))))
        except CannotRun as error:
            print(error, file=sys.stderr)
            return 2
    missed = [each for each in found if not each.by]
    print(table(found))
    print(f"{len(found) - len(missed)} of {len(found)} bugs found in {time.monotonic() - begun:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
