"""A node's work on real containers: restarts, adoption, limits, volumes, networks, images, and no traces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.live import Live, docker, eventually, leftovers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUSYBOX = "busybox"
# Serves its name; ends at TERM within the grace.
SERVE = (
    "mkdir -p /www; cp /etc/hostname /www/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait $!"
)


def pod_of(name: str, node: str = "", command: str = SERVE, **spec: Any) -> dict[str, Any]:
    """A pod with one busybox; keys of `spec` that are a container's go to the container."""
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent"}
    if command:
        container["command"] = ["sh", "-c", command]
    for key in ("image", "imagePullPolicy", "resources", "volumeMounts", "env"):
        if key in spec:
            container[key] = spec.pop(key)
    whole: dict[str, Any] = {"terminationGracePeriodSeconds": 2, "containers": [container], **spec}
    if node:
        whole["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


class Space:
    """Pods of one namespace."""

    def __init__(self, live: Live, namespace: str) -> None:
        self.live = live
        self.namespace = namespace

    def apply(self, *objects: dict[str, Any]) -> None:
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.live.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=body)

    def pod(self, name: str) -> Any:
        return self.live.get("pod", name, "-n", self.namespace)

    def status(self, name: str) -> Any:
        """Of the pod's only container."""
        [status] = self.pod(name)["status"].get("containerStatuses") or [{}]
        return status

    def ready(self, name: str) -> Any:
        self.live.kubectl(
            "wait", "-n", self.namespace, "--for=condition=Ready", f"pod/{name}", "--timeout=60s"
        )
        return self.pod(name)

    def delete(self, *names: str) -> None:
        self.live.kubectl("delete", "pod", "-n", self.namespace, *names, "--timeout=60s")

    def container_id(self, name: str) -> str:
        return str(self.status(name)["containerID"]).removeprefix("containerd://")

    def restarted(self, name: str, count: int, within_s: float = 60) -> Any:
        """The pod once it runs again after `count` restarts."""

        def look() -> tuple[int, bool]:
            status = self.status(name)
            return status.get("restartCount", -1), status.get("ready", False)

        eventually(look, lambda seen: seen == (count, True), within_s=within_s, what=f"{name} restarts")
        return self.pod(name)

    def fetch(self, node: str, pod: Any, port: int = 8080) -> str:
        """What a pod answers a node; a container that runs may not listen yet."""
        script = f"curl -s -m 3 http://{pod['status']['podIP']}:{port}/ || true"
        return eventually(lambda: self.live.shell(node, script).strip(), what="no answer")


@pytest.fixture
def space(live: Live, namespace: str) -> Space:
    return Space(live, namespace)


def identity(pod: Any) -> tuple[str, str]:
    return pod["metadata"]["uid"], pod["status"]["podIP"]


def test_a_container_stopped_by_hand_restarts_in_its_pod(live: Live, space: Space) -> None:
    node = live.workers()[0]
    space.apply(pod_of("web", node))
    before = space.ready("web")
    task = space.container_id("web")
    live.in_container(node, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", task)
    after = space.restarted("web", 1)
    assert identity(after) == identity(before)
    [status] = after["status"]["containerStatuses"]
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["containerID"]) == (
        137,
        "Error",
        f"containerd://{task}",
    )
    assert space.fetch(live.workers()[1], after) == "web"


def test_a_killed_kubelet_adopts_what_runs(live: Live, space: Space) -> None:
    node = live.workers()[0]
    space.apply(pod_of("one", node), pod_of("two", node))
    before = [space.ready(name)["status"] for name in ("one", "two")]
    assert live.kill(node, "kubelet")
    # The new kubelet has done its first work once this one runs.
    space.apply(pod_of("three", node))
    space.ready("three")
    after = [space.pod(name)["status"] for name in ("one", "two")]
    for old, new in zip(before, after, strict=True):
        assert new["podIP"] == old["podIP"]
        assert new["containerStatuses"] == old["containerStatuses"]
        assert new["conditions"] == old["conditions"]


def test_pods_outlive_containerd(live: Live, space: Space) -> None:
    node = live.workers()[0]
    space.apply(pod_of("kept", node))
    before = space.ready("kept")
    assert live.kill(node, "containerd")
    space.apply(pod_of("new", node))
    space.ready("new")
    after = space.pod("kept")
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    assert space.fetch(live.workers()[1], after) == "kept"
    space.delete("kept", "new")
    eventually(lambda: leftovers(live, node), lambda found: not found, what="leftovers")


def test_a_killed_node_comes_back_with_its_pods(live: Live, space: Space) -> None:
    node, other = live.workers()
    space.apply(pod_of("web", node))
    before = space.ready("web")
    for count in (1, 2):
        docker("kill", node)
        docker("start", node)
        after = space.restarted("web", count)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert space.fetch(other, after) == "web"
    # The container before the last is kept for its log, and the sandbox that it is in.
    listing = ("ctr", "-n", "k8s.io", "containers", "ls", "-q")
    eventually(lambda: live.in_container(node, *listing).split(), lambda listed: len(listed) <= 4)
    held = "ls /var/lib/cni/networks/podyard | grep '^[0-9]'"
    eventually(lambda: live.shell(node, held).split(), lambda seen: seen == [after["status"]["podIP"]])
    space.delete("web")
    eventually(lambda: leftovers(live, node), lambda found: not found, what="leftovers")


LIMITS = r"""
for d in $(find /sys/fs/cgroup -type d -path "*pod$0*"); do
  for f in memory.limit_in_bytes cpu.cfs_quota_us cpu.shares memory.max cpu.max; do
    [ -f $d/$f ] && echo "$f $(cat $d/$f)"
  done
done
true
"""


def test_limits_are_in_the_cgroup(live: Live, space: Space) -> None:
    node = live.workers()[0]
    limits = {"cpu": "200m", "memory": "64Mi"}
    space.apply(
        pod_of("guaranteed", node, resources={"limits": limits}),
        pod_of("burstable", node, resources={"requests": {"cpu": "100m"}}),
        pod_of("besteffort", node),
    )
    found = {name: space.ready(name) for name in ("guaranteed", "burstable", "besteffort")}
    classes = {name: pod["status"]["qosClass"] for name, pod in found.items()}
    assert classes == {
        "guaranteed": "Guaranteed",
        "burstable": "Burstable",
        "besteffort": "BestEffort",
    }
    seen = set(live.shell(node, LIMITS, found["guaranteed"]["metadata"]["uid"]).splitlines())
    version_1 = {"memory.limit_in_bytes 67108864", "cpu.cfs_quota_us 20000", "cpu.shares 204"}
    version_2 = {"memory.max 67108864", "cpu.max 20000 100000"}
    assert version_1 <= seen or version_2 <= seen
    free = live.shell(node, LIMITS, found["besteffort"]["metadata"]["uid"])
    assert "cpu.cfs_quota_us -1" in free or "cpu.max max" in free


def test_volumes_hold_and_follow_their_sources(live: Live, space: Space) -> None:
    def source(kind: str, value: str) -> dict[str, Any]:
        field = "stringData" if kind == "Secret" else "data"
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "source"}, field: {"key": value}}

    script = "echo first > /scratch/file; while true; do cat /config/key /secret/key; sleep 0.2; done"
    mounts = {"scratch": "/scratch", "memory": "/memory", "config": "/config", "secret": "/secret"}
    space.apply(
        source("ConfigMap", "config-1\n"),
        source("Secret", "secret-1\n"),
        pod_of(
            "reads",
            command=f"trap 'exit 0' TERM; ({script}) & wait $!",
            volumeMounts=[{"name": name, "mountPath": path} for name, path in mounts.items()],
            volumes=[
                {"name": "scratch", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
                {"name": "config", "configMap": {"name": "source"}},
                {"name": "secret", "secret": {"secretName": "source"}},
            ],
        ),
    )
    pod = space.ready("reads")
    node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]

    def last_lines() -> list[str]:
        return live.kubectl("logs", "-n", space.namespace, "reads", "--tail=2").split()

    eventually(last_lines, lambda lines: sorted(lines) == ["config-1", "secret-1"])
    root = f"/var/lib/kubelet/pods/{uid}/volumes"
    assert live.shell(node, f"cat {root}/kubernetes.io~empty-dir/scratch/file").strip() == "first"
    kinds = live.shell(node, f"grep {uid} /proc/mounts | cut -d' ' -f2,3").splitlines()
    in_memory = {line.split()[0].rpartition("/")[2] for line in kinds if line.endswith(" tmpfs")}
    # Beside them, every pod's token.
    assert {name for name in in_memory if not name.startswith("kube-api-access-")} == {"memory", "secret"}
    space.apply(source("ConfigMap", "config-2\n"), source("Secret", "secret-2\n"))
    # At the pod's next look, every minute to minute and a half as upstream's.
    eventually(last_lines, lambda lines: sorted(lines) == ["config-2", "secret-2"], within_s=150)
    space.delete("reads")
    eventually(lambda: leftovers(live, node), lambda found: not found, what="leftovers")


def test_a_deleted_pod_leaves_nothing(live: Live, space: Space) -> None:
    for node in live.workers():
        space.apply(pod_of(f"on-{node}", node, volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}]))
        space.ready(f"on-{node}")
        assert leftovers(live, node)
    space.delete(*(f"on-{node}" for node in live.workers()))
    for node in live.workers():
        eventually(lambda node=node: leftovers(live, node), lambda found: not found, what=f"{node} has")


COUNT = """
uplink=$(ip -o route get $0 | sed 's/.* dev \\([^ ]*\\).*/\\1/')
nft -f - <<END
table inet watched
delete table inet watched
table inet watched {
  counter good { }
  counter lost { }
  counter service { }
  chain out {
    type filter hook postrouting priority 300;
    oifname "$uplink" ip daddr $1 counter name good
    oifname "$uplink" ip daddr 10.244.200.0/24 counter name lost
    oifname "$uplink" ip daddr 10.96.0.0/16 counter name service
  }
}
END
"""


NETNS_OF = r"""
for n in $(ls /run/netns | grep '^cni-'); do
  ip netns exec $n ip -o -4 addr show dev eth0 2>/dev/null | grep -q "inet $0/" && echo $n
done
true
"""


def counters(live: Live, node: str) -> dict[str, int]:
    listed = json.loads(live.in_container(node, "nft", "-j", "list", "counters", "table", "inet", "watched"))
    rows = [row["counter"] for row in listed["nftables"] if "counter" in row]
    return {row["name"]: row["packets"] for row in rows}


def test_pods_reach_each_other_and_nothing_else_leaves(live: Live, space: Space) -> None:
    node, other = live.workers()
    space.apply(pod_of("here", node), pod_of("there", other))
    here, there = space.ready("here"), space.ready("there")
    live.shell(node, COUNT, there["status"]["hostIP"], there["status"]["podIP"])
    try:
        # From inside the pod's network, which may not be the only one yet.
        netns = live.shell(node, NETNS_OF, here["status"]["podIP"]).strip()
        inside = f"ip netns exec {netns} curl -s -m 3"
        assert space.fetch(node, there) == "there"
        assert space.fetch(other, here) == "here"
        assert live.shell(node, f"{inside} http://{there['status']['podIP']}:8080/").strip() == "there"
        before = counters(live, node)
        assert before["good"] > 0
        for address in ("10.244.200.7", "10.96.0.77"):
            for curl in ("curl -s -m 3", inside):
                code = live.shell(node, f"{curl} http://{address}/ > /dev/null; echo $?").strip()
                # 7: refused at once; 28 would be a packet that left and never came back.
                assert (address, curl, code) == (address, curl, "7")
        after = counters(live, node)
        assert (after["lost"], after["service"]) == (0, 0)
    finally:
        live.in_container(node, "nft", "delete", "table", "inet", "watched")


def test_a_node_at_rest_leaves_its_addresses_alone(live: Live) -> None:
    """Whoever repairs addresses on events about addresses must not cause one."""
    # What was there before may still come to rest; what causes an event at each event never does.
    listen = "timeout 3 ip -o monitor address || true"
    for node in live.workers():
        eventually(
            lambda node=node: live.shell(node, listen), lambda heard: heard == "", what=f"{node} hears"
        )
        assert "inet 10.96.0.10/32" in live.shell(node, "ip -o -4 addr show dev lo")


def test_restart_policies_and_their_back_off(live: Live, space: Space) -> None:
    space.apply(
        pod_of("always", command="exit 1", restartPolicy="Always"),
        pod_of("on-failure", command="exit 0", restartPolicy="OnFailure"),
        pod_of("never", command="exit 3", restartPolicy="Never"),
    )
    for name, phase in (("on-failure", "Succeeded"), ("never", "Failed")):
        eventually(
            lambda name=name: space.pod(name)["status"]["phase"], lambda seen, phase=phase: seen == phase
        )
    ended = space.status("never")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert space.status("on-failure")["state"]["terminated"]["reason"] == "Completed"
    assert space.status("on-failure")["restartCount"] == space.status("never")["restartCount"] == 0

    # Between two looks it may have been started again.
    status = eventually(
        lambda: space.status("always"),
        lambda seen: seen.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff",
    )
    assert status["restartCount"] >= 1
    assert status["state"]["waiting"]["message"].startswith("back-off ")
    reasons = ("get", "events", "-n", space.namespace, "-o", "jsonpath={.items[*].reason}")
    eventually(lambda: "BackOff" in live.kubectl(*reasons).split(), what="the event")


def test_images_that_are_not_to_be_had(live: Live, space: Space) -> None:
    space.apply(
        pod_of("unknown", command="", image="podyard.invalid/none:1"),
        pod_of("absent", command="", image="absent:1", imagePullPolicy="Never"),
        pod_of("malformed", command="", image="Not/An/Image"),
    )
    wanted = {
        "unknown": {"ErrImagePull", "ImagePullBackOff"},
        "absent": {"ErrImageNeverPull"},
        "malformed": {"InvalidImageName"},
    }
    for name, reasons in wanted.items():

        def waiting(name: str = name) -> str:
            return str(space.status(name).get("state", {}).get("waiting", {}).get("reason"))

        eventually(waiting, lambda reason, reasons=reasons: reason in reasons, what=name)
        assert space.pod(name)["status"]["phase"] == "Pending"
    live.kubectl("delete", "pod", "-n", space.namespace, "--all", "--timeout=60s")


def test_a_pod_on_the_host_network_has_the_nodes_address(live: Live, space: Space) -> None:
    node, other = live.workers()
    command = (
        "mkdir -p /www; echo host > /www/index.html; trap 'exit 0' TERM; httpd -f -p 18080 -h /www & wait $!"
    )
    space.apply(pod_of("host", node, command=command, hostNetwork=True))
    pod = space.ready("host")
    assert pod["status"]["podIP"] == pod["status"]["hostIP"]
    assert space.fetch(other, pod, 18080) == "host"
