"""Which channel a frame belongs to: the endpoint that data goes to, told from the addresses of either direction.

Data goes to the endpoint; what receivers answer comes from it. To a multicast group receivers answer at the next address up.
"""

from __future__ import annotations

# NAK, SM, ERR, RSP_SETUP, and a question for the round-trip time go from the receiver to the publisher.
IS_ANSWER = "(type in (2, 3, 4, 11) or (type = 6 and flags & 128 != 0))"
_MULTICAST_4 = r"dst rlike '^(22[4-9]|23[0-9])[.]'"
_MULTICAST_6 = "lower(dst) like 'ff%:%'"
_GROUP_4 = "concat(substring_index(dst, '.', 3), '.', cast(substring_index(dst, '.', -1) as int) - 1)"
_GROUP_6 = (
    "concat(regexp_extract(dst, '^(.*:)', 1), "
    "lower(conv(cast(conv(substring_index(dst, ':', -1), 16, 10) as bigint) - 1, 10, 16)))"
)
CHANNEL = (
    f"case when {IS_ANSWER} and {_MULTICAST_4} then concat({_GROUP_4}, ':', dst_port)"
    f" when {IS_ANSWER} and {_MULTICAST_6} then concat({_GROUP_6}, ':', dst_port)"
    f" when {IS_ANSWER} then concat(src, ':', src_port)"
    " else concat(dst, ':', dst_port) end"
)
