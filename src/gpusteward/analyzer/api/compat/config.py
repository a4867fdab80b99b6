"""/, /health, /analyze, /config, /config/update: gpu-oour's other endpoints with its names and JSON.

A browser gets a page with links at /, in its language.
"""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from gpusteward import __version__
from gpusteward.analyzer.api.authorization import may_operate, may_read, may_read_all
from gpusteward.analyzer.api.compat.results import format_time
from gpusteward.analyzer.api.dependencies import Client, Dependencies, Service, find_dependencies, reader_refuses
from gpusteward.analyzer.api.http.problems import GPU_OOUR_TAG, ProblemError, find_language
from gpusteward.analyzer.api.http.responses import DocumentedRoute, send_json, send_page
from gpusteward.analyzer.settings.masked import mask_value
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language
from gpusteward.http_server.negotiation import parse_accept
from gpusteward.logs import Log
from gpusteward.messages import home_page as messages
from gpusteward.messages.data_health import summarize
from gpusteward.messages.errors import api_errors


def prefers_html(headers: Headers) -> bool:
    """Browsers name HTML; clients that accept anything or prefer JSON do not want a page."""
    weights = {item.name: item.weight for item in parse_accept(headers.get("accept", ""))}
    return weights.get("text/html", 0.0) > weights.get("application/json", 0.0)


def send_home_page(language: Language, *, url: str) -> Response:
    """`url`: of this server, as the browser knows it."""
    commands = "\n".join((f"export GPUSTEWARD_SERVER={url}", *messages.COMMANDS))
    content = (
        f"<p>{messages.ABOUT.text(language)}</p>"
        f"<h2>{messages.FOR_PEOPLE.text(language)}</h2>{_list(messages.PEOPLE, language)}"
        f"<h2>{messages.FOR_PROGRAMS.text(language)}</h2>{_list(messages.PROGRAMS, language)}"
        f"<h2>{messages.IN_THE_TERMINAL.text(language)}</h2><pre>{escape(commands)}</pre>"
    )
    headers = {"Vary": "Accept, Accept-Language", "Cache-Control": "no-cache"}
    return send_page("gpusteward", content, language, headers=headers, heading=f"gpusteward {escape(__version__)}")


def _list(links: Iterable[messages.Link], language: Language) -> str:
    paths = ((escape(link.path.format(language=language)), link.title.text(language)) for link in links)
    items = (f'<li><a href="{path}">{title}</a> <code>/{path}</code></li>' for path, title in paths)
    return f"<ul>{''.join(items)}</ul>"


log = Log(__name__)

router = APIRouter(route_class=DocumentedRoute, tags=[GPU_OOUR_TAG])

_READ_ALL, _OPERATE = [Depends(may_read_all)], [Depends(may_operate)]
_ENDPOINTS = {
    "analyze": "/analyze",
    "results": "/results",
    "results_low": "/results/low",
    "stats": "/results/stats",
    "metrics": "/metrics",
    "health": "/health",
}
_CHANGEABLE = {"threshold": "thresholds.low_utilization", "interval": "scheduler.interval", "ai_enabled": "ai.enabled"}

Json = Mapping[str, Any]


@router.get("/", summary="The service", response_model=Json)
async def show_service(request: Request, service: Service) -> Response:
    """Name, version, endpoints and main settings of the service. A browser is redirected to the web UI, or gets a page
    with links where the UI is not installed."""
    is_browser = prefers_html(request.headers)
    if is_browser and await run_in_threadpool(lambda: service.ui.is_built):
        return Response(status_code=307, headers={"Location": "ui/", "Vary": "Accept", "Cache-Control": "no-cache"})
    await may_read(request)
    dependencies = await find_dependencies(request)
    if is_browser:
        return send_home_page(find_language(request.headers), url=str(request.base_url).rstrip("/"))
    settings = dependencies.settings.current
    return send_json(
        {
            "service": "GPU Utilization Monitor",
            "version": __version__,
            "features": {
                "ai_analysis": settings.ai.enabled,
                "prometheus_metrics": True,
                "control_api": settings.control.enabled,
            },
            "config": {
                "prometheus_url": mask_value(", ".join(settings.prometheus.addresses)),
                "threshold": mask_value(settings.thresholds.low_utilization),
                "interval": settings.scheduler.interval,
                "time_window_min": mask_value(settings.prometheus.time_window_min),
                "max_workers": settings.scheduler.max_workers,
            },
            "endpoints": _ENDPOINTS,
        }
    )


@router.get("/health", summary="Health", response_model=Json)
async def show_health(request: Request, dependencies: Service) -> Response:
    """Needs no token, because probes of a kubelet have none: without one it describes the service, not the cluster.

    healthy; degraded: the last cycle could read nothing, everything is unknown, all targets are lost, or GPUs have
    disappeared or were never found; warning: the last analysis is older than three intervals, more than half is
    unknown, or a part of the source fails. The HTTP status is 200 in every case: a restart would not help.
    `result_age_seconds` is an addition to gpu-oour's fields; who may read gets more of them: `reasons` says why it is
    not healthy, without names, which /api/v1/health has.
    """
    published, settings = dependencies.results.published, dependencies.settings.current
    health = dependencies.assess_data()
    shown = {
        "status": health.status,
        "prometheus_connected": health.is_connected,
        "last_analysis": format_time(published.result.at) if published else None,
        "analysis_timeout": health.is_late,
        "ai_enabled": settings.ai.enabled,
        "interval": settings.scheduler.interval,
        "result_age_seconds": None if health.age_seconds is None else round(health.age_seconds, 1),
    }
    return send_json({**shown, **await _describe_data(request)})


async def _describe_data(request: Request) -> Json:
    """What only those see who may read: how much of the cluster is known."""
    try:
        await may_read(request)
    except ProblemError:
        return {}
    dependencies = await find_dependencies(request)
    health, suspended = dependencies.assess_data(), dependencies.suspended
    return {
        "unknown_ratio": health.unknown_ratio,
        "targets": health.targets,
        "targets_up": None if health.targets is None else health.targets_up,
        "reasons": [summarize(one.code).text(find_language(request.headers)) for one in health.findings],
        "suspended": suspended.actions if suspended else None,
    }


@router.get("/analyze", summary="Start an analysis", response_model=Json, dependencies=_OPERATE)
@router.post("/analyze", summary="Start an analysis", response_model=Json, dependencies=_OPERATE)
async def start_analysis(
    request: Request,
    dependencies: Dependencies,
    client: Client,
    use_ai: Annotated[bool | None, Query(description="Whether to ask a model; default: as in the settings.")] = None,
) -> Response:
    """Start a cycle when the current one has ended. Needs the role operator; GET is kept for gpu-oour's clients.

    `use_ai` in the response repeats the request, as in gpu-oour. A model that the settings do not name is not asked:
    the cycle runs without it, and the added field `note` says so.
    """
    ai = dependencies.settings.current.ai
    dependencies.cycles.request_cycle(use_ai=use_ai)
    log.info("analysis_requested", by=client)
    uses_ai = ai.enabled if use_ai is None else use_ai
    triggered = {"status": "triggered", "message": "GPU analysis started in background", "use_ai": uses_ai}
    if uses_ai and not ai.is_configured:
        triggered["note"] = _explain_missing_model(request)
    return send_json(triggered)


def _explain_missing_model(request: Request) -> str:
    return api_errors.MODEL_NOT_CONFIGURED.text(find_language(request.headers))


@router.get("/config", summary="Settings", response_model=Json, dependencies=_READ_ALL)
async def show_config(dependencies: Dependencies) -> Response:
    """The settings that gpu-oour has. Keys and passwords are never shown."""
    settings = dependencies.settings.current
    source, ai, control = settings.prometheus, settings.ai, settings.control
    shown = {
        "prometheus": {
            "url": source.url,
            "query_condition": source.query_condition,
            "time_window_min": source.time_window_min,
            "step": source.step,
        },
        "scoring": settings.scoring.model_dump(),
        "thresholds": settings.thresholds.model_dump(include={"low_utilization", "idle"}),
        "scheduler": settings.scheduler.model_dump(include={"interval", "max_workers"}),
        "ai": {"enabled": ai.enabled, "model": ai.model if ai.enabled else None},
        "control": {"enabled": control.enabled, "api_url": control.api_url if control.enabled else None},
    }
    return send_json(mask_value(shown))


@router.post("/config/update", summary="Change settings", response_model=Json, dependencies=_OPERATE)
def update_config(
    request: Request,
    dependencies: Dependencies,
    client: Client,
    threshold: Annotated[
        int | None, Query(description="thresholds.low_utilization, a whole number as in gpu-oour")
    ] = None,
    interval: Annotated[int | None, Query(description="scheduler.interval, in seconds")] = None,
    *,
    ai_enabled: Annotated[bool | None, Query(description="ai.enabled")] = None,
) -> Response:
    """Change settings until the program ends. Needs the role operator.

    As in gpu-oour, the response to a value out of range is 200 with `{"error": "..."}` and nothing is changed; likewise
    if a model is to be asked that the settings do not name.
    """
    if ai_enabled and not dependencies.settings.current.ai.is_configured:
        return send_json({"error": _explain_missing_model(request)})
    given = {"threshold": threshold, "interval": interval, "ai_enabled": ai_enabled}
    updates = {name: value for name, value in given.items() if value is not None}
    if updates and not dependencies.leadership.is_leader:
        raise reader_refuses(dependencies)
    try:
        if updates:
            dependencies.settings.change({_CHANGEABLE[name]: value for name, value in updates.items()})
            dependencies.cycles.request_cycle()  # also ends a wait of the previous interval
    except ConfigurationError as error:
        return send_json({"error": error.text(find_language(request.headers))})
    log.info("settings_changed", by=client, **updates)
    note = "takes effect with the next cycle, until the service restarts; config.yaml is not changed"
    return send_json({"status": "updated", "updates": mask_value(updates), "note": note})
