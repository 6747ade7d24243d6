"""The API server without its listeners: store, watch cache, registry, method table.

`main` puts listeners before it; the simulation and `podyard dev` call it in process.
"""

from __future__ import annotations

from apiserver import compaction, event_expiry
from apiserver.auth.authz import AlwaysAllow, Authorizer
from apiserver.auth.user import AUTHENTICATED, RequestContext, UserInfo
from apiserver.bootstrap import Bootstrap
from apiserver.registry import Registry, build_cache
from apiserver.rules import admission
from apiserver.serve.rpc import Method, Services
from apiserver.serve.streams import PodStreams
from apiserver.store.base import Store
from podyard.base.pki import SigningKey
from podyard.base.run import Background
from podyard.client.local_transport import LocalTransport


class ApiCore:
    """One API server's core.

    Args:
        store: etcd, or in memory.
        compaction_interval_s: the least history that the store keeps.
        event_ttl_s: how long an event stays after it was told last.
        kubelet_tls: with which kubelets are reached; None where there are none to dial.
        token_key: signs service-account tokens; None makes one that ends with this object.
    """

    def __init__(
        self,
        store: Store,
        *,
        authorizer: Authorizer | None = None,
        service_cidr: str = "10.96.0.0/16",
        service_ip: str = "10.96.0.1",
        dns_ip: str = "10.96.0.10",
        default_toleration_s: int = 300,
        compaction_interval_s: float = compaction.PERIOD_S,
        event_ttl_s: float = event_expiry.TTL_S,
        address: str = "",
        port: int = 6443,
        kubelet_tls: object = None,
        token_key: SigningKey | None = None,
    ) -> None:
        self.store = store
        self._compaction_interval_s = compaction_interval_s
        self._event_ttl_s = event_ttl_s
        self.cache = build_cache(store)
        defaults = admission.Defaults(default_toleration_s, default_toleration_s)
        self.authorizer = authorizer or AlwaysAllow()
        self.registry = Registry(
            store,
            self.cache,
            admission_defaults=defaults,
            service_cidr=service_cidr,
            token_key=token_key,
            authorizer=self.authorizer,
        )
        self.streams = PodStreams(self.registry, kubelet_tls)  # type: ignore[arg-type]
        self.methods: dict[str, Method] = Services(self.registry, self.authorizer, self.streams).methods()
        self.bootstrap = Bootstrap(
            self.registry, address=address, port=port, service_ip=service_ip, dns_ip=dns_ip
        )

    def start(self, background: Background) -> None:
        """Starts following the store and making the system's objects."""
        background.start(self.cache.run(), name="watch cache")
        background.start(self.bootstrap.run(), name="bootstrap")
        compacting = compaction.run(self.store, self.cache.drop_history, period_s=self._compaction_interval_s)
        background.start(compacting, name="compaction")
        expiring = event_expiry.run(self.store, self.cache, ttl_s=self._event_ttl_s)
        background.start(expiring, name="event expiry")

    def transport(self, user: str, *groups: str, gate: object = None) -> LocalTransport:
        """A client's way in without a network, as a user."""
        context = RequestContext(UserInfo(user, (*groups, AUTHENTICATED)), user_agent=user)
        return LocalTransport(self.methods, context, gate)

    async def close(self) -> None:
        await self.streams.close()
        await self.store.close()
