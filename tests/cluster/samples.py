"""Pods that several tests run."""

from __future__ import annotations

from typing import Any

_SERVE = (
    "mkdir /www && echo hello > /www/index.html && httpd -p 80 -h /www; "
    "i=0; while true; do i=$((i+1)); echo line $i; sleep 1; done"
)


def pod(name: str, *command: str, **spec: Any) -> dict[str, Any]:
    """A pod of busybox; without a command it only stays."""
    container = {"name": "main", "image": "busybox", "command": list(command or ("sleep", "3600"))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def server(name: str) -> dict[str, Any]:
    """A pod that answers `hello` to HTTP on port 80 and writes a numbered line each second."""
    return pod(name, "sh", "-c", _SERVE)
