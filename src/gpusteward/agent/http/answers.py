"""What there is to serve: the seam between HTTP and the rest of the agent."""

from typing import Protocol


class Answers(Protocol):
    """Pages that are ready: every method must return at once, from any thread."""

    def metrics(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """The page of /metrics in this format and encoding."""
        ...

    def health(self) -> tuple[bool, str]:
        """Whether this process works at all, and why (not)."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether what it serves is fresh, and why (not)."""
        ...

    def snapshot(self) -> bytes:
        """The last snapshot as JSON."""
        ...
