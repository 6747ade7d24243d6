# ruff: noqa: E501 -- one case a line
"""Table rows as `kubectl get` shows them."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.api import codec, columns, resources
from podyard.api.types import (
    ConfigMap,
    Endpoints,
    EndpointSlice,
    Event,
    EventsV1Event,
    Lease,
    Message,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Secret,
    Service,
    ServiceAccount,
)

NOW_S = 1_767_323_045.0  # 2026-01-02T03:04:05Z
META = {"name": "a", "creationTimestamp": "2026-01-02T03:00:00Z"}
AGE = "4m5s"


def cells(cls: type[Message], value: dict[str, Any]) -> list[Any]:
    obj = codec.from_dict({"metadata": META, **value}, cls)
    made = columns.table(resources.by_message(cls), [obj], NOW_S)
    return list(made["rows"][0]["cells"])


@pytest.mark.parametrize(
    ("cls", "value", "wanted"),
    [
        (ConfigMap, {"data": {"x": "1"}, "binaryData": {"y": "AA=="}}, ["a", 2, AGE]),
        (Secret, {"type": "Opaque", "data": {"x": "AA=="}}, ["a", "Opaque", 1, AGE]),
        (Namespace, {"status": {"phase": "Active"}}, ["a", "Active", AGE]),
        (ServiceAccount, {}, ["a", AGE]),
        (Lease, {"spec": {"holderIdentity": "me"}}, ["a", "me", AGE]),
        (PriorityClass, {"value": 7, "preemptionPolicy": "Never"}, ["a", 7, False, AGE, "Never"]),
        (
            Service,
            {"spec": {"type": "NodePort", "clusterIPs": ["10.96.0.9"], "selector": {"b": "2", "a": "1"},
                      "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
            ["a", "NodePort", "10.96.0.9", "<none>", "80:30080/TCP,53/UDP", AGE, "a=1,b=2"],
        ),
        (Service, {"spec": {"type": "ExternalName", "externalName": "x.y"}}, ["a", "ExternalName", "<none>", "x.y", "<none>", AGE, "<none>"]),
        (Service, {"spec": {"type": "LoadBalancer"}}, ["a", "LoadBalancer", "<none>", "<pending>", "<none>", AGE, "<none>"]),
        (
            Endpoints,
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{i}"} for i in range(5)], "ports": [{"port": 80}]}]},
            ["a", "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more...", AGE],
        ),
        (Endpoints, {}, ["a", "<none>", AGE]),
        (
            EndpointSlice,
            {"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.0.0.1"]}]},
            ["a", "IPv4", "80", "10.0.0.1", AGE],
        ),
        (EndpointSlice, {"addressType": "IPv4"}, ["a", "IPv4", "<unset>", "<unset>", AGE]),
        (
            Node,
            {"metadata": {**META, "labels": {"node-role.kubernetes.io/worker": ""}}, "spec": {"unschedulable": True},
             "status": {"conditions": [{"type": "Ready", "status": "False"}], "nodeInfo": {"kubeletVersion": "v1.36.0", "architecture": "amd64"},
                        "addresses": [{"type": "InternalIP", "address": "172.18.0.2"}]}},
            ["a", "NotReady,SchedulingDisabled", "worker", AGE, "v1.36.0", "172.18.0.2", "<none>", "<unknown>",
             "<unknown> (amd64)", "<unknown>"],
        ),
        (Node, {}, ["a", "Unknown", "<none>", AGE, "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]),
        (
            Event,
            {"involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{c}"}, "reason": "Started", "type": "Normal",
             "message": " Started container c\n", "source": {"component": "kubelet", "host": "n1"}, "count": 3,
             "firstTimestamp": "2026-01-02T03:00:05Z", "lastTimestamp": "2026-01-02T03:04:00Z"},
            ["5s", "Normal", "Started", "pod/web", "spec.containers{c}", "kubelet, n1", "Started container c", "4m", 3, "a"],
        ),
        (
            EventsV1Event,
            {"regarding": {"kind": "Node", "name": "n"}, "note": "m", "eventTime": "2026-01-02T03:04:04.000000Z",
             "reportingController": "c", "series": {"count": 4, "lastObservedTime": "2026-01-02T03:04:03.000000Z"}},
            ["2s", "", "", "node/n", "", "c", "m", "1s", 4, "a"],
        ),
    ],
)  # fmt: skip
def test_cells(cls: type[Message], value: dict[str, Any], wanted: list[Any]) -> None:
    assert cells(cls, value) == wanted


def status(name: str, **state: Any) -> dict[str, Any]:
    extra = {key: state.pop(key) for key in ("ready", "restartCount", "lastState", "started") if key in state}
    return {"name": name, "state": state, **extra}


RUNNING: dict[str, Any] = {"running": {}}
SPEC = {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]}


@pytest.mark.parametrize(
    ("pod", "ready", "word", "restarts"),
    [
        ({"status": {"phase": "Pending"}}, "0/2", "Pending", "0"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "0/2", "Evicted", "0"),
        (
            {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
            "0/2", "SchedulingGated", "0",
        ),
        ({"status": {"phase": "Pending", "initContainerStatuses": [status("i", **RUNNING)]}}, "0/2", "Init:0/1", "0"),
        (
            {"status": {"phase": "Pending", "initContainerStatuses": [status("i", waiting={"reason": "ImagePullBackOff"}, restartCount=2)]}},
            "0/2", "Init:ImagePullBackOff", "2",
        ),
        (
            {"status": {"phase": "Pending", "initContainerStatuses": [status("i", terminated={"exitCode": 3})]}},
            "0/2", "Init:ExitCode:3", "0",
        ),
        (
            {"status": {"phase": "Running", "initContainerStatuses": [status("i", terminated={"exitCode": 0}, restartCount=5)],
                        "containerStatuses": [status("c", ready=True, **RUNNING), status("d", ready=True, **RUNNING)]}},
            "2/2", "Running", "0",
        ),
        (
            {"status": {"phase": "Running", "containerStatuses": [
                status("c", ready=True, restartCount=1, lastState={"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:03:05Z"}}, **RUNNING),
                status("d", waiting={"reason": "CrashLoopBackOff"})]}},
            "1/2", "CrashLoopBackOff", "1 (60s ago)",
        ),
        (
            {"status": {"phase": "Running", "containerStatuses": [status("c", terminated={"exitCode": 0, "reason": "Completed"}),
                                                                 status("d", ready=True, **RUNNING)]}},
            "1/2", "NotReady", "0",
        ),
        ({"status": {"phase": "Succeeded", "containerStatuses": [status("c", terminated={"reason": "Completed"})]}}, "0/2", "Completed", "0"),
        ({"status": {"phase": "Failed", "containerStatuses": [status("c", terminated={"exitCode": 0, "signal": 9})]}}, "0/2", "Signal:9", "0"),
        ({"metadata": {**META, "deletionTimestamp": "2026-01-02T03:05:00Z"}, "status": {"phase": "Running"}}, "0/2", "Terminating", "0"),
        ({"metadata": {**META, "deletionTimestamp": "2026-01-02T03:05:00Z"}, "status": {"phase": "Running", "reason": "NodeLost"}}, "0/2", "Unknown", "0"),
    ],
)  # fmt: skip
def test_pod_words(pod: dict[str, Any], ready: str, word: str, restarts: str) -> None:
    assert cells(Pod, {"spec": SPEC, **pod})[1:4] == [ready, word, restarts]


def test_sidecars_count_as_containers() -> None:
    spec = {"containers": [{"name": "c"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]}
    pod = {
        "phase": "Running",
        "initContainerStatuses": [status("s", ready=True, started=True, restartCount=1, **RUNNING)],
        "containerStatuses": [status("c", ready=True, restartCount=2, **RUNNING)],
    }
    assert cells(Pod, {"spec": spec, "status": pod})[1:4] == ["2/2", "Running", "3"]


def test_wide_pod_cells_and_conditions() -> None:
    value = {
        "metadata": META,
        "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "x"}]},
        "status": {
            "phase": "Succeeded",
            "podIPs": [{"ip": "10.244.1.2"}],
            "conditions": [{"type": "x", "status": "True"}],
        },
    }
    made = columns.table(resources.by_message(Pod), [codec.from_dict(value, Pod)], NOW_S)
    row = made["rows"][0]
    assert row["cells"][4:] == [AGE, "10.244.1.2", "n", "<none>", "1/1"]
    assert [condition["reason"] for condition in row["conditions"]] == ["Succeeded"]


def test_kinds_without_columns_get_the_default_table() -> None:
    class Row:
        message = type(Pod().spec)
        kind = "Other"

    obj = codec.from_dict({"metadata": META}, Pod)
    made = columns.table(Row, [obj], NOW_S)
    assert [column["name"] for column in made["columnDefinitions"]] == ["Name", "Created At"]
    assert made["rows"] == [{"cells": ["a", "2026-01-02T03:00:00Z"]}]
