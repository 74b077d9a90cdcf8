"""Untrusted text, made safe to print."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mainstem._internal.printable import printable, printable_json

TEXTS = st.text(st.characters())  # lone surrogates included


def test_control_characters_become_escapes() -> None:
    assert printable("a\x1b[2Jb\x9bø\n\u202e") == "a\\x1b[2Jb\\x9bø\\n\\u202e"
    assert printable("two\nlines", keep="\n") == "two\nlines"


@given(TEXTS)
def test_output_is_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


@given(st.dictionaries(st.text(), st.text()))
def test_json_is_printable_and_the_same_value(value: dict[str, str]) -> None:
    text = printable_json(value)
    assert not any(c in text for c in map(chr, [*range(32), *range(127, 160), 0x202E]))
    text.encode()
    assert json.loads(text) == value
