"""Validation of FlowSchemas and PriorityLevelConfigurations.

Counterpart: kubernetes pkg/apis/flowcontrol/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.api import names
from podyard.api.errors import forbidden, invalid, not_supported, required
from podyard.api.types import Message, flowcontrol_v1
from podyard.api.validation_meta import (
    Causes,
    Rules,
    any_status,
    each,
    go_struct,
    non_negative,
    object_meta,
    rules,
)

_MAX_PRECEDENCE = 10_000
_MAX_QUEUES = 10_000_000
_METHODS = ("ByNamespace", "ByUser")
_SUBJECTS = {"User": "user", "Group": "group", "ServiceAccount": "serviceAccount"}
_VERBS = frozenset(
    {"get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"}
)
_PATH_VERBS = frozenset({"get", "head", "post", "put", "patch", "delete", "trace", "options", "connect"})
_CATCH_ALL, _EXEMPT = "catch-all", "exempt"


def _named(obj: Any) -> Causes:
    return object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)


def flow_schema(obj: flowcontrol_v1.FlowSchema) -> Causes:
    """Which requests belong to a flow, and to which level."""
    causes, spec = _named(obj), obj.spec
    precedence = spec.matchingPrecedence
    path = "spec.matchingPrecedence"
    if precedence <= 0:
        causes.append(invalid(path, precedence, "must be a positive value"))
    if precedence > _MAX_PRECEDENCE:
        detail = f"must not be greater than {_MAX_PRECEDENCE}"
        causes.append(invalid(path, precedence, detail))
    if precedence == 1 and obj.metadata.name != _EXEMPT:
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        causes.append(invalid(path, precedence, detail))
    if spec.HasField("distinguisherMethod") and spec.distinguisherMethod.type not in _METHODS:
        at = "spec.distinguisherMethod"
        causes.append(not_supported(at, go_struct(spec.distinguisherMethod), _METHODS))
    level = spec.priorityLevelConfiguration.name
    at = "spec.priorityLevelConfiguration.name"
    if not level:
        causes.append(required(at, "must reference a priority level"))
    else:
        causes += each(at, level, names.dns_subdomain_problems(level))
    for index, rule in enumerate(spec.rules):
        causes += _flow_rule(rule, f"spec.rules[{index}]")
    return causes


def _flow_rule(rule: Any, path: str) -> Causes:
    causes: Causes = []
    if not rule.subjects:
        causes.append(required(f"{path}.subjects", "subjects must contain at least one value"))
    for index, subject in enumerate(rule.subjects):
        causes += _subject(subject, f"{path}.subjects[{index}]")
    if not rule.resourceRules and not rule.nonResourceRules:
        detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
        causes.append(required(path, detail))
    for index, item in enumerate(rule.resourceRules):
        at = f"{path}.resourceRules[{index}]"
        causes += _verbs(item.verbs, _VERBS, f"{at}.verbs")
        for name in ("apiGroups", "resources"):
            causes += _wildcard(getattr(item, name), f"{at}.{name}", name)
        if not item.namespaces and not item.clusterScope:
            detail = "resource rules that are not cluster scoped must supply at least one namespace"
            causes.append(required(f"{at}.namespaces", detail))
        elif len(item.namespaces) > 1 and "*" in item.namespaces:
            detail = "if '*' is present, must not specify other namespaces"
            causes.append(invalid(f"{at}.namespaces", list(item.namespaces), detail))
    for index, item in enumerate(rule.nonResourceRules):
        at = f"{path}.nonResourceRules[{index}]"
        causes += _verbs(item.verbs, _PATH_VERBS, f"{at}.verbs")
        causes += _wildcard(item.nonResourceURLs, f"{at}.nonResourceURLs", "nonResourceURLs")
        for position, url in enumerate(item.nonResourceURLs):
            if url != "*" and not url.startswith("/"):
                detail = "path must begin with slash"
                causes.append(invalid(f"{at}.nonResourceURLs[{position}]", url, detail))
    return causes


def _verbs(values: Any, known: frozenset[str], path: str) -> Causes:
    if not values:
        return [required(path, "verbs must contain at least one value")]
    if "*" in values:
        if len(values) > 1:
            detail = "if '*' is present, must not specify other verbs"
            return [invalid(path, list(values), detail)]
        return []
    unknown = set(values) - known
    return [not_supported(path, list(values), known)] if unknown else []


def _wildcard(values: Any, path: str, what: str) -> Causes:
    if not values:
        return [required(path, f"{what} must contain at least one value")]
    if len(values) > 1 and "*" in values:
        return [invalid(path, list(values), f"if '*' is present, must not specify other {what}")]
    return []


def _subject(subject: Any, path: str) -> Causes:
    if subject.kind not in _SUBJECTS:
        return [not_supported(f"{path}.kind", subject.kind, _SUBJECTS)]
    wanted = _SUBJECTS[subject.kind]
    causes: Causes = []
    for kind, name in _SUBJECTS.items():
        if subject.HasField(name) and name != wanted:
            detail = f"{name} is forbidden when subject kind is not '{kind}'"
            causes.append(forbidden(f"{path}.{name}", detail))
    if not subject.HasField(wanted):
        detail = f"{wanted} is required when subject kind is '{subject.kind}'"
        return [*causes, required(f"{path}.{wanted}", detail)]
    value = getattr(subject, wanted)
    if not value.name:
        causes.append(required(f"{path}.{wanted}.name"))
    elif wanted == "serviceAccount" and value.name != "*":
        causes += each(f"{path}.{wanted}.name", value.name, names.dns_subdomain_problems(value.name))
    if wanted == "serviceAccount":
        at = f"{path}.{wanted}.namespace"
        if not value.namespace:
            causes.append(required(at, "must specify namespace for service account"))
        else:
            causes += each(at, value.namespace, names.dns_label_problems(value.namespace))
    return causes


def priority_level(obj: flowcontrol_v1.PriorityLevelConfiguration) -> Causes:
    """How many requests of a level run at once, and how the others wait."""
    causes, spec = _named(obj), obj.spec
    is_exempt = obj.metadata.name == _EXEMPT
    if is_exempt != (spec.type == "Exempt"):
        detail = (
            "must be 'Exempt' if and only if `name` is 'exempt'"
            if is_exempt
            else "must be 'Limited' or a custom level may not be 'Exempt'"
        )
        causes.append(invalid("spec.type", spec.type, detail))
    if spec.type not in ("Exempt", "Limited"):
        causes.append(not_supported("spec.type", spec.type, ("Exempt", "Limited")))
    elif spec.type == "Exempt":
        if spec.HasField("limited"):
            detail = "must be nil if the type is not Limited"
            causes.append(forbidden("spec.limited", detail))
        causes += _shares(spec.exempt, "spec.exempt")
    else:
        if spec.HasField("exempt"):
            causes.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if not spec.HasField("limited"):
            causes.append(required("spec.limited", "must not be empty when type is Limited"))
        else:
            causes += _limited(spec.limited, "spec.limited")
    return causes


def _shares(value: Any, path: str) -> Causes:
    causes = non_negative(f"{path}.nominalConcurrencyShares", value.nominalConcurrencyShares)
    if not 0 <= value.lendablePercent <= 100:
        detail = "must be between 0 and 100, inclusive"
        causes.append(invalid(f"{path}.lendablePercent", value.lendablePercent, detail))
    return causes


def _limited(limited: Any, path: str) -> Causes:
    causes = _shares(limited, path)
    if limited.HasField("borrowingLimitPercent"):
        causes += non_negative(f"{path}.borrowingLimitPercent", limited.borrowingLimitPercent)
    response, at = limited.limitResponse, f"{path}.limitResponse"
    if response.type == "Reject":
        if response.HasField("queuing"):
            causes.append(
                forbidden(f"{at}.queuing", "must be nil if limited.limitResponse.type is not Limited")
            )
    elif response.type == "Queue":
        if not response.HasField("queuing"):
            detail = "must not be empty if limited.limitResponse.type is Limited"
            causes.append(required(f"{at}.queuing", detail))
        else:
            causes += _queuing(response.queuing, f"{at}.queuing")
    else:
        causes.append(not_supported(f"{at}.type", response.type, ("Queue", "Reject")))
    return causes


def _queuing(queuing: Any, path: str) -> Causes:
    causes: Causes = []
    for name in ("queueLengthLimit", "queues", "handSize"):
        if getattr(queuing, name) <= 0:
            causes.append(invalid(f"{path}.{name}", getattr(queuing, name), "must be positive"))
    if queuing.queues > _MAX_QUEUES:
        detail = f"must not be greater than {_MAX_QUEUES}"
        causes.append(invalid(f"{path}.queues", queuing.queues, detail))
    if queuing.handSize > queuing.queues:
        detail = f"should not be greater than queues ({queuing.queues})"
        causes.append(invalid(f"{path}.handSize", queuing.handSize, detail))
    return causes


RULES: Mapping[type[Message], Rules] = {
    flowcontrol_v1.FlowSchema: rules(flow_schema, status=any_status),
    flowcontrol_v1.PriorityLevelConfiguration: rules(priority_level, status=any_status),
}
