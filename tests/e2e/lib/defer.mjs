// SPDX-License-Identifier: Apache-2.0
// Clean-up in the reverse order of set-up, all of it, whatever fails: readers go before the proxy
// they use, and the proxy before its server.
const stacks = new WeakMap();

/** Calls undo() when the test `t` ends. What it throws fails the test. */
export function defer(t, undo) {
    const known = stacks.get(t);
    if (known) {
        known.push(undo);
        return;
    }
    const stack = [undo];
    stacks.set(t, stack);
    t.after(async () => {
        const errors = [];
        for (const step of stack.reverse()) {
            try {
                await step();
            } catch (error) {
                errors.push(error);
            }
        }
        if (errors.length > 0) throw errors[0];
    });
}
