"""Access to the API server of a context: CA and client certificates, tokens, exec credential plugins, impersonation."""

import base64
import binascii
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from gpusteward.cli.api.errors import Peer
from gpusteward.cli.kubectl.kubeconfig import Entry, KubeContext
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Message
from gpusteward.http.client import HttpClient
from gpusteward.http.credentials import basic_authorization, is_token
from gpusteward.http.urls import HttpUrl, find_proxy, parse_url
from gpusteward.messages.cli import kubectl as messages
from gpusteward.messages.errors.os_errors import explain_os_error

EXEC_TIMEOUT_SECONDS = 300.0
"""A plugin may wait for somebody to sign in with a browser."""
RENEW_SECONDS = 10.0  # before its end a credential is no longer used
EXEC_INFO = "KUBERNETES_EXEC_INFO"
EXEC_FIELDS = ("token", "clientCertificateData", "clientKeyData")


class ApiServerAccess:
    """A `ServerAccess` with the credentials of a context. Safe to use from several threads."""

    peer = Peer.CONTEXT_SERVER

    def __init__(
        self,
        context: KubeContext,
        *,
        user: str = "",
        groups: Sequence[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`user`, `groups`: to impersonate. Raises ConfigurationError."""
        self._context = context
        self.server = _parse_server(context)
        self._proxy = _find_proxy(context, self.server)
        self._impersonation = _impersonate(context.user, user, groups)
        plugin = context.user.get("exec")
        self._plugin = ExecPlugin(context, plugin, environ) if isinstance(plugin, dict) else None
        if context.user.get("auth-provider") and self._plugin is None:
            raise ConfigurationError(messages.AUTH_PROVIDER, context=context.name)

    def open(self, server: HttpUrl) -> HttpClient:
        """Raises ConfigurationError."""
        name = str(self._context.cluster.get("tls-server-name") or "")
        return HttpClient(server, tls=self._make_tls() if server.is_tls else None, proxy=self._proxy, server_name=name)

    def make_headers(self) -> Mapping[str, str]:
        """Credentials are sent over TLS only. Raises ConfigurationError."""
        user = self._context.user
        if not self.server.is_tls:
            return self._impersonation
        token = self._plugin.read().token if self._plugin else _read_token(self._context)
        if token:
            return {**self._impersonation, "Authorization": f"Bearer {token}"}
        if user.get("username") and not self._plugin:
            pair = basic_authorization(str(user["username"]), str(user.get("password") or ""))
            return {**self._impersonation, "Authorization": pair}
        return self._impersonation

    def _make_tls(self) -> ssl.SSLContext:
        context = self._context
        tls = _trust(context)
        if self._plugin:
            given = self._plugin.read()
            pair = given.certificate, given.key
        else:
            certificate, key = (_read_pem(context, context.user, name) for name in ("client-certificate", "client-key"))
            pair = certificate or "", key or ""
        if pair[0]:
            _load_client_certificate(tls, *pair, context=context.name)
        return tls


def _parse_server(context: KubeContext) -> HttpUrl:
    try:
        return parse_url(str(context.cluster.get("server") or ""))
    except ValueError:
        raise ConfigurationError(messages.INVALID_SERVER, context=context.name) from None


def _find_proxy(context: KubeContext, server: HttpUrl) -> HttpUrl | None:
    """That of the kubeconfig, else that of the environment, as kubectl does."""
    given = context.cluster.get("proxy-url")
    try:
        proxy = parse_url(str(given)) if given else find_proxy(server)
    except ValueError:
        proxy = None if not given else HttpUrl("https", "", 0)
    if proxy is not None and proxy.is_tls:
        raise ConfigurationError(messages.INVALID_PROXY, context=context.name)
    return proxy


def _impersonate(entry: Entry, user: str, groups: Sequence[str]) -> dict[str, str]:
    """The flags replace what the kubeconfig says."""
    if groups and not user:
        raise ConfigurationError(messages.GROUP_WITHOUT_USER)
    groups = groups if user else [str(each) for each in entry.get("as-groups") or ()]
    user, uid = user or str(entry.get("as") or ""), "" if user else str(entry.get("as-uid") or "")
    if len(groups) > 1:
        raise ConfigurationError(messages.SEVERAL_GROUPS)
    named = {"Impersonate-User": user, "Impersonate-Uid": uid, "Impersonate-Group": "".join(groups)}
    return {name: value for name, value in named.items() if value}


def _trust(context: KubeContext) -> ssl.SSLContext:
    """Certificates are checked as kubectl does: with the CA of the cluster, else with those of the system."""
    authority = _read_pem(context, context.cluster, "certificate-authority")
    try:
        tls = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        _refuse_certificate(context.name, "certificate-authority", error)
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # on by default in newer Pythons; many clusters' CAs do not satisfy it
    if context.cluster.get("insecure-skip-tls-verify") is True:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _read_pem(context: KubeContext, entry: Entry, key: str) -> str | None:
    """`KEY-data`, else the file `KEY`. None: neither is given."""
    try:
        if data := entry.get(f"{key}-data"):
            return base64.b64decode(str(data), validate=True).decode("ascii")
        return Path(str(entry[key])).read_text(encoding="ascii") if entry.get(key) else None
    except binascii.Error:
        raise ConfigurationError(messages.NOT_BASE64, key=f"{key}-data", context=context.name) from None
    except (OSError, UnicodeDecodeError) as error:
        _refuse_certificate(context.name, key, error)


def _load_client_certificate(tls: ssl.SSLContext, certificate: str, key: str, *, context: str) -> None:
    """OpenSSL reads files only. The key is in a folder that nobody else can read, for this moment."""
    with tempfile.TemporaryDirectory(prefix="gpusteward-") as folder:
        path = Path(folder) / "client.pem"
        path.touch(mode=0o600)
        path.write_text(f"{certificate}\n{key}")
        try:
            tls.load_cert_chain(path, password="")  # an encrypted key is refused, and nobody is asked for a password
        except (OSError, ValueError) as error:
            _refuse_certificate(context, "client-certificate", error)


def _refuse_certificate(context: str, key: str, error: Exception) -> NoReturn:
    reason = explain_os_error(error) if isinstance(error, OSError) and error.errno else type(error).__name__
    raise ConfigurationError(messages.UNUSABLE_CERTIFICATE, key=key, context=context, reason=reason) from error


def _read_token(context: KubeContext) -> str:
    """Read again each time: the token in a file is replaced before it expires."""
    entry, token = context.user, str(context.user.get("token") or "")
    try:
        if entry.get("tokenFile"):
            token = Path(str(entry["tokenFile"])).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else messages.NOT_A_TOKEN
        raise ConfigurationError(messages.UNREADABLE_TOKEN, context=context.name, reason=reason) from error
    if token and not is_token(token):
        raise ConfigurationError(messages.UNREADABLE_TOKEN, context=context.name, reason=messages.NOT_A_TOKEN)
    return token


class ExecCredential(NamedTuple):
    """What a credential plugin printed."""

    token: str
    certificate: str
    key: str
    expires_at: float  # unix seconds; infinity: not said


class ExecPlugin:
    """An exec credential plugin (client.authentication.k8s.io), such as those of cloud providers."""

    def __init__(self, context: KubeContext, plugin: Entry, environ: Mapping[str, str]) -> None:
        self._context = context
        self._plugin = plugin
        self._environ = environ
        self._lock = threading.Lock()
        self._last: ExecCredential | None = None

    def read(self) -> ExecCredential:
        """What it printed last, until that expires. Raises ConfigurationError."""
        with self._lock:
            if self._last is None or time.time() > self._last.expires_at - RENEW_SECONDS:
                self._last = self._parse(self._run())
            return self._last

    def _run(self) -> bytes:
        """Its messages and questions go to the terminal."""
        command = [str(self._plugin.get("command") or ""), *(str(each) for each in self._plugin.get("args") or ())]
        is_interactive = self._may_ask()
        try:
            done = subprocess.run(  # noqa: S603 - the kubeconfig names it, as for kubectl
                command,
                env=self._make_environment(is_interactive),
                stdin=None if is_interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=EXEC_TIMEOUT_SECONDS,
                check=False,
            )
        except OSError as error:
            self._fail(messages.EXEC_NOT_FOUND, reason=explain_os_error(error), hint=self._hint)
        except subprocess.TimeoutExpired:
            self._fail(messages.EXEC_TIMEOUT, seconds=EXEC_TIMEOUT_SECONDS)
        if done.returncode:
            self._fail(messages.EXEC_FAILED, code=done.returncode, hint=self._hint)
        return done.stdout

    def _may_ask(self) -> bool:
        mode = self._plugin.get("interactiveMode") or "IfAvailable"
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not has_terminal:
            self._fail(messages.EXEC_NEEDS_TERMINAL)
        return has_terminal and mode != "Never"

    def _make_environment(self, is_interactive: bool) -> dict[str, str]:
        listed = [each for each in self._plugin.get("env") or () if isinstance(each, dict)]
        spec: dict[str, Any] = {"interactive": is_interactive}
        if self._plugin.get("provideClusterInfo") is True:
            spec["cluster"] = _describe_cluster(self._context)
        version = self._plugin.get("apiVersion") or "client.authentication.k8s.io/v1"
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        added = {str(each.get("name")): str(each.get("value") or "") for each in listed}
        return {**self._environ, **added, EXEC_INFO: json.dumps(info)}

    def _parse(self, text: bytes) -> ExecCredential:
        try:
            document = json.loads(text)
            status = document["status"] if document["kind"] == "ExecCredential" else {}
            token, certificate, key = (str(status.get(name) or "") for name in EXEC_FIELDS)
            ends = status.get("expirationTimestamp")
            expires_at = datetime.fromisoformat(str(ends)).timestamp() if ends else float("inf")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._fail(messages.EXEC_INVALID)
        if not (token or certificate) or not is_token(token or "none"):
            self._fail(messages.EXEC_INVALID)
        return ExecCredential(token, certificate, key, expires_at)

    @property
    def _hint(self) -> str:
        """What the kubeconfig says about its installation."""
        hint = " ".join(str(self._plugin.get("installHint") or "").split())
        return f"; {hint}" if hint else ""

    def _fail(self, message: Message, **fields: object) -> NoReturn:
        command = self._plugin.get("command")
        raise ConfigurationError(message, command=command, context=self._context.name, **fields)


def _describe_cluster(context: KubeContext) -> dict[str, Any]:
    """As a plugin with `provideClusterInfo` expects it."""
    cluster = context.cluster
    authority = _read_pem(context, cluster, "certificate-authority")
    described = {
        "server": cluster.get("server"),
        "tls-server-name": cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authority.encode()).decode() if authority else None,
        "proxy-url": cluster.get("proxy-url"),
        "config": _find_extension(cluster),
    }
    return {name: value for name, value in described.items() if value}


def _find_extension(cluster: Entry) -> Any:
    listed = cluster.get("extensions") or ()
    named = {each.get("name"): each.get("extension") for each in listed if isinstance(each, dict)}
    return named.get("client.authentication.k8s.io/exec")
