"""The options of ``mainstem analyze``, and the interface for progress reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mainstem.errors import ConfigurationError

CATALOG = "archive.catalog"


class ProgressListener(Protocol):
    def stage(self, name: str, total: int | None) -> None: ...

    def progress(self, name: str, done: int) -> None: ...

    def done(self, name: str) -> None: ...


class NoProgress:
    def stage(self, name: str, total: int | None) -> None:
        pass

    def progress(self, name: str, done: int) -> None:
        pass

    def done(self, name: str) -> None:
        pass


@dataclass
class Inputs:
    captures: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    recordings: list[str] = field(default_factory=list)

    @property
    def has_frames(self) -> bool:
        return bool(self.captures or self.frames)


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions:
    """The inputs, and where the results go.

    ``inputs`` are captures, directories of captures, patterns, directories of recordings (also of Aeron Archive), or Parquet tables
    of frames from an earlier analysis or a streaming query. ``ports`` are the options of ``mainstem.capture`` for each protocol's
    ports. ``shown`` are the names of the inputs in the report, if ``inputs`` are copies. An earlier analysis in ``out`` is
    replaced; other files are kept.
    """

    inputs: tuple[str, ...]
    out: Path
    ports: dict[str, str] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    @property
    def tables(self) -> Path:
        return self.out / "tables"

    def split(self) -> Inputs:
        """Return the inputs by kind. Raises ConfigurationError if there are none, or if the analysis would overwrite one."""
        if not self.inputs:
            raise ConfigurationError("nothing to analyze: name a capture, a directory of captures or a recording")
        inputs = Inputs()
        for path in self.inputs:
            try:
                is_archive = (Path(path) / CATALOG).exists()
            except OSError as error:
                raise ConfigurationError(f"{path}: {error.strerror}") from error
            if is_archive:
                inputs.recordings.append(path)
            elif any(Path(path).glob("*.parquet")):
                if Path(path).resolve() == (self.tables / "frames").resolve():
                    raise ConfigurationError(f"`out`: {self.out} is where {path} is; name another directory")
                inputs.frames.append(path)
            else:
                inputs.captures.append(path)
        return inputs
