"""The application: one object for the command, for tests and for Ray Serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from madrigal import __version__
from madrigal.studio import edits, listening_routes, listing, pictures, run_routes, sounds, speech, voice_routes
from madrigal.studio.documenting import document
from madrigal.studio.documenting import page as docs_page
from madrigal.studio.errors import ApiError, declared, install_error_handlers
from madrigal.studio.guards import Guard
from madrigal.studio.serving import Studio
from madrigal.studio.settings import StudioSettings
from madrigal.studio.watching import CONTENT_TYPE

PAGE = Path(__file__).parent / "page"


def create_app(settings: StudioSettings | None = None, *, loaders: Any = None) -> FastAPI:
    """The studio over a folder of runs. `loaders` are other ways to load models, by kind."""
    settings = settings or StudioSettings()
    studio = Studio(settings, loaders)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        from madrigal.engine.machine import keep_few_kernels, prepare_process

        keep_few_kernels()
        prepare_process()
        warming = asyncio.ensure_future(studio.warm_up()) if settings.warm else None
        yield
        if warming is not None:
            warming.cancel()
        studio.line.close()

    app = FastAPI(
        title="Madrigal studio",
        version=__version__,
        description="Speech, music, pictures and codes over HTTP, and the runs that learn them.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.studio = studio
    install_error_handlers(app)
    routers = [
        part.router for part in (speech, pictures, sounds, edits, voice_routes, listing, run_routes, listening_routes)
    ]
    for router in routers:
        app.include_router(router)
    _add_health(app, studio)
    _add_page(app)
    routes = [*(route for router in routers for route in router.routes), *app.routes]
    app.add_middleware(Guard, settings=settings, watching=studio.watching, routes=routes)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


def _add_health(app: FastAPI, studio: Studio) -> None:
    @app.get("/healthz", tags=["studio"], responses={503: declared()[503]})
    def healthz() -> dict[str, str]:
        """Whether the server takes requests."""
        if studio.watching.is_leaving:
            raise ApiError(503, "The server is about to stop.", code="stopping", retry_after=5)
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse, tags=["studio"], responses=declared())
    def metrics() -> Response:
        """Figures of the server, for Prometheus."""
        return Response(studio.watching.text(), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))

    @app.get("/favicon.ico", include_in_schema=False)
    def favicon() -> Response:
        return Response(status_code=204)

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        if not (PAGE / "index.html").is_file():
            return PlainTextResponse("Madrigal studio: the page is not installed; the interface is.")
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/page", _Page(directory=PAGE, check_dir=False), name="page")


class _Page(StaticFiles):
    """The page's own files; browsers ask each time whether they have changed."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response
