"""Somebody without rights: root, as which CI runs, may read everything."""

import contextlib
import os
from collections.abc import Iterator

NOBODY = 65534


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """What is done inside is done as an ordinary user, to whom file modes mean something."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
