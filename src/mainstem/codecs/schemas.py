"""Codecs whose messages may name their schema by number, which they find in a directory or in a Confluent Schema Registry.

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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.error_texts import tls_problem
from mainstem._internal.urls import split_url
from mainstem.codecs.base import RowCodec
from mainstem.errors import ConfigurationError, StoreError
from mainstem.store.options import proxy_for
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
FRAMED_LENGTH = 5
# The suffix of a format's files in a directory of schemas, and the query for a registry to return the format in full.
SUFFIXES = {"AVRO": ".avsc", "PROTOBUF": ".desc"}
QUERIES = {"AVRO": "", "PROTOBUF": "?format=serialized"}


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

    def __init__(self, path: str, format: str) -> None:  # noqa: A002
        self._path, self._format = Path(path), format
        if not self._path.is_dir():
            raise ConfigurationError(f"the option schemas: {path} is not a directory")

    def read(self, number: int) -> SchemaText:
        """Return the schema with a number. Raises UnknownSchemaError, or StoreError if the file cannot be read."""
        file = self._path / f"{number}{SUFFIXES[self._format]}"
        try:
            data = read_bytes(file)
            return SchemaText(
                data.decode() if self._format == "AVRO" else base64.b64encode(data).decode(), self._format
            )
        except FileNotFoundError:
            raise UnknownSchemaError(f"{self._path} has no schema {file.name}") from None
        except OSError as error:
            raise StoreError(str(file), str(error)) from None


class SchemaRegistry:
    """A Confluent Schema Registry. It is pickled to Spark's workers with its credentials, which never appear in texts.

    ``user`` is NAME:PASSWORD, by default from the environment variable MAINSTEM_REGISTRY_USER. ``ca`` is a file of trusted
    authorities.
    """

    def __init__(self, url: str, format: str, *, user: str = "", ca: str = "", insecure: bool = False) -> None:  # noqa: A002
        parts = split_url(url, "the option registry")
        host, self._port = parts.hostname, parts.port
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
        self.url, self._query = url.rstrip("/"), QUERIES[format]
        self._host, self._path, self._is_tls = host, quote(parts.path.rstrip("/"), safe="/%"), parts.scheme == "https"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "User-Agent": "mainstem"}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        # Read the file here, because the workers may not have it.
        self._authorities = read_bytes(Path(ca)).decode("ascii", "ignore") if ca else None
        self._context()

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"

    def read(self, number: int) -> SchemaText:
        target = f"{self._path}/schemas/ids/{number}{self._query}"
        status, body = Retry().call(lambda: self._get(target), self.url, f"GET {target}")
        if status == 404 and _is_own_answer(body):
            raise UnknownSchemaError(f"{self.url} has no schema {number}")
        if status == 404:
            raise StoreError(
                self.url, f"GET {target}: status 404, but not from a registry: check the path in the option registry"
            )
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
        except ssl.SSLError as error:
            raise ConfigurationError(f"the option registry_ca: {tls_problem(error)}") from None

    def _connection(self, target: str) -> tuple[http.client.HTTPConnection, str]:
        """Return a connection to the registry or to its proxy, and the target to request."""
        context = self._context()
        host, port, proxy = self._host, self._port, split_url(proxy_for(self._host, is_tls=context is not None))
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
            raise StoreError(self.url, tls_problem(error)) from None
        except http.client.HTTPException as error:
            raise TransientError(f"no response of HTTP: {type(error).__name__}") from None
        except OSError as error:
            raise TransientError(str(error) or type(error).__name__) from None
        finally:
            connection.close()


def _is_own_answer(body: bytes) -> bool:
    """Return whether a response of 404 says that a registry lacks the schema, rather than a server the path."""
    try:
        code = json.loads(body)["error_code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return type(code) is int and code // 100 == 404


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
    if len(payload) < FRAMED_LENGTH or payload[0] != MAGIC:
        raise ValueError("the message has no Confluent framing: it begins with a zero byte and the number of a schema")
    return int.from_bytes(payload[1:FRAMED_LENGTH], "big")


class SchemaCodec(RowCodec):
    """A codec for messages without framing, in Confluent's framing, or in another framing of the format.

    Options: ``framing``; ``schemas``, a directory of schemas by number, or ``registry``, the URL of a Schema Registry, with
    ``registry_user``, ``registry_ca`` and ``registry_insecure``; ``id``, the number of the schema to write.
    """

    format: ClassVar[str]
    framings: ClassVar[tuple[str, ...]] = ("none", "confluent")

    def __init__(
        self,
        *,
        framing: str = "none",
        schemas: str = "",
        registry: str = "",
        registry_user: str = "",
        registry_ca: str = "",
        registry_insecure: str = "",
        id: str = "",  # noqa: A002
        **options: str,
    ) -> None:
        super().__init__(**options)
        if framing not in self.framings:
            raise ConfigurationError(f"framing must be one of {', '.join(self.framings)} (got {framing!r})")
        if schemas and registry:
            raise ConfigurationError("the options schemas and registry exclude each other")
        if registry and framing != "confluent":
            raise ConfigurationError("the option registry is for framing=confluent")
        if schemas and framing == "none":
            raise ConfigurationError(f"the option schemas is for framing={' or '.join(self.framings[1:])}")
        if not registry and (registry_user or registry_ca or registry_insecure):
            raise ConfigurationError("the options registry_user, registry_ca and registry_insecure are for registry")
        if id and (not id.isdecimal() or int(id) >= 1 << 31):
            raise ConfigurationError(f"the option id: {id!r} is not a schema id")
        self._framing, self._number = framing, int(id) if id else None
        self._source: SchemaDirectory | SchemaRegistry | None = None
        if registry:
            insecure = registry_insecure.lower() == "true"
            self._source = SchemaRegistry(registry, self.format, user=registry_user, ca=registry_ca, insecure=insecure)
        elif schemas:
            self._source = SchemaDirectory(schemas, self.format)

    def __getstate__(self) -> dict[str, Any]:
        # Each process parses the schemas again.
        parsed = {name for name in dir(type(self)) if isinstance(getattr(type(self), name), cached_property)}
        return {name: value for name, value in self.__dict__.items() if name not in parsed}

    def _stored_schema(self, number: int) -> SchemaText:
        """Return the schema with a number. Raises UnknownSchemaError if there is none that this codec can read."""
        assert self._source is not None, "a number is looked up where there is a source"
        schema, format = self._source.read(number), self.format  # noqa: A001
        if schema.format != format:
            raise UnknownSchemaError(f"schema {number} is of {schema.format}, not of {format.title()}")
        if schema.has_references:
            raise UnknownSchemaError(
                f"schema {number} refers to other schemas, which are not read: give it whole in schemas="
            )
        return schema

    def _confluent_head(self) -> bytes:
        """Return the bytes before each message that is written."""
        if self._number is None:
            raise ConfigurationError("the option id is the number of the schema that is written")
        return bytes([MAGIC]) + self._number.to_bytes(4, "big")
