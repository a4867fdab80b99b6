"""Texts that people read, in English and Chinese, as `core.messages.Message` values. No logic, no I/O.

    errors/      why something cannot be used or read
    *.py         what the analyzer says: verdicts, notices, reports, reclaim, and texts of pages

Texts of the command line are where they are printed. A test checks that both languages of every message are present
and have the same fields.
"""
