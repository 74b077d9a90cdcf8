"""A disk that fills up, makes short writes and fails single calls. Programs are killed at any step, and the host loses power.

Theory of operation. The files are real files below a directory, so the code under test maps, reads and lists them as usual. Each
program writes them through a ``FaultyDisk``. Everything that a program has written survives when it is killed. The ``Device``
also tracks which data has been flushed. ``lose_power`` leaves in the directory what a host could find after a loss of power:

* For a file, its content at the last ``sync``. Each 4 KiB page independently has its content from some moment since then, and so
  does the length. Pages that were never written are zeros.
* For a directory, its names at the last ``sync_directory``, plus any subset of later changes. So a name may exist whose file is
  empty, and a file whose pages were flushed may be gone because its name was not.

Bytes stored through a mapping, or written without going through the disk, count as written at the moment of the loss.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from mainstem._internal.file_modes import MAX_MODE
from mainstem.store.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

P = ParamSpec("P")
R = TypeVar("R")
PAGE = 4_096
MAX_VERSIONS = 6  # the most recent versions of a file that are kept between two flushes
MEMORY = Path("/dev/shm")


class Crash(BaseException):
    """Raised at the step at which the program dies."""


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """Create a directory, in memory if possible, so that nothing waits for a device."""
    return tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="mainstem-sim-")


@contextmanager
def may_be_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@dataclass(eq=False)
class _File:
    """A file under any number of names, with its content at the last flush and at later moments."""

    flushed: bytes = b""
    versions: list[bytes] = field(default_factory=list)
    path: Path | None = None  # the current path; None once it has no name

    def note(self) -> None:
        """Record the current content."""
        if self.path is not None:
            self.versions = [*self.versions, self.path.read_bytes()][-MAX_VERSIONS:]

    def left(self, rng: Random) -> bytes:
        self.note()
        moments = [self.flushed, *self.versions]
        if all(each == self.flushed for each in moments):
            return self.flushed
        length = len(rng.choice(moments))
        # Some losses keep nearly all of the written pages, and some nearly none.
        share = rng.choice((0.1, 0.5, 0.9))
        pages = []
        for at in range(0, length, PAGE):
            kept = rng.choice(moments) if rng.random() < share else moments[0]
            pages.append(kept[at : at + PAGE].ljust(min(PAGE, length - at), b"\0"))
        return b"".join(pages)


@dataclass(frozen=True, eq=False)
class NameChange:
    """A change to a name: from then on it refers to ``file``, or to nothing. A rename also removes ``source``."""

    name: Path
    file: _File | None
    source: Path | None = None


class Device:
    """A host's storage: the files below ``root``, all flushed at first, and what has been flushed since."""

    def __init__(self, root: Path, rng: Random) -> None:
        self.root, self.rng = root, rng
        self.starts = 1
        self._directories = {root, *(path for path in root.rglob("*") if path.is_dir())}
        self._take_stock(sorted(path for path in root.rglob("*") if path.is_file()))

    def _take_stock(self, paths: Iterable[Path]) -> None:
        """Treat all current files as flushed. Draws follow the order of ``paths``, since some names do not depend on the seed."""
        self.files: dict[Path, _File] = {}
        by_number: dict[int, _File] = {}
        for path in paths:
            number = path.stat().st_ino
            self.files[path] = by_number.get(number) or by_number.setdefault(
                number, _File(path.read_bytes(), path=path)
            )
        self._names = dict(self.files)
        self._changes: dict[Path, list[NameChange]] = defaultdict(list)
        self._new_directories: list[Path] = []

    def created(self, path: Path) -> None:
        self.files[path] = _File(path=path)
        self._changes[path.parent].append(NameChange(path, self.files[path]))

    def made(self, path: Path) -> None:
        self._new_directories.append(path)

    def linked(self, path: Path, target: Path) -> None:
        self.files[target] = self.files[path]
        self._changes[target.parent].append(NameChange(target, self.files[path]))

    def renamed(self, path: Path, target: Path) -> None:
        if target in self.files:
            self._unname(target)
        self.files[target] = file = self.files.pop(path)
        file.path = target
        self._changes[target.parent].append(NameChange(target, file, path))

    def deletes(self, path: Path) -> None:
        if list(self.files.values()).count(self.files[path]) == 1:
            self.files[path].note()
        self._unname(path)
        self._changes[path.parent].append(NameChange(path, None))

    def _unname(self, path: Path) -> None:
        file = self.files.pop(path)
        file.path = next((name for name, each in self.files.items() if each is file), None)

    def synced(self, file: _File, data: bytes) -> None:
        file.flushed, file.versions = data, []

    def synced_directory(self, path: Path) -> None:
        for change in self._changes.pop(path, ()):
            self._apply(change)
        for directory in [each for each in self._new_directories if each.parent == path]:
            self._new_directories.remove(directory)
            self._directories.add(directory)

    def pending(self, directory: Path) -> list[NameChange]:
        """Return the changes to a directory's names that have not been flushed."""
        return self._changes.get(directory, [])

    def _apply(self, change: NameChange) -> None:
        if change.source is not None:
            self._names.pop(change.source, None)
        if change.file is None:
            self._names.pop(change.name, None)
        else:
            self._names[change.name] = change.file

    def lose_power(self) -> None:
        """Replace the files with what a host could find after a loss of power. All programs must have been killed."""
        rng = self.rng
        self._notice_what_passed_the_disk()
        share = rng.choice((0.0, 0.3, 0.7, 1.0))
        self._directories.update(each for each in self._new_directories if rng.random() < share)
        for changes in self._changes.values():
            for change in changes:
                if rng.random() < share:
                    self._apply(change)
        left = {file: file.left(rng) for file in dict.fromkeys(self._names.values())}
        for entry in sorted(self.root.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        # If the name of a directory is lost, flushed files in it are lost too.
        for directory in sorted(self._directories - {self.root}):
            if directory.parent.exists():
                directory.mkdir()
        written: dict[_File, Path] = {}
        for path, file in self._names.items():
            if not path.parent.exists():
                continue
            if file in written:
                path.hardlink_to(written[file])
            else:
                path.write_bytes(left[file])
                written[file] = path
        self.starts += 1
        self._directories = {each for each in self._directories if each.exists()}
        self._take_stock([path for path in self._names if path.exists()])

    def _notice_what_passed_the_disk(self) -> None:
        for path in sorted(self.root.rglob("*")):
            if path.is_dir():
                if path not in self._directories and path not in self._new_directories:
                    self.made(path)
            elif path not in self.files:
                self.created(path)
        for path in [each for each in self.files if not each.exists()]:
            self.files[path].path = None
            self._changes[path.parent].append(NameChange(path, None))


def _in_steps(method: Callable[Concatenate[FaultyDisk, P], R]) -> Callable[Concatenate[FaultyDisk, P], R]:
    """Let the program die before or after the call, or let the call fail without an effect."""

    @wraps(method)
    def call(disk: FaultyDisk, /, *args: P.args, **kwargs: P.kwargs) -> R:
        disk._step()
        if disk.steps in disk._failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        result = method(disk, *args, **kwargs)
        disk._step()
        return result

    return call


class FaultyDisk(Disk):
    """The disk through which one program writes to a device. The program dies at step ``crash_at``; 0 means never.

    ``is_good`` makes every write succeed.
    """

    def __init__(self, device: Device, *, crash_at: int = 0, is_good: bool = False) -> None:
        rng = device.rng
        self.device, self._rng = device, rng
        self._crash_at = crash_at
        self._short = 0.0 if is_good else rng.choice((0.0, 0.0, 0.1, 0.5))
        self._full_from = rng.randrange(400) if not is_good and rng.random() < 0.3 else -1
        self._full_to = self._full_from + rng.randrange(1, 60)
        self._failing = {rng.randrange(400) for _ in range(0 if is_good else rng.choice((0, 0, 1, 5, 20)))}
        self.steps = 0
        self._open: dict[int, _File] = {}

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._crash_at:
            raise Crash

    @property
    def may_be_full(self) -> bool:
        """Whether the disk refuses a call at some step."""
        return self._full_from >= 0 or bool(self._failing)

    def heal(self) -> None:
        self._short, self._full_from, self._crash_at = 0.0, -1, 0
        self._failing.clear()

    def boot(self) -> bytes:
        return b"start %d" % self.device.starts

    @_in_steps
    def open(self, path: Path) -> int:
        is_new = not path.exists()
        fd = super().open(path)
        if is_new:
            self.device.created(path)
        self._open[fd] = self.device.files[path]
        return fd

    @_in_steps
    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        length = len(data)
        is_full = 0 <= self._full_from <= self.steps < self._full_to
        # A kernel copies page by page, so a write within one page succeeds or fails as a whole.
        cuts = range((offset // PAGE + 1) * PAGE - offset, length, PAGE)
        if cuts and self._rng.random() < (0.5 if is_full else self._short):
            length = self._rng.choice(cuts)
        elif is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = super().write_some(fd, data[:length], offset)
        self._open[fd].note()
        return count

    @_in_steps
    def resize(self, fd: int, length: int) -> None:
        super().resize(fd, length)
        self._open[fd].note()

    @_in_steps
    def rename(self, path: Path, target: Path) -> None:
        super().rename(path, target)
        self.device.renamed(path, target)

    @_in_steps
    def link(self, path: Path, target: Path) -> None:
        super().link(path, target)
        self.device.linked(path, target)

    @_in_steps
    def delete(self, path: Path) -> None:
        if path.is_file():
            self.device.deletes(path)
        super().delete(path)

    @_in_steps
    def make_directory(self, path: Path, *, default: int = MAX_MODE, mode: int | None = None, group: str = "") -> None:
        new = [each for each in (path, *path.parents) if not each.exists()]
        super().make_directory(path, default=default, mode=mode, group=group)
        for each in reversed(new):
            self.device.made(each)

    @_in_steps
    def sync(self, fd: int) -> None:
        self.device.synced(self._open[fd], os.pread(fd, os.fstat(fd).st_size, 0))

    @_in_steps
    def sync_directory(self, path: Path) -> None:
        self.device.synced_directory(path)

    def close(self, fd: int) -> None:
        # The kernel closes the files that a killed program left open.
        self._open.pop(fd)
        super().close(fd)
        self._step()

    def kill(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def lose_power(self) -> None:
        """Kill the program and let the host lose power."""
        self.kill()
        self.device.lose_power()
