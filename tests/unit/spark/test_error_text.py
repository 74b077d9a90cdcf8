"""The cause of a failed query, in the text of Spark's error."""

from __future__ import annotations

import inspect

import pytest

from mainstem import errors
from mainstem.errors import ConfigurationError
from mainstem.spark import root_cause
from mainstem.spark.error_text import as_own_error


def test_the_reason_is_the_last_mainstem_error() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "mainstem.errors.StoreError: the cause\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "mainstem.errors.RecordingError: /data holds no recordings\n"
        " SQLSTATE: XXKST\n=== Streaming Query ===\nCurrent State: mainstem.errors.RecordingError: elsewhere\n"
    )
    assert root_cause(RuntimeError(text)) == "/data holds no recordings"
    assert root_cause(ConfigurationError("path: none")) == "path: none"
    assert root_cause(RuntimeError("[A_CODE] another\nmore")) == "[A_CODE] another"


FAILED = "[STREAM_FAILED] Query [id = b4177a9c, runId = d5d890ef] terminated with exception: "
PLAN = "\n SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: tides\nTraceback: none\n"
TRACE = 'Traceback (most recent call last):\n  File "t.py", line 9\n    raise\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{FAILED}[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1) ==\n1 div 0{PLAN}",
            "[DIVIDE_BY_ZERO] Division by zero.",
        ),
        (
            f"{FAILED}[PYTHON_EXCEPTION] {TRACE}ValueError: boom at 3\nline 2\n SQLSTATE: 38000{PLAN}",
            "ValueError: boom at 3",
        ),
        (
            f"{TRACE}KeyError: 1\n\nDuring handling:\n\n{TRACE}OSError: [Errno 28] No space\n",
            "OSError: [Errno 28] No space",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_root_cause_of_a_foreign_error_is_found_in_its_text(text: str, sentence: str) -> None:
    assert root_cause(RuntimeError(text)) == sentence


@pytest.mark.parametrize("name", [name for name in errors.__all__ if isinstance(getattr(errors, name), type)])
def test_every_error_of_a_worker_is_rebuilt_with_its_class_text_and_attributes(name: str) -> None:
    kind = getattr(errors, name)
    if not issubclass(kind, errors.MainstemError):
        return
    own = as_own_error(
        RuntimeError(f"Traceback (most recent call last):\n  File\nmainstem.errors.{name}: s3://a: gone")
    )
    assert (type(own), str(own)) == (kind, "s3://a: gone")
    for fact in inspect.signature(kind.__init__).parameters:
        assert fact in {"self", "args", "kwargs", "message", "module"} or hasattr(own, fact) or name == "StoreError"
