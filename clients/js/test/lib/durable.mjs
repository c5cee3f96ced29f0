// SPDX-License-Identifier: Apache-2.0
// A Durable Stream whose events are `items`, one batch each; an offset is a number of them.

const sse = (from, items, encode, isOver) =>
    items
        .slice(from)
        .map((item, i) => {
            const next = from + i + 1;
            const last = next === items.length;
            const end = isOver && last ? { streamClosed: true, endReason: "completed" } : {};
            const control = { streamNextOffset: String(next), streamCursor: "7", ...end };
            const lines = encode(item).split("\n");
            const data = lines.map((line) => `data: ${line}\n`).join("");
            const said = JSON.stringify({ ...control, ...(last && { upToDate: true }) });
            return `: heartbeat\nid: ${next}\nevent: data\n${data}\nevent: control\ndata:${said}\n\n`;
        })
        .join("");

/** type: the stream's. caughtUp: so many items come by the plain requests. */
export class Durable {
    requests = [];

    constructor({ type, items, encode, body, caughtUp = 1 }) {
        Object.assign(this, { type, items, encode, body, caughtUp });
    }

    /** The answer to a request: { headers, bytes }. */
    answer(url, live) {
        const from = Math.max(0, Number(new URL(url).searchParams.get("offset")));
        const plain = { "Content-Type": this.type };
        if (live === "sse") {
            const bytes = sse(from, this.items, this.encode, true);
            return { headers: { "Content-Type": "text/event-stream" }, bytes };
        }
        const end = live ? Math.min(from + 1, this.items.length) : Math.max(from, this.caughtUp);
        const next = { ...plain, "Stream-Next-Offset": String(end), "Stream-Cursor": "9" };
        if (end >= (live ? this.items.length : this.caughtUp)) next["Stream-Up-To-Date"] = "true";
        if (end === this.items.length) next["Stream-Closed"] = "true";
        return { headers: next, bytes: this.body(this.items.slice(from, end)) };
    }

    /** fault(n, live): { at, how } or { status, body, headers } or { refuse }. */
    fetch(fault = () => undefined) {
        return async (url, init) => {
            const live = new URL(url).searchParams.get("live") ?? undefined;
            const what = fault(this.requests.length, live) ?? {};
            this.requests.push({ url, live, ...init });
            if (what.refuse) throw new TypeError("fetch failed");
            if (what.status) return new Response(what.body ?? null, what);
            const { headers, bytes } = this.answer(url, live);
            const all = typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes;
            return new Response(bodyOf(all, what), { headers });
        };
    }
}

function bodyOf(bytes, { at = bytes.length, how = "clean" }) {
    let sent = false;
    return new ReadableStream({
        pull(controller) {
            if (!sent && at > 0) controller.enqueue(bytes.slice(0, at));
            else if (how === "clean") controller.close();
            else controller.error(new TypeError("terminated"));
            sent = true;
        },
    });
}

export const KINDS = {
    json: {
        type: "application/json",
        items: [[1], [{ a: "ü" }, 2], [[]], ["last"]],
        encode: JSON.stringify,
        body: (items) => JSON.stringify(items.flat(1)),
        join: (all) => all.flat(1),
    },
    text: {
        type: "text/plain; charset=utf-8",
        items: ["The", " tide\n\nü", "", " turns."],
        encode: (item) => item,
        body: (items) => items.join(""),
        join: (all) => all.join(""),
    },
    bytes: {
        type: "application/octet-stream",
        items: [[1, 2], [255], [0, 10, 13], [7]].map((item) => Uint8Array.from(item)),
        encode: (item) => Buffer.from(item).toString("base64"),
        body: (items) => Buffer.concat(items),
        join: (all) => [...Buffer.concat(all)],
    },
};
