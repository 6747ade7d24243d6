"""Validation of CertificateSigningRequests.

Counterpart: kubernetes pkg/apis/certificates/validation.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from podyard.api import meta, names
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required
from podyard.api.types import Message, certificates_v1
from podyard.api.validation_meta import Causes, Rules, object_meta, object_meta_update, rules

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
_MIN_EXPIRATION_S = 600
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_MAX_SIGNER = 571
_PEM = re.compile(
    rb"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----\s(?P<body>[A-Za-z0-9+/=\s]+)-----END (?P=kind)-----\s?"
)
_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)


def signing_request(obj: certificates_v1.CertificateSigningRequest) -> Causes:
    """A request for a certificate."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.path_segment_problems)
    spec = obj.spec
    problem = _request_problem(spec.request)
    if problem:
        # Upstream shows the bytes; nobody could read them.
        causes.append(invalid("spec.request", list(spec.request), problem))
    if not spec.usages:
        causes.append(required("spec.usages"))
    seen: set[str] = set()
    for index, usage in enumerate(spec.usages):
        at = f"spec.usages[{index}]"
        if usage not in _USAGES:
            causes.append(not_supported(at, usage, _USAGES))
        if usage in seen:
            causes.append(duplicate(at, usage))
        seen.add(usage)
    causes += _signer(spec.signerName)
    if spec.HasField("expirationSeconds") and spec.expirationSeconds < _MIN_EXPIRATION_S:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        causes.append(invalid("spec.expirationSeconds", spec.expirationSeconds, detail))
    return causes + _conditions(obj.status.conditions)


def _blocks(data: bytes) -> list[tuple[str, bytes]] | None:
    """Kind and content of each PEM block; None when it is not PEM throughout."""
    found: list[tuple[str, bytes]] = []
    end = 0
    for match in _PEM.finditer(data):
        if data[end : match.start()].strip():
            return None
        try:
            content = b64decode(b"".join(match["body"].split()), validate=True)
        except binascii.Error:
            return None
        found.append((match["kind"].decode(), content))
        end = match.end()
    return None if data[end:].strip() else found


def _request_problem(data: bytes) -> str:
    blocks = _blocks(data)
    if not blocks or blocks[0][0] != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    # Only servers that get such a request pay for this import.
    from cryptography import x509

    try:
        x509.load_der_x509_csr(blocks[0][1])
    except ValueError:
        return "asn1: structure error: the request can't be parsed"
    return ""


def _signer(name: str) -> Causes:
    path = "spec.signerName"
    if not name:
        return [required(path)]
    if name == _LEGACY_SIGNER:
        return [invalid(path, name, "the legacy signerName is not allowed via this API version")]
    domain, slash, signer = name.partition("/")
    if not slash or "/" in signer or not domain or not signer:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, detail)]
    causes: Causes = []
    if "." not in domain:
        causes.append(
            invalid(path, domain, "should be a domain with at least two segments separated by dots")
        )
    for problem in (*names.dns_subdomain_problems(domain), *names.dns_subdomain_problems(signer)):
        causes.append(invalid(path, name, f"validating signer domain: {problem}"))
    if len(name) > _MAX_SIGNER:
        causes.append(invalid(path, name, f"must be no more than {_MAX_SIGNER} bytes"))
    return causes


def _conditions(values: Any) -> Causes:
    path = "status.conditions"
    causes: Causes = []
    seen: set[str] = set()
    for index, item in enumerate(values):
        at = f"{path}[{index}]"
        if not item.type:
            causes.append(required(f"{at}.type"))
        if item.status not in ("True", "False", "Unknown"):
            causes.append(
                not_supported(f"{at}.status", item.status, ("True", "False", "Unknown"))
                if item.status
                else required(f"{at}.status")
            )
        elif item.type in (APPROVED, DENIED, FAILED) and item.status != "True":
            causes.append(not_supported(f"{at}.status", item.status, ("True",)))
        if item.type in seen:
            causes.append(duplicate(f"{at}.type", item.type))
        seen.add(item.type)
    if {APPROVED, DENIED} <= seen:
        causes.append(invalid(path, DENIED, "Approved and Denied conditions are mutually exclusive"))
    return causes


def _kept(new: Any, old: Any, *, approval: bool) -> Causes:
    """Conditions that only one of the two subresources may set; none goes."""
    causes: Causes = []
    path = "status.conditions"
    for kind in (APPROVED, DENIED, FAILED):
        before = meta.condition(old.status.conditions, kind)
        after = meta.condition(new.status.conditions, kind)
        if before is not None and after is None:
            causes.append(
                forbidden(path, f"updates may not remove a condition of type {kind!r}".replace("'", '"'))
            )
        elif before is None and after is not None and not approval and kind != FAILED:
            causes.append(
                forbidden(path, f"updates may not add a condition of type {kind!r}".replace("'", '"'))
            )
    return causes


def _status_update(new: Any, old: Any) -> Causes:
    causes = object_meta_update(new.metadata, old.metadata) + _conditions(new.status.conditions)
    causes += _kept(new, old, approval=False)
    certificate = new.status.certificate
    if old.status.certificate and certificate != old.status.certificate:
        causes.append(forbidden("status.certificate", "updates may not set certificate content"))
    elif certificate:
        blocks = _blocks(certificate)
        if not blocks:
            detail = "must contain at least one CERTIFICATE PEM block"
            causes.append(invalid("status.certificate", "<certificate data>", detail))
        elif any(kind != "CERTIFICATE" for kind, _ in blocks):
            detail = "only CERTIFICATE PEM blocks are allowed"
            causes.append(invalid("status.certificate", "<certificate data>", detail))
    return causes


def _approval_update(new: Any, old: Any) -> Causes:
    causes = object_meta_update(new.metadata, old.metadata) + _conditions(new.status.conditions)
    return causes + _kept(new, old, approval=True)


RULES: Mapping[type[Message], Rules] = {
    certificates_v1.CertificateSigningRequest: Rules(
        signing_request,
        rules(signing_request).update,
        {"status": _status_update, "approval": _approval_update},
    ),
}
