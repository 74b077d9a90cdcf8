"""Which requests for a retransmission are answered, and when (behaviour, 16.4)."""

from __future__ import annotations

from dataclasses import dataclass

NEVER_NS = 0x7FFFFFFFFFFFFFFF
UNICAST_LINGER_NS = 10_000_000
# A sender answers at most this many times the receivers' initial window for one request.
UNICAST_WINDOW_MULTIPLE = 16
GROUP_WINDOW_MULTIPLE = 4
DEFAULT_WINDOW_LENGTH = 128 * 1024
# Requests remembered at once. A receiver of ours asks for 64 gaps together; a group's pool is the channel's ``max-resend``.
UNICAST_ACTIONS = 64
DEFAULT_GROUP_ACTIONS = 16


@dataclass(slots=True)
class _Action:
    position: int
    length: int
    deadline_ns: int
    is_delayed: bool

    def covers(self, position: int) -> bool:
        return self.position <= position < self.position + self.length


class RetransmitHandler:
    """Remembers what was asked for lately, so that what is on its way is not sent twice. Positions and lengths in bytes.

    With group semantics (multicast, many destinations) a full pool refuses, and ``overflows`` counts it; otherwise the
    oldest action makes room, since one receiver's newest request is what it needs.
    """

    def __init__(
        self,
        *,
        term_length: int,
        group: bool = False,
        max_actions: int | None = None,
        window_multiple: int | None = None,
        window_length: int = DEFAULT_WINDOW_LENGTH,
        max_message_length: int | None = None,
        delay_ns: int = 0,
        linger_ns: int = UNICAST_LINGER_NS,
    ) -> None:
        multiple = window_multiple or (GROUP_WINDOW_MULTIPLE if group else UNICAST_WINDOW_MULTIPLE)
        self._term_length = term_length
        self._group = group
        self._max_actions = (max_actions or DEFAULT_GROUP_ACTIONS) if group else UNICAST_ACTIONS
        self._most = min(window_length, term_length // 2) * multiple
        self._reach = term_length // 2 + (max_message_length or min(term_length // 8, 16 * 1024 * 1024))
        self._delay_ns = delay_ns
        self._linger_ns = linger_ns
        self._actions: list[_Action] = []
        self.overflows = 0
        self.deadline_ns = NEVER_NS

    def on_nak(self, position: int, length: int, *, sender_position: int, now_ns: int) -> tuple[int, int] | None:
        """A request for ``length`` bytes from ``position``: what to send at once, None for nothing (yet)."""
        if length <= 0 or any(action.covers(position) for action in self._actions):
            return None
        if not self._is_in_reach(position, sender_position):
            return None
        if len(self._actions) >= self._max_actions:
            if self._group:
                self.overflows += 1
                return None
            self._actions.pop(0)
        to_term_end = self._term_length - position % self._term_length
        length = min(length, to_term_end, self._most)
        delayed = self._delay_ns > 0
        timer = now_ns + (self._delay_ns if delayed else self._linger_ns)
        self._actions.append(_Action(position, length, timer, delayed))
        self._set_deadline()
        return None if delayed else (position, length)

    def on_time(self, now_ns: int, *, sender_position: int) -> list[tuple[int, int]]:
        """Forgets what has lingered; what was delayed until now is returned to be sent."""
        if now_ns < self.deadline_ns:
            return []
        due = []
        kept = []
        for action in self._actions:
            if action.deadline_ns > now_ns:
                kept.append(action)
            elif action.is_delayed:
                if self._is_in_reach(action.position, sender_position):
                    due.append((action.position, action.length))
                action.is_delayed = False
                action.deadline_ns = now_ns + self._linger_ns
                kept.append(action)
        self._actions = kept
        self._set_deadline()
        return due

    def _is_in_reach(self, position: int, sender_position: int) -> bool:
        return sender_position - self._reach <= position < sender_position

    def _set_deadline(self) -> None:
        self.deadline_ns = min((action.deadline_ns for action in self._actions), default=NEVER_NS)
