"""What both sessions share for callers that block."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mainstem.jmux.session_stream import SessionStream
from mainstem.mux.blocking import BaseStream

if TYPE_CHECKING:
    from typing import Self

S = TypeVar("S", bound=SessionStream)


class Session(BaseStream[S]):
    """One session. As a context manager it is closed at the end of the block; a block that raises aborts it."""

    def abort(self, detail: str = "") -> None:
        """Ends the session at once; the request may have been processed in part. Twice is fine.

        Args:
            detail: A text for the peer.

        Example:
            >>> session.abort("no longer needed")
        """
        self._thread.call(self._inner.abort, detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.run(lambda: self._inner.__aexit__(*exc), undo=lambda _: self._inner.abort())  # type: ignore[arg-type]
