"""SBE schemas and messages: any XML is a schema or refused, and any bytes are a message or refused.

The input is a schema, a zero byte, and a message. An input that begins with the zero byte is a message for a schema of this file.
"""

from __future__ import annotations

from contextlib import suppress

from mainstem.codecs.sbe import SbeSchema

XML = """<messageSchema package="t" id="1" version="0" byteOrder="littleEndian"><types>
<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
<type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/></composite>
<composite name="size">
<type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint16"/></composite>
<composite name="text">
<type name="length" primitiveType="uint32"/><type name="varData" primitiveType="uint8" length="0"/></composite>
<enum name="Side" encodingType="char"><validValue name="BUY">B</validValue></enum>
<set name="Flags" encodingType="uint8"><choice name="odd">0</choice></set>
<type name="Name" primitiveType="char" length="6"/></types>
<message name="Order" id="9"><field name="id" id="1" type="uint64"/><field name="side" id="2" type="Side"/>
<field name="name" id="3" type="Name"/><field name="flags" id="5" type="Flags"/><group name="fills" id="6" dimensionType="size">
<field name="n" id="7" type="uint32"/></group><data name="note" id="8" type="text"/></message></messageSchema>"""
SCHEMA = SbeSchema(XML)
MESSAGE = b"\x10\0\x09\0\1\0\0\0" + (5).to_bytes(8, "little") + b"Bsymbol\1" + b"\x04\0\2\0" + bytes(8) + b"\3\0\0\0abc"
SEEDS = [XML.encode() + b"\0" + MESSAGE, b"\0" + MESSAGE]
SEEDS += [
    XML.replace(old, new).encode() + b"\0" + MESSAGE for old, new in (("little", "big"), ('length="6"', 'length="-6"'))
]


def target(data: bytes) -> None:
    """Process one input."""
    text, _, message = data.partition(b"\0")
    schema = SCHEMA
    if text:
        try:
            schema = SbeSchema(text.decode(errors="replace"))
        except ValueError as error:
            assert str(error)
            return
    with suppress(ValueError):
        decoded = schema.decode(message)
        assert decoded is None or isinstance(decoded[1], dict)
