"""rich's console for what is printed. Loaded only where rich is needed."""

from rich.console import Console


class PrintingConsole(Console):
    """Whoever reads may go away, as `| head` does: `main` knows what to do then, rich would end with 1."""

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError."""
        raise BrokenPipeError
