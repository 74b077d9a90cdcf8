"""Private: stores of files, opened by URL: a directory, an object store, a cluster's file system, or a server.

``mainstem.recording`` and ``mainstem.capture`` accept these URLs.
"""

from mainstem.store.base import Store, StoredFile
from mainstem.store.open_store import SCHEMES, is_url, open_store

__all__ = ["SCHEMES", "Store", "StoredFile", "is_url", "open_store"]
