"""Every component answers for its health and metrics on its port, and stands for leader where it must."""

from __future__ import annotations

import pytest

from tests.cluster.support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# (container, URL, credential needed)
ENDPOINTS = [
    ("apiserver-1", "https://localhost:6443", ("/healthz", "/livez", "/readyz")),
    ("scheduler-1", "https://localhost:10259", ("/healthz", "/livez", "/readyz", "/metrics")),
    ("controller-manager-1", "https://localhost:10257", ("/healthz", "/livez", "/readyz", "/metrics")),
    ("worker-1", "http://localhost:10248", ("/healthz", "/readyz", "/metrics")),
    ("worker-1", "http://localhost:10249", ("/healthz", "/metrics")),
    ("worker-1", "http://localhost:10256", ("/healthz",)),
]


@pytest.mark.parametrize(("part", "url", "paths"), ENDPOINTS, ids=lambda value: str(value).rpartition(":")[2])
def test_health_and_metrics(cluster: Cluster, part: str, url: str, paths: tuple[str, ...]) -> None:
    for path in paths:

        def well(path: str = path) -> bool:
            # What curl says of a refusal is no answer.
            body = cluster.run_in(part, "curl", "-fsSk", "-m", "5", url + path, check=False)
            return "python_info" in body or "process_" in body if path == "/metrics" else body == "ok"

        cluster.eventually(well, f"{part} {path}")


def test_the_api_servers_metrics_need_a_credential(cluster: Cluster) -> None:
    refused = cluster.run_in("apiserver-1", "curl", "-sk", "-m", "5", "https://localhost:6443/metrics")
    assert '"reason":"Unauthorized"' in refused
    assert "apiserver_request_duration_seconds" in cluster.kubectl("get", "--raw", "/metrics").stdout


def test_scheduler_and_controller_manager_hold_their_leases(cluster: Cluster) -> None:
    for name in ("kube-scheduler", "kube-controller-manager"):
        # Who has just started stands for leader while the cluster is said to be up.
        path = ("get", "lease", name, "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")
        holder = f"{cluster.name}-{name.removeprefix('kube-')}-1_"
        cluster.eventually(
            lambda path=path, holder=holder: cluster.kubectl(*path, check=False).stdout.startswith(holder),
            f"a holder of {name}",
        )
        lease = cluster.get("lease", name, "-n", "kube-system")
        assert lease["spec"]["leaseDurationSeconds"] == 15


def test_every_node_renews_its_lease(cluster: Cluster) -> None:
    for number in (1, 2):
        name = f"{cluster.name}-worker-{number}"
        lease = cluster.get("lease", name, "-n", "kube-node-lease")
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert lease["metadata"]["ownerReferences"][0]["name"] == name
        before = lease["spec"]["renewTime"]
        cluster.eventually(
            lambda name=name, before=before: (
                cluster.get("lease", name, "-n", "kube-node-lease")["spec"]["renewTime"] != before
            ),
            f"renewal of {name}",
        )


def test_system_objects_are_there(cluster: Cluster) -> None:
    names = {item["metadata"]["name"] for item in cluster.get("namespaces")["items"]}
    assert names >= {"default", "kube-node-lease", "kube-public", "kube-system"}
    classes = {item["metadata"]["name"]: item["value"] for item in cluster.get("priorityclasses")["items"]}
    assert classes["system-node-critical"] == 2_000_001_000
    assert classes["system-cluster-critical"] == 2_000_000_000
    service = cluster.get("service", "kubernetes")
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    endpoints = cluster.get("endpoints", "kubernetes")
    address = cluster.run_in("apiserver-1", "hostname", "-i").strip()
    assert endpoints["subsets"][0]["addresses"][0]["ip"] == address
    slices = cluster.get("endpointslices", "-l", "kubernetes.io/service-name=kubernetes")
    assert slices["items"][0]["endpoints"][0]["addresses"] == [address]
    authority = (
        "get",
        "configmap",
        "kube-root-ca.crt",
        "-n",
        "kube-public",
        "-o",
        r"jsonpath={.data.ca\.crt}",
    )
    certificate = cluster.eventually(
        lambda: cluster.kubectl(*authority, check=False).stdout, "the authority's certificate"
    )
    assert certificate.startswith("-----BEGIN CERTIFICATE-----")
