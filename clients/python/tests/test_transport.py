# SPDX-License-Identifier: Apache-2.0
"""The transports against a server that answers as tidemark does, and cuts wherever it can."""

import asyncio
import importlib.util
import json
import socket
import struct
import threading
import unittest

from tidemark import AsyncResumableTransport, ResumableTransport
from tidemark._answer import Answer

LIBRARIES = [importlib.import_module(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
ID = "0b9f6a3e-51f4-4bd6-9a0c-3c8a44f2e0d1"
EVENTS = [f"event: token\ndata: {json.dumps({'n': n})}\n\n" for n in range(1, 6)]
WHOLE = "".join(EVENTS).encode()


def block(n, ids):
    head = {"full": f"id: {ID}:{n}\n", "plain": f"id: {n}\n", "none": ""}[ids]
    return (": heartbeat\n" if ids != "none" and n == 3 else "") + head + EVENTS[n - 1]


class Server:
    """Each connection gets one answer. `plan` has one entry a connection: how many bytes of the answer's body are
    sent, and how the connection ends ("reset", "fin", "clean"); ("lost",) ends it before the head, ("status", n)
    answers with that status. Behind the plan everything is whole."""

    def __init__(self, plan, ids="full", mark=True, lines=False):
        self.plan, self.ids, self.mark, self.lines = list(plan), ids, mark, lines
        self.requests, self.generations = [], {}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.serve(peer)

    def read_request(self, peer):
        data = b""
        while b"\r\n\r\n" not in data:
            data += peer.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += peer.recv(65536)
        method, path, _ = first.split(" ")
        return method, path, headers, body

    def body_behind(self, position):
        if self.lines:
            return "".join(json.dumps({"n": n}) + "\n" for n in range(position + 1, 6)).encode()
        text = "".join(block(n, self.ids) for n in range(position + 1, 6))
        return (text + (": end\n" if self.mark else "")).encode()

    def serve(self, peer):
        method, path, headers, body = self.read_request(peer)
        self.requests.append((method, path, headers, body))
        step = self.plan.pop(0) if self.plan else (1 << 30, "clean")
        if step[0] == "lost":
            self.reset(peer)
            return
        if step[0] == "status":
            peer.sendall(f"HTTP/1.1 {step[1]} X\r\nContent-Length: 0\r\nRetry-After: 0\r\nConnection: close\r\n\r\n".encode())
            peer.close()
            return
        position = 0
        if method == "POST":
            self.generations.setdefault(headers.get("idempotency-key"), ID)
        else:
            position = int(headers["last-event-id"].rpartition(":")[2])
        answer = self.body_behind(position)
        if method == "GET" and position == 5:
            peer.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            peer.close()
            return
        media = "application/x-ndjson" if self.lines else "text/event-stream"
        peer.sendall(
            f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nLocation: /chat/{ID}\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        sent = answer[: step[0]]
        if sent:
            peer.sendall(f"{len(sent):x}\r\n".encode() + sent + b"\r\n")
        if step[1] == "clean" or (len(sent) == len(answer) and step[1] != "reset"):
            peer.sendall(b"0\r\n\r\n")
        if step[1] == "reset":
            self.reset(peer)
        else:
            peer.close()

    def reset(self, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    def close(self):
        self.listener.close()


def ask(library, server, **options):
    inner = library.HTTPTransport(verify=False)  # quicker to make
    with library.Client(transport=ResumableTransport(inner, **options)) as client:
        with client.stream("POST", server.url + "/chat", json={"q": 1}, headers={"Authorization": "Bearer k"}) as answer:
            return b"".join(answer.iter_bytes())


async def ask_async(library, server):
    async with library.AsyncClient(transport=AsyncResumableTransport()) as client:
        async with client.stream("POST", server.url + "/chat", json={"q": 1}) as answer:
            return b"".join([piece async for piece in answer.aiter_bytes()])


class Cuts(unittest.TestCase):
    def serve(self, *args, **options):
        server = Server(*args, **options)
        self.addCleanup(server.close)
        return server

    def test_every_position(self):
        size = len(Server.body_behind(Server([], "full"), 0))
        for library in LIBRARIES:
            for at in range(0, size + 1, 11):
                for how in ("reset", "fin", "clean"):
                    with self.subTest(library=library.__name__, at=at, how=how):
                        server = self.serve([(at, how)])
                        self.assertEqual(ask(library, server), WHOLE)
                        self.assertEqual(len(server.generations), 1)
                        for method, path, headers, _ in server.requests[1:]:
                            self.assertEqual((method, path), ("GET", f"/chat/{ID}"))
                            self.assertEqual(headers["authorization"], "Bearer k")
                            self.assertNotIn("idempotency-key", headers)

    def test_ids(self):
        for library in LIBRARIES:
            for ids in ("full", "plain", "none"):
                for mark in (True, False):
                    with self.subTest(library=library.__name__, ids=ids, mark=mark):
                        plan = [(60, "reset"), (20, "fin"), (70, "clean"), ("status", 503)]
                        self.assertEqual(ask(library, self.serve(plan, ids=ids, mark=mark)), WHOLE)

    def test_lines(self):
        for library in LIBRARIES:
            plan = [(3, "reset"), (12, "fin"), (9, "clean")]
            expected = "".join(json.dumps({"n": n}) + "\n" for n in range(1, 6)).encode()
            self.assertEqual(ask(library, self.serve(plan, lines=True)), expected)

    def test_end_mark_saves_a_request(self):
        for library in LIBRARIES:
            server = self.serve([])
            self.assertEqual(ask(library, server), WHOLE)
            self.assertEqual(len(server.requests), 1)

    def test_lost_answers(self):
        for library in LIBRARIES:
            server = self.serve([("lost",), ("lost",), (80, "reset")])
            self.assertEqual(ask(library, server), WHOLE)
            self.assertEqual(len(server.generations), 1)
            keys = {headers["idempotency-key"] for method, _, headers, _ in server.requests if method == "POST"}
            self.assertEqual(len(keys), 1)

    def test_async(self):
        for library in LIBRARIES:
            server = self.serve([("lost",), (100, "reset"), (0, "fin"), (90, "clean")])
            self.assertEqual(asyncio.run(ask_async(library, server)), WHOLE)
            self.assertEqual(len(server.generations), 1)

    def test_what_cannot_be_resumed_is_an_error(self):
        for library in LIBRARIES:
            with self.assertRaisesRegex(library.RemoteProtocolError, "410"):
                ask(library, self.serve([(100, "reset"), ("status", 410)]))
            with self.assertRaisesRegex(library.RemoteProtocolError, "3 tries"):
                ask(library, self.serve([(100, "reset")] + [("status", 503)] * 9), attempts=3)

    def test_own_key_is_kept(self):
        for library in LIBRARIES:
            server = self.serve([("lost",)])
            with library.Client(transport=ResumableTransport()) as client:
                client.post(server.url + "/chat", json={}, headers={"Idempotency-Key": "mine"})
            self.assertEqual({headers["idempotency-key"] for _, _, headers, _ in server.requests}, {"mine"})

    def test_stop_on_close(self):
        for library in LIBRARIES:
            server = self.serve([(100, "fin")])
            with library.Client(transport=ResumableTransport(stop_on_close=True)) as client:
                with client.stream("POST", server.url + "/chat", json={}) as answer:
                    next(answer.iter_bytes())
            method, path, _, _ = server.requests[-1]
            self.assertEqual((method, path), ("DELETE", f"/chat/{ID}"))

    def test_foreign_location_gets_no_credentials(self):
        from tidemark._answer import place_of

        self.assertIsNone(place_of("http://a.example/chat", {"location": "http://b.example/chat/1"}))
        self.assertEqual(place_of("http://a.example/chat", {"location": "/chat/1"}), "http://a.example/chat/1")


class Pieces(unittest.TestCase):
    def test_any_pieces(self):
        """However the bytes come, the same leaves."""
        wire = b": resume T\n" + b"".join(block(n, "full").encode() for n in range(1, 6)) + b": heartbeat\n: end\n"
        for size in range(1, 40):
            answer = Answer("events")
            out = b"".join(answer.feed(wire[at : at + size]) for at in range(0, len(wire), size))
            self.assertEqual(out, WHOLE)
            self.assertTrue(answer.over)
            self.assertEqual(answer.position, f"{ID}:5")

    def test_comment_blocks(self):
        answer = Answer("events")
        self.assertEqual(answer.feed(b": heartbeat\n\ndata: 1\n\n: heartbeat\n\ndata: 2\n\n: end\n\n"), b"data: 1\n\ndata: 2\n\n")
        self.assertEqual(answer.position, "2")
        self.assertTrue(answer.over)

    def test_end_mark_in_data_is_data(self):
        answer = Answer("events")
        self.assertEqual(answer.feed(b"id: 1\ndata: : end\ndata: x\n\n"), b"data: : end\ndata: x\n\n")
        self.assertFalse(answer.over)


if __name__ == "__main__":
    unittest.main()
