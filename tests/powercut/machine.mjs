// SPDX-License-Identifier: Apache-2.0
// A machine as far as a store can see: a disk that forgets what was not flushed when its power is
// cut (disk.c), and ext4 on it. Lives in a mount namespace of its own, with which all of it goes.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { within } from "../e2e/lib/wait.mjs";

const run = promisify(execFile);

// Room for the journal's files, of which a start may find two and make two, and for what rests.
const IMAGE_BYTES = 768 * 1024 * 1024;
const POLICIES = ["drop", "prefix", "subset", "torn"];
const REPORT =
    /^(?<policy>\w+): (?<pending>\d+) pending, (?<kept>\d+) kept, (?<torn>\d+) torn, (?<dropped>\d+)/;

export class Machine {
    #image;
    #before; // the image as it was when the power came on
    #device;
    #options;
    #policies;
    #disk = null;
    #ended;

    /** In this folder, which is empty; `mount` adds options, and `policies` are those of its cuts. */
    constructor(folder, { mount = [], policies = POLICIES } = {}) {
        this.#options = ["loop", ...mount].join(); // the loop device goes with the mount
        this.#policies = policies;
        this.#image = join(folder, "image");
        this.#before = join(folder, "before");
        this.#device = join(folder, "device");
        this.root = join(folder, "root"); // where its file system is
        this.report = null; // resolves when the power is cut: { policy, writes: { pending, ... } }
    }

    /** A new disk with an empty file system; the machine is off. */
    async format() {
        await mkdir(this.root, { recursive: true });
        await rm(this.#image, { force: true });
        await writeFile(this.#image, "");
        await truncate(this.#image, IMAGE_BYTES);
        await writeFile(this.#device, "");
        await run("mkfs.ext4", ["-q", "-F", "-m", "0", "-J", "size=16", this.#image]);
    }

    /** Mounting replays the file system's own journal, and must do. */
    async powerOn() {
        await run("cp", ["--sparse=always", this.#image, this.#before]);
        const stdio = ["pipe", "pipe", "inherit"];
        this.#disk = spawn(process.env.POWERCUT_DISK, [this.#image, this.#device], { stdio });
        this.#ended = once(this.#disk, "close");
        const lines = createInterface({ input: this.#disk.stdout });
        const [said] = await within(Promise.race([once(lines, "line"), this.#ended]), "the disk");
        assert.equal(said, "ready", "the disk cannot be started");
        this.report = once(lines, "line").then(([line]) => {
            const { policy, ...counts } = REPORT.exec(line).groups;
            const numbers = Object.entries(counts).map(([name, count]) => [name, Number(count)]);
            return { policy, writes: Object.fromEntries(numbers) };
        });
        await run("mount", ["-t", "ext4", "-o", this.#options, this.#device, this.root]);
    }

    /** Cuts the power at the nth write or flush of the disk from now on; 0: at once. */
    cutPower(random, after) {
        const policy = this.#policies[random.below(this.#policies.length)];
        this.#disk.stdin.write(`cut ${policy} ${random.below(2 ** 32)} ${after}\n`);
    }

    /** After a cut, or in peace; nobody may use the file system any more. */
    async powerOff() {
        await run("umount", [this.root]);
        await run("umount", [this.#device]);
        const [code] = await within(this.#ended, "the disk to end");
        assert.equal(code, 0, "the disk failed");
    }

    /** Copies the disk, as it was when the power came on last, to this file. */
    async keepEvidence(path) {
        await run("cp", ["--sparse=always", this.#before, path]);
    }
}
