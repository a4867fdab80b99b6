"""Settings and socket of the demo, checked before anything is simulated or a large library is loaded."""

import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.server.listen_socket import open_socket
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags, refuse_settings
from gpusteward.core.messages import Language
from gpusteward.local.demo_control import FOLDER_PREFIX, INBOX_PATH
from gpusteward.logs import configure_logs

INTERVAL_SECONDS = 30
WINDOW_MINUTES = 10
BACKLOG = 128  # all nodes are scraped at once
SCRAPE_TIMEOUT_SECONDS = 60
"""Longer than the first window takes to fill, also on a slow machine."""
FIXED = (
    *("prometheus.url", "scrape.targets", "scrape.targets_file", "ledger.url", "ledger.directory"),
    *("kubernetes.api_url", "kubernetes.token_file", "kubernetes.ca_file", "kubernetes.owners", "reclaim.namespace"),
)
OWN_NAMESPACE = "gpusteward"
"""Of the analyzer in the simulated cluster: its lease and the annotation that stops all actions are there."""

PRICES = {
    "currency": "USD",
    "per_gpu_hour": {
        "B200": 7.0,
        "H200": 5.5,
        "H100": 4.0,
        "A100 80GB": 2.8,
        "A100": 2.2,
        "L40S": 1.3,
        "V100": 1.1,
        "A10": 0.9,
        "L4": 0.7,
        "RTX 4090": 0.6,
        "T4": 0.4,
    },
    "discount_percent": {"student-projects": 30},
    "electricity_per_kwh": 0.12,
}
"""Examples in the range of cloud prices, for every simulated model."""

TEAMS = {
    "nlp-research": "language",
    "speech": "language",
    "recsys-prod": "ranking",
    "search-ranking": "ranking",
    "vision": "perception",
    "robotics-lab": "perception",
    "student-projects": "university",
    "ml-platform": "platform",
}
"""The teams of the simulated namespaces."""


POLICIES = {
    "policies": [
        {
            "name": "demo-quick",
            "match": {"namespaces": ["student-projects"]},
            "action": "suspend",
            "window": "10m",
            "grace": "2m",
            "warning_interval": "1m",
            "highest_chance": 1,
            "limits": {"per_cycle": 1, "per_namespace": 1, "per_hour": 6},
            "longest_snooze": "24h",
        },
        *({**each, "action": "notify"} for each in yaml.safe_load(EXAMPLE)["policies"]),
    ]
}
"""One namespace in which a person can watch warning, snooze, suspend and restore within minutes; the workloads of all
others, of which many are idle for days, match the example's policies and are only reported."""
COOL_DOWN_MINUTES = 30
NEVER_MINUTES = 100_000
"""No notices about idle workloads: only those of reclaim are printed."""


class StopSignals:
    """SIGINT and SIGTERM until the analyzer handles them.

    They raise KeyboardInterrupt at once. If they arrive in a callback of a library, such as a destructor, Python drops
    the exception: `check` raises it again.
    """

    def __init__(self) -> None:
        self._is_stopping = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises KeyboardInterrupt."""
        if self._is_stopping:
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class DemoSetup:
    """What the demo starts with."""

    file: SettingsFile
    listening: socket.socket
    cluster_socket: socket.socket  # of the simulated API server
    folder: Path  # removed at the end
    targets_file: Path  # to be written when the addresses of the simulated nodes are known
    signals: StopSignals


@contextmanager
def prepare_demo(flags: Flags, language: Language = "en") -> Iterator[DemoSetup]:
    """A folder with settings and ledger, removed at the end, and the socket. Raises ConfigurationError."""
    refuse_settings(flags, FIXED, command="demo")
    signals = StopSignals()
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name, open_loopback_socket() as cluster_socket:
        folder = Path(name)
        config = make_config(folder, url_of(cluster_socket), language)
        file = _open_settings(flags, folder, config)
        configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
        with open_socket(file.settings.server) as listening:
            config["server"] = {"public_url": url_of(listening)}
            file = _open_settings(flags, folder, config)
            yield DemoSetup(file, listening, cluster_socket, folder, folder / "targets.yaml", signals)


def open_loopback_socket() -> socket.socket:
    """On a free port: the address of the simulated API server is known before the cluster is simulated."""
    return socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)


def url_of(listening: socket.socket) -> str:
    """As a client on this machine reaches it."""
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def _open_settings(flags: Flags, folder: Path, config: Mapping[str, Any]) -> SettingsFile:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return SettingsFile(replace(flags, config=path), {}, directory=folder)


def make_config(folder: Path, cluster_url: str, language: Language) -> dict[str, Any]:
    """The settings of the demo; writes the policy file."""
    policy_file = folder / "policies.yaml"
    policy_file.write_text(yaml.safe_dump(POLICIES, sort_keys=False))
    window_seconds = WINDOW_MINUTES * 60
    return {
        "prometheus": {"url": "", "time_window_min": WINDOW_MINUTES},
        "scrape": {
            "targets_file": str(folder / "targets.yaml"),
            "interval": INTERVAL_SECONDS,
            "timeout": SCRAPE_TIMEOUT_SECONDS,
            "selector": "",
        },
        # One window is all that the first cycle sees.
        "judge": {
            "signatures": {
                "keep_alive": {
                    "least_seconds": window_seconds,
                    "constant_seconds": window_seconds,
                    "night_seconds": 0,
                    "host_seconds": 3600,
                },
                "health_check": {"least_seconds": window_seconds},
                "stalled": {"unwitnessed_seconds": window_seconds, "witnessed_seconds": window_seconds},
            }
        },
        "scheduler": {"interval": INTERVAL_SECONDS},
        "kubernetes": {"owners": "always", "api_url": cluster_url},
        "reclaim": {
            "mode": "enforce",
            "namespace": OWN_NAMESPACE,
            "policy_file": str(policy_file),
            "cool_down_minutes": COOL_DOWN_MINUTES,
        },
        "notify": {
            "channels": {"terminal": f"{cluster_url}{INBOX_PATH}"},
            "language": language,
            "idle_minutes": NEVER_MINUTES,
            "digest": "",
        },
        "logging": {"level": "warning"},
        "ledger": {"url": f"sqlite:///{folder / 'gpusteward.db'}"},
        "prices": PRICES,
        "reports": {"teams": TEAMS},
    }
