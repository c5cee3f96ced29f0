// SPDX-License-Identifier: Apache-2.0
// The server behind TLS, as curl, undici and Node's own sockets see it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { unlinkSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { Agent, request } from "undici";
import { defer } from "./lib/defer.mjs";
import { curl, run, Running, tidemark } from "./lib/run.mjs";
import { startServer } from "./lib/server.mjs";
import { Authority, connectTls, expire, replace } from "./lib/tls.mjs";
import { until } from "./lib/wait.mjs";

const TEXT = ["-H", "Content-Type: text/plain"];

async function startSecure(t, flags = [], name = "first") {
    const authority = await Authority.create(t);
    const tls = authority.issue(name);
    const server = await startServer(t, flags, { tls });
    return { authority, tls, server, trust: ["--cacert", authority.cert] };
}

const nameOf = (socket) => socket.getPeerCertificate().subject.CN;

async function nameNow(t, server, tls) {
    const socket = await connectTls(t, server, { ca: tls.ca });
    socket.end();
    return nameOf(socket);
}

test("curl over TLS 1.2 and 1.3: put, post, get, follow to the end", async (t) => {
    const { server, trust } = await startSecure(t);
    for (const version of ["1.2", "1.3"]) {
        const url = server.url(`hello-${version}`);
        const how = [...trust, "--tlsv1.2", "--tls-max", version];
        const put = await curl(t, [...how, "-i", "-X", "PUT", url, ...TEXT]);
        assert.match(put, /^HTTP\/\S+ 201/);
        assert.ok(put.toLowerCase().includes(`\nlocation: ${url}\r`), put); // links stay secure
        await curl(t, [...how, "-X", "POST", url, ...TEXT, "-d", "one "]);
        const follower = new Running(t, "curl", [
            ...["-sSN", ...how],
            `${url}?offset=-1&live=sse`,
        ]);
        await follower.output(/^data:one $/m);
        await curl(t, [...how, "-X", "POST", url, ...TEXT, "-d", "two"]);
        await follower.output(/^data:two$/m);
        await curl(t, [...how, "-X", "POST", url, "-H", "Stream-Closed: true"]);
        const { code, stdout } = await follower.end();
        assert.equal(code, 0, "a closed stream ends the reader cleanly");
        assert.match(stdout, /"streamClosed":true/);
        assert.equal(await curl(t, [...how, url]), "one two");
    }
});

test("what was agreed on is what is spoken", async (t) => {
    const { server, tls, trust } = await startSecure(t);
    const socket = await connectTls(t, server, { ca: tls.ca, ALPNProtocols: ["h2", "http/1.1"] });
    assert.equal(socket.getProtocol(), "TLSv1.3");
    assert.equal(socket.alpnProtocol, "h2");
    await server.create("a", "text/plain");
    const ask = (...how) =>
        curl(t, [...trust, ...how, "-o", "/dev/null", "-w", "%{http_version}", server.url("a")]);
    assert.equal(await ask("--http2"), "2");
    assert.equal(await ask("--http1.1"), "1.1");
    assert.equal(await ask("--no-alpn"), "1.1");
    const strange = connectTls(t, server, { ca: tls.ca, ALPNProtocols: ["ftp"] });
    await assert.rejects(strange, /no application protocol/);
});

test("large bodies and many at once by undici", async (t) => {
    const { server } = await startSecure(t);
    const line = (i) => `${i}:${"x".repeat(i % 977)}\n`;
    const body = Array.from({ length: 20_000 }, (_, i) => line(i)).join("");
    assert.ok(body.length > 5_000_000);
    await server.create("large", "text/plain");
    await server.append("large", body, "text/plain");
    assert.ok((await server.readAll("large")) === body);
    const names = Array.from({ length: 40 }, (_, i) => `s${i}`);
    await Promise.all(names.map((name) => server.create(name, "text/plain", { body: name })));
    const all = await Promise.all(names.map((name) => server.readAll(name)));
    assert.deepEqual(all, names);
});

test("many live readers on one HTTP/2 connection by undici", async (t) => {
    const { server, tls } = await startSecure(t);
    const agent = new Agent({ allowH2: true, connections: 1, connect: { ca: tls.ca } });
    defer(t, () => agent.destroy());
    let connections = 0;
    agent.on("connect", () => connections++);
    const names = Array.from({ length: 20 }, (_, i) => `live${i}`);
    await Promise.all(names.map((name) => server.create(name, "text/plain")));
    const read = async (name) => {
        const { statusCode, body } = await request(server.url(name, "?offset=-1&live=sse"), {
            dispatcher: agent,
        });
        assert.equal(statusCode, 200);
        return body.text();
    };
    const readers = names.map(read);
    for (const word of ["one", "two", "three"])
        await Promise.all(names.map((n) => server.append(n, `${n} ${word}`, "text/plain")));
    await Promise.all(names.map((name) => server.close(name)));
    (await Promise.all(readers)).forEach((text, i) => {
        for (const word of ["one", "two", "three"])
            assert.ok(text.includes(`${names[i]} ${word}`), text);
        assert.match(text, /"streamClosed":true/);
    });
    assert.equal(connections, 1);
});

test("a Unix socket beside it stays plain, and TCP is never plain", async (t) => {
    const authority = await Authority.create(t);
    const unix = join(authority.folder, "s");
    const tls = authority.issue("first");
    const server = await startServer(t, ["--listen", `unix:${unix}`], { tls });
    await server.create("a", "text/plain", { body: "abc" });
    const local = ["--unix-socket", unix, "http://localhost/v1/stream/a"];
    assert.equal(await curl(t, local), "abc");
    const plain = server.url("a").replace("https:", "http:");
    const { code, stdout } = await run(t, "curl", ["-sS", plain]);
    assert.notEqual(code, 0);
    assert.equal(stdout, "");
    assert.equal(await server.readAll("a"), "abc");
});

test("SIGHUP: new connections get the new certificate, those under way go on", async (t) => {
    const { authority, server, tls, trust } = await startSecure(t);
    await server.create("a", "text/plain", { body: "before" });
    const url = `${server.url("a")}?offset=-1&live=sse`;
    const follower = new Running(t, "curl", ["-sSN", ...trust, url]);
    await follower.output(/^data:before$/m);
    const first = await connectTls(t, server, { ca: tls.ca });
    const session = await new Promise((resolve) => first.once("session", resolve));
    assert.equal(nameOf(first), "first");

    replace(tls, authority.issue("second"));
    server.child.kill("SIGHUP");
    await until(() => /SIGHUP: new connections get/.test(server.stderr), "the reload");
    assert.equal(await nameNow(t, server, tls), "second");
    const back = await connectTls(t, server, { ca: tls.ca, session });
    assert.ok(back.isSessionReused(), "a ticket outlives the certificate");
    await server.append("a", "after", "text/plain");
    await follower.output(/^data:after$/m);
    assert.equal(follower.child.exitCode, null);
});

test("SIGHUP with files that are no good: what was there stays", async (t) => {
    const { authority, server, tls } = await startSecure(t);
    const other = authority.issue("other");
    const kept = async (pattern) => {
        server.child.kill("SIGHUP");
        await until(() => pattern.test(server.stderr), `${pattern} in ${server.stderr}`);
        assert.equal(await nameNow(t, server, tls), "first");
    };
    replace(tls, { cert: tls.cert, key: other.key });
    await kept(/error SIGHUP: the certificate in use stays: the key in \S+ does not belong to/);
    writeFileSync(tls.cert, "nonsense");
    await kept(/stays: there is no certificate in PEM form in \S+first\.pem/);
    unlinkSync(tls.cert);
    await kept(/stays: cannot read the certificate \S+: No such file or directory/);
});

test("settings that cannot be served end the server with a sentence", async (t) => {
    const authority = await Authority.create(t);
    const good = authority.issue("good");
    const locked = authority.issue("locked", { password: "secret" });
    const refused = async (flags, code, sentence) => {
        const where = ["--store", "memory", "--listen", "127.0.0.1:0"];
        const { code: got, stderr } = await tidemark(t, ["serve", ...where, ...flags]);
        assert.match(stderr, sentence);
        assert.equal(got, code, stderr);
    };
    const both = (cert, key) => ["--tls-cert", cert, "--tls-key", key];
    await refused(["--tls-cert", good.cert], 2, /tls-cert is given without tls-key; TLS needs/);
    await refused(["--tls-key", good.key], 2, /tls-key is given without tls-cert/);
    await refused(both("/nowhere.pem", good.key), 1, /cannot read the certificate \/nowhere\.pem/);
    await refused(both(good.cert, "/nowhere.pem"), 1, /cannot read the key \/nowhere\.pem/);
    await refused(both(good.cert, locked.key), 1, /protected by a password/);
    await refused(both(good.cert, authority.key), 1, /does not belong to the certificate/);
    await refused(both(good.key, good.key), 1, /there is no certificate in PEM form/);
    await refused(both(good.cert, good.cert), 1, /there is no key in PEM form/);
});

test("an expired certificate is a warning", async (t) => {
    const authority = await Authority.create(t);
    const tls = authority.issue("old");
    expire(tls);
    const server = await startServer(t, [], { tls });
    assert.match(server.stderr, /warn .*old\.pem has expired; clients will refuse it/);
    const { code } = await run(t, "curl", ["-sS", "--cacert", authority.cert, server.url("a")]);
    assert.equal(code, 60);
    assert.match(await curl(t, ["-k", "-i", server.url("a")]), /^HTTP\/\S+ 404/);
});

test("who shakes no hands is disconnected, and too many are told so", async (t) => {
    const flags = ["--head-timeout", "2s", "--max-connections", "2", "--trace-level", "debug"];
    const { server, tls, trust } = await startSecure(t, flags);
    const silent = connect(server.where);
    t.after(() => silent.destroy());
    await once(silent.resume(), "close"); // without a byte
    assert.equal(silent.bytesRead, 0);
    const held = [];
    for (let i = 0; i < 2; i++) {
        held.push(await connectTls(t, server, { ca: tls.ca }));
        held[i].write("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
        await once(held[i], "data");
    }
    const answer = await run(t, "curl", ["-sSi", "--http1.1", ...trust, server.url("a")]);
    assert.match(answer.stdout, /^HTTP\/\S+ 503/);
    const promised = await run(t, "curl", ["-sSi", "--http2", ...trust, server.url("a")]);
    assert.notEqual(promised.code, 0); // the connection just ends
    assert.equal(promised.stdout, "");
    held.forEach((socket) => socket.destroy());
    const garbage = connect(server.where);
    garbage.end("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await once(garbage.resume(), "close");
    await until(() => /does not begin with a TLS hello/.test(server.stderr), "the trace");
    await until(() => nameNow(t, server, tls).catch(() => null), "room for another");
});

test("a server that ends lets its readers finish", async (t) => {
    const { server, trust } = await startSecure(t);
    await server.create("a", "text/plain", { body: "abc" });
    const url = `${server.url("a")}?offset=-1&live=sse`;
    const follower = new Running(t, "curl", ["-sSN", ...trust, url]);
    await follower.output(/^data:abc$/m);
    await server.stop();
    const { code, stderr } = await follower.end();
    assert.equal(code, 0, stderr); // not "unexpected eof"
});
