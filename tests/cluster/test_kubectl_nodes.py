"""kubectl on what is in no namespace: nodes closed, tainted and drained, certificate requests answered."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.kubectls import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def node(kubectl: Kubectl) -> Iterator[str]:
    """A node that the test may close and taint; open and clean afterwards."""
    name = f"{kubectl.cluster.name}-worker-2"
    # What a test before closed, the controller opens again a moment after.
    kubectl.cluster.eventually(lambda: kubectl.path(f"node/{name}", ".spec.taints") == "", "no taints")
    yield name
    kubectl.run("uncordon", name)
    kubectl.call("taint", "node", name, "role-")
    kubectl.run("label", "node", name, "disk-")


def test_cordon_and_uncordon(kubectl: Kubectl, node: str) -> None:
    assert kubectl.run("cordon", node) == f"node/{node} cordoned\n"
    assert kubectl.run("cordon", node) == f"node/{node} already cordoned\n"
    assert kubectl.run("get", "node", node, "--no-headers").split()[1] == "Ready,SchedulingDisabled"
    taint = '.spec.taints[?(@.key=="node.kubernetes.io/unschedulable")].effect'
    kubectl.run("wait", f"--for=jsonpath={{{taint}}}=NoSchedule", f"node/{node}", "--timeout=30s")
    assert kubectl.run("uncordon", node) == f"node/{node} uncordoned\n"
    assert kubectl.run("get", "node", node, "--no-headers").split()[1] == "Ready"


def test_taint(kubectl: Kubectl, node: str) -> None:
    assert kubectl.run("taint", "node", node, "role=db:NoSchedule") == f"node/{node} tainted\n"
    refused = kubectl.run("taint", "node", node, "role=web:NoSchedule", code=1)
    assert refused == (
        f"error: node {node} already has role taint(s) with same effect(s) and --overwrite is false\n"
    )
    modified = kubectl.run("taint", "node", node, "role=web:NoSchedule", "--overwrite")
    assert modified == f"node/{node} modified\n"
    kubectl.run("label", "node", node, "disk=fast")
    kubectl.run("taint", "nodes", "-l", "disk=fast", "role=web:PreferNoSchedule")
    taints = json.loads(kubectl.path(f"node/{node}", ".spec.taints"))
    assert sorted((item["key"], item["value"], item["effect"]) for item in taints) == [
        ("role", "web", "NoSchedule"),
        ("role", "web", "PreferNoSchedule"),
    ]
    assert "role=web:NoSchedule" in kubectl.run("describe", "node", node)
    assert kubectl.run("taint", "node", node, "role:NoSchedule-") == f"node/{node} untainted\n"
    assert kubectl.run("taint", "node", node, "role-") == f"node/{node} untainted\n"
    assert kubectl.path(f"node/{node}", ".spec.taints") == ""
    assert kubectl.run("taint", "node", node, "role-", code=1) == 'error: taint "role" not found\n'


def test_a_nodes_capacity_by_a_patch_of_its_status(kubectl: Kubectl, node: str) -> None:
    """As the documentation of extended resources does it: the kubelet keeps it, and gives it to pods."""
    merge = ("patch", "node", node, "--subresource=status", "--type=merge", "-p")
    kubectl.run(*merge, '{"status":{"capacity":{"example.com/dongle":"4"}}}')
    given = r"--for=jsonpath={.status.allocatable.example\.com/dongle}=4"
    kubectl.run("wait", given, f"node/{node}", "--timeout=60s")
    assert kubectl.path(f"node/{node}", r".status.capacity.example\.com/dongle") == "4"
    assert kubectl.path(f"node/{node}", ".status.capacity.pods") == "110"
    kubectl.run(*merge, '{"status":{"capacity":{"example.com/dongle":null}}}')


def test_drain_evicts_and_says_what_it_may_not(kubectl: Kubectl, node: str) -> None:
    """In depth: test_drain.py."""
    here = {"spec": {"nodeName": node, "terminationGracePeriodSeconds": 1}}
    kubectl.run("run", "alone", "--image=nginx", f"--overrides={json.dumps(here)}", "-l", "app=drained")
    kubectl.run("create", "deployment", "drained", "--image=nginx")
    kubectl.run("wait", "--for=condition=Ready", "pod/alone", "--timeout=60s")
    kubectl.run("rollout", "status", "deployment/drained", "--timeout=60s")
    refused = kubectl.run("drain", node, "--dry-run=client", code=1)
    assert "cannot delete Pods that declare no controller (use --force to override)" in refused
    assert f"{kubectl.namespace}/alone" in refused
    output, warned = kubectl.both("drain", node, "--dry-run=server", "--force", "--pod-selector=app=drained")
    assert f"evicting pod {kubectl.namespace}/alone (server dry run)\n" in output
    assert f"deleting Pods that declare no controller: {kubectl.namespace}/alone" in warned
    assert kubectl.run("get", "node", node, "--no-headers").split()[1] == "Ready"
    drained = kubectl.run("drain", node, "--force", "--pod-selector=app=drained", "--timeout=90s")
    assert drained.splitlines()[0] == f"node/{node} cordoned"
    assert drained.splitlines()[-1] == f"node/{node} drained"
    assert "pod/alone evicted\n" in drained
    assert 'pods "alone" not found' in kubectl.run("get", "pod", "alone", code=1)
    kubectl.run("rollout", "status", "deployment/drained", "--timeout=60s")

    def places() -> list[str]:
        return kubectl.path("pods", ".items[*].spec.nodeName").split()

    # The Deployment may be said to be rolled out still, when its pod has just gone.
    other = f"{kubectl.cluster.name}-worker-1"
    kubectl.cluster.eventually(lambda: places() == [other], "the pod to be on the other node")


def request_of(common_name: str) -> str:
    """A certificate request in PEM, base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def test_certificate_requests_are_approved_and_denied(kubectl: Kubectl) -> None:
    """Nothing signs what is approved yet."""
    names = {verb: f"{kubectl.namespace}-{verb}" for verb in ("approve", "deny")}
    for name in names.values():
        signed_by = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
        kubectl.run(
            "create", "-f", "-",
            input={
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": name},
                "spec": {"request": request_of(name), **signed_by},
            },
        )  # fmt: skip
    rows = [line.split() for line in kubectl.run("get", "csr", "--no-headers", *names.values()).splitlines()]
    assert [(row[2], row[3], row[-1]) for row in rows] == [
        ("kubernetes.io/kube-apiserver-client", "kubernetes-admin", "Pending")
    ] * 2
    for verb, word in (("approve", "Approved"), ("deny", "Denied")):
        name = names[verb]
        said = kubectl.run("certificate", verb, name)
        assert said == f"certificatesigningrequest.certificates.k8s.io/{name} {word.lower()}\n"
        assert kubectl.run("get", "csr", name, "--no-headers").split()[-1] == word
        other = "deny" if verb == "approve" else "approve"
        refused = kubectl.run("certificate", other, name, code=1)
        assert refused == f'error: certificate signing request "{name}" is already {word}\n'
        condition = kubectl.json("get", "csr", name)["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == (word, f"Kubectl{verb.title()}")
    assert "Common Name:" in kubectl.run("describe", "csr", names["approve"])
    kubectl.run("delete", "csr", *names.values())
