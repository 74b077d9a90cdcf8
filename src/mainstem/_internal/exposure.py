"""Which servers may listen beyond this host, and which host names requests to local servers may use."""

from __future__ import annotations

import ipaddress

from mainstem.errors import ConfigurationError


def check_exposure(
    address: str, *, has_tls: bool, has_token: bool, insecure: bool, token_options: str = "--token-file"
) -> None:
    """Refuse to listen where other hosts could connect without a token, or read the traffic. Raises ConfigurationError."""
    if insecure or is_loopback(address) or (has_tls and has_token):
        return
    options = (("--tls-cert and --tls-key", has_tls), (token_options, has_token))
    missing = " and ".join(name for name, is_there in options if not is_there)
    raise ConfigurationError(
        f"--listen: {address} can be reached from other machines, so this needs {missing}; --insecure serves all the same"
    )


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
