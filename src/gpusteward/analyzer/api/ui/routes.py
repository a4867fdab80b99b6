"""/ui/: the web UI as static files. All addresses in it are relative, so that it works under any prefix of a proxy."""

from html import escape

from fastapi import APIRouter, Request, Response

from gpusteward.analyzer.api.dependencies import Service
from gpusteward.analyzer.api.http.problems import ProblemError, find_language
from gpusteward.analyzer.api.http.responses import has_current, send_not_modified, send_page
from gpusteward.analyzer.api.http.static_files import ASSETS, ENCODINGS, INDEX, StaticFile
from gpusteward.http_server.negotiation import parse_accept
from gpusteward.messages import home_page as messages
from gpusteward.messages.errors import api_errors

router = APIRouter(include_in_schema=False)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_LONG = "public, max-age=31536000, immutable"
"""For files whose name contains a hash of their contents."""


@router.get("/ui")
async def redirect_to_ui() -> Response:
    return Response(status_code=307, headers={"Location": "ui/", "Cache-Control": "no-cache"})


@router.get("/ui/")
def show_ui(request: Request, dependencies: Service) -> Response:
    if not dependencies.ui.is_built:
        return _explain_build(request)
    return _send(request, dependencies.ui.read(INDEX, accepted=_accepted(request)), cached="no-cache")


@router.get("/ui/assets/{file}")
def show_asset(request: Request, dependencies: Service, file: str) -> Response:
    return _send(request, dependencies.ui.read(ASSETS, file, accepted=_accepted(request)), cached=_LONG)


@router.get("/ui/{file}")
def show_file(request: Request, dependencies: Service, file: str) -> Response:
    """Files without a hash in their name, such as the icon."""
    return _send(request, dependencies.ui.read(file, accepted=_accepted(request)), cached="no-cache")


def _accepted(request: Request) -> frozenset[str]:
    items = parse_accept(request.headers.get("accept-encoding", ""))
    return frozenset(item.name for item in items if item.weight > 0 and item.name in ENCODINGS)


def _send(request: Request, file: StaticFile | None, *, cached: str) -> Response:
    """Raises a 404 problem."""
    if file is None:
        raise ProblemError(404, "not-found", api_errors.UNKNOWN_PATH)
    headers = {"ETag": file.etag, "Cache-Control": cached, "Content-Security-Policy": POLICY}
    if file.has_variants:
        headers["Vary"] = "Accept-Encoding"
    if has_current(request, file.etag):
        response = send_not_modified(file.etag)
        response.headers.update(headers)
        return response
    if file.encoding:
        headers["Content-Encoding"] = file.encoding
    return Response(file.body, headers=headers, media_type=file.media_type)


def _explain_build(request: Request) -> Response:
    """Where the package was installed from source without the bundle."""
    language = find_language(request.headers)
    content = f"<p>{escape(messages.NOT_BUILT.text(language))}</p><pre>make web</pre>"
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Language"}
    return send_page("gpusteward", content, language, headers=headers, root="../")
