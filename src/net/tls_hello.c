// SPDX-License-Identifier: Apache-2.0
#include "net/tls_hello.h"

enum { RECORD_CHANGE_CIPHER = 20, RECORD_HANDSHAKE = 22, MESSAGE_CLIENT_HELLO = 1 };

static size_t tls_hello_fill(uint8_t *head, uint8_t *n, size_t size, struct str *bytes)
{
    while (*n < size && bytes->n > 0) {
        head[(*n)++] = (uint8_t)bytes->p[0];
        *bytes = str_skip(*bytes, 1);
    }
    return size - *n;
}

static const char *begin_record(struct tls_hello *h, bool tls12)
{
    uint8_t type = h->head[0];
    if (!h->begun && (type != RECORD_HANDSHAKE || h->head[1] != 3))
        return "it does not begin with a TLS hello";
    h->begun = true;
    h->ciphered = type == RECORD_CHANGE_CIPHER && tls12;
    h->record_left = (uint16_t)(h->head[3] << 8 | h->head[4]);
    return NULL;
}

static const char *begin_message(struct tls_hello *h)
{
    h->message_left = (uint32_t)(h->message[1] << 16 | h->message[2] << 8 | h->message[3]);
    if (h->message[0] == MESSAGE_CLIENT_HELLO && h->message_left > TLS_HELLO_MAX)
        return "its hello is too large";
    return NULL;
}

/* content: of a record of handshake messages. */
static const char *take_messages(struct tls_hello *h, struct str content)
{
    while (content.n > 0) {
        if (h->n_message < sizeof h->message) {
            if (tls_hello_fill(h->message, &h->n_message, sizeof h->message, &content) > 0)
                return NULL;
            const char *why = begin_message(h);
            if (why != NULL)
                return why;
        }
        size_t n = content.n < h->message_left ? content.n : h->message_left;
        content = str_skip(content, n);
        h->message_left -= (uint32_t)n;
        if (h->message_left == 0)
            h->n_message = 0;
    }
    return NULL;
}

const char *tls_hello_take(struct tls_hello *h, struct str bytes, bool tls12)
{
    while (bytes.n > 0 && !h->ciphered) {
        if (h->n_head < sizeof h->head) {
            if (tls_hello_fill(h->head, &h->n_head, sizeof h->head, &bytes) > 0)
                return NULL;
            const char *why = begin_record(h, tls12);
            if (why != NULL)
                return why;
        }
        size_t n = bytes.n < h->record_left ? bytes.n : h->record_left;
        if (h->head[0] == RECORD_HANDSHAKE) {
            const char *why = take_messages(h, str_of(bytes.p, n));
            if (why != NULL)
                return why;
        }
        bytes = str_skip(bytes, n);
        h->record_left -= (uint16_t)n;
        if (h->record_left == 0)
            h->n_head = 0;
    }
    return NULL;
}
