"""Validation of admission webhooks and admission policies.

What CEL expressions say is not read here: there is no CEL yet, and so policies are stored, not run.

Counterpart: kubernetes pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from podyard.api import names
from podyard.api.errors import duplicate, forbidden, invalid, not_supported, required, too_many
from podyard.api.types import Message, admissionregistration_v1
from podyard.api.validation_meta import (
    Causes,
    Rules,
    conditions,
    each,
    label_selector,
    object_meta,
    rules,
)

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_FAILURES = ("Fail", "Ignore")
_MATCHES = ("Equivalent", "Exact")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SCOPES = ("*", "Cluster", "Namespaced")
_REINVOCATIONS = ("IfNeeded", "Never")
_ACTIONS = ("Audit", "Deny", "Warn")
_MAX_TIMEOUT_S = 30
_MAX_CONDITIONS = 64
_VERSIONS = ("v1", "v1beta1")


def webhook_configuration(obj: Any) -> Causes:
    """Webhooks: where they are, and what they are asked about."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    seen: set[str] = set()
    for index, hook in enumerate(obj.Webhooks):
        path = f"webhooks[{index}]"
        causes += _webhook(hook, path)
        causes += _review_versions(hook.admissionReviewVersions, f"{path}.admissionReviewVersions")
        if hook.name in seen:
            causes.append(duplicate(f"{path}.name", hook.name))
        seen.add(hook.name)
    return causes


def _webhook(hook: Any, path: str) -> Causes:
    causes = _qualified(hook.name, f"{path}.name")
    for index, rule in enumerate(hook.rules):
        causes += _rule(rule, f"{path}.rules[{index}]")
    for name, allowed in (("failurePolicy", _FAILURES), ("matchPolicy", _MATCHES)):
        if hook.HasField(name) and getattr(hook, name) not in allowed:
            causes.append(not_supported(f"{path}.{name}", getattr(hook, name), allowed))
    if not hook.HasField("sideEffects"):
        causes.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif hook.sideEffects not in _SIDE_EFFECTS:
        causes.append(not_supported(f"{path}.sideEffects", hook.sideEffects, _SIDE_EFFECTS))
    if hook.HasField("timeoutSeconds") and not 1 <= hook.timeoutSeconds <= _MAX_TIMEOUT_S:
        detail = "the timeout value must be between 1 and 30 seconds"
        causes.append(invalid(f"{path}.timeoutSeconds", hook.timeoutSeconds, detail))
    for name in ("namespaceSelector", "objectSelector"):
        if hook.HasField(name):
            causes += label_selector(getattr(hook, name), f"{path}.{name}")
    if isinstance(hook, admissionregistration_v1.MutatingWebhook) and (
        hook.HasField("reinvocationPolicy") and hook.reinvocationPolicy not in _REINVOCATIONS
    ):
        at = f"{path}.reinvocationPolicy"
        causes.append(not_supported(at, hook.reinvocationPolicy, _REINVOCATIONS))
    causes += _client(hook.clientConfig, f"{path}.clientConfig")
    return causes + _match_conditions(hook.matchConditions, f"{path}.matchConditions")


def _qualified(name: str, path: str) -> Causes:
    """A fully qualified name: a domain of three parts at least."""
    if not name:
        return [required(path)]
    causes = each(path, name, names.dns_subdomain_problems(name))
    if not causes and name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        causes.append(invalid(path, name, detail))
    return causes


def _review_versions(versions: Sequence[str], path: str) -> Causes:
    if not versions:
        return [required(path, f"must specify one of {', '.join(_VERSIONS)}")]
    causes: Causes = []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            causes.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        seen.add(version)
        causes += each(f"{path}[{index}]", version, names.dns_label_problems(version))
    if not causes and not seen & set(_VERSIONS):
        detail = f"must include at least one of {', '.join(_VERSIONS)}"
        causes.append(invalid(path, list(versions), detail))
    return causes


def _client(config: Any, path: str) -> Causes:
    has_url, has_service = config.HasField("url"), config.HasField("service")
    if has_url == has_service:
        return [required(path, "exactly one of url or service is required")]
    return _url(config.url, f"{path}.url") if has_url else _service(config.service, f"{path}.service")


def _url(text: str, path: str) -> Causes:
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(text)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{form}")]
    causes: Causes = []
    if parts.scheme != "https":
        detail = f"'https' is the only allowed URL scheme{form}"
        causes.append(invalid(path, parts.scheme, detail))
    if not parts.netloc:
        causes.append(invalid(path, parts.netloc, f"host must be specified{form}"))
    if parts.username is not None:
        causes.append(invalid(path, parts.username, "user information is not permitted in the URL"))
    if parts.fragment:
        causes.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        causes.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return causes


def _service(service: Any, path: str) -> Causes:
    causes: Causes = []
    for name in ("name", "namespace"):
        if not getattr(service, name):
            causes.append(required(f"{path}.{name}", f"service {name} is required"))
    if service.HasField("path"):
        at = f"{path}.path"
        if not service.path.startswith("/"):
            causes.append(invalid(at, service.path, "must start with a '/'"))
        elif "//" in service.path:
            causes.append(invalid(at, service.path, "segment[0] may not be empty"))
    if service.HasField("port"):
        causes += each(f"{path}.port", service.port, names.port_number_problems(service.port))
    return causes


def _rule(rule: Any, path: str) -> Causes:
    causes = _rule_lists(rule.rule, path)
    operations = list(rule.operations)
    if not operations:
        causes.append(required(f"{path}.operations"))
    if len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        causes.append(invalid(f"{path}.operations", operations, detail))
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            causes.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    return causes


def _rule_lists(rule: Any, path: str) -> Causes:
    causes: Causes = []
    for name, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = list(getattr(rule, name))
        if not values:
            causes.append(required(f"{path}.{name}"))
        if len(values) > 1 and "*" in values:
            detail = f"if '*' is present, must not specify other {what}"
            causes.append(invalid(f"{path}.{name}", values, detail))
    for index, version in enumerate(rule.apiVersions):
        if not version:
            causes.append(required(f"{path}.apiVersions[{index}]"))
    resources = list(rule.resources)
    if not resources:
        causes.append(required(f"{path}.resources"))
    for index, name in enumerate(resources):
        if not name:
            causes.append(required(f"{path}.resources[{index}]"))
    if "*/*" in resources and len(resources) > 1:
        detail = "if '*/*' is present, must not specify other resources"
        causes.append(invalid(f"{path}.resources", resources, detail))
    elif "*" in resources and any("/" not in name for name in resources if name != "*"):
        detail = "if '*' is present, must not specify other resources without subresources"
        causes.append(invalid(f"{path}.resources", resources, detail))
    if rule.HasField("scope") and rule.scope not in _SCOPES:
        causes.append(not_supported(f"{path}.scope", rule.scope, _SCOPES))
    return causes


def _match_conditions(values: Sequence[Any], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, item in enumerate(values):
        at = f"{path}[{index}]"
        if not item.expression.strip():
            causes.append(required(f"{at}.expression"))
        if not item.name:
            causes.append(required(f"{at}.name"))
        else:
            causes += each(f"{at}.name", item.name, names.qualified_name_problems(item.name))
        if item.name in seen:
            causes.append(duplicate(f"{at}.name", item.name))
        seen.add(item.name)
    if len(values) > _MAX_CONDITIONS:
        causes.append(too_many(path, len(values), _MAX_CONDITIONS))
    return causes


def _match_resources(value: Any, path: str) -> Causes:
    causes: Causes = []
    if value.HasField("matchPolicy") and value.matchPolicy not in _MATCHES:
        causes.append(not_supported(f"{path}.matchPolicy", value.matchPolicy, _MATCHES))
    for name in ("namespaceSelector", "objectSelector"):
        if not value.HasField(name):
            causes.append(required(f"{path}.{name}"))
        else:
            causes += label_selector(getattr(value, name), f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(getattr(value, name)):
            at = f"{path}.{name}[{index}]"
            causes += _rule(rule.ruleWithOperations, at)
            for position, resource in enumerate(rule.resourceNames):
                problems = names.path_segment_problems(resource)
                causes += each(f"{at}.resourceNames[{position}]", resource, problems)
    return causes


def admission_policy(obj: Any) -> Causes:
    """A policy; either kind."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    if not spec.HasField("failurePolicy"):
        causes.append(required("spec.failurePolicy"))
    elif spec.failurePolicy not in _FAILURES:
        causes.append(not_supported("spec.failurePolicy", spec.failurePolicy, _FAILURES))
    if spec.HasField("paramKind"):
        for name in ("apiVersion", "kind"):
            if not getattr(spec.paramKind, name):
                causes.append(required(f"spec.paramKind.{name}"))
    if not spec.HasField("matchConstraints"):
        causes.append(required("spec.matchConstraints"))
    else:
        causes += _match_resources(spec.matchConstraints, "spec.matchConstraints")
        if not spec.matchConstraints.resourceRules:
            causes.append(required("spec.matchConstraints.resourceRules"))
    causes += _match_conditions(spec.matchConditions, "spec.matchConditions")
    seen: set[str] = set()
    for index, variable in enumerate(spec.variables):
        path = f"spec.variables[{index}]"
        for name, json_name in (("Name", "name"), ("Expression", "expression")):
            if not getattr(variable, name).strip():
                causes.append(required(f"{path}.{json_name}", f"{json_name} is not specified"))
        if variable.Name in seen:
            causes.append(duplicate(f"{path}.name", variable.Name))
        seen.add(variable.Name)
    return causes


def validating_policy(obj: admissionregistration_v1.ValidatingAdmissionPolicy) -> Causes:
    """A policy that refuses."""
    causes = admission_policy(obj)
    spec = obj.spec
    if not spec.validations and not spec.auditAnnotations:
        detail = "validations or auditAnnotations must contain at least one item"
        causes.append(required("spec.validations", detail))
    for index, item in enumerate(spec.validations):
        path = f"spec.validations[{index}]"
        if not item.Expression.strip():
            causes.append(required(f"{path}.expression", "expression is not specified"))
        if item.message and "\n" in item.message.strip():
            causes.append(invalid(f"{path}.message", item.message, "message must not contain line breaks"))
    seen: set[str] = set()
    for index, note in enumerate(spec.auditAnnotations):
        path = f"spec.auditAnnotations[{index}]"
        for name in ("key", "valueExpression"):
            if not getattr(note, name):
                causes.append(required(f"{path}.{name}"))
        if note.key in seen:
            causes.append(duplicate(f"{path}.key", note.key))
        seen.add(note.key)
    return causes


def mutating_policy(obj: admissionregistration_v1.MutatingAdmissionPolicy) -> Causes:
    """A policy that changes."""
    causes = admission_policy(obj)
    spec = obj.spec
    if not spec.mutations:
        causes.append(required("spec.mutations", "mutations must contain at least one item"))
    for index, mutation in enumerate(spec.mutations):
        causes += _mutation(mutation, f"spec.mutations[{index}]")
    if not spec.reinvocationPolicy:
        causes.append(required("spec.reinvocationPolicy"))
    elif spec.reinvocationPolicy not in _REINVOCATIONS:
        causes.append(not_supported("spec.reinvocationPolicy", spec.reinvocationPolicy, _REINVOCATIONS))
    return causes


def _mutation(mutation: Any, path: str) -> Causes:
    fields = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    if not mutation.patchType:
        return [required(f"{path}.patchType")]
    if mutation.patchType not in fields:
        return [not_supported(f"{path}.patchType", mutation.patchType, tuple(fields))]
    causes: Causes = []
    for kind, name in fields.items():
        has, wanted = mutation.HasField(name), kind == mutation.patchType
        if has and not wanted:
            detail = f"must be omitted when patchType is {mutation.patchType}"
            causes.append(invalid(f"{path}.{name}", {}, detail))
        elif wanted and not has:
            causes.append(required(f"{path}.{name}", f"must be specified when patchType is {kind}"))
        elif wanted and not getattr(mutation, name).expression.strip():
            causes.append(required(f"{path}.{name}.expression", "expression is not specified"))
    return causes


def policy_binding(obj: Any) -> Causes:
    """Where a policy is in force; either kind."""
    causes = object_meta(obj.metadata, namespaced=False, name_problems=names.dns_subdomain_problems)
    spec = obj.spec
    if not spec.policyName:
        causes.append(required("spec.policyName"))
    else:
        causes += each("spec.policyName", spec.policyName, names.dns_subdomain_problems(spec.policyName))
    if spec.HasField("paramRef"):
        causes += _parameter(spec.paramRef, "spec.paramRef")
    if spec.HasField("matchResources"):
        causes += _match_resources(spec.matchResources, "spec.matchResources")
    return causes


def _parameter(reference: Any, path: str) -> Causes:
    causes: Causes = []
    has_selector = reference.HasField("selector")
    if reference.name:
        causes += each(f"{path}.name", reference.name, names.path_segment_problems(reference.name))
        if has_selector:
            detail = "name and selector are mutually exclusive"
            causes.append(forbidden(f"{path}.name", detail))
    if has_selector:
        causes += label_selector(reference.selector, f"{path}.selector")
    elif not reference.name:
        causes.append(required(path, "one of name or selector must be specified"))
    action = reference.parameterNotFoundAction
    if not reference.HasField("parameterNotFoundAction"):
        causes.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Allow", "Deny"):
        causes.append(not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))
    return causes


def validating_binding(obj: admissionregistration_v1.ValidatingAdmissionPolicyBinding) -> Causes:
    """Where a policy that refuses is in force, and how."""
    causes = policy_binding(obj)
    path, actions = "spec.validationActions", list(obj.spec.validationActions)
    if not actions:
        causes.append(required(path, "at least one validation action is required"))
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            causes.append(not_supported(f"{path}[{index}]", action, _ACTIONS))
        if action in seen:
            causes.append(duplicate(f"{path}[{index}]", action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the "
            "API response and headers serves no purpose)"
        )
        causes.append(invalid(path, actions, detail))
    return causes


def _policy_status(new: Any, old: Any) -> Causes:
    return conditions(new.status.conditions, "status.conditions")


RULES: Mapping[type[Message], Rules] = {
    admissionregistration_v1.MutatingAdmissionPolicy: rules(mutating_policy),
    admissionregistration_v1.MutatingAdmissionPolicyBinding: rules(policy_binding),
    admissionregistration_v1.MutatingWebhookConfiguration: rules(webhook_configuration),
    admissionregistration_v1.ValidatingAdmissionPolicy: rules(validating_policy, status=_policy_status),
    admissionregistration_v1.ValidatingAdmissionPolicyBinding: rules(validating_binding),
    admissionregistration_v1.ValidatingWebhookConfiguration: rules(webhook_configuration),
}
