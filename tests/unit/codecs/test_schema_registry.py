from __future__ import annotations

import pickle
import ssl
from typing import TYPE_CHECKING, Any

import pytest

import mainstem.codecs.schemas as schemas
from mainstem.aqueduct import make_certificates
from mainstem.codecs import find_codec
from mainstem.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.schema_registry import Registry

USER = "reader:secret"


def codec_of(registry: Registry, scheme: str = "http", **options: str) -> Any:
    url = f"{scheme}://127.0.0.1:{registry.server_port}"
    return pickle.loads(pickle.dumps(find_codec("avro", {"framing": "confluent", "registry": url} | options)))


def message(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + b"\x0a"


def test_a_schema_is_read_once_and_with_the_user(registry: Registry) -> None:
    codec = codec_of(registry, registry_user=USER)
    decoded = codec.decode_batch([message(1)] * 3, codec.schema([message(1)]))
    assert decoded.columns[0].to_pylist() == [5, 5, 5]
    assert registry.requests == {"/schemas/ids/1": 1}
    assert registry.authorization == ["Basic cmVhZGVyOnNlY3JldA=="]
    assert "secret" not in repr(codec._source)


@pytest.mark.parametrize(
    ("number", "reason"), [(2, "of JSON, not of Avro"), (3, "refers to other"), (99, "has no schema 99")]
)
def test_a_number_without_a_usable_schema_is_the_message_s_problem(
    registry: Registry, number: int, reason: str
) -> None:
    codec = codec_of(registry)
    decoded = codec.decode_batch([message(number), message(1), message(number)], codec.schema([message(1)]))
    assert sorted(decoded.problems) == [0, 2]
    assert reason in decoded.problems[0]
    assert decoded.origins == [1]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (4, "longer than"),
        (5, "no schema in the response"),
        (6, "status 307 .redirects"),
        (7, "status 401"),
        (8, "503"),
        (9, "404, but not from a registry: check the path"),
        (10, "404, but not from a registry: check the path"),
    ],
)
def test_a_registry_that_does_not_respond_stops_the_reading(registry: Registry, number: int, reason: str) -> None:
    codec = codec_of(registry)
    with pytest.raises(StoreError, match=reason):
        codec.decode_batch([message(1), message(number)], codec.schema([message(1)]))


def test_without_a_usable_schema_the_reason_is_told(registry: Registry) -> None:
    for number, reason in ((2, "of JSON, not of Avro"), (99, "has no schema 99")):
        with pytest.raises(ValueError, match=f"{reason}; set the option schema to a file"):
            codec_of(registry).schema([message(number)])
    with pytest.raises(StoreError, match="check the path"):
        codec_of(registry).schema([message(9)])


def test_a_registry_that_is_not_there_stops_the_reading(registry: Registry) -> None:
    codec = find_codec("avro", {"framing": "confluent", "registry": "http://127.0.0.1:1"})
    with pytest.raises(StoreError):
        codec.decode(message(1))


def test_many_numbers_without_a_schema_are_not_many_requests(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "MAX_UNKNOWN", 5)
    monkeypatch.setattr(schemas, "UNKNOWN_PAUSE_NS", 1 << 60)
    codec = codec_of(registry)
    schema = codec.schema([message(1)])
    decoded = codec.decode_batch([message(1000 + i) for i in range(200)] + [message(1)], schema)
    assert len(decoded.problems) == 200
    assert decoded.origins == [200]
    assert sum(registry.requests.values()) == 6


def test_a_registry_is_reached_by_the_proxy_of_the_environment(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://registry.invalid:8081/base"
    registry.responses[f"{url}/schemas/ids/1"] = registry.responses["/schemas/ids/1"]
    monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{registry.server_port}")
    codec: Any = find_codec("avro", {"framing": "confluent", "registry": url})
    assert codec.decode(message(1)) == [{"id": 5}]
    assert registry.requests == {f"{url}/schemas/ids/1": 1}
    monkeypatch.setenv("NO_PROXY", "registry.invalid")
    with pytest.raises(StoreError):
        find_codec("avro", {"framing": "confluent", "registry": url}).decode(message(1))
    # No proxy is used to reach this machine.
    monkeypatch.setenv("HTTP_PROXY", "127.0.0.1:1")
    assert codec_of(registry).decode(message(1)) == [{"id": 5}]


def test_schemas_in_memory_are_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MAX_SCHEMAS", 2)
    for number in (11, 12, 13):
        registry.responses[f"/schemas/ids/{number}"] = registry.responses["/schemas/ids/1"]
    codec = codec_of(registry)
    for number in (11, 12, 13, 13, 12, 11):
        codec.decode(message(number))
    assert registry.requests == {"/schemas/ids/11": 2, "/schemas/ids/12": 1, "/schemas/ids/13": 1}


def test_a_registry_over_tls_is_trusted_by_its_authority(registry: Registry, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path, names=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    registry.socket = context.wrap_socket(registry.socket, server_side=True)
    codec = codec_of(registry, "https", registry_ca=str(certificates.ca), registry_user=USER)
    assert codec.decode(message(1)) == [{"id": 5}]
    with pytest.raises(StoreError, match="the certificate is not trusted: "):
        codec_of(registry, "https").decode(message(1))


def test_only_one_source_of_schemas_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        find_codec("avro", {"framing": "confluent", "registry": "http://x", "schemas": str(tmp_path)})
