"""Event loop callbacks whose exceptions end the connection that they serve."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


class FailsInternally(Protocol):
    """A connection that can be ended because of an error on this side."""

    def _fail_internally(self, error: Exception) -> None: ...


C = TypeVar("C", bound=FailsInternally)


def ends_connection_on_error(callback: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """Wrap a callback of the transport or the event loop.

    The event loop would only log an exception and leave the peer waiting; in a loop over connections, the exception would also
    skip the remaining ones.
    """

    @functools.wraps(callback)
    def guarded(connection: C, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            callback(connection, *arguments, **options)
        except Exception as error:
            connection._fail_internally(error)

    return guarded
