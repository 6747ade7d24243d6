"""Leader election on a Lease, with upstream's figures: 15 s lease, renewed within 10 s, tried every 2 s.

How long ago the present holder renewed is counted from when this process saw the lease change,
never from `renewTime`: clocks of hosts may differ. A leader that cannot renew stops acting before
another can start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Lease, copy_of
from podyard.base import clock, ids, log
from podyard.base.run import Background
from podyard.client.client import Client

_LOGGER = log.get_logger("leader")


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """Upstream: LeaseDuration, RenewDeadline, RetryPeriod."""

    lease_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class LeadershipLost(Exception):
    """The lease could not be renewed in time: whoever acted on it must stop."""


class LeaderElection:
    """Competes for one Lease.

    Args:
        name: the lease's name in `kube-system`, such as "kube-scheduler".
        identity: unique for each process.
    """

    def __init__(
        self, client: Client, name: str, identity: str, times: ElectionTimes = ElectionTimes()
    ) -> None:
        self.is_leader = False
        self._client = client
        self._name = name
        self._identity = identity
        self._times = times
        self._observed: Lease | None = None
        self._observed_at_s = 0.0
        self._renewed_at_s = 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for leadership, then runs `lead` until it ends or leadership is lost.

        Raises:
            LeadershipLost: the process should end; its supervisor starts it anew.
        """
        while not await self._try():
            await clock.sleep(self._times.retry_s * (1 + 0.2 * ids.jitter()))
        self.is_leader = True
        _LOGGER.info("became leader", lease=self._name, identity=self._identity)
        try:
            async with Background() as background:
                background.start(self._keep(), name="lease renewal")
                await lead()
        finally:
            self.is_leader = False
            await self._release()

    async def _keep(self) -> None:
        """Renews for ever.

        The deadline counts from the beginning of the last try that succeeded: from then on, at the
        earliest, the others count the lease's time.
        """
        while True:
            await clock.sleep(self._times.retry_s)
            left_s = self._renewed_at_s + self._times.renew_deadline_s - clock.now_s()
            try:
                async with clock.timeout(max(left_s, 0.0)):
                    while not await self._try():
                        self._check_holder()
                        await clock.sleep(self._times.retry_s)
            except TimeoutError:
                raise LeadershipLost(
                    f"{self._name} could not be renewed for {self._times.renew_deadline_s:g} s"
                ) from None

    def _check_holder(self) -> None:
        holder = self._observed.spec.holderIdentity if self._observed is not None else self._identity
        if holder != self._identity:
            raise LeadershipLost(f"{self._name} is held by {holder}")

    async def _try(self) -> bool:
        """One attempt to take or renew the lease."""
        began_s = clock.now_s()
        try:
            held = await self._attempt()
            if held:
                self._renewed_at_s = began_s
            return held
        except ApiError as error:
            _LOGGER.debug("lease attempt failed", lease=self._name, error=error.message)
            return False

    async def _attempt(self) -> bool:
        now_s = clock.now_s()
        if self.is_leader and await self._renew(now_s):
            return True
        try:
            current = await self._client.get(Lease, self._name, "kube-system")
        except errors.NotFound:
            lease = Lease(metadata={"name": self._name, "namespace": "kube-system"})
            self._fill(lease, now_s, transitions=0)
            self._see(await self._client.create(lease))
            return True
        if self._observed is None or _spec(current) != _spec(self._observed):
            self._see(current)
        holder = current.spec.holderIdentity
        held = bool(holder) and self._observed_at_s + self._times.lease_s > now_s
        if holder != self._identity and held:
            return False
        lease = copy_of(current)
        taken = holder != self._identity
        self._fill(
            lease, now_s, transitions=current.spec.leaseTransitions + (1 if taken else 0), acquired=taken
        )
        self._see(await self._client.update(lease))
        return True

    async def _renew(self, now_s: float) -> bool:
        """Renews as last seen, without reading first; False when someone has written since."""
        if self._observed is None or self._observed.spec.holderIdentity != self._identity:
            return False
        lease = copy_of(self._observed)
        self._fill(lease, now_s, transitions=lease.spec.leaseTransitions, acquired=False)
        try:
            self._see(await self._client.update(lease))
        except (errors.Conflict, errors.NotFound):
            return False
        return True

    def _fill(self, lease: Lease, now_s: float, *, transitions: int, acquired: bool = True) -> None:
        stamp = {"seconds": int(now_s), "nanos": int(now_s % 1 * 1e6) * 1000}
        spec: Any = lease.spec
        spec.holderIdentity = self._identity
        spec.leaseDurationSeconds = int(self._times.lease_s)
        spec.leaseTransitions = transitions
        if acquired:
            spec.acquireTime.CopyFrom(type(spec.acquireTime)(**stamp))
        spec.renewTime.CopyFrom(type(spec.renewTime)(**stamp))

    def _see(self, lease: Lease) -> None:
        self._observed = lease
        self._observed_at_s = clock.now_s()

    async def _release(self) -> None:
        """Gives the lease up, so that a successor need not wait for its end."""
        if self._observed is None or self._observed.spec.holderIdentity != self._identity:
            return
        lease = copy_of(self._observed)
        lease.spec.holderIdentity = ""
        lease.spec.leaseDurationSeconds = 1
        try:
            async with clock.real_timeout(2.0):
                await self._client.update(lease)
        except (ApiError, TimeoutError) as error:
            _LOGGER.debug("lease not released", lease=self._name, error=repr(error))


def _spec(lease: Lease) -> bytes:
    return lease.spec.SerializeToString()
