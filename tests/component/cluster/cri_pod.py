"""Runs inside a node container: one pod through CRI as the kubelet does it; prints what it saw as JSON."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
import urllib.request

import grpc

from podyard.api.types import cri

SOCKET = "unix:///run/containerd/containerd.sock"
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "podyard-test",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.9.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni/networks",
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


class Service:
    def __init__(self, channel: grpc.Channel, name: str) -> None:
        self._channel, self._name = channel, name

    def call(self, method: str, request: object, answer: type) -> object:
        stub = self._channel.unary_unary(
            f"/runtime.v1.{self._name}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return stub(request, timeout=60, wait_for_ready=True)


def pod(name: str) -> cri.PodSandboxConfig:
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default", attempt=0),
        hostname=name,
        log_directory=f"/var/log/pods/default_{name}_uid-{name}",
        dns_config=cri.DNSConfig(servers=["10.96.0.10"]),
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"/kubepods/burstable/pod{name}"),
    )


def fetch(url: str) -> str:
    deadline = time.monotonic() + 10
    while True:
        try:
            return urllib.request.urlopen(url, timeout=2).read().decode()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    pathlib.Path("/etc/cni/net.d/10-test.conflist").write_text(json.dumps(NETWORK))
    channel = grpc.insecure_channel(SOCKET)
    runtime, images = Service(channel, "RuntimeService"), Service(channel, "ImageService")
    deadline = time.monotonic() + 20
    while True:
        status = runtime.call("Status", cri.StatusRequest(), cri.StatusResponse).status
        conditions = {condition.type: condition.status for condition in status.conditions}
        if all(conditions.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    seen: dict[str, object] = {"conditions": conditions}
    begun = time.monotonic()
    image = cri.ImageSpec(image="nginx")
    seen["image"] = images.call(
        "PullImage", cri.PullImageRequest(image=image), cri.PullImageResponse
    ).image_ref
    seen["pull_s"] = round(time.monotonic() - begun, 2)
    begun = time.monotonic()
    config = pod(sys.argv[1])
    sandbox = runtime.call(
        "RunPodSandbox", cri.RunPodSandboxRequest(config=config), cri.RunPodSandboxResponse
    ).pod_sandbox_id
    container_config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="nginx", attempt=0),
        image=image,
        log_path="nginx/0.log",
        linux=cri.LinuxContainerConfig(
            resources=cri.LinuxContainerResources(memory_limit_in_bytes=64 * 1024 * 1024, cpu_shares=102)
        ),
    )
    container = runtime.call(
        "CreateContainer",
        cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container_config, sandbox_config=config),
        cri.CreateContainerResponse,
    ).container_id
    runtime.call(
        "StartContainer", cri.StartContainerRequest(container_id=container), cri.StartContainerResponse
    )
    seen["start_s"] = round(time.monotonic() - begun, 2)
    address = runtime.call(
        "PodSandboxStatus",
        cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox),
        cri.PodSandboxStatusResponse,
    ).status.network.ip
    seen["address"] = address
    seen["page"] = fetch(f"http://{address}/")
    seen["resolv"] = subprocess.run(
        ["ctr", "-n", "k8s.io", "tasks", "exec", "--exec-id", "t1", container, "cat", "/etc/resolv.conf"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    seen["log"] = pathlib.Path(f"{config.log_directory}/nginx/0.log").read_text()
    if len(sys.argv) > 2 and sys.argv[2] == "keep":
        print(json.dumps(seen))
        return
    runtime.call(
        "StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), cri.StopPodSandboxResponse
    )
    runtime.call(
        "RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), cri.RemovePodSandboxResponse
    )
    seen["left"] = [
        row.id
        for row in runtime.call(
            "ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse
        ).items
    ]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
