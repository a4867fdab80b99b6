"""kubeconfig files: which are read, how they are merged, and the context chosen from them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusteward.core.did_you_mean import make_suggestion
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.cli import kubectl as messages
from gpusteward.messages.errors.os_errors import explain_os_error

Entry = Mapping[str, Any]
KINDS = {"clusters": "cluster", "users": "user", "contexts": "context"}
PATH_KEYS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True, slots=True)
class KubeContext:
    """A context with its cluster and user. Relative paths in them are made absolute."""

    name: str
    namespace: str  # empty: none
    cluster: Entry = field(repr=False)
    user: Entry = field(repr=False)


def read_context(
    kubeconfig: str | None = None, name: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> KubeContext:
    """The context of this name, or the current one. Raises ConfigurationError."""
    config = _Merged(_find_files(kubeconfig, environ))
    return config.choose(name or config.current)


def list_contexts(kubeconfig: str | None = None, *, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of all contexts. Raises ConfigurationError."""
    return sorted(_Merged(_find_files(kubeconfig, environ)).entries["contexts"])


def _find_files(given: str | None, environ: Mapping[str, str]) -> Sequence[Path]:
    """As kubectl: the one of the flag, else those of KUBECONFIG that exist, else ~/.kube/config."""
    if given:
        return [Path(given)]
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    listed = listed or [Path(environ.get("HOME", "/")) / ".kube" / "config"]
    found = [path for path in listed if path.exists()]
    if not found:
        raise ConfigurationError(messages.NO_KUBECONFIG, paths=", ".join(map(str, listed)))
    return found


class _Merged:
    """Several files as one: of several entries with the same name the first one counts."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.current = ""
        self.entries: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
        for path in paths:
            document = _read_file(path)
            self.current = self.current or str(document.get("current-context") or "")
            for kind, key in KINDS.items():
                for name, entry in _list_entries(document, kind, key, path):
                    self.entries[kind].setdefault(name, _make_absolute(entry, path.absolute().parent))

    def choose(self, name: str) -> KubeContext:
        contexts = self.entries["contexts"]
        known = ", ".join(sorted(contexts)) or messages.NO_CONTEXTS
        if not name:
            raise ConfigurationError(messages.NO_CURRENT_CONTEXT, known=known)
        if name not in contexts:
            raise ConfigurationError(messages.UNKNOWN_CONTEXT, name=name, suggestion=make_suggestion(name, contexts))
        context = contexts[name]
        cluster, user = (self._find(name, kind, context) for kind in ("cluster", "user"))
        return KubeContext(name, str(context.get("namespace") or ""), cluster, user)

    def _find(self, context: str, kind: str, entry: Entry) -> Entry:
        name = str(entry.get(kind) or "")
        found = self.entries[f"{kind}s"].get(name)
        if found is None and (kind == "cluster" or name):  # a context without a user is anonymous
            raise ConfigurationError(messages.MISSING_ENTRY, context=context, kind=kind, name=name)
        return found or {}


def _read_file(path: Path) -> Entry:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _invalid(path, explain_os_error(error)) from error
    # PyYAML raises others for the date 2027-13-45, or `!!bool x`. The text of an error may repeat a token.
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise _invalid(path, messages.NOT_YAML.fill(line=mark.line + 1 if mark else "?")) from None
    if not isinstance(document or {}, dict):
        raise _invalid(path, messages.NOT_A_KUBECONFIG.fill(place="."))
    return document or {}


def _list_entries(document: Entry, kind: str, key: str, path: Path) -> Iterator[tuple[str, Entry]]:
    listed = document.get(kind) or []
    if not isinstance(listed, list):
        raise _invalid(path, messages.NOT_A_KUBECONFIG.fill(place=kind))
    for number, item in enumerate(listed):
        entry = item.get(key) or {} if isinstance(item, dict) else None
        if not isinstance(entry, dict) or not isinstance(item.get("name"), str):
            raise _invalid(path, messages.NOT_A_KUBECONFIG.fill(place=f"{kind}[{number}]"))
        yield item["name"], entry


def _make_absolute(entry: Entry, folder: Path) -> Entry:
    """Paths are relative to the file that contains them; so is a plugin's command with a slash."""
    changed: dict[str, Any] = {key: str(folder / str(entry[key])) for key in PATH_KEYS if entry.get(key)}
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        changed["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return {**entry, **changed}


def _invalid(path: Path, problem: object) -> ConfigurationError:
    return ConfigurationError(messages.INVALID_KUBECONFIG, path=path, problem=problem)
