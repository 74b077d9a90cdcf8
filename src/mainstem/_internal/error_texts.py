"""Texts for errors of Python's library, whose own words differ between versions of Python."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from json import JSONDecodeError

# Where OpenSSL's caller is in Python's source, which is also appended to the texts.
_PLACE_IN_PYTHON = re.compile(r" \(_ssl\.c:\d+\)$")


def json_problem(error: JSONDecodeError) -> str:
    """Return where text stops being JSON: `... is not JSON: character 9`."""
    return f"character {error.colno}" if error.lineno == 1 else f"line {error.lineno}, character {error.colno}"


def tls_problem(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if reason := getattr(error, "reason", None):
        return str(reason).lower().replace("_", " ")
    return _PLACE_IN_PYTHON.sub("", error.strerror or str(error))
