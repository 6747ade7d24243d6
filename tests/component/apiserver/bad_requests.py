# ruff: noqa: E501 - a table
"""Wrong requests and the Status that upstream answers each with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
ROUTE = {"details": {}}
NO_ROUTE = "the server could not find the requested resource"
NO_METHOD = "the server does not allow this method on the requested resource"
SCHEME = 'in scheme "pkg/api/legacyscheme/scheme.go:30"'
UNRECOGNIZED = "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; "


@dataclass(frozen=True)
class Case:
    """A request and the Status that it must get."""

    name: str
    method: str
    path: str
    body: bytes | None
    code: int
    reason: str
    message: str
    content_type: str = JSON
    accept: str = JSON
    more: dict[str, Any] = field(default_factory=dict)


def pod(**changes: Any) -> bytes:
    spec = {"containers": [{"name": "main", "image": "nginx"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": spec}
    return orjson.dumps({**body, **changes})


def field_error(reason: str, message: str, at: str) -> dict[str, str]:
    return {"reason": reason, "message": message, "field": at}


BODIES = [
    Case(
        "json cut off", "POST", PODS, b'{"kind":"Pod",', 400, "BadRequest",
        UNRECOGNIZED + 'json parse error: unexpected end of JSON input ({"kind":"Pod",)',
    ),
    Case(
        "no json", "POST", PODS, b"{kind: Pod}", 400, "BadRequest",
        UNRECOGNIZED + "json parse error: invalid character 'k' looking for beginning of object key string ({kind: Pod})",
    ),
    Case(
        "empty", "POST", PODS, b"", 400, "BadRequest",
        UNRECOGNIZED + "json parse error: unexpected end of JSON input (<empty>)",
    ),
    Case(
        "a list", "POST", PODS, b"[]", 400, "BadRequest",
        UNRECOGNIZED + "json parse error: json: cannot unmarshal array into Go value of type "
        r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b5d)',
    ),
    Case(
        "a wrong type", "POST", PODS, pod(spec={"containers": "abc"}), 400, "BadRequest",
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field '
        "PodSpec.spec.containers of type []v1.Container",
    ),
    Case(
        "another kind", "POST", PODS, b'{"apiVersion":"v1","kind":"Service"}', 400, "BadRequest",
        'Service in version "v1" cannot be handled as a Pod: converting (v1.Service) to (core.Pod): unknown conversion',
    ),
    Case(
        "a kind not served here", "POST", PODS, b'{"apiVersion":"apps/v1","kind":"Deployment"}', 400, "BadRequest",
        'Deployment in version "v1" cannot be handled as a Pod: converting (v1.Deployment) to (core.Pod): unknown conversion',
    ),
    Case(
        "a kind unknown", "POST", PODS, b'{"apiVersion":"v1","kind":"Podd"}', 400, "BadRequest",
        f'Podd in version "v1" cannot be handled as a Pod: no kind "Podd" is registered for version "v1" {SCHEME}',
    ),
    Case(
        "a version unknown", "POST", PODS, b'{"apiVersion":"v2","kind":"Pod"}', 400, "BadRequest",
        f'Pod in version "v2" cannot be handled as a Pod: no kind "Pod" is registered for version "v2" {SCHEME}',
    ),
    Case(
        "the other version of a kind", "POST", "/apis/events.k8s.io/v1/namespaces/default/events",
        b'{"apiVersion":"v1","kind":"Event","metadata":{"name":"bad"}}', 400, "BadRequest",
        "the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)",
    ),
    Case(
        "another namespace", "POST", PODS, pod(metadata={"name": "bad", "namespace": "other"}), 400, "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    Case(
        "another name", "PUT", PODS + "/web", pod(), 400, "BadRequest",
        "the name of the object (bad) does not match the name on the URL (web)",
    ),
    Case(
        "no name", "PUT", PODS + "/web", pod(metadata={}), 400, "BadRequest",
        "the name of the object (web based on URL) was undeterminable: name must be provided",
    ),
    Case(
        "another namespace in an update", "PUT", PODS + "/bad", pod(metadata={"name": "bad", "namespace": "other"}),
        400, "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    Case(
        "a resourceVersion at creation", "POST", PODS, pod(metadata={"name": "bad", "resourceVersion": "7"}), 500, "",
        "resourceVersion should not be set on objects to be created",
    ),
    Case(
        "all causes", "POST", PODS,
        pod(metadata={"name": "Bad!"}, spec={"containers": [{"name": ""}], "restartPolicy": "Maybe"}),
        422, "Invalid", "",
    ),
    Case(
        "no namespace of that name", "POST", "/api/v1/namespaces/none/pods", pod(), 404, "NotFound",
        'namespaces "none" not found', more={"details": {"name": "none", "kind": "namespaces"}},
    ),
    Case(
        "too large", "POST", MAPS, b"x" * (3 * 1024 * 1024 + 1), 413, "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    ),
    Case(
        "over the store's limit", "POST", PODS, pod(spec={"containers": [{"name": "c", "image": "i", "args": ["A" * 2_000_000]}]}),
        413, "RequestEntityTooLarge", "Request entity too large: etcdserver: request is too large",
    ),
    Case(
        "yaml", "POST", PODS, b"a: [", 400, "BadRequest", "", content_type=YAML,
    ),
    Case(
        "no envelope", "POST", PODS, b"{}", 400, "BadRequest", "", content_type=PROTOBUF,
    ),
]  # fmt: skip

HEADERS = [
    Case(
        "an unknown body", "POST", PODS, pod(), 415, "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf", content_type="text/plain",
    ),
    Case(
        "apply", "PATCH", PODS + "/web?fieldManager=me", b"{}", 415, "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
        "application/merge-patch+json, application/strategic-merge-patch+json",
        content_type="application/apply-patch+yaml",
    ),
    Case(
        "nothing acceptable", "GET", PODS, None, 406, "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf", accept="text/html",
    ),
    Case(
        "a watch as yaml", "GET", PODS + "?watch=1", None, 406, "NotAcceptable",
        "only the following media types are accepted: application/json;stream=watch, "
        "application/vnd.kubernetes.protobuf;stream=watch", accept=YAML,
    ),
]  # fmt: skip

ROUTES = [
    Case("no such resource", "GET", "/api/v1/foos", None, 404, "NotFound", NO_ROUTE, more=ROUTE),
    Case("no such resource of a group", "GET", "/apis/discovery.k8s.io/v1/foos", None, 404, "NotFound", NO_ROUTE, more=ROUTE),
    Case("no such resource in a namespace", "GET", "/api/v1/namespaces/default/foos", None, 404, "NotFound", NO_ROUTE, more=ROUTE),
    Case("no such part", "GET", PODS + "/web/foo", None, 404, "NotFound", NO_ROUTE, more=ROUTE),
    Case("a cluster's resource in a namespace", "GET", "/api/v1/namespaces/default/nodes", None, 404, "NotFound", NO_ROUTE, more=ROUTE),
    Case("no such object", "GET", PODS + "/none", None, 404, "NotFound", 'pods "none" not found',
         more={"details": {"name": "none", "kind": "pods"}}),
    Case("no such lease", "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/none", None, 404, "NotFound",
         'leases.coordination.k8s.io "none" not found',
         more={"details": {"name": "none", "group": "coordination.k8s.io", "kind": "leases"}}),
    Case("a collection is not put", "PUT", PODS, b"{}", 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
    Case("an object is not posted", "POST", PODS + "/web", b"{}", 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
    Case("namespaces go one by one", "DELETE", "/api/v1/namespaces", None, 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
    Case("all namespaces take no object", "POST", "/api/v1/pods", pod(), 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
    Case("all namespaces are not emptied", "DELETE", "/api/v1/pods", None, 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
    Case("a status is not posted", "POST", PODS + "/web/status", b"{}", 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
    Case("an unknown method", "PURGE", PODS, None, 405, "MethodNotAllowed", NO_METHOD, more=ROUTE),
]  # fmt: skip

QUERIES = [
    Case("limit", "GET", PODS + "?limit=many", None, 400, "BadRequest", 'strconv.ParseInt: parsing "many": invalid syntax'),
    Case("limit empty", "GET", PODS + "?limit=", None, 400, "BadRequest", 'strconv.ParseInt: parsing "": invalid syntax'),
    Case("limit by python", "GET", PODS + "?limit=1_0", None, 400, "BadRequest", 'strconv.ParseInt: parsing "1_0": invalid syntax'),
    Case("limit too great", "GET", PODS + "?limit=9223372036854775808", None, 400, "BadRequest",
         'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
    Case("version of a list", "GET", PODS + "?resourceVersion=abc", None, 500, "",
         'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'),
    Case("version of a watch", "GET", PODS + "?watch=1&resourceVersion=abc", None, 500, "",
         'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'),
    Case("token", "GET", PODS + "?limit=1&continue=%21", None, 400, "BadRequest", ""),
    Case("label selector", "GET", PODS + "?labelSelector=a%3D%3D%3Db", None, 400, "BadRequest", ""),
    Case("label selector of a watch", "GET", PODS + "?watch=1&labelSelector=a+b", None, 400, "BadRequest", ""),
    Case("field selector", "GET", PODS + "?fieldSelector=spec.foo%3Da", None, 400, "BadRequest",
         "field label not supported: spec.foo"),
    Case("initial events of a list", "GET", PODS + "?sendInitialEvents=true", None, 422, "Invalid",
         'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list',
         more={"details": {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [field_error(
             "FieldValueForbidden", "Forbidden: sendInitialEvents is forbidden for list", "sendInitialEvents")]}}),
    Case("initial events without a match", "GET", PODS + "?watch=1&sendInitialEvents=true", None, 422, "Invalid",
         'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting '
         "resourceVersionMatch to NotOlderThan",
         more={"details": {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [field_error(
             "FieldValueForbidden", "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
             "resourceVersionMatch")]}}),
    Case("all options at once", "POST", PODS + f"?dryRun=Some&fieldValidation=Hard&fieldManager={'m' * 129}", pod(), 422,
         "Invalid",
         'CreateOptions.meta.k8s.io "" is invalid: [fieldManager: Too long: may not be more than 128 bytes, '
         'dryRun: Unsupported value: ["Some"]: supported values: "All", '
         'fieldValidation: Unsupported value: "Hard": supported values: "", "Ignore", "Strict", "Warn"]', more={"details": {
             "group": "meta.k8s.io", "kind": "CreateOptions", "causes": [
                 field_error("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager"),
                 field_error("FieldValueNotSupported", 'Unsupported value: ["Some"]: supported values: "All"', "dryRun"),
                 field_error("FieldValueNotSupported",
                     'Unsupported value: "Hard": supported values: "", "Ignore", "Strict", "Warn"', "fieldValidation"),
             ]}}),
    Case("force without apply", "PATCH", PODS + "/web?force=true", b"{}", 422, "Invalid",
         'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch',
         content_type=MERGE, more={"details": {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [field_error(
             "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force")]}}),
]  # fmt: skip
