"""Validation of a Job's policies: which failures count, and what success is.

Counterpart: kubernetes pkg/apis/batch/validation.
"""

from __future__ import annotations

from typing import Any

from podyard.api import names
from podyard.api.errors import (
    duplicate,
    invalid,
    invalid_whole,
    not_supported,
    required,
    too_long,
    too_many,
)
from podyard.api.quoting import go_quote
from podyard.api.validation_meta import CONDITION_STATUSES, Causes, each, non_negative

_MAX_RULES = 20
_MAX_PATTERNS = 20
_MAX_EXIT_CODES = 255
_MAX_INDEXES_BYTES = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")


def _listed(values: tuple[str, ...]) -> str:
    return f"valid values: [{' '.join(go_quote(value) for value in values)}]"


def _choice(value: str, allowed: tuple[str, ...], path: str) -> Causes:
    if value in allowed:
        return []
    return [not_supported(path, value, allowed)] if value else [required(path, _listed(allowed))]


def pod_failure_policy(spec: Any, path: str) -> Causes:
    """Rules on how pods failed.

    Args:
        spec: the job's.
        path: of the policy.
    """
    path = f"{path}.rules"
    rules = spec.podFailurePolicy.rules
    causes: Causes = [too_many(path, len(rules), _MAX_RULES)] if len(rules) > _MAX_RULES else []
    pod = spec.template.spec
    containers = {container.name for container in (*pod.containers, *pod.initContainers)}
    for index, rule in enumerate(rules):
        at = f"{path}[{index}]"
        causes += _choice(rule.action, _ACTIONS, f"{at}.action")
        if rule.action == "FailIndex" and not spec.HasField("backoffLimitPerIndex"):
            detail = "requires the backoffLimitPerIndex to be set"
            causes.append(invalid(f"{at}.action", rule.action, detail))
        if rule.HasField("onExitCodes"):
            causes += _exit_codes(rule.onExitCodes, containers, f"{at}.onExitCodes")
        causes += _pod_conditions(rule.onPodConditions, f"{at}.onPodConditions")
        if rule.HasField("onExitCodes") and rule.onPodConditions:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            causes.append(invalid_whole(at, detail))
        elif not rule.HasField("onExitCodes") and not rule.onPodConditions:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            causes.append(invalid_whole(at, detail))
    return causes


def _exit_codes(rule: Any, containers: set[str], path: str) -> Causes:
    causes = _choice(rule.operator, _OPERATORS, f"{path}.operator")
    if rule.HasField("containerName") and rule.containerName not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid(f"{path}.containerName", rule.containerName, detail))
    at, values = f"{path}.values", list(rule.values)
    if not values:
        return [*causes, invalid(at, [], "at least one value is required")]
    if len(values) > _MAX_EXIT_CODES:
        causes.append(too_many(at, len(values), _MAX_EXIT_CODES))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if rule.operator == "In" and value == 0:
            causes.append(invalid(f"{at}[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            causes.append(duplicate(f"{at}[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        causes.append(invalid(at, values, "must be ordered"))
    return causes


def _pod_conditions(patterns: Any, path: str) -> Causes:
    causes: Causes = [too_many(path, len(patterns), _MAX_PATTERNS)] if len(patterns) > _MAX_PATTERNS else []
    for index, pattern in enumerate(patterns):
        at = f"{path}[{index}]"
        causes += each(f"{at}.type", pattern.type, names.qualified_name_problems(pattern.type))
        causes += _choice(pattern.status, CONDITION_STATUSES, f"{at}.status")
    return causes


def success_policy(spec: Any, path: str) -> Causes:
    """Which pods must succeed.

    Args:
        spec: the job's.
        path: of the policy.
    """
    path = f"{path}.rules"
    rules = spec.successPolicy.rules
    if not rules:
        return [required(path, "at least one rules must be specified when the successPolicy is specified")]
    causes: Causes = [too_many(path, len(rules), _MAX_RULES)] if len(rules) > _MAX_RULES else []
    for index, rule in enumerate(rules):
        causes += _success_rule(rule, spec, f"{path}[{index}]")
    return causes


def _success_rule(rule: Any, spec: Any, path: str) -> Causes:
    if not rule.HasField("succeededCount") and not rule.HasField("succeededIndexes"):
        detail = "at least one of succeededCount or succeededIndexes must be specified"
        return [required(path, detail)]
    causes: Causes = []
    total = 0
    if rule.HasField("succeededIndexes"):
        at = f"{path}.succeededIndexes"
        if len(rule.succeededIndexes) > _MAX_INDEXES_BYTES:
            causes.append(too_long(at, _MAX_INDEXES_BYTES))
        try:
            total = count_indexes(rule.succeededIndexes, spec.completions)
        except ValueError as error:
            detail = f"error parsing succeededIndexes: {error}"
            causes.append(invalid(at, rule.succeededIndexes, detail))
    if rule.HasField("succeededCount"):
        at, count = f"{path}.succeededCount", rule.succeededCount
        causes += non_negative(at, count)
        if spec.HasField("completions") and count > spec.completions:
            what = "the number of specified completions"
            causes.append(invalid(at, count, f"must be less than or equal to {spec.completions} ({what})"))
        if total and count > total:
            what = "the number of indexes in the specified succeededIndexes field"
            causes.append(invalid(at, count, f"must be less than or equal to {total} ({what})"))
    return causes


def count_indexes(text: str, completions: int) -> int:
    """How many indexes a list such as `1,3-5` names.

    Raises:
        ValueError: it is not well-formed; in upstream's words.
    """
    if not text:
        return 0
    total, last = 0, -1
    for interval in text.split(","):
        ends = interval.split("-")
        if len(ends) > 2:
            raise ValueError(
                f"the fragment {go_quote(interval)} violates the requirement that an index interval can have "
                "at most two parts separated by '-'"
            )
        first = _index(ends[0], completions)
        if first <= last:
            raise ValueError(f"non-increasing order, previous: {last}, current: {first}")
        last = first
        if len(ends) == 2:
            end = _index(ends[1], completions)
            if end <= first:
                raise ValueError(f"non-increasing order, previous: {first}, current: {end}")
            last = end
        total += last - first + 1
    return total


def _index(text: str, completions: int) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"cannot convert string to integer for index: {go_quote(text)}")
    value = int(text)
    if value >= completions:
        raise ValueError(f"too large index: {go_quote(text)}")
    return value
