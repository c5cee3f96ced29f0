// SPDX-License-Identifier: Apache-2.0
/* h1_parse.h -- HTTP/1.x requests, strictly, in one pass and without copying.
 *
 * What is not exactly right is refused and the connection closed; there is no way back into step
 * with a peer that means something else by its bytes. The rules, in short: CRLF only; no folded
 * lines; methods, header names are tokens; no space before the colon; values hold no NUL, CR,
 * LF or other control bytes but HTAB; versions 1.0 and 1.1; one Host on 1.1 (at most one on 1.0);
 * one Content-Length of digits at most; Transfer-Encoding only `chunked`, once, on 1.1, and never
 * beside Content-Length. */
#ifndef HTTP_H1_PARSE_H
#define HTTP_H1_PARSE_H

#include "http/message.h"

#include <stdbool.h>
#include <stdint.h>

#define H1_HEAD_MAX    (16 * 1024) /* request line and headers: 431 */
#define H1_LINE_MAX    (8 * 1024)  /* one header line: 431 */
#define H1_TARGET_MAX  (8 * 1024)  /* 414 */
#define H1_HEADERS_MAX 64          /* 431 */

/* What an incomplete head remembers, so that bytes are looked at once. Zero-initialised to begin.
 */
struct h1_head_state {
    uint32_t scanned; /* bytes known not to hold the end of the head */
};

/* What a complete head says about its message. */
struct h1_framing {
    uint64_t content_length; /* with has_length */
    bool has_length, chunked;
    bool keep_alive;      /* version and Connection header */
    bool expect_continue; /* Expect: 100-continue; any other expectation is 417 */
    bool upgrade;         /* Connection: upgrade was asked for; may be ignored */
};

/* Parses the request head at the start of bytes[0..n). The slices in *req point into bytes;
 * headers go to req->headers (room for H1_HEADERS_MAX given by the caller).
 * > 0: the head's length. 0: incomplete, call again with more bytes at the same place or a copy.
 * < 0: minus the HTTP status to answer with before closing (400, 414, 417, 431, 501, 505);
 *      *why says what was wrong, for the answer's body. */
int h1_parse_head(struct h1_head_state *state, const char *bytes, size_t n, struct request *req,
                  struct h1_framing *framing, const char **why);

/* The chunked coding, decoded in place as bytes arrive. Zero-initialised to begin. */
struct h1_chunked {
    uint64_t left;     /* of the current chunk's data */
    uint32_t line;     /* bytes of the current line: size with extension, or trailer; capped */
    uint32_t trailers; /* bytes of trailers so far; capped at 8 KiB, then dropped */
    uint8_t state;
};

/* Decodes from in[0..n). *used: input bytes consumed; *data: a run of payload within in (maybe
 * empty). Returns 1 at the end of the message, 0 for "go on: with the unused input first, then
 * more", -400 when it is malformed (chunk sizes are 1 to 16 hex digits up to 2^53; extensions at
 * most 64 bytes, no control bytes; trailers must be well-formed header lines and are dropped). */
int h1_chunked_decode(struct h1_chunked *c, const char *in, size_t n, size_t *used,
                      struct str *data);

#endif
