"""Looks up schemas by number, in a directory of files or in a Confluent Schema Registry.

A registry needs only one request, ``GET /schemas/ids/<id>``. This module makes it with bounded size and time. The registry's own
client brings librdkafka and bounds neither.

If a schema is missing, that is the message's problem. If a registry does not respond, it is not: after retries this raises
``StoreError``, so that a query fails and is retried, instead of storing good messages as bad ones.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, StoreError
from mainstem.store.proxy import proxy_for
from mainstem.store.retry import Retry, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

# A longer text is not a schema: the registry's own limit is 1 MiB.
MAX_SCHEMA_LENGTH = 1 << 20
# The JSON text of such a schema may escape every character.
MAX_RESPONSE_LENGTH = 6 * MAX_SCHEMA_LENGTH
# A topic has few versions of its schema. When there are more, the least recently used one is dropped and read again when needed.
MAX_SCHEMAS = 256
# Cached numbers without a schema. A number is four bytes of a payload, so a hostile stream can contain any number.
MAX_UNKNOWN = 1024
# Once that many are cached, at most one unknown number is looked up per this interval.
UNKNOWN_PAUSE_NS = NS_PER_SECOND
TIMEOUT_S = 10.0
READ_LENGTH = 1 << 16
USER_VARIABLE = "MAINSTEM_REGISTRY_USER"
MAGIC = 0


class UnknownSchemaError(ValueError):
    """The error for a number that no schema has."""


@dataclass(frozen=True)
class SchemaText:
    """A stored schema: its text, its format (AVRO, PROTOBUF), and whether it refers to other schemas."""

    text: str
    format: str
    has_references: bool = False


class SchemaDirectory:
    """A directory of files named by schema number: ``17.avsc``, or ``17.desc``, which is returned in base64, as by a registry."""

    def __init__(self, path: str, suffix: str) -> None:
        self._path, self._suffix = Path(path), suffix
        if not self._path.is_dir():
            raise ConfigurationError(f"the option schemas: {path} is not a directory")

    def read(self, number: int) -> SchemaText:
        """Return the schema with a number. Raises UnknownSchemaError, or StoreError if the file cannot be read."""
        file = self._path / f"{number}{self._suffix}"
        try:
            if self._suffix == ".avsc":
                return SchemaText(read_text(file), "AVRO")
            return SchemaText(base64.b64encode(read_bytes(file)).decode(), "PROTOBUF")
        except FileNotFoundError:
            raise UnknownSchemaError(f"{self._path} has no schema {file.name}") from None
        except OSError as error:
            raise StoreError(str(file), str(error)) from None


class SchemaRegistry:
    """A Confluent Schema Registry. It is pickled to Spark's workers with its credentials, which never appear in texts.

    ``user`` is NAME:PASSWORD, by default from the environment variable MAINSTEM_REGISTRY_USER. ``ca`` is a file of trusted
    authorities.
    """

    def __init__(self, url: str, *, user: str = "", ca: str = "", insecure: bool = False) -> None:
        parts = urlsplit(url)
        try:
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigurationError(f"the option registry: {error}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigurationError(f"the option registry: {parts.scheme}://... is not an http(s) URL with a host")
        if parts.username is not None or parts.password is not None:
            raise ConfigurationError(
                f"the option registry: a URL with a password ends up in logs: use the option registry_user or {USER_VARIABLE}"
            )
        user = user or os.environ.get(USER_VARIABLE, "")
        if user and parts.scheme == "http" and not insecure and host not in ("localhost", "127.0.0.1", "::1"):
            raise ConfigurationError(
                "the option registry: the password would cross the network unencrypted: use https://, or the option"
                " registry_insecure=true"
            )
        self.url = url.rstrip("/")
        self._host, self._path, self._is_tls = host, quote(parts.path.rstrip("/"), safe="/%"), parts.scheme == "https"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "User-Agent": "mainstem"}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        # Read the file here, because the workers may not have it.
        self._authorities = read_text(Path(ca)) if ca else None
        self._context()

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"

    def read(self, number: int, query: str = "") -> SchemaText:
        target = f"{self._path}/schemas/ids/{number}{query}"
        status, body = Retry().call(lambda: self._get(target), self.url, f"GET {target}")
        if status == 404:
            raise UnknownSchemaError(f"{self.url} has no schema {number}")
        if status != 200:
            raise StoreError(
                self.url, f"GET {target}: status {status}{' (redirects are not followed)' * (300 <= status < 400)}"
            )
        try:
            value = json.loads(body)
            text = value["schema"]
            if not isinstance(text, str):
                raise TypeError("the schema is not text")
            others = [str(each.get("name")) for each in value.get("references") or ()]
            # Protobuf's own files are always available.
            others = [name for name in others if not name.startswith("google/protobuf/")]
            return SchemaText(text, str(value.get("schemaType", "AVRO")), bool(others))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StoreError(self.url, f"GET {target}: no schema in the response: {type(error).__name__}") from None

    def _context(self) -> ssl.SSLContext | None:
        if not self._is_tls:
            return None
        try:
            return ssl.create_default_context(cadata=self._authorities)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"the option registry_ca: {error}") from None

    def _connection(self, target: str) -> tuple[http.client.HTTPConnection, str]:
        """Return a connection to the registry or to its proxy, and the target to request."""
        context = self._context()
        host, port, proxy = self._host, self._port, urlsplit(proxy_for(self._host, is_tls=context is not None))
        if proxy.hostname:
            host, port = proxy.hostname, proxy.port or 80
        if context is None:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
            return connection, f"{self.url.removesuffix(self._path)}{target}" if proxy.hostname else target
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        if proxy.hostname:
            connection.set_tunnel(self._host, self._port)
        return connection, target

    def _get(self, target: str) -> tuple[int, bytes]:
        """Return the status and body of one request, within the limits on time and length."""
        until_ns = SYSTEM_CLOCK.monotonic_ns() + int(TIMEOUT_S * NS_PER_SECOND)
        connection, target = self._connection(target)
        try:
            connection.request("GET", target, headers=self._headers)
            response = connection.getresponse()
            if response.status in (429, 500, 502, 503, 504):
                raise TransientError(f"status {response.status}")
            body = b""
            while part := response.read1(READ_LENGTH):
                body += part
                if len(body) > MAX_RESPONSE_LENGTH:
                    raise StoreError(self.url, f"the response is longer than {MAX_RESPONSE_LENGTH} bytes")
                if SYSTEM_CLOCK.monotonic_ns() > until_ns:
                    raise TransientError(f"the response takes longer than {TIMEOUT_S:g} s")
            return response.status, body
        except ssl.SSLError as error:
            raise StoreError(self.url, str(error)) from None
        except http.client.HTTPException as error:
            raise TransientError(f"no response of HTTP: {type(error).__name__}") from None
        except OSError as error:
            raise TransientError(str(error) or type(error).__name__) from None
        finally:
            connection.close()


def schemas_of(
    schemas: str, registry: str, suffix: str, *, user: str = "", ca: str = "", insecure: str = ""
) -> SchemaDirectory | SchemaRegistry | None:
    """Return the source of schemas that a codec's options name, or None. Raises ConfigurationError if they name two."""
    if schemas and registry:
        raise ConfigurationError("the options schemas and registry exclude each other")
    if registry:
        return SchemaRegistry(registry, user=user, ca=ca, insecure=insecure.lower() == "true")
    if user or ca or insecure:
        raise ConfigurationError("the options registry_user, registry_ca and registry_insecure are for registry")
    return SchemaDirectory(schemas, suffix) if schemas else None


def read_text(path: Path) -> str:
    return read_bytes(path).decode()


def read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_SCHEMA_LENGTH + 1)
    if len(data) > MAX_SCHEMA_LENGTH:
        raise ConfigurationError(f"{path} is longer than {MAX_SCHEMA_LENGTH} bytes")
    return data


class SchemaCache:
    """A cache of the values made from a source's schemas, by number, and of numbers that are unknown."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make
        self._made: OrderedDict[int, Any] = OrderedDict()
        self._unknown: OrderedDict[int, str] = OrderedDict()
        self._next_ns = 0

    def get(self, number: int) -> Any:
        if number in self._made:
            self._made.move_to_end(number)
            return self._made[number]
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if now_ns < self._next_ns and (number in self._unknown or len(self._unknown) >= MAX_UNKNOWN):
            many = f"schema {number} is not looked up: {MAX_UNKNOWN} numbers had none"
            raise UnknownSchemaError(self._unknown.get(number, many))
        try:
            value = self._make(number)
        except ValueError as error:
            self._unknown[number] = str(error)
            self._next_ns = now_ns + UNKNOWN_PAUSE_NS
            if len(self._unknown) > MAX_UNKNOWN:
                self._unknown.popitem(last=False)
            raise
        self._unknown.pop(number, None)
        self._made[number] = value
        if len(self._made) > MAX_SCHEMAS:
            self._made.popitem(last=False)
        return value


def confluent_number(payload: bytes) -> int:
    """Return the schema number in Confluent's framing. Raises ValueError if there is none."""
    if len(payload) < 5 or payload[0] != MAGIC:
        raise ValueError("the message has no Confluent framing: it begins with a zero byte and the number of a schema")
    return int.from_bytes(payload[1:5], "big")


def confluent_head(number: int) -> bytes:
    return bytes([MAGIC]) + number.to_bytes(4, "big")
