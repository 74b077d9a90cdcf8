"""Unusable SBE schemas, and messages with impossible lengths: the error names the problem."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from tests.support.sbe_orders import XML, order

from mainstem.codecs.sbe import SbeSchema

HEADER = """<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/></composite>"""
SIZE = """<composite name="size"><type name="blockLength" primitiveType="int16"/>
<type name="numInGroup" primitiveType="int16"/></composite>"""
TEXT = '<composite name="text"><type name="length" primitiveType="int32"/></composite>'
GROUP = '<message name="m" id="1"><group name="g" dimensionType="size"/></message>'
DATA = '<message name="m" id="1"><data name="d" type="text"/></message>'


def schema(types: str, messages: str = "") -> SbeSchema:
    return SbeSchema(f"<messageSchema><types>{types}</types>{messages}</messageSchema>")


@pytest.mark.parametrize(
    ("types", "messages", "error"),
    [
        (HEADER.replace("blockLength", "other"), "", "'messageHeader' has no member 'blockLength'"),
        (HEADER.replace("uint16", "double"), "", "'messageHeader' has no member 'blockLength' that is a whole number"),
        ('<type name="messageHeader" primitiveType="uint16"/>', "", "'messageHeader' has no member"),
        (HEADER + SIZE.replace("numInGroup", "n"), GROUP, "'size' has no member 'numInGroup'"),
        (HEADER + TEXT.replace("length", "n"), DATA, "'text' has no member 'length'"),
        (HEADER + '<enum name="e" encodingType="messageHeader"/>', "", "enum 'e' is of 'messageHeader'"),
        (HEADER + '<composite name="c"/>', "", "composite 'c' has no members"),
        (HEADER + '<type name="t" primitiveType="char" length="-5"/>', "", "length -5 of 't'"),
        (
            HEADER + '<type name="t" primitiveType="char" characterEncoding="klingon"/>',
            "",
            "'t' has the unknown character",
        ),
        (
            HEADER + '<type name="t" primitiveType="char" characterEncoding="base64"/>',
            "",
            "'t' has the unknown character",
        ),
        (HEADER + '<type name="t" primitiveType="char" length="99999999999"/>', "", "length 99999999999 of 't'"),
        ("<composite>" * 5000 + "</composite>" * 5000, "", "nested too deeply"),
    ],
)
def test_an_unusable_reader_schema_is_refused(types: str, messages: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        schema(types, messages)


@pytest.mark.parametrize(
    ("types", "messages", "body", "error"),
    [
        (HEADER + SIZE, GROUP, b"\0\0\xff\xff", "group 'g' announces -1 entries of 0 bytes"),
        (HEADER + SIZE, GROUP, b"\xff\xff\1\0", "group 'g' announces 1 entries of -1 bytes"),
        (HEADER + TEXT, DATA, b"\xff\xff\xff\xff", "data 'd' announces -1 bytes"),
    ],
)
def test_a_message_with_a_negative_length_is_rejected(types: str, messages: str, body: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        schema(types, messages).decode(b"\0\0\1\0" + body)


def test_nested_groups_of_empty_entries_are_limited() -> None:
    group = '<group name="{}" id="1" dimensionType="size">{}</group>'
    nested = schema(
        HEADER + SIZE, '<message name="m" id="1">' + group.format("outer", group.format("inner", "")) + "</message>"
    )
    many = b"\0\0\xfe\x7f"
    with pytest.raises(ValueError, match="announce more than 65550 entries"):
        nested.decode(b"\0\0\1\0" + many * 3)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"STIDE", b"S\xff\xfeDE", "invalid start byte"),
        (b"STIDE", b"XTIDE", "Side has no value 'X'"),
        (b"\x80\x09", b"\x80\x0d", "Flags has no choice for the bits 0x4"),
    ],
)
def test_a_value_that_the_schema_lacks_is_a_problem(old: bytes, new: bytes, reason: str) -> None:
    message = order(1, None)
    assert old in message
    with pytest.raises(ValueError, match=reason):
        SbeSchema(XML).decode(message.replace(old, new))


def test_only_an_optional_number_may_be_null() -> None:
    fields = '<field name="f" id="1" type="double"/><field name="g" id="2" type="double" presence="optional"/>'
    fields += '<field name="s" id="3" type="Side"/>'
    begin, end = XML.index('<sbe:message name="Order"'), XML.index('<sbe:message name="Other"')
    whole = SbeSchema(f'{XML[:begin]}<sbe:message name="Order" id="9">{fields}</sbe:message>{XML[end:]}')
    decoded = whole.decode(struct.pack("<HHHHddc", 17, 9, 1, 0, math.nan, math.nan, b"\0"))
    assert decoded is not None
    assert math.isnan(decoded[1]["f"])
    assert (decoded[1]["g"], decoded[1]["s"]) == (None, None)


VERSIONED = """<messageSchema id="7" version="2"><types><composite name="messageHeader">
<type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
<type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/></composite>
<composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
<type name="numInGroup" primitiveType="uint16"/></composite><composite name="varData"><type name="length" primitiveType="uint16"/>
<type name="varData" primitiveType="uint8" length="0"/></composite>
<composite name="Pair"><type name="p" primitiveType="uint8"/><type name="q" primitiveType="uint8" sinceVersion="2"/></composite>
<type name="latin" primitiveType="char" length="4" characterEncoding="ISO-8859-1"/>
<type name="wide" primitiveType="char" length="4" characterEncoding="UTF-16LE"/>
<type name="ascii" primitiveType="char" length="4" characterEncoding="US-ASCII"/>
<type name="opt8" primitiveType="uint8" nullValue="254"/>
<enum name="Side" encodingType="opt8"><validValue name="BUY">1</validValue></enum></types>
<message name="M" id="1" {}>{}</message></messageSchema>"""
A = '<field name="a" id="1" type="int32"/>'
SYMBOL = '<data name="sym" id="9" type="varData"/>'
NOTE = '<data name="note" id="8" type="varData" sinceVersion="2"/>'


def group(inner: str, since: int = 0, block: str = "") -> str:
    added = f'sinceVersion="{since}"' if since else ""
    return f'<group name="g" id="2" dimensionType="groupSizeEncoding" {added} {block}>{inner}</group>'


def decoded(message: str, body: bytes, *, length: int, version: int, block: str = "") -> Any:
    """Return the values of a message that was written with a version of the schema."""
    result = SbeSchema(VERSIONED.format(block, message)).decode(struct.pack("<HHHH", length, 1, 7, version) + body)
    assert result is not None
    return result[1]


FIVE = struct.pack("<i", 5)
X = '<field name="x" id="3" type="uint8"/>'
LATER = '<field name="b" id="2" type="int32" sinceVersion="{}"/>'


@pytest.mark.parametrize(
    ("message", "block", "body", "version", "expected"),
    [
        # What the generated decoders of the reference give: absent parts are null or empty, whatever bytes lie there.
        (A + LATER.format(2), 'blockLength="8"', FIVE + b"\7\0\0\0", 1, {"a": 5, "b": None}),
        (A + LATER.format(2), 'blockLength="8"', FIVE + b"\7\0\0\0", 2, {"a": 5, "b": 7}),
        (A + NOTE, "", FIVE, 1, {"a": 5, "note": None}),
        (A + NOTE, "", FIVE + b"\2\0hi", 2, {"a": 5, "note": b"hi"}),
        (A + group(X, since=1), "", FIVE, 0, {"a": 5, "g": []}),
        (A + group(X, since=1), "", FIVE + b"\1\0\1\0\3", 1, {"a": 5, "g": [{"x": 3}]}),
        (A + group(X, since=1) + SYMBOL, "", FIVE + b"\4\0\0\0\0\0", 0, {"a": 5, "g": [], "sym": bytes(4)}),
        (group(X + LATER.format(1), block='blockLength="5"'), "", b"\5\0\1\0\3\7\0\0\0", 0, {"g": [{"x": 3, "b": None}]}),
        (group(X + NOTE), "", b"\1\0\2\0\3\4", 1, {"g": [{"x": 3, "note": None}, {"x": 4, "note": None}]}),
        ('<field name="c" id="1" type="Pair"/>', "", b"\1\2", 1, {"c": {"p": 1, "q": None}}),
        # A later version appended a field, a group and data.
        (A, "", FIVE + bytes(8) + b"\1\0\1\0\3" + b"\2\0hi", 3, {"a": 5}),
    ],
)  # fmt: skip
def test_a_message_is_read_by_its_own_version(
    message: str, block: str, body: bytes, version: int, expected: Any
) -> None:
    length = 0 if "a" not in expected and "c" not in expected else 2 if "c" in expected else 12 if version == 3 else 4
    length = 8 if block else length
    assert decoded(message, body, length=length, version=version, block=block) == expected


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("latin", b"th\xe9\0", "th\u00e9"),
        ("latin", b"\xc3\xa9\0\xff", "\u00c3\u00a9"),
        ("wide", "\u00e9x".encode("utf-16-le"), "\u00e9x"),
        ("wide", "x\0".encode("utf-16-le"), "x"),
        ("ascii", "\u00e9".encode() + b"\0\xff", "\u00e9"),
        ("Side", b"\xfe", None),
        ("Side", b"\1", "BUY"),
    ],
)
def test_text_has_its_type_s_encoding_and_an_enum_its_type_s_null_value(kind: str, body: bytes, expected: Any) -> None:
    field = f'<field name="f" id="1" type="{kind}"/>'
    assert decoded(field, body, length=len(body), version=2) == {"f": expected}


def test_a_message_of_another_schema_is_refused() -> None:
    whole = SbeSchema(VERSIONED.format("", A))
    with pytest.raises(ValueError, match="the message is of schema 99, not 7"):
        whole.decode(struct.pack("<HHHHi", 4, 1, 99, 1, 5))
