"""Runs code without the permissions of root: tests in CI run as root, which may read every file."""

import contextlib
import os
from collections.abc import Iterator

UNPRIVILEGED_UID = 65534


@contextlib.contextmanager
def as_unprivileged_user() -> Iterator[None]:
    """File modes apply inside the block."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(user)
