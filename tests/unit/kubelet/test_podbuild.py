"""From a pod's spec to what the runtime is asked for, and a container's environment."""

from __future__ import annotations

import pytest

from kubelet.environment import container_env
from kubelet.podbuild import (
    BuildError,
    ClusterNetwork,
    HostFacts,
    container_spec,
    dns,
    expand,
    field_value,
    hostname,
    hosts_text,
    mount_specs,
    must_not_be_root,
    resource_value,
    sandbox_spec,
    verify_not_root,
)
from kubelet.runtime.base import ImageInfo
from podyard.api.types import ConfigMap, Pod, Secret, core_v1

HOST = HostFacts("node-1", "192.0.2.1", 8 << 30, 4000)
NETWORK = ClusterNetwork(("10.96.0.10",), "cluster.local", ("example.com",))


def pod(container: dict | None = None, **spec) -> Pod:
    return Pod(
        metadata={
            "name": "web",
            "namespace": "team",
            "uid": "u1",
            "labels": {"app": "web", "tier": 'a"b'},
            "annotations": {"note": "two\nlines"},
        },
        spec={
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "nginx", **(container or {})}],
            **spec,
        },
    )


def main_of(subject: Pod):
    return subject.spec.containers[0]


# Names and DNS.


@pytest.mark.parametrize(("spec", "name"), [({}, "web"), ({"hostname": "given"}, "given")])
def test_the_host_name(spec, name):
    assert hostname(pod(**spec)) == name


def test_a_long_host_name_is_cut_where_it_may_be():
    subject = pod()
    subject.metadata.name = "a" * 62 + "-" + "b" * 20
    assert hostname(subject) == "a" * 62


@pytest.mark.parametrize(
    ("spec", "servers", "searches", "options"),
    [
        (
            {},
            ("10.96.0.10",),
            ("team.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"),
            ("ndots:5",),
        ),
        ({"hostNetwork": True}, ("10.96.0.10",), ("example.com",), ()),
        (
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            ("10.96.0.10",),
            ("team.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"),
            ("ndots:5",),
        ),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["192.0.2.53"],
                    "searches": ["x.org"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
            },
            ("192.0.2.53",),
            ("x.org",),
            ("ndots:2", "edns0"),
        ),
        (
            {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}},
            ("10.96.0.10",),
            ("team.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"),
            ("ndots:1",),
        ),
    ],
)
def test_resolv_conf(spec, servers, searches, options):
    assert dns(pod(**spec), NETWORK) == (servers, searches, options)


def test_the_sandbox_has_the_pods_host_ports_groups_and_namespaces():
    subject = pod(
        {"ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]},
        securityContext={
            "fsGroup": 7,
            "supplementalGroups": [5],
            "sysctls": [{"name": "net.x", "value": "1"}],
        },
        shareProcessNamespace=True,
    )
    spec = sandbox_spec(subject, 2, NETWORK)
    assert spec.port_mappings == (("TCP", 80, 8080, ""),)
    assert (spec.attempt, spec.supplemental_groups, spec.sysctls) == (2, (5, 7), {"net.x": "1"})
    assert spec.share_processes
    assert spec.log_directory == "/var/log/pods/team_web_u1"
    assert spec.cgroup_parent == "/kubepods/besteffort/podu1"


def test_hosts_of_a_pod_of_its_own_network():
    subject = pod(hostAliases=[{"ip": "192.0.2.9", "hostnames": ["a.local", "b.local"]}])
    lines = hosts_text(subject, ("10.244.0.2",), "cluster.local", "unseen").splitlines()
    assert lines[:2] == ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
    assert lines[-4:] == [
        "10.244.0.2\tweb",
        "",
        "# Entries added by HostAliases.",
        "192.0.2.9\ta.local\tb.local",
    ]
    named = hosts_text(pod(subdomain="sub"), ("10.244.0.2",), "cluster.local", "")
    assert named.endswith("10.244.0.2\tweb.sub.team.svc.cluster.local\tweb\n")


def test_hosts_of_a_pod_in_the_nodes_network():
    text = hosts_text(pod(hostNetwork=True), ("192.0.2.1",), "cluster.local", "127.0.0.1 localhost\n")
    assert text == "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"


# Expansion.


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$(A", "$(A"),
        ("$A $", "$A $"),
        ("$$$(A)", "$1"),
    ],
)
def test_references_are_expanded(text, expanded):
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_command_and_arguments_are_expanded():
    subject = pod({"command": ["run", "$(A)"], "args": ["$$(A)"]})
    spec = container_spec(subject, main_of(subject), attempt=1, env={"A": "1"}, mounts=(), host=HOST)
    assert (spec.command, spec.args, spec.log_path) == (("run", "1"), ("$(A)",), "main/1.log")


# Downward values.


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'app="web"\ntier="a\\"b"'),
        ("metadata.annotations", 'note="two\\nlines"'),
        ("spec.nodeName", "node-1"),
        ("status.hostIP", "192.0.2.1"),
        ("status.podIP", "10.244.0.2"),
        ("status.podIPs", "10.244.0.2"),
    ],
)
def test_fields(path, value):
    assert field_value(pod(), path, HOST, ("10.244.0.2",)) == value


def test_a_field_that_is_none():
    with pytest.raises(BuildError, match=r"unsupported fieldPath: spec\.x"):
        field_value(pod(), "spec.x", HOST, ())


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", "", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", "", "1"),
        ("limits.memory", "", str(8 << 30)),
        ("limits.memory", "1Mi", str(8 << 10)),
        ("requests.memory", "", "0"),
    ],
)
def test_resources_round_up_and_limits_fall_back_to_the_node(resource, divisor, value):
    subject = pod(
        {"resources": {"limits": {"cpu": {"string": "1500m"}}, "requests": {"cpu": {"string": "250m"}}}}
    )
    selector = core_v1.ResourceFieldSelector(
        resource=resource, divisor={"string": divisor} if divisor else None
    )
    assert resource_value(subject, main_of(subject), selector, HOST) == value


# Mounts.

PATHS = {"v": "/pods/u1/v", "c": "/pods/u1/c"}
VOLUMES = [
    {"name": "v", "volumeSource": {"emptyDir": {}}},
    {"name": "c", "volumeSource": {"configMap": {"localObjectReference": {"name": "conf"}}}},
]


def mounts(*wanted: dict, env: dict | None = None):
    subject = pod({"volumeMounts": wanted}, volumes=VOLUMES)
    return mount_specs(subject, main_of(subject), PATHS, env or {})


def test_volumes_of_the_cluster_are_read_only_whatever_the_mount_says():
    (empty, _), (config, _), (given, _) = mounts(
        {"name": "v", "mountPath": "/v"},
        {"name": "c", "mountPath": "/c"},
        {"name": "v", "mountPath": "/r", "readOnly": True},
    )
    assert (empty.readonly, config.readonly, given.readonly) == (False, True, True)
    assert (empty.host_path, empty.container_path) == ("/pods/u1/v", "/v")


def test_parts_of_volumes():
    (_, plain), (_, expanded) = mounts(
        {"name": "v", "mountPath": "/a", "subPath": "x/y"},
        {"name": "v", "mountPath": "/b", "subPathExpr": "$(NAME)/z"},
        env={"NAME": "web"},
    )
    assert (plain, expanded) == ("x/y", "web/z")


@pytest.mark.parametrize(
    "mount",
    [
        {"name": "v", "mountPath": "/a", "subPath": "../x"},
        {"name": "v", "mountPath": "/a", "subPathExpr": "$(UP)"},
        {"name": "v", "mountPath": "/a", "subPathExpr": "$(ROOT)"},
        {"name": "none", "mountPath": "/a"},
    ],
)
def test_mounts_that_are_refused(mount):
    with pytest.raises(BuildError):
        mounts(mount, env={"UP": "a/../../b", "ROOT": "/etc"})


# Users.


@pytest.mark.parametrize(
    ("context", "image", "text"),
    [
        ({}, ImageInfo("i", (), 1), "container has runAsNonRoot and image will run as root"),
        ({}, ImageInfo("i", (), 1, uid=0), "container has runAsNonRoot and image will run as root"),
        ({}, None, "container has runAsNonRoot and image will run as root"),
        (
            {},
            ImageInfo("i", (), 1, user="www"),
            r"image has non-numeric user \(www\), cannot verify user is non-root",
        ),
        ({"runAsUser": 0}, ImageInfo("i", (), 1, uid=7), "container's runAsUser breaks non-root policy"),
    ],
)
def test_what_must_not_be_root_is_refused(context, image, text):
    subject = pod({"securityContext": {"runAsNonRoot": True, **context}})
    assert must_not_be_root(subject, main_of(subject))
    with pytest.raises(BuildError, match=text + r".*pod: \"web_team\(u1\)\", container: main"):
        verify_not_root(subject, main_of(subject), image)


def test_users_that_are_not_root_pass():
    by_image = pod({"securityContext": {"runAsNonRoot": True}})
    verify_not_root(by_image, main_of(by_image), ImageInfo("i", (), 1, uid=1000))
    by_pod = pod(securityContext={"runAsNonRoot": True, "runAsUser": 5})
    assert must_not_be_root(by_pod, main_of(by_pod))
    verify_not_root(by_pod, main_of(by_pod), None)
    overruled = pod({"securityContext": {"runAsNonRoot": False}}, securityContext={"runAsNonRoot": True})
    assert not must_not_be_root(overruled, main_of(overruled))


# Environment.


OBJECTS = {
    (ConfigMap, "conf"): ConfigMap(metadata={"name": "conf"}, data={"a": "1", "b": "2"}),
    (Secret, "keys"): Secret(metadata={"name": "keys"}, data={"k": b"s3cret"}),
}


async def env_of(container: dict) -> dict[str, str]:
    async def lookup(kind, namespace, name):
        assert namespace == "team"
        return OBJECTS.get((kind, name))

    subject = pod(container)
    return await container_env(subject, main_of(subject), HOST, ("10.244.0.2",), lookup)


def reference(kind: str, name: str, key: str, **more) -> dict:
    return {"valueFrom": {kind: {"localObjectReference": {"name": name}, "key": key, **more}}}


async def test_the_environment_in_order_later_entries_win():
    env = await env_of(
        {
            "envFrom": [
                {"prefix": "C_", "configMapRef": {"localObjectReference": {"name": "conf"}}},
                {"secretRef": {"localObjectReference": {"name": "keys"}}},
            ],
            "env": [
                {"name": "C_a", "value": "mine"},
                {"name": "SEEN", "value": "$(C_a)-$(C_b)-$(LATER)"},
                {"name": "LATER", "value": "x"},
                {"name": "KEY", **reference("secretKeyRef", "keys", "k")},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
        }
    )
    assert env == {
        "C_a": "mine",
        "C_b": "2",
        "k": "s3cret",
        "SEEN": "mine-2-$(LATER)",
        "LATER": "x",
        "KEY": "s3cret",
        "NODE": "node-1",
    }


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (reference("configMapKeyRef", "none", "a"), 'configmap "none" not found'),
        (reference("secretKeyRef", "none", "a"), 'secret "none" not found'),
        (reference("configMapKeyRef", "conf", "x"), "couldn't find key x in ConfigMap team/conf"),
        (reference("secretKeyRef", "keys", "x"), "couldn't find key x in Secret team/keys"),
    ],
)
async def test_what_is_missing_is_said_and_may_be_optional(entry, text):
    with pytest.raises(BuildError) as caught:
        await env_of({"env": [{"name": "X", **entry}]})
    assert str(caught.value) == text
    for source in entry["valueFrom"].values():
        source["optional"] = True
    assert await env_of({"env": [{"name": "X", **entry}]}) == {}
