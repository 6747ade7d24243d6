"""Whether a body is of the kind that its endpoint takes, pure.

Counterpart: apimachinery runtime/serializer/versioning, apiserver endpoints/handlers/rest.go.
"""

from __future__ import annotations

from functools import lru_cache

from apiserver.serve.bodies import Body
from podyard.api import errors, facts
from podyard.api.resources import Resource, Subresource

# How upstream names the registry of its kinds in errors.
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"
# Older versions of a body that still are taken: they say the same.
# Source: EvictionREST.AcceptsGroupVersion.
_ALSO = {("policy/v1", "Eviction"): "policy/v1beta1"}
# Kinds of one internal type: their bodies convert into each other and fail only at the version.
_INTERNAL_PACKAGES = {"": "core", "events.k8s.io": "core"}


def check_kind(body: Body, row: Resource | Subresource) -> None:
    """Refuses the body of another kind or version; what it does not say is taken as right.

    Raises:
        BadRequest: with upstream's texts.
    """
    api_version, kind = body.api_version or row.api_version, body.kind or row.kind
    if (api_version, kind) == (row.api_version, row.kind):
        return
    if kind == row.kind and api_version == _ALSO.get((row.api_version, row.kind)):
        return
    group, version = _split(api_version)
    unfit = f'{kind} in version "{version}" cannot be handled as a {row.kind}: '
    if f"{api_version}/{kind}" not in _registered():
        raise errors.BadRequest(
            f'{unfit}no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"'
        )
    package = _internal(row.group)
    if (kind, _internal(group)) != (row.kind, package):
        # The second name is of upstream's internal type, one for all versions.
        raise errors.BadRequest(
            f"{unfit}converting ({version}.{kind}) to ({package}.{row.kind}): unknown conversion"
        )
    raise errors.BadRequest(
        f"the API version in the data ({api_version}) does not match the expected API version "
        f"({row.api_version})"
    )


def _split(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _internal(group: str) -> str:
    return _INTERNAL_PACKAGES.get(group, group.partition(".")[0])


@lru_cache(maxsize=1)
def _registered() -> frozenset[str]:
    """`apps/v1/Deployment` of every kind that upstream registers, served here or not."""
    return frozenset(fact.gvk for fact in facts.messages().values() if fact.gvk)
