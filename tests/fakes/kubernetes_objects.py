"""An API server on the loopback that serves single objects, and refuses some on request."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class FakeObjects:
    """Serves `objects` by path; `forbidden` paths are 403, `broken` ones 500, all others 404."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.forbidden: set[str] = set()
        self.broken: set[str] = set()  # 500
        self.requests: list[str] = []  # of single objects
        self.lists: list[str] = []
        self.may_list = True
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def add(
        self,
        path: str,
        *owner: str,
        labels: dict[str, str] | None = None,
        uid: str = "",
        start: str = "",
        node: str = "node-1",
        address: str = "",
    ) -> None:
        """An object, controlled by (apiVersion, kind, name) or (apiVersion, kind, name, uid) if given."""
        named = dict(zip(("apiVersion", "kind", "name", "uid"), owner, strict=False))
        references = [{**named, "controller": True}] if owner else []
        about = {"name": path.rpartition("/")[2], "labels": labels or {}, "ownerReferences": references, "uid": uid}
        status = {"startTime": start, "hostIP": address, "hostIPs": [{"ip": address}]}
        found = {key: value for key, value in status.items() if value and value != [{"ip": ""}]}
        self.objects[path] = {"metadata": about, "spec": {"nodeName": node}, "status": found}

    def _list(self, path: str) -> dict:
        """One object a page, so that every list has several."""
        folder, query = path.partition("?")[0], parse_qs(path.partition("?")[2])
        found = [one for place, one in sorted(self.objects.items()) if place.rpartition("/")[0] == folder]
        number = int(query.get("continue", ["0"])[0])
        token = str(number + 1) if number + 1 < len(found) else ""
        return {"metadata": {"continue": token}, "items": found[number : number + 1]}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                if "?limit=" in self.path:
                    fake.lists.append(self.path)
                    self._answer(200 if fake.may_list else 403, fake._list(self.path))
                    return
                fake.requests.append(self.path)
                code = 200 if self.path in fake.objects else 404
                code = 500 if self.path in fake.broken else 403 if self.path in fake.forbidden else code
                self._answer(code, fake.objects.get(self.path, {"message": "not found"}))

            def _answer(self, code: int, found: dict) -> None:
                body = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler
