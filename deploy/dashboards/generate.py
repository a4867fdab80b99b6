"""Writes the JSON of every dashboard: `make dashboards`."""

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.dashboards import cluster, health, idle, node, tenants, workload

FOLDER = Path(__file__).parents[1] / "chart" / "gpusteward" / "files" / "dashboards"
BUILDERS = (cluster.build, tenants.build, workload.build, node.build, idle.build, health.build)


def render_all() -> dict[str, str]:
    """File name -> JSON."""
    pages = {}
    for build in BUILDERS:
        built = build().build()
        for number, panel in enumerate(built.panels or [], start=1):
            panel.id_val = number
        for link in built.links or []:
            link.placement = None  # below the title, not in a menu
        pages[f"{built.uid}.json"] = json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
    return pages


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in render_all().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
