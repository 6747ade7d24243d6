"""A cluster file becomes the wish it says, or all of its mistakes are told at once."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from podyard.base import config, pki
from podyard.cli import wish
from podyard.cli.component import ROLES
from podyard.cluster.clusterfile import ClusterFile, parse
from podyard.cluster.enginehost import LOOPBACK
from podyard.cluster.errors import SpecError
from podyard.cluster.flags import FLAGS
from podyard.cluster.settings import Settings
from podyard.cluster.spec import NodeOptions, NodeTaint, Port, Publication

NOW_S = 1_800_000_000.0
CA = pki.new_authority("company", now_s=NOW_S).certificate
HEAD = "apiVersion: podyard.io/v1alpha1\nkind: Cluster\n"


def read(name: str) -> bytes:
    if name == "nothing.crt":
        raise FileNotFoundError(2, "No such file or directory")
    return {"company-ca.crt": b"a remark\n" + CA + CA, "key.pem": b"-----BEGIN PRIVATE KEY-----"}[name]


def parsed(text: str) -> ClusterFile:
    return parse(text, where="lab.yaml", read=read)


def mistakes(text: str) -> list[str]:
    with pytest.raises(SpecError) as refused:
        parsed(text)
    assert "nothing was made" in refused.value.hint
    first, *lines = str(refused.value).splitlines()
    assert first.startswith("lab.yaml is ")
    return [line.strip() for line in lines]


def test_what_the_help_shows_is_read():
    found = parsed(wish.EXAMPLE)
    assert (found.name, found.nodes) == ("lab", 3)
    taint = NodeTaint("dedicated", "NoSchedule", "gpu")
    second = NodeOptions((("zone", "b"),), (taint,))
    assert found.settings == Settings(
        etcd_members=3,
        schedulers=2,
        node_options=(NodeOptions((("zone", "a"),)), second, second),
        flags={"scheduler": {"log_level": "debug"}},
        publish=(Publication(1, Port(30080, 8080, "tcp", LOOPBACK)),),
        # Once, without what else the file has.
        extra_cas=(CA.decode(),),
    )


def test_what_is_not_said_has_its_default():
    assert parsed(HEAD) == ClusterFile(None, None, Settings())
    assert parsed(HEAD + "nodes: 4").nodes == 4
    assert parsed(HEAD + "nodes: []").nodes == 0
    assert parsed(HEAD + "nodes: [{}, ]").settings.node_options == (NodeOptions(),)


def test_flags_that_settings_keep_are_settings():
    told = "components: {apiserver: {default_toleration_s: 7}, controllerManager: {node_grace_s: 15}}"
    assert parsed(HEAD + told).settings == Settings(toleration_s=7, node_grace_s=15.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [
            "apiVersion: Required value: must be podyard.io/v1alpha1",
            "kind: Required value: must be Cluster"]),
        (HEAD + "nodes: many", ['nodes: Invalid value: "many": must be a whole number from 0 to 500']),
        (HEAD + "nodes: 501", ["nodes: Invalid value: 501: must be a whole number from 0 to 500"]),
        (HEAD + "nodes: [{count: 400}, {count: 400}]", [
            "nodes: Invalid value: 800: must be 500 at most, all counts together"]),
        (HEAD + "nodes: [{lables: {}}]", [
            "nodes[0].lables: unknown field; known here: count, labels, taints; did you mean labels?"]),
        (HEAD + "nodes: [{taints: [{key: a, effect: Foo}]}]", [
            'nodes[0].taints[0].effect: Unsupported value: "Foo": supported values: '
            '"NoExecute", "NoSchedule", "PreferNoSchedule"']),
        (HEAD + "nodes: [{taints: [{key: a}]}]", ["nodes[0].taints[0].effect: Required value"]),
        (HEAD + "nodes: [{labels: {zone: 1}}]", [
            "nodes[0].labels.zone: Invalid value: 1: must be a string; put it in quotes"]),
        (HEAD + "controlPlane: {etcd: 2, apiservers: 2, schedulers: 0}", [
            'controlPlane.etcd: Unsupported value: 2: supported values: "1", "3", "5"',
            "controlPlane.apiservers: Invalid value: 2: must be 1",
            "controlPlane.schedulers: Invalid value: 0: must be a whole number from 1 to 5"]),
        (HEAD + "components: {scheduler: {log-level: debug}}", [
            "components.scheduler.log-level: unknown field; known here: leader_elect, log_level, "
            "scheduler_name; did you mean log_level?"]),
        (HEAD + "components: {etcd: {}}", [
            "components.etcd: unknown field; known here: apiserver, controllerManager, kubelet, proxy, "
            "scheduler"]),
        (HEAD + "components: {kubelet: {log_level: loud}}", [
            'components.kubelet.log_level: Unsupported value: "loud": supported values: '
            '"debug", "error", "info", "warning"']),
        (HEAD + "components: {controllerManager: {node_grace_s: 5, leader_elect: 1}}", [
            "components.controllerManager.node_grace_s: Invalid value: 5: must be a number of at least 12",
            "components.controllerManager.leader_elect: Invalid value: 1: must be true or false"]),
        (HEAD + "nodes: 1\npublish: [{node: 2, hostPort: 0, protocol: SCTP, listenAddress: here}]", [
            "publish[0].node: Invalid value: 2: must be 1",
            'publish[0].protocol: Unsupported value: "SCTP": supported values: "TCP", "UDP"',
            'publish[0].listenAddress: Invalid value: "here": must be a valid IP address, (e.g. 10.9.8.7 or '
            "2001:db8::ffff)",
            "publish[0].containerPort: Required value",
            "publish[0].hostPort: Invalid value: 0: must be a whole number from 1 to 65535"]),
        (HEAD + "publish: [{containerPort: 1, hostPort: 2}, {containerPort: 3, hostPort: 2}]", [
            'publish[1].hostPort: Duplicate value: "127.0.0.1:2/tcp"']),
        (HEAD + "extraCAs: [nothing.crt, key.pem, 5]", [
            'extraCAs[0]: Invalid value: "nothing.crt": cannot be read: No such file or directory',
            'extraCAs[1]: Invalid value: "key.pem": must be a file with certificates in PEM',
            "extraCAs[2]: Invalid value: 5: must be a string; put it in quotes",
            "extraCAs[2]: Required value: a file with certificates in PEM"]),
        (HEAD + "name: Lab\nnodes: -1", [
            "name: Invalid value: \"Lab\": must be lower-case letters, digits and '-' (not at the ends), "
            "a letter first, 32 at most",
            "nodes: Invalid value: -1: must be a whole number from 0 to 500"]),
        (HEAD + "name: bridge", [
            "name: Invalid value: \"bridge\": must not be the name of one of the engine's own networks"]),
        (HEAD + "kind: Cluster", ['line 3: key "kind" already set in map']),
    ],
)  # fmt: skip
def test_mistakes(text, expected):
    assert mistakes(text) == expected


@pytest.mark.parametrize(
    ("label", "fits"),
    [
        ("zone", True),
        ("example.com/kubernetes.io", True),
        ("notkubernetes.io/a", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/pool", True),
        ("a.node.kubernetes.io/pool", True),
        ("node-role.kubernetes.io/infra", False),
        ("kubernetes.io/made-up", False),
        ("k8s.io/a", False),
    ],
)
def test_a_node_gives_itself_only_labels_that_a_kubelet_may(label, fits):
    text = HEAD + f"nodes: [{{labels: {{{label}: x}}}}]"
    if fits:
        assert parsed(text).settings.node_options[0].labels == ((label, "x"),)
    else:
        (line,) = mistakes(text)
        assert line.startswith(f'nodes[0].labels: Invalid value: "{label}": a node cannot give itself')
        assert "podyard kubectl label nodes" in line


def test_text_that_is_no_yaml_or_no_mapping():
    with pytest.raises(SpecError, match=r"lab\.yaml holds no mapping"):
        parsed("- a")
    with pytest.raises(SpecError, match=r"lab\.yaml is no YAML: yaml: line 2: "):
        parsed("a: [1\nb: }")


@pytest.mark.slow
@pytest.mark.parametrize("component", list(FLAGS))
def test_every_flag_is_one_of_the_component(component):
    role = {"controllerManager": "controller-manager"}.get(component, component)
    cls = importlib.import_module(ROLES[role]).Config
    tls = {"ca": "", "cert": "", "key": ""}
    own = {"name": "x", "tls": tls}
    own |= {"etcd": {"endpoints": [], "tls": tls}} if role == "apiserver" else {"apiservers": []}
    own |= {"serving": tls} if role == "kubelet" else {}
    for name, flag in FLAGS[component].items():
        default = getattr(config.build(cls, own, "defaults"), name)
        assert isinstance(default, flag.kind), name
        assert not flag.choices or default in flag.choices


def test_settings_are_kept_as_they_are(tmp_path: Path):
    settings = parsed(wish.EXAMPLE).settings
    kept = yaml.safe_load(yaml.safe_dump(settings.plain()))
    assert Settings.from_plain(kept) == settings
    assert Settings.from_plain({"node_grace_s": 15, "toleration_s": 5}) == Settings(15.0, 5)
    # A node that is taken away takes with it what was said of it.
    assert settings.fitting(1).node_options == settings.node_options[:1]
    assert settings.fitting(0).publish == ()


@pytest.mark.parametrize("more", ["---\nnodes: 5", "...\n---\na", "---\n---\n[1]"])
def test_further_documents_are_not_dropped_in_silence(more):
    with pytest.raises(SpecError, match=r"lab\.yaml holds several documents"):
        parse(f"{HEAD}{more}", where="lab.yaml", read=lambda _: b"")


@pytest.mark.parametrize("more", ["", "---\n", "...\n", "---\n# the end\n"])
def test_an_empty_document_says_nothing(more):
    assert parse(f"---\n{HEAD}{more}", where="lab.yaml", read=lambda _: b"").nodes is None


def test_a_later_document_that_is_no_yaml_is_told():
    with pytest.raises(SpecError, match=r"lab\.yaml is no YAML"):
        parse(f"{HEAD}---\n{{", where="lab.yaml", read=lambda _: b"")
