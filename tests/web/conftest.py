"""For tests in a browser: the built bundle, Chromium, and the demo with tokens and a proxy."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from gpusteward.analyzer.api.http.static_files import UiBundle
from tests.conftest import give_up
from tests.local.processes import Program, running
from tests.web.browser import open_browser

TOKENS = {"viewer": "token-of-a-viewer", "operator": "token-of-an-operator", "admin": "token-of-an-admin-1"}
PROXY_ADDRESS = "127.0.0.2"
"""Requests from here carry the identity of a person; the browser itself is on 127.0.0.1."""
RULES = [
    {"users": ["lead"], "role": "viewer", "namespaces": ["vision"]},
    {"users": ["boss"], "role": "operator"},
]
DEMO_FLAGS = ("--address", "127.0.0.1:0", "--set", f'auth.proxy.addresses=["{PROXY_ADDRESS}"]')


@pytest.fixture(scope="session")
def bundle() -> UiBundle:
    """Skips where it is not built."""
    found = UiBundle()
    if not found.is_built:
        give_up("the web UI is not built; `make web` builds it")
    return found


@pytest.fixture(scope="module")
def browser(component: Callable[[str], str], bundle: UiBundle) -> Iterator[Browser]:
    """Of one file: while it is open, no other code of this process can run an event loop."""
    with open_browser(component("chromium")) as opened:
        yield opened


@pytest.fixture(scope="session")
def demo(bundle: UiBundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """`gpusteward demo`, shared by all tests of this process that do not stop it."""
    folder = tmp_path_factory.mktemp("demo")
    yield from start_demo(folder)


def start_demo(folder: Path, *more: str) -> Iterator[Program]:
    tokens = folder / "tokens.yaml"
    tokens.write_text(json.dumps(TOKENS))
    environment = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder)}
    flags = (*DEMO_FLAGS, "--tokens-file", str(tokens), "--set", f"auth.rules={json.dumps(RULES)}", *more)
    with (folder / "log").open("w") as log, running("demo", *flags, env=environment, stderr=log) as program:
        program.wait_for_address(180)
        program.wait_for("/api/v1/workloads", 120)
        yield program
        program.interrupt()
