"""What `make up` ends with: a sample pod that runs, and what to type next."""

from __future__ import annotations

import subprocess
import sys

NAME = "web"


def main(podyard: str) -> int:
    """Creates the pod unless it is there, waits until it is ready, shows it."""

    def kubectl(*arguments: str, quiet: bool = False) -> int:
        command = [podyard, "kubectl", *arguments]
        return subprocess.run(command, check=False, capture_output=quiet).returncode

    if kubectl("get", "pod", NAME, quiet=True) and kubectl("run", NAME, "--image=nginx"):
        return 1
    if kubectl("wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=60s"):
        kubectl("describe", "pod", NAME)
        return 1
    kubectl("get", "pods", "-o", "wide")
    print(
        "\nNext:\n"
        f"  {podyard} kubectl describe pod {NAME}\n"
        f"  {podyard} kubectl logs -f {NAME}\n"
        f"  {podyard} status\n"
        f"  docker kill podyard-worker-1; {podyard} up    # pull a plug, mend it\n"
        f"  {podyard} down"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
