"""Errors as programs expect them: OpenAI's shape, the right status, and nothing of the inside of the server."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from madrigal.data.failures import DecodeError
from madrigal.errors import UserError

LATER = 5.0
"""Seconds after which to try again, where nobody knows better."""


class ErrorBody(BaseModel):
    """What went wrong: a sentence, whose fault it is, which parameter is meant, and a word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorBody


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.more_headers: dict[str, str] = {}
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after = LATER if retry_after is None and status in (429, 503) else retry_after

    @property
    def headers(self) -> dict[str, str]:
        later = {} if self.retry_after is None else {"Retry-After": str(max(1, round(self.retry_after)))}
        return {**self.more_headers, **later}

    def answer(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers)

    def body(self) -> dict[str, Any]:
        told = {"message": self.message, "type": _type(self.status), "param": self.param, "code": self.code}
        return {"error": told}


class BrokenOff(Exception):
    """An answer that has begun and is not brought to its end; `why` is what it is counted as."""

    def __init__(self, why: ApiError) -> None:
        super().__init__(why.message)
        self.why = why


def client_left() -> ApiError:
    return ApiError(499, "The client has left.", code="client_left")


def missing(what: str, name: str, code: str, known: list[str] | None = None, *, status: int = 404) -> ApiError:
    """There is no such thing; what there is instead."""
    there = "" if known is None else f" There is {', '.join(known[:20])}." if known else " There is none."
    return ApiError(status, f"There is no {what} {shown(name)}.{there}", code=code)


def shown(text: str) -> str:
    """What a request has said, fit to be said back."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _type(status: int) -> str:
    named = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return named.get(status, "server_error" if status >= 500 else "invalid_request_error")


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that are errors, for the OpenAPI document."""
    return {
        status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase}
        for status in sorted({*statuses, 400, 401, 403, 408, 413, 500, 503})
    }


def install_error_handlers(app: FastAPI) -> None:
    """All that can be raised below a route becomes an answer."""

    async def told(_: Request, error: Exception) -> JSONResponse:
        return as_api_error(error).answer()

    for kind in (ApiError, UserError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, told)


def as_api_error(error: BaseException) -> ApiError:
    """What is told of an error; of one that nobody foresaw, nothing but that it was one."""
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return _invalid(error)
        case DecodeError():
            return ApiError(400, f"The file cannot be used: {error.reason}.", code="unusable_file", param="file")
        case UserError():
            return ApiError(400, " ".join(str(error).split()), code="unusable_request")
        case HTTPException():
            message = str(error.detail) if error.status_code < 500 else HTTPStatus(error.status_code).phrase
            found = ApiError(error.status_code, message, code=_word(error.status_code))
            found.more_headers = dict(error.headers or {})
            return found
    return ApiError(500, "The server met an error that it did not foresee; its log tells more.", code="internal_error")


def _word(status: int) -> str:
    return "body_too_large" if status == 413 else HTTPStatus(status).phrase.lower().replace(" ", "_")


def _invalid(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong with a request, without what was sent."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        where = f"{first['ctx']['error'].rstrip('.')}, at character {first['loc'][-1]}"
        return ApiError(400, f"The body is no valid JSON: {where}.", code="invalid_json")
    if first["loc"] == ("body",) and first["type"] in ("model_attributes_type", "model_type", "dict_type"):
        return ApiError(400, "The body has to be a JSON object, sent as application/json.", code="invalid_json")
    place = [str(part) for part in first["loc"]]
    inside = [part for part in place[1:] if not part.startswith(("function-", "literal"))]
    param = ".".join(inside)[:100] or None
    message = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"There is no parameter {shown(param or '')}.", code="unknown_parameter", param=param)
    if first["type"] == "missing":
        return ApiError(400, f"{param or 'The body'} is missing.", code="missing_parameter", param=param)
    where = f"{param}: " if param else "The body: "
    return ApiError(400, f"{where}{message}.", code="invalid_parameter", param=param)
