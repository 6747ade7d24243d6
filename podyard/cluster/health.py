"""Whether a component does its work, by its own word.

It is asked inside its container: of all components only API servers are reached from the host.
"""

from __future__ import annotations

import json
from typing import Protocol

from podyard.cluster.errors import ClusterError
from podyard.cluster.spec import ETCD_METRICS_PORT, REST_PORT, Role

# Where each answers; those of the scheduler and the controller manager are upstream's ports.
QUESTIONS = {
    Role.ETCD.value: f"http://127.0.0.1:{ETCD_METRICS_PORT}/health",
    Role.APISERVER.value: f"https://localhost:{REST_PORT}/readyz",
    Role.SCHEDULER.value: "https://localhost:10259/readyz",
    Role.CONTROLLER_MANAGER.value: "https://localhost:10257/readyz",
}
_PATIENCE_S = 3


class _Runs(Protocol):
    async def run_in(self, name: str, argv: list[str]) -> tuple[int, str]: ...


async def problem(engine: _Runs, name: str, role: str) -> str:
    """Why the component in a running container does not do its work; empty where it does."""
    # Nothing is sent that would need its certificate to be believed.
    asking = ["curl", "-sSk", "-m", str(_PATIENCE_S), "-w", "\n%{http_code}", QUESTIONS[role]]
    try:
        code, output = await engine.run_in(name, asking)
    except ClusterError as error:  # it has stopped in the meantime, or the engine has
        return str(error)
    return said(code, output)


def said(code: int, output: str) -> str:
    """The problem in an answer: pure.

    Args:
        code: curl's exit code.
        output: the answer's body, then its status code on a line of its own.
    """
    if code:
        return "does not answer its health check"
    body, _, status = output.rpartition("\n")
    if status == "200":
        return ""
    return failing(body) or _reason(body) or f"its health check answers {status}"


def failing(body: str) -> str:
    """The checks that fail in the long form of /readyz, whose lines are `[-]NAME failed: reason withheld`."""
    lines = (line for line in body.splitlines() if line.startswith("[-]"))
    return "; ".join(line.removeprefix("[-]").removesuffix(": reason withheld") for line in lines)


def _reason(body: str) -> str:
    """What etcd says: `{"health": "false", "reason": "RAFT NO LEADER"}`."""
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, TypeError, KeyError):
        return ""
