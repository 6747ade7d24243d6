"""Who a certificate speaks for, and how a refusal reads."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiserver.auth import authn
from apiserver.auth.authz import AlwaysAllow, Attributes, Decision, require
from apiserver.auth.user import AUTHENTICATED, UserInfo
from podyard.api import errors
from podyard.base import pki

NOW_S = 1_800_000_000.0


def test_a_certificates_subject_is_user_and_groups() -> None:
    authority = pki.new_authority("test", now_s=NOW_S)
    pair = pki.issue(authority, pki.Identity("system:node:a", ("system:nodes", "more")), now_s=NOW_S)
    der = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
    extra = {"authentication.kubernetes.io/credential-id": (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    user = UserInfo("system:node:a", ("system:nodes", "more", AUTHENTICATED), extra=extra)
    # As REST has it, and as gRPC has it.
    assert authn.user_of_certificate(der) == user
    assert authn.user_of_pem(pair.certificate) == user


def test_without_a_name_there_is_no_user() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")])
    begin = datetime.fromtimestamp(NOW_S, UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, begin, begin + timedelta(days=1))
    der = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    assert authn.user_of_certificate(der) is None


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
