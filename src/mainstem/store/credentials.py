"""Credentials of S3 and Google Cloud Storage that obstore does not find itself.

obstore reads the environment, and queries the credential services of AWS, Google and Azure for machines, containers and Kubernetes.
AWS profiles, single sign-on and roles need boto3. Impersonating a Google service account needs google-auth.
"""

from __future__ import annotations

import os
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# If one of these is set, obstore finds the credentials itself.
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
# How long obstore caches the credentials from boto3, which renews them itself.
_KEPT = timedelta(minutes=5)
_GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def of_s3(values: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Return a credential provider for obstore, or None if obstore finds the credentials itself.

    Raises ConfigurationError if boto3 is needed and not installed.
    """
    key, secret, token, role = (values.get(name) for name in ("access_key", "secret_key", "session_token", "role_arn"))
    if key and not role:
        return lambda: {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    if not role and (any(map(os.environ.get, _AWS_VARIABLES)) or not _has_profiles()):
        return None
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError:
        raise ConfigurationError("role_arn and the profiles of ~/.aws need boto3: pip install boto3") from None
    session = Session(key, secret, token, values.get("region"))
    if not role:
        return Boto3CredentialProvider(session, ttl=_KEPT)  # type: ignore[no-any-return]
    arguments = {
        "RoleSessionName": values.get("session_name", "mainstem"),
        "ExternalId": values.get("external_id"),
        "DurationSeconds": values.get("load_frequency"),
    }
    given = {name: value for name, value in arguments.items() if value}

    class Role(StsCredentialProvider):  # type: ignore[misc]
        """Converts the expiry times from boto3 to UTC, because obstore accepts only those."""

        def __call__(self) -> dict[str, Any]:
            found = super().__call__()
            return {**found, "expires_at": found["expires_at"].astimezone(UTC)}

    return Role(session, RoleArn=role, **given)


def _has_profiles() -> bool:
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    return bool(os.environ.get("AWS_PROFILE")) or Path(path).expanduser().exists()


def of_gcs(values: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Like ``of_s3``, with google-auth."""
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
