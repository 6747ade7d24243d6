"""Validation of FlowSchemas and PriorityLevelConfigurations.

Counterpart: kubernetes pkg/apis/flowcontrol/validation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from podyard.api import names
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required
from podyard.api.types import Message, flowcontrol_v1
from podyard.api.validation_meta import (
    Causes,
    Rules,
    each,
    go_struct,
    non_negative,
    object_meta,
    rules,
)

_MAX_PRECEDENCE = 10_000
_MAX_QUEUES = 10_000_000
_MAX_HASH_BITS = 60
_METHODS = ("ByNamespace", "ByUser")
_SUBJECTS = {"User": "user", "Group": "group", "ServiceAccount": "serviceAccount"}
_FORBIDDEN_ORDER = ("serviceAccount", "user", "group")
_VERBS = frozenset(
    {"get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"}
)
_EXEMPT = "exempt"


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
        at = "spec.distinguisherMethod.type"
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
        needed = "resource rules must supply at least one {}"
        causes += _wildcard(item.apiGroups, f"{at}.apiGroups", needed.format("api group"), "api groups")
        causes += _wildcard(item.resources, f"{at}.resources", needed.format("resource"), "resources")
        causes += _namespaces(item, f"{at}.namespaces")
    for index, item in enumerate(rule.nonResourceRules):
        at = f"{path}.nonResourceRules[{index}]"
        causes += _verbs(item.verbs, _VERBS, f"{at}.verbs")
        needed = "nonResourceURLs must contain at least one value"
        urls = item.nonResourceURLs
        causes += _wildcard(urls, f"{at}.nonResourceURLs", needed, "non-resource URLs")
        for position, url in enumerate(urls if "*" not in urls else ()):
            problem = _url_problem(url)
            if problem:
                causes.append(invalid(f"{at}.nonResourceURLs[{position}]", url, problem))
    return causes


def _namespaces(rule: Any, path: str) -> Causes:
    if not rule.namespaces:
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        return [] if rule.clusterScope else [required(path, detail)]
    if "*" in rule.namespaces:
        detail = "if '*' is present, must not specify other namespaces"
        return [invalid(path, list(rule.namespaces), detail)] if len(rule.namespaces) > 1 else []
    intro = "each member of this list must be '*' or a DNS-1123 label; "
    return [
        invalid(f"{path}[{index}]", name, intro + problem)
        for index, name in enumerate(rule.namespaces)
        for problem in names.dns_label_problems(name)
    ]


def _url_problem(path: str) -> str:
    """What is wrong with a path that may end in a wildcard; empty for nothing."""
    if not path:
        return "must not be empty"
    if not path.startswith("/"):
        return "must start with slash"
    if " " in path:
        return "must not contain white-space"
    if "//" in path:
        return "must not contain double slash"
    wildcards = path.count("*")
    if wildcards > 1 or (wildcards == 1 and not path.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


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


def _wildcard(values: Any, path: str, needed: str, others: str) -> Causes:
    if not values:
        return [required(path, needed)]
    if len(values) > 1 and "*" in values:
        return [invalid(path, list(values), f"if '*' is present, must not specify other {others}")]
    return []


def _subject(subject: Any, path: str) -> Causes:
    if subject.kind not in _SUBJECTS:
        return [not_supported(f"{path}.kind", subject.kind, _SUBJECTS)]
    wanted = _SUBJECTS[subject.kind]
    causes = _wanted_subject(subject, wanted, path)
    for kind, name in sorted(_SUBJECTS.items(), key=lambda item: _FORBIDDEN_ORDER.index(item[1])):
        if subject.HasField(name) and name != wanted:
            detail = f"{name} is forbidden when subject kind is not '{kind}'"
            causes.append(forbidden(f"{path}.{name}", detail))
    return causes


def _wanted_subject(subject: Any, wanted: str, path: str) -> Causes:
    if not subject.HasField(wanted):
        detail = f"{wanted} is required when subject kind is '{subject.kind}'"
        return [required(f"{path}.{wanted}", detail)]
    causes: Causes = []
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
        detail = "type must be 'Exempt' if and only if name is 'exempt'"
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
    most = {"queues": (_MAX_QUEUES, f"must not be greater than {_MAX_QUEUES}")}
    most["handSize"] = (queuing.queues, f"should not be greater than queues ({queuing.queues})")
    for name in ("queueLengthLimit", "queues", "handSize"):
        value = getattr(queuing, name)
        if value <= 0:
            causes.append(invalid(f"{path}.{name}", value, "must be positive"))
        elif name in most and value > most[name][0]:
            causes.append(invalid(f"{path}.{name}", value, most[name][1]))
        elif name == "handSize" and _entropy_bits(queuing.queues, value) > _MAX_HASH_BITS:
            detail = (
                f"required entropy bits of deckSize {queuing.queues} and handSize {value} should not be "
                f"greater than {_MAX_HASH_BITS}"
            )
            causes.append(invalid(f"{path}.{name}", value, detail))
    return causes


def _entropy_bits(deck: int, hand: int) -> int:
    """How many bits it takes to deal a hand; counts no further than too many.

    Source: apiserver util/shufflesharding.
    """
    bits = 0.0
    for dealt in range(hand):
        bits += math.log2(deck - dealt)
        if bits > _MAX_HASH_BITS:
            break
    return math.ceil(bits)


def _status(new: Any, old: Any) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, item in enumerate(new.status.conditions):
        at = f"status.conditions[{index}].type"
        if item.type in seen:
            causes.append(duplicate(at, item.type))
        seen.add(item.type)
        if not item.type:
            causes.append(required(at, "must not be empty"))
    return causes


RULES: Mapping[type[Message], Rules] = {
    flowcontrol_v1.FlowSchema: rules(flow_schema, status=_status),
    flowcontrol_v1.PriorityLevelConfiguration: rules(priority_level, status=_status),
}
