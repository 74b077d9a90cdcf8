"""Where indexes are stored: beside their captures, in a directory, or nowhere."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from dataclasses import asdict, astuple
from pathlib import Path

from mainstem.capture.chunks import Chunk, FrameIndex, Problem
from mainstem.capture.files import INDEX_SUFFIX, capture_errors, status_of
from mainstem.capture.formats import Format, Section
from mainstem.capture.index import build
from mainstem.store import is_url

VERSION = 2
_CHUNK = struct.Struct("<qqqqqqQQi")


def location(path: str, directory: str | None) -> Path:
    """Return the index's path: beside the capture, or in a directory under a unique name."""
    if directory is None:
        return Path(path + INDEX_SUFFIX)
    whole = path if is_url(path) else os.path.abspath(path)
    name = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return Path(directory) / f"{Path(path).name}-{name}{INDEX_SUFFIX}"


def index_of(path: str, directory: str | None = None) -> FrameIndex:
    """Return the stored index of a capture if the file is unchanged; otherwise build a new one and store it.

    If it cannot be stored, the index is built again next time. Raises CaptureError if the capture cannot be opened.
    """
    if is_url(path) and directory is None:
        # The index would go beside the capture, but the store may be read-only.
        return build(path)
    place = location(path, directory)
    before = _load(place)
    with capture_errors(path):
        present = status_of(path)
    if before is not None and (before.size, before.mtime_ns) == present:
        return before
    index = build(path, before)
    with contextlib.suppress(OSError):
        _save(place, index)
    return index


def _save(place: Path, index: FrameIndex) -> None:
    kind = index.format
    head = {
        "version": VERSION,
        "size": index.size,
        "mtime_ns": index.mtime_ns,
        "format": kind and asdict(kind) | {"section": astuple(kind.section)},
        "sections": [astuple(section) for section in index.sections],
        "problems": [astuple(problem) for problem in index.problems],
        "tail": index.tail and astuple(index.tail),
        "end": index.end,
        "packets": index.packets,
        "links": index.links,
        "prints": index.prints,
        "chunks": len(index.chunks),
    }
    body = b"".join(
        _CHUNK.pack(c.offset, c.end, c.packet, c.packets, c.first_ns, c.last_ns, c.tcp, c.fragments, c.section)
        for c in index.chunks
    )
    data = json.dumps(head).encode() + b"\n" + body
    place.parent.mkdir(parents=True, exist_ok=True)
    # Write a temporary file and rename it, so that another reader sees either the old index or the complete new one.
    handle, name = tempfile.mkstemp(prefix=place.name, dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            # Without this, a power failure can leave the new name with unwritten pages, whose zeros would be read as chunks.
            os.fsync(file.fileno())
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def _load(place: Path) -> FrameIndex | None:
    try:
        line, _, body = place.read_bytes().partition(b"\n")
        head = json.loads(line)
        if head["version"] != VERSION or len(body) != head["chunks"] * _CHUNK.size:
            return None
        kind = head["format"]
        return FrameIndex(
            head["size"],
            head["mtime_ns"],
            kind and Format(**{**kind, "section": _section(kind["section"])}),
            [_section(section) for section in head["sections"]],
            [Chunk(*values) for values in _CHUNK.iter_unpack(body)],
            [Problem(*values) for values in head["problems"]],
            head["tail"] and Problem(*head["tail"]),
            head["end"],
            head["packets"],
            head["links"],
            tuple(head["prints"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _section(values: list[object]) -> Section:
    swapped, interfaces = values
    if not isinstance(interfaces, list):
        raise TypeError(f"interfaces are a list, not {interfaces!r}")
    return Section(bool(swapped), tuple(tuple(interface) for interface in interfaces))
