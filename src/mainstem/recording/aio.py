"""Recordings for asyncio: the class of the object that ``mainstem.aio.Aeron.add_persistent_subscription`` returns."""

from __future__ import annotations

from mainstem.recording.persistent.aio import PersistentSubscription

__all__ = ["PersistentSubscription"]
