"""Authentication: from a credential to a user.

The identity of a client certificate is its subject: the common name is the user, each
organization a group (upstream: the x509 request authenticator). Certificates have been verified
against the cluster's CA by the TLS layer before they come here. Bearer tokens are those of service
accounts (`apiserver.auth.tokens`).
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from apiserver.auth.user import AUTHENTICATED, CREDENTIAL_ID, UserInfo
from podyard.api import errors

# From a bearer token to its user; raises Unauthorized.
Bearer = Callable[[str], Awaitable[UserInfo]]
_IMPERSONATION = "impersonate-"


@lru_cache(maxsize=1024)
def user_of_certificate(der: bytes) -> UserInfo | None:
    """The user of a verified client certificate; None for one without a common name.

    Args:
        der: the certificate as the connection brought it.
    """
    subject = x509.load_der_x509_certificate(der).subject
    names = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not names or not names[0]:
        return None
    groups = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    fingerprint = hashlib.sha256(der).hexdigest()
    return UserInfo(names[0], (*groups, AUTHENTICATED), extra={CREDENTIAL_ID: (f"X509SHA256={fingerprint}",)})


@lru_cache(maxsize=1024)
def user_of_pem(pem: bytes) -> UserInfo | None:
    """The user of a PEM certificate, as gRPC's auth context holds it."""
    return user_of_certificate(ssl.PEM_cert_to_DER_cert(pem.decode()))


def bearer_token(header: str) -> str:
    """The token of an Authorization header; empty for none and for other schemes."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def refuse_impersonation(headers: Mapping[str, str]) -> None:
    """Refuses to act for another user: answering as the real one would be worse.

    Differs from upstream, where those who may can do this.

    Raises:
        Forbidden: a header asks for it.
    """
    for name, value in headers.items():
        if name.lower().startswith(_IMPERSONATION):
            raise errors.Forbidden(
                f'users "{value}" is forbidden: impersonation is not served', kind="users", name=value
            )


def unauthorized() -> errors.Unauthorized:
    """What a request without a valid credential gets, whatever it asks for."""
    return errors.Unauthorized("Unauthorized")
