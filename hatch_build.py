"""Builds the web UI before a wheel or an sdist, where it is missing and npm is installed."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE = "src/gpusteward/analyzer/api/ui/static/index.html"


class WebBuildHook(BuildHookInterface[Any]):
    """An sdist contains the built web UI, so that nobody who installs the package needs Node."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        root = Path(self.root)
        if version == "editable" or (root / BUNDLE).exists():
            return
        npm = shutil.which("npm")
        if npm is None or not (root / "web/package.json").exists():
            self.app.display_warning("The web UI is left out: it is not built (`make web`) and npm is not installed.")
            return
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=root / "web", check=True)  # noqa: S603
        subprocess.run([npm, "run", "build"], cwd=root / "web", check=True)  # noqa: S603
