"""The one error tree.

    GpustewardError
    ├── ConfigurationError    what a person wrote cannot be used; the program says so and exits with 2
    └── SourceError           something outside could not be read: its own part is missing, the rest goes on
        └── OutdatedError     ... and will not be until this program is started anew

A class exists only where somebody catches it. The foreign error travels as `__cause__`.
"""


class GpustewardError(Exception):
    """Everything gpusteward raises on purpose."""


class ConfigurationError(GpustewardError):
    """A flag, a file or an environment variable that cannot be used.

    The text says what, where, why, and what to do about it.
    """


class SourceError(GpustewardError):
    """NVML, the kubelet, the API server or a file did not answer as it should."""


class OutdatedError(SourceError):
    """What this program has loaded does not fit what it talks to any more."""
