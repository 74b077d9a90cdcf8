"""Private: places that hold files, opened by URL: a directory, an object store, a file system of a cluster, a server.

``mainstem.recording`` and ``mainstem.capture`` take the URLs.
"""

from mainstem.store.base import Store, StoredFile
from mainstem.store.open_store import SCHEMES, is_url, open_store

__all__ = ["SCHEMES", "Store", "StoredFile", "is_url", "open_store"]
