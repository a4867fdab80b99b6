"""The error tree.

    GpustewardError
    ├── ConfigurationError    a flag, file or variable is invalid; the program prints the error and exits with 2
    └── SourceError           an external system could not be read: its part is missing, the rest continues
        └── OutdatedError     ... and cannot be read before this program is restarted

A class exists only if some code catches it. The original error is the `__cause__`.
"""

from gpusteward.core.messages import Language, Message


class GpustewardError(Exception):
    """Every error that gpusteward raises on purpose. `str(error)` is its English text."""

    def __init__(self, message: str | Message, **fields: object) -> None:
        """`message`: from the catalogue (`gpusteward.messages`) where people read it; plain English elsewhere."""
        super().__init__(message.text("en", **fields) if isinstance(message, Message) else message)
        self.message = message
        self.fields = fields

    def text(self, language: Language) -> str:
        """The error text in one language; plain English where there is no translation."""
        return self.message.text(language, **self.fields) if isinstance(self.message, Message) else self.message

    def as_message(self) -> Message:
        """The text in all languages. To be kept instead of the error, whose traceback keeps the data of its frames."""
        return Message(self.text("en"), self.text("zh"))


class ConfigurationError(GpustewardError):
    """A flag, a file or an environment variable is invalid. The text says where, why, and what to write instead."""


class SourceError(GpustewardError):
    """NVML, the kubelet, the API server, an engine or a file could not be read."""


class OutdatedError(SourceError):
    """A library that this program has loaded no longer matches the system, such as after a driver update."""
