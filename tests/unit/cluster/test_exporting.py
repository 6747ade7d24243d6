"""`logs export`: what can be had is copied in one step, what cannot is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.cluster.engine import EngineError
from podyard.cluster.exporting import export
from podyard.cluster.plan import Observed, ObservedContainer
from tests.unit.cluster.notes import Notes

NAMES = ["demo-etcd-1", "demo-scheduler-1", "demo-worker-1"]


class Engine:
    """Has three containers, one of which is gone when it is asked for its output."""

    host = "127.0.0.1"

    async def identity(self) -> str:
        return "THIS"

    async def observe(self, _: str) -> Observed:
        rows = [ObservedContainer(name, name.split("-")[1], "running", "", "") for name in NAMES]
        return Observed(containers={row.name: row for row in rows})

    def logs(self, name: str, *, follow: bool, tail: int | None) -> Iterator[bytes]:
        if name == "demo-etcd-1":
            raise EngineError("No such container")
        yield f"{name} starts\n".encode()

    async def copy_out(self, *_: object) -> bool:
        return False


async def test_one_step_for_all_and_a_note_for_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    progress = Notes()
    await export(Engine(), "demo", tmp_path / "logs", progress)  # type: ignore[arg-type]
    assert progress.steps == ["copying the logs of 3 containers and the objects"]
    assert progress.notes == ["demo-etcd-1: No such container"]
    assert (tmp_path / "logs/demo-worker-1.log").read_text() == "demo-worker-1 starts\n"
