"""Every text that people read, in English and Chinese, as `core.messages.Message` values. No logic, no I/O.

A test checks that both languages of every message are present and have the same fields.
"""
