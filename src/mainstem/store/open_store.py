"""Opens the store for a URL. The scheme selects the store, and only the packages that it needs are imported."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mainstem._internal.urls import split_url
from mainstem.errors import ConfigurationError
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.store.base import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
OBJECT_SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss")
HDFS_SCHEMES = ("hdfs", "viewfs")
HTTP_SCHEMES = ("http", "https")
ARCHIVE_SCHEME = "aeron-archive"
# Other names of a scheme.
SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}
SCHEMES = ("file", *OBJECT_SCHEMES, *HDFS_SCHEMES, *HTTP_SCHEMES)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case, or an empty string for a path."""
    match = _SCHEME.match(url)
    if match:
        return match[1].lower()
    return "file" if url.startswith("file:/") else ""


def is_url(text: str) -> bool:
    """Return whether a string is a URL and not a path."""
    return bool(scheme_of(text))


def place_of(location: str) -> str:
    """Return the same text for every spelling of a location: the real path, or the URL without options and final slashes."""
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        return os.path.realpath(unquote(split_url(location, names_host=False).path) if scheme else location)
    rest = location.partition("?")[0].partition("://")[2]
    return f"{SAME_SCHEMES.get(scheme, scheme)}://{rest.rstrip('/')}"


def open_store(url: str | Path, options: Mapping[str, str] | None = None) -> Store:
    """Return the store at a URL or a local path. The location need not exist.

    ``options`` are strings under their pyarrow or Hadoop names (``fs.s3a.endpoint``). Raises ConfigurationError if the scheme or an
    option is unknown, and MissingExtraError if the package for the scheme is not installed.
    """
    text, options = str(url), dict(options or {})
    scheme = scheme_of(text)
    if not scheme:
        return LocalStore(Path(url))
    if scheme == "file":
        parts = split_url(text, names_host=False)
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(
                f"{text!r} names the host {parts.netloc!r}; a file:// URL has three slashes, as in file:///data"
            )
        return LocalStore(Path(unquote(parts.path)), text)
    if scheme in HTTP_SCHEMES:
        from mainstem.store.http import HttpStore

        return HttpStore(text, options)
    if scheme == ARCHIVE_SCHEME:
        raise ConfigurationError(f"{text!r} is a running archive, not a store: recordings can only be read from it")
    if scheme in OBJECT_SCHEMES:
        from mainstem.store.objects import open_object_store

        return open_object_store(text, options)
    from mainstem.store.fsspec import open_fsspec_store, open_hdfs_store

    if scheme in HDFS_SCHEMES:
        return open_hdfs_store(text, options)
    if find_spec("fsspec") is None:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ConfigurationError(
            f"{text!r}: there is no store for {scheme}://; known are {known}, and what fsspec knows: pip install fsspec and its"
            f" package for {scheme}"
        )
    return open_fsspec_store(text, scheme, options)
