"""The error codes in the driver's responses (docs/protocols/aeron.md, 6.1). An image rejection also sends one over the network."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    UNKNOWN = -1
    UNUSED = 0
    INVALID_CHANNEL = 1
    UNKNOWN_SUBSCRIPTION = 2
    UNKNOWN_PUBLICATION = 3
    CHANNEL_ENDPOINT_ERROR = 4  # the offending id is then the id of the channel status counter
    UNKNOWN_COUNTER = 5
    UNKNOWN_COMMAND_TYPE_ID = 6
    MALFORMED_COMMAND = 7
    NOT_SUPPORTED = 8
    UNKNOWN_HOST = 9
    RESOURCE_TEMPORARILY_UNAVAILABLE = 10  # the same command may succeed a little later
    GENERIC_ERROR = 11
    STORAGE_SPACE = 12
    IMAGE_REJECTED = 13
    PUBLICATION_REVOKED = 14

    @property
    def heading(self) -> str:
        """The code as the reference's C driver writes it at the head of an error, such as "(-1) invalid channel"."""
        return f"({-self}) {_WORDS.get(self) or self.name.lower().replace('_', ' ')}"

    @classmethod
    def _missing_(cls, _value: object) -> ErrorCode:
        return cls.UNKNOWN


# Of the other codes, the names are the words.
_WORDS = {
    ErrorCode.UNKNOWN: "unknown error code",
    ErrorCode.UNUSED: "generic error, see message",
    ErrorCode.GENERIC_ERROR: "generic error, see message",
    ErrorCode.STORAGE_SPACE: "insufficient storage space",
}
