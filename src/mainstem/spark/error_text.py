"""Extracts the root cause from a Spark error, whose text has tracebacks before the cause and a code or a plan after it."""

from __future__ import annotations

import re

from mainstem import errors

_OWN = re.compile(r"\bmainstem\.errors\.(\w+): (.*)")
# Marks the start of the query, its plan or the JVM's stack trace.
_APPENDIX = re.compile(r"^(?:JVM stacktrace|=== Streaming Query ===|== SQL )", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_SQL_STATE = re.compile(r"(?:\s+SQLSTATE: \w+;?)+\s*$")


def own_error(error: BaseException) -> errors.MainstemError | None:
    """Return the Mainstem error that Spark wrapped, rebuilt from its text, or None. Its attributes have their defaults."""
    wrapped = None
    for line in str(error).splitlines():
        if match := _OWN.search(line):
            kind = getattr(errors, match[1], None)
            if isinstance(kind, type) and issubclass(kind, errors.MainstemError):
                # The error's cause precedes it, so the last match is the error itself.
                wrapped = kind, match[2]
        elif wrapped is not None and line.startswith(("JVM stacktrace", "=== Streaming Query ===")):
            break
    if wrapped is None:
        return None
    kind, text = wrapped
    return kind.restored((text,))


def root_cause(error: BaseException) -> str:
    """Return the message of the error that made a query fail, for batch, streaming, SQL and Spark Connect.

    Args:
        error: The error that Spark raised, or ``query.exception()`` of a streaming query.

    Returns:
        Mainstem's own message, without the tracebacks, error code and plan that Spark puts around it. For other errors, the
        message of the Python exception in its traceback, or else the first line.

    Example:
        >>> try:
        ...     spark.sql("select * from t").collect()
        ... except Exception as error:
        ...     print(root_cause(error))
    """
    own = error if isinstance(error, errors.MainstemError) else own_error(error)
    if own is not None:
        return str(own)
    text = _APPENDIX.split(str(error), maxsplit=1)[0]
    _, _, trace = text.rpartition(_TRACEBACK)
    # In a traceback, every line before the exception is indented.
    raised = [line for line in trace.splitlines() if line and not line[0].isspace()] if _TRACEBACK in text else []
    lines = raised or _STREAM_FAILED.sub("", text).strip().splitlines()
    return _SQL_STATE.sub("", lines[0]) if lines else type(error).__name__


def as_own_error(error: BaseException) -> errors.MainstemError:
    """Convert a Spark error to a Mainstem error with the same text, which can be printed without a JVM."""
    return own_error(error) or errors.MainstemError(root_cause(error))
