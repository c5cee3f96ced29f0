// SPDX-License-Identifier: Apache-2.0
// A model server that speaks OpenAI's Responses API, in this process. What it answers, a request
// says in its member `plan`:
//
//   words     so many deltas (default 50)
//   style     strong: every event has its number, places and ids, as OpenAI sends them
//             weak: as llama.cpp does: no number, no place, a reasoning item without its part
//   gate      waits behind so many deltas until go() is called
//   fate      cut: the connection breaks behind `at` deltas; end: the answer ends there;
//             error: an error comes there, in the backend's own form
//   status    refuses with this status; json: answers with this value and no events
//   big       bytes of each delta
//   ids       two: another response id with each event
//
// Of everything else it knows nothing: 404.
import { once } from "node:events";
import { createServer } from "node:http";
import { defer } from "./defer.mjs";

export const wordsOf = (name, n) => Array.from({ length: n }, (_, i) => `${name}-${i} `);

class ResponsesBackend {
    seen = []; // { body, headers, closed } of each request
    #server = createServer((req, res) => this.#take(req, res));
    #waiting = [];
    #isOpen = false;
    #count = 0;

    async start(t) {
        this.#server.listen(0, "127.0.0.1");
        await once(this.#server, "listening");
        defer(t, () => {
            this.go();
            this.#server.closeAllConnections();
            this.#server.close();
        });
        return this;
    }

    url(path = "/v1/responses") {
        return `http://127.0.0.1:${this.#server.address().port}${path}`;
    }

    /** Opens the gates that answers wait at, for good. */
    go() {
        this.#isOpen = true;
        for (const open of this.#waiting.splice(0)) open();
    }

    async #take(req, res) {
        const parts = [];
        for await (const part of req) parts.push(part);
        const text = Buffer.concat(parts).toString();
        const entry = { text, headers: req.headers, url: req.url, method: req.method, closed: false };
        this.seen.push(entry);
        res.on("close", () => (entry.closed = true));
        if (req.method !== "POST" || !req.url.endsWith("/responses")) {
            res.writeHead(404, { "content-type": "application/json" });
            res.end(JSON.stringify({ error: { message: "the backend does not know it" } }));
            return;
        }
        try {
            entry.body = JSON.parse(text);
        } catch {
            res.writeHead(400, { "content-type": "application/json" });
            res.end('{"error":{"message":"no JSON","type":"invalid_request_error"}}');
            return;
        }
        await this.#answer(entry.body, res);
    }

    async #answer(body, res) {
        const plan = body.plan ?? {};
        if (plan.status !== undefined || plan.json !== undefined) {
            res.writeHead(plan.status ?? 200, { "content-type": "application/json" });
            res.end(JSON.stringify(plan.json ?? { error: { message: "refused", code: "no" } }));
            return;
        }
        if (body.previous_response_id && plan.style === "weak") {
            res.writeHead(400, { "content-type": "application/json" });
            res.end('{"error":{"message":"does not support previous_response_id"}}');
            return;
        }
        res.writeHead(200, { "content-type": "text/event-stream" });
        let deltas = 0;
        for (const event of answerOf(body, ++this.#count)) {
            if (event.delta !== undefined && event.type === "response.output_text.delta") {
                if (plan.fate !== undefined && deltas === plan.at) {
                    await end(res, plan.fate);
                    return;
                }
                if (plan.gate !== undefined && deltas === plan.gate && !this.#isOpen)
                    await new Promise((open) => this.#waiting.push(open));
                deltas++;
            }
            res.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
            await new Promise((next) => setImmediate(next));
        }
        res.end();
    }
}

async function end(res, fate) {
    if (fate === "error") res.write('data: {"error":{"code":500,"message":"out of memory"}}\n\n');
    await new Promise((next) => setTimeout(next, 20)); // what came before is out
    if (fate === "cut") res.destroy();
    else res.end();
}

/** The text that a request is answered with. */
export function textOf(body) {
    const { name = "word", words = 50, big } = body.plan ?? {};
    return wordsOf(name, words).map((word) => (big ? word.padEnd(big, "x") : word));
}

function answerOf(body, count) {
    const plan = body.plan ?? {};
    const events = (plan.style === "weak" ? weakEvents : strongEvents)(body, count, textOf(body));
    if (plan.ids === "two")
        for (const [i, event] of events.entries()) if (event.response) event.response.id = `resp_${i}`;
    return events;
}

const usage = { input_tokens: 1, output_tokens: 2, total_tokens: 3 };

function strongEvents(body, count, words) {
    const id = `resp_${count}`;
    const place = { item_id: `msg_${count}`, output_index: 0, content_index: 0 };
    const part = (text) => ({ type: "output_text", text, annotations: [], logprobs: [] });
    const item = (status, content) => ({
        id: place.item_id,
        type: "message",
        status,
        role: "assistant",
        content,
    });
    const response = (status, output, more) => ({
        id,
        object: "response",
        created_at: 1_700_000_000,
        status,
        background: false,
        error: null,
        model: body.model,
        output,
        previous_response_id: null,
        ...more,
    });
    const text = words.join("");
    const done = item("completed", [part(text)]);
    const events = [
        { type: "response.created", response: response("in_progress", []) },
        { type: "response.in_progress", response: response("in_progress", []) },
        { type: "response.output_item.added", output_index: 0, item: item("in_progress", []) },
        { type: "response.content_part.added", ...place, part: part("") },
        ...words.map((delta) => ({
            type: "response.output_text.delta",
            ...place,
            delta,
            logprobs: [],
        })),
        { type: "response.output_text.done", ...place, text, logprobs: [] },
        { type: "response.content_part.done", ...place, part: part(text) },
        { type: "response.output_item.done", output_index: 0, item: done },
        { type: "response.completed", response: response("completed", [done], { usage }) },
    ];
    return events.map((event, sequence_number) => ({ ...event, sequence_number }));
}

function weakEvents(body, count, words) {
    const id = `resp_${count}`;
    const rs = { id: `rs_${count}`, type: "reasoning", summary: [] };
    const fc = { id: `fc_${count}`, type: "function_call", call_id: `call_${count}`, name: "look" };
    const message = { id: `msg_${count}`, type: "message", role: "assistant" };
    const text = words.join("");
    const part = { type: "output_text", annotations: [], logprobs: [], text };
    const output = [
        { ...rs, content: [{ type: "reasoning_text", text: "hm, well" }] },
        { ...message, status: "completed", content: [part] },
    ];
    const calls = body.tools?.length ? [{ ...fc, status: "completed", arguments: '{"at":1}' }] : [];
    const started = { id, object: "response", status: "in_progress" };
    const added = (item) => ({ type: "response.output_item.added", item });
    const finished = (item) => ({ type: "response.output_item.done", item });
    return [
        { type: "response.created", response: { ...started } },
        { type: "response.in_progress", response: { ...started } },
        added({ ...rs, content: [], status: "in_progress" }),
        { type: "response.reasoning_text.delta", delta: "hm, ", item_id: rs.id },
        { type: "response.reasoning_text.delta", delta: "well", item_id: rs.id },
        added({ ...message, status: "in_progress", content: [] }),
        {
            type: "response.content_part.added",
            item_id: message.id,
            part: { type: "output_text", text: "" },
        },
        ...words.map((delta) => ({
            type: "response.output_text.delta",
            item_id: message.id,
            delta,
        })),
        ...calls.flatMap(() => [
            added({ ...fc, status: "in_progress", arguments: "" }),
            { type: "response.function_call_arguments.delta", item_id: fc.id, delta: '{"at":' },
            { type: "response.function_call_arguments.delta", item_id: fc.id, delta: "1}" },
        ]),
        finished(output[0]),
        { type: "response.output_text.done", item_id: message.id, text },
        { type: "response.content_part.done", item_id: message.id, part },
        finished(output[1]),
        ...calls.map(finished),
        {
            type: "response.completed",
            response: {
                ...started,
                status: "completed",
                model: body.model,
                output: [...output, ...calls],
                usage,
            },
        },
    ];
}

export function startResponsesBackend(t) {
    return new ResponsesBackend().start(t);
}
