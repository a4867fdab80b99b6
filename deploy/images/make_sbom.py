"""Writes the bill of materials of an image as CycloneDX JSON, from its locked requirements. Standard library only.

python make_sbom.py gpusteward-agent requirements/agent.txt [--installed /opt/gpusteward] > sbom.cdx.json

The same input gives the same bytes: there is no time in it, and its serial number is derived from the content.
"""

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]
PIN = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?==(?P<version>[^\s;]+)\s*"
    r"(?:;\s*(?P<marker>.*?))?(?P<hashes>(?:\s+--hash=sha256:[0-9a-f]{64})+)"
)


class Pin(NamedTuple):
    """A locked requirement."""

    name: str
    version: str
    marker: str  # of the environments that need it; empty: all
    hashes: tuple[str, ...]  # SHA-256 of its distributions


def read_pins(text: str) -> Iterator[Pin]:
    """Raises ValueError for a line that is not pinned with hashes."""
    for line in text.replace("\\\n", " ").splitlines():
        requirement = line.partition("#")[0].strip()
        if not requirement:
            continue
        found = PIN.fullmatch(requirement)
        if found is None:
            raise ValueError(f"not pinned with a hash: {requirement[:80]}")
        hashes = tuple(re.findall(r"[0-9a-f]{64}", found["hashes"]))
        yield Pin(normalize(found["name"]), found["version"], found["marker"] or "", hashes)


def normalize(name: str) -> str:
    """The name of a distribution as in purls."""
    return re.sub(r"[-_.]+", "-", name).lower()


def describe(pin: Pin) -> Json:
    """A component. Its hashes are those of all files of the release that the installer accepts."""
    purl = f"pkg:pypi/{pin.name}@{pin.version}"
    component: Json = {"type": "library", "bom-ref": purl, "name": pin.name, "version": pin.version, "purl": purl}
    component["hashes"] = [{"alg": "SHA-256", "content": each} for each in sorted(pin.hashes)]
    if pin.marker:
        component["properties"] = [{"name": "gpusteward:environment", "value": pin.marker}]
    return component


def make_sbom(name: str, version: str, pins: list[Pin]) -> Json:
    """The document."""
    reference = f"pkg:generic/{name}@{version}"
    components = [describe(pin) for pin in sorted(pins)]
    content = json.dumps([reference, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": reference, "name": name, "version": version}},
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def read_installed(environment: Path) -> Mapping[str, str]:
    """Versions of the distributions of a virtual environment by name."""
    folders = [str(each) for each in environment.glob("lib/python*/site-packages")]
    return {normalize(each.name): each.version for each in distributions(path=folders)}


def choose_installed(pins: list[Pin], installed: Mapping[str, str], *, own: str) -> list[Pin]:
    """The pins of what is installed. Raises ValueError for a distribution that is not locked."""
    chosen = [pin for pin in pins if installed.get(pin.name) == pin.version]
    unlocked = set(installed) - {pin.name for pin in chosen} - {own}
    if unlocked:
        raise ValueError(f"installed, but not locked: {', '.join(sorted(unlocked))}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the bill of materials of an image as CycloneDX JSON.")
    parser.add_argument("name", help="name of the image")
    parser.add_argument("requirements", type=Path, help="locked requirements")
    parser.add_argument("--installed", type=Path, help="virtual environment: list only what is installed in it")
    options = parser.parse_args()
    project = tomllib.loads(find_project(Path(__file__)).read_text(encoding="utf-8"))["project"]
    pins = list(read_pins(options.requirements.read_text(encoding="utf-8")))
    if options.installed:
        pins = choose_installed(pins, read_installed(options.installed), own=project["name"])
    json.dump(make_sbom(options.name, project["version"], pins), sys.stdout, indent=2)
    print()


def find_project(script: Path) -> Path:
    """pyproject.toml beside the script, as in an image, or at the root of the repository."""
    return next(path for each in script.resolve().parents if (path := each / "pyproject.toml").exists())


if __name__ == "__main__":
    main()
