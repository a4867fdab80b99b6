"""The page at `/` for browsers: links, in the language of the browser. Other clients get gpu-oour's JSON there."""

from collections.abc import Iterable
from html import escape

from starlette.datastructures import Headers
from starlette.responses import Response

from gpusteward import __version__
from gpusteward.analyzer.api.http.problems import find_language
from gpusteward.core.messages import Language
from gpusteward.http_server.negotiation import parse_accept
from gpusteward.messages import home_page as messages

POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_LANGUAGE_TAGS = {"en": "en", "zh": "zh-CN"}


def prefers_html(headers: Headers) -> bool:
    """Browsers name HTML; clients that accept anything or prefer JSON do not want a page."""
    weights = {item.name: item.weight for item in parse_accept(headers.get("accept", ""))}
    return weights.get("text/html", 0.0) > weights.get("application/json", 0.0)


def send_home_page(headers: Headers, *, url: str) -> Response:
    """`url`: of this server, as the browser knows it."""
    page = render_home_page(find_language(headers), url=url)
    own = {"Content-Security-Policy": POLICY, "Vary": "Accept, Accept-Language", "Cache-Control": "no-cache"}
    return Response(page, headers=own, media_type="text/html")


def render_home_page(language: Language, *, url: str) -> str:
    commands = "\n".join((f"export GPUSTEWARD_SERVER={url}", *messages.COMMANDS))
    return (
        f'<!doctype html><html lang="{_LANGUAGE_TAGS[language]}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>gpusteward</title>'
        '<link rel="stylesheet" href="docs/docs.css"></head><body>'
        f"<h1>gpusteward {escape(__version__)}</h1><p>{messages.ABOUT.text(language)}</p>"
        f"<h2>{messages.FOR_PEOPLE.text(language)}</h2>{_list(messages.PEOPLE, language)}"
        f"<h2>{messages.FOR_PROGRAMS.text(language)}</h2>{_list(messages.PROGRAMS, language)}"
        f"<h2>{messages.IN_THE_TERMINAL.text(language)}</h2><pre>{escape(commands)}</pre></body></html>"
    )


def _list(links: Iterable[messages.Link], language: Language) -> str:
    return f"<ul>{''.join(_item(link, language) for link in links)}</ul>"


def _item(link: messages.Link, language: Language) -> str:
    path = link.path.format(language=language)
    return f'<li><a href="{escape(path)}">{link.title.text(language)}</a> <code>/{escape(path)}</code></li>'
