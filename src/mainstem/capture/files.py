"""The captures of a path: one file, the captures in a directory, or the files that a pattern matches."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from mainstem.capture.remote_files import listed
from mainstem.capture.spooling import is_read_once
from mainstem.capture.store import SUFFIX
from mainstem.errors import CaptureError
from mainstem.store import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names that dumpcap, tcpdump (which numbers its files after the suffix) and Wireshark use. Compressed files match too, so that
# unsupported ones become a problem.
_CAPTURE = re.compile(r"\.(pcap|pcapng|cap|ntar)\d*(\.(gz|zst|xz|bz2|lz4))?$", re.IGNORECASE)


def captures(path: str, *, must_exist: bool = True, options: Mapping[str, str] | None = None) -> list[str]:
    """Return the captures of a path, sorted by name. Raises CaptureError if there is none, unless ``must_exist`` is false.

    A directory stands for its files that are named like captures, a pattern (``**`` is supported) for every file that it matches,
    except indexes. The same applies to URLs, in which only the last part may be a pattern; ``options`` are their store's.
    """
    paths: list[str]
    if is_url(path):
        paths = list(listed(path, options or {}, lambda name: _CAPTURE.search(name) is not None))
        paths = [each for each in paths if not each.endswith(SUFFIX)]
    elif os.path.isdir(path):
        paths = [entry.path for entry in os.scandir(path) if entry.is_file() and _CAPTURE.search(entry.name)]
    elif is_read_once(path):
        raise CaptureError(
            f"{path} can be read only once, and a capture is read more than once: copy it to a file first"
        )
    elif os.path.exists(path):
        paths = [path]
    else:
        matches = glob.glob(path, recursive=True)
        paths = [name for name in matches if os.path.isfile(name) and not name.endswith(SUFFIX)]
    if not paths and must_exist:
        raise CaptureError(f"no capture at {path!r}")
    return sorted(paths)
