"""Text from other programs and hosts, made safe to print.

Whoever sends or writes error texts, labels, channels, client names and file names chooses their content. A terminal obeys control
characters in them, and a log collector treats a line feed as the end of a record.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


def printable(text: str, *, keep: str = "") -> str:
    r"""Return ``text`` with every unprintable character escaped, as in ``\x1b``, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def printable_json(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON of printable characters that UTF-8 can encode."""
    import json

    return _unprintable_in_json().sub(
        lambda match: json.dumps(match[0])[1:-1], json.dumps(value, indent=indent, ensure_ascii=False)
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


@cache
def _unprintable_in_json() -> re.Pattern[str]:
    """Match control and format characters that JSON does not escape, such as bidirectional overrides, and lone surrogates."""
    import re

    return re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")
