"""Writes a release of the plugin for krew: `make krew URL=https://example.com/releases/v0.1.0`.

    python -m deploy.krew.package FOLDER URL

FOLDER/kubectl-gpusteward.tar.gz has the plugin as one executable file: a zip of gpusteward and the libraries, in pure
Python, that the plugin needs, as they are installed here. FOLDER/gpusteward.yaml is its manifest. Publish both below
URL. The same installation gives the same bytes.
"""

import gzip
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from gpusteward import __version__

ROOT = Path(__file__).parents[2]
NAME = "kubectl-gpusteward"
ARCHIVE = f"{NAME}.tar.gz"
LIBRARIES = ("rich", "textual")
LEFT_OUT = (".so", ".pyd", ".pyc", ".pyi", ".typed")
START = """import sys

if sys.version_info < (3, 11):
    sys.exit("kubectl gpusteward: Python 3.11 or newer is needed, this is " + sys.version.split()[0])
from gpusteward.cli.kubectl.main import main

sys.exit(main())
"""


def main(folder: Path, url: str) -> None:
    """Write the archive and the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = make_archive(make_executable())
    (folder / ARCHIVE).write_bytes(archive)
    (folder / "gpusteward.yaml").write_text(make_manifest(f"{url.rstrip('/')}/{ARCHIVE}", archive), encoding="utf-8")


def make_manifest(url: str, archive: bytes) -> str:
    text = (ROOT / "deploy/krew/gpusteward.yaml").read_text(encoding="utf-8").partition("\n")[2]
    filled = {"VERSION": f"v{__version__}", "URL": url, "SHA256": hashlib.sha256(archive).hexdigest()}
    for name, value in filled.items():
        text = text.replace(f": {name}\n", f": {value}\n")
    return text


def make_executable() -> bytes:
    """A zip that Python runs. Times are fixed, so that the same files give the same bytes."""
    written = io.BytesIO()
    written.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(written, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted({**dict(_list_own()), **dict(_list_libraries())}.items()):
            archive.writestr(_describe(name), path.read_bytes())
        archive.writestr(_describe("__main__.py"), START)
    return written.getvalue()


def _describe(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _list_own() -> Iterator[tuple[str, Path]]:
    source = ROOT / "src"
    for path in source.glob("gpusteward/**/*.py"):
        yield path.relative_to(source).as_posix(), path


def _list_libraries() -> Iterator[tuple[str, Path]]:
    for each in _find_libraries():
        for file in each.files or ():
            name = file.as_posix()
            if not name.startswith("..") and not name.endswith(LEFT_OUT) and "__pycache__" not in name:
                yield name, Path(str(file.locate()))


def _find_libraries() -> list[Distribution]:
    """The libraries, and what they require, without extras."""
    found: dict[str, Distribution] = {}
    wanted = list(LIBRARIES)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = distribution(name)
            needed = map(Requirement, found[name].requires or ())
            wanted += [each.name.lower() for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
    return list(found.values())


def make_archive(executable: bytes) -> bytes:
    written = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=written, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data, mode in (
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
            (NAME, executable, 0o755),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            archive.addfile(info, io.BytesIO(data))
    return written.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
