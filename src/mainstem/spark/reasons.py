"""The sentence that matters of an error of Spark's: Spark puts tracebacks before it, and a code or a plan behind it."""

from __future__ import annotations

import re

from mainstem import errors

_OWN = re.compile(r"\bmainstem\.errors\.(\w+): (.*)")


def own_error(error: BaseException) -> errors.MainstemError | None:
    """The error of Mainstem's that Spark wrapped, made anew from its text; None where there is none."""
    wrapped = None
    for line in str(error).splitlines():
        if match := _OWN.search(line):
            kind = getattr(errors, match[1], None)
            if isinstance(kind, type) and issubclass(kind, errors.MainstemError):
                # What a later one was raised from comes before it.
                wrapped = kind, match[2]
        elif wrapped is not None and line.startswith(("JVM stacktrace", "=== Streaming Query ===")):
            break
    if wrapped is None:
        return None
    kind, text = wrapped
    return kind(text)


def reason(error: BaseException) -> str:
    """The sentence of Mainstem's in an error of Spark's; of any other error its first line."""
    own = error if isinstance(error, errors.MainstemError) else own_error(error)
    if own is not None:
        return str(own)
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
