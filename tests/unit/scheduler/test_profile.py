"""The default profile's table, and the scores that look at one node alone."""

from __future__ import annotations

import pytest

from podyard.api.types import Pod
from scheduler.plugins.images import IMAGES, images_of
from scheduler.plugins.resources import BALANCED
from scheduler.plugins.taints import TAINTS
from scheduler.profile import DEFAULT
from tests.unit.scheduler.builders import cluster, node, pod, scored

MEBI = 1024 * 1024


def test_order_and_weights_are_upstreams():
    assert [(plugin.name, plugin.weight if plugin.score else 0) for plugin in DEFAULT] == [
        ("NodeUnschedulable", 0),
        ("NodeName", 0),
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodePorts", 0),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ]


def with_images(*images: str) -> Pod:
    made = pod()
    del made.spec.containers[:]
    for number, image in enumerate(images):
        made.spec.containers.add(name=f"c{number}", image=image)
    return made


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1", "nginx:1"),
        ("host:5000/nginx", "host:5000/nginx:latest"),
        ("host:5000/nginx@sha256:ab", "host:5000/nginx@sha256:ab"),
    ],
)
def test_images_are_looked_for_with_a_tag(image, named):
    assert images_of(with_images(image)) == [named]


def test_images_of_all_containers_and_volumes_count():
    made = with_images("main:1")
    made.spec.initContainers.add(name="init", image="init:1")
    made.spec.volumes.add(name="v").volumeSource.image.reference = "data:1"
    made.spec.volumes.add(name="e").volumeSource.emptyDir.SetInParent()
    assert images_of(made) == ["init:1", "main:1", "data:1"]


@pytest.mark.parametrize(
    ("size_mebi", "holders", "score"),
    [
        (40, 1, 0),  # 40 MiB on half of the nodes count 20: under the least
        (250, 1, 100 * (125 - 23) // (1000 - 23)),
        (250, 2, 100 * (250 - 23) // (1000 - 23)),
        (4000, 2, 100),
    ],
)
def test_a_present_image_counts_by_its_size_and_by_how_many_nodes_have_it(size_mebi, holders, score):
    held = [("big:1", size_mebi * MEBI)]
    cache = cluster(node("a", images=held), node("b", images=held if holders == 2 else ()))
    said = scored(IMAGES, with_images("big:1"), cache)
    assert said == {"a": score, "b": score if holders == 2 else 0}


def test_the_most_that_counts_grows_with_the_containers():
    cache = cluster(node("a", images=[("big:1", 1500 * MEBI)]))
    said = scored(IMAGES, with_images("big:1", "none:1"), cache)
    assert said == {"a": 100 * (1500 - 23) // (2000 - 23)}


def test_an_image_that_nobody_has_costs_nothing_for_each_node():
    assert scored(IMAGES, with_images("none:1"), cluster(node("a"))) is None


def test_balance_is_what_the_pod_changes():
    """75 where it changes nothing, more where it mends, less where it spoils."""
    there = [node(name, cpu="4", memory="4Gi") for name in ("even", "cpu-heavy")]
    heavy = pod("x", cpu="2", nodeName="cpu-heavy")
    cache = cluster(*there, pods=[heavy])
    assert scored(BALANCED, pod(cpu="1", memory="1Gi"), cache) == {"even": 75, "cpu-heavy": 75}
    assert scored(BALANCED, pod(memory="2Gi"), cache) == {"even": 62, "cpu-heavy": 87}
    assert scored(BALANCED, pod(cpu="2"), cache) == {"even": 62, "cpu-heavy": 62}


def test_a_pod_that_asks_for_nothing_changes_no_balance():
    assert scored(BALANCED, pod(), cluster(node("a"))) is None


def test_untolerated_preferences_count_against_the_most_tainted():
    soft = [{"key": key, "effect": "PreferNoSchedule"} for key in ("k", "l")]
    cache = cluster(node("a"), node("b", taints=soft[:1]), node("c", taints=soft))
    assert scored(TAINTS, pod(), cache) == {"a": 100, "b": 50, "c": 0}
    tolerant = pod(tolerations=[{"key": "k", "operator": "Exists"}])
    assert scored(TAINTS, tolerant, cache) == {"a": 100, "b": 100, "c": 0}
    assert scored(TAINTS, pod(), cluster(node("a"))) is None
