"""The settings that the demo starts the analyzer with: a file like any other, in a folder of its own."""

from collections.abc import Sequence
from pathlib import Path

import yaml

INTERVAL_SECONDS = 30
PATIENCE_SECONDS = 60
"""Longer than the window takes to be filled at the start, on a slow machine too."""

PRICES = {
    "currency": "USD",
    "per_gpu_hour": {"H100": 4.0, "H200": 5.5, "A100": 2.2, "A100 80GB": 2.8, "B200": 7.0, "L40S": 1.3, "L4": 0.7},
    "default": 0.9,
    "discount_percent": {"student-projects": 30},
    "electricity_per_kwh": 0.12,
}
"""Made up, of the size that clouds ask for."""


def write_demo_config(folder: Path, targets: Sequence[str]) -> Path:
    """Scrape these; keep the books in this folder."""
    path = folder / "config.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "prometheus": {"url": "", "time_window_min": 10},
                "scrape": {
                    "targets": list(targets),
                    "interval": INTERVAL_SECONDS,
                    "timeout": PATIENCE_SECONDS,
                    "kubernetes": "never",
                },
                "scheduler": {"interval": INTERVAL_SECONDS},
                "kubernetes": {"owners": "never"},
                "logging": {"level": "warning"},
                "ledger": {"url": f"sqlite:///{folder / 'gpusteward.db'}"},
                "prices": PRICES,
            },
            sort_keys=False,
        )
    )
    return path
