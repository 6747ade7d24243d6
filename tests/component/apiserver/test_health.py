"""The health endpoints over members of etcd that die."""

from __future__ import annotations

import asyncio
from typing import Any

from apiserver.store.etcd import EtcdStore
from tests.component.apiserver.served import Certificates, Served, serve

_PATHS = ("/livez", "/readyz", "/healthz")
_SETTLE_S = 60.0


async def _answer(served: Served, path: str) -> tuple[int, str]:
    async with served.anonymous.get(path) as answer:
        return answer.status, await answer.text()


async def _until(served: Served, path: str, wanted: int) -> str:
    async with asyncio.timeout(_SETTLE_S):
        while True:
            status, text = await _answer(served, path)
            if status == wanted:
                return text
            await asyncio.sleep(0.2)


async def test_a_majority_of_etcd_decides(etcd_cluster: Any, certificates: Certificates) -> None:
    store = EtcdStore([member.endpoint for member in etcd_cluster])
    async with serve(store, certificates) as served:
        for path in _PATHS:
            assert await _answer(served, path) == (200, "ok")
        await asyncio.to_thread(etcd_cluster[0].kill)
        for path in _PATHS:
            assert await _until(served, path, 200) == "ok"
        await asyncio.to_thread(etcd_cluster[1].kill)
        for path in _PATHS:
            lines = (await _until(served, path, 500)).splitlines()
            assert lines[:2] == ["[+]ping ok", "[-]etcd failed: reason withheld"]
            assert lines[-1] == f"{path[1:]} check failed"
        assert await _answer(served, "/livez/ping") == (200, "ok")
        await asyncio.to_thread(etcd_cluster[1].start)
        for path in _PATHS:
            assert await _until(served, path, 200) == "ok"
