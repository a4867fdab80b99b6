"""Texts of the command line: errors, output, the terminal UI and `--help`."""
