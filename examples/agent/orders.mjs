// SPDX-License-Identifier: Apache-2.0
// The tool: arguments as JSON on its input, one row of JSON a line on its output. Its orders are
// made up, but always the same, so that the agent's answer can be checked.
const CITIES = ["Bergen", "Ghent", "Porto", "Turku"];
const ORDERS = 12_000;

let input = "";
for await (const piece of process.stdin.setEncoding("utf8")) input += piece;
const { status } = JSON.parse(input);

let seed = 1;
const random = (below) => (seed = (seed * 48_271) % 2_147_483_647) % below;

for (let id = 1; id <= ORDERS; id++) {
    const city = CITIES[random(CITIES.length)];
    const order = { id, city, cents: 500 + random(20_000) };
    const paid = random(4) > 0 ? "paid" : "open";
    if (status === undefined || status === paid) console.log(JSON.stringify(order));
}
