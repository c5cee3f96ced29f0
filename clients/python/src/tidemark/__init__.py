# SPDX-License-Identifier: Apache-2.0
"""Streamed answers that survive lost connections, through a tidemark server.

    import openai, httpx2
    from tidemark import ResumableTransport

    client = openai.OpenAI(
        base_url="http://127.0.0.1:4437/v1",
        http_client=httpx2.Client(transport=ResumableTransport()))

The transports work with httpx and with httpx2.
"""

from ._transport import AsyncResumableTransport, ResumableTransport

__all__ = ["AsyncResumableTransport", "ResumableTransport"]
