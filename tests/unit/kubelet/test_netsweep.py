"""What a killed runtime leaves of a sandbox's network is freed, and nothing that anyone has."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from kubelet.runtime.netsweep import NetworkSweeper, Trace


class Node:
    """Folders as plugins and kernel keep them; a namespace is a file, a hard link puts a process in it."""

    def __init__(self, root: Path) -> None:
        self.addresses, self.namespaces, self.processes = root / "podyard", root / "netns", root / "proc"
        for folder in (self.addresses, self.namespaces, self.processes):
            folder.mkdir()
        for name in ("lock", "last_reserved_ip.0"):
            (self.addresses / name).write_text("10.244.0.9")
        (self.processes / "self").mkdir()
        self.sandboxes: list[str] = []
        self.sweeper = NetworkSweeper(self.addresses, self.namespaces, self.processes)

    def hold(self, address: str, sandbox: str) -> Path:
        path = self.addresses / address
        path.write_text(f"{sandbox}\r\neth0")
        return path

    def namespace(self, name: str, pid: int | None) -> Path:
        path = self.namespaces / name
        path.touch()
        if pid is not None:
            (self.processes / str(pid) / "ns").mkdir(parents=True)
            (self.processes / str(pid) / "ns" / "net").hardlink_to(path)
        return path

    async def sandbox_ids(self) -> Collection[str]:
        return self.sandboxes

    async def sweep(self) -> list[Trace]:
        return await self.sweeper.sweep(self.sandbox_ids)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_an_address_of_no_sandbox_is_freed_at_the_second_look(node: Node) -> None:
    node.sandboxes = ["known"]
    lost, kept = node.hold("10.244.0.2", "lost"), node.hold("10.244.0.3", "known")
    assert await node.sweep() == []
    assert await node.sweep() == [Trace(lost, "lost")]
    assert (lost.exists(), kept.exists()) == (False, True)
    assert await node.sweep() == []
    assert sorted(path.name for path in node.addresses.iterdir()) == [
        "10.244.0.3",
        "last_reserved_ip.0",
        "lock",
    ]


async def test_a_namespace_that_no_process_is_in_is_freed(node: Node) -> None:
    lost, kept = node.namespace("cni-lost", None), node.namespace("cni-kept", 17)
    other = node.namespace("by-hand", None)
    await node.sweep()
    assert await node.sweep() == [Trace(lost)]
    assert (lost.exists(), kept.exists(), other.exists()) == (False, True, True)


async def test_nothing_is_freed_while_a_sandbox_is_being_made(node: Node) -> None:
    path = node.hold("10.244.0.2", "new")
    with node.sweeper.starting():
        assert [await node.sweep() for _ in range(3)] == [[], [], []]
    assert await node.sweep() == []
    node.sandboxes = ["new"]
    assert await node.sweep() == []
    assert path.exists()


async def test_a_start_between_the_looks_makes_the_first_one_void(node: Node) -> None:
    path = node.hold("10.244.0.2", "lost")
    await node.sweep()
    with node.sweeper.starting():
        pass
    assert await node.sweep() == []
    assert await node.sweep() == [Trace(path, "lost")]


async def test_a_start_during_a_look_makes_that_look_void(node: Node) -> None:
    path = node.hold("10.244.0.2", "new")
    await node.sweep()

    async def ids() -> Collection[str]:
        with node.sweeper.starting():
            return []

    assert await node.sweeper.sweep(ids) == []
    assert path.exists()


async def test_an_address_that_has_changed_hands_is_not_suspect_yet(node: Node) -> None:
    path = node.hold("10.244.0.2", "lost")
    await node.sweep()
    node.hold("10.244.0.2", "next")
    assert await node.sweep() == []
    assert path.exists()


async def test_a_node_without_pods_has_nothing_to_sweep(tmp_path: Path) -> None:
    sweeper = NetworkSweeper(tmp_path / "a", tmp_path / "b", tmp_path / "c")

    async def never() -> Collection[str]:
        raise AssertionError("nobody need be asked")

    assert await sweeper.sweep(never) == []
