// SPDX-License-Identifier: Apache-2.0
// An agent whose tool has more to say than fits into one answer. See README.md.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Mcp } from "./mcp.mjs";
import { remoteModel, scriptedModel } from "./model.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const BUILT = fileURLToPath(new URL("../../build/tidemark", import.meta.url));
const TURNS = 100; // an agent that goes in circles has to stop somewhere
const QUESTION = "In which city did paid orders bring in the most?";

const { TIDEMARK, OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL } = process.env;

const model = OPENAI_API_KEY
    ? remoteModel({
          base: OPENAI_BASE_URL ?? "https://api.openai.com/v1",
          key: OPENAI_API_KEY,
          name: OPENAI_MODEL ?? "gpt-5-mini",
      })
    : scriptedModel;

/** Tools as chat completions want them. */
const described = ({ name, description, inputSchema }) => ({
    type: "function",
    function: { name, description, parameters: inputSchema },
});

/** All that the tool said, page and note: a model sees no more of a result than its text. */
async function perform(mcp, { id, function: { name, arguments: text } }) {
    const result = await mcp.call(name, JSON.parse(text));
    const content = result.content.map((block) => block.text).join("\n");
    console.log(
        `${name} -> ${content.length} characters${result.nextCursor ? ", more to come" : ""}`,
    );
    return { role: "tool", tool_call_id: id, content };
}

async function ask(mcp, question) {
    const tools = (await mcp.tools()).map(described);
    const messages = [{ role: "user", content: question }];
    for (let turn = 0; turn < TURNS; turn++) {
        const message = await model(messages, tools);
        messages.push(message);
        if (!message.tool_calls?.length) return message.content;
        for (const call of message.tool_calls) messages.push(await perform(mcp, call));
    }
    throw new Error(`no answer in ${TURNS} turns`);
}

const program = TIDEMARK ?? (existsSync(BUILT) ? BUILT : "tidemark");
const mcp = new Mcp(program, ["mcp", "--config", "tools.ini"], { cwd: HERE });
try {
    await mcp.initialize();
    console.log(QUESTION);
    console.log(await ask(mcp, QUESTION));
} finally {
    mcp.close();
}
