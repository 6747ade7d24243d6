"""kubectl's verbs that change objects: apply, diff, replace, patch, edit, label, annotate, delete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.kubectls import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOT_SERVED = "the body of the request was in an unknown format - accepted media types include"


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {"a": "1"},
    }


def deployment(name: str, app: str, **spec: Any) -> dict[str, Any]:
    """Without pods, so that nothing has to start."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
            **spec,
        },
    }


def data_of(kubectl: Kubectl, name: str) -> Any:
    return kubectl.json("get", "configmap", name)["data"]


def test_apply_changes_what_is_asked_and_no_more(kubectl: Kubectl) -> None:
    typed = config_map("typed")
    assert kubectl.run("apply", "-f", "-", input=typed) == "configmap/typed created\n"
    assert kubectl.run("apply", "-f", "-", input=typed) == "configmap/typed unchanged\n"
    kubectl.run("patch", "configmap", "typed", "--type=merge", "-p", '{"data":{"others":"stays"}}')
    changed = config_map("typed", {"b": "2"})
    assert kubectl.run("apply", "-f", "-", input=changed) == "configmap/typed configured\n"
    assert data_of(kubectl, "typed") == {"b": "2", "others": "stays"}
    dry = kubectl.run("apply", "--dry-run=server", "-f", "-", input=typed)
    assert dry == "configmap/typed configured (server dry run)\n"
    assert data_of(kubectl, "typed") == {"b": "2", "others": "stays"}
    output, warned = kubectl.both("create", "configmap", "bare")
    assert (output, warned) == ("configmap/bare created\n", "")
    output, warned = kubectl.both("apply", "-f", "-", input=config_map("bare"))
    assert output == "configmap/bare configured\n"
    assert "is missing the kubectl.kubernetes.io/last-applied-configuration annotation" in warned


def test_what_needs_server_side_apply_says_so(kubectl: Kubectl) -> None:
    """It is not served yet. The parent of a set of applied objects is written by it alone."""
    value = config_map("by-server")
    assert NOT_SERVED in kubectl.run("apply", "--server-side", "-f", "-", input=value, code=1)
    file = kubectl.file("set/one.json", value)
    prune = ("apply", "-f", file, "--prune", "--applyset=configmap/set")
    refused = kubectl.run(*prune, env={"KUBECTL_APPLYSET": "true"}, code=1)
    assert refused.startswith(f"error: failed to update ApplySet: {NOT_SERVED}")
    assert kubectl.run("get", "configmap", "by-server", "set", "--ignore-not-found") == ""


def test_what_was_applied_last(kubectl: Kubectl) -> None:
    file = kubectl.file("last.json", config_map("last", labels={"grp": "one"}))
    kubectl.run("apply", "-f", file)

    def group() -> str:
        last = json.loads(kubectl.run("apply", "view-last-applied", "configmap/last", "-o", "json"))
        assert last["data"] == {"a": "1"}
        return str(last["metadata"]["labels"]["grp"])

    assert group() == "one"
    edit = ("apply", "edit-last-applied", "configmap/last")
    assert kubectl.run(*edit, env={"EDITOR": "sed -i s/one/two/"}) == "configmap/last edited\n"
    assert group() == "two"
    assert kubectl.path("configmap/last", ".metadata.labels.grp") == "one"
    kubectl.file("last.json", config_map("last", labels={"grp": "three"}))
    assert kubectl.run("apply", "set-last-applied", "-f", file) == "configmap/last configured\n"
    assert group() == "three"
    again = kubectl.run("apply", "set-last-applied", "-f", file)
    assert again == "set-last-applied last: no changes required.\n"
    kubectl.run("create", "configmap", "never")
    refused = kubectl.run("apply", "set-last-applied", "-f", "-", input=config_map("never"), code=1)
    assert "--create-annotation" in refused


def test_apply_prunes_what_is_not_there_any_more(kubectl: Kubectl) -> None:
    label = {"pruned": kubectl.namespace}
    kubectl.run("create", "-f", "-", input=config_map("by-hand", labels=label))
    file = kubectl.file("pruned/one.json", config_map("p1", labels=label))
    two = kubectl.file("pruned/two.json", config_map("p2", labels=label))
    folder = file.removesuffix("/one.json")
    prune = ("apply", "-f", folder, "--prune", "-l", f"pruned={kubectl.namespace}")
    assert kubectl.run(*prune) == "configmap/p1 created\nconfigmap/p2 created\n"
    kubectl.file("pruned/two.json", config_map("p3", labels=label))
    other = kubectl.run(*prune, "--prune-allowlist=core/v1/Secret")
    assert other == "configmap/p1 unchanged\nconfigmap/p3 created\n"
    assert kubectl.run(*prune).splitlines() == [
        "configmap/p1 unchanged",
        "configmap/p3 unchanged",
        "configmap/p2 pruned",
    ]
    # Nobody applied this one.
    assert data_of(kubectl, "by-hand") == {"a": "1"}
    assert kubectl.run("delete", "-f", two).startswith('configmap "p3" deleted')


def test_what_cannot_be_changed_is_made_anew_by_force(kubectl: Kubectl) -> None:
    kubectl.run("apply", "-f", "-", input=deployment("stiff", "one"))
    before = kubectl.path("deployment/stiff", ".metadata.uid")
    wanted = deployment("stiff", "two")
    refused = kubectl.run("apply", "-f", "-", input=wanted, code=1)
    assert refused == (
        'The Deployment "stiff" is invalid: spec.selector: Invalid value: '
        '{"matchLabels":{"app":"two"}}: field is immutable\n'
    )
    assert kubectl.run("apply", "--force", "-f", "-", input=wanted) == "deployment.apps/stiff configured\n"
    assert kubectl.path("deployment/stiff", ".metadata.uid") != before
    between = kubectl.path("deployment/stiff", ".metadata.uid")
    replaced = kubectl.run("replace", "--force", "-f", "-", input=deployment("stiff", "three"))
    assert replaced.splitlines()[-1] == "deployment.apps/stiff replaced"
    assert kubectl.path("deployment/stiff", ".metadata.uid") != between
    assert kubectl.path("deployment/stiff", ".spec.selector.matchLabels.app") == "three"


def test_kustomizations(kubectl: Kubectl) -> None:
    kubectl.file("kus/plain.json", config_map("plain"))
    file = kubectl.file(
        "kus/kustomization.yaml",
        "namePrefix: k-\nresources: [plain.json]\nconfigMapGenerator: [{name: gen, literals: [a=b]}]\n",
    )
    folder = file.rpartition("/")[0]
    built = kubectl.run("kustomize", folder)
    assert built.count("kind: ConfigMap") == 2
    assert "  name: k-plain\n" in built
    generated = "k-gen-4h2mbtbbt6"  # the name has the hash of what is in it
    assert kubectl.run("apply", "-k", folder) == f"configmap/{generated} created\nconfigmap/k-plain created\n"
    assert kubectl.run("diff", "-k", folder) == ""
    assert data_of(kubectl, generated) == {"a": "b"}
    kubectl.file("kus/plain.json", config_map("plain", {"a": "2"}))
    assert '-  a: "1"\n+  a: "2"\n' in kubectl.both("diff", "-k", folder, code=1)[0]
    assert len(kubectl.run("delete", "-k", folder).splitlines()) == 2


def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    kubectl.run("apply", "-f", "-", input=config_map("differs"))
    assert kubectl.run("diff", "-f", "-", input=config_map("differs")) == ""
    output, _ = kubectl.both("diff", "-f", "-", input=config_map("differs", {"b": "2"}), code=1)
    lines = [line for line in output.splitlines() if line.startswith(("+ ", "- "))]
    assert {'-  a: "1"', '+  b: "2"'} <= set(lines), output
    assert not [line for line in lines if "resourceVersion" in line or "uid" in line]
    assert "+kind: ConfigMap" in kubectl.both("diff", "-f", "-", input=config_map("absent"), code=1)[0]
    assert kubectl.run("get", "configmap", "absent", "--ignore-not-found") == ""
    assert data_of(kubectl, "differs") == {"a": "1"}


def test_replace_needs_the_version_that_is_there(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", input=config_map("whole"))
    value = kubectl.json("get", "configmap", "whole")
    value["data"] = {"new": "1"}
    assert kubectl.run("replace", "-f", "-", input=value) == "configmap/whole replaced\n"
    assert data_of(kubectl, "whole") == {"new": "1"}
    assert "the object has been modified" in kubectl.run("replace", "-f", "-", input=value, code=1)
    refused = kubectl.run("replace", "-f", "-", input=config_map("missing"), code=1)
    assert 'configmaps "missing" not found' in refused
    assert kubectl.run("replace", "-f", "-", input=config_map("whole")) == "configmap/whole replaced\n"
    kubectl.run("create", "-f", "-", input=deployment("status", "status"))
    # Its controller writes the status too, so whoever replaces it reads again after a conflict.
    conflict = True
    while conflict:
        value = kubectl.json("get", "deployment", "status")
        value["spec"]["replicas"] = 3
        value["status"]["collisionCount"] = 2
        replace = ("replace", "--subresource=status", "-f", "-")
        done = kubectl.call(*replace, input=json.dumps(value).encode())
        conflict = b"the object has been modified" in done.stderr
    assert done.stdout == b"deployment.apps/status replaced\n"
    found = kubectl.json("get", "deployment", "status")
    assert (found["spec"]["replicas"], found["status"]["collisionCount"]) == (0, 2)
    del value["status"]["collisionCount"]
    del value["metadata"]["resourceVersion"]
    refused = kubectl.run("replace", "--subresource=status", "-f", "-", input=value, code=1)
    assert 'status.collisionCount: Invalid value: "null": cannot be decremented' in refused


def test_patches_of_every_type(kubectl: Kubectl) -> None:
    file = kubectl.file("patched.json", deployment("patched", "patched"))
    kubectl.run("create", "-f", file)
    add = {"spec": {"template": {"spec": {"containers": [{"name": "more", "image": "busybox"}]}}}}
    patched = kubectl.run("patch", "deployment", "patched", "-p", json.dumps(add))
    assert patched == "deployment.apps/patched patched\n"
    names = ".spec.template.spec.containers[*].name"
    # Strategic: containers are merged by their names; the new one goes first.
    assert set(kubectl.path("deployment/patched", names).split()) == {"main", "more"}
    kubectl.run("patch", "-f", file, "--type=merge", "-p", json.dumps(add))
    assert kubectl.path("deployment/patched", names) == "more"
    # kubectl compares what was there before and after: the controller may write the status in between.
    same = ("patch", "deployment", "patched", "--type=merge", "-p", json.dumps(add))
    unchanged = "deployment.apps/patched patched (no change)\n"
    kubectl.cluster.eventually(lambda: kubectl.run(*same) == unchanged, "a patch that changes nothing")
    containers = "/spec/template/spec/containers"
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/spec/replicas", "value": 0},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "copy", "from": f"{containers}/0", "path": f"{containers}/-"},
        {"op": "replace", "path": f"{containers}/1/name", "value": "copied"},
    ]
    operations_file = kubectl.file("operations.json", operations)
    kubectl.run("patch", "deployment", "patched", "--type=json", f"--patch-file={operations_file}")
    assert kubectl.path("deployment/patched", names) == "more copied"
    operations[0]["value"] = 5
    failed = ("patch", "deployment", "patched", "--type=json", "-p", json.dumps(operations))
    assert "the server rejected our request due to an error in our request" in kubectl.run(*failed, code=1)
    remove = '{"metadata":{"labels":{"a":null}}}'
    kubectl.run("patch", "deployment", "patched", "-p", remove, "--dry-run=server")
    assert kubectl.path("deployment/patched", ".metadata.labels.a") == "b"
    kubectl.run("patch", "deployment", "patched", "-p", remove)
    assert kubectl.path("deployment/patched", ".metadata.labels") == ""
    refused = kubectl.run("patch", "deployment", "patched", "-p", '{"spec":{"replicas":-1}}', code=1)
    assert "spec.replicas: Invalid value: -1: must be greater than or equal to 0" in refused


def test_patches_of_subresources(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", input=deployment("parts", "parts", paused=True))
    merge = ("patch", "deployment", "parts", "--type=merge", "-p")
    scaled = kubectl.run(*merge, '{"spec":{"replicas":1}}', "--subresource=scale")
    assert scaled == "scale.autoscaling/parts patched\n"
    both = '{"spec":{"replicas":4},"status":{"collisionCount":3}}'
    kubectl.run(*merge, both, "--subresource=status")
    found = kubectl.json("get", "deployment", "parts", "--subresource=status")
    assert (found["spec"]["replicas"], found["status"]["collisionCount"]) == (1, 3)
    scale = kubectl.json("get", "deployment", "parts", "--subresource=scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
        "Scale",
        {"replicas": 1},
        "app=parts",
    )
    head, row = kubectl.run("get", "deployment", "parts", "--subresource=scale").splitlines()
    assert head.split() == ["NAME", "DESIRED", "AVAILABLE", "AGE"]
    assert row.split()[:3] == ["parts", "1", "0"]


def test_edit(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", input=config_map("edited", {"key": "old"}))
    edit = ("edit", "configmap", "edited")
    assert kubectl.run(*edit, env={"EDITOR": "sed -i s/old/new/"}) == "configmap/edited edited\n"
    assert data_of(kubectl, "edited") == {"key": "new"}
    output, messages = kubectl.both(*edit, env={"EDITOR": "true"})
    assert (output, messages) == ("", "Edit cancelled, no changes made.\n")
    refused = kubectl.run(*edit, env={"EDITOR": "sed -i s/key:/key!:/"}, code=1)
    assert 'configmaps "edited" is invalid' in refused
    assert "Edit cancelled, no valid changes were saved." in refused
    # The status by itself; what is changed of the rest goes nowhere.
    kubectl.run("create", "-f", "-", input=deployment("edited", "edited"))
    kubectl.run("wait", "--for=jsonpath={.status.observedGeneration}", "deployment/edited", "--timeout=30s")
    change = "-e 's/replicas: 0/replicas: 9/' -e 's/^  observedGeneration:/  collisionCount: 7\\n&/'"
    editor = kubectl.file("editor.sh", f'sed -i {change} "$1"\n')
    part = ("edit", "deployment", "edited", "--subresource=status")
    assert kubectl.run(*part, env={"KUBE_EDITOR": f"sh {editor}"}) == "deployment.apps/edited edited\n"
    found = kubectl.json("get", "deployment", "edited")
    assert (found["spec"]["replicas"], found["status"]["collisionCount"]) == (0, 7)


def test_label_and_annotate(kubectl: Kubectl) -> None:
    for name in ("l1", "l2"):
        kubectl.run("create", "-f", "-", input=config_map(name, labels={"set": "labels"}))
    assert kubectl.run("label", "configmap", "l1", "one=1") == "configmap/l1 labeled\n"
    refused = kubectl.run("label", "configmap", "l1", "one=2", code=1)
    assert refused == "error: 'one' already has a value (1), and --overwrite is false\n"
    assert kubectl.run("label", "configmap", "-l", "set=labels", "one=2", "two=", "--overwrite") == (
        "configmap/l1 labeled\nconfigmap/l2 labeled\n"
    )
    listed = kubectl.run("label", "configmap", "l1", "--list").split()
    assert sorted(listed) == ["one=2", "set=labels", "two="]
    assert kubectl.run("label", "configmap", "l1", "two-") == "configmap/l1 unlabeled\n"
    assert kubectl.run("label", "configmap", "l1", "two-").endswith("configmap/l1 not labeled\n")
    assert kubectl.run("get", "configmaps", "-l", "one=2,!two", "-o", "name") == "configmap/l1\n"
    stale = ("configmap", "l1", "x=y", "--resource-version=1")
    for verb in ("label", "annotate"):
        assert "the object has been modified" in kubectl.run(verb, *stale, code=1)
    assert kubectl.run("label", "--all", "configmaps", "all=1", "--dry-run=server").count("l1") == 1
    assert kubectl.run("annotate", "configmaps", "-l", "set=labels", "note=a b").count("annotated") == 2
    assert kubectl.run("annotate", "configmap", "l1", "--list") == "note=a b\n"
    refused = kubectl.run("annotate", "configmap", "l1", "note=c", code=1)
    assert (
        "--overwrite is false but found the following declared annotation(s): 'note' already has a value"
        in refused
    )
    kubectl.run("annotate", "configmap", "l1", "note=c", "--overwrite")
    assert kubectl.path("configmap/l1", ".metadata.annotations.note") == "c"
    kubectl.run("annotate", "configmap", "l1", "note-")
    assert kubectl.path("configmap/l1", ".metadata.annotations") == ""
    refused = kubectl.run("label", "configmap", "l1", "b d=1", code=1)
    assert "is invalid" in refused or "invalid label" in refused


def test_delete_what_is_meant(kubectl: Kubectl) -> None:
    names = [f"d{number}" for number in range(1, 8)]
    items = [config_map(name, labels={"gone": "all" if name > "d4" else name}) for name in names]
    kubectl.run("create", "-f", "-", input={"apiVersion": "v1", "kind": "List", "items": items})
    where = f" from {kubectl.namespace} namespace" if kubectl.minor > 32 else ""
    dry = kubectl.run("delete", "configmap", "d1", "--dry-run=server")
    assert dry == f'configmap "d1" deleted{where} (server dry run)\n'
    assert kubectl.run("delete", "configmap", "d1") == f'configmap "d1" deleted{where}\n'
    assert kubectl.run("delete", "configmap/d2", "-o", "name") == "configmap/d2\n"
    by_field = ("delete", "configmaps", "--field-selector=metadata.name=d3")
    assert kubectl.run(*by_field) == f'configmap "d3" deleted{where}\n'
    assert kubectl.run("delete", "configmaps", "-l", "gone=all").count(" deleted") == 3
    asked = ("delete", "configmap", "d4", "--interactive")
    assert "deletion is cancelled" in kubectl.run(*asked, input="n\n")
    assert kubectl.run("get", "configmaps", "-o", "name", "-l", "gone") == "configmap/d4\n"
    assert f'configmap "d4" deleted{where}' in kubectl.run(*asked, input="y\n")
    assert kubectl.run("get", "configmaps", "-o", "name", "-l", "gone") == ""
    refused = kubectl.run("delete", "configmap", "d4", code=1)
    assert refused == 'Error from server (NotFound): configmaps "d4" not found\n'
    assert kubectl.run("delete", "configmap", "d4", "--ignore-not-found") == ""
    assert "resource(s) were provided, but no name was specified" in kubectl.run(
        "delete", "configmap", code=1
    )
