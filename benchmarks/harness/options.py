"""The command-line options that the benchmarks share. Unknown words are rejected before anything runs."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The parsed options. ``parts`` and ``peers`` are the selected ones. ``values`` has the options of a single benchmark."""

    benchmark: str
    json: bool
    write: bool
    quick: bool
    pairs: int
    parts: tuple[str, ...]
    peers: tuple[str, ...]
    values: argparse.Namespace

    def either(self, usual: T, quick: T) -> T:
        """Return ``usual``, or in a quick run ``quick``, a smaller size or a shorter time."""
        return quick if self.quick else usual


def parse_options(
    doc: str | None,
    parts: Iterable[str],
    *,
    peers: Iterable[str] = (),
    pairs: int = 5,
    quick_pairs: int = 1,
    more: Callable[[argparse.ArgumentParser], object] = lambda _: None,
) -> Options:
    """Parse the command line. Exit with 0 after help, with 2 if a word is rejected. ``more`` adds options of a single benchmark."""
    names, others = tuple(parts), tuple(peers)
    parser = argparse.ArgumentParser(
        usage="%(prog)s [OPTIONS]",
        description=doc,
        epilog=f"Parts: {'; '.join(names)}." if names else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--write", action="store_true", help="keep the ratios, and write the documentation's tables of them"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--pairs", type=_count, metavar="N", help="how many runs of each beside its peer")
    if names:
        parser.add_argument("--only", metavar="TEXT,...", help="only the parts whose names have one of these texts")
    if others:
        parser.add_argument("--peer", choices=others, help="only this peer")
    more(parser)
    values = parser.parse_args()
    return Options(
        benchmark=Path(sys.argv[0]).stem,
        json=values.json,
        write=values.write,
        quick=values.quick,
        pairs=values.pairs or (quick_pairs if values.quick else pairs),
        parts=_chosen(parser, names, getattr(values, "only", None)),
        peers=tuple(peer for peer in others if getattr(values, "peer", None) in (None, peer)),
        values=values,
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of pairs")
    return int(text)


def _chosen(parser: argparse.ArgumentParser, names: tuple[str, ...], only: str | None) -> tuple[str, ...]:
    # A name can contain a comma.
    is_one = only is not None and any(only in name for name in names)
    texts = names if only is None else (only,) if is_one else tuple(only.split(","))
    for text in texts:
        if not any(text in name for name in names):
            parser.error(f"--only: no part has {text!r} in its name; there are {'; '.join(names)}")
    return tuple(name for name in names if any(text in name for text in texts))
