"""The real kubectl in one namespace: the environment's own, or an older one that stays in a container.

Tests that take the fixture `kubectl` run with both; `minor` says which one it is where they differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from tests.cluster.support import DEADLINE_S, Cluster

_NUMBERS = count()
# Signals do not pass through `docker exec`: who ends a kubectl in a container must know its process.
_NOTED = ("sh", "-c", 'echo $$ >"$0"; exec "$@"')


def narrowed(value: Any, like: Any) -> Any:
    """Of a value only what something like it has, too: fields of mappings, in all depths."""
    if isinstance(value, dict) and isinstance(like, dict):
        return {key: narrowed(value[key], part) for key, part in like.items() if key in value}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [narrowed(item, part) for item, part in zip(value, like, strict=True)]
    return value


class Kubectl:
    """kubectl in one namespace, with the cluster's kubeconfig.

    Args:
        config: the kubeconfig; its folder is for files that the tests show kubectl.
        container: where it runs, with the host's network and that folder; None: here.
    """

    def __init__(self, cluster: Cluster, config: Path, namespace: str, container: str | None = None) -> None:
        self.cluster = cluster
        self.config = config
        self.folder = config.parent
        self.namespace = namespace
        self.container = container
        self.environment = cluster.environment

    @cached_property
    def minor(self) -> int:
        """Its version's second number."""
        return int(self.json("version", "--client")["clientVersion"]["minor"].rstrip("+"))

    def make_namespace(self) -> None:
        """Makes the namespace, and waits for what pods in it need."""
        self.run("create", "namespace", self.namespace)
        for needed in ("serviceaccount/default", "configmap/kube-root-ca.crt"):
            self.run("wait", "--for=create", needed, "--timeout=60s")

    def remove_namespace(self) -> None:
        """Removes the namespace with all in it."""
        self.run("delete", "namespace", self.namespace, "--timeout=80s")

    def file(self, name: str, content: Any) -> str:
        """Writes a file that kubectl sees; what is not text is written as JSON."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def command(self, *arguments: str, env: dict[str, str] | None = None, options: str = "-i") -> list[str]:
        """The whole command line. `options` are for `docker exec` where it runs in a container."""
        variables = {"KUBECONFIG": str(self.config), **(env or {})}
        kubectl = ["env", *(f"{key}={value}" for key, value in variables.items()), "kubectl"]
        # `config set-context` of 1.32 takes the short flag for an unknown one of its own.
        if not {"-n", "-A", "config"} & set(arguments):
            kubectl += ["-n", self.namespace]
        where = [] if self.container is None else ["docker", "exec", options, self.container]
        return [*where, *kubectl, *arguments]

    def call(
        self, *arguments: str, input: bytes = b"", env: dict[str, str] | None = None, timeout_s: float = 90.0
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs it, whatever comes of it."""
        return subprocess.run(
            self.command(*arguments, env=env),
            env=self.environment,
            input=input,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )

    def both(
        self, *arguments: str, code: int = 0, input: Any = "", env: dict[str, str] | None = None
    ) -> tuple[str, str]:
        """Output and messages of a kubectl that must end with a code; input that is not text goes as JSON."""
        text = input if isinstance(input, str) else json.dumps(input)
        done = self.call(*arguments, input=text.encode(), env=env)
        output, messages = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{output}\n{messages}"
        return output, messages

    def run(self, *arguments: str, code: int = 0, input: Any = "", env: dict[str, str] | None = None) -> str:
        """Output; with another code than 0 what it said of the failure."""
        output, messages = self.both(*arguments, code=code, input=input, env=env)
        return output if code == 0 else messages

    def json(self, *arguments: str) -> Any:
        """Output as JSON, parsed."""
        return json.loads(self.run(*arguments, "-o", "json"))

    def path(self, reference: str, path: str) -> str:
        """What a JSON path finds in an object."""
        return self.run("get", reference, "-o", f"jsonpath={{{path}}}")

    @contextmanager
    def going(
        self, *arguments: str, env: dict[str, str] | None = None, **options: Any
    ) -> Iterator[subprocess.Popen[Any]]:
        """A kubectl that goes on; killed at the end. Its output is a pipe unless `options` say otherwise."""
        command = self.command(*arguments, env=env)
        note = self.folder / f"pid-{next(_NUMBERS)}"
        if self.container is not None:
            command[4:4] = [*_NOTED, str(note)]
        process = subprocess.Popen(command, **{"env": self.environment, "stdout": subprocess.PIPE, **options})
        try:
            yield process
        finally:
            if self.container is not None and process.poll() is None and note.exists():
                kill = ["sh", "-c", 'kill -9 "$0"', note.read_text().strip()]
                subprocess.run(["docker", "exec", self.container, *kill], check=False, capture_output=True)
            process.kill()
            process.wait()
            for file in (process.stdin, process.stdout, process.stderr):
                if file is not None:
                    file.close()

    @contextmanager
    def watching(self, *arguments: str) -> Iterator[Watching]:
        """A kubectl that goes on, line by line, output and messages alike."""
        ours, its = os.pipe()
        watching = Watching(ours)
        try:
            with os.fdopen(its, "w") as file, self.going(*arguments, stdout=file, stderr=file):
                yield watching
        finally:
            watching.join()

    @contextmanager
    def forwarding(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> Iterator[tuple[subprocess.Popen[Any], list[int]]]:
        """A port-forward; the local ports that it has chosen, one for each that it was asked for."""
        wanted = len(arguments) - 1
        command = ("port-forward", "--address=127.0.0.1", *arguments)
        with self.going(*command, env=env, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline().decode() for _ in range(wanted)]
            yield process, [int(line.split(" -> ")[0].rpartition(":")[2]) for line in lines]


class Watching:
    """Lines as they come, with the moment they came.

    Args:
        file: descriptor they are read from until its end; closed then.
    """

    def __init__(self, file: int) -> None:
        self._file = os.fdopen(file, encoding="utf-8")
        self._lines: list[tuple[float, str]] = []
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self._file:
            for line in self._file:
                with self._more:
                    self._lines.append((time.monotonic(), line.rstrip("\n")))
                    self._more.notify_all()

    def line_with(self, text: str, timeout_s: float = DEADLINE_S) -> tuple[float, str]:
        """The first line that holds a text, and when it came."""

        def found() -> tuple[float, str] | None:
            return next((entry for entry in self._lines if text in entry[1]), None)

        with self._more:
            assert self._more.wait_for(found, timeout_s), f"no {text!r} in {self._lines}"
            entry = found()
            assert entry is not None
            return entry

    def has(self, text: str) -> bool:
        """True when a line with a text has come."""
        with self._more:
            return any(text in line for _, line in self._lines)

    def join(self) -> None:
        """Waits until nothing more can come."""
        self._thread.join()
