// SPDX-License-Identifier: Apache-2.0
// What tidemark promises beyond the protocol, and what the protocol says but its suite does not
// check.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openRaw, wire } from "./lib/raw.mjs";
import { Running } from "./lib/run.mjs";
import { binary, startServer } from "./lib/server.mjs";
import { openSse } from "./lib/sse.mjs";

const ZERO = "0000000000000000_0000000000000000";
const nextOffset = (answer) => answer.headers["stream-next-offset"];

/** The offset moved by so many bytes. */
function moved(offset, by) {
    const [life, position] = offset.split("_");
    return `${life}_${String(BigInt(position) + BigInt(by)).padStart(16, "0")}`;
}

test("If-Match appends only at the tail it names", async (t) => {
    const server = await startServer(t);
    const empty = nextOffset(await server.create("cas", "text/plain"));
    const append = (body, ifMatch) =>
        server.stream("POST", "cas", {
            headers: { "content-type": "text/plain", "if-match": ifMatch },
            body,
        });

    const first = await append("a", empty);
    assert.equal(first.status, 204);
    const stale = await append("lost", empty);
    assert.equal(stale.status, 412);
    assert.equal(nextOffset(stale), nextOffset(first), "the current tail");
    const second = await append("b", nextOffset(stale));
    assert.equal(second.status, 204);
    assert.equal((await append("never", moved(nextOffset(second), 100))).status, 412);
    assert.equal((await append("never", "garbage")).status >= 400, true);
    assert.equal((await server.stream("GET", "cas")).text, "ab");
});

test("of many writers with the same If-Match exactly one wins", async (t) => {
    const server = await startServer(t);
    const tail = nextOffset(await server.create("race"));
    const writers = Array.from({ length: 20 }, (_, i) =>
        server.stream("POST", "race", {
            headers: { "content-type": "application/json", "if-match": tail },
            body: String(i),
        }),
    );
    const statuses = (await Promise.all(writers)).map((answer) => answer.status).sort();
    assert.deepEqual(statuses, [204, ...Array(19).fill(412)]);
    assert.equal((await server.stream("GET", "race")).json().length, 1);
});

test("listing, by prefix and page by page", async (t) => {
    const server = await startServer(t);
    const names = ["a/1", "a/10", "a/2", "a/b/c", "a/ü", "b/1", "c"];
    for (const name of [...names].reverse())
        await server.create(encodeURI(name), name === "c" ? "text/plain" : "application/json");
    const tail = nextOffset(await server.append("c", "x", "text/plain"));
    await server.close("c");

    const list = async (query) => {
        const answer = await server.request("GET", `/v1/stream/?${query}`);
        assert.equal(answer.status, 200, answer.text);
        assert.match(answer.headers["content-type"], /^application\/json/);
        return answer.json();
    };
    const all = await list("");
    assert.deepEqual(
        all.streams.map((s) => s.name),
        names,
        "all, in byte order",
    );
    assert.equal(all.next, null);
    assert.deepEqual(all.streams.at(-1), {
        name: "c",
        contentType: "text/plain",
        nextOffset: tail,
        closed: true,
    });
    assert.deepEqual(
        all.streams.slice(0, -1).map(({ contentType, closed }) => [contentType, closed]),
        names.slice(0, -1).map(() => ["application/json", false]),
    );

    for (const limit of [1, 2, 3, 5, 100]) {
        const seen = [];
        let after = "";
        for (let pages = 0; pages <= names.length; pages++) {
            const page = await list(`prefix=a/&limit=${limit}&after=${encodeURIComponent(after)}`);
            assert.ok(page.streams.length <= limit);
            seen.push(...page.streams.map((s) => s.name));
            if (page.next === null) break;
            after = page.next;
        }
        assert.deepEqual(
            seen,
            names.filter((name) => name.startsWith("a/")),
            `with limit=${limit}`,
        );
    }
    assert.deepEqual(
        (await list("after=a/2&prefix=")).streams.map((s) => s.name),
        names.slice(3),
    );
    assert.deepEqual(
        (await list("after=a/15")).streams.map((s) => s.name),
        names.slice(2),
        "`after` need not exist",
    );
    assert.deepEqual(await list("prefix=zzz"), { streams: [], next: null });
    for (const query of [
        "limit=0",
        "limit=-1",
        "limit=abc",
        "limit=",
        "limit=1%00",
        "limit=1&limit=2",
    ])
        assert.equal((await server.request("GET", `/v1/stream/?${query}`)).status, 400, query);
});

test("deleted streams leave the list", async (t) => {
    const server = await startServer(t);
    await server.create("x");
    await server.create("y");
    assert.equal((await server.stream("DELETE", "x")).status, 204);
    const { streams } = (await server.request("GET", "/v1/stream/")).json();
    assert.deepEqual(
        streams.map((s) => s.name),
        ["y"],
    );
});

test("an offset of an earlier life is a gap, not somebody else's data", async (t) => {
    const server = await startServer(t);
    await server.create("phoenix");
    const old = [
        nextOffset(await server.append("phoenix", "1")),
        nextOffset(await server.append("phoenix", `[2,"three"]`)),
    ];
    await server.stream("DELETE", "phoenix");
    const reborn = nextOffset(await server.create("phoenix"));
    assert.ok(!old.includes(reborn));
    await server.append("phoenix", "[10,20,30,40]");

    for (const requested of old) {
        for (const query of ["", "&live=long-poll"]) {
            const answer = await server.stream("GET", `phoenix?offset=${requested}${query}`);
            assert.equal(answer.status, 410, query);
            assert.match(answer.headers["content-type"], /^application\/json/);
            const { gap, ...rest } = answer.json();
            assert.deepEqual(rest, {});
            const { earliest, ...known } = gap;
            assert.deepEqual(known, { requested, reason: "reborn", snapshot: null });
            const there = await server.stream("GET", `phoenix?offset=${earliest}`);
            assert.equal(there.text, "[10,20,30,40]", "`earliest` can be read");
        }
        const byQuery = await openSse(t, server, `phoenix?offset=${requested}&live=sse`);
        assert.equal(byQuery.status, 410);
        assert.equal(JSON.parse(byQuery.text).gap.reason, "reborn");
        const byId = await openSse(t, server, "phoenix?offset=-1&live=sse", {
            "Last-Event-ID": requested,
        });
        assert.equal(byId.status, 410);
        assert.deepEqual(JSON.parse(byId.text).gap.requested, requested);
    }
    for (const start of ["-1", ZERO])
        assert.equal(
            (await server.stream("GET", `phoenix?offset=${start}`)).text,
            "[10,20,30,40]",
            start,
        );
});

test("an offset that never was is a gap too", async (t) => {
    const server = await startServer(t);
    const tail = nextOffset(await server.create("short", "text/plain", { body: "abc" }));
    for (const requested of [moved(tail, 1), moved(tail, 1000), ZERO.replaceAll("0", "9")]) {
        for (const live of ["", "&live=long-poll", "&live=sse"]) {
            const answer = await server.stream("GET", `short?offset=${requested}${live}`);
            assert.equal(answer.status, 410, `${requested}${live}`);
            const { gap } = answer.json();
            assert.equal(gap.requested, requested);
            assert.equal(gap.reason, "unknown");
        }
    }
});

test("who follows a stream that is deleted is told so", async (t) => {
    const server = await startServer(t);
    await server.create("doomed", "text/plain", { body: "abc" });
    const reader = await openSse(t, server, "doomed?offset=-1&live=sse");
    assert.equal((await reader.event("data")).data, "abc");
    const poller = await openRaw(t, server);
    poller.send(wire("GET", "doomed?offset=now&live=long-poll"));
    const tail = new Running(t, binary(), ["tail", "doomed", "--server", server.base]);
    await tail.output(/abc/);

    assert.equal((await server.stream("DELETE", "doomed")).status, 204);
    const { gap } = JSON.parse((await reader.event("gap")).data);
    assert.deepEqual(Object.keys(gap).sort(), ["earliest", "reason", "requested", "snapshot"]);
    assert.equal(await reader.next(), null);
    assert.ok([404, 410].includes((await poller.answer()).status));
    const { code, stderr } = await tail.end();
    assert.equal(code, 1);
    assert.match(stderr, /gone|deleted/);
});

test("pages of other origins may read everything they need", async (t) => {
    const server = await startServer(t, ["--allow-origin", "https://example.org"]);
    await server.create("open", "text/plain", { body: "abc" });
    const origin = { headers: { origin: "https://example.org" } };
    const expected = [
        "stream-next-offset",
        "stream-up-to-date",
        "stream-closed",
        "stream-end-reason",
        "stream-cursor",
        "stream-sse-data-encoding",
        "producer-epoch",
        "producer-seq",
        "producer-expected-seq",
        "producer-received-seq",
        "etag",
        "location",
    ];
    for (const target of ["open", "open?offset=now", "open?offset=bad", "missing"]) {
        const { headers } = await server.stream("GET", target, origin);
        assert.equal(headers["access-control-allow-origin"], "https://example.org");
        const exposed = headers["access-control-expose-headers"].toLowerCase().split(/\s*,\s*/);
        for (const name of expected)
            assert.ok(exposed.includes(name) || exposed.includes("*"), `${name} of ${target}`);
    }
});

test("the end of a stream has a reason", async (t) => {
    const server = await startServer(t);
    await server.create("end");
    const tail = nextOffset(await server.append("end", "1"));
    const live = await openSse(t, server, "end?offset=-1&live=sse");
    for (const method of ["HEAD", "GET"])
        assert.equal(
            (await server.stream(method, "end")).headers["stream-end-reason"],
            undefined,
            "still open",
        );

    await server.close("end");
    const controls = [];
    for (let control = await live.control(); control; control = await live.control())
        controls.push(control);
    assert.equal(controls.at(-1).streamClosed, true);
    assert.equal(controls.at(-1).endReason, "completed");
    assert.ok(controls.slice(0, -1).every((c) => c.endReason === undefined));

    for (const [method, query] of [
        ["HEAD", ""],
        ["GET", ""],
        ["GET", `?offset=${tail}`],
        ["GET", "?offset=now"],
        ["GET", `?offset=${tail}&live=long-poll`],
    ]) {
        const { headers } = await server.stream(method, `end${query}`);
        assert.equal(headers["stream-end-reason"], "completed", `${method} ${query}`);
        assert.equal(headers["stream-closed"], "true", `${method} ${query}`);
    }
    const late = await openSse(t, server, "end?offset=-1&live=sse");
    let last;
    for (let control = await late.control(); control; control = await late.control())
        last = control;
    assert.equal(last.endReason, "completed");
});

test("JSON elements are kept byte by byte", async (t) => {
    const server = await startServer(t);
    await server.create("verbatim");
    const elements = [
        "12345678901234567890",
        "1.0",
        "-0",
        "1E+2",
        "1e400",
        `{"a":1,"a":2}`,
        `{ "spaced" :  [1 , 2] }`,
        `"\\u00e9\\/ü😀"`,
        `"\\ud800"`,
        "null",
        "[]",
        "[[1],[2]]",
        "0.10000000000000000000000001",
    ];
    await server.append("verbatim", `[${elements.join(",")}]`);
    await server.append("verbatim", ` \n[ 1.0 ,\t2.50\r\n] `);
    await server.append("verbatim", " 3.0 ");
    const expected = [...elements, "1.0", "2.50", "3.0"];
    assert.equal((await server.stream("GET", "verbatim")).text, `[${expected.join(",")}]`);

    const reader = await openSse(t, server, "verbatim?offset=-1&live=sse");
    let seen = "";
    while (seen.length < expected.join(",").length) {
        const { data } = await reader.event("data");
        assert.match(data, /^\[.*\]$/s);
        seen += (seen ? "," : "") + data.slice(1, -1);
    }
    assert.equal(seen, expected.join(","));
});

test("a newline inside a JSON element does not break the event stream", async (t) => {
    const server = await startServer(t);
    await server.create("lines");
    await server.append("lines", `{"a":\r\n1,\n\n"b":\r2}`);
    const reader = await openSse(t, server, "lines?offset=-1&live=sse");
    assert.deepEqual(JSON.parse((await reader.event("data")).data), [{ a: 1, b: 2 }]);
    assert.ok((await reader.control()).streamNextOffset);
});

test("what is not JSON is refused and leaves no trace", async (t) => {
    const server = await startServer(t);
    await server.create("strict");
    const bad = [
        "{",
        "[1,]",
        "[,1]",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "nul",
        "'a'",
        `"\t"`,
        `"\\x"`,
        "[1] 2",
        "1 2",
        "\uFEFF1",
        "{a:1}",
        `{"a" 1}`,
        "NaN",
        "[",
        "]",
        `"`,
        "[]",
    ];
    const bytes = [
        Buffer.from([0x22, 0xff, 0x22]),
        Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]),
        Buffer.from([0x22, 0xc0, 0x80, 0x22]),
        Buffer.from("1\0"),
    ];
    for (const body of [...bad, ...bytes, "[".repeat(100_000)]) {
        const answer = await server.stream("POST", "strict", {
            headers: { "content-type": "application/json" },
            body,
        });
        assert.equal(answer.status, 400, String(body).slice(0, 40));
    }
    assert.equal((await server.stream("GET", "strict")).text, "[]");
    const created = await server.stream("PUT", "broken", {
        headers: { "content-type": "application/json" },
        body: "{",
    });
    assert.equal(created.status, 400);
    assert.equal(
        (await server.stream("HEAD", "broken")).status,
        404,
        "a failed create leaves nothing behind",
    );
});

test("the ETag changes when the stream is closed, and is its own for each life", async (t) => {
    const server = await startServer(t);
    await server.create("tag", "text/plain", { body: "same" });
    const open = (await server.stream("GET", "tag")).headers.etag;
    const again = await server.stream("GET", "tag", { headers: { "if-none-match": open } });
    assert.equal(again.status, 304);
    assert.equal(again.text, "");
    await server.close("tag");
    const closed = await server.stream("GET", "tag", { headers: { "if-none-match": open } });
    assert.equal(closed.status, 200);
    assert.equal(closed.headers["stream-closed"], "true");
    assert.notEqual(closed.headers.etag, open);

    await server.stream("DELETE", "tag");
    await server.create("tag", "text/plain", { body: "diff" });
    const reborn = await server.stream("GET", "tag", { headers: { "if-none-match": open } });
    assert.equal(reborn.status, 200);
    assert.equal(reborn.text, "diff");
});

test("Stream-Closed is true in any case of letters", async (t) => {
    const server = await startServer(t);
    await server.create("shout", "text/plain", {
        headers: { "stream-closed": "TRUE" },
        body: "all",
    });
    assert.equal((await server.stream("HEAD", "shout")).headers["stream-closed"], "true");
    await server.create("later", "text/plain");
    const close = await server.stream("POST", "later", {
        headers: { "stream-closed": "True", "content-type": "text/plain" },
        body: "bye",
    });
    assert.equal(close.status, 204);
    assert.equal(close.headers["stream-closed"], "true");
    assert.equal(
        (
            await server.stream("POST", "later", {
                headers: { "content-type": "text/plain" },
                body: "x",
            })
        ).status,
        409,
    );
});

test("a chunked body of PUT is the stream's first content", async (t) => {
    const server = await startServer(t);
    const raw = await openRaw(t, server);
    const headers = { "Content-Type": "application/json", "Transfer-Encoding": "chunked" };
    raw.send(wire("PUT", "parts", headers));
    for (const part of ["[1", ",", "2]"])
        raw.send(`${part.length.toString(16)};ext=1\r\n${part}\r\n`);
    raw.send("0\r\nX-Trailer: dropped\r\n\r\n");
    assert.equal((await raw.answer("PUT")).status, 201);
    assert.equal((await server.stream("GET", "parts")).text, "[1,2]");
});

test("an offset inside a record is refused", async (t) => {
    const server = await startServer(t);
    for (const [name, type, body] of [
        ["mid/text", "text/plain", "hello world"],
        ["mid/json", "application/json", `{"hello":"world"}`],
        ["mid/bytes", "application/octet-stream", "hello world"],
    ]) {
        await server.create(name, type);
        const first = nextOffset(await server.append(name, body, type));
        const second = nextOffset(await server.append(name, body, type));
        for (const offset of [moved(first, -1), moved(first, 1), moved(second, -2)])
            for (const live of ["", "&live=long-poll", "&live=sse"])
                assert.equal(
                    (await server.stream("GET", `${name}?offset=${offset}${live}`)).status,
                    400,
                    `${name} ${offset} ${live}`,
                );
        assert.equal((await server.stream("GET", `${name}?offset=${first}`)).status, 200);
    }
});

test("names are opaque: encoded, deep and dotted ones stay apart", async (t) => {
    const server = await startServer(t);
    const targets = [
        "a%2Fb",
        "a/b/c/d/e",
        "%C3%BC",
        "sp%20ace",
        "per%25cent",
        "q%3Fmark",
        "a..b",
        ".hidden",
    ];
    for (const target of targets) {
        const created = await server.create(target, "text/plain", { body: target });
        assert.ok(
            created.headers.location.startsWith(`${server.base}/v1/stream/`),
            created.headers.location,
        );
    }
    for (const target of targets) assert.equal((await server.stream("GET", target)).text, target);
    const { streams } = (await server.request("GET", "/v1/stream/?prefix=per")).json();
    assert.deepEqual(
        streams.map((s) => s.name),
        ["per%cent"],
    );
});

test("unknown methods and paths get a clear answer", async (t) => {
    const server = await startServer(t);
    await server.create("here", "text/plain");
    const odd = await server.stream("PATCH", "here");
    assert.ok([405, 501].includes(odd.status), `PATCH: ${odd.status}`);
    assert.equal((await server.request("GET", "/nowhere")).status, 404);
    assert.equal((await server.request("GET", "/v1/streams")).status, 404);
    for (const answer of [odd, await server.request("GET", "/nowhere")])
        assert.equal(answer.headers["x-content-type-options"], "nosniff");
});
