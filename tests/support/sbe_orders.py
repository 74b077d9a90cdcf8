"""An SBE schema of two messages, and one of them encoded."""

from __future__ import annotations

import struct

XML = """<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" package="t" id="1" version="0" byteOrder="littleEndian">
<types>
  <composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
    <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/></composite>
  <composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
    <type name="numInGroup" primitiveType="uint16"/></composite>
  <composite name="text"><type name="length" primitiveType="uint32"/>
    <type name="varData" primitiveType="uint8" length="0"/></composite>
  <enum name="Side" encodingType="char"><validValue name="BUY">B</validValue><validValue name="SELL">S</validValue></enum>
  <set name="Flags" encodingType="uint8"><choice name="odd">0</choice><choice name="big">3</choice></set>
  <type name="Symbol" primitiveType="char" length="6"/>
  <type name="Price" primitiveType="int64" presence="optional"/>
</types>
<sbe:message name="Order" id="9"><field name="id" id="1" type="uint64"/><field name="side" id="2" type="Side"/>
  <field name="symbol" id="3" type="Symbol"/><field name="price" id="4" type="Price"/><field name="flags" id="5" type="Flags"/>
  <group name="fills" id="6" dimensionType="groupSizeEncoding"><field name="quantity" id="7" type="uint32"/></group>
  <data name="note" id="8" type="text"/></sbe:message>
<sbe:message name="Other" id="10"><field name="id" id="1" type="uint8"/></sbe:message>
</sbe:messageSchema>"""


def order(number: int, price: int | None) -> bytes:
    fills = b"".join(struct.pack("<I", number + i) for i in range(number))
    fixed = struct.pack("<Qc6sqB", number, b"BS"[number % 2 :][:1], b"TIDE", -(1 << 63) if price is None else price, 9)
    note = f"note {number}".encode()
    head = struct.pack("<HHHH", len(fixed), 9, 1, 0)
    return head + fixed + struct.pack("<HH", 4, number) + fills + struct.pack("<I", len(note)) + note
