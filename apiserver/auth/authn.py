"""Authentication: from a credential to a user.

The identity of a client certificate is its subject: the common name is the user, each
organization a group (upstream: the x509 request authenticator). Certificates have been verified
against the cluster's CA by the TLS layer before they come here. Bearer tokens are those of service
accounts (`apiserver.auth.tokens`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from apiserver.auth.user import AUTHENTICATED, UserInfo
from podyard.api import errors

# From a bearer token to its user; raises Unauthorized.
Bearer = Callable[[str], Awaitable[UserInfo]]
_IMPERSONATION = "impersonate-"


def user_of_subject(common_name: str, organizations: tuple[str, ...]) -> UserInfo | None:
    """The user that a certificate's subject names; None for a subject without a common name."""
    if not common_name:
        return None
    return UserInfo(common_name, (*organizations, AUTHENTICATED))


def user_of_peer(peer: Mapping[str, Any] | None) -> UserInfo | None:
    """The user of a TLS connection.

    Args:
        peer: what `ssl.SSLSocket.getpeercert` answers; None or empty without a certificate.
    """
    if not peer:
        return None
    common_name, organizations = "", []
    for relative_name in peer.get("subject", ()):
        for key, value in relative_name:
            if key == "commonName":
                common_name = value
            elif key == "organizationName":
                organizations.append(value)
    return user_of_subject(common_name, tuple(organizations))


@lru_cache(maxsize=1024)
def user_of_pem(pem: bytes) -> UserInfo | None:
    """The user of a PEM certificate, as gRPC's auth context holds it."""
    subject = x509.load_pem_x509_certificate(pem).subject
    names = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return user_of_subject(names[0] if names else "", tuple(groups))


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
