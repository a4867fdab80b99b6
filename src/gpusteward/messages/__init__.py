"""Every text that people read, in English and Chinese, as `core.messages.Message` values. No logic, no I/O.

    cli/         the command line: flags, output, the terminal UI, `--help`
    errors/      why something cannot be used or read
    *.py         what the analyzer says: verdicts, notices, reports, reclaim, and texts of pages

A test checks that both languages of every message are present and have the same fields.
"""
