"""Captures compressed with gzip or zstd, as seekable files; only reading forward is fast."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING, Any

from mainstem.capture.files import open_file
from mainstem.store import is_url

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]

BUFFER_BYTES = 1 << 16
PIECE_BYTES = 4096
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# A skippable zstd frame begins with one of 16 magic numbers: pzstd writes one before each of its frames.
_SKIPPED = b"\x2a\x4d\x18"


class _Unpacked(io.RawIOBase):
    """The decompressed bytes. If they end early or are corrupt, the file ends, and ``fault`` says why."""

    def __init__(self, path: str, packed: str) -> None:
        self._path, self._packed = path, packed
        self._position = 0
        self.fault = ""
        self._source = self._open()

    def _open(self) -> Any:
        if self._packed == "gzip":
            return gzip.open(open_file(self._path), "rb") if is_url(self._path) else gzip.open(self._path, "rb")
        import pyarrow as pa

        return pa.CompressedInputStream(
            pa.PythonFile(open_file(self._path)) if is_url(self._path) else pa.OSFile(self._path), "zstd"
        )

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        try:
            if self._packed == "gzip":
                data = self._source.read1(len(view))
            else:
                # A read that fails returns nothing, so read small blocks, always at the same offsets: each pass over a corrupt
                # file then ends at the same place.
                data = self._source.read(min(len(view), PIECE_BYTES - self._position % PIECE_BYTES))
        except (OSError, EOFError, zlib.error) as error:
            self.fault = f"the {self._packed} file is corrupt or cut off: {error}"
            data = b""
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Decompress up to an offset; seeking back starts at the beginning."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only places from the beginning")
        if offset < self._position:
            self._source.close()
            self._source, self._position = self._open(), 0
        spare = bytearray(min(BUFFER_BYTES * 16, max(offset - self._position, 0)))
        while self._position < offset and self.readinto(memoryview(spare)[: offset - self._position]):
            pass
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def packing_of(head: bytes) -> str:
    """Return the compression of a file, by its first four bytes; empty if there is none."""
    if head[:2] == _GZIP:
        return "gzip"
    return "zstd" if head[:4] == _ZSTD or (head[1:4] == _SKIPPED and head[0] >> 4 == 5) else ""


def head_of(path: str, length: int) -> tuple[str, bytes]:
    with open_file(path) as file:
        packed = packing_of(file.read(4))
    with open_capture(path, packed) as file:
        return packed, file.read(length)


def open_capture(path: str, packed: str = "") -> IO[bytes]:
    """Open a capture for reading; ``packed`` is its compression. Raises OSError."""
    return io.BufferedReader(_Unpacked(path, packed), BUFFER_BYTES) if packed else open_file(path)


def unpacked_size(path: str, packed: str) -> tuple[int, str]:
    """Return the size of a compressed capture, and its problem, if any. Decompresses all of it."""
    with _Unpacked(path, packed) as file:
        spare = bytearray(BUFFER_BYTES * 16)
        while file.readinto(spare):
            pass
        return file.tell(), file.fault
