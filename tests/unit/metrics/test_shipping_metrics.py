"""A shipper's metrics: its progress, its lag and its totals."""

from __future__ import annotations

from mainstem.metrics import render_families, shipping_families
from mainstem.recording.shipping.status import RecordingLag, ShippingStats, ShippingStatus


def test_a_status_is_a_page_of_metrics() -> None:
    counts = ShippingStats()
    counts.add(commits=3, bytes_shipped=4096, retries=2)
    counts.failed("put: 503")
    lags = [RecordingLag(0, 1001, 77, 8192, 4096, 2.5), RecordingLag(4, 1002, -5, 64, 64, 0.0)]
    status = ShippingStatus("ab" * 16, "north", "s3://bucket/tides", 9, counts, lags, 61.5)
    page = render_families(shipping_families(status))
    labels = f'archive="{"ab" * 16}",host="north",url="s3://bucket/tides"'
    for line in (
        f"mainstem_shipping_commits_total{{{labels}}} 3",
        f"mainstem_shipping_bytes_shipped_total{{{labels}}} 4096",
        f"mainstem_shipping_errors_total{{{labels}}} 1",
        f"mainstem_shipping_retries_total{{{labels}}} 2",
        f"mainstem_shipping_lag_bytes{{{labels}}} 4096",
        f"mainstem_shipping_lag_seconds{{{labels}}} 2.5",
        f"mainstem_shipping_store_failing_seconds{{{labels}}} 61.5",
        f"mainstem_shipping_manifest{{{labels}}} 9",
        f'mainstem_shipping_shipped_position{{{labels},recording_id="0",stream_id="1001",session_id="77"}} 4096',
        f'mainstem_shipping_recorded_position{{{labels},recording_id="0",stream_id="1001",session_id="77"}} 8192',
        f'mainstem_shipping_recording_lag_seconds{{{labels},recording_id="4",stream_id="1002",session_id="-5"}} 0',
    ):
        assert line in page.splitlines()
