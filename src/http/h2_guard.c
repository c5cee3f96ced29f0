// SPDX-License-Identifier: Apache-2.0
#include "http/h2_guard.h"

#include <nghttp2/nghttp2.h>

#define MS_PER_TOKEN (1000 / H2_GUARD_PER_SECOND)

void h2_guard_init(struct h2_guard *g, uint64_t now_ms)
{
    *g = (struct h2_guard){.left = H2_GUARD_BURST, .at_ms = now_ms};
}

void h2_guard_gain(struct h2_guard *g, int32_t gain)
{
    g->left = g->left > H2_GUARD_BURST - gain ? H2_GUARD_BURST : g->left + gain;
}

static void refill(struct h2_guard *g, uint64_t now_ms)
{
    uint64_t tokens = (now_ms - g->at_ms) / MS_PER_TOKEN;
    g->at_ms += tokens * MS_PER_TOKEN;
    h2_guard_gain(g, tokens > H2_GUARD_BURST ? H2_GUARD_BURST : (int32_t)tokens);
}

bool h2_guard_pay(struct h2_guard *g, uint64_t now_ms, int32_t cost)
{
    refill(g, now_ms);
    if (g->left < cost) {
        g->left = 0;
        return false;
    }
    g->left -= cost;
    return true;
}

bool h2_scan_next(struct h2_scan *scan, struct str *bytes, struct h2_frame *frame)
{
    size_t skip = scan->skip < bytes->n ? scan->skip : bytes->n;
    scan->skip -= (uint32_t)skip;
    *bytes = str_skip(*bytes, skip);
    size_t n = H2_FRAME_HEAD - scan->have < bytes->n ? H2_FRAME_HEAD - scan->have : bytes->n;
    memcpy(scan->head + scan->have, bytes->p, n);
    scan->have += (uint8_t)n;
    *bytes = str_skip(*bytes, n);
    if (scan->have < H2_FRAME_HEAD)
        return false;
    const uint8_t *p = scan->head;
    frame->length = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
    frame->type = p[3];
    frame->flags = p[4];
    frame->stream = (int32_t)((uint32_t)(p[5] & 0x7f) << 24 | (uint32_t)p[6] << 16 |
                              (uint32_t)p[7] << 8 | p[8]);
    scan->skip = frame->length;
    scan->have = 0;
    return true;
}

int32_t h2_frame_cost(const struct h2_frame *frame, bool closed)
{
    switch (frame->type) {
    case NGHTTP2_DATA:
        if (closed)
            return H2_COST_STRAY(frame->length);
        return frame->length == 0 && !(frame->flags & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_HEADERS: return 0;
    case NGHTTP2_RST_STREAM: return H2_COST_RESET;
    case NGHTTP2_SETTINGS: return H2_COST_SETTINGS;
    default: return H2_COST_FRAME;
    }
}
