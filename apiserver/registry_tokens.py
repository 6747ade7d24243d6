"""The token subresource of service accounts, and who a token speaks for.

Counterpart: kubernetes pkg/registry/core/serviceaccount/storage/token.go,
pkg/serviceaccount/claims.go Validate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.auth import authn, tokens
from apiserver.auth.tokens import Bound, Claims, Signer, TokenError, Verifier
from apiserver.auth.user import UserInfo
from apiserver.registry_errors import translated
from apiserver.registry_options import check_write_options, settle_namespace
from apiserver.registry_reading import Reader
from apiserver.watchcache import WatchCache
from podyard.api import codec, errors, meta, resources
from podyard.api.types import (
    Node,
    Pod,
    Secret,
    ServiceAccount,
    StatusCause,
    TokenRequest,
    copy_of,
    meta_v1,
)
from podyard.base import clock, ids, log
from podyard.base.pki import SigningKey

_LOGGER = log.get_logger("apiserver.tokens")
API_VERSION, KIND = "authentication.k8s.io/v1", "TokenRequest"
DEFAULT_EXPIRATION_S = 3600
MIN_EXPIRATION_S = 600
MAX_EXPIRATION_S = 1 << 32
# Upstream: WarnOnlyBoundTokenExpirationPeriod, ExpirationExtensionSeconds. What ServiceAccount admission asks
# for marks tokens whose readers may be old clients that never read the file again.
WARN_ONLY_EXPIRATION_S = 3607
EXTENDED_EXPIRATION_S = 365 * 24 * 3600
_KNOWN_TOKENS = 4096
_LONGEST_TOKEN_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class TokenItem:
    """A TokenRequest as the front ends want an object: message, JSON and protobuf bytes."""

    message: TokenRequest

    @property
    def raw(self) -> bytes:
        return self.message.SerializeToString()

    @property
    def json(self) -> bytes:
        return codec.encode_json(self.message, API_VERSION, KIND)


class Tokens:
    """Issues and believes tokens.

    Args:
        key: signs; its public half verifies.
    """

    def __init__(self, reader: Reader, cache: WatchCache, key: SigningKey) -> None:
        self._reader = reader
        self._cache = cache
        self._signer = Signer(key)
        self._verifier = Verifier([key.public])
        self._known: OrderedDict[str, Claims] = OrderedDict()

    async def create(
        self, namespace: str, name: str, request: TokenRequest, options: meta_v1.CreateOptions
    ) -> TokenItem:
        """Answers the request with a token in its status; nothing is stored.

        Raises:
            ApiError: no such account or bound object, invalid, Conflict of a given uid.
        """
        check_write_options(options)
        answer = copy_of(request)
        _check_place(answer, namespace, name)
        account: Any = await self._get(ServiceAccount, namespace, name)
        now_s = int(clock.now_s())
        answer.metadata.name, answer.metadata.namespace = name, namespace
        answer.metadata.creationTimestamp.CopyFrom(meta.time_of(now_s))
        answer.ClearField("status")
        spec = answer.spec
        if not spec.audiences:
            spec.audiences.extend(self._verifier.audiences)
        if not spec.HasField("expirationSeconds"):
            spec.expirationSeconds = DEFAULT_EXPIRATION_S
        causes = _expiration_causes(spec.expirationSeconds)
        if causes:
            raise errors.Invalid.of(KIND, "", causes, "authentication.k8s.io")
        bound = (
            await self._bound(namespace, name, spec.boundObjectRef) if spec.HasField("boundObjectRef") else {}
        )
        lifetime_s, warn_after_s = spec.expirationSeconds, None
        ours = set(spec.audiences) <= set(self._verifier.audiences)
        if "pod" in bound and lifetime_s == WARN_ONLY_EXPIRATION_S and ours:
            lifetime_s, warn_after_s = EXTENDED_EXPIRATION_S, now_s + lifetime_s
        claims = Claims(
            namespace=namespace,
            account=Bound.of(account.metadata),
            audiences=tuple(spec.audiences),
            issued_s=now_s,
            expires_s=now_s + lifetime_s,
            token_id=ids.uid(),
            warn_after_s=warn_after_s,
            **bound,
        )
        answer.status.token = self._signer.sign(claims)
        # The renewal that clients must do, not the end that laggards are given.
        answer.status.expirationTimestamp.CopyFrom(meta.time_of(now_s + spec.expirationSeconds))
        return TokenItem(answer)

    async def _bound(self, namespace: str, account: str, reference: Any) -> dict[str, Bound]:
        """The objects that a token is bound to, by the name of their claim."""
        group, _, version = reference.apiVersion.rpartition("/")
        kinds: dict[str, Any] = {"Pod": Pod, "Node": Node, "Secret": Secret}
        if group or reference.kind not in kinds:
            shown = f"{group}/{version}, Kind={reference.kind}"
            raise errors.BadRequest(f"cannot bind token to object of type {shown}")
        found = await self._get(kinds[reference.kind], namespace, reference.name)
        if reference.uID and reference.uID != found.metadata.uid:
            raise errors.Conflict.of(
                reference.kind,
                reference.name,
                f"the UID in the bound object reference ({reference.uID}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        bound = {reference.kind.lower(): Bound.of(found.metadata)}
        if reference.kind == "Pod":
            if found.spec.serviceAccountName != account:
                raise errors.BadRequest(
                    f'cannot bind token for serviceaccount "{account}" to pod running with different '
                    "serviceaccount name."
                )
            if found.spec.nodeName:
                bound["node"] = await self._node(found.spec.nodeName)
        return bound

    async def _node(self, name: str) -> Bound:
        try:
            return Bound.of((await self._get(Node, "", name)).metadata)
        except errors.NotFound:
            return Bound(name, "")

    async def _get(self, kind: Any, namespace: str, name: str) -> Any:
        row = resources.by_message(kind)
        return (await self._reader.get(row, namespace if row.namespaced else "", name)).message

    async def authenticate(self, token: str) -> UserInfo:
        """Who presents this bearer token.

        Raises:
            Unauthorized: it is not believed; the reason goes to the log alone.
        """
        try:
            claims = self._claims(token)
            await self._check(claims)
        except TokenError as error:
            _LOGGER.debug("token refused", reason=str(error))
            raise authn.unauthorized() from None
        return claims.user()

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]]:
        """Who presents this token to one of the audiences, and which of them it is for.

        Args:
            audiences: none means this API server's.

        Raises:
            TokenError: it is not believed.
        """
        wanted = list(audiences) or list(self._verifier.audiences)
        if len(token) > _LONGEST_TOKEN_BYTES:
            raise TokenError("too long")
        claims = self._verifier.read(token, wanted)
        await self._check(claims)
        return claims.user(), [name for name in wanted if name in claims.audiences]

    async def _check(self, claims: Claims) -> None:
        """Times, and the objects that the token stands on.

        Raises:
            TokenError: with the reason.
        """
        tokens.check_times(claims, clock.now_s())
        try:
            self._check_objects(claims)
        except TokenError:
            # The pod or the account may just have been made, perhaps through another server.
            with translated():
                await self._cache.fresh()
            self._check_objects(claims)

    def _claims(self, token: str) -> Claims:
        """What the token says; signatures of the last few thousand are remembered."""
        known = self._known.get(token)
        if known is not None:
            self._known.move_to_end(token)
            return known
        if len(token) > _LONGEST_TOKEN_BYTES:
            raise TokenError("too long")
        claims = self._known[token] = self._verifier.read(token)
        if len(self._known) > _KNOWN_TOKENS:
            self._known.popitem(last=False)
        return claims

    def _check_objects(self, claims: Claims) -> None:
        now_s = clock.now_s()
        tokens.check_bound(
            "service account",
            claims.account,
            self._cached(ServiceAccount, claims.namespace, claims.account.name),
            now_s,
        )
        if claims.secret is not None:
            found = self._cached(Secret, claims.namespace, claims.secret.name)
            tokens.check_bound("secret", claims.secret, found, now_s)
        if claims.pod is not None:
            found = self._cached(Pod, claims.namespace, claims.pod.name)
            tokens.check_bound("pod", claims.pod, found, now_s)
        elif claims.node is not None:
            # Of a pod's token the node is told, not checked: it ends with the pod.
            tokens.check_bound("node", claims.node, self._cached(Node, "", claims.node.name), now_s)

    def _cached(self, kind: Any, namespace: str, name: str) -> Any:
        found: Any = self._cache.get(resources.by_message(kind).key(namespace, name))
        return None if found is None else found.message


def _check_place(request: TokenRequest, namespace: str, name: str) -> None:
    """Name and namespace in the body must be the path's.

    Raises:
        BadRequest, Invalid: they are others.
    """
    settle_namespace(resources.by_message(ServiceAccount), namespace, request)
    if request.metadata.name and request.metadata.name != name:
        detail = "must match the service account name if specified"
        cause = errors.invalid("metadata.name", request.metadata.name, detail)
        raise errors.Invalid.of(KIND, name, [cause], "authentication.k8s.io")


def _expiration_causes(seconds: int) -> list[StatusCause]:
    field = "spec.expirationSeconds"
    if seconds < MIN_EXPIRATION_S:
        return [errors.invalid(field, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > MAX_EXPIRATION_S:
        return [errors.invalid(field, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []
