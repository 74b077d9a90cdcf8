"""Which proxy reaches a host: HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the environment. obstore and deltalake read them themselves.

This machine is reached without a proxy, which credentials would cross unencrypted.
"""

from __future__ import annotations

import ipaddress
from urllib.request import getproxies, proxy_bypass


def proxy_for(host: str, *, is_tls: bool) -> str:
    """The URL of the proxy to a host; empty for none."""
    proxy = getproxies().get("https" if is_tls else "http", "")
    if not proxy or is_this_machine(host) or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_this_machine(host: str) -> bool:
    """Whether a host is ``localhost`` or a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
