"""A Kubernetes control plane on the loopback as one process: etcd, API server, controller manager, scheduler and kwok.

    python -m tests.kubernetes.control_plane PROGRAMS FOLDER

Writes FOLDER/ready when the API server is, and ends with everything it started as soon as no process holds a lock on
FOLDER/users any more. A killed test run therefore leaves nothing behind: its locks end with it, and the programs end
with this process. It also ends, with the reason in FOLDER/failed, when one of its programs does: tests would wait for
what a missing scheduler never does.
"""

import fcntl
import os
import shutil
import ssl
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

START_SECONDS = 90.0
CHECK_SECONDS = 0.5
ETCD_PORT, PEER_PORT, API_PORT = 2379, 2380, 6443
ADMIN_TOKEN = "token-of-the-administrator"  # only ever sent to a server on the loopback
FRONT_PROXY = "front-proxy"  # name of the API server towards those behind it
SERVICES = "127.78.0.0/16"
STAGES = Path(__file__).parent / "stages.yaml"
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, users: [administrator]}  # tests, controllers, kwok: only the programs under test are of interest
  - {level: Metadata}
"""


def main(programs: Path, folder: Path) -> None:
    """Start everything, wait until it is no longer used, end everything."""
    try:
        # An own address per control plane, so that the usual ports are free.
        address = f"127.{79 + os.getpid() // 65536 % 128}.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
        _run(programs, folder, address)
    except Exception:
        _write(folder / "failed", traceback.format_exc())
        raise
    finally:
        (folder / "ready").unlink(missing_ok=True)
        shutil.rmtree(folder / "etcd", ignore_errors=True)


def _run(programs: Path, folder: Path, address: str) -> None:
    (folder / "address").write_text(address)
    write_credentials(folder, address)
    kube, etcd = str(programs / "kube"), f"http://{address}"
    with (folder / "users").open() as users, ExitStack() as running:

        def run(name: str, command: Sequence[str]) -> subprocess.Popen:
            return running.enter_context(run_program(folder, name, command))

        started = {"etcd": run("etcd", [kube, "etcd", *etcd_flags(folder, etcd)])}
        started["apiserver"] = run("apiserver", api_server_command(programs, folder, API_PORT))
        wait_until_ready(folder, API_PORT, started["apiserver"])
        started["controller-manager"] = run(
            "controller-manager", [kube, "controller-manager", *_controller_flags(folder)]
        )
        started["scheduler"] = run("scheduler", [kube, "scheduler", *_client_flags(folder), "--leader-elect=false"])
        started["kwok"] = run("kwok", [str(programs / "kwok"), *_kwok_flags(folder)])
        _write(folder / "ready", "")
        wait_for_last_user(users, folder, started)


def wait_for_last_user(users: IO[str], folder: Path, started: Mapping[str, subprocess.Popen]) -> None:
    """Raises RuntimeError when one of the programs has ended."""
    while True:
        try:
            return fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(CHECK_SECONDS)
        for name, process in started.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} has ended with {process.returncode}\n{_read_end(folder / f'{name}.log')}")


def etcd_flags(folder: Path, url: str) -> list[str]:
    """Large transactions are allowed, so that tests can store thousands of objects at once."""
    client, peer = f"{url}:{ETCD_PORT}", f"{url}:{PEER_PORT}"
    return [
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--max-txn-ops=1000",
        f"--max-request-bytes={64 << 20}",
        "--log-level=error",
    ]


def api_server_command(programs: Path, folder: Path, port: int) -> list[str]:
    """An API server on the folder's etcd; there may be several on different ports."""
    address = (folder / "address").read_text()
    return [
        str(programs / "kube"),
        "apiserver",
        f"--etcd-servers=http://{address}:{ETCD_PORT}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        "--advertise-address=192.0.2.1",  # of no host: the loopback is refused here
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICES}",
        f"--tls-cert-file={folder}/server.crt",
        f"--tls-private-key-file={folder}/server.key",
        f"--client-ca-file={folder}/ca.crt",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/server.key",
        f"--service-account-signing-key-file={folder}/server.key",
        "--allow-privileged",
        *_aggregation_flags(folder),
        f"--audit-policy-file={folder}/audit.yaml",
        f"--audit-log-path={folder}/audit-{port}.log",
    ]


def _aggregation_flags(folder: Path) -> list[str]:
    """For API servers behind this one, such as that of custom metrics: who it says it is, and how it names users."""
    return [
        f"--requestheader-client-ca-file={folder}/ca.crt",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder}/{FRONT_PROXY}.crt",
        f"--proxy-client-key-file={folder}/{FRONT_PROXY}.key",
    ]


def _controller_flags(folder: Path) -> list[str]:
    """Autoscaling decides every 2 s instead of 15 s, and on pods of any age."""
    return [
        *_client_flags(folder),
        "--leader-elect=false",
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
        f"--root-ca-file={folder}/ca.crt",
        f"--service-account-private-key-file={folder}/server.key",
    ]


def _client_flags(folder: Path) -> list[str]:
    return [f"--kubeconfig={folder}/kubeconfig", "--secure-port=0"]


def _kwok_flags(folder: Path) -> list[str]:
    return [
        f"--kubeconfig={folder}/kubeconfig",
        f"--config={STAGES}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        "--cidr=127.77.0.1/24",  # its own default is a range that other machines may have
    ]


def write_credentials(folder: Path, address: str) -> None:
    """A certificate authority, the certificates and keys of the server, and a kubeconfig of an administrator."""
    import trustme  # here, because every test process loads this module

    authority = trustme.CA()
    certificate = authority.issue_cert(address)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    certificate.private_key_pem.write_to_path(str(folder / "server.key"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "server.crt"))
    front_proxy = authority.issue_cert(FRONT_PROXY, common_name=FRONT_PROXY)
    front_proxy.private_key_pem.write_to_path(str(folder / f"{FRONT_PROXY}.key"))
    front_proxy.cert_chain_pems[0].write_to_path(str(folder / f"{FRONT_PROXY}.crt"))
    (folder / "audit.yaml").write_text(AUDIT_POLICY)
    (folder / "tokens.csv").write_text(f"{ADMIN_TOKEN},administrator,administrator,system:masters\n")
    cluster = f"{{certificate-authority: {folder}/ca.crt, server: 'https://{address}:{API_PORT}'}}"
    (folder / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: tests\n"
        f"clusters: [{{name: tests, cluster: {cluster}}}]\n"
        f"users: [{{name: tests, user: {{token: {ADMIN_TOKEN}}}}}]\n"
        "contexts: [{name: tests, context: {cluster: tests, user: tests}}]\n"
    )


@contextmanager
def run_program(folder: Path, name: str, command: Sequence[str]) -> Iterator[subprocess.Popen]:
    """Run a program that ends with the process that started it. Its output goes to FOLDER/NAME.log.

    It is killed: asked to end, an API server would wait a minute for its watches.
    """
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", *command], stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)}
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until_ready(folder: Path, port: int, process: subprocess.Popen) -> None:
    """Raises RuntimeError, with the end of its log, if this API server does not become ready."""
    url = f"https://{(folder / 'address').read_text()}:{port}/readyz"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    trusted = ssl.create_default_context(cafile=folder / "ca.crt")
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(request, timeout=5, context=trusted):
                return
        except OSError:
            time.sleep(0.1)
    ends = "\n".join(f"--- {log.name}\n{_read_end(log)}" for log in sorted(folder.glob("*.log")))
    raise RuntimeError(f"the API server did not become ready\n{ends}")


def _read_end(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _write(path: Path, text: str) -> None:
    """At once: another process waits for the file."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
