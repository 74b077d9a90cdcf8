"""Reads message streams as DataFrames. Call ``register(spark)``, or ``create_session()`` for a session that is already set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.lazy import lazy_names
from mainstem.errors import needs_extras
from mainstem.spark.python_daemon import end_quietly

if TYPE_CHECKING:
    from mainstem.spark.error_text import root_cause
    from mainstem.spark.filtered_read import recordings
    from mainstem.spark.lags import lag
    from mainstem.spark.payloads import decode, encode
    from mainstem.spark.session import create_session, register
    from mainstem.spark.sources.skip_report import read_skip_report

_HOMES = {
    "create_session": "mainstem.spark.session",
    "decode": "mainstem.spark.payloads",
    "encode": "mainstem.spark.payloads",
    "lag": "mainstem.spark.lags",
    "read_skip_report": "mainstem.spark.sources.skip_report",
    "recordings": "mainstem.spark.filtered_read",
    "register": "mainstem.spark.session",
    "root_cause": "mainstem.spark.error_text",
}

__all__ = ["create_session", "decode", "encode", "lag", "read_skip_report", "recordings", "register", "root_cause"]

_GUESSES = dict.fromkeys(("read", "read_recording", "read_stream"), "recordings") | {"session": "create_session"}

_load, __dir__ = lazy_names(__name__, _HOMES, guesses=_GUESSES)
# Every worker that runs a source, a sink or a codec imports this package.
end_quietly()


def __getattr__(name: str) -> Any:
    with needs_extras():
        return _load(name)
