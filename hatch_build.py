"""Hooks of the build: the web UI is built first, and the metadata says where the project is published."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

BUNDLE = "src/gpusteward/analyzer/api/ui/static/index.html"
RELATIVE_LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\]\()(?!\w+:|#)(?P<path>[^)]+)\)")


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


class ProjectUrlHook(MetadataHookInterface):
    """`PROJECT_URL`, set by the release: the address of the repository. A package index shows the README without the
    files beside it, so its links and images are made absolute, of this version."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        url, tag = os.environ.get("PROJECT_URL", "").rstrip("/"), f"v{metadata['version']}"
        metadata["urls"] = make_urls(url, tag) if url else {}
        text = make_links_absolute(readme, url, tag) if url else readme
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def make_urls(url: str, tag: str) -> dict[str, str]:
    """In the words that package indexes know."""
    return {
        "Homepage": url,
        "Source": url,
        "Documentation": f"{url}/blob/{tag}/docs/README.md",
        "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }


def make_links_absolute(text: str, url: str, tag: str) -> str:
    """Images as files, everything else as pages."""

    def replace(link: re.Match[str]) -> str:
        is_file = link["image"] or link["path"].endswith((".png", ".svg"))
        return f"{link['image']}{link['text']}{url}/{'raw' if is_file else 'blob'}/{tag}/{link['path']})"

    return RELATIVE_LINK.sub(replace, text)
