"""A disk that fills up and writes short, whose programs are killed at any step, and whose machine loses power.

Theory of operation. The files are real ones, below a directory, so that the code under test maps, reads and lists them as always; a
``FaultyDisk`` is what one program writes them through. What a program has written stays when it is killed. The ``Device`` knows
besides what was flushed, and ``lose_power`` leaves below its directory what a machine may find that went down:

* of a file what it held when ``sync`` was called; of what was written later each page of 4 KiB as it was at any moment since, by
  itself, the length too, and zeros where a page was never written;
* in a directory the names as of its last ``sync_directory``; of what was done to names later any subset. So a name may be there
  whose file is empty, and a file may be gone whose pages were flushed, because its name was not.

What is stored through a mapping, or written past the disk, counts as written at the moment of the loss.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem._internal.file_modes import MAX_MODE
from mainstem.store.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from random import Random

PAGE = 4_096
MAX_VERSIONS = 6  # of a file between two flushes, the youngest


class Crash(BaseException):
    """The program is gone, at this step; nothing of it runs any more."""


@dataclass(eq=False)
class _File:
    """A file, by whatever names: as of its last flush, and at moments since."""

    flushed: bytes = b""
    versions: list[bytes] = field(default_factory=list)
    path: Path | None = None  # where it is now; None once it has no name

    def note(self) -> None:
        """Keeps what it holds now."""
        if self.path is not None:
            self.versions = [*self.versions, self.path.read_bytes()][-MAX_VERSIONS:]

    def left(self, chance: Random) -> bytes:
        """What a loss of power leaves of it."""
        self.note()
        moments = [self.flushed, *self.versions]
        if all(each == self.flushed for each in moments):
            return self.flushed
        length = len(chance.choice(moments))
        # Some losses take nearly all pages, or nearly none.
        share = chance.choice((0.1, 0.5, 0.9))
        pages = []
        for at in range(0, length, PAGE):
            kept = chance.choice(moments) if chance.random() < share else moments[0]
            pages.append(kept[at : at + PAGE].ljust(min(PAGE, length - at), b"\0"))
        return b"".join(pages)


@dataclass(frozen=True, eq=False)
class _Change:
    """What was done to a name: it is ``file``'s from then on, or nobody's. A rename takes ``source`` away with it."""

    name: Path
    file: _File | None
    source: Path | None = None


class Device:
    """What a machine has below a directory: its files, and what of them has been flushed.

    Args:
        root: The directory; what is there already is on the device.
        chance: Every draw comes from it.
    """

    def __init__(self, root: Path, chance: Random) -> None:
        self.root, self.chance = root, chance
        self.starts = 1
        self._directories = {root, *(path for path in root.rglob("*") if path.is_dir())}
        self._take_stock(sorted(path for path in root.rglob("*") if path.is_file()))

    def _take_stock(self, paths: Iterable[Path]) -> None:
        """Everything that is there is on the device, and is drawn for in this order: some names are no seed's."""
        self.files = {path: _File(path.read_bytes(), path=path) for path in paths}
        self._names = dict(self.files)
        self._changes: dict[Path, list[_Change]] = defaultdict(list)
        self._new_directories: list[Path] = []

    def created(self, path: Path) -> None:
        """A file has come into being."""
        self.files[path] = _File(path=path)
        self._changes[path.parent].append(_Change(path, self.files[path]))

    def made(self, path: Path) -> None:
        """A directory has come into being."""
        self._new_directories.append(path)

    def linked(self, path: Path, target: Path) -> None:
        """A file has got another name, which may be the only one soon."""
        self.files[target] = self.files[path]
        self._changes[target.parent].append(_Change(target, self.files[path]))

    def renamed(self, path: Path, target: Path) -> None:
        """A file has another name in place of its own, and of whatever had that."""
        if (replaced := self.files.get(target)) is not None:
            replaced.path = None
        self.files[target] = file = self.files.pop(path)
        file.path = target
        self._changes[target.parent].append(_Change(target, file, path))

    def deletes(self, path: Path) -> None:
        """A name is about to go."""
        file = self.files.pop(path)
        others = [name for name, each in self.files.items() if each is file]
        if not others:
            file.note()
        file.path = others[0] if others else None
        self._changes[path.parent].append(_Change(path, None))

    def synced(self, file: _File, data: bytes) -> None:
        """A file has been flushed."""
        file.flushed, file.versions = data, []

    def synced_directory(self, path: Path) -> None:
        """The names in a directory have been flushed."""
        for change in self._changes.pop(path, ()):
            self._apply(change)
        for directory in [each for each in self._new_directories if each.parent == path]:
            self._new_directories.remove(directory)
            self._directories.add(directory)

    def _apply(self, change: _Change) -> None:
        if change.source is not None:
            self._names.pop(change.source, None)
        if change.file is None:
            self._names.pop(change.name, None)
        else:
            self._names[change.name] = change.file

    def lose_power(self) -> None:
        """Leaves below the root what a machine finds that went down here; its programs are gone by then."""
        chance = self.chance
        self._notice_what_passed_the_disk()
        share = chance.choice((0.0, 0.3, 0.7, 1.0))
        self._directories.update(each for each in self._new_directories if chance.random() < share)
        for changes in self._changes.values():
            for change in changes:
                if chance.random() < share:
                    self._apply(change)
        left = {file: file.left(chance) for file in dict.fromkeys(self._names.values())}
        for entry in sorted(self.root.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        # What was flushed in a directory that has no name itself is gone with it.
        for directory in sorted(self._directories - {self.root}):
            if directory.parent.exists():
                directory.mkdir()
        for path, file in self._names.items():
            if path.parent.exists():
                path.write_bytes(left[file])
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
            self._changes[path.parent].append(_Change(path, None))


class FaultyDisk(Disk):
    """What one program writes a device through.

    Args:
        device: The device.
        crash_at: The step at which the program is gone; 0 for none.
        is_good: Whether the device takes everything.
    """

    def __init__(self, device: Device, *, crash_at: int = 0, is_good: bool = False) -> None:
        chance = device.chance
        self.device, self._chance = device, chance
        self._crash_at = crash_at
        self._short = 0.0 if is_good else chance.choice((0.0, 0.0, 0.1, 0.5))
        self._full_from = chance.randrange(400) if not is_good and chance.random() < 0.3 else -1
        self._full_to = self._full_from + chance.randrange(1, 60)
        self.steps = 0
        self._open: dict[int, _File] = {}

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._crash_at:
            raise Crash

    def heal(self) -> None:
        """From now on it takes everything."""
        self._short, self._full_from, self._crash_at = 0.0, -1, 0

    def boot(self) -> bytes:
        return b"start %d" % self.device.starts

    def open(self, path: Path) -> int:
        self._step()
        is_new = not path.exists()
        fd = super().open(path)
        if is_new:
            self.device.created(path)
        self._open[fd] = self.device.files[path]
        self._step()
        return fd

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._step()
        length = len(data)
        is_full = 0 <= self._full_from <= self.steps < self._full_to
        # A kernel copies page by page: what lies within one is written whole or not at all.
        cuts = range((offset // PAGE + 1) * PAGE - offset, length, PAGE)
        if cuts and self._chance.random() < (0.5 if is_full else self._short):
            length = self._chance.choice(cuts)
        elif is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = super().write_some(fd, data[:length], offset)
        self._open[fd].note()
        self._step()
        return count

    def resize(self, fd: int, length: int) -> None:
        self._step()
        super().resize(fd, length)
        self._open[fd].note()
        self._step()

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        super().rename(path, target)
        self.device.renamed(path, target)
        self._step()

    def link(self, path: Path, target: Path) -> None:
        self._step()
        super().link(path, target)
        self.device.linked(path, target)
        self._step()

    def delete(self, path: Path) -> None:
        self._step()
        if path.is_file():
            self.device.deletes(path)
        super().delete(path)
        self._step()

    def make_directory(self, path: Path, *, default: int = MAX_MODE, mode: int | None = None, group: str = "") -> None:
        self._step()
        new = [each for each in (path, *path.parents) if not each.exists()]
        super().make_directory(path, default=default, mode=mode, group=group)
        for each in reversed(new):
            self.device.made(each)
        self._step()

    def sync(self, fd: int) -> None:
        self._step()
        self.device.synced(self._open[fd], os.pread(fd, os.fstat(fd).st_size, 0))
        self._step()

    def sync_directory(self, path: Path) -> None:
        self._step()
        self.device.synced_directory(path)
        self._step()

    def close(self, fd: int) -> None:
        # The kernel closes what a program leaves open.
        self._open.pop(fd)
        super().close(fd)
        self._step()

    def kill(self) -> None:
        """Does what the kernel does after a program."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def lose_power(self) -> None:
        """The program is gone with the machine, which starts again."""
        self.kill()
        self.device.lose_power()
