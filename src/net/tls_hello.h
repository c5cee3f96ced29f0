// SPDX-License-Identifier: Apache-2.0
/* tls_hello.h -- how large a hello a peer may send, before memory is set aside for it.
 *
 * OpenSSL takes the length that a hello claims at its word, up to 128 KiB, when four bytes of it
 * have come; ten thousand connections could make a server hold more than a gigabyte that way. This
 * reads along with the bytes of a handshake and tells when to hang up. What else a client sends in
 * one is bounded by OpenSSL to a few KiB.
 *
 *   record     type (1), version (2), length (2), that many bytes
 *   handshake  type (1), length (3), that many bytes; the content of records of type 22, in which
 *              a message may begin and end anywhere */
#ifndef NET_TLS_HELLO_H
#define NET_TLS_HELLO_H

#include "base/str.h"

#include <stdint.h>

#define TLS_HELLO_MAX (16 * 1024)

/* Zero-initialised: before the first byte. */
struct tls_hello {
    uint8_t head[5];    /* of the record */
    uint8_t message[4]; /* the head of the message */
    uint8_t n_head, n_message;
    uint16_t record_left;  /* once n_head is complete */
    uint32_t message_left; /* once n_message is complete */
    bool begun;            /* the first record's head was right */
    bool ciphered;         /* what follows cannot be read along */
};

/* The next bytes that the peer sent. tls12: TLS 1.2 has been agreed on, where messages are
 * encrypted in records of the same type from a certain record on. NULL, or why to hang up. */
const char *tls_hello_take(struct tls_hello *h, struct str bytes, bool tls12);

#endif
