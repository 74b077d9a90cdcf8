"""Unusable SBE schemas, and messages with impossible lengths: the error names the problem."""

from __future__ import annotations

import math
import struct

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
