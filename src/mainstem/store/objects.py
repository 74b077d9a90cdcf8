"""Object stores: S3, Google Cloud Storage and Azure, through ``obstore``.

obstore retries by itself, with the policy of ``store/retry.py``: it continues a range that broke off, and repeats all requests that
can be sent twice. It gives up on three calls at the first broken connection: a put on the condition that the object does not exist
(whose first attempt may have been applied), a bulk delete, and a listing whose response breaks off. These are repeated here, with a
client that does not retry.
"""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote

from mainstem._internal.urls import split_url, url_without_options
from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.store import credentials
from mainstem.store import retry as policy
from mainstem.store.base import RemoteFiles, StoredFile, replaced
from mainstem.store.options import azure_options, gcs_options, s3_options
from mainstem.store.retry import Retry, TransientError, mapped_errors, sentence
from mainstem.store.threads import interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

T = TypeVar("T")

# The timeout of one request, including its body: enough for 8 MiB at 70 kB/s.
REQUEST_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 10.0
# obstore raises GenericError for every failure except a missing object and missing permissions. Only its text says whether the
# connection broke, or which status was returned.
_MISSING, _CONFLICT = "status code: 404", "status code: 409"
_TRANSIENT = re.compile(r"HTTP error:|status code: (?:429|5\d\d)\b")


# The prefix of versions that are entity tags, which a request can have as its condition.
_TAG = "tag:"

_process: dict[str, int] = {}


def _version(meta: Any) -> str:
    """Return the version of an object: its entity tag or, if it has none, its version, length and modification time."""
    if tag := meta["e_tag"]:
        return f"{_TAG}{tag}"
    return f"{meta['version']} {meta['size']} {meta['last_modified'].isoformat()}"


class ObjectStore(RemoteFiles):
    """Objects of one bucket whose names start with ``root``.

    ``new_client(max_retries)`` returns an obstore client for the bucket.
    """

    def __init__(self, url: str, root: str, new_client: Callable[[int], Any], *, retry: Retry | None = None) -> None:
        super().__init__(url)
        self._root = root
        self._client, self._client_once = new_client(policy.MAX_ATTEMPTS - 1), new_client(0)
        self._retry = retry or Retry()
        self._has_conditions: bool | None = None

    def _key(self, name: str) -> str:
        # obstore's threads exist only in the process that made its first request. In a forked process, every call would hang.
        if _process.setdefault("id", os.getpid()) != os.getpid():
            raise StoreError(
                self.url,
                "a process that was forked after it had used an object store cannot use one: start it by spawn or forkserver",
            )
        return f"{self._root}/{self.checked(name)}".strip("/")

    def _name(self, key: str) -> str:
        return key[len(self._root) + 1 :] if self._root else key

    def _repeated(self, action: Callable[[], T], what: str) -> T:
        """Return the result of a call by the client without retries, and retry it here."""
        from obstore.exceptions import GenericError

        def attempt() -> T:
            try:
                return interruptible(action)
            except GenericError as error:
                if _TRANSIENT.search(text := sentence(error)):
                    raise TransientError(text) from error
                if _MISSING in text:
                    raise self._no_bucket(what) from error
                raise

        with mapped_errors(self.url, what):
            return self._retry.call(attempt, self.url, what)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        import obstore

        directory = prefix.rpartition("/")[0]
        key = self._key(directory)

        def objects() -> list[Any]:
            if recursive:
                return list(obstore.list(self._client_once, key or None).collect())
            return list(obstore.list_with_delimiter(self._client_once, key or None)["objects"])

        for item in self._repeated(objects, f"cannot list {directory or 'it'}"):
            name = self._name(item["path"])
            # The marker object of a directory has the name of the directory.
            if name and name.startswith(prefix) and item["path"] != key:
                yield StoredFile(name, item["size"], int(item["last_modified"].timestamp() * 1e9))

    def directories(self, prefix: str = "") -> Iterator[str]:
        import obstore

        key = self._key(prefix.rstrip("/"))
        listed = self._repeated(
            lambda: obstore.list_with_delimiter(self._client_once, key or None), f"cannot list {prefix or 'it'}"
        )
        yield from (self._name(each) for each in listed["common_prefixes"])

    def size(self, name: str) -> int:
        import obstore

        key = self._key(name)
        with mapped_errors(self.url, f"cannot read {name}"):
            return int(interruptible(lambda: obstore.head(self._client, key))["size"])

    def read(self, name: str, start: int, end: int) -> bytes:
        return self.read_version(name, start, end, None)[0]

    def read_version(self, name: str, start: int, end: int, version: str | None) -> tuple[bytes, str]:
        import obstore
        from obstore.exceptions import GenericError, PreconditionError

        key = self._key(name)
        if start >= end:
            return b"", ""
        options: dict[str, Any] = {"range": (start, end)}
        if version is not None and version.startswith(_TAG):
            options["if_match"] = version.removeprefix(_TAG)

        def get() -> tuple[bytes, Any]:
            result = obstore.get(self._client, key, options=options)
            return bytes(result.bytes()), result.meta

        with mapped_errors(self.url, f"cannot read {name}"):
            try:
                data, meta = interruptible(get)
            except PreconditionError as error:
                raise replaced(self.url, name) from error
            except GenericError:
                # A range beyond the end of the object has no exception type of its own either.
                meta, data = obstore.head(self._client_once, key), b""
                if start < meta["size"]:
                    raise
        found = _version(meta)
        # Some servers ignore the condition, or do not compare it if the range is beyond the end.
        if version is not None and found != version:
            raise replaced(self.url, name)
        return data, found

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Put an object unless it exists. The server checks the condition, by ``If-None-Match: *`` or an equivalent.

        If the server refuses the put because of a conflict, although there is no object, the put is repeated. If a response was
        lost, an object with the same bytes counts as put by this writer. So if that matters, the bytes must identify the writer.
        The first put is sent twice, to detect a server that ignores the condition.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        key, attempts, what = self._key(name), 0, f"cannot write {name}"

        def exists() -> bool:
            try:
                obstore.get(self._client, key)  # the body is not read
            except FileNotFoundError:
                return False
            return True

        def put() -> bool:
            try:
                obstore.put(self._client_once, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError) as error:
                # 412 says that the object exists. 409 can also say that another request is in progress, which is no answer yet
                # (S3's ConditionalRequestConflict).
                if _CONFLICT in str(error) and not exists():
                    raise TransientError(sentence(error)) from error
                return False
            except FileNotFoundError as error:
                raise self._no_bucket(what) from error
            return True

        def attempt() -> bool:
            nonlocal attempts
            attempts += 1
            return put() or (attempts > 1 and bytes(obstore.get(self._client, key).bytes()) == data)

        if self._has_conditions is not False:
            is_put = self._repeated(attempt, what)
            if is_put and self._has_conditions is None:
                self._has_conditions = not self._repeated(put, what)
        if self._has_conditions is False:
            raise ConfigurationError(
                f"{self.url}: {what}: its server ignores the condition that there is no such object (If-None-Match), so that two"
                " writers could overwrite each other; use a server that compares"
            )
        return is_put

    def put(self, name: str, data: bytes | Path) -> None:
        """Put an object. A long object is sent in parts and appears when the last part is complete."""
        import obstore

        key, what = self._key(name), f"cannot write {name}"
        if not isinstance(data, bytes):
            data.stat()
        with mapped_errors(self.url, what):
            try:
                interruptible(lambda: obstore.put(self._client, key, data))
            except FileNotFoundError as error:
                raise self._no_bucket(what) from error

    def _no_bucket(self, what: str) -> StoreError:
        return StoreError(self.url, f"{what}: there is no such bucket")

    def delete(self, name: str) -> None:
        import obstore

        key = self._key(name)
        try:
            self._repeated(lambda: obstore.delete(self._client_once, key), f"cannot delete {name}")
        except FileNotFoundError:
            return


def open_object_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """Return the store of an ``s3``, ``gs`` or ``abfs`` URL. The URL can have options after ``?``; ``options`` override them."""
    parts = split_url(url, names_host=False)
    scheme, root = parts.scheme.lower(), unquote(parts.path).strip("/")
    bucket, _, host = parts.netloc.partition("@")
    shown = url_without_options(parts)
    if host and not scheme.startswith("abfs"):
        raise ConfigurationError(f"{scheme}://{host}: give credentials as options; the URL is shown in messages")
    if not bucket:
        raise ConfigurationError(f"{url!r} has no bucket; use {scheme}://bucket/path")
    options = dict(parse_qsl(parts.query)) | dict(options)
    with needs_extras():
        from obstore import store as stores
    arguments: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    if scheme.startswith("abfs"):
        values = azure_options(shown, host.partition(".")[0], options)
        factory, arguments = stores.AzureStore, _azure
    elif scheme in ("gs", "gcs"):
        values, factory, arguments = gcs_options(shown, options), stores.GCSStore, _gcs
    else:
        values, factory, arguments = s3_options(shown, bucket, options), stores.S3Store, _s3

    def new_client(max_retries: int) -> Any:
        try:
            return factory(
                bucket,
                **arguments(bucket, values),
                client_options=_client(values),
                retry_config=_retry_config(max_retries),
            )
        except ConfigurationError:
            raise
        except Exception as error:
            # The exception comes from obstore, boto3 or google-auth.
            raise ConfigurationError(f"{shown}: {sentence(error)}") from error

    return ObjectStore(shown, root, new_client)


def _retry_config(max_retries: int) -> dict[str, Any]:
    first, longest = (timedelta(seconds=seconds) for seconds in (policy.FIRST_WAIT_S, policy.MAX_WAIT_S))
    return {"max_retries": max_retries, "backoff": {"init_backoff": first, "max_backoff": longest, "base": 2}}


def _client(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client options for all three services.

    Like other HTTP clients, that of obstore reads HTTP_PROXY, HTTPS_PROXY and NO_PROXY from the environment.
    """
    authorities = values.get("tls_ca_file_path")
    return _given(
        {
            "allow_http": "http" in (values.get("scheme"), values.get("blob_storage_scheme")) or None,
            "timeout": timedelta(seconds=values.get("request_timeout", REQUEST_TIMEOUT_S)),
            "connect_timeout": timedelta(seconds=values.get("connect_timeout", CONNECT_TIMEOUT_S)),
            "proxy_url": values.get("proxy_options"),
            "root_certificate": _read(authorities) if authorities else None,
        }
    )


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"tls_ca_file_path: {path}: {error.strerror}") from None


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "")}


def _endpoint(values: Mapping[str, Any], bucket: str = "") -> str | None:
    host = values.get("endpoint_override")
    return f"{values.get('scheme', 'https')}://{bucket}{host}" if host else None


def _s3(bucket: str, values: Mapping[str, Any]) -> dict[str, Any]:
    is_virtual = values.get("force_virtual_addressing", not values.get("endpoint_override"))
    config = _given(
        {
            "region": values.get("region"),
            "endpoint": _endpoint(values, f"{bucket}." if is_virtual else ""),
            "skip_signature": values.get("anonymous"),
            "virtual_hosted_style_request": is_virtual,
        }
    )
    provider = None if values.get("anonymous") else credentials.of_s3(values)
    return {"config": config} | ({"credential_provider": provider} if provider else {})


def _gcs(_: str, values: Mapping[str, Any]) -> dict[str, Any]:
    config = _given({"base_url": _endpoint(values), "skip_signature": values.get("anonymous")})
    if values.get("anonymous"):
        # Writes request credentials despite skip_signature. object_store uses these values for servers that need no credentials.
        account = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
        config["service_account_key"] = json.dumps(account)
        return {"config": config}
    provider = credentials.of_gcs(values)
    return {"config": config} | ({"credential_provider": provider} if provider else {})


def _azure(_: str, values: Mapping[str, Any]) -> dict[str, Any]:
    account, authority = values["account_name"], values.get("blob_storage_authority")
    host = f"{account}{authority}" if authority and authority.startswith(".") else f"{authority}/{account}"
    config = _given(
        {
            "account_name": account,
            "account_key": values.get("account_key"),
            "sas_key": values.get("sas_token"),
            "client_id": values.get("client_id"),
            "client_secret": values.get("client_secret"),
            "tenant_id": values.get("tenant_id"),
            "endpoint": f"{values.get('blob_storage_scheme', 'https')}://{host}" if authority else None,
        }
    )
    return {"config": config}
