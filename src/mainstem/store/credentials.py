"""Credentials of S3 and Google Cloud Storage beyond those that obstore finds by itself.

obstore reads the environment, and asks the services of AWS, Google and Azure for machines, containers and Kubernetes. For AWS
profiles, single sign-on and roles it needs boto3, and to impersonate a Google service account google-auth.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Where one of these is set, obstore has what it needs.
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
# How long obstore keeps what boto3 returns, which renews it by itself.
_KEPT = timedelta(minutes=5)
_GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def of_s3(values: Mapping[str, Any]) -> Callable[[], Any] | None:
    """What obstore asks for credentials; None where it finds them itself. Raises ConfigurationError where boto3 is missing."""
    key, secret, token = (values.get(name) for name in ("access_key", "secret_key", "session_token"))
    if values.get("role_arn"):
        return _Boto3Credentials(values)
    if key:
        return lambda: {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    if any(map(os.environ.get, _AWS_VARIABLES)) or not _has_profiles():
        return None
    return _Boto3Credentials(values)


def _has_profiles() -> bool:
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    return bool(os.environ.get("AWS_PROFILE")) or Path(path).expanduser().exists()


class _Boto3Credentials:
    """The credentials of a profile, or of a role. obstore reads ``config`` too."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        try:
            from boto3 import Session
        except ImportError:
            raise ConfigurationError("role_arn and the profiles of ~/.aws need boto3: pip install boto3") from None
        self._session = Session(*map(values.get, ("access_key", "secret_key", "session_token", "region")))
        role = {
            "RoleArn": values.get("role_arn"),
            "RoleSessionName": values.get("session_name", "mainstem"),
            "ExternalId": values.get("external_id"),
            "DurationSeconds": values.get("load_frequency"),
        }
        self._role = {name: value for name, value in role.items() if value} if role["RoleArn"] else None
        self.config = {"region": self._session.region_name} if self._session.region_name else {}

    def __call__(self) -> dict[str, Any]:
        if self._role:
            found = self._session.client("sts").assume_role(**self._role)["Credentials"]
            names, expires_at = ("AccessKeyId", "SecretAccessKey", "SessionToken"), found["Expiration"].astimezone(UTC)
            key, secret, token = (found[name] for name in names)
        else:
            credentials = self._session.get_credentials()
            if credentials is None:
                raise ConfigurationError("the profile has no credentials")
            (key, secret, token, *_), expires_at = credentials.get_frozen_credentials(), datetime.now(UTC) + _KEPT
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": expires_at}


def of_gcs(values: Mapping[str, Any]) -> Callable[[], Any] | None:
    """As ``of_s3``, with google-auth."""
    if token := values.get("access_token"):
        return lambda: {"token": token, "expires_at": None}
    account = values.get("target_service_account")
    if not account:
        return None
    try:
        import google.auth
        from google.auth import impersonated_credentials
        from obstore.auth.google import GoogleCredentialProvider
    except ImportError:
        raise ConfigurationError("target_service_account needs google-auth: pip install google-auth requests") from None
    source, _ = google.auth.default()
    impersonated = impersonated_credentials.Credentials(source, account, [_GCS_SCOPE])
    return GoogleCredentialProvider(credentials=impersonated)  # type: ignore[no-any-return]
