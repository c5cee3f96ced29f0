// SPDX-License-Identifier: Apache-2.0
// Models. Each takes the conversation and the tools, in the form of OpenAI's chat completions, and
// gives the next message of the assistant: an answer, or calls of tools.

/** A model behind an API: OpenAI's, or one of the many that speak as it does. */
export function remoteModel({ base, key, name }) {
    return async (messages, tools) => {
        const answer = await fetch(`${base}/chat/completions`, {
            method: "POST",
            headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
            body: JSON.stringify({ model: name, messages, tools }),
        });
        if (!answer.ok) throw new Error(`${base}: ${answer.status} ${await answer.text()}`);
        return (await answer.json()).choices[0].message;
    };
}

/** The cursor in the note that tidemark puts behind a page which is not the last. */
function cursorIn(text) {
    return /__cursor[^A-Za-z0-9_-]+([A-Za-z0-9_-]{80,})/.exec(text)?.[1];
}

/**
 * Stands in for a model, so that the example runs without one. It knows the conversation and
 * nothing else, as a model does: it reads the note behind each page and copies the cursor from it.
 */
export async function scriptedModel(messages) {
    const pages = messages.filter(({ role }) => role === "tool").map(({ content }) => content);
    const cursor = pages.length > 0 ? cursorIn(pages.at(-1)) : undefined;
    if (pages.length === 0 || cursor !== undefined) {
        const args = { status: "paid", ...(cursor && { __cursor: cursor }) };
        const call = { name: "orders", arguments: JSON.stringify(args) };
        const id = `call_${pages.length + 1}`;
        return {
            role: "assistant",
            content: null,
            tool_calls: [{ id, type: "function", function: call }],
        };
    }
    const orders = pages.flatMap((page) => JSON.parse(page.split("\n", 1)[0]));
    const sums = new Map();
    for (const { city, cents } of orders) sums.set(city, (sums.get(city) ?? 0) + cents);
    const [city, cents] = [...sums].sort((a, b) => b[1] - a[1])[0];
    const content = `${city}: ${(cents / 100).toFixed(2)} of ${orders.length} paid orders in all.`;
    return { role: "assistant", content };
}
