"""The files of the built web UI, with their precompressed forms."""

import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

ENCODINGS = {"br": ".br", "gzip": ".gz"}
"""Content codings and the endings of their files, the smallest first."""
INDEX = "index.html"
ASSETS = "assets"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_TYPES = {".js": "text/javascript", ".webmanifest": "application/manifest+json", ".woff2": "font/woff2"}
"""Those that the machine's own table may lack or name otherwise."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent."""

    body: bytes
    media_type: str
    encoding: str  # content coding; empty: none
    etag: str
    has_variants: bool  # whether there are other codings of it


class UiBundle:
    """The files in one directory. Reads the disk: not for the event loop."""

    def __init__(self, directory: Path | None = None) -> None:
        """`directory`: default: that of this package."""
        self._directory = directory or Path(str(files("gpusteward.analyzer.api.ui").joinpath("static")))

    @property
    def is_built(self) -> bool:
        return (self._directory / INDEX).is_file()

    def read(self, *names: str, accepted: frozenset[str] = frozenset()) -> StaticFile | None:
        """The file below the directory; None if there is none. `accepted`: content codings of the client."""
        if not all(_NAME.fullmatch(name) for name in names) or names[-1].endswith(tuple(ENCODINGS.values())):
            return None
        path = self._directory.joinpath(*names)
        variants = {name: Path(f"{path}{ending}") for name, ending in ENCODINGS.items()}
        existing = [name for name, each in variants.items() if each.is_file()]
        encoding = next((name for name in existing if name in accepted), "")
        try:
            body, etag = _read(variants.get(encoding, path), path.stat().st_mtime_ns)
        except OSError:
            return None
        return StaticFile(body, _find_type(path), encoding, etag, bool(existing))


@lru_cache(maxsize=64)
def _read(path: Path, _changed_ns: int) -> tuple[bytes, str]:
    """Contents and ETag; read again when the file changes. Raises OSError."""
    body = path.read_bytes()
    return body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def _find_type(path: Path) -> str:
    found = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found
