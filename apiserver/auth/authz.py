"""Authorization: may this user do this?

The interface is upstream's authorizer. `AlwaysAllow` is the one in force until RBAC is served; a
request without a credential never gets this far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from apiserver.auth.user import UserInfo
from podyard.api import errors


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for. Non-resource requests have only `verb` and `path`."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` is shown to the user when the answer is no."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a user may do in a namespace, as far as an authorizer can list it.

    Attributes:
        resources: (verbs, groups, resources, names) of each rule.
        paths: (verbs, paths) of each rule.
        incomplete: there may be more.
    """

    resources: tuple[tuple[tuple[str, ...], ...], ...] = ()
    paths: tuple[tuple[tuple[str, ...], ...], ...] = ()
    incomplete: bool = False


class Authorizer(Protocol):
    """Pure: policies are read from a cache, never awaited."""

    def authorize(self, attributes: Attributes) -> Decision: ...

    def rules(self, user: UserInfo, namespace: str) -> Rules: ...


class AlwaysAllow:
    """Every authenticated user may do everything."""

    def authorize(self, attributes: Attributes) -> Decision:
        return Decision(True)

    def rules(self, user: UserInfo, namespace: str) -> Rules:
        return Rules(((("*",), ("*",), ("*",), ()),), ((("*",), ("*",)),))


def require(authorizer: Authorizer, attributes: Attributes) -> None:
    """Passes or raises.

    Raises:
        Forbidden: with upstream's text.
    """
    decision = authorizer.authorize(attributes)
    if decision.allowed:
        return
    raise errors.Forbidden(
        _refusal(attributes, decision.reason),
        group=attributes.group,
        kind=attributes.resource,
        name=attributes.name,
    )


def _refusal(attributes: Attributes, reason: str) -> str:
    user = f'User "{attributes.user.name}" cannot {attributes.verb}'
    if attributes.path:
        text = f'forbidden: {user} path "{attributes.path}"'
        return f"{text}: {reason}" if reason else text
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    place = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    plural = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    what = f'{plural} "{attributes.name}" is' if attributes.name else f"{plural} is"
    text = f'{what} forbidden: {user} resource "{resource}" in API group "{attributes.group}" {place}'
    return f"{text}: {reason}" if reason else text
