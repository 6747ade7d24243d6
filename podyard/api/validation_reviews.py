"""Validation of questions to the API server: reviews of access.

Counterpart: kubernetes pkg/apis/authorization/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.api import codec
from podyard.api.errors import invalid
from podyard.api.types import Message, ObjectMeta, authorization_v1, copy_of
from podyard.api.validation_meta import Causes, Rules, go_struct, rules


def _attributes(spec: Any) -> Causes:
    has_path, has_resource = spec.HasField("nonResourceAttributes"), spec.HasField("resourceAttributes")
    if has_path and has_resource:
        detail = "cannot be specified in combination with resourceAttributes"
        return [invalid("spec.nonResourceAttributes", go_struct(spec.nonResourceAttributes), detail)]
    if not has_path and not has_resource:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, detail)]
    return []


def _metadata(obj: Any, *, namespaced: bool = False) -> Causes:
    left = copy_of(obj.metadata)
    left.ClearField("managedFields")
    if namespaced:
        left.ClearField("namespace")
    # Set to nothing is empty, too: Go's clients always send a time.
    if codec.same(left, ObjectMeta()):
        return []
    detail = "must be empty except for namespace" if namespaced else "must be empty"
    return [invalid("metadata", go_struct(obj.metadata), detail)]


def _subject(spec: Any) -> Causes:
    if spec.user or spec.groups:
        return []
    return [invalid("spec.user", spec.user, "at least one of user or group must be specified")]


def self_access(obj: authorization_v1.SelfSubjectAccessReview) -> Causes:
    """May I?"""
    return _attributes(obj.spec) + _metadata(obj)


def access(obj: authorization_v1.SubjectAccessReview) -> Causes:
    """May they?"""
    return _attributes(obj.spec) + _subject(obj.spec) + _metadata(obj)


def local_access(obj: authorization_v1.LocalSubjectAccessReview) -> Causes:
    """May they, in this namespace?"""
    causes = _attributes(obj.spec) + _subject(obj.spec) + _metadata(obj, namespaced=True)
    inside = obj.spec.resourceAttributes.namespace
    if obj.spec.HasField("resourceAttributes") and inside != obj.metadata.namespace:
        causes.append(invalid("spec.resourceAttributes.namespace", inside, "must match metadata.namespace"))
    if obj.spec.HasField("nonResourceAttributes"):
        detail = "disallowed on this kind of request"
        shown = go_struct(obj.spec.nonResourceAttributes)
        causes.append(invalid("spec.nonResourceAttributes", shown, detail))
    return causes


RULES: Mapping[type[Message], Rules] = {
    authorization_v1.LocalSubjectAccessReview: rules(local_access),
    authorization_v1.SelfSubjectAccessReview: rules(self_access),
    authorization_v1.SubjectAccessReview: rules(access),
}
