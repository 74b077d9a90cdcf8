"""Options of stores, by Mainstem's names, as the libraries of the formats name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstem.errors import ConfigurationError
from mainstem.store.open_store import scheme_of
from mainstem.store.options import azure_options, gcs_options, s3_options
from mainstem.store.proxy import proxy_for

if TYPE_CHECKING:
    from collections.abc import Mapping

S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES = ("s3", "s3a", "s3n"), ("gs", "gcs"), ("abfs", "abfss")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value not in (None, "")
    }


def _only(url: str, values: Mapping[str, Any], known: tuple[str, ...], library: str) -> None:
    """Raises ConfigurationError for an option that a library has no counterpart of."""
    if unknown := sorted(set(values) - set(known)):
        raise ConfigurationError(f"{url}: {library} has no counterpart of the option {unknown[0]!r}")


def _endpoint(values: Mapping[str, Any]) -> str | None:
    endpoint = values.get("endpoint_override")
    return f"{values.get('scheme', 'https')}://{endpoint}" if endpoint else None


def _s3_proxy(values: Mapping[str, Any]) -> str:
    """Arrow's client of S3, which pyiceberg uses, takes no proxy from the environment."""
    is_tls = values.get("scheme") != "http"
    host = urlsplit(_endpoint(values) or "https://s3.amazonaws.com").hostname or ""
    return proxy_for(host, is_tls=is_tls)


_S3_KNOWN = (
    "access_key", "secret_key", "session_token", "anonymous", "region", "scheme", "endpoint_override",
    "force_virtual_addressing",
)  # fmt: skip
_AZURE_KNOWN = ("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")


def delta_options(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """The ``storage_options`` of deltalake for a table at ``url``.

    Raises:
        ConfigurationError: The store has no such option, or deltalake has no counterpart of it.
    """
    scheme, parts = scheme_of(url), urlsplit(url)
    if scheme in S3_SCHEMES:
        values = s3_options(url, parts.netloc, options)
        _only(url, values, _S3_KNOWN, "deltalake")
        return _texts(
            {
                "aws_access_key_id": values.get("access_key"),
                "aws_secret_access_key": values.get("secret_key"),
                "aws_session_token": values.get("session_token"),
                "aws_region": values.get("region"),
                "aws_endpoint_url": _endpoint(values),
                "aws_allow_http": True if values.get("scheme") == "http" else None,
                "aws_skip_signature": values.get("anonymous"),
                "aws_virtual_hosted_style_request": values.get("force_virtual_addressing"),
            }
        )
    if scheme in GCS_SCHEMES:
        values = gcs_options(url, options)
        _only(url, values, ("anonymous",), "deltalake")
        return _texts({"google_skip_signature": values.get("anonymous")})
    if scheme in AZURE_SCHEMES:
        values = azure_options(url, parts.netloc.partition("@")[2].partition(".")[0], options)
        _only(url, values, _AZURE_KNOWN, "deltalake")
        names = {"sas_token": "azure_storage_sas_token"}
        return _texts({names.get(name, f"azure_storage_{name}"): value for name, value in values.items()})
    if scheme in ("", "file"):
        if options:
            raise ConfigurationError(f"{url}: a directory has no options, and {min(options)!r} is one")
        return {}
    raise ConfigurationError(f"{url}: deltalake has no store for {scheme}://; it has s3, gs, abfs and directories")


def iceberg_options(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """The properties of pyiceberg's FileIO for a warehouse at ``url``.

    Raises:
        ConfigurationError: The store has no such option, or pyiceberg has no counterpart of it.
    """
    scheme, parts = scheme_of(url), urlsplit(url)
    if scheme in S3_SCHEMES:
        values = s3_options(url, parts.netloc, options)
        _only(url, values, _S3_KNOWN, "pyiceberg")
        return _texts(
            {
                "s3.access-key-id": values.get("access_key"),
                "s3.secret-access-key": values.get("secret_key"),
                "s3.session-token": values.get("session_token"),
                "s3.region": values.get("region"),
                "s3.endpoint": _endpoint(values),
                "s3.anonymous": values.get("anonymous"),
                "s3.force-virtual-addressing": values.get("force_virtual_addressing"),
                "s3.proxy-uri": _s3_proxy(values),
            }
        )
    if scheme in GCS_SCHEMES:
        values = gcs_options(url, options)
        _only(url, values, ("access_token", "project_id", "scheme", "endpoint_override"), "pyiceberg")
        return _texts(
            {
                "gcs.oauth2.token": values.get("access_token"),
                "gcs.project-id": values.get("project_id"),
                "gcs.service.host": _endpoint(values),
            }
        )
    if scheme in AZURE_SCHEMES:
        values = azure_options(url, parts.netloc.partition("@")[2].partition(".")[0], options)
        _only(url, values, _AZURE_KNOWN, "pyiceberg")
        return _texts({f"adls.{name.replace('_', '-')}": value for name, value in values.items()})
    if options:
        raise ConfigurationError(f"{url or 'the warehouse'}: no store that has options, and {min(options)!r} is one")
    return {}
