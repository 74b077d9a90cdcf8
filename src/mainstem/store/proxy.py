"""Finds the proxy for a host from HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment.

obstore and deltalake read these variables themselves. The local host is reached without a proxy, because credentials would cross
the network to the proxy unencrypted.
"""

from __future__ import annotations

import ipaddress
from urllib.request import getproxies, proxy_bypass


def proxy_for(host: str, *, is_tls: bool) -> str:
    """Return the URL of the proxy for a host, or an empty string if there is none."""
    proxy = getproxies().get("https" if is_tls else "http", "")
    if not proxy or is_this_machine(host) or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_this_machine(host: str) -> bool:
    """Return whether a host is ``localhost`` or a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
