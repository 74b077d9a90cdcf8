"""Which servers may listen beyond this host, and which host names requests to local servers may use."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from mainstem._internal.listening import listening_addresses
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

TLS_OPTIONS = "`tls_cert` and `tls_key`"


def check_exposure(
    address: str, *, insecure: bool, protection: Mapping[str, bool] | None = None, name: str = "`listen`"
) -> None:
    """Refuse to listen where other hosts could connect, unless that is protected. Every server of a command calls this.

    Args:
        address: The address to listen on, as numbers.
        insecure: Whether the user asked to listen anyway.
        protection: The options (in backticks) that protect the server, and whether each is given. All of them are needed. Without
            any, the server has no access control.
        name: The option with the address, in backticks.

    Raises:
        ConfigurationError: The address is not loopback, and the server is not protected.
    """
    if insecure or is_loopback(address) or (protection and all(protection.values())):
        return
    missing = " and ".join(option for option, is_given in (protection or {}).items() if not is_given)
    needs = f"so this needs {missing}" if missing else "and this has no password: use ssh -L, or a proxy with one"
    raise ConfigurationError(f"{name}: {address} can be reached from other machines, {needs}; `insecure` serves anyway")


def check_host_exposure(
    host: str | None, *, insecure: bool, protection: Mapping[str, bool] | None = None, name: str = "`listen`"
) -> None:
    """Like `check_exposure`, for each address of a host; None means every interface. Unknown names count as other machines."""
    try:
        addresses = [str(address[0]) for _, address in listening_addresses(host, 0, socket.SOCK_DGRAM)]
    except OSError:
        addresses = [str(host)]
    for address in addresses:
        check_exposure(address, insecure=insecure, protection=protection, name=name)


def is_loopback(address: str) -> bool:
    """Whether an address is reachable only from this host."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_literal_host(host: str | None) -> bool:
    """Whether a ``Host`` field is an address, or ``localhost``.

    A page in a browser on this host can make its own domain name resolve to 127.0.0.1 and send requests there. Such requests have
    that name as their host; those of programs that were started with the server's URL do not.
    """
    if not host:
        return True
    name = host_name(host)
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def host_name(host: str) -> str:
    """Return the name or address in a ``Host`` field, in lower case and without port, brackets and trailing dot."""
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower().rstrip(".")
