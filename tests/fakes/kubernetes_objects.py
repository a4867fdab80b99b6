"""An API server on the loopback that serves single objects, and refuses some on request."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeObjects:
    """Serves `objects` by path; `forbidden` paths are 403, `broken` ones 500, all others 404."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.forbidden: set[str] = set()
        self.broken: set[str] = set()  # 500
        self.requests: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def add(self, path: str, *owner: str, labels: dict[str, str] | None = None, uid: str = "") -> None:
        """An object, controlled by (apiVersion, kind, name) or (apiVersion, kind, name, uid) if given."""
        named = dict(zip(("apiVersion", "kind", "name", "uid"), owner, strict=False))
        references = [{**named, "controller": True}] if owner else []
        self.objects[path] = {"metadata": {"labels": labels or {}, "ownerReferences": references, "uid": uid}}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                fake.requests.append(self.path)
                code = 200 if self.path in fake.objects else 404
                code = 500 if self.path in fake.broken else 403 if self.path in fake.forbidden else code
                body = json.dumps(fake.objects.get(self.path, {"message": "not found"})).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler
