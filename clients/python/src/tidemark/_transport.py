# SPDX-License-Identifier: Apache-2.0
"""Transports for httpx and httpx2. Both libraries have the same classes; which one is meant follows from the
request, so neither is imported here."""

from __future__ import annotations

import sys
import time
import uuid
from functools import lru_cache
from typing import Any, AsyncIterator, Iterator, Optional

import anyio  # comes with httpx and httpx2

from ._answer import Answer, CannotResume, judge, kind_of, pause_s, place_of, resume_headers


_FIRST_ATTEMPTS = 4  # again, where not even headers came; then it is the SDK's turn


def _library(request: Any) -> Any:
    return sys.modules[type(request).__module__.partition(".")[0]]


def _is_cut(library: Any, error: Exception) -> bool:
    """A lost connection. Time-outs are the caller's own wish."""
    return isinstance(error, (library.NetworkError, library.RemoteProtocolError))


def _is_resumable(library: Any, request: Any) -> bool:
    json = request.headers.get("content-type", "").split(";")[0].strip() == "application/json"
    return request.method == "POST" and json and isinstance(request.stream, library.ByteStream)


class _Reading:
    """What the synchronous and the asynchronous stream share."""

    def __init__(self, transport: Any, library: Any, request: Any, response: Any, kind: str, place: str) -> None:
        self._transport = transport
        self._library = library
        self._request = request
        self._inner = response.stream
        self._answer = Answer(kind)
        self._place = place
        self._failures = 0
        self._ended = False

    def _next_request(self) -> Any:
        headers = resume_headers(self._request.headers.multi_items(), self._answer.position)
        extensions = dict(self._request.extensions)
        return self._library.Request("GET", self._place, headers=headers, extensions=extensions)

    def _count_failure(self, why: str, headers: Any = None) -> float:
        """How long to wait before the next try. After an answer that brought something it comes at once."""
        self._failures = 0 if self._answer.progress else self._failures + 1
        self._answer.progress = False
        if self._failures > self._transport.attempts:
            raise CannotResume(f"the answer was cut, and {self._transport.attempts} tries to resume it failed: {why}")
        return pause_s(self._failures, headers) if self._failures > 0 else 0.0

    def _error(self, error: CannotResume) -> Exception:
        return self._library.RemoteProtocolError(str(error), request=self._request)

    @property
    def _stops(self) -> bool:
        return self._transport.stop_on_close and not self._ended and not self._answer.over


class _SyncReading(_Reading):
    def __iter__(self) -> Iterator[bytes]:
        try:
            while not self._ended:
                try:
                    for data in self._inner:
                        whole = self._answer.feed(data)
                        if whole:
                            yield whole
                    why = "the connection ended before the answer did"
                except Exception as error:
                    if not _is_cut(self._library, error):
                        raise
                    why = str(error)
                self._ended = self._answer.over or not self._resume(why)
        except CannotResume as error:
            raise self._error(error) from None

    def _resume(self, why: str) -> bool:
        """False: that was all."""
        self._inner.close()
        headers = None
        while True:
            time.sleep(self._count_failure(why, headers))
            headers = None
            try:
                response = self._transport.inner(self._library).handle_request(self._next_request())
                verdict = judge(response.status_code, response.headers)
                if verdict == "go on":
                    self._inner = response.stream
                    self._answer.restart()
                    return True
                response.close()
                if verdict == "whole":
                    return False
                why, headers = f"the server answered {response.status_code}", response.headers
            except Exception as error:
                if not isinstance(error, self._library.TransportError):
                    raise
                why = str(error)

    def close(self) -> None:
        self._inner.close()
        if not self._stops:
            return
        self._ended = True
        request = self._next_request()
        request.method = "DELETE"
        try:
            self._transport.inner(self._library).handle_request(request).close()
        except Exception as error:  # the answer goes on: nothing else can be done
            if not isinstance(error, self._library.TransportError):
                raise


class _AsyncReading(_Reading):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while not self._ended:
                try:
                    async for data in self._inner:
                        whole = self._answer.feed(data)
                        if whole:
                            yield whole
                    why = "the connection ended before the answer did"
                except Exception as error:
                    if not _is_cut(self._library, error):
                        raise
                    why = str(error)
                self._ended = self._answer.over or not await self._resume(why)
        except CannotResume as error:
            raise self._error(error) from None

    async def _resume(self, why: str) -> bool:
        await self._inner.aclose()
        headers = None
        while True:
            await anyio.sleep(self._count_failure(why, headers))
            headers = None
            try:
                response = await self._transport.inner(self._library).handle_async_request(self._next_request())
                verdict = judge(response.status_code, response.headers)
                if verdict == "go on":
                    self._inner = response.stream
                    self._answer.restart()
                    return True
                await response.aclose()
                if verdict == "whole":
                    return False
                why, headers = f"the server answered {response.status_code}", response.headers
            except Exception as error:
                if not isinstance(error, self._library.TransportError):
                    raise
                why = str(error)

    async def aclose(self) -> None:
        await self._inner.aclose()
        if not self._stops:
            return
        self._ended = True
        request = self._next_request()
        request.method = "DELETE"
        try:
            await (await self._transport.inner(self._library).handle_async_request(request)).aclose()
        except Exception as error:
            if not isinstance(error, self._library.TransportError):
                raise


@lru_cache(maxsize=None)
def _stream_class(reading: type, base: type) -> type:
    return type("ResumingStream", (reading, base), {})


class _Transport:
    def __init__(self, transport: Any = None, *, attempts: int = 10, stop_on_close: bool = False) -> None:
        """
        transport: what makes the connections; the library's own by default.
        attempts: how many tries in a row may fail before the answer does.
        stop_on_close: closing a response before its end also stops the answer on the server.
        """
        self.attempts = attempts
        self.stop_on_close = stop_on_close
        self._inner = transport

    def inner(self, library: Any) -> Any:
        if self._inner is None:
            self._inner = getattr(library, self._default)()
        return self._inner

    def _prepare(self, request: Any) -> None:
        """One key for all tries: a request whose answer was lost joins the answer that it began."""
        if "idempotency-key" not in request.headers:
            request.headers["Idempotency-Key"] = str(uuid.uuid4())

    def _wrap(self, library: Any, request: Any, response: Any, reading: type, base: type) -> Any:
        kind = kind_of(response.status_code, response.headers)
        place = place_of(str(request.url), response.headers) if kind is not None else None
        if place is not None:
            stream = _stream_class(reading, base)(self, library, request, response, kind, place)
            response.stream = stream
        return response


class ResumableTransport(_Transport):
    """For httpx.Client and httpx2.Client: `Client(transport=ResumableTransport())`."""

    _default = "HTTPTransport"

    def handle_request(self, request: Any) -> Any:
        library = _library(request)
        if not _is_resumable(library, request):
            return self.inner(library).handle_request(request)
        self._prepare(request)
        failures = 0
        while True:
            try:
                response = self.inner(library).handle_request(request)
                return self._wrap(library, request, response, _SyncReading, library.SyncByteStream)
            except Exception as error:
                failures += 1
                if not _is_cut(library, error) or failures > _FIRST_ATTEMPTS:
                    raise
            time.sleep(pause_s(failures))

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def __enter__(self) -> "ResumableTransport":
        return self

    def __exit__(self, *args: Optional[Any]) -> None:
        self.close()


class AsyncResumableTransport(_Transport):
    """For httpx.AsyncClient and httpx2.AsyncClient."""

    _default = "AsyncHTTPTransport"

    async def handle_async_request(self, request: Any) -> Any:
        library = _library(request)
        if not _is_resumable(library, request):
            return await self.inner(library).handle_async_request(request)
        self._prepare(request)
        failures = 0
        while True:
            try:
                response = await self.inner(library).handle_async_request(request)
                return self._wrap(library, request, response, _AsyncReading, library.AsyncByteStream)
            except Exception as error:
                failures += 1
                if not _is_cut(library, error) or failures > _FIRST_ATTEMPTS:
                    raise
            await anyio.sleep(pause_s(failures))

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    async def __aenter__(self) -> "AsyncResumableTransport":
        return self

    async def __aexit__(self, *args: Optional[Any]) -> None:
        await self.aclose()
