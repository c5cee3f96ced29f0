// SPDX-License-Identifier: Apache-2.0
/* cbor.h -- the part of CBOR (RFC 8949) that cursors are written in, in its one spelling.
 *
 * Unsigned numbers, byte strings, texts and maps of a known size; lengths and numbers in their
 * shortest form (section 4.2.1, core deterministic encoding). The reader takes that and nothing
 * else: no indefinite lengths, no tags, no number with a zero byte to spare. So bytes that are read
 * without an error are the bytes that writing what was read would give, provided that whoever
 * reads a map insists on its keys and their order.
 *
 * Nothing is allocated, and nothing aborts: libtidemark has it, too. */
#ifndef TOKEN_CBOR_H
#define TOKEN_CBOR_H

#include "base/str.h"

#include <stdint.h>

#define CBOR_HEAD_MAX 9 /* a type and the largest number */

/* How many bytes a number takes, or what stands before so many bytes or members. */
size_t cbor_head_size(uint64_t v);

/* Writes. The caller has seen to it that there is room for all of it behind p + n. */
struct cbor_out {
    char *p;
    size_t n; /* written so far */
};

void cbor_put_uint(struct cbor_out *out, uint64_t v);
void cbor_put_bytes(struct cbor_out *out, struct str s);
void cbor_put_text(struct cbor_out *out, struct str s); /* UTF-8, as the caller knows */
void cbor_put_map(struct cbor_out *out, uint64_t n);    /* n keys and values follow */
void cbor_put_array(struct cbor_out *out, uint64_t n);  /* n items follow */

/* Reads. The first thing that is not as asked for sets err (ERR_SYNTAX); from then on all reads
 * give zero or empty. Strings are slices of the input, with p set even when they are empty. */
struct cbor_in {
    struct str rest;
    int err;
};

uint64_t cbor_take_uint(struct cbor_in *in);
struct str cbor_take_bytes(struct cbor_in *in);
struct str cbor_take_text(struct cbor_in *in); /* ERR_SYNTAX unless it is UTF-8 */
uint64_t cbor_take_map(struct cbor_in *in);    /* members, which may be more than there are */
uint64_t cbor_take_array(struct cbor_in *in);  /* items; the same */

/* 0 if all of it was read without an error. */
int cbor_end(const struct cbor_in *in);

#endif
