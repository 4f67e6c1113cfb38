"""Errors as JSON bodies of the type application/problem+json (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that gets an error response. `detail` is a sentence for the client, `more` are further members."""

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.more = status, detail, headers or {}, more

    @property
    def reason(self) -> str:
        """A short name for metrics, such as `too_many_requests`."""
        return HTTPStatus(self.status).name.lower()

    def response(self, **more: Any) -> JSONResponse:
        """The body has the members of RFC 9457: type, title, status and detail, and any further ones."""
        title = HTTPStatus(self.status).phrase
        body = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return JSONResponse({**body, **self.more, **more}, self.status, self.headers, media_type=CONTENT_TYPE)
