"""Who a certificate speaks for, and how a refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.auth import authn
from apiserver.auth.authz import AlwaysAllow, Attributes, Decision, require
from apiserver.auth.user import AUTHENTICATED, UserInfo
from podyard.api import errors
from podyard.base import pki

NOW_S = 1_800_000_000.0


def test_a_certificates_subject_is_user_and_groups() -> None:
    authority = pki.new_authority("test", now_s=NOW_S)
    pair = pki.issue(authority, pki.Identity("system:node:a", ("system:nodes", "more")), now_s=NOW_S)
    user = authn.user_of_pem(pair.certificate)
    assert user == UserInfo("system:node:a", ("system:nodes", "more", AUTHENTICATED))
    peer = {
        "subject": (
            (("organizationName", "system:nodes"),),
            (("organizationName", "more"),),
            (("commonName", "system:node:a"),),
        )
    }
    assert authn.user_of_peer(peer) == user


@pytest.mark.parametrize("peer", [None, {}, {"subject": ((("organizationName", "system:masters"),),)}])
def test_without_a_name_there_is_no_user(peer: Any) -> None:
    assert authn.user_of_peer(peer) is None


class _Never:
    def authorize(self, attributes: Attributes) -> Decision:
        return Decision(False)


SCALE = {"group": "apps", "version": "v1", "resource": "deployments", "subresource": "scale"}
REFUSALS = [
    (
        {"verb": "list", "version": "v1", "resource": "pods", "namespace": "default"},
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" '
        'in the namespace "default"',
    ),
    (
        {"verb": "get", "version": "v1", "resource": "nodes", "name": "a"},
        'nodes "a" is forbidden: User "jane" cannot get resource "nodes" in API group "" '
        "at the cluster scope",
    ),
    (
        {"verb": "update", **SCALE, "namespace": "x", "name": "d"},
        'deployments.apps "d" is forbidden: User "jane" cannot update resource "deployments/scale" '
        'in API group "apps" in the namespace "x"',
    ),
    ({"verb": "get", "path": "/metrics"}, 'forbidden: User "jane" cannot get path "/metrics"'),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "text"), REFUSALS)
def test_refusals_read_as_upstreams(asked: dict[str, str], text: str) -> None:
    attributes = Attributes(UserInfo("jane"), **asked)
    require(AlwaysAllow(), attributes)
    with pytest.raises(errors.Forbidden) as refused:
        require(_Never(), attributes)
    assert refused.value.message == text
