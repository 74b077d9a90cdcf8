# Written from assemble.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable

from mainstem._core.log.fragment import Fragment

INITIAL_LENGTH: int

class MessageBuilder:
    """The message of one session that is being put together: the first fragment's header, then payload."""

    length: int
    def __init__(self) -> None: ...
    def reset(self) -> None:
        """Forgets what was gathered."""

class FragmentAssembler:
    """A handler for ``poll`` and ``controlled_poll`` that hands whole messages to ``handler``.

    A message that came in one frame is passed through; a split one is gathered by session id. Its header is the first
    fragment's, with the whole length and the position at the end of the last. A fragment that does not start where the one
    before it ended drops the message.
    """

    handler: Callable[[Fragment], object]
    def __init__(self, handler: Callable[[Fragment], object]) -> None: ...
    def __call__(self, fragment: Fragment) -> object: ...
    def free_session(self, session_id: int) -> bool:
        """Forgets an open message of that session, when its image is gone; false when there was none."""
    def clear(self) -> None:
        """Forgets every open message."""
