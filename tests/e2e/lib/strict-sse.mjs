// SPDX-License-Identifier: Apache-2.0
// Decoders of server-sent events as two SDKs have them. Both take more for an event than the standard
// does, and then fail because its data is no JSON. The events are lists of { event, data }.

/** All lines of a body that has come to its end. */
const linesOf = (text) => text.replaceAll("\r\n", "\n").split("\n").slice(0, -1);

function fieldOf(line) {
    const at = line.indexOf(":");
    const [name, value] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
    return { name, value: value.startsWith(" ") ? value.slice(1) : value };
}

/** openai-python: an id is never forgotten, and a blank line behind anything, or an id, is an event. */
export function decodeAsPython(text) {
    const events = [];
    let event, retry, id, data = [];
    for (const line of linesOf(text)) {
        if (line === "") {
            if (event || data.length > 0 || id || retry !== undefined)
                events.push({ event, data: data.join("\n") });
            [event, retry, data] = [undefined, undefined, []];
        } else if (!line.startsWith(":")) {
            const { name, value } = fieldOf(line);
            if (name === "event") event = value;
            if (name === "data") data.push(value);
            if (name === "id") id = value;
            if (name === "retry") retry = value;
        }
    }
    return events;
}

/** openai-go before 3.43: every blank line is an event. */
export function decodeAsGo(text) {
    const events = [];
    let event, data = [];
    for (const line of linesOf(text)) {
        if (line === "") {
            events.push({ event, data: data.join("\n") });
            [event, data] = [undefined, []];
        } else {
            const { name, value } = fieldOf(line);
            if (name === "event") event = value;
            if (name === "data") data.push(value);
        }
    }
    return events;
}
