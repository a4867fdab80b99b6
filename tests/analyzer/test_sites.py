"""A smaller cut of bench/sites.py: foreign sites are right, or say what is wrong."""

from pathlib import Path

import pytest

from tests.analyzer.sites.drive import NAMED, RIGHT, drive, judge
from tests.analyzer.sites.variants import VARIANTS, Variant

pytestmark = pytest.mark.slow

CUT = {
    "kube-prometheus": RIGHT,
    "moved with .+": RIGHT,
    "pod_name of the exporter": RIGHT,
    "no pod-resources": NAMED,
    "no pod-resources, all rest": NAMED,
    "no pod on one node": NAMED,
    "no up, honor_labels": RIGHT,
    "only held GPUs": NAMED,
    "two engines of one name": NAMED,
    "empty pages": NAMED,
    "no UUID": RIGHT,
    "one UUID per node": RIGHT,
    "no node": NAMED,
    "holders are scraped too": RIGHT,
    "no job, honor_labels": RIGHT,
    "no job, no pods": NAMED,
    "no namespace": NAMED,
    "cluster of one job": NAMED,
    "cluster of one engine": NAMED,
    "two names of nodes": NAMED,
    "agent, pod_name": RIGHT,
    "HAMi, pod_name": RIGHT,
    "cluster_name": RIGHT,
    "no cluster label": NAMED,
    "up 0": NAMED,
    "one fails at start": NAMED,
    "lag 120 s": RIGHT,
    "growing lag": NAMED,
    "recording rules only": NAMED,
    "profiling only": RIGHT,
    "agent and dcgm-exporter": RIGHT,
    "half of the queries": NAMED,
}


@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.name in CUT], ids=lambda one: one.name)
def test_a_foreign_site_is_never_silently_wrong(variant: Variant, tmp_path: Path):
    found = drive(variant, tmp_path)
    outcome = judge(variant, found)
    assert outcome.result == CUT[variant.name], (outcome, found.health["findings"])


def test_every_site_of_the_cut_exists_and_names_are_unique():
    names = [one.name for one in VARIANTS]
    assert CUT.keys() <= set(names)
    assert len(names) == len(set(names)) >= 40
