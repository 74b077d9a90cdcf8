"""Write a qlog file for each connection.

The libraries' own file logger has the same two methods, which the libraries call. But it keeps the trace of every connection that
was made, and a server makes one for each first packet that may be garbage. This one can also discard a trace.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = "0.3"
"""The version of qlog that both libraries write."""


class QlogFiles:
    """Traces, each of which becomes a file in ``directory`` once its connection has ended.

    ``make_trace`` is the library's class. ``newest`` is the trace of the connection that was made last.
    """

    def __init__(self, directory: Path, make_trace: Callable[..., Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._make_trace = make_trace
        self.unfinished: set[Any] = set()
        self.newest: Any = None

    def start_trace(self, is_client: bool, odcid: bytes) -> Any:
        """Return a new trace. The library calls this for each connection."""
        self.newest = self._make_trace(is_client=is_client, odcid=odcid)
        self.unfinished.add(self.newest)
        return self.newest

    def end_trace(self, trace: Any) -> None:
        """Write the file of a trace, unless that was done. The library calls this if it ends the connection itself."""
        if trace in self.unfinished:
            content = trace.to_dict()
            with (self._directory / f"{content['common_fields']['ODCID']}.qlog").open("w") as file:
                json.dump({"qlog_format": "JSON", "qlog_version": VERSION, "traces": [content]}, file)
            self.unfinished.remove(trace)

    def discard(self, trace: Any) -> None:
        self.unfinished.discard(trace)
