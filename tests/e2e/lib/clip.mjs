// SPDX-License-Identifier: Apache-2.0
// A small film, made by the browser that will show it: VP9 frames in a plain mp4 (ISO/IEC 14496-12,
// and the VP codec's binding to it). Every browser without licensed codecs plays that, too.

const SCALE = 1000; // ticks a second

const u8 = (...n) => Buffer.from(n);
const u16 = (...n) => Buffer.concat(n.map((x) => u8(x >> 8, x & 255)));
const u32 = (...n) => Buffer.concat(n.map((x) => u16(x >>> 16, x & 0xffff)));
const zeros = (n) => Buffer.alloc(n);

function box(name, ...parts) {
    const body = Buffer.concat(parts);
    return Buffer.concat([u32(8 + body.length), Buffer.from(name, "latin1"), body]);
}

/** A box that begins with a version and flags. */
const full = (name, flags, ...parts) => box(name, u32(flags), ...parts);

const MATRIX = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000);

function sampleTable({ width, height, frameMs, frames }, at) {
    const colours = full("vpcC", 1 << 24, u8(0, 10, 0x82, 1, 1, 1), u16(0)); // profile 0, 8 bits, 4:2:0
    const look = [u16(width, height), u32(0x480000, 0x480000, 0), u16(1), zeros(32), u16(24, 0xffff)];
    const entry = box("vp09", zeros(6), u16(1), zeros(16), ...look, colours);
    const keys = frames.flatMap((frame, i) => (frame.key ? [i + 1] : []));
    return box(
        "stbl",
        full("stsd", 0, u32(1), entry),
        full("stts", 0, u32(1, frames.length, frameMs)),
        full("stss", 0, u32(keys.length, ...keys)),
        full("stsc", 0, u32(1, 1, frames.length, 1)),
        full("stsz", 0, u32(0, frames.length, ...frames.map((frame) => frame.bytes.length))),
        full("stco", 0, u32(1, at)),
    );
}

function movie(film, at) {
    const { width, height, frameMs, frames } = film;
    const length = frames.length * frameMs;
    const source = box("dinf", full("dref", 0, u32(1), full("url ", 1)));
    const media = box("minf", full("vmhd", 1, zeros(8)), source, sampleTable(film, at));
    const handler = full("hdlr", 0, u32(0), Buffer.from("vide"), zeros(13));
    const size = [MATRIX, u32(width << 16, height << 16)];
    return box(
        "moov",
        full("mvhd", 0, u32(0, 0, SCALE, length, 0x10000), u16(0x100), zeros(10), MATRIX, zeros(24), u32(2)),
        box(
            "trak",
            full("tkhd", 3, u32(0, 0, 1, 0, length), zeros(16), ...size),
            box("mdia", full("mdhd", 0, u32(0, 0, SCALE, length), u16(0x55c4, 0)), handler, media),
        ),
    );
}

/** Draws and encodes; runs in the page. */
async function shoot({ width, height, frameMs, count, hue }) {
    const frames = [];
    const encoder = new VideoEncoder({
        output(chunk) {
            const bytes = new Uint8Array(chunk.byteLength);
            chunk.copyTo(bytes);
            frames.push({ key: chunk.type === "key", bytes: [...bytes] });
        },
        error(error) {
            throw error;
        },
    });
    encoder.configure({ codec: "vp09.00.10.08", width, height, bitrate: 100_000 });
    const canvas = new OffscreenCanvas(width, height);
    const pen = canvas.getContext("2d");
    for (let i = 0; i < count; i++) {
        pen.fillStyle = `hsl(${hue} 45% ${25 + (20 * i) / count}%)`;
        pen.fillRect(0, 0, width, height);
        pen.fillStyle = "#fff";
        pen.font = `${height / 4}px sans-serif`;
        pen.textAlign = "center";
        pen.fillText(String(i + 1), width / 2, height / 2);
        pen.fillRect(0, height * 0.7, (width * (i + 1)) / count, height / 24);
        const frame = new VideoFrame(canvas, { timestamp: i * frameMs * 1000 });
        encoder.encode(frame, { keyFrame: i % 4 === 0 });
        frame.close();
    }
    await encoder.flush();
    return frames;
}

/** The bytes of a film of `count` frames, one each `frameMs`, made in `page` (of a safe origin). */
export async function makeClip(page, options = {}) {
    const film = { width: 180, height: 320, frameMs: 500, count: 24, hue: 210, ...options };
    const frames = await page.evaluate(shoot, film);
    film.frames = frames.map(({ key, bytes }) => ({ key, bytes: Buffer.from(bytes) }));
    const type = box("ftyp", Buffer.from("isom"), u32(0x200), Buffer.from("isommp41"));
    const at = type.length + movie(film, 0).length + 8;
    const data = box("mdat", ...film.frames.map((frame) => frame.bytes));
    return Buffer.concat([type, movie(film, at), data]);
}
