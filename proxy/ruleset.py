"""The node's packet rules as text for nft. Pure.

One table, `ip podyard`, replaced as a whole in one transaction: the kernel never shows half of it.
The guard against leaks stands in a table of its own that the node's entrypoint sets first; this
one repeats it, so that a node whose rules were flushed is safe again with the next transaction.
"""

from __future__ import annotations

from proxy.model import Desired, Network

TABLE = "podyard"


def render(wanted: Desired, network: Network) -> str:
    """The whole table for `nft -f -`."""
    masquerade = ""
    if wanted.own_range:
        # Pods see each other's own addresses; everyone else sees the node's.
        masquerade = f"ip saddr {wanted.own_range} ip daddr != {network.pods} masquerade"
    return f"""table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
    chain postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        {masquerade}
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        ip daddr {network.services} reject with icmp host-unreachable
    }}
    chain output {{
        type filter hook output priority filter; policy accept;
        oifname != "lo" ip daddr {network.services} reject with icmp host-unreachable
    }}
}}
"""
