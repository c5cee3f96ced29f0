// SPDX-License-Identifier: Apache-2.0
// When to try again.

const PATIENCE_MS = 60_000; // for a server that says when to come again

/** So long after n failures in a row; half of it is chance, so that many do not come at once. */
export const backoff = (n, longestMs) =>
    Math.min(100 * 2 ** n, longestMs) * (0.5 + Math.random() / 2);

/** What an answer's Retry-After says, in ms; 0: nothing, or no answer. */
export function retryAfter(response) {
    const value = response?.headers?.get("Retry-After") ?? "0";
    const ms = /^\d+$/.test(value) ? value * 1000 : Date.parse(value) - Date.now();
    return Math.min(Math.max(ms || 0, 0), PATIENCE_MS);
}

/** Is it a status that may be another one next time? */
export const isPassing = (status) => status >= 500 || [408, 425, 429].includes(status);

/** Rejects with the signal's reason. While a browser is offline the time does not pass. */
export function sleep(ms, signal) {
    return new Promise((resolve, reject) => {
        let timer;
        const over = (act) => {
            clearTimeout(timer);
            globalThis.removeEventListener?.("online", wake);
            signal?.removeEventListener("abort", abort);
            act();
        };
        const abort = () => over(() => reject(signal.reason));
        const wake = () => {
            if (globalThis.navigator?.onLine !== false) over(resolve);
        };
        if (signal?.aborted) return reject(signal.reason);
        globalThis.addEventListener?.("online", wake);
        signal?.addEventListener("abort", abort);
        timer = setTimeout(wake, ms);
    });
}

/** Sends a request until there is an answer. One that was lost may have been taken. */
export async function ask({ url, init, repeats }, { fetch, retries, longestWaitMs }) {
    for (let failures = 0, isLost = false; ; failures++) {
        let response;
        try {
            response = await fetch(url, init);
            // The caller judges, unless something is under way: its own retry has another key.
            if (!isLost || failures >= retries || ![429, 503].includes(response.status))
                return response;
            await response.body?.cancel();
        } catch (error) {
            if (!repeats || failures >= retries || init.signal?.aborted) throw error;
            isLost = true;
        }
        await sleep(retryAfter(response) || backoff(failures, longestWaitMs), init.signal);
    }
}

/**
 * Reads on. A connection on which nothing comes for so long is lost, whatever the system says. 0 or
 * none: it never is.
 */
export async function readWithin(reader, ms) {
    if (!ms) return reader.read();
    let timer;
    const quiet = new Promise((_, reject) => {
        const late = () => reject(Object.assign(new Error("it fell silent"), { isQuiet: true }));
        timer = setTimeout(late, ms);
    });
    try {
        return await Promise.race([reader.read(), quiet]);
    } catch (error) {
        reader.cancel().catch(() => {});
        throw error;
    } finally {
        clearTimeout(timer);
    }
}
