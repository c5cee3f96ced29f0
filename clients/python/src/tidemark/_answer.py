# SPDX-License-Identifier: Apache-2.0
"""One recorded answer: what its reader has got, and how to go on. No input or output happens here."""

from __future__ import annotations

import random
from typing import List, Mapping, Optional, Tuple
from urllib.parse import urljoin, urlsplit

END = b": end"
_EVENTS = "text/event-stream"
_LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines")

# Headers of the request that say something about its body, or are set anew for each request.
_NOT_COPIED = {
    "accept", "connection", "content-encoding", "content-length", "content-type", "expect", "idempotency-key",
    "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
}


class CannotResume(Exception):
    """The rest of the answer cannot be had. The text says why."""


def kind_of(status: int, headers: Mapping[str, str]) -> Optional[str]:
    """"events" or "lines" for an answer that tidemark has recorded and that can be resumed; else None."""
    if status != 200 or "content-encoding" in headers:
        return None
    if "location" not in headers and "x-correlation-id" not in headers:
        return None
    media = headers.get("content-type", "").split(";")[0].strip().lower()
    if media == _EVENTS:
        return "events"
    return "lines" if media in _LINES else None


def place_of(url: str, headers: Mapping[str, str]) -> Optional[str]:
    """The URL to resume from. Only one of the same origin counts: it gets the same credentials."""
    place = headers.get("location")
    if place is None:
        parts = urlsplit(url)
        place = parts.path.rstrip("/") + "/" + headers["x-correlation-id"]
    place = urljoin(url, place)
    same = urlsplit(place)[:2] == urlsplit(url)[:2]
    return place if same else None


def resume_headers(headers: List[Tuple[str, str]], position: str) -> List[Tuple[str, str]]:
    kept = [(name, value) for name, value in headers if name.lower() not in _NOT_COPIED]
    return kept + [("Accept", f"{_EVENTS}, application/x-ndjson"), ("Last-Event-ID", position)]


def pause_s(failures: int, headers: Optional[Mapping[str, str]] = None) -> float:
    """How long to wait after so many failures in a row."""
    asked = (headers or {}).get("retry-after", "")
    if asked.isdigit():
        return min(float(asked), 30.0)
    return min(0.05 * 2**failures, 5.0) * random.uniform(0.75, 1.0)


class Answer:
    """Takes the bytes of an answer and gives those that its reader shall see: whole events, without the ids and
    comments that are for resuming. What was torn by a cut is dropped; it comes again."""

    def __init__(self, kind: str) -> None:
        self.over = False  # the end mark was there
        self.progress = False  # something came since the last restart()
        self._lines = kind == "lines"
        self._rest = b""
        self._id: Optional[str] = None  # of the last whole event
        self._count = 0  # whole events, for answers without ids
        self._resumed = False

    @property
    def position(self) -> str:
        return self._id if self._id is not None else str(self._count)

    def restart(self) -> None:
        """The next bytes are those of another connection, which goes on behind `position`."""
        self._rest = b""
        self._resumed = True
        self.progress = False

    def feed(self, data: bytes) -> bytes:
        return self._feed_lines(data) if self._lines else self._feed_events(data)

    def _feed_lines(self, data: bytes) -> bytes:
        whole, found, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        if not found:
            return b""
        whole += found
        self._count += whole.count(b"\n")
        self.progress = True
        return whole

    def _feed_events(self, data: bytes) -> bytes:
        out = []
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        # Blocks may be empty: comments with a blank line behind them come in answers without ids.
        for block in blocks:
            out.append(self._take_block(block.split(b"\n")))
        if self._rest.endswith(b"\n") and END in self._rest.split(b"\n"):
            self.over = True
        return b"".join(out)

    def _take_block(self, lines: List[bytes]) -> bytes:
        kept = [line for line in lines if line and not line.startswith((b":", b"id:"))]
        self.over = self.over or END in lines
        if not kept or (self._resumed and b"event: resume" in kept):
            return b""
        for line in lines:
            if line.startswith(b"id:"):
                self._id = line[3:].strip().decode("utf-8", "replace")
        self._count += any(line.startswith(b"data:") for line in kept)
        self.progress = True
        return b"\n".join(kept) + b"\n\n"


def judge(status: int, headers: Mapping[str, str]) -> str:
    """What an answer to a request to resume means: "go on", "whole", or "again". Raises CannotResume."""
    if status == 204:
        return "whole"
    if status == 200 and kind_of(status, headers) is not None:
        return "go on"
    if status in (408, 425, 429) or status >= 500:
        return "again"
    raise CannotResume(f"the answer was cut and cannot be resumed: the server answered {status}")
