// SPDX-License-Identifier: Apache-2.0
/* h1_head.h -- response heads and chunks as HTTP/1.1 writes them. */
#ifndef HTTP_H1_HEAD_H
#define HTTP_H1_HEAD_H

#include "base/block.h"
#include "http/exchange.h"
#include "http/status.h"

struct h1_head {
    int status;
    struct str date;
    const struct exchange_header *headers;
    int64_t length; /* Content-Length; < 0: none is said */
    bool chunked, close;
    bool keep_alive; /* says so, as HTTP/1.0 needs to hear it */
    enum response_kind kind;
};

/* A new block with the whole head, empty line included. */
struct block *h1_head_block(const struct h1_head *head);

/* The line before a chunk of so many bytes (less than 2^32): its length. */
#define H1_CHUNK_SIZE_MAX 12
size_t h1_chunk_size(char out[H1_CHUNK_SIZE_MAX], size_t bytes);

/* The last chunk, with trailers. */
struct block *h1_last_chunk_block(const struct exchange_header *trailers);

#endif
