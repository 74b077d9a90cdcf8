"""Translates store options from Mainstem's names to those of deltalake and pyiceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.urls import split_url
from mainstem.errors import ConfigurationError
from mainstem.store.open_store import scheme_of
from mainstem.store.options import azure_options, gcs_options, proxy_for, s3_options

if TYPE_CHECKING:
    from collections.abc import Mapping

S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES = ("s3", "s3a", "s3n"), ("gs", "gcs"), ("abfs", "abfss")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value not in (None, "")
    }


def _endpoint(values: Mapping[str, Any]) -> str | None:
    endpoint = values.get("endpoint_override")
    return f"{values.get('scheme', 'https')}://{endpoint}" if endpoint else None


def _s3_proxy(values: Mapping[str, Any]) -> str:
    """Return the proxy for Arrow's S3 client. pyiceberg uses that client, and it ignores the environment."""
    is_tls = values.get("scheme") != "http"
    host = split_url(_endpoint(values) or "https://s3.amazonaws.com").hostname or ""
    return proxy_for(host, is_tls=is_tls)


_AZURE = ("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
# Each library's name for an option, by pyarrow's name. An empty name means that the value is part of another option.
_DELTA = {
    "s3": {
        "access_key": "aws_access_key_id", "secret_key": "aws_secret_access_key", "session_token": "aws_session_token",
        "region": "aws_region", "anonymous": "aws_skip_signature", "endpoint_override": "aws_endpoint_url",
        "force_virtual_addressing": "aws_virtual_hosted_style_request", "scheme": "",
    },
    "gs": {"anonymous": "google_skip_signature"},
    "abfs": {name: f"azure_storage_{name}" for name in _AZURE},
}  # fmt: skip
_ICEBERG = {
    "s3": {
        "access_key": "s3.access-key-id", "secret_key": "s3.secret-access-key", "session_token": "s3.session-token",
        "region": "s3.region", "anonymous": "s3.anonymous", "endpoint_override": "s3.endpoint",
        "force_virtual_addressing": "s3.force-virtual-addressing", "scheme": "",
    },
    "gs": {
        "access_token": "gcs.oauth2.token", "project_id": "gcs.project-id", "endpoint_override": "gcs.service.host", "scheme": "",
    },
    "abfs": {name: f"adls.{name.replace('_', '-')}" for name in _AZURE},
}  # fmt: skip


def _store_options(url: str, options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the kind of store and its options under pyarrow's names. The kind is empty for other URLs."""
    scheme, host = scheme_of(url), split_url(url, names_host=False).netloc
    if scheme in S3_SCHEMES:
        return "s3", s3_options(url, host, options)
    if scheme in GCS_SCHEMES:
        return "gs", gcs_options(url, options)
    if scheme in AZURE_SCHEMES:
        return "abfs", azure_options(url, host.partition("@")[2].partition(".")[0], options)
    return "", {}


def _renamed(url: str, values: Mapping[str, Any], names: Mapping[str, str], library: str) -> dict[str, Any]:
    """Rename options for a library. Raises ConfigurationError if it lacks one of them."""
    if unknown := sorted(set(values) - set(names)):
        raise ConfigurationError(f"{url}: {library} has no counterpart of the option {unknown[0]!r}")
    renamed = {names[name]: value for name, value in values.items()}
    if "endpoint_override" in values:
        renamed[names["endpoint_override"]] = _endpoint(values)
    renamed.pop("", None)
    return renamed


def delta_options(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return deltalake's ``storage_options`` for a table. Raises ConfigurationError for an option that it does not support."""
    store, values = _store_options(url, options)
    if store:
        allows_http = {"aws_allow_http": True} if store == "s3" and values.get("scheme") == "http" else {}
        return _texts(_renamed(url, values, _DELTA[store], "deltalake") | allows_http)
    if (scheme := scheme_of(url)) not in ("", "file"):
        raise ConfigurationError(f"{url}: deltalake has no store for {scheme}://; it has s3, gs, abfs and directories")
    if options:
        raise ConfigurationError(f"{url}: a directory has no options (got {min(options)!r})")
    return {}


def iceberg_options(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of pyiceberg's FileIO for a warehouse. Raises ConfigurationError for an unsupported option."""
    store, values = _store_options(url, options)
    if store:
        proxy = {"s3.proxy-uri": _s3_proxy(values)} if store == "s3" else {}
        return _texts(_renamed(url, values, _ICEBERG[store], "pyiceberg") | proxy)
    if options:
        raise ConfigurationError(f"{url or 'the warehouse'}: this location has no store options (got {min(options)!r})")
    return {}
