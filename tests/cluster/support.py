"""What cluster tests work with: the command line, kubectl, the engine, and waiting with a deadline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import docker

T = TypeVar("T")
DEADLINE_S = 60.0


@contextmanager
def brought_up(name: str, data: Path, *options: str, input: str | None = None) -> Iterator[Cluster]:
    """A cluster of a test's own by `podyard up` with these options, gone afterwards."""
    cluster = Cluster(name, data)
    try:
        cluster.podyard("up", *options, input=input)
        yield cluster
    finally:
        cluster.podyard("down", check=False)


class Cluster:
    """One cluster, used as its users do.

    Args:
        name: of the cluster.
        data: its state directory's parent; None for the user's own.
    """

    def __init__(self, name: str, data: Path | None) -> None:
        self.name = name
        self.environment = dict(os.environ)
        # The environment's own kubectl, before any older one of the host.
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        if data is not None:
            self.environment["XDG_DATA_HOME"] = str(data)
        self.data = data or Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local/share"))
        self.engine = docker.from_env()

    def podyard(
        self, *arguments: str, check: bool = True, input: str | None = None, timeout_s: float = 500.0
    ) -> subprocess.CompletedProcess[str]:
        """`podyard --name NAME ...`; with `check` a failure fails the test with all that was printed."""
        done = subprocess.run(
            [sys.executable, "-m", "podyard.cli.main", "--name", self.name, *arguments],
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert not check or done.returncode == 0, (
            f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def kubectl(
        self, *arguments: str, check: bool = True, input: str | None = None, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """The real kubectl on this cluster."""
        return self.podyard("kubectl", *arguments, check=check, input=input, timeout_s=timeout_s)

    def get(self, *arguments: str) -> Any:
        """`kubectl get ... -o json`, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def apply(self, *objects: dict[str, Any], namespace: str = "") -> str:
        """`kubectl apply` of plain objects; into a namespace, where they name none themselves."""
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        place = ("-n", namespace) if namespace else ()
        return self.kubectl("apply", *place, "-f", "-", input=body).stdout

    def container(self, part: str) -> Any:
        """A container of the cluster by its name behind the cluster's."""
        return self.engine.containers.get(f"{self.name}-{part}")

    def run_in(self, part: str, *argv: str, check: bool = True) -> str:
        """Output of a command inside a container."""
        code, output = self.container(part).exec_run(list(argv))
        text: str = output.decode(errors="replace")
        assert not check or code == 0, f"{part}: {argv}: {code}\n{text}"
        return text

    def eventually(self, condition: Callable[[], T], what: str, timeout_s: float = DEADLINE_S) -> T:
        """Waits until a condition holds; answers what it answered."""
        end_s = time.monotonic() + timeout_s
        while True:
            answer = condition()
            if answer:
                return answer
            assert time.monotonic() < end_s, f"{what}: not within {timeout_s:g} s (last: {answer!r})"
            time.sleep(0.1)

    def pod_running(self, name: str, namespace: str = "default", timeout_s: float = DEADLINE_S) -> Any:
        """Waits until a pod is ready; answers it."""
        self.kubectl(
            "wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, f"--timeout={timeout_s:g}s"
        )
        return self.get("pod", name, "-n", namespace)
