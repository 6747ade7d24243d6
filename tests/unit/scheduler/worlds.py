"""Small random clusters for the rules about other pods, and what may happen to them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from podyard.api.types import Node, Pod
from tests.unit.scheduler.builders import HOSTNAME, ZONE, affinity, cluster, namespace, node, pod
from tests.unit.scheduler.plain import World

# A busy machine is no finding.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMESPACES = {"default": {}, "green": {"env": "prod"}, "blue": {"env": "test"}}

labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(["web", "db"]), "tier": st.sampled_from(["a", "b"])}
)
selector = st.one_of(
    st.just({}),
    st.sampled_from(["web", "db"]).map(lambda value: {"matchLabels": {"app": value}}),
    st.sampled_from(["In", "NotIn"]).map(
        lambda operator: {"matchExpressions": [{"key": "app", "operator": operator, "values": ["web"]}]}
    ),
    st.sampled_from(["Exists", "DoesNotExist"]).map(
        lambda operator: {"matchExpressions": [{"key": "tier", "operator": operator}]}
    ),
)
keys = st.sampled_from([HOSTNAME, ZONE])


@st.composite
def terms(draw) -> dict:
    made = {"topologyKey": draw(keys)}
    if draw(st.integers(0, 9)):
        made["labelSelector"] = draw(selector)
    made["namespaces"] = draw(st.sampled_from([[], [], ["green"], ["default", "blue"]]))
    chooser = draw(st.sampled_from([None, None, {}, {"matchLabels": {"env": "prod"}}]))
    if chooser is not None:
        made["namespaceSelector"] = chooser
    return made


sides = st.builds(
    affinity,
    required=st.lists(terms(), max_size=2),
    preferred=st.lists(st.tuples(st.integers(1, 100), terms()), max_size=2),
)
affinities = st.fixed_dictionaries({}, optional={"podAffinity": sides, "podAntiAffinity": sides})


@st.composite
def constraints(draw) -> dict:
    made = {
        "topologyKey": draw(keys),
        "maxSkew": draw(st.integers(1, 2)),
        "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
        "labelSelector": draw(selector),
    }
    if made["whenUnsatisfiable"] == "DoNotSchedule" and draw(st.booleans()):
        made["minDomains"] = draw(st.integers(1, 3))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        value = draw(st.sampled_from([None, "Honor", "Ignore"]))
        if value:
            made[policy] = value
    if draw(st.booleans()):
        made["matchLabelKeys"] = ["tier"]
    return made


@st.composite
def incoming(draw, *, name: str = "new", with_affinity: bool = True) -> Pod:
    spec = {}
    if with_affinity and draw(st.booleans()):
        spec["affinity"] = draw(affinities)
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = draw(st.lists(constraints(), max_size=2))
    if draw(st.booleans()):
        spec["nodeSelector"] = {"disk": "ssd"}
    if draw(st.booleans()):
        spec["tolerations"] = [{"operator": "Exists"}]
    where = draw(st.sampled_from(sorted(NAMESPACES)))
    return pod(name, labels=draw(labels), namespace=where, ending=False, **spec)


@st.composite
def nodes(draw, name: str) -> Node:
    made = node(
        name,
        zone=draw(st.sampled_from(["", "east", "west"])),
        labels=draw(st.sampled_from([{}, {"disk": "ssd"}])),
        taints=draw(st.sampled_from([(), ({"key": "k", "effect": "NoSchedule"},)])),
    )
    if not draw(st.integers(0, 7)):
        del made.metadata.labels[HOSTNAME]
    return made


@st.composite
def placed(draw, name: str, where: st.SearchStrategy[str]) -> Pod:
    made = draw(incoming(name=name))
    made.spec.nodeName = draw(where)
    if draw(st.integers(0, 4)) == 0:
        made.metadata.deletionTimestamp.seconds = 1
    return made


@st.composite
def worlds(draw) -> World:
    names = [f"n{number}" for number in range(draw(st.integers(1, 4)))]
    there = [draw(nodes(name)) for name in names]
    pods = [draw(placed(f"p{number}", st.sampled_from(names))) for number in range(draw(st.integers(0, 6)))]
    return World(there, pods, NAMESPACES)


def cache_of(world: World):
    spaces = [namespace(name, **own) for name, own in world.namespaces.items()]
    return cluster(*world.nodes, pods=world.pods, namespaces=spaces)
