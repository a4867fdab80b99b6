"""The one error tree.

    GpustewardError
    ├── ConfigurationError    what a person wrote cannot be used; the program says so and exits with 2
    └── SourceError           something outside could not be read: its own part is missing, the rest goes on
        └── OutdatedError     ... and will not be until this program is started anew

A class exists only where somebody catches it. The foreign error travels as `__cause__`.
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


class ConfigurationError(GpustewardError):
    """A flag, a file or an environment variable that cannot be used.

    The text says what, where, why, and what to do about it.
    """


class SourceError(GpustewardError):
    """NVML, the kubelet, the API server or a file did not answer as it should."""


class OutdatedError(SourceError):
    """What this program has loaded does not fit what it talks to any more."""
