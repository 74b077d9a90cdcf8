"""The options of ``mainstem demo``. Messages name an option by its field in backticks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mainstem.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """How the demo runs. ``count`` is the number of messages (0 = all), ``data`` a table other than the flights."""

    loss: float = 0.02
    count: int = 0
    data: Path | None = None
    out: Path = Path("out/demo")
    seed: int = 1

    def check(self) -> None:
        if not 0 <= self.loss < 1:
            raise ConfigurationError(f"`loss`: {self.loss} is not in 0 to 1 (0.2 drops a fifth)")
        if self.count < 0:
            raise ConfigurationError(f"`count` must be at least 0 (got {self.count})")
