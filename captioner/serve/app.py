"""The ASGI app: its routes, and how errors are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from captioner.caption import Failure
from captioner.errors import CaptionerError
from captioner.serve import drop_in, openapi
from captioner.serve.caption_request import read_request
from captioner.serve.caption_response import caption_response, failed
from captioner.serve.guard import OPEN_FOLDER, Guard, body_too_large
from captioner.serve.overlay_call import overlay
from captioner.serve.problems import Problem
from captioner.serve.service import Service
from captioner.serve.service_metrics import ServiceMetrics
from captioner.serve.service_settings import ServiceSettings
from captioner.serve.web_page import web_page
from captioner.web.index_page import ISOLATION


async def caption(request: Request) -> Response:
    """POST /v1/caption. The status is 200 if at least one picture has a caption."""
    service: Service = request.app.state.service
    asked = await read_request(request, service.settings)
    batcher = service.batcher(asked.model)
    results, timings = await service.caption(batcher, asked, asked.options(batcher.captioner))
    failures = [result for result in results if isinstance(result, Failure)]
    if len(failures) == len(results):
        raise Problem(422, failures[0].reason, results=[failed(failure) for failure in failures])
    return JSONResponse(caption_response(asked, batcher, results, timings))


async def models(request: Request) -> Response:
    """GET /v1/models, in the form that OpenAI's clients read too."""
    service: Service = request.app.state.service
    entries = []
    for name, batcher in service.batchers.items():
        manifest, backend = batcher.captioner.manifest, batcher.captioner.backend
        assert manifest is not None
        entries.append(
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": "captioner",
                "attention": manifest.attention,
                "backend": backend.name,
                "grid": [backend.rows, backend.cols],
                "vocabulary": len(backend.vocabulary),
                "training_data": manifest.training_data,
                "licence": manifest.licence,
            }
        )
    return JSONResponse({"object": "list", "data": entries})


async def live(request: Request) -> Response:
    return PlainTextResponse("live")


async def ready(request: Request) -> Response:
    service: Service = request.app.state.service
    if service.ready:
        return PlainTextResponse("ready")
    return PlainTextResponse("draining" if service.draining else "loading", 503, {"Retry-After": "1"})


async def metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def start_page(request: Request) -> Response:
    """GET /: the page for people."""
    return HTMLResponse(web_page(request.app.state.service.settings), headers=_NOT_FRAMED)


async def description(request: Request) -> Response:
    return JSONResponse(openapi.document(request.app.state.service.settings))


async def description_page(request: Request) -> Response:
    return HTMLResponse(openapi.page(request.app.state.service.settings))


_NOT_FRAMED = {"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
ROUTES = [
    Route("/", start_page),
    Route("/v1/caption", caption, methods=["POST"]),
    Route("/v1/overlay", overlay, methods=["POST"]),
    Route("/v1/models", models),
    Route("/v1/chat/completions", drop_in.openai_chat, methods=["POST"]),
    Route("/api/generate", drop_in.ollama_generate, methods=["POST"]),
    Route("/api/chat", drop_in.ollama_chat, methods=["POST"]),
    Route("/api/tags", drop_in.ollama_tags),
    Route("/api/v1/vision/caption", drop_in.photoprism_caption, methods=["POST"]),
    Route("/live", live),
    Route("/ready", ready),
    Route("/metrics", metrics),
    Route("/openapi.json", description),
    Route("/docs", description_page),
]


class _WebFolder(StaticFiles):
    """A folder of `captioner web`, with the headers that give its page threads."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(ISOLATION)
        return response


def create_app(settings: ServiceSettings) -> Starlette:
    """The app with a service of its own. The port answers /live while the models load."""
    service = Service(settings, ServiceMetrics())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loading = loop.run_in_executor(None, service.start)
        yield
        await loading
        await loop.run_in_executor(None, service.close)

    guard = Middleware(Guard, service=service, paths=frozenset(route.path for route in ROUTES))
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(settings.cors),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],  # of status 429
    )
    # The guard has refused bodies whose declared length is too large; this one stops those without a length.
    limit = Middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_body)
    app = Starlette(
        routes=ROUTES if settings.web is None else [*ROUTES, _web_folder(settings.web)],
        middleware=[cors, guard, limit] if settings.cors else [guard, limit],  # a preflight request carries no token
        exception_handlers={
            Problem: _on_problem,
            HTTPException: _on_http_exception,
            CaptionerError: _on_captioner_error,
            Exception: _on_defect,
        },
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def _web_folder(folder: Path) -> Mount:
    return Mount(OPEN_FOLDER.rstrip("/"), _WebFolder(directory=folder, html=True))


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    request.app.state.service.metrics.failures.labels(error.reason).inc()
    return error.response(**drop_in.error_members(request.url.path, error.status, error.detail))


async def _on_captioner_error(request: Request, error: Exception) -> Response:
    return await _on_problem(request, Problem(422, str(error)))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 413:
        return await _on_problem(request, body_too_large(request.app.state.service.settings.max_body))
    detail = {
        404: f"there is nothing at {path}; GET /docs lists the calls",
        405: f"{request.method} is not allowed at {path}; GET /docs lists the calls",
    }.get(error.status_code, error.detail)
    return await _on_problem(request, Problem(error.status_code, detail, headers=dict(error.headers or {})))


async def _on_defect(request: Request, error: Exception) -> Response:
    return await _on_problem(request, Problem(500, "the service has a defect; its log has the details"))
