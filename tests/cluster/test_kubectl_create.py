"""Every way in which kubectl makes objects: its generators, run, expose, autoscale, and files."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

import pytest

from podyard.base import pki
from tests.cluster.kubectls import Kubectl, narrowed
from tests.cluster.samples import pod

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RULE = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}
# What is created, the rest of the command line, and what the object then has. NS is the namespace, which
# keeps apart what is in no namespace.
GENERATED: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "deployment": (
        "deployment.apps/made",
        ("deployment", "made", "--image=nginx", "--image=busybox", "--replicas=0", "--port=80"),
        {
            "metadata": {"labels": {"app": "made"}},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "made"}},
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "nginx", "image": "nginx", "ports": [{"containerPort": 80}]},
                            {"name": "busybox", "image": "busybox"},
                        ]
                    }
                },
            },
        },
    ),
    "job": (
        "job.batch/made",
        ("job", "made", "--image=busybox", "--", "sh", "-c", "echo hi"),
        {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "made", "image": "busybox", "command": ["sh", "-c", "echo hi"]}]}}}},
    ),
    "cronjob": (
        "cronjob.batch/made",
        ("cronjob", "made", "--image=busybox", "--schedule=0 5 * * 1", "--restart=OnFailure", "--", "date"),
        {"spec": {"schedule": "0 5 * * 1", "concurrencyPolicy": "Allow", "jobTemplate": {"spec": {
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [
                {"name": "made", "image": "busybox", "command": ["date"]}]}}}}}},
    ),
    "serviceaccount": ("serviceaccount/made", ("serviceaccount", "made"), {"kind": "ServiceAccount"}),
    "namespace": (
        "namespace/NS-made",
        ("namespace", "NS-made"),
        {"metadata": {"labels": {"kubernetes.io/metadata.name": "NS-made"}}, "status": {"phase": "Active"}},
    ),
    "service-clusterip": (
        "service/made",
        ("service", "clusterip", "made", "--tcp=80:8080"),
        {"spec": {
            "type": "ClusterIP",
            "selector": {"app": "made"},
            "ports": [{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        }},
    ),
    "service-headless": (
        "service/headless",
        ("service", "clusterip", "headless", "--clusterip=None"),
        {"spec": {"clusterIP": "None", "clusterIPs": ["None"]}},
    ),
    "service-nodeport": (
        "service/onnodes",
        ("service", "nodeport", "onnodes", "--tcp=80"),
        {"spec": {"type": "NodePort", "ports": [{"port": 80, "targetPort": 80}]}},
    ),
    "service-loadbalancer": (
        "service/balanced",
        ("service", "loadbalancer", "balanced", "--tcp=443"),
        {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": True}},
    ),
    "service-externalname": (
        "service/elsewhere",
        ("service", "externalname", "elsewhere", "--external-name=db.example"),
        {"spec": {"type": "ExternalName", "externalName": "db.example"}},
    ),
    "quota": (
        "resourcequota/made",
        ("quota", "made", "--hard=pods=2,requests.cpu=1500m", "--scopes=NotTerminating"),
        {"spec": {"hard": {"pods": "2", "requests.cpu": "1500m"}, "scopes": ["NotTerminating"]}},
    ),
    "role": (
        "role.rbac.authorization.k8s.io/made",
        ("role", "made", "--verb=get,list", "--resource=pods,pods/log", "--resource-name=one"),
        {"rules": [{**RULE, "resourceNames": ["one"]}]},
    ),
    "rolebinding": (
        "rolebinding.rbac.authorization.k8s.io/made",
        ("rolebinding", "made", "--role=made", "--user=jane", "--group=devs", "--serviceaccount=NS:default"),
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "made"},
            "subjects": [
                {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "default", "namespace": "NS"},
            ],
        },
    ),
    "clusterrole": (
        "clusterrole.rbac.authorization.k8s.io/NS-made",
        ("clusterrole", "NS-made", "--verb=get,list", "--resource=pods,pods/log"),
        {"rules": [RULE]},
    ),
    "clusterrole-of-urls": (
        "clusterrole.rbac.authorization.k8s.io/NS-urls",
        ("clusterrole", "NS-urls", "--verb=get", "--non-resource-url=/logs/*"),
        {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}]},
    ),
    "clusterrole-of-others": (
        "clusterrole.rbac.authorization.k8s.io/NS-sum",
        ("clusterrole", "NS-sum", "--aggregation-rule=part-of=NS"),
        {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "NS"}}]}},
    ),
    "clusterrolebinding": (
        "clusterrolebinding.rbac.authorization.k8s.io/NS-made",
        ("clusterrolebinding", "NS-made", "--clusterrole=NS-made", "--user=jane"),
        {
            "roleRef": {"kind": "ClusterRole", "name": "NS-made"},
            "subjects": [{"kind": "User", "name": "jane"}],
        },
    ),
    "ingress": (
        "ingress.networking.k8s.io/made",
        ("ingress", "made", "--rule=shop.example/cart*=web:80,tls=cert", "--class=fast", "--annotation=a=b"),
        {
            "metadata": {"annotations": {"a": "b"}},
            "spec": {
                "ingressClassName": "fast",
                "tls": [{"hosts": ["shop.example"], "secretName": "cert"}],
                "rules": [{"host": "shop.example", "http": {"paths": [{
                    "path": "/cart",
                    "pathType": "Prefix",
                    "backend": {"service": {"name": "web", "port": {"number": 80}}},
                }]}}],
            },
        },
    ),
    "poddisruptionbudget": (
        "poddisruptionbudget.policy/made",
        ("poddisruptionbudget", "made", "--selector=app=none", "--min-available=50%"),
        {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "none"}}}},
    ),
    "priorityclass": (
        "priorityclass.scheduling.k8s.io/NS-made",
        ("priorityclass", "NS-made", "--value=7", "--description=low", "--preemption-policy=Never"),
        {"value": 7, "description": "low", "preemptionPolicy": "Never"},
    ),
}  # fmt: skip


def test_generators_make_what_they_are_told(kubectl: Kubectl) -> None:
    rows = json.loads(json.dumps(GENERATED).replace("NS", kubectl.namespace))
    said = {kind: kubectl.run("create", *arguments) for kind, (_, arguments, _) in rows.items()}
    assert said == {kind: f"{made} created\n" for kind, (made, _, _) in rows.items()}
    found = kubectl.json("get", *(made for made, _, _ in rows.values()))["items"]
    seen = {kind: narrowed(item, rows[kind][2]) for kind, item in zip(rows, found, strict=True)}
    assert seen == {kind: wanted for kind, (_, _, wanted) in rows.items()}
    shared = [made for made, _, _ in rows.values() if kubectl.namespace in made]
    assert kubectl.run("delete", *shared).count(" deleted") == len(shared)


def test_a_configmap_from_literals_files_and_lines(kubectl: Kubectl) -> None:
    folder = kubectl.file("settings/one.txt", "first\n").removesuffix("/one.txt")
    kubectl.file("settings/two.txt", "second\n")
    lines = kubectl.file("lines.env", "# no line\nA=1\nB=two words\n")
    made = kubectl.run("create", "configmap", "made", f"--from-file={folder}", "--from-literal=three=3")
    assert made == "configmap/made created\n"
    data = kubectl.json("get", "configmap", "made")["data"]
    assert data == {"one.txt": "first\n", "two.txt": "second\n", "three": "3"}
    kubectl.run("create", "configmap", "lines", f"--from-env-file={lines}")
    assert kubectl.json("get", "configmap", "lines")["data"] == {"A": "1", "B": "two words"}
    refused = kubectl.run("create", "configmap", "made", code=1)
    assert 'configmaps "made" already exists' in refused


def test_secrets_of_all_types(kubectl: Kubectl) -> None:
    assert kubectl.run("create", "secret", "generic", "made", "--from-literal=a=1") == "secret/made created\n"
    secret = kubectl.json("get", "secret", "made")
    assert (secret["type"], secret["data"]) == ("Opaque", {"a": base64.b64encode(b"1").decode()})
    login = ("--docker-server=r.example", "--docker-username=u", "--docker-password=p")
    kubectl.run("create", "secret", "docker-registry", "pull", *login)
    secret = kubectl.json("get", "secret", "pull")
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    config = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert config["auths"]["r.example"]["auth"] == base64.b64encode(b"u:p").decode()
    pair = pki.new_authority("made", now_s=time.time())
    files = [
        kubectl.file("tls.crt", pair.certificate.decode()),
        kubectl.file("tls.key", pair.key.decode()),
    ]
    kubectl.run("create", "secret", "tls", "tls", f"--cert={files[0]}", f"--key={files[1]}")
    secret = kubectl.json("get", "secret", "tls")
    assert secret["type"] == "kubernetes.io/tls"
    assert base64.b64decode(secret["data"]["tls.crt"]) == pair.certificate
    listed = [row.split()[:3] for row in kubectl.run("get", "secrets", "--no-headers").splitlines()]
    assert ["tls", "kubernetes.io/tls", "2"] in listed


def test_a_job_from_a_cronjob(kubectl: Kubectl) -> None:
    kubectl.run("create", "cronjob", "often", "--image=busybox", "--schedule=* * * * *", "--", "date")
    assert kubectl.run("create", "job", "now", "--from=cronjob/often") == "job.batch/now created\n"
    job = kubectl.json("get", "job", "now")
    assert job["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"] == "manual"
    assert job["metadata"]["ownerReferences"][0]["name"] == "often"
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["date"]


def claims(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_token_for_whom_it_is_for(kubectl: Kubectl) -> None:
    kubectl.run("create", "secret", "generic", "bound")
    subject = f"system:serviceaccount:{kubectl.namespace}:default"
    token = kubectl.run("create", "token", "default", "--audience=vault", "--duration=20m")
    found = claims(token)
    assert (found["sub"], found["aud"]) == (subject, ["vault"])
    assert found["exp"] - found["iat"] == 1200
    bound = ("--bound-object-kind=Secret", "--bound-object-name=bound")
    found = claims(kubectl.run("create", "token", "default", *bound))
    assert found["kubernetes.io"]["secret"]["name"] == "bound"
    assert 'serviceaccounts "none" not found' in kubectl.run("create", "token", "none", code=1)


def test_files_are_made_as_they_are_or_as_they_were_edited(kubectl: Kubectl) -> None:
    both = kubectl.file(
        "many/one.json", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f1"}}
    )
    kubectl.file("many/deep.json", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f2"}})
    folder = both.rpartition("/")[0]
    assert (
        kubectl.run("create", "-f", folder, "--dry-run=client", "-o", "name")
        == "configmap/f2\nconfigmap/f1\n"
    )
    assert "configmap/f1 created (server dry run)\n" in kubectl.run(
        "create", "-f", folder, "--dry-run=server"
    )
    assert kubectl.run("get", "configmap", "f1", "f2", "--ignore-not-found") == ""
    made = kubectl.run("create", "-f", folder, "-R", "--save-config")
    assert made == "configmap/f2 created\nconfigmap/f1 created\n"
    assert '"name": "f1"' in kubectl.run("apply", "view-last-applied", "configmap/f1", "-o", "json")
    edited = kubectl.run("create", "-f", both, "--edit", env={"EDITOR": "sed -i s/f1/f3/"})
    assert edited == "configmap/f3 created\n"
    raw = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "raw"}})
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    assert json.loads(kubectl.run("create", "--raw", path, "-f", "-", input=raw))["metadata"]["name"] == "raw"
    changed = json.dumps({**json.loads(raw), "data": {"a": "b"}})
    kubectl.run("replace", "--raw", f"{path}/raw", "-f", "-", input=changed)
    assert json.loads(kubectl.run("get", "--raw", f"{path}/raw"))["data"] == {"a": "b"}
    assert json.loads(kubectl.run("delete", "--raw", f"{path}/raw"))["status"] == "Success"
    assert 'configmaps "raw" not found' in kubectl.run("get", "configmap", "raw", code=1)


def test_a_typo_is_said(kubectl: Kubectl) -> None:
    typo = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "typo"}}
    typo["spec"] = {"containers": [{"name": "main", "imagee": "busybox", "image": "busybox"}]}
    refused = kubectl.run("apply", "-f", "-", input=typo, code=1)
    assert 'strict decoding error: unknown field "spec.containers[0].imagee"' in refused
    dry = ("apply", "--validate=warn", "--dry-run=server", "-f", "-")
    assert 'Warning: unknown field "spec.containers[0].imagee"' in kubectl.both(*dry, input=typo)[1]
    refused = kubectl.run("create", "-f", "-", input=pod("Bad!", restartPolicy="Maybe"), code=1)
    assert "* metadata.name: Invalid value" in refused
    assert '* spec.restartPolicy: Unsupported value: "Maybe"' in refused
    refused = kubectl.run("create", "-n", "nowhere", "configmap", "lost", code=1)
    assert refused == 'error: failed to create configmap: namespaces "nowhere" not found\n'


def test_run_makes_a_pod_as_it_is_told(kubectl: Kubectl) -> None:
    told = ("--image=busybox", "--labels=tier=back", "--env=WHO=me", "--port=80", "--expose")
    more = ("--restart=Never", "--annotations=note=1", "--privileged", "--image-pull-policy=IfNotPresent")
    over = '--overrides={"spec":{"nodeSelector":{"no":"such"}}}'
    made = kubectl.run("run", "told", *told, *more, over, "--command", "--", "sleep", "9")
    assert sorted(made.splitlines()) == ["pod/told created", "service/told created"]
    value = kubectl.json("get", "pod", "told")
    wanted = {
        "metadata": {"labels": {"tier": "back"}, "annotations": {"note": "1"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"no": "such"},
            "containers": [
                {
                    "name": "told",
                    "image": "busybox",
                    "command": ["sleep", "9"],
                    "imagePullPolicy": "IfNotPresent",
                    "securityContext": {"privileged": True},
                    "env": [{"name": "WHO", "value": "me"}],
                    "ports": [{"containerPort": 80}],
                }
            ],
        },
    }
    assert narrowed(value, wanted) == wanted
    assert kubectl.json("get", "service", "told")["spec"]["selector"] == {"tier": "back"}
    dry = kubectl.run("run", "dry", "--image=busybox", "--dry-run=client", "-o", "yaml", "--", "date")
    assert "  - args:\n    - date\n    image: busybox\n" in dry
    assert (
        kubectl.run("run", "dry", "--image=busybox", "--dry-run=server")
        == "pod/dry created (server dry run)\n"
    )
    assert 'pods "dry" not found' in kubectl.run("get", "pod", "dry", code=1)


def test_run_with_a_person_in_front(kubectl: Kubectl) -> None:
    """Input to it, output of it, its code; and nothing of it is left."""
    command = ("--image=busybox", "--restart=Never", "-i", "--rm", "--quiet", "--command", "--")
    script = ("sh", "-c", "read line; echo got $line; exit 6")
    done = kubectl.call("run", "asked", *command, *script, input=b"hello\n")
    assert (done.stdout.decode().splitlines()[0], done.returncode) == ("got hello", 6), done
    kubectl.run("wait", "--for=delete", "pod/asked", "--timeout=30s")
    # Who attaches hears what comes from then on.
    loud = ("--attach", "--command", "--", "sh", "-c", "while sleep 0.1; do echo hi; done")
    with kubectl.watching("run", "loud", "--image=busybox", "--restart=Never", *loud) as attached:
        attached.line_with("hi", timeout_s=60)
    kubectl.run("delete", "pod", "loud", "--now")


def test_expose_takes_ports_and_selectors_over(kubectl: Kubectl) -> None:
    kubectl.run("create", "deployment", "web", "--image=nginx", "--replicas=0", "--port=8080")
    kubectl.run("wait", "--for=jsonpath={.metadata.annotations}", "deployment/web", "--timeout=30s")
    how = ("--port=80", "--target-port=http", "--name=web1", "--type=NodePort", "--session-affinity=ClientIP")
    assert kubectl.run("expose", "deployment", "web", *how, "--labels=x=y") == "service/web1 exposed\n"
    service = kubectl.json("get", "service", "web1")
    wanted = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {
            "type": "NodePort",
            "selector": {"app": "web"},
            "sessionAffinity": "ClientIP",
            "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    }
    assert narrowed(service, wanted) == wanted
    kubectl.run("expose", "service", "web1", "--name=web2", "--port=81", "--external-ip=198.51.100.7")
    row = kubectl.run("get", "service", "web2", "--no-headers").split()
    assert (row[1], row[3], row[4]) == ("ClusterIP", "198.51.100.7", "81/TCP")
    (name,) = kubectl.run("get", "rs", "-l", "app=web", "-o", "name").split()
    kubectl.run("expose", name, "--name=web3")
    ports = kubectl.json("get", "service", "web3")["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in ports] == [(8080, 8080)]
    kubectl.run("create", "-f", "-", input=pod("bare", nodeSelector={"no": "such"}))
    refused = kubectl.run("expose", "pod", "bare", code=1)
    assert "couldn't find port via --port flag or introspection" in refused
    kubectl.run("expose", "pod", "bare", "--port=53", "--protocol=UDP", "--cluster-ip=None")
    row = kubectl.run("get", "service", "bare", "--no-headers").split()
    assert row[1:5] == ["ClusterIP", "None", "<none>", "53/UDP"]


def test_autoscale_makes_its_object(kubectl: Kubectl) -> None:
    """Nothing scales by it yet."""
    kubectl.run("create", "deployment", "grows", "--image=nginx", "--replicas=0")
    # 1.32 has only the old name of the flag, which 1.37 warns of.
    share = "--cpu=50%" if kubectl.minor > 32 else "--cpu-percent=50"
    made = kubectl.run("autoscale", "deployment", "grows", "--min=2", "--max=5", share)
    assert made == "horizontalpodautoscaler.autoscaling/grows autoscaled\n"
    wanted = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "grows"},
        "minReplicas": 2,
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    }
    assert narrowed(kubectl.json("get", "hpa", "grows")["spec"], wanted) == wanted
    row = kubectl.run("get", "hpa", "grows", "--no-headers")
    assert re.match(r"grows +Deployment/grows +cpu: <unknown>/50% +2 +5 +0 ", row), row
