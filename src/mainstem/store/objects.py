"""Writing to object stores, by ``obstore``: whole objects, on the condition that there is none where that is asked for."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, StoreError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mainstem.store.retry import Retry

# Retries are this package's own.
_NO_RETRIES = {"max_retries": 0}


class ObjectWriter:
    """Writes objects of one bucket. Paths begin with the bucket, as pyarrow's do."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._compares: bool | None = None

    @staticmethod
    def _key(path: str) -> str:
        return path.partition("/")[2]

    def put_if_absent(self, path: str, data: bytes, retry: Retry, url: str) -> bool:
        """As ``Store.put_if_absent``: the server compares, by ``If-None-Match: *`` or its like.

        After a response that was lost an object with the same bytes counts as this writer's: so bytes name their writer where
        that matters. A server that ignores the condition is noticed by a second write after this writer's first.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        key, attempts = self._key(path), 0
        if self._compares is False:
            raise _no_conditions(url, key)

        def put() -> bool:
            nonlocal attempts
            attempts += 1
            try:
                with _no_place(url, key):
                    obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return attempts > 1 and bytes(obstore.get(self._store, key).bytes()) == data
            return True

        is_put = retry.call(put, url, f"cannot write {key}")
        if is_put and self._compares is None:
            self._compares = retry.call(lambda: self._is_refused(key, data), url, f"cannot write {key}")
            if not self._compares:
                raise _no_conditions(url, key)
        return is_put

    def _is_refused(self, key: str, data: bytes) -> bool:
        """Whether the server refuses to write an object that is there."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return True
        return False

    def put(self, path: str, data: bytes | Path, retry: Retry, url: str) -> None:
        """As ``Store.put``; a long file goes in parts, and appears with the last of them."""
        import obstore

        key = self._key(path)
        if not isinstance(data, bytes):
            data.stat()

        def put() -> None:
            with _no_place(url, key):
                obstore.put(self._store, key, data)

        retry.call(put, url, f"cannot write {key}")

    def delete(self, path: str, retry: Retry, url: str) -> None:
        """As ``Store.delete``."""
        import obstore

        key = self._key(path)
        try:
            retry.call(lambda: obstore.delete(self._store, key), url, f"cannot delete {key}")
        except FileNotFoundError:
            return


def _no_conditions(url: str, key: str) -> ConfigurationError:
    return ConfigurationError(
        f"{url}: cannot write {key}: its server ignores the condition that there is no such object (If-None-Match), so that two"
        " writers could overwrite each other; use a server that compares"
    )


@contextmanager
def _no_place(url: str, key: str) -> Iterator[None]:
    """What is not there when an object is written is its bucket."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(url, f"cannot write {key}: there is no such bucket") from error


def _client(scheme: str) -> dict[str, Any]:
    return {"allow_http": True} if scheme == "http" else {}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "")}


def s3_writer(bucket: str, values: Mapping[str, Any], region: str) -> ObjectWriter:
    """The writer of an S3 bucket, from the options of pyarrow's file system."""
    with needs_extras():
        from obstore.store import S3Store
    if "role_arn" in values:
        raise StoreError(
            f"s3://{bucket}", "role_arn is for reading: to write, give the role's own keys and session_token"
        )
    scheme, endpoint = values.get("scheme", "https"), values.get("endpoint_override")
    config = _given(
        {
            "access_key_id": values.get("access_key"),
            "secret_access_key": values.get("secret_key"),
            "session_token": values.get("session_token"),
            "region": region,
            "endpoint": f"{scheme}://{endpoint}" if endpoint else None,
            "skip_signature": values.get("anonymous"),
            "virtual_hosted_style_request": values.get("force_virtual_addressing", not endpoint),
        }
    )
    return ObjectWriter(S3Store(bucket, config=config, client_options=_client(scheme), retry_config=_NO_RETRIES))


def gcs_writer(bucket: str, values: Mapping[str, Any]) -> ObjectWriter:
    """The writer of a bucket of Google Cloud Storage."""
    with needs_extras():
        from obstore.store import GCSStore
    if "target_service_account" in values:
        raise StoreError(f"gs://{bucket}", "target_service_account is for reading: to write, give access_token")
    scheme, endpoint = values.get("scheme", "https"), values.get("endpoint_override")
    config = _given(
        {"base_url": f"{scheme}://{endpoint}" if endpoint else None, "skip_signature": values.get("anonymous")}
    )
    token = values.get("access_token")
    provider = (lambda: {"token": token, "expires_at": None}) if token else None
    if values.get("anonymous"):
        # Its writes ask for credentials in spite of skip_signature. This is what object_store has for servers without them.
        account = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
        config["service_account_key"] = json.dumps(account)
    store = GCSStore(
        bucket,
        config=config,
        client_options=_client(scheme),
        retry_config=_NO_RETRIES,
        credential_provider=provider,
    )
    return ObjectWriter(store)


def azure_writer(container: str, values: Mapping[str, Any]) -> ObjectWriter:
    """The writer of a container of Azure."""
    with needs_extras():
        from obstore.store import AzureStore
    account = values["account_name"]
    scheme, authority = values.get("blob_storage_scheme", "https"), values.get("blob_storage_authority")
    host = f"{account}{authority}" if authority and authority.startswith(".") else f"{authority}/{account}"
    config = _given(
        {
            "account_name": account,
            "account_key": values.get("account_key"),
            "sas_key": values.get("sas_token"),
            "client_id": values.get("client_id"),
            "client_secret": values.get("client_secret"),
            "tenant_id": values.get("tenant_id"),
            "endpoint": f"{scheme}://{host}" if authority else None,
        }
    )
    return ObjectWriter(AzureStore(container, config=config, client_options=_client(scheme), retry_config=_NO_RETRIES))
