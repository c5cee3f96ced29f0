// SPDX-License-Identifier: Apache-2.0
/* h1_parse.h -- HTTP/1.x requests, strictly, in one pass and without copying.
 *
 * What is not exactly right is refused and the connection closed; there is no way back into step
 * with a peer that means something else by its bytes. The rules, in short: CRLF only; no folded
 * lines; methods and header names are tokens; no space before the colon; values hold no NUL, CR,
 * LF or other control bytes but HTAB; versions 1.0 and 1.1; one Host on 1.1 (at most one on 1.0);
 * one Content-Length of digits at most; Transfer-Encoding only `chunked`, once, on 1.1, and never
 * beside Content-Length; no tabs around these two. */
#ifndef HTTP_H1_PARSE_H
#define HTTP_H1_PARSE_H

#include "http/message.h"

#include <stdbool.h>
#include <stdint.h>

#define H1_HEAD_MAX      (16 * 1024)         /* all of a request's head: 431 */
#define H1_LINE_MAX      (8 * 1024)          /* one header line without its CRLF: 431 */
#define H1_METHOD_MAX    32                  /* 400 */
#define H1_TARGET_MAX    (8 * 1024)          /* 414 */
#define H1_HEADERS_MAX   64                  /* 431 */
#define H1_LENGTH_MAX    (UINT64_C(1) << 53) /* Content-Length, and the size of one chunk: 400 */
#define H1_CHUNK_EXT_MAX 64                  /* all of one chunk, from the first `;`: 400 */
#define H1_TRAILERS_MAX  (8 * 1024)          /* all trailer lines: 400 */

/* What an incomplete head remembers, so that bytes are looked at once and lines judged once (and
 * all of it once more when it is complete). Zero-initialised to begin; zero again after a head. */
struct h1_head_state {
    uint16_t scanned; /* bytes known to be well-formed lines, the last one unfinished */
    uint16_t line;    /* where that last line begins */
    uint8_t headers;  /* how many header lines stand before it */
};

/* What a complete head says about its message. */
struct h1_framing {
    uint64_t content_length; /* with has_length */
    bool has_length, chunked;
    bool keep_alive;      /* version and Connection header; close wins */
    bool expect_continue; /* Expect: 100-continue on 1.1; any other expectation is 417 */
    bool upgrade;         /* Connection: upgrade was asked for on 1.1; may be ignored */
};

/* Parses the request head at the start of bytes[0..n); bytes behind the head are not looked at.
 * The slices in *req point into bytes; headers go to req->headers (room for H1_HEADERS_MAX given
 * by the caller). *req and *framing mean something only when the result is > 0.
 * > 0: the head's length. 0: incomplete, call again with more bytes at the same place or a copy.
 * < 0: minus the HTTP status to answer with before closing (400, 414, 417, 431, 501, 505);
 *      *why says what was wrong, for the answer's body. Do not call again.
 * The result is the same however the bytes were cut up, and comes as soon as the line that
 * decides it is there.
 *
 * The target is a path with a query, or an http or https URL (whose host then stands in for Host,
 * which must be there all the same), or `*` with OPTIONS. CONNECT is refused. */
int h1_parse_head(struct h1_head_state *state, const char *bytes, size_t n, struct request *req,
                  struct h1_framing *framing, const char **why);

/* For HTTP/2, which has the same words in other places. A host is host[:port]: a name or address,
 * or one in brackets. A target is made of visible characters but `#`. */
enum method h1_method(struct str text);
bool h1_host_ok(struct str s);
bool h1_target_ok(struct str s);

/* The chunked coding, decoded in place as bytes arrive. Zero-initialised to begin. */
struct h1_chunked {
    uint64_t left;     /* of the current chunk's data; in a trailer, see h1_parse.c */
    uint32_t line;     /* bytes of the current size, extension or trailer name */
    uint32_t trailers; /* bytes of trailers so far */
    uint8_t state;
};

/* Decodes from in[0..n). *used: input bytes consumed; *data: a run of payload within in (maybe
 * empty). Returns 1 at the end of the message, 0 for "go on: with the unused input first, then
 * more", -400 when it is malformed: chunk sizes are 1 to 16 hex digits up to H1_LENGTH_MAX;
 * extensions are `;name`, `;name=token` or `;name="text"`; trailers are well-formed header lines
 * other than Content-Length, Transfer-Encoding and Host, and are dropped. With 1 and -400, *data is
 * empty, and so are all later calls, with the same result and *used == 0. */
int h1_chunked_decode(struct h1_chunked *c, const char *in, size_t n, size_t *used,
                      struct str *data);

#endif
