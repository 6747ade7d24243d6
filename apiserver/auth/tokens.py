"""Service-account tokens: JSON web tokens (RFC 7519) signed with the cluster's service-account key.

Pure: the moment is handed in. Whether the account and the bound objects of a token still exist
is for whoever has the cluster's objects (`apiserver.registry_tokens`); what they must be like is
decided here, in `check_bound`.

Source: kubernetes pkg/serviceaccount (jwt.go, claims.go).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization

from apiserver.auth.user import AUTHENTICATED, CREDENTIAL_ID, UserInfo
from podyard.api.types import ObjectMeta
from podyard.base.pki import SigningKey

ISSUER = "https://kubernetes.default.svc.cluster.local"
USERNAME_PREFIX = "system:serviceaccount:"
GROUP = "system:serviceaccounts"
# Clocks of two servers differ a little (go-jose: DefaultLeeway), and what is deleted ends within it.
LEEWAY_S = 60
_ALGORITHM = "ES256"
_PRIVATE_CLAIMS = "kubernetes.io"


class TokenError(Exception):
    """A token is not believed; the text is for this server's log, never for the client."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An object that a token names; `uid` is empty for a node that did not exist."""

    name: str
    uid: str

    @classmethod
    def of(cls, metadata: ObjectMeta) -> Bound:
        return cls(metadata.name, metadata.uid)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says.

    Attributes:
        issued_s, expires_s, warn_after_s: seconds since the epoch, cluster time; a token of a pod
            may live on after `warn_after_s` for clients that never read the renewed file.
    """

    namespace: str
    account: Bound
    audiences: tuple[str, ...]
    issued_s: int
    expires_s: int
    token_id: str
    warn_after_s: int | None = None
    pod: Bound | None = None
    node: Bound | None = None
    secret: Bound | None = None

    @property
    def subject(self) -> str:
        return f"{USERNAME_PREFIX}{self.namespace}:{self.account.name}"

    def user(self) -> UserInfo:
        """Who presents this token."""
        extra: dict[str, tuple[str, ...]] = {CREDENTIAL_ID: (f"JTI={self.token_id}",)}
        for kind, bound in (("pod", self.pod), ("node", self.node)):
            if bound is not None:
                extra[f"authentication.kubernetes.io/{kind}-name"] = (bound.name,)
                if bound.uid:
                    extra[f"authentication.kubernetes.io/{kind}-uid"] = (bound.uid,)
        groups = (GROUP, f"{GROUP}:{self.namespace}", AUTHENTICATED)
        return UserInfo(self.subject, groups, self.account.uid, extra)


def _members(claims: Claims) -> dict[str, Any]:
    private: dict[str, Any] = {"namespace": claims.namespace}
    for name in ("node", "pod", "secret"):
        bound: Bound | None = getattr(claims, name)
        if bound is not None:
            private[name] = {"name": bound.name, "uid": bound.uid} if bound.uid else {"name": bound.name}
    private["serviceaccount"] = {"name": claims.account.name, "uid": claims.account.uid}
    if claims.warn_after_s is not None:
        private["warnafter"] = claims.warn_after_s
    return {
        "aud": list(claims.audiences),
        "exp": claims.expires_s,
        "iat": claims.issued_s,
        "iss": ISSUER,
        "jti": claims.token_id,
        _PRIVATE_CLAIMS: private,
        "nbf": claims.issued_s,
        "sub": claims.subject,
    }


class Signer:
    """Signs claims.

    Args:
        key: ECDSA P-256.
    """

    def __init__(self, key: SigningKey) -> None:
        self._key: Any = serialization.load_pem_private_key(key.private, None)
        self._key_id = key_id(key.public)

    def sign(self, claims: Claims) -> str:
        return jwt.encode(_members(claims), self._key, _ALGORITHM, headers={"kid": self._key_id})


class Verifier:
    """Believes tokens of the issuer that one of the keys has signed.

    Args:
        publics: PEM public keys; several while a key is being replaced.
        audiences: of this API server; a token must name one of them.
    """

    def __init__(self, publics: Sequence[bytes], audiences: Sequence[str] = (ISSUER,)) -> None:
        self._keys: dict[str, Any] = {key_id(pem): serialization.load_pem_public_key(pem) for pem in publics}
        self.audiences = tuple(audiences)

    def read(self, token: str, audiences: Sequence[str] = ()) -> Claims:
        """The claims of a token whose signature, issuer and audience are right; times are not looked at.

        Args:
            audiences: for whom the token must be; this API server where nobody is named.

        Raises:
            TokenError: it is not one of ours.
        """
        try:
            key = self._keys.get(jwt.get_unverified_header(token).get("kid", ""))
            if key is None:
                raise TokenError("signed with an unknown key")
            # Times are compared with the cluster's clock, which the library does not know.
            members = jwt.decode(
                token,
                key,
                [_ALGORITHM],
                issuer=ISSUER,
                audience=list(audiences) or self.audiences,
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
        except jwt.InvalidTokenError as error:
            raise TokenError(str(error)) from None
        try:
            claims = _read(members)
        except (KeyError, TypeError, ValueError) as error:
            raise TokenError(f"claims are malformed: {error!r}") from None
        if members.get("sub") != claims.subject:
            raise TokenError("the subject is not the account")
        return claims


def _read(members: Mapping[str, Any]) -> Claims:
    private = members[_PRIVATE_CLAIMS]

    def bound(name: str) -> Bound | None:
        found = private.get(name)
        return None if found is None else Bound(str(found["name"]), str(found.get("uid", "")))

    account = bound("serviceaccount")
    if account is None or not account.uid:
        raise ValueError("no account")
    audiences = members["aud"]
    warn_after = private.get("warnafter")
    return Claims(
        namespace=str(private["namespace"]),
        account=account,
        audiences=tuple([audiences] if isinstance(audiences, str) else audiences),
        issued_s=int(members["iat"]),
        expires_s=int(members["exp"]),
        token_id=str(members.get("jti", "")),
        warn_after_s=None if warn_after is None else int(warn_after),
        pod=bound("pod"),
        node=bound("node"),
        secret=bound("secret"),
    )


def check_times(claims: Claims, now_s: float) -> None:
    """Refuses what has expired or is not valid yet.

    Raises:
        TokenError: with the reason.
    """
    if now_s - LEEWAY_S > claims.expires_s:
        raise TokenError("service account token has expired")
    if now_s + LEEWAY_S < claims.issued_s:
        raise TokenError("service account token is not valid yet")


def check_bound(what: str, bound: Bound, found: Any, now_s: float) -> None:
    """Refuses a token whose account, pod, secret or node is gone, going for long, or another one.

    Args:
        what: its kind, for the log.
        found: the object of that name as it is now; None when there is none.

    Raises:
        TokenError: with the reason.
    """
    if found is None:
        raise TokenError(f"{what} {bound.name} does not exist")
    metadata = found.metadata
    if metadata.HasField("deletionTimestamp") and metadata.deletionTimestamp.seconds < now_s - LEEWAY_S:
        raise TokenError(f"{what} {bound.name} has been deleted")
    # A node that did not exist when the token was made has no uid in it.
    if bound.uid and metadata.uid != bound.uid:
        raise TokenError(f"{what} {bound.name} is another one: {metadata.uid} is not {bound.uid}")


def key_id(public: bytes) -> str:
    """A key's name in tokens: the digest of its DER form, as upstream's."""
    der = serialization.load_pem_public_key(public).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()
