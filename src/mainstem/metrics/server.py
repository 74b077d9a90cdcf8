"""A page of metrics for Prometheus over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.metrics.page_server import PageServer
from mainstem.metrics.prometheus import render_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem.metrics.families import Family


class MetricsServer:
    """Serves an application's metrics to Prometheus at ``/metrics``, in a thread of its own. A context manager.

    There is no access control: listen on loopback, or where only Prometheus can connect. On loopback a request must name the host
    by an address, as ``localhost``, or by the host of ``listen``.

    Args:
        listen: ``HOST:PORT``, for every address of the host. ``:PORT`` means 127.0.0.1. For port 0, the system chooses a port.
        sources: Functions that return metrics, such as ``Endpoints.families``. A scrape calls all of them in another thread;
            simultaneous scrapes share one page.

    Raises:
        ConfigurationError: ``listen`` is not an address, or the server cannot listen on it.

    Example:
        >>> with MetricsServer("127.0.0.1:9464", endpoints.families) as server:
        ...     print(server.url)
        http://127.0.0.1:9464/metrics
    """

    def __init__(self, listen: str, *sources: Callable[[], Iterable[Family]]) -> None:
        def page() -> str:
            return render_families(family for source in sources for family in source())

        self._server = PageServer(listen, page, name="listen", insecure=True)

    @property
    def url(self) -> str:
        """The URL for Prometheus to scrape."""
        return self._server.url

    def close(self) -> None:
        """End all connections and stop serving. Idempotent."""
        self._server.close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
