"""CertificateSigningRequests: who asks is written by the server; approval is a part of its own.

Counterpart: kubernetes pkg/registry/certificates/certificates/strategy.go.
"""

from __future__ import annotations

from typing import Any

from apiserver.rules import metadata
from podyard.api import meta
from podyard.api.types import certificates_v1
from podyard.api.validation_certificates import APPROVED, DENIED

Request = certificates_v1.CertificateSigningRequest
_DECISIONS = (APPROVED, DENIED)


def prepare_create(request: Request) -> None:
    """A new request is not decided."""
    metadata.clear_status(request)


def name_requester(request: Request, user: Any) -> None:
    """Writes down who asks, whatever the client says; `request` is changed.

    Args:
        user: the request's UserInfo.
    """
    spec = request.spec
    for name in ("username", "uid", "groups", "extra"):
        spec.ClearField(name)
    spec.username = user.name
    if user.uid:
        spec.uid = user.uid
    spec.groups.extend(user.groups)
    for key, values in user.extra.items():
        spec.extra[key].items.extend(values)


def prepare_update(new: Request, old: Request) -> None:
    """Nothing but metadata changes here."""
    new.spec.CopyFrom(old.spec)
    new.status.CopyFrom(old.status)


def prepare_status(new: Request, old: Request) -> None:
    """The certificate and its failures; approval stays as it was."""
    new.spec.CopyFrom(old.spec)
    decisions = [item for item in old.status.conditions if item.type in _DECISIONS]
    known = {item.type for item in new.status.conditions}
    new.status.conditions.extend(item for item in decisions if item.type not in known)


def prepare_approval(new: Request, old: Request) -> None:
    """Conditions only."""
    new.spec.CopyFrom(old.spec)
    new.status.certificate = old.status.certificate
    if not old.status.HasField("certificate"):
        new.status.ClearField("certificate")


def stamp(new: Request, old: Request | None, now_s: float) -> None:
    """When a condition was set, and when it changed."""
    for item in new.status.conditions:
        before = None if old is None else meta.condition(old.status.conditions, item.type)
        if meta.is_zero_time(item.lastUpdateTime):
            item.lastUpdateTime.CopyFrom(meta.time_of(now_s))
        if meta.is_zero_time(item.lastTransitionTime):
            if before is not None and before.status == item.status:
                item.lastTransitionTime.CopyFrom(before.lastTransitionTime)
            else:
                item.lastTransitionTime.CopyFrom(meta.time_of(now_s))
