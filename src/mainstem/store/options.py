"""Options of stores, under their pyarrow names or the names that Hadoop and Spark use (``fs.s3a.endpoint``), and proxies.

All values of options are strings.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("neither true nor false")
    return lowered == "true"


_Kinds = dict[str, "Callable[[str], Any]"]


def _texts(names: str) -> _Kinds:
    return dict.fromkeys(names.split(), str)


# Each library reads some of them by itself, and none allows for the bucket and the scheme.
_S3_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ENDPOINT = _texts("scheme endpoint_override")
S3 = _ENDPOINT | _texts("access_key secret_key session_token region role_arn session_name external_id")
S3 |= _texts("proxy_options tls_ca_file_path") | {"anonymous": _flag, "force_virtual_addressing": _flag}
S3 |= {"request_timeout": float, "connect_timeout": float, "load_frequency": int}
GCS = _ENDPOINT | _texts("access_token target_service_account project_id") | {"anonymous": _flag}
AZURE = _texts("account_name account_key sas_token client_id client_secret tenant_id blob_storage_authority")
AZURE |= _texts("blob_storage_scheme dfs_storage_authority dfs_storage_scheme")
HDFS: _Kinds = {"user": str, "kerb_ticket": str, "replication": int, "buffer_size": int}
# For `mainstem serve`, and for any other server behind http(s)://.
HTTP: _Kinds = {"token": str, "token_file": str, "ca": str, "timeout": float, "insecure": _flag}
# For a running Aeron Archive behind aeron-archive://.
ARCHIVE = _texts("aeron_dir response_channel credentials credentials_file")
ARCHIVE |= {"control_stream_id": int, "response_stream_id": int, "timeout": float}
NAMES = frozenset(S3) | frozenset(GCS) | frozenset(AZURE) | frozenset(HDFS) | frozenset(HTTP) | frozenset(ARCHIVE)
# The location of an archive's tail, where it grows, and the prefix of the options for that location.
TAIL = "tail"
# Prefixes of options that are passed unchanged to the Hadoop client of hdfs://.
_HADOOP_CLIENT = ("dfs.", "hadoop.", "ipc.", "fs.defaultfs")

_S3A = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint.region": "region",
    "assumed.role.arn": "role_arn",
    "assumed.role.session.name": "session_name",
}
_AZURE = {
    "account.key": "account_key",
    "sas.fixed.token": "sas_token",
    "account.oauth2.client.id": "client_id",
    "account.oauth2.client.secret": "client_secret",
    "account.oauth2.msi.tenant": "tenant_id",
}


def is_tail_option(name: str) -> bool:
    """Return whether a name is ``tail``, or an option of the tail's store."""
    return name.lower().partition(".")[0] == TAIL


def is_store_option(name: str) -> bool:
    """Return whether a name is an option of any kind of store."""
    lowered = name.lower()
    return lowered in NAMES or is_tail_option(name) or lowered.startswith(("fs.", *_HADOOP_CLIENT))


def _typed(values: Mapping[str, str], kinds: _Kinds, url: str) -> dict[str, Any]:
    typed = {}
    for name, text in values.items():
        if name not in kinds:
            raise ConfigurationError(f"{url}: its store has no option {name!r}; it has {', '.join(sorted(kinds))}")
        try:
            typed[name] = kinds[name](text)
        except ValueError:
            # The value may be a secret.
            raise ConfigurationError(f"{url}: invalid value for the option {name!r}") from None
    return typed


def _plain_first(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the options in lower case, with Hadoop's names before pyarrow's, so that the latter override the former."""
    return sorted(((name.lower(), text) for name, text in options.items()), key=lambda item: "." not in item[0])


def _unknown(url: str, name: str, known: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(f"{url}: {name!r} is not supported; supported are {', '.join(sorted(known))}")


def s3_options(url: str, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the option values of an S3 bucket under their pyarrow names."""
    values: dict[str, str] = {}
    known = [f"fs.s3a.{key}" for key in (*_S3A, "endpoint", "path.style.access", "connection.ssl.enabled")]
    # Hadoop's options for one bucket override those for all buckets.
    ordered = sorted(_plain_first(options), key=lambda item: (not item[0].startswith("fs."), ".bucket." in item[0]))
    for name, text in ordered:
        if not name.startswith(("fs.s3a.", "fs.s3.", "fs.s3n.")):
            values[name] = text
            continue
        key = name.split(".", 2)[2]
        if key.startswith("bucket."):
            if not key.startswith(f"bucket.{bucket}."):
                continue
            key = key.removeprefix(f"bucket.{bucket}.")
        if key in _S3A:
            values[_S3A[key]] = text
        elif key == "endpoint":
            scheme, separator, host = text.rpartition("://")
            values["endpoint_override"] = host.rstrip("/")
            if separator:
                values["scheme"] = scheme
        elif key == "path.style.access":
            values["force_virtual_addressing"] = "false" if text.lower() == "true" else "true"
        elif key == "connection.ssl.enabled":
            values.setdefault("scheme", "https" if text.lower() == "true" else "http")
        elif key == "aws.credentials.provider":
            if "Anonymous" in text:
                values["anonymous"] = "true"
        elif key != "impl":
            raise _unknown(url, name, known)
    endpoint = values.get("endpoint_override") or next(filter(None, map(os.environ.get, _S3_ENDPOINT_VARIABLES)), "")
    if endpoint:
        scheme, separator, values["endpoint_override"] = endpoint.rstrip("/").rpartition("://")
        if separator:
            values["scheme"] = scheme
    return _typed(values, S3, url)


def gcs_options(url: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the option values of a Google Cloud Storage bucket under their pyarrow names."""
    values: dict[str, str] = {}
    for name, text in _plain_first(options):
        if name == "fs.gs.project.id":
            values["project_id"] = text
        elif name == "fs.gs.storage.root.url":
            values["scheme"], _, values["endpoint_override"] = text.rstrip("/").rpartition("://")
        elif name.startswith("fs."):
            if name != "fs.gs.impl":
                raise _unknown(url, name, ("fs.gs.project.id", "fs.gs.storage.root.url"))
        else:
            values[name] = text
    return _typed(values, GCS, url)


def azure_options(url: str, account: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the option values of an Azure container. ``account`` is the account in the URL, or empty."""
    values = {"account_name": account} if account else {}
    for name, text in _plain_first(options):
        if not name.startswith("fs.azure."):
            values[name] = text
            continue
        key = next((key for key in _AZURE if name.removeprefix("fs.azure.").startswith(key)), None)
        if key is None:
            raise _unknown(url, name, (f"fs.azure.{key}" for key in _AZURE))
        owner = name.removeprefix(f"fs.azure.{key}").removeprefix(".").partition(".")[0]
        if owner in ("", account):
            values[_AZURE[key]] = text
    typed = _typed(values, AZURE, url)
    if not typed.get("account_name"):
        raise ConfigurationError(
            f"{url} has no account; set the option account_name or use abfs://container@account.dfs.core.windows.net/path"
        )
    return typed


def http_options(url: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the option values of an http(s) store."""
    return _typed({name.lower().replace("-", "_"): text for name, text in options.items()}, HTTP, url)


def archive_options(url: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the option values of a running archive."""
    return _typed({name.lower().replace("-", "_"): text for name, text in options.items()}, ARCHIVE, url)


def hdfs_options(url: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``pyarrow.fs.HadoopFileSystem``, except host and port."""
    extra = {name: text for name, text in options.items() if name.lower().startswith(_HADOOP_CLIENT)}
    values = {name.lower(): text for name, text in options.items() if name not in extra}
    typed = _typed(values, HDFS, url)
    return typed | ({"extra_conf": extra} if extra else {})


# -- the proxy for a host ----------------------------------------------------------------------------------------------
#
# It comes from HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment. obstore and deltalake read these variables themselves. The
# local host is reached without a proxy, because credentials would cross the network to the proxy unencrypted.


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
