"""Reviews: questions about users and their rights that are answered and forgotten.

Counterpart: kubernetes pkg/registry/authentication, pkg/registry/authorization.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.auth.authz import Attributes, Authorizer
from apiserver.auth.tokens import TokenError
from apiserver.auth.user import RequestContext, UserInfo
from apiserver.registry_options import check_write_options
from apiserver.registry_tokens import Tokens
from podyard.api import codec, errors, meta
from podyard.api.resources import Resource
from podyard.api.types import Message, authentication_v1, authorization_v1, copy_of, meta_v1
from podyard.base import clock


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """An answered review as the front ends want an object; it was never stored."""

    row: Resource
    message: Any
    key: str = ""
    revision: int = 0
    create_revision: int = 0

    @property
    def namespace(self) -> str:
        return str(self.message.metadata.namespace)

    @property
    def name(self) -> str:
        return str(self.message.metadata.name)

    @property
    def raw(self) -> bytes:
        return bytes(self.message.SerializeToString())

    @property
    def json(self) -> bytes:
        return codec.encode_json(self.message, self.row.api_version, self.row.kind)

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.message.metadata.labels)

    @property
    def fields(self) -> Mapping[str, str]:
        return self.row.fields_of(self.message)


class Reviews:
    """Answers.

    Args:
        authorizer: the one that every request is asked of.
        tokens: believes bearer tokens.
    """

    def __init__(self, authorizer: Authorizer, tokens: Tokens) -> None:
        self._authorizer = authorizer
        self._tokens = tokens
        self._answers: dict[type[Message], Callable[[RequestContext, Any], Awaitable[None]]] = {
            authentication_v1.SelfSubjectReview: self._who_am_i,
            authentication_v1.TokenReview: self._token,
            authorization_v1.LocalSubjectAccessReview: self._access,
            authorization_v1.SelfSubjectAccessReview: self._self_access,
            authorization_v1.SelfSubjectRulesReview: self._rules,
            authorization_v1.SubjectAccessReview: self._access,
        }

    async def create(
        self,
        ctx: RequestContext,
        row: Resource,
        namespace: str,
        asked: Message,
        options: meta_v1.CreateOptions,
    ) -> ReviewItem:
        """The question with its answer in the status.

        Raises:
            ApiError: invalid, or of another namespace than the request.
        """
        check_write_options(options)
        review: Any = copy_of(asked)
        if row.namespaced:
            if review.metadata.namespace not in ("", namespace):
                raise errors.BadRequest(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            review.metadata.namespace = namespace
        causes = row.validate(review)
        if causes:
            raise errors.Invalid.of(row.kind, "", causes, row.group)
        review.ClearField("status")
        await self._answers[row.message](ctx, review)
        return ReviewItem(row, review)

    async def _who_am_i(self, ctx: RequestContext, review: authentication_v1.SelfSubjectReview) -> None:
        review.metadata.creationTimestamp.CopyFrom(meta.time_of(clock.now_s()))
        _fill_user(review.status.userInfo, ctx.user)

    async def _token(self, ctx: RequestContext, review: authentication_v1.TokenReview) -> None:
        if not review.spec.token:
            raise errors.BadRequest("token is required for TokenReview in authentication")
        status = review.status
        status.authenticated = False
        try:
            user, audiences = await self._tokens.review(review.spec.token, review.spec.audiences)
        except TokenError as error:
            status.error = f"[invalid bearer token, {error}]"
            return
        status.authenticated = True
        _fill_user(status.user, user)
        status.audiences.extend(audiences)

    async def _self_access(
        self, ctx: RequestContext, review: authorization_v1.SelfSubjectAccessReview
    ) -> None:
        self._decide(ctx.user, review)

    async def _access(self, ctx: RequestContext, review: Any) -> None:
        spec = review.spec
        extra = {key: tuple(value.items) for key, value in spec.extra.items()}
        self._decide(UserInfo(spec.user, tuple(spec.groups), spec.uid, extra), review)

    def _decide(self, user: UserInfo, review: Any) -> None:
        decision = self._authorizer.authorize(_attributes(user, review.spec))
        review.status.allowed = decision.allowed
        if decision.reason:
            review.status.reason = decision.reason

    async def _rules(self, ctx: RequestContext, review: authorization_v1.SelfSubjectRulesReview) -> None:
        if not review.spec.namespace:
            raise errors.BadRequest("no namespace on request")
        found = self._authorizer.rules(ctx.user, review.spec.namespace)
        for verbs, groups, names, objects in found.resources:
            review.status.resourceRules.add(
                verbs=verbs, apiGroups=groups, resources=names, resourceNames=objects
            )
        for verbs, paths in found.paths:
            review.status.nonResourceRules.add(verbs=verbs, nonResourceURLs=paths)
        review.status.incomplete = found.incomplete


def _attributes(user: UserInfo, spec: Any) -> Attributes:
    if spec.HasField("nonResourceAttributes"):
        return Attributes(user, spec.nonResourceAttributes.verb, path=spec.nonResourceAttributes.path)
    asked = spec.resourceAttributes
    return Attributes(
        user,
        asked.verb,
        asked.group,
        asked.version,
        asked.resource,
        asked.subresource,
        asked.namespace,
        asked.name,
    )


def _fill_user(target: authentication_v1.UserInfo, user: UserInfo) -> None:
    target.username = user.name
    if user.uid:
        target.uid = user.uid
    target.groups.extend(user.groups)
    for key, values in user.extra.items():
        target.extra[key].items.extend(values)
