"""Output of the commands: tables, CSV, JSON, paragraphs, progress bars, and text made safe for a terminal."""
