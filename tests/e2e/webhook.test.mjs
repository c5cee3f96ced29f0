// SPDX-License-Identifier: Apache-2.0
// Webhook subscriptions where the public suite stops: failures, retries, signatures, the end.
import assert from "node:assert/strict";
import { createPublicKey, verify } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { defer } from "./lib/defer.mjs";
import { startServer } from "./lib/server.mjs";
import { until } from "./lib/wait.mjs";

// The receivers are on this machine.
const LOCAL = ["--allow-loopback-targets"];

/** A webhook's receiver; reply(delivery, n) gives { status, body } for the n-th delivery. */
async function startReceiver(t, reply = () => ({ status: 200, body: { done: true } })) {
    const receiver = { deliveries: [], url: "" };
    const listener = createServer(async (request, response) => {
        const pieces = [];
        for await (const piece of request) pieces.push(piece);
        const raw = Buffer.concat(pieces);
        const delivery = {
            raw,
            headers: request.headers,
            method: request.method,
            body: JSON.parse(raw),
        };
        const { status, body, headers } = reply(delivery, receiver.deliveries.length);
        receiver.deliveries.push(delivery);
        response.writeHead(status, { "content-type": "application/json", ...headers });
        response.end(JSON.stringify(body ?? {}));
    });
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    defer(t, () => {
        listener.close();
        listener.closeAllConnections();
    });
    receiver.url = `http://127.0.0.1:${listener.address().port}/hook`;
    receiver.delivery = (n) =>
        until(() => receiver.deliveries[n], `delivery ${n} at ${receiver.url}`);
    return receiver;
}

const subscriptionPath = (id) => `/v1/stream/__ds/subscriptions/${id}`;

async function subscribe(server, id, receiver, more = {}) {
    const answer = await server.request("PUT", subscriptionPath(id), {
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
            type: "webhook",
            pattern: "jobs/*",
            webhook: { url: receiver.url },
            ...more,
        }),
    });
    assert.equal(answer.status, 201, answer.text);
    return answer.json();
}

const streamOf = (delivery, path) => delivery.body.streams.find((s) => s.path === path);

/** The link of a stream in a subscription, as the server tells it. */
async function link(server, id, path) {
    const answer = await server.request("GET", subscriptionPath(id));
    assert.equal(answer.status, 200, answer.text);
    return answer.json().streams.find((s) => s.path === path);
}

test("a delivery answered with 500 is tried again until it is taken", async (t) => {
    const server = await startServer(t, LOCAL);
    const receiver = await startReceiver(t, (_, n) =>
        n === 0 ? { status: 500 } : { status: 200, body: { done: true } },
    );
    await subscribe(server, "retry", receiver);
    await server.create("jobs/1");
    const tail = (await server.append("jobs/1", `{"do":"it"}`)).headers["stream-next-offset"];

    const second = await receiver.delivery(1);
    const [first] = receiver.deliveries;
    assert.equal(first.body.subscription_id, "retry");
    assert.equal(second.body.subscription_id, "retry");
    assert.equal(streamOf(second, "jobs/1").has_pending, true);
    await until(
        async () => (await link(server, "retry", "jobs/1"))?.acked_offset === tail,
        "the acknowledgement",
    );
});

test("a receiver that hangs up is tried again as well", async (t) => {
    const server = await startServer(t, LOCAL);
    let hangUps = 0;
    const receiver = await startReceiver(t);
    const rude = createServer((request) => {
        hangUps++;
        request.socket.destroy();
    });
    rude.listen(0, "127.0.0.1");
    await once(rude, "listening");
    defer(t, () => rude.close());
    await subscribe(server, "rude", { url: `http://127.0.0.1:${rude.address().port}/` });
    await subscribe(server, "polite", receiver);
    await server.create("jobs/1");
    await server.append("jobs/1", "1");
    await receiver.delivery(0); // one bad receiver does not hold up another
    await until(() => hangUps >= 2, "a second attempt");
});

test("signatures verify with the published keys, and only over the very bytes sent", async (t) => {
    const server = await startServer(t, LOCAL);
    const receiver = await startReceiver(t);
    const { webhook } = await subscribe(server, "signed", receiver);
    assert.equal(webhook.signing.jwks_url, `${server.base}/v1/stream/__ds/jwks.json`);
    await server.create("jobs/1");
    await server.append("jobs/1", `{"text":"grüße"}`);
    const { raw, headers, method } = await receiver.delivery(0);
    assert.equal(method, "POST");
    assert.match(headers["content-type"], /^application\/json/);

    const match = /^t=(\d+),kid=([^,]+),ed25519=([A-Za-z0-9_-]+)$/.exec(
        headers["webhook-signature"],
    );
    assert.ok(match, headers["webhook-signature"]);
    const [, time, kid, signature] = match;
    assert.equal(kid, webhook.signing.kid);
    const jwks = await server.request("GET", "/v1/stream/__ds/jwks.json");
    assert.match(jwks.headers["content-type"], /^application\/jwk-set\+json/);
    const jwk = jwks.json().keys.find((key) => key.kid === kid);
    assert.equal(jwk.d, undefined, "the private key stays private");
    const key = createPublicKey({ key: jwk, format: "jwk" });
    const valid = (message) => verify(null, message, key, Buffer.from(signature, "base64url"));
    assert.equal(valid(Buffer.concat([Buffer.from(`${time}.`), raw])), true);
    assert.equal(valid(Buffer.concat([Buffer.from(`${Number(time) + 1}.`), raw])), false);
    assert.equal(valid(Buffer.concat([Buffer.from(`${time}.`), raw, Buffer.from(" ")])), false);
});

test("a deleted subscription is silent", async (t) => {
    const server = await startServer(t, LOCAL);
    const [gone, kept] = [await startReceiver(t), await startReceiver(t)];
    await subscribe(server, "gone", gone);
    await subscribe(server, "kept", kept);
    await server.create("jobs/1");
    await server.append("jobs/1", "1");
    await gone.delivery(0);
    await kept.delivery(0);
    await until(async () => {
        const { acked_offset } = await link(server, "kept", "jobs/1");
        return (
            acked_offset === (await server.stream("HEAD", "jobs/1")).headers["stream-next-offset"]
        );
    }, "the first delivery to be settled");

    assert.equal((await server.request("DELETE", subscriptionPath("gone"))).status, 204);
    assert.equal((await server.request("GET", subscriptionPath("gone"))).status, 404);
    const before = gone.deliveries.length;
    const seen = kept.deliveries.length;
    await server.append("jobs/1", "2");
    await kept.delivery(seen); // whatever "gone" would still get had its chance
    assert.equal(gone.deliveries.length, before);
});

test("a subscription that is deleted while it is being retried stops", async (t) => {
    const server = await startServer(t, LOCAL);
    const failing = await startReceiver(t, () => ({ status: 500 }));
    // Failing like the first, but kept: its retry is the sign that time enough has passed.
    const witness = await startReceiver(t, (_, n) =>
        n < 2 ? { status: 500 } : { status: 200, body: { done: true } },
    );
    await subscribe(server, "failing", failing);
    await subscribe(server, "witness", witness);
    await server.create("jobs/1");
    await server.append("jobs/1", "1");
    await failing.delivery(0);
    assert.equal((await server.request("DELETE", subscriptionPath("failing"))).status, 204);
    const before = failing.deliveries.length;
    await witness.delivery(2);
    assert.equal(failing.deliveries.length, before);
});

test("what is appended during a delivery wakes the receiver once more", async (t) => {
    const server = await startServer(t, LOCAL);
    let appended;
    const receiver = await startReceiver(t, (_, n) => {
        if (n === 0) appended = server.append("jobs/1", "2");
        return { status: 200, body: {} }; // not done yet: the lease runs
    });
    await subscribe(server, "busy", receiver);
    await server.create("jobs/1");
    await server.append("jobs/1", "1");
    const { body } = await receiver.delivery(0);
    const tail = (await appended).headers["stream-next-offset"];
    const snapshot = body.streams.find((s) => s.path === "jobs/1").tail_offset;
    const callback = await fetch(body.callback_url, {
        method: "POST",
        headers: {
            "content-type": "application/json",
            authorization: `Bearer ${body.callback_token}`,
        },
        body: JSON.stringify({
            wake_id: body.wake_id,
            generation: body.generation,
            acks: [{ stream: "jobs/1", offset: snapshot }],
            done: true,
        }),
    });
    assert.equal(callback.status, 200);
    const answer = await callback.json();
    assert.equal(answer.ok, true);
    const next = await receiver.delivery(1);
    assert.ok(next.body.generation > body.generation);
    assert.equal(streamOf(next, "jobs/1").tail_offset, tail);
    assert.equal(streamOf(next, "jobs/1").acked_offset, snapshot);
});

test("callbacks with a wrong token or of a stranger are refused", async (t) => {
    const server = await startServer(t, LOCAL);
    const receiver = await startReceiver(t, () => ({ status: 200, body: {} }));
    await subscribe(server, "strict", receiver);
    await server.create("jobs/1");
    await server.append("jobs/1", "1");
    const { body } = await receiver.delivery(0);
    const call = (token, more = {}) =>
        server.request("POST", `${subscriptionPath("strict")}/callback`, {
            headers: {
                "content-type": "application/json",
                ...(token && { authorization: `Bearer ${token}` }),
            },
            body: JSON.stringify({
                wake_id: body.wake_id,
                generation: body.generation,
                acks: [],
                done: true,
                ...more,
            }),
        });
    for (const token of [
        undefined,
        "",
        "x",
        `${body.callback_token}x`,
        body.callback_token.slice(1),
    ])
        assert.equal((await call(token)).status, 401, `token ${token}`);
    const fenced = await call(body.callback_token, { generation: body.generation + 1 });
    assert.equal(fenced.status, 409);
    const bad = await call(body.callback_token, {
        acks: [{ stream: "jobs/1", offset: "9999999999999999_9999999999999999" }],
    });
    assert.equal(bad.status, 409);
    assert.equal(bad.json().error.code, "INVALID_OFFSET");
    assert.equal((await call(body.callback_token)).status, 200);
});

const put = (server, id, url) =>
    server.request("PUT", subscriptionPath(id), {
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ type: "webhook", pattern: "jobs/*", webhook: { url } }),
    });

test("this machine is refused unless that is allowed, and this server always", async (t) => {
    const closed = await startServer(t);
    const open = await startServer(t, LOCAL);
    const HOSTS = ["127.0.0.1", "localhost", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]"];
    const receiver = await startReceiver(t);
    const { port } = new URL(receiver.url);
    for (const [i, host] of HOSTS.entries()) {
        const other = `http://${host}:${port}/hook`;
        const refused = await put(closed, "s", other);
        assert.equal(refused.status, 400, other);
        assert.equal(refused.json().error.code, "WEBHOOK_URL_REJECTED");
        assert.match(refused.json().error.message, /allow-loopback-targets/);
        assert.equal((await put(open, `s${i}`, other)).status, 201, other);

        const itself = `http://${host}:${open.where.port}/v1/stream/victim`;
        const own = await put(open, "own", itself);
        assert.equal(own.status, 400, itself);
        assert.equal(own.json().error.code, "WEBHOOK_URL_REJECTED");
    }
    for (const url of [`http://0.0.0.0:${port}/hook`, `http://[::]:${port}/hook`])
        assert.equal((await put(open, "none", url)).status, 400, url);
    await open.create("jobs/1");
    await open.append("jobs/1", "1");
    await receiver.delivery(0);
});

test("a receiver that redirects to the server itself is not followed there", async (t) => {
    const server = await startServer(t, LOCAL);
    await server.create("victim");
    const receiver = await startReceiver(t, (_, n) =>
        n === 0
            ? { status: 307, headers: { location: server.url("victim") } }
            : { status: 200, body: { done: true } },
    );
    await subscribe(server, "turned", receiver);
    await server.create("jobs/1");
    await server.append("jobs/1", "1");
    await receiver.delivery(1);
    assert.equal(await server.readAll("victim"), "[]");
});

test("no setting opens the addresses at which clouds give their credentials", async (t) => {
    const server = await startServer(t, [...LOCAL, "--allow-private-targets"]);
    for (const url of [
        "https://169.254.169.254/latest/",
        "https://[::ffff:169.254.169.254]/",
        "https://[fe80::1]/",
        "https://168.63.129.16/",
        "https://100.100.100.200/",
        "https://[fd00:ec2::254]/",
    ])
        assert.equal((await put(server, "bad", url)).status, 400, `${url} by allow-private-targets`);
    assert.equal((await put(server, "good", "https://10.0.0.1/")).status, 201);
});

test("targets in private ranges are refused, whatever they are called", async (t) => {
    const server = await startServer(t, LOCAL);
    for (const url of [
        "http://10.0.0.1/",
        "https://10.0.0.1/",
        "https://192.168.1.1/",
        "https://172.16.0.1/",
        "https://169.254.169.254/latest/",
        "http://example.org/",
        "ftp://example.org/",
        "https://user:pass@example.org/",
        "https://[fd00::1]/",
        "https://[::ffff:10.0.0.1]/",
        "not a url",
        "",
        "http://127.0.0.1.example.org/",
    ]) {
        const answer = await put(server, "bad", url);
        assert.equal(answer.status, 400, `${url}: ${answer.text}`);
    }
    assert.equal((await server.request("GET", subscriptionPath("bad"))).status, 404);
});
