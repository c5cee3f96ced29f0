// SPDX-License-Identifier: Apache-2.0
// clients/python as people get it: a wheel, installed beside openai, anthropic, httpx and httpx2.
import assert from "node:assert/strict";
import { cp, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { wholeText } from "./lib/backend-plan.mjs";
import { startFaults, total } from "./lib/faults.mjs";
import { startGateway } from "./lib/gateway.mjs";
import { findPython, runPython } from "./lib/python.mjs";
import { tempFolder } from "./lib/temp.mjs";

const SOURCE = join(import.meta.dirname, "../../clients/python");

/** A Python that knows these packages, and the folder into which the wheel was unpacked. */
async function install(t) {
    const found = await findPython(t);
    if (found.why) return found;
    const folder = await tempFolder(t);
    const source = join(folder, "source"); // setuptools leaves things beside it
    await cp(SOURCE, source, { recursive: true });
    const pip = ["-m", "pip", "-q", "--disable-pip-version-check"];
    await runPython(found.python, [...pip, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, source]);
    const wheel = (await readdir(folder)).find((name) => name.endsWith(".whl"));
    const target = join(folder, "installed");
    await runPython(found.python, [...pip, "install", "--no-deps", "--target", target, join(folder, wheel)]);
    return { python: found.python, env: { PYTHONPATH: target }, wheel };
}

test("the package's own tests pass from its wheel", async (t) => {
    const { why, python, env, wheel } = await install(t);
    if (why) return t.skip(why);
    assert.match(wheel, /^tidemark-[0-9.]+-py3-none-any\.whl$/);
    await runPython(python, [join(SOURCE, "tests/test_transport.py")], { env });
});

const PROGRAM = `
import asyncio, json, sys
import httpx, httpx2, openai
from tidemark import AsyncResumableTransport, ResumableTransport

def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

async def ask_async(library, given, what):
    transport = AsyncResumableTransport(library.AsyncHTTPTransport(verify=False))
    client = openai.AsyncOpenAI(http_client=library.AsyncClient(transport=transport), **given)
    return text_of([chunk async for chunk in await client.chat.completions.create(**what)])

def ask(library, given, what):
    transport = ResumableTransport(library.HTTPTransport(verify=False))
    client = openai.OpenAI(http_client=library.Client(transport=transport), **given)
    return text_of(client.chat.completions.create(**what))

texts = {}
for name, base in json.loads(sys.argv[1]).items():
    plan = {"name": name, "dialect": "openai", "tokens": 60, "every": 5}
    what = dict(model="fake-1", messages=[{"role": "user", "content": "go"}], stream=True, extra_body={"plan": plan})
    given = dict(api_key="k", base_url=base, max_retries=0)
    library = httpx if "legacy" in name else httpx2
    texts[name] = asyncio.run(ask_async(library, given, what)) if "async" in name else ask(library, given, what)
print(json.dumps(texts))
`;

/** What happens to the n-th connection. The head of an answer has some 300 bytes. */
const FAULTS = {
    resets: (n) => (n < 4 ? [{ kind: "reset", side: "answer", at: 900 + 300 * n }] : []),
    ends: (n) => (n < 3 ? [{ kind: "truncate", side: "answer", at: 1100 }] : []),
    losses: (n) => (n < 2 ? [{ kind: "reset", side: "answer", at: 0 }] : []),
};

test("openai-python gets whole answers over broken connections", async (t) => {
    const { why, python, env } = await install(t);
    if (why) return t.skip(why);
    const routes = { "/v1/chat/completions": { dialect: "openai" } };
    const gateway = await startGateway(t, { routes });
    const program = join(await tempFolder(t), "program.py");
    await writeFile(program, PROGRAM);
    const proxies = {};
    for (const kind of ["sync", "async", "legacy-sync", "legacy-async"])
        for (const [fault, faults] of Object.entries(FAULTS))
            proxies[`${kind}-${fault}`] = await startFaults(t, gateway.server.where, faults);
    const bases = Object.fromEntries(Object.entries(proxies).map(([name, { base }]) => [name, `${base}/v1`]));
    const texts = JSON.parse(await runPython(python, [program, JSON.stringify(bases)], { env }));
    const asked = (await gateway.backend.seen()).map(({ body }) => JSON.parse(body).plan.name);
    assert.deepEqual(asked.sort(), Object.keys(proxies).sort(), "each was asked for once");
    for (const [name, proxy] of Object.entries(proxies)) {
        assert.equal(texts[name], wholeText({ name, tokens: 60 }), name);
        assert.ok(total(proxy) >= 2, `${name}: there were ${total(proxy)} faults`);
    }
});
