"""JSON messages that could break a table."""

from __future__ import annotations

import json
from typing import Any


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


NAMES = (
    "",
    " ",
    ".",
    "a.b",
    "a`b",
    "`",
    "a b",
    "a\nb",
    "a\tb",
    "a\0b",
    "a,b;{}()=",
    '"',
    "\\",
    "\u00e9",
    "\u212a",
    "\u0131",
    "a" * 300,
    "n" * 100_000,
    "$",
    "%",
    "/",
    "../x",
    "_c0",
    "__index_level_0__",
    "1",
    "select",
)
RESERVED = (
    "date",
    "stream_id",
    "recording_id",
    "session_id",
    "position",
    "recorded_at",
    "problem",
    "rescued",
    "payload",
    "Date",
    "PROBLEM",
    "Payload",
    "Stream_Id",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**38,
    10**400,
    1e308,
    5e-324,
    "",
    "x",
    "\0",
    "\ud800",
    "\U0001f600",
    "0000-01-01",
    "9999-12-31",
    "10000-01-01",
    "-0001-01-01",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-12:00",
    [],
    [[]],
    [None],
    [1, "x"],
    {},
    {"": {}},
    {"x": {}},
    {"x": None},
    {"X": 1, "x": 2},
    [{}],
    [{"x": 1}, {"X": "y"}, None, 5],
)
LITERALS = (
    "1e400",
    "-1e-400",
    "123456789012345678901234567890123456789012.5",
    "9007199254740993.0",
    "-0",
    "NaN",
    "-Infinity",
    "1" * 5000,
)


def _nested(depth: int, begin: bytes, end: bytes) -> bytes:
    return b'{"a":1,"deep":' + begin * depth + b"1" + end * depth + b"}"


MESSAGES: tuple[bytes, ...] = (
    *(_json({"a": 1, name: value}) for name in NAMES for value in (1, {name: "x"})),
    *(_json({name: "x"}) for name in RESERVED),
    *(_json({"a": value}) for value in VALUES),
    *(_json({"a": 1, "o": value}) for value in VALUES),
    *(_json({"a": 1, f"v{i}": value}) for i, value in enumerate(VALUES)),
    *(_json({"at": value}) for value in VALUES),
    *(b'{"a":%s,"z":%s}' % (text.encode(), text.encode()) for text in LITERALS),
    *(_nested(depth, b"[", b"]") for depth in (30, 40, 70, 400, 1500, 50_000)),
    *(_nested(depth, b'{"x":', b"}") for depth in (30, 40, 70, 400, 1500, 50_000)),
    b'{"a":2,"zz":"\\ud800"}',
    b'{"a":2,"\\ud800":1}',
    b'{"a":2,"zz":{"\\udfff":["\\ud800"]}}',
    b'{"a":1,"a":2}',
    b'{"a":1,"A":2,"\xc3\xa9":3}',
    b'{"A":1}',
    b'{"o":{"X":1}}',
    b'{"a":1,"o":{"x":1,"X":2}}',
    b'{"O":{}}',
    b'{"zz":"\xff"}',
    b'{"\xff":1}',
    b"\xff\xfe{\x00",
    b"\xef\xbb\xbf{}",
    b"",
    b"\0",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b'{"a":1}{"a":2}',
    b'{"a":1}\n{"a":"x"}',
    b"\n" * 1000,
    b'{"a":"' + b"x" * 300_000 + b'"}',
    _json({f"field {i}": i for i in range(3000)}),
    _json({"wide": {f"k{i}": {f"j{j}": 1 for j in range(40)} for i in range(40)}}),
)
