# Written from retransmit.py by tools/write_core_stubs.py: edit that file, then run the tool.

UNICAST_LINGER_NS: int
UNICAST_WINDOW_MULTIPLE: int
GROUP_WINDOW_MULTIPLE: int
DEFAULT_WINDOW_LENGTH: int
UNICAST_ACTIONS: int
DEFAULT_GROUP_ACTIONS: int
MOST_MESSAGE_LENGTH: int

class RetransmitHandler:
    """Remembers what was asked for lately, so that what is on its way is not sent twice (docs/protocols/aeron.md, 16.4).

    Positions and lengths are in bytes. With ``group`` semantics (multicast, many destinations) a full pool of ``max_actions``
    refuses, and ``overflows`` counts it; otherwise the oldest action makes room. ``deadline_ns`` is when ``on_time`` has work.

    ``rate`` bounds the bytes that are sent again, whatever is asked for: so many in a second, and FRESH_MULTIPLE times what was
    sent anew since; as many may have been saved up as a second gives, or as the publisher's window holds. Requests of strangers,
    whose address no status message came from, have an allowance of their own, a sixteenth of the rate: they take nothing from the
    receivers' own. What is refused for that counts as an overflow too. 0 is no bound.
    """

    deadline_ns: int
    overflows: int
    def __init__(
        self,
        term_length: int,
        group: bool = False,
        max_actions: int | None = None,
        window_multiple: int | None = None,
        window_length: int = ...,
        delay_ns: int = 0,
        linger_ns: int = ...,
        rate: int = 0,
    ) -> None: ...
    def on_nak(
        self, position: int, length: int, sender_position: int, now_ns: int, of_receiver: bool = True
    ) -> tuple[int, int] | None:
        """A request for ``length`` bytes from ``position``: what to send at once, None for nothing (yet)."""
    def on_time(self, now_ns: int, sender_position: int) -> list[tuple[int, int]]:
        """Forgets what has lingered; what was delayed until now is returned to be sent."""
