"""Validation of roles and bindings.

Counterpart: kubernetes pkg/apis/rbac/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.api import names
from podyard.api.errors import invalid, not_supported, required
from podyard.api.types import Message, rbac_v1
from podyard.api.validation_meta import (
    Causes,
    Rules,
    each,
    go_struct,
    label_selector,
    object_meta,
    rules,
)

GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("Group", "ServiceAccount", "User")


def role(obj: rbac_v1.Role) -> Causes:
    """What may be done in a namespace."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.path_segment_problems)
    return causes + _rules(obj.rules, namespaced=True)


def cluster_role(obj: rbac_v1.ClusterRole) -> Causes:
    """What may be done anywhere."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.path_segment_problems)
    causes += _rules(obj.rules, namespaced=False)
    if not obj.HasField("aggregationRule"):
        return causes
    path = "aggregationRule.clusterRoleSelectors"
    selectors = obj.aggregationRule.clusterRoleSelectors
    if not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        causes.append(required(path, detail))
    for index, selector in enumerate(selectors):
        causes += label_selector(selector, f"{path}[{index}]")
    return causes


def _rules(values: Any, *, namespaced: bool) -> Causes:
    causes: Causes = []
    for index, rule in enumerate(values):
        path = f"rules[{index}]"
        if not rule.verbs:
            causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if rule.nonResourceURLs:
            urls = list(rule.nonResourceURLs)
            at = f"{path}.nonResourceURLs"
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                causes.append(invalid(at, urls, detail))
            if rule.apiGroups or rule.resources or rule.resourceNames:
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid(at, urls, detail))
            continue
        if not rule.apiGroups:
            causes.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.resources:
            causes.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return causes


def role_binding(obj: rbac_v1.RoleBinding) -> Causes:
    """Who has a role in a namespace."""
    causes = object_meta(obj.metadata, namespaced=True, name_problems=names.path_segment_problems)
    return causes + _role_reference(obj.roleRef, ("Role", "ClusterRole")) + _subjects(obj, namespaced=True)


def cluster_role_binding(obj: rbac_v1.ClusterRoleBinding) -> Causes:
    """Who has a role anywhere."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.path_segment_problems)
    return causes + _role_reference(obj.roleRef, ("ClusterRole",)) + _subjects(obj, namespaced=False)


def _role_reference(reference: rbac_v1.RoleRef, kinds: tuple[str, ...]) -> Causes:
    causes: Causes = []
    if reference.apiGroup != GROUP:
        causes.append(not_supported("roleRef.apiGroup", reference.apiGroup, (GROUP,)))
    if reference.kind not in kinds:
        causes.append(not_supported("roleRef.kind", reference.kind, kinds))
    if not reference.name:
        causes.append(required("roleRef.name"))
        return causes
    return causes + each("roleRef.name", reference.name, names.path_segment_problems(reference.name))


def _subjects(obj: Any, *, namespaced: bool) -> Causes:
    causes: Causes = []
    for index, subject in enumerate(obj.subjects):
        path = f"subjects[{index}]"
        if not subject.name:
            causes.append(required(f"{path}.name"))
        if subject.kind == "ServiceAccount":
            if subject.name:
                problems = names.dns_subdomain_problems(subject.name)
                causes += each(f"{path}.name", subject.name, problems)
            if subject.apiGroup:
                causes.append(not_supported(f"{path}.apiGroup", subject.apiGroup, ("",)))
            if not namespaced and not subject.namespace:
                causes.append(required(f"{path}.namespace"))
        elif subject.kind in ("User", "Group"):
            if subject.apiGroup != GROUP:
                causes.append(not_supported(f"{path}.apiGroup", subject.apiGroup, (GROUP,)))
        else:
            causes.append(not_supported(f"{path}.kind", subject.kind, _SUBJECTS))
    return causes


def _role_stays(new: Any, old: Any) -> Causes:
    if new.roleRef == old.roleRef:
        return []
    return [invalid("roleRef", go_struct(new.roleRef), "cannot change roleRef")]


RULES: Mapping[type[Message], Rules] = {
    rbac_v1.ClusterRole: rules(cluster_role),
    rbac_v1.ClusterRoleBinding: rules(cluster_role_binding, _role_stays),
    rbac_v1.Role: rules(role),
    rbac_v1.RoleBinding: rules(role_binding, _role_stays),
}
