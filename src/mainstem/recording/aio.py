"""Recordings for asyncio: the class of the object that ``mainstem.aio.Aeron.add_persistent_subscription`` returns."""

from __future__ import annotations

from mainstem.aeron.aio.persistent_subscription import PersistentSubscription

__all__ = ["PersistentSubscription"]
