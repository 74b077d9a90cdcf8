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

    Args:
        handler: Called with each whole message, as a ``Fragment``; for ``controlled_poll`` it returns an action or None.

    Example:
        >>> assembler = FragmentAssembler(lambda message: print(bytes(message)))
        >>> subscription.poll(assembler, 10)
    """

    handler: Callable[[Fragment], object]
    def __init__(self, handler: Callable[[Fragment], object]) -> None: ...
    def __call__(self, fragment: Fragment) -> object: ...
    def free_session(self, session_id: int) -> bool:
        """Discards an open message of a session whose image is gone.

        Args:
            session_id: The session of the image.

        Returns:
            Whether fragments of that session were held.

        Example:
            >>> subscription = client.add_subscription(
            ...     channel, 10, on_unavailable_image=lambda image: assembler.free_session(image.session_id)
            ... )
        """
    def clear(self) -> None:
        """Discards every open message.

        Example:
            >>> assembler.clear()
        """
