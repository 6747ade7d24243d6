"""Validation of what steers a pod to a node: affinity, tolerations, spread constraints.

Counterpart: kubernetes pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from podyard.api import codec, names
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required
from podyard.api.types import PodSpec, core_v1
from podyard.api.validation_meta import Causes, each, go_struct, label_name, label_selector
from podyard.api.validation_node import taint_effect

_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION = ("Honor", "Ignore")
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)


def tolerations(values: Sequence[Any], path: str) -> Causes:
    """Tolerations of a pod."""
    causes: Causes = []
    for index, item in enumerate(values):
        at = f"{path}[{index}]"
        if item.key:
            causes += label_name(item.key, f"{at}.key")
        elif item.operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            causes.append(invalid(f"{at}.operator", item.operator, detail))
        if item.HasField("tolerationSeconds") and item.effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid(f"{at}.effect", item.effect, detail))
        causes += _toleration_operator(item, at)
        causes += taint_effect(item.effect, f"{at}.effect", needed=False)
    return causes


def _toleration_operator(item: Any, path: str) -> Causes:
    if item.operator in ("Equal", ""):
        problems = names.label_value_problems(item.value)
        return [invalid(f"{path}.operator", item.value, "; ".join(problems))] if problems else []
    if item.operator == "Exists":
        if item.value:
            detail = "value must be empty when `operator` is 'Exists'"
            return [invalid(f"{path}.operator", go_struct(item), detail)]
        return []
    return [not_supported(f"{path}.operator", item.operator, ("Equal", "Exists"))]


def affinity(value: core_v1.Affinity, path: str) -> Causes:
    """A pod's affinity."""
    causes: Causes = []
    if value.HasField("nodeAffinity"):
        causes += _node_affinity(value.nodeAffinity, f"{path}.nodeAffinity")
    for side in ("podAffinity", "podAntiAffinity"):
        if not value.HasField(side):
            continue
        chosen, at = getattr(value, side), f"{path}.{side}"
        name = "requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(getattr(chosen, name)):
            causes += _pod_affinity_term(term, f"{at}.{name}[{index}]")
        name = "preferredDuringSchedulingIgnoredDuringExecution"
        for index, item in enumerate(getattr(chosen, name)):
            where = f"{at}.{name}[{index}]"
            causes += _weight(item.weight, f"{where}.weight")
            causes += _pod_affinity_term(item.podAffinityTerm, f"{where}.podAffinityTerm")
    return causes


def _weight(weight: int, path: str) -> Causes:
    return [] if 0 < weight <= 100 else [invalid(path, weight, "must be in the range 1-100")]


def _node_affinity(value: Any, path: str) -> Causes:
    causes: Causes = []
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    if value.HasField(name):
        causes += node_selector(getattr(value, name), f"{path}.{name}")
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, item in enumerate(getattr(value, name)):
        at = f"{path}.{name}[{index}]"
        causes += _weight(item.weight, f"{at}.weight")
        causes += _node_selector_term(item.preference, f"{at}.preference")
    return causes


def node_selector(value: Any, path: str) -> Causes:
    """Terms of which one must hold for the node."""
    at = f"{path}.nodeSelectorTerms"
    if not value.nodeSelectorTerms:
        return [required(at, "must have at least one node selector term")]
    causes: Causes = []
    for index, term in enumerate(value.nodeSelectorTerms):
        causes += _node_selector_term(term, f"{at}[{index}]")
    return causes


def _node_selector_term(term: Any, path: str) -> Causes:
    causes: Causes = []
    for index, item in enumerate(term.matchExpressions):
        at = f"{path}.matchExpressions[{index}]"
        causes += _node_requirement(item, at)
        causes += label_name(item.key, f"{at}.key")
    for index, item in enumerate(term.matchFields):
        at = f"{path}.matchFields[{index}]"
        if item.operator not in ("In", "NotIn"):
            causes.append(invalid(f"{at}.operator", item.operator, "not a valid selector operator"))
        elif len(item.values) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            causes.append(required(f"{at}.values", detail))
        if item.key != "metadata.name":
            causes.append(invalid(f"{at}.key", item.key, "not a valid field selector key"))
    return causes


def _node_requirement(item: Any, path: str) -> Causes:
    if item.operator in ("In", "NotIn"):
        if not item.values:
            return [required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    elif item.operator in ("Exists", "DoesNotExist"):
        if item.values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            return [forbidden(f"{path}.values", detail)]
    elif item.operator in ("Gt", "Lt"):
        if len(item.values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            return [required(f"{path}.values", detail)]
        if not _INTEGER.fullmatch(item.values[0]):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            return [invalid(f"{path}.values[0]", item.values[0], detail)]
    else:
        return [invalid(f"{path}.operator", item.operator, "not a valid selector operator")]
    causes: Causes = []
    for index, value in enumerate(item.values):
        causes += each(f"{path}.values[{index}]", value, names.label_value_problems(value))
    return causes


def _pod_affinity_term(term: Any, path: str) -> Causes:
    causes: Causes = []
    for name in ("labelSelector", "namespaceSelector"):
        if term.HasField(name):
            causes += label_selector(getattr(term, name), f"{path}.{name}")
    for namespace in term.namespaces:
        causes += each(f"{path}.namespace", namespace, names.dns_label_problems(namespace))
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = getattr(term, name)
        if keys and not term.HasField("labelSelector"):
            detail = "must not be specified when labelSelector is not set"
            causes.append(forbidden(f"{path}.{name}", detail))
        for index, key in enumerate(keys):
            causes += label_name(key, f"{path}.{name}[{index}]")
    if not term.topologyKey:
        causes.append(required(f"{path}.topologyKey", "can not be empty"))
    return causes + label_name(term.topologyKey, f"{path}.topologyKey")


def topology_spread(values: Sequence[Any], path: str) -> Causes:
    """Spread constraints of a pod."""
    causes: Causes = []
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(values):
        at = f"{path}[{index}]"
        if item.maxSkew <= 0:
            causes.append(invalid(f"{at}.maxSkew", item.maxSkew, "must be greater than zero"))
        if not item.topologyKey:
            causes.append(required(f"{at}.topologyKey", "can not be empty"))
        else:
            causes += label_name(item.topologyKey, f"{at}.topologyKey")
        if item.whenUnsatisfiable not in _SPREAD_ACTIONS:
            causes.append(not_supported(f"{at}.whenUnsatisfiable", item.whenUnsatisfiable, _SPREAD_ACTIONS))
        pair = (item.topologyKey, item.whenUnsatisfiable)
        if pair in seen:
            shown = f"{{{item.topologyKey}, {item.whenUnsatisfiable}}}"
            causes.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", shown))
        seen.add(pair)
        causes += _spread_options(item, at)
    return causes


def _spread_options(item: Any, path: str) -> Causes:
    causes: Causes = []
    if item.HasField("minDomains"):
        if item.minDomains <= 0:
            causes.append(invalid(f"{path}.minDomains", item.minDomains, "must be greater than zero"))
        elif item.whenUnsatisfiable != "DoNotSchedule":
            detail = (
                f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {item.whenUnsatisfiable}"
            )
            causes.append(invalid(f"{path}.minDomains", item.minDomains, detail))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if item.HasField(name) and getattr(item, name) not in _INCLUSION:
            causes.append(not_supported(f"{path}.{name}", getattr(item, name), _INCLUSION))
    if item.matchLabelKeys and not item.HasField("labelSelector"):
        detail = "must not be specified when labelSelector is not set"
        causes.append(forbidden(f"{path}.matchLabelKeys", detail))
    for index, key in enumerate(item.matchLabelKeys):
        causes += label_name(key, f"{path}.matchLabelKeys[{index}]")
    if item.HasField("labelSelector"):
        causes += label_selector(item.labelSelector, f"{path}.labelSelector")
    return causes


def gated_update(new: PodSpec, old: PodSpec) -> Causes:
    """A gated pod may only be narrowed to fewer nodes."""
    selector = dict(new.nodeSelector)
    causes: Causes = []
    if any(selector.get(key) != value for key, value in old.nodeSelector.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(invalid("spec.nodeSelector", selector, detail))
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    path = f"spec.affinity.nodeAffinity.{name}.nodeSelectorTerms"
    before = list(getattr(old.affinity.nodeAffinity, name).nodeSelectorTerms)
    after = list(getattr(new.affinity.nodeAffinity, name).nodeSelectorTerms)
    # Terms are alternatives: one more would widen the choice, except where there was none at all.
    if not before:
        return causes
    if len(before) != len(after):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*causes, invalid(path, [go_struct(term) for term in after], detail)]
    for index, (stored, fresh) in enumerate(zip(before, after, strict=True)):
        if not _only_adds(fresh, stored):
            detail = "only additions are allowed (no mutations or deletions)"
            causes.append(invalid(f"{path}[{index}]", go_struct(fresh), detail))
    return causes


def _only_adds(new: Any, old: Any) -> bool:
    """Whether a term still has all that it asked for."""
    if not old.matchExpressions and not old.matchFields:
        return not new.matchExpressions and not new.matchFields
    for name in ("matchExpressions", "matchFields"):
        fresh = [codec.to_dict(item) for item in getattr(new, name)]
        stored = [codec.to_dict(item) for item in getattr(old, name)]
        if fresh[: len(stored)] != stored:
            return False
    return True
