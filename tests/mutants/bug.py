"""What a mutant is: a bug that anybody could write, where it goes, and what must find it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The simulator has so many seeds for each bug that lies in what it runs.
MAX_SEEDS = 200


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """Scenarios of ``mainstem.sim``, seed by seed from 1 on, until one fails."""

    scenarios: tuple[str, ...]
    seeds: int = MAX_SEEDS

    def __str__(self) -> str:
        return f"simulator: {', '.join(self.scenarios)}"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tests as pytest selects them, of which at least one must fail."""

    selection: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.selection)


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One bug: in ``file``, ``old`` stands exactly once and becomes ``new``; ``harm`` is what a user would notice.

    ``file`` is relative to ``src/mainstem``. An ``old`` that stands there no more, or twice, is an error: the code has moved, and
    the bug moves with it.
    """

    name: str
    harm: str
    file: str
    old: str
    new: str
    finder: Simulator | Suite

    @property
    def path(self) -> Path:
        """The file relative to the repository."""
        return Path("src/mainstem", self.file)

    @property
    def is_compiled(self) -> bool:
        """Whether the file is compiled."""
        return self.file.startswith("_core/")

    def planted(self, source: str) -> str:
        """The file's text with the bug in it.

        Raises LookupError where ``old`` does not stand exactly once.
        """
        count = source.count(self.old)
        if count != 1:
            raise LookupError(f"{self.name}: {self.path} has its text {count} times, not once")
        return source.replace(self.old, self.new)
