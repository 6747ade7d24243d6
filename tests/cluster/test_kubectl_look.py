"""kubectl's verbs that look: get, describe, events, explain, api-resources, auth, config, top and more."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from podyard.api import resources
from tests.cluster.kubectls import Kubectl
from tests.cluster.samples import pod

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def web(kubectl: Kubectl) -> str:
    """A running pod of one container."""
    kubectl.run("create", "-f", "-", input=pod("web"))
    kubectl.run("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    return "web"


def test_get_in_every_form(kubectl: Kubectl, web: str) -> None:
    head, row = kubectl.run("get", "pods").splitlines()
    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == [web, "1/1", "Running", "0"]
    head, row = kubectl.run("get", "pods", "-o", "wide").splitlines()
    assert head.split()[5:7] == ["IP", "NODE"]
    value = kubectl.json("get", "pod", web)
    assert row.split()[5:7] == [value["status"]["podIP"], value["spec"]["nodeName"]]
    assert "kind: Pod\n" in kubectl.run("get", "pod", web, "-o", "yaml")
    assert kubectl.run("get", "pod", web, "-o", "name") == f"pod/{web}\n"
    assert kubectl.run("get", "pods", "--server-print=false").splitlines()[0].split() == ["NAME", "AGE"]
    assert kubectl.run("get", "pods", "-L", "app", "--no-headers").split()[-1] == web
    assert kubectl.run("get", "pods", "--show-labels").splitlines()[1].endswith("app=web")
    everywhere = kubectl.run("get", "pods", "-A").splitlines()
    assert everywhere[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert any(line.split()[:2] == [kubectl.namespace, web] for line in everywhere)
    if kubectl.minor > 32:  # 1.32 has no KYAML
        assert kubectl.run("get", "pod", web, "-o", "kyaml").startswith('---\n{\n  apiVersion: "v1",\n')


def test_get_by_templates(kubectl: Kubectl, web: str) -> None:
    assert kubectl.run("get", "pod", web, "-o", "jsonpath={.status.phase}") == "Running"
    listed = kubectl.run("get", "pods", "-o", 'jsonpath={range .items[*]}{.metadata.name}{"\\t"}{end}')
    assert listed == f"{web}\t"
    assert json.loads(kubectl.run("get", "pods", "-o", "jsonpath-as-json={.items[*].metadata.name}")) == [web]
    assert kubectl.run("get", "pods", "-o", "go-template={{len .items}}") == "1"
    columns = kubectl.run("get", "pods", "-o", "custom-columns=N:.metadata.name,P:.status.phase")
    assert [line.split() for line in columns.splitlines()] == [["N", "P"], [web, "Running"]]
    columns = kubectl.run("get", "pods", "-o", "custom-columns=N:.metadata.name", "--no-headers")
    assert columns.split() == [web]
    file = kubectl.file("columns", "NAME IMAGE\n.metadata.name .spec.containers[*].image\n")
    assert "busybox" in kubectl.run("get", "pods", "-o", f"custom-columns-file={file}").splitlines()[1]


def test_get_what_is_selected(kubectl: Kubectl, web: str) -> None:
    names = ("get", "pods", "-o", "name")
    assert kubectl.run(*names, "-l", "app=web") == f"pod/{web}\n"
    assert kubectl.run(*names, "-l", "app in (web,x),!none") == f"pod/{web}\n"
    assert kubectl.run(*names, "-l", "app notin (web)") == ""
    assert kubectl.run(*names, "--field-selector", "status.phase=Running,metadata.name!=x") == f"pod/{web}\n"
    assert kubectl.run(*names, "--field-selector", "status.phase!=Running") == ""
    assert kubectl.run("get", "pods", "--sort-by=.metadata.name", "--chunk-size=1").count(web) == 1
    whole = kubectl.run("get", "all")
    assert "pod/web" in whole
    file = kubectl.file("web.json", pod("web"))
    assert kubectl.run("get", "-f", file, "-o", "name") == f"pod/{web}\n"
    both = kubectl.run("get", "pod/web", "serviceaccount/default", "-o", "name")
    assert both == "pod/web\nserviceaccount/default\n"
    assert kubectl.run("get", "deployments.v1.apps,pods", "-o", "name") == "pod/web\n"
    assert kubectl.both("get", "deployments") == (
        "",
        f"No resources found in {kubectl.namespace} namespace.\n",
    )


def test_get_says_what_is_wrong(kubectl: Kubectl) -> None:
    refused = kubectl.run("get", "pod", "none", code=1)
    assert refused == 'Error from server (NotFound): pods "none" not found\n'
    assert kubectl.run("get", "pod", "none", "--ignore-not-found") == ""
    refused = kubectl.run("get", "foos", code=1)
    assert refused == 'error: the server doesn\'t have a resource type "foos"\n'
    refused = kubectl.run("get", "pods", "--field-selector", "foo=bar", code=1)
    assert "field label not supported: foo" in refused
    assert "unable to parse requirement" in kubectl.run("get", "pods", "-l", "a in b", code=1)
    refused = kubectl.run("get", "--raw", "/nothing", code=1)
    assert refused == "Error from server (NotFound): the server could not find the requested resource\n"


def test_get_of_every_kind(kubectl: Kubectl) -> None:
    rows = resources.RESOURCES
    kubectl.run("get", ",".join(row.qualified for row in rows), "-A")
    kubectl.run("get", ",".join(name for row in rows for name in row.short_names), "-A", "-o", "name")


def test_get_and_watch(kubectl: Kubectl) -> None:
    kubectl.run("create", "configmap", "before", "--from-literal=a=1")
    watch = ("get", "configmaps", "-w", "--output-watch-events", "-l", "seen=yes")
    kubectl.run("label", "configmap", "before", "seen=yes")
    with kubectl.watching(*watch) as seen, kubectl.watching(*watch, "--watch-only") as later:
        seen.line_with("ADDED      before")
        # What a watch without a list shows depends on when it began: until it has seen one.
        kubectl.cluster.eventually(lambda: changed(kubectl) and later.has("MODIFIED   before"), "the watch")
        kubectl.run("label", "configmap", "before", "seen-")
        for watching in (seen, later):
            watching.line_with("DELETED    before")
        assert not later.has("ADDED")


def changed(kubectl: Kubectl) -> bool:
    number = kubectl.path("configmap/before", ".metadata.resourceVersion")
    return "labeled" in kubectl.run("label", "--overwrite", "configmap", "before", f"change=c{number}")


def test_raw_paths(kubectl: Kubectl, web: str) -> None:
    assert kubectl.run("get", "--raw", "/readyz") == "ok"
    assert kubectl.run("get", "--raw", "/livez?verbose").splitlines()[-1] == "livez check passed"
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{web}"
    assert json.loads(kubectl.run("get", "--raw", path))["metadata"]["name"] == web
    assert json.loads(kubectl.run("get", "--raw", "/version"))["minor"] == "36"
    assert json.loads(kubectl.run("get", "--raw", "/openapi/v2"))["swagger"] == "2.0"
    assert "# TYPE process_cpu_seconds_total counter" in kubectl.run("get", "--raw", "/metrics")


@pytest.fixture
def unplaced(kubectl: Kubectl) -> Iterator[str]:
    """A pod that no node takes; other tests count the pods."""
    kubectl.run("create", "-f", "-", input=pod("unplaced", nodeSelector={"no": "such"}))
    yield "unplaced"
    kubectl.run("delete", "pod", "unplaced", "--now")


def test_describe_and_events(kubectl: Kubectl, web: str, unplaced: str) -> None:
    # Events are written after what they tell of.
    started = ("get", "events", "--field-selector", f"involvedObject.name={web},reason=Started", "-o", "name")
    kubectl.cluster.eventually(lambda: kubectl.run(*started), "the last event")
    text = kubectl.run("describe", "pod", web)
    for part in ("Node:", "QoS Class:", "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s"):
        assert part in text, text
    reasons = ["Scheduled", "Pulling", "Pulled", "Created", "Started"]
    places = [text.find(f"{reason} ") for reason in reasons]
    assert -1 not in places
    assert places == sorted(places)
    said = [
        line.split() for line in kubectl.run("events", "--for", f"pod/{web}", "--no-headers").splitlines()
    ]
    assert [(line[1], line[2], line[3]) for line in said] == [
        ("Normal", reason, f"Pod/{web}") for reason in reasons
    ]
    with kubectl.watching("events", "--types=Warning", "--watch") as watching:
        _, line = watching.line_with("FailedScheduling")
    assert f"Pod/{unplaced}" in line
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector." in line
    by_field = (
        "get",
        "events",
        "--field-selector",
        f"involvedObject.name={web},reason=Started",
        "--no-headers",
    )
    assert kubectl.run(*by_field).split()[1:4] == ["Normal", "Started", f"pod/{web}"]
    node = kubectl.path("pod/web", ".spec.nodeName")
    described = kubectl.run("describe", "node", node)
    assert "Allocated resources:" in described
    assert kubectl.namespace in described
    kinds = "namespace,service,configmap,serviceaccount,role,networkpolicy,ingressclass,storageclass"
    assert f"Name:         {kubectl.namespace}\n" in kubectl.run("describe", kinds)


def test_api_resources_and_versions(kubectl: Kubectl) -> None:
    lines = kubectl.run("api-resources", "--no-headers").splitlines()
    assert {line.split()[0] for line in lines} >= {row.plural for row in resources.RESOURCES}
    assert any(line.split() == ["nodes", "no", "v1", "false", "Node"] for line in lines)
    names = kubectl.run("api-resources", "--namespaced=false", "--verbs=list,get", "-o", "name").split()
    assert {"nodes", "clusterroles.rbac.authorization.k8s.io"} <= set(names)
    assert not {"pods", "subjectaccessreviews.authorization.k8s.io"} & set(names)
    wide = kubectl.run("api-resources", "--api-group=apps", "-o", "wide", "--sort-by=name").splitlines()
    assert wide[0].split() == [
        "NAME",
        "SHORTNAMES",
        "APIVERSION",
        "NAMESPACED",
        "KIND",
        "VERBS",
        "CATEGORIES",
    ]
    assert wide[3].split() == [
        "deployments", "deploy", "apps/v1", "true", "Deployment",
        "create,delete,deletecollection,get,list,patch,update,watch", "all",
    ]  # fmt: skip
    assert {"v1", "coordination.k8s.io/v1", "events.k8s.io/v1"} <= set(kubectl.run("api-versions").split())


def test_explain(kubectl: Kubectl) -> None:
    """Types, structure, and what each means here."""
    explained = kubectl.run("explain", "pod.spec.containers.image")
    assert "KIND:       Pod\nVERSION:    v1\n" in explained
    assert "FIELD: image <string>\n" in explained
    said = " ".join(kubectl.run("explain", "pod.spec.nodeName").split())
    assert "DESCRIPTION: On which node it runs. The scheduler writes it once through the binding;" in said
    explained = kubectl.run("explain", "deployment", "--api-version=apps/v1", "--recursive")
    assert "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n" in explained
    assert "        maxSurge\t<IntOrString>\n" in explained
    assert "      enum: Recreate, RollingUpdate\n" in explained
    assert "    labels\t<map[string]string>\n" in explained
    refused = kubectl.run("explain", "pods.spec.nope", code=1)
    assert 'error: field "nope" does not exist' in refused
    old = kubectl.run("explain", "pods.spec.containers", "--output=plaintext-openapiv2")
    assert "RESOURCE: containers <[]Object>\n" in old
    assert "   ports\t<[]Object>\n" in old
    assert "DESCRIPTION:\n     What runs; at least one." in old


def test_who_one_is_and_what_one_may(kubectl: Kubectl) -> None:
    """Everybody may do everything until RBAC decides."""
    lines = [line.split(maxsplit=1) for line in kubectl.run("auth", "whoami").splitlines()]
    assert lines[1:3] == [
        ["Username", "kubernetes-admin"],
        ["Groups", "[system:masters system:authenticated]"],
    ]
    assert lines[3][0] == "Extra:"
    fingerprint = r"authentication\.kubernetes\.io/credential-id +\[X509SHA256=[0-9a-f]{64}\]"
    assert re.fullmatch(fingerprint, lines[3][1]), lines
    assert kubectl.run("auth", "can-i", "create", "deployments.apps") == "yes\n"
    assert kubectl.run("auth", "can-i", "get", "/readyz") == "yes\n"
    assert kubectl.run("auth", "can-i", "delete", "pods", "--quiet") == ""
    listed = kubectl.run("auth", "can-i", "--list").splitlines()
    assert listed[0].split() == ["Resources", "Non-Resource", "URLs", "Resource", "Names", "Verbs"]
    assert listed[1].split() == ["*.*", "[]", "[]", "[*]"]


def test_reconcile_of_roles_adds_and_removes(kubectl: Kubectl) -> None:
    def role(*verbs: str) -> dict[str, Any]:
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "known", "namespace": kubectl.namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}],
        }

    def verbs() -> list[str]:
        return [verb for rule in kubectl.json("get", "role", "known")["rules"] for verb in rule["verbs"]]

    reconcile = ("auth", "reconcile", "-f", "-")
    first = kubectl.run(*reconcile, input=role("get"))
    assert first.startswith("role.rbac.authorization.k8s.io/known reconciled\n")
    assert verbs() == ["get"]
    dry = kubectl.run(*reconcile, "--dry-run=client", input=role("list"))
    assert dry == "role.rbac.authorization.k8s.io/known reconciled (dry run)\n"
    assert verbs() == ["get"]
    _, said = kubectl.both(*reconcile, input=role("list"))
    assert "missing rules added:\n\t\t{Verbs:[list] APIGroups:[] Resources:[pods]" in said
    assert verbs() == ["get", "list"]
    _, said = kubectl.both(*reconcile, "--remove-extra-permissions", input=role("list"))
    assert "extra rules removed:\n\t\t{Verbs:[get] APIGroups:[] Resources:[pods]" in said
    assert verbs() == ["list"]


def test_config_changes_only_its_file(kubectl: Kubectl) -> None:
    cluster = f"podyard-{kubectl.cluster.name}"
    path = kubectl.folder / f"own-{kubectl.namespace}"
    shutil.copyfile(kubectl.config, path)

    def config(*arguments: str) -> str:
        return kubectl.run("config", f"--kubeconfig={path}", *arguments)

    assert config("current-context") == f"{cluster}\n"
    assert config("get-contexts", "-o", "name") == f"{cluster}\n"
    assert config("get-clusters").split() == ["NAME", cluster]
    assert config("get-users").split() == ["NAME", cluster]
    view = json.loads(config("view", "--minify", "-o", "json"))
    assert view["clusters"][0]["cluster"]["certificate-authority-data"] == "DATA+OMITTED"
    raw = json.loads(config("view", "--raw", "-o", "json"))
    assert raw["users"][0]["user"]["client-key-data"] not in ("DATA+OMITTED", "")
    assert config("set-cluster", "c", "--server=https://c.example:1") == 'Cluster "c" set.\n'
    assert config("set-credentials", "u", "--token=t") == 'User "u" set.\n'
    assert config("set-context", "o", "--cluster=c", "--user=u", "--namespace=n") == 'Context "o" created.\n'
    assert config("rename-context", "o", "other") == 'Context "o" renamed to "other".\n'
    assert config("use-context", "other") == 'Switched to context "other".\n'
    minified = json.loads(config("view", "--minify", "-o", "json"))
    assert minified["clusters"] == [{"name": "c", "cluster": {"server": "https://c.example:1"}}]
    assert config("use-context", cluster) == f'Switched to context "{cluster}".\n'
    config("set-context", "--current", f"--namespace={kubectl.namespace}")
    # Without -n, the namespace is the context's.
    made = kubectl.call("create", "configmap", "by-context", "-n", "", env={"KUBECONFIG": str(path)})
    assert made.stdout == b"configmap/by-context created\n", made
    kubectl.run("get", "configmap", "by-context")
    assert config("delete-context", "other") == f"deleted context other from {path}\n"
    assert config("delete-cluster", "c") == f"deleted cluster c from {path}\n"
    assert config("delete-user", "u") == f"deleted user u from {path}\n"
    config("set", "contexts.x.namespace", "y")
    assert config("get-contexts", "x", "--no-headers").split() == ["x", "y"]
    config("unset", "contexts.x")
    assert config("get-contexts", "-o", "name") == f"{cluster}\n"


def test_cluster_info(kubectl: Kubectl, web: str) -> None:
    said = kubectl.run("cluster-info")
    server = json.loads(kubectl.run("config", "view", "-o", "json"))["clusters"][0]["cluster"]["server"]
    assert "Kubernetes control plane" in said
    assert server in said
    folder = kubectl.folder / f"dump-{kubectl.namespace}"
    where = ("--namespaces", kubectl.namespace, f"--output-directory={folder}")
    assert kubectl.run("cluster-info", "dump", *where) == f"Cluster info dumped to {folder}\n"
    nodes = json.loads((folder / "nodes.json").read_text())["items"]
    assert len(nodes) == 2
    dumped = folder / kubectl.namespace
    assert [item["metadata"]["name"] for item in json.loads((dumped / "pods.json").read_text())["items"]] == [
        web
    ]
    assert (dumped / web / "logs.txt").exists()


def test_top_says_that_there_are_no_metrics(kubectl: Kubectl) -> None:
    assert kubectl.run("top", "nodes", code=1) == "error: Metrics API not available\n"
    assert kubectl.run("top", "pods", code=1) == "error: Metrics API not available\n"


def test_completion_against_the_cluster(kubectl: Kubectl, web: str) -> None:
    assert "__start_kubectl" in kubectl.run("completion", "bash")
    here = ("-n", kubectl.namespace)
    complete = kubectl.run("__complete", "get", *here, "pods", "w").splitlines()
    assert complete == [web, ":4"]
    complete = kubectl.run("__complete", "logs", *here, web, "").splitlines()
    assert complete[0] == "main"
    complete = kubectl.run("__complete", "get", *here, "deploy").splitlines()
    assert complete[0] == "deployments.apps"
    complete = kubectl.run("__complete", "get", "pods", "-n", "kube-p").splitlines()
    assert complete[0] == "kube-public"


def test_versions_and_options(kubectl: Kubectl) -> None:
    version = kubectl.json("version")
    assert version["serverVersion"]["gitVersion"].startswith("v1.36.0+podyard-")
    assert version["clientVersion"]["minor"] == str(kubectl.minor)
    assert f"Client Version: v1.{kubectl.minor}." in kubectl.run("version", "--client")
    assert "--kubeconfig=''" in kubectl.run("options")
    assert "unable to find any kubectl plugins in your PATH" in kubectl.run("plugin", "list", code=1)
