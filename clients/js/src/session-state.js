// SPDX-License-Identifier: Apache-2.0
// Where the state of sessions is kept: IndexedDB in a browser, files elsewhere.
//
// A store has load(key), save(state), remove(key), list() and hold(key). save() is done when the
// state survives the end of the program. hold() gives the session to one page alone: it gives back
// what lets go of it, and rejects if another page has it.
import { builtin } from "./platform.js";

const NOWHERE = {
    load: async () => undefined,
    save: async () => {},
    remove: async () => {},
    list: async () => [],
};

/** where: a name (of a database, or of a directory), a store, or nothing. */
export function openState(where) {
    if (typeof where !== "string") return where ?? NOWHERE;
    return globalThis.indexedDB ? new BrowserState(where) : new FileState(where);
}

/** The outcome of one of IndexedDB's requests or transactions. */
const outcome = (request, done) =>
    new Promise((resolve, reject) => {
        request[done] = () => resolve(request.result);
        request.onerror = request.onabort = () => reject(request.error);
    });

class BrowserState {
    #name;
    #database;

    constructor(name) {
        this.#name = name;
    }

    #open() {
        const request = indexedDB.open(this.#name, 1);
        request.onupgradeneeded = () =>
            request.result.createObjectStore("sessions", { keyPath: "idempotencyKey" });
        return outcome(request, "onsuccess");
    }

    async #do(mode, act) {
        this.#database ??= this.#open();
        const options = { durability: "strict" };
        const transaction = (await this.#database).transaction("sessions", mode, options);
        const request = act(transaction.objectStore("sessions"));
        await outcome(transaction, "oncomplete");
        return request.result;
    }

    load(key) {
        return this.#do("readonly", (sessions) => sessions.get(key));
    }

    save(state) {
        return this.#do("readwrite", (sessions) => sessions.put(state));
    }

    remove(key) {
        return this.#do("readwrite", (sessions) => sessions.delete(key));
    }

    list() {
        return this.#do("readonly", (sessions) => sessions.getAll());
    }

    hold(key) {
        return new Promise((resolve, reject) => {
            const held = (lock) =>
                lock
                    ? new Promise((release) => resolve(release))
                    : reject(new Error("another page has this session"));
            const { locks } = navigator;
            if (!locks) return resolve();
            locks.request(`${this.#name} ${key}`, { ifAvailable: true }, held).catch(reject);
        });
    }
}

const FILE = /^[0-9a-f]{64}\.session\.json$/;

/** A file for each session, named by the hash of its key and readable for its owner alone. */
class FileState {
    #folder;

    constructor(folder) {
        this.#folder = folder;
    }

    async #path(key) {
        const { createHash } = await builtin("crypto");
        return `${this.#folder}/${createHash("sha256").update(key).digest("hex")}.session.json`;
    }

    async load(key) {
        return this.#read(await this.#path(key));
    }

    async #read(path) {
        const { readFile } = await builtin("fs/promises");
        try {
            return JSON.parse(await readFile(path, "utf8"));
        } catch (error) {
            if (error.code === "ENOENT") return undefined;
            throw error;
        }
    }

    /** As a whole, or not at all: a new file is written, synced and renamed. */
    async save(state) {
        const { mkdir, open, rename } = await builtin("fs/promises");
        const path = await this.#path(state.idempotencyKey);
        await mkdir(this.#folder, { recursive: true, mode: 0o700 });
        const file = await open(`${path}.tmp`, "w", 0o600);
        try {
            await file.writeFile(JSON.stringify(state));
            await file.sync();
        } finally {
            await file.close();
        }
        await rename(`${path}.tmp`, path);
        const folder = await open(this.#folder).catch(() => undefined); // Windows syncs no folders
        await folder?.sync().catch(() => {});
        await folder?.close();
    }

    async remove(key) {
        const { rm } = await builtin("fs/promises");
        await rm(await this.#path(key), { force: true });
    }

    async list() {
        const { readdir } = await builtin("fs/promises");
        const names = await readdir(this.#folder).catch(() => []);
        const files = names.filter((name) => FILE.test(name));
        const states = files.map((name) => this.#read(`${this.#folder}/${name}`));
        return (await Promise.all(states)).filter((state) => state !== undefined);
    }
}
