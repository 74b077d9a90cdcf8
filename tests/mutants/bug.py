"""Definition of a mutant: a plausible bug, the file in which it is planted, and the tests that must find it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The number of seeds that the simulator may try for each bug in simulated code.
MAX_SEEDS = 200


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """Scenarios of ``mainstem.sim``, run with seeds from 1 upward until one fails."""

    scenarios: tuple[str, ...]
    seeds: int = MAX_SEEDS

    def __str__(self) -> str:
        return f"simulator: {', '.join(self.scenarios)}"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tests, in pytest's notation, of which at least one must fail."""

    selection: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.selection)


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One bug: ``new`` replaces the only occurrence of ``old`` in ``file``; ``harm`` is what a user would notice.

    ``file`` is relative to ``src/mainstem``. If ``old`` does not occur exactly once, that is an error: the code has changed, and
    the bug must be updated.
    """

    name: str
    harm: str
    file: str
    old: str
    new: str
    finder: Simulator | Suite

    @property
    def path(self) -> Path:
        """The file, relative to the repository."""
        return Path("src/mainstem", self.file)

    @property
    def is_compiled(self) -> bool:
        """True if the file is compiled."""
        return self.file.startswith("_core/")

    def planted(self, source: str) -> str:
        """Return the file's text with the bug in it.

        Raises LookupError if ``old`` does not occur exactly once.
        """
        count = source.count(self.old)
        if count != 1:
            raise LookupError(f"{self.name}: {self.path} has its text {count} times, not once")
        return source.replace(self.old, self.new)
