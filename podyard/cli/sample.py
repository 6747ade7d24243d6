"""What `make up` ends with: a pod, a Deployment behind a Service that answers, and what to type next."""

from __future__ import annotations

import os
import subprocess
import sys

from podyard.cluster.spec import DEFAULT_NAME

POD = "web"
DEPLOYMENT = "hello"
_TIMEOUT = "--timeout=60s"


class Kubectl:
    """Runs kubectl on the cluster that was brought up.

    Args:
        podyard: path of the `podyard` command.
    """

    def __init__(self, podyard: str) -> None:
        self._command = [podyard, "kubectl"]

    def works(self, *words: str) -> bool:
        """Runs in the user's sight; answers whether it went well."""
        return subprocess.run([*self._command, *words], check=False).returncode == 0

    def ask(self, *words: str) -> str | None:
        """What it prints; None where it fails."""
        done = subprocess.run([*self._command, *words], check=False, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def ensure(self, kind: str, name: str, *make: str) -> bool:
        """Makes an object unless it is there."""
        return self.ask("get", kind, name) is not None or self.works(*make)


def main(podyard: str) -> int:
    """Creates what is not there yet, waits until it is ready, shows it."""
    kubectl = Kubectl(podyard)
    made = (
        kubectl.ensure("pod", POD, "run", POD, "--image=nginx")
        and kubectl.ensure(
            "deployment", DEPLOYMENT, "create", "deployment", DEPLOYMENT, "--image=nginx", "--replicas=2"
        )
        and kubectl.ensure("service", DEPLOYMENT, "expose", "deployment", DEPLOYMENT, "--port=80")
    )
    if not made:
        return 1
    if not kubectl.works("wait", "--for=condition=Ready", f"pod/{POD}", _TIMEOUT):
        kubectl.works("describe", "pod", POD)
        return 1
    if not kubectl.works("wait", "--for=condition=Available", f"deployment/{DEPLOYMENT}", _TIMEOUT):
        kubectl.works("describe", "deployment", DEPLOYMENT)
        return 1
    kubectl.works("get", "pods,services", "-o", "wide")
    node = kubectl.ask("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
    address = kubectl.ask("get", "service", DEPLOYMENT, "-o", "jsonpath={.spec.clusterIP}")
    # Another cluster than the default one must be named in what is typed next.
    chosen = os.environ.get("PODYARD_NAME", DEFAULT_NAME)
    if chosen != DEFAULT_NAME:
        podyard = f"{podyard} --name {chosen}"
    print(
        "\nNext:\n"
        f"  docker exec {node} curl -s http://{address}    # the Service, asked from a node\n"
        f"  {podyard} kubectl describe pod {POD}\n"
        f"  {podyard} kubectl logs -f {POD}\n"
        f"  {podyard} status\n"
        f"  {podyard} node kill worker-1 --wait    # pull a plug: NotReady after 50 s, eviction 300 s later\n"
        f"  {podyard} node start worker-1    # mend it; README.md says how all this goes faster\n"
        f"  {podyard} down"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
