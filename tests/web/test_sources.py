"""The sources of the web UI: unit tests, lock file, generated types, and texts without addresses of other sites."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.openapi import main as write_document
from tests.conftest import give_up
from tests.documents import ROOT

pytestmark = pytest.mark.slow

WEB = ROOT / "web"
SOURCES = [path for path in (WEB / "src").rglob("*") if path.suffix in (".ts", ".tsx", ".css")]


@pytest.fixture(scope="module")
def npm() -> str:
    """Skips where Node or the packages of the web UI are not installed."""
    found = shutil.which("npm")
    if found is None:
        give_up("Node is not installed; the web UI needs 20.19 or newer")
    if not (WEB / "node_modules/.ready").exists():
        give_up("the packages of the web UI are not installed; `make web` installs them")
    return str(found)


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_unit_tests_pass(npm: str):
    run(npm, "test", "--silent", "--", "--reporter=dot")


@pytest.mark.usefixtures("npm")
def test_the_types_of_the_api_are_generated_from_its_current_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    document, written = tmp_path / "openapi.json", tmp_path / "schema.d.ts"
    monkeypatch.setattr(sys, "argv", ["docs.openapi", str(document)])
    write_document()
    run("node_modules/.bin/openapi-typescript", str(document), "--output", str(written), "--immutable")
    assert written.read_text() == (WEB / "src/api/schema.d.ts").read_text(), "run `make types`"


def test_the_lock_file_names_no_registry_and_has_a_checksum_of_every_package():
    text = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in text
    packages = {name: each for name, each in json.loads(text)["packages"].items() if name}
    assert all(each.get("integrity") or each.get("inBundle") for each in packages.values())


def test_every_dependency_has_one_version():
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", each) for each in versions.values())


def test_the_sources_have_files():
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(WEB)))
def test_no_source_names_another_site_or_writes_html(path: Path):
    text = path.read_text(encoding="utf-8")
    addresses = set(re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z0-9.-]+", re.sub(r"(?m)^\s*(//|/?\*).*$", "", text)))
    assert addresses <= {"http://www.w3.org"}
    assert not re.search(r"dangerouslySetInnerHTML|innerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_every_class_has_its_style_in_one_file():
    """A page keeps the styles of the pages that were open before it: a name that two of them use would look different
    then. What several use is in `styles`."""
    always = re.findall(r"/(\w+\.css)", (WEB / "src/main.tsx").read_text(encoding="utf-8"))
    files: dict[str, set[str]] = {}
    for path in (path for path in SOURCES if path.suffix == ".css"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        selectors = [each.strip() for group in re.findall(r"([^{}@;]+)\{", text) for each in group.split(",")]
        bare = [each for each in selectors if re.fullmatch(r"[a-z0-9]+|\.[\w-]+( > [a-z]+)?", each)]
        for name in bare:
            files.setdefault(name, set()).add("always loaded" if path.name in always else path.name)
    assert {name: sorted(found) for name, found in files.items() if len(found) > 1} == {}


def test_the_bundle_is_as_new_as_its_sources(npm: str):
    """So `make web` does nothing when nothing changed."""
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    command = ["make", "-q", "web"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        give_up("the web UI is not built, or older than its sources; `make web` builds it")
