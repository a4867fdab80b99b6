"""Typed access to the YAML sections of a web config file; every error names the file and the key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors.os_errors import explain_os_error

T = TypeVar("T")


class Section:
    """A mapping of the file with validated keys."""

    def __init__(self, path: Path, values: object, *, name: str = "", known: Sequence[str] = ()) -> None:
        """Raises ConfigurationError when it is not a mapping or, if `known` is given, has an unknown key."""
        self._path, self._name = path, name
        values = {} if values is None else values
        if not isinstance(values, Mapping):
            raise self.refuse("", "must be a mapping of keys and values")
        self.values: Mapping[str, Any] = {str(key): value for key, value in values.items()}
        for key in self.values:
            if known and key not in known:
                raise self.refuse(key, f"unknown key{suggest(key, known)}")

    def refuse(self, key: str, why: object) -> ConfigurationError:
        where = ".".join(part for part in (self._name, key) if part)
        return ConfigurationError(f"web config file {self._path}: {where + ': ' if where else ''}{why}")

    def section(self, name: str, *, known: Sequence[str] = ()) -> "Section":
        full_name = ".".join(part for part in (self._name, name) if part)
        return Section(self._path, self.values.get(name), name=full_name, known=known)

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(key, f"must be a string, not {value!r}")
        return value or ""

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(key, "must be a list of strings")
        return tuple(value)

    def switch(self, key: str, *, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, f"must be true or false, not {value!r}")
        return value

    def choice(self, key: str, allowed: Mapping[str, T], *, default: str) -> T:
        return self.pick(key, self.text(key) or default, allowed)

    def pick(self, key: str, word: str, allowed: Mapping[str, T]) -> T:
        if word not in allowed:
            words = ", ".join(filter(None, allowed))
            raise self.refuse(key, f"{word!r} is not one of {words}{suggest(word, allowed)}")
        return allowed[word]

    def pem(self, key: str) -> Path | str | None:
        """PEM data: a file (relative to this one) or the text itself; the file takes precedence."""
        file = self.text(f"{key}_file")
        return self._path.parent / file if file else self.text(key) or None


def load_document(path: Path, *, known: Sequence[str]) -> Section:
    """Read the file as one section. Raises ConfigurationError."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigurationError(
            "a web config file needs PyYAML, which is not installed: pip install gpusteward"
        ) from error
    try:
        return Section(path, yaml.safe_load(path.read_bytes()), known=known)
    except OSError as error:
        raise ConfigurationError(f"web config file {path} cannot be read: {explain_os_error(error)}") from error
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"web config file {path} is not YAML: {error}") from error
