"""Which of the kernel's events make the proxy look again."""

from __future__ import annotations

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from proxy.shell import is_of_a_pod


@pytest.mark.parametrize(
    ("kind", "attribute", "name", "pods"),
    [
        (ifinfmsg, "IFLA_IFNAME", "veth1b2c3d4e", True),
        (ifinfmsg, "IFLA_IFNAME", "eth0", False),
        (ifinfmsg, "IFLA_IFNAME", "lo", False),
        (ifaddrmsg, "IFA_LABEL", "veth1b2c3d4e", True),
        (ifaddrmsg, "IFA_LABEL", "eth0", False),
        (ifaddrmsg, "IFA_ADDRESS", "10.244.0.1", False),
    ],
)
def test_what_pods_do_to_links_is_passed_over(kind, attribute, name, pods):
    message = kind()
    message["attrs"] = [(attribute, name)]
    assert is_of_a_pod(message) is pods
