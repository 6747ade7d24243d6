# ruff: noqa: E501 -- texts and bodies are shown as they are
"""The codec: round trips over every kind, upstream's JSON to the letter, and what it says of bad input."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.api import codec, codec_check, facts
from podyard.api.errors import BadRequest
from podyard.api.types import API_MODULES, ConfigMap, Event, Lease, Pod, Secret, Service, core_v1, meta_v1

_spec = importlib.util.spec_from_file_location(
    "random_messages", Path(__file__).parent / "random_messages.py"
)
assert _spec is not None
assert _spec.loader is not None
random_messages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(random_messages)


def kinds() -> list[type[Any]]:
    found = []
    for fact in facts.messages().values():
        package, _, name = fact.full_name.rpartition(".")
        if fact.has_typemeta and package in API_MODULES and fact.gvk:
            found.append(getattr(API_MODULES[package], name))
    return found


@pytest.mark.parametrize("cls", kinds(), ids=lambda cls: cls.DESCRIPTOR.full_name.removeprefix("k8s.io.api."))
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_round_trip(cls: type[Any], seed: int) -> None:
    message = random_messages.fill(cls(), random.Random(seed))
    text = codec.encode_json(message, "example/v1", cls.DESCRIPTOR.name)
    decoded = codec.decode_json(text, cls, field_validation=codec.STRICT)
    assert codec.encode_json(decoded.message, "example/v1", cls.DESCRIPTOR.name) == text
    assert codec.same(decoded.message, message)
    # The slow walk reads the same.
    fields, report = codec_check.check(codec_check.parse(text), cls.DESCRIPTOR)
    assert (report.unusual, report.mistyped) == ([], [])
    assert cls(**fields) == decoded.message
    # What Go writes explicitly and what we leave out mean the same.
    assert codec.same(cls.FromString(message.SerializeToString()), message)


def test_pod_as_upstream_writes_it() -> None:
    pod = Pod()
    pod.metadata.name = "web"
    pod.spec.containers.add(name="c")
    pod.status.conditions.add(type="Ready", status="True")
    assert orjson.loads(codec.encode_json(pod, "v1", "Pod")) == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "resources": {}}]},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
            ]
        },
    }


def test_kind_and_version_come_first() -> None:
    assert codec.encode_json(ConfigMap(), "v1", "ConfigMap").startswith(
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":'
    )


def test_pointers_keep_zero_and_absence() -> None:
    pod = codec.from_dict(
        {"spec": {"containers": [], "terminationGracePeriodSeconds": 0, "securityContext": {}}}, Pod
    )
    assert pod.spec.HasField("terminationGracePeriodSeconds")
    assert pod.spec.HasField("securityContext")
    written = codec.to_dict(pod)["spec"]
    assert (written["terminationGracePeriodSeconds"], written["securityContext"]) == (0, {})
    assert "activeDeadlineSeconds" not in written


def test_special_forms() -> None:
    lease = codec.from_dict({"spec": {"renewTime": "2026-01-02T03:04:05.000006Z"}}, Lease)
    assert (lease.spec.renewTime.seconds, lease.spec.renewTime.nanos) == (1767323045, 6000)
    assert codec.to_dict(lease)["spec"] == {"renewTime": "2026-01-02T03:04:05.000006Z"}
    service = codec.from_dict(
        {"spec": {"ports": [{"port": 1, "targetPort": "web"}, {"port": 2, "targetPort": 3}]}}, Service
    )
    assert [port["targetPort"] for port in codec.to_dict(service)["spec"]["ports"]] == ["web", 3]
    secret = codec.from_dict({"data": {"k": "AP8="}}, Secret)
    assert secret.data["k"] == b"\x00\xff"
    event = codec.to_dict(Event())
    assert (event["eventTime"], event["firstTimestamp"], event["source"]) == (None, None, {})


def test_times_are_read_with_offset_and_fraction() -> None:
    pod = codec.from_dict({"metadata": {"creationTimestamp": "2026-01-02T03:04:05.9+02:00"}}, Pod)
    assert codec.to_dict(pod)["metadata"]["creationTimestamp"] == "2026-01-02T01:04:05Z"


def test_quantities_become_canonical() -> None:
    values = {"a": "1000m", "b": "0.5", "c": 2, "d": "1024Mi"}
    node = codec.from_dict({"status": {"capacity": values}}, core_v1.Node)
    assert codec.to_dict(node)["status"]["capacity"] == {"a": "1", "b": "500m", "c": "2", "d": "1Gi"}


def test_number_quantities_keep_their_literal() -> None:
    decoded = codec.decode_json(b'{"status":{"capacity":{"cpu":0.5}}}', core_v1.Node)
    assert decoded.message.status.capacity["cpu"].string == "500m"


def refused(data: bytes, cls: type[Any] = Pod, **options: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        codec.decode_json(data, cls, api_version="v1", kind=cls.DESCRIPTOR.name, **options)
    return caught.value


UNFIT = 'Pod in version "v1" cannot be handled as a Pod: '


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ('"containers":"x"', "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ('"containers":["x"]', "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container"),
        ('"nodeName":5', "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string"),
        ('"restartPolicy":[]', "json: cannot unmarshal array into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy"),
        ('"priority":1.5', "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        ('"priority":3000000000', "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32"),
        ('"hostNetwork":"yes"', "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        ('"nodeSelector":{"a":1}', "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeSelector of type string"),
        ('"nodeSelector":[]', "json: cannot unmarshal array into Go struct field PodSpec.spec.nodeSelector of type map[string]string"),
        ('"securityContext":7', "json: cannot unmarshal number into Go struct field PodSpec.spec.securityContext of type v1.PodSecurityContext"),
        (
            '"containers":[{"env":[{"name":"a","value":1}]}]',
            "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string",
        ),
        (
            '"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]',
            "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.httpGet.port of type int32",
        ),
        (
            '"overhead":{"cpu":"x"}',
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)  # fmt: skip
def test_wrong_types_are_named_as_upstream_names_them(spec: str, text: str) -> None:
    body = b'{"kind":"Pod","apiVersion":"v1","spec":{' + spec.encode() + b"}}"
    error = refused(body)
    assert error.message == UNFIT + text
    assert [cause.reason for cause in error.causes] == ["FieldValueTypeInvalid"]


def test_all_wrong_types_are_causes() -> None:
    error = refused(
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":1},"spec":{"containers":[{"image":2},{"tty":"x"}]}}'
    )
    assert [cause.field for cause in error.causes] == [
        "metadata.name",
        "spec.containers[0].image",
        "spec.containers[1].tty",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2026-01-02", 'parsing time "2026-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        ("2026-13-02T00:00:00Z", 'parsing time "2026-13-02T00:00:00Z": month out of range'),
    ],
)
def test_bad_times(value: str, text: str) -> None:
    body = orjson.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": {"creationTimestamp": value}})
    assert refused(body).message == UNFIT + text


def test_micro_time_needs_six_digits() -> None:
    body = (
        b'{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"renewTime":"2026-01-02T03:04:05Z"}}'
    )
    assert refused(body, Lease).message == (
        'Lease in version "v1" cannot be handled as a Lease: parsing time "2026-01-02T03:04:05Z" as '
        '"2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"'
    )


def test_bad_base64() -> None:
    body = b'{"kind":"Secret","apiVersion":"v1","data":{"a":"xx!x"}}'
    assert refused(body, Secret).message == (
        'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 2'
    )


ODD = b'{"kind":"Pod","apiVersion":"v1","spec":{"foo":1,"containers":[{"name":"a","name":"b","x":{"y":1}}]},"Metadata":{}}'
ODD_TEXTS = (
    'unknown field "spec.foo"',
    'duplicate field "spec.containers[0].name"',
    'unknown field "spec.containers[0].x"',
    'unknown field "Metadata"',
)


def test_strict_names_unknown_and_duplicate_fields() -> None:
    error = refused(ODD, field_validation=codec.STRICT)
    assert error.message == UNFIT + "strict decoding error: " + ", ".join(ODD_TEXTS)


def test_warn_drops_them_and_says_so() -> None:
    decoded = codec.decode_json(ODD, Pod, field_validation=codec.WARN)
    assert decoded.warnings == ODD_TEXTS
    assert decoded.message.spec.containers[0].name == "b"


def test_ignore_drops_them() -> None:
    assert codec.decode_json(ODD, Pod).warnings == ()


def test_duplicate_labels_are_found() -> None:
    body = b'{"metadata":{"labels":{"a":"1","a":"2"}}}'
    assert codec.decode_json(body, Pod, field_validation=codec.WARN).warnings == (
        'duplicate field "metadata.labels.a"',
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"kind": "Pod", "apiVersion"', "json parse error: unexpected end of JSON input"),
        (b"", "json parse error: unexpected end of JSON input (<empty>)"),
        (
            b"{a: 1}",
            "json parse error: invalid character 'a' looking for beginning of object key string ({a: 1})",
        ),
        (b"[1,]", "json parse error: invalid character ']' looking for beginning of value (5b312c5d)"),
        (b'{"kind":5}', "json: cannot unmarshal number into Go struct field .kind of type string"),
        (b"[]", "json: cannot unmarshal array into Go value of type struct { APIVersion string"),
    ],
)
def test_broken_bodies(body: bytes, text: str) -> None:
    message = refused(body).message
    assert message.startswith(
        "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; "
    )
    assert text in message


def test_nulls_are_zero_values() -> None:
    body = b'{"metadata":null,"spec":{"nodeName":null,"containers":[null,{"name":"a","args":[null,"x"]}],"nodeSelector":{"a":null}}}'
    pod = codec.decode_json(body, Pod).message
    assert [container.name for container in pod.spec.containers] == ["", "a"]
    assert list(pod.spec.containers[1].args) == ["", "x"]
    assert dict(pod.spec.nodeSelector) == {"a": ""}


def test_yaml_follows_version_1_1() -> None:
    text = b"""
    kind: Pod
    apiVersion: v1
    metadata: {name: "1", labels: {a: 'yes', b: !!str 7}, annotations: {when: "2026-01-01"}}
    spec:
      hostNetwork: on
      containers:
      - {name: c, command: [a, "1:30", 1e3x], securityContext: {runAsUser: 0010}}
    """
    pod = codec.decode_yaml(text, Pod, field_validation=codec.STRICT).message
    assert (pod.metadata.name, dict(pod.metadata.labels)) == ("1", {"a": "yes", "b": "7"})
    assert pod.spec.hostNetwork
    assert pod.spec.containers[0].securityContext.runAsUser == 8


def test_yaml_duplicates_fail_under_strict() -> None:
    text = b"metadata:\n  name: a\n  name: b\n"
    with pytest.raises(BadRequest, match='line 3: key "name" already set in map'):
        codec.decode_yaml(text, Pod, field_validation=codec.STRICT)
    assert codec.decode_yaml(text, Pod).message.metadata.name == "b"


def test_broken_yaml() -> None:
    with pytest.raises(BadRequest, match="yaml: line 2: mapping values are not allowed in this context"):
        codec.decode_yaml(b"a: b\n c: d: e", Pod)


def test_envelope_is_upstreams_bytes() -> None:
    namespace = core_v1.Namespace()
    namespace.metadata.name = "a"
    data = codec.encode_envelope(namespace, "v1", "Namespace")
    assert data == (b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x05\x0a\x03\x0a\x01a\x1a\x00\x22\x00")
    assert codec.decode_envelope(data) == ("v1", "Namespace", namespace.SerializeToString())
    decoded = codec.decode_protobuf(data, core_v1.Namespace)
    assert (decoded.message, decoded.kind) == (namespace, "Namespace")


@pytest.mark.parametrize("data", [b"", b"k8s", b'{"kind":"Pod"}', b"k8s\x00\xff"])
def test_no_envelope(data: bytes) -> None:
    with pytest.raises(codec.EnvelopeError):
        codec.decode_envelope(data)
    with pytest.raises(BadRequest):
        codec.decode_protobuf(data, Pod)


def test_revision_is_appended() -> None:
    pod = Pod()
    pod.metadata.name, pod.metadata.resourceVersion = "a", "old"
    again = Pod.FromString(codec.append_resource_version(pod.SerializeToString(), 123))
    assert (again.metadata.name, again.metadata.resourceVersion) == ("a", "123")


def test_lists_are_joined() -> None:
    pods = [Pod(metadata={"name": name}) for name in ("a", "b" * 300)]
    raw = codec.join_list(core_v1.PodList, [pod.SerializeToString() for pod in pods], "7", "token", 5)
    listed = core_v1.PodList.FromString(raw)
    assert list(listed.items) == pods
    assert codec.to_dict(listed.metadata) == {
        "resourceVersion": "7",
        "continue": "token",
        "remainingItemCount": 5,
    }
    joined = codec.join_list_json(
        [codec.encode_json(pod, "v1", "Pod") for pod in pods],
        "v1",
        "PodList",
        "7",
        "token",
        5,
        item_kind="Pod",
    )
    assert orjson.loads(joined) == codec.encode_value(listed, "v1", "PodList")


def test_every_kind_can_be_joined() -> None:
    odd = []
    for fact in facts.messages().values():
        numbers = {field.name: field.number for field in facts.fields().get(fact.full_name, ())}
        if fact.is_list and "items" in numbers and (numbers.get("metadata"), numbers.get("items")) != (1, 2):
            odd.append(fact.full_name)
    assert odd == []


def test_empty_list_has_items() -> None:
    assert codec.to_dict(core_v1.PodList())["items"] == []


def test_status_reads_back() -> None:
    status = meta_v1.Status(status="Failure", code=404)
    assert codec.from_dict(codec.to_dict(status), meta_v1.Status).code == 404


def test_an_empty_message_is_json_too():
    body = codec.encode_json(meta_v1.DeleteOptions(), "v1", "DeleteOptions")
    assert orjson.loads(body) == {"kind": "DeleteOptions", "apiVersion": "v1"}
