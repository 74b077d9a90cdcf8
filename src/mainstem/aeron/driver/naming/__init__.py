"""Names into addresses as the settings say: the system's resolver, a table, or drivers that tell one another (behaviour, 22)."""

from __future__ import annotations

from mainstem.aeron.driver.naming.choice import make_names
from mainstem.aeron.driver.naming.names import Names

__all__ = ["Names", "make_names"]
