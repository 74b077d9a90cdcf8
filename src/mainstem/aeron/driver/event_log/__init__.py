"""The event log: lines for frames, commands, responses and changes (docs/protocols/aeron.md, 24, 25)."""

from __future__ import annotations

from mainstem.aeron.driver.event_log.log import EventLog, event_log
from mainstem.aeron.driver.event_log.names import chosen_events, known_events
from mainstem.aeron.driver.event_log.stream import StreamEvents
from mainstem.aeron.driver.event_log.watching import watched

__all__ = ["EventLog", "StreamEvents", "chosen_events", "event_log", "known_events", "watched"]
