// SPDX-License-Identifier: Apache-2.0
// The Cascade bridge against a stand-in language server that plays transcripts step by step.
import grpc from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ask, before, done, says, startBridge } from "./lib/cascade.mjs";
import { CHECKPOINT, failure, step } from "./lib/language-server.mjs";

const transcripts = [
    {
        name: "text that grows in place",
        script: [
            step(before),
            step([...before, says(3, "Hel")]),
            step([...before, says(3, "Hello")]),
            step([...before, says(3, "Hello, wörld")]),
            step([...before, says(3, "Hello, wörld"), done(4)]),
        ],
        deltas: ["Hel", "lo", ", wörld"],
        rewrites: [],
    },
    {
        name: "a rewrite behind a checkpoint",
        script: [
            step([...before, says(3, "the password is hunter2")]),
            step([...before, says(3, "the password is hunter2"), done(4)]),
            step([...before, says(3, "the password is [redacted]"), done(4)]),
        ],
        deltas: ["the password is hunter2"],
        rewrites: [{ index: 3, text: "the password is [redacted]" }],
    },
    {
        name: "growth behind a rewrite",
        script: [
            step([...before, says(3, "one two")]),
            step([...before, says(3, "One.")]),
            step([...before, says(3, "One. Two.")]),
            step([...before, says(3, "One. Two."), done(4)]),
        ],
        deltas: ["one two", " Two."],
        rewrites: [{ index: 3, text: "One." }],
    },
    {
        name: "a smaller index that comes later",
        script: [
            step([...before, says(6, "second")]),
            step([...before, says(4, "first"), says(6, "second")]),
            step([...before, says(4, "first"), says(6, "second"), done(7)]),
        ],
        text: "second\n\nfirst",
        rewrites: [],
    },
    {
        name: "two messages in one poll, out of order in the text",
        script: [step([...before, says(5, "B"), says(3, "A"), done(6)])],
        text: "A\n\nB",
        rewrites: [],
    },
    {
        name: "a turn of tools alone",
        script: [
            step(before),
            step([...before, [3, "Tool", "[CORTEX_STEP_TYPE_RUN_COMMAND]"]]),
            step([...before, [3, "Tool", "[CORTEX_STEP_TYPE_RUN_COMMAND]"], done(4)]),
        ],
        deltas: [],
        rewrites: [],
    },
    {
        name: "a slow planner with steady step counts",
        script: [
            ...Array.from({ length: 8 }, () => step(before)),
            step([...before, says(3, "at last")]),
            step([...before, says(3, "at last"), done(4)]),
        ],
        deltas: ["at last"],
        rewrites: [],
    },
    {
        name: "two polls that fail",
        script: [
            step([...before, says(3, "half")]),
            failure(grpc.status.UNAVAILABLE, "not now"),
            failure(grpc.status.UNAVAILABLE, "not now"),
            step([...before, says(3, "half and half")]),
            step([...before, says(3, "half and half"), done(4)]),
        ],
        deltas: ["half", " and half"],
        rewrites: [],
    },
    {
        name: "what looks like a header within a line, and Windows line ends",
        script: [
            {
                transcript:
                    "noise\r\n=== MESSAGE 3 - Assistant ===\r\n" +
                    "say === MESSAGE 9 - User === twice\r\n\r\n" +
                    `=== MESSAGE 4 - Tool ===\r\n${CHECKPOINT}\r\n\r\n`,
                steps: 2,
            },
        ],
        deltas: ["say === MESSAGE 9 - User === twice"],
        rewrites: [],
    },
];

describe("transcripts", { concurrency: 6 }, () => {
    for (const { name, script, deltas, text, rewrites } of transcripts)
        test(name, async (t) => {
            const bridge = await startBridge(t);
            bridge.editor.script("go", script);
            const got = await ask(bridge, "go");
            assert.equal(got.text, text ?? deltas.join(""));
            if (deltas) assert.deepEqual(got.deltas, deltas);
            assert.deepEqual(got.rewrites, rewrites);
            assert.equal(got.finish, "stop");
            assert.equal(got.first.choices[0].delta.role, "assistant");
            await bridge.editor.archived(1);
        });
});
