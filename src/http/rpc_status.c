// SPDX-License-Identifier: Apache-2.0
#include "http/rpc_status.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/json.h"
#include "http/rpc_frame.h"

struct str rpc_code_text(int code)
{
    return str_of_cstr(err_grpc_name(code));
}

static void put_unpadded(struct buf *out, struct str bytes)
{
    b64_put(out, bytes);
    while (out->n > 0 && out->p[out->n - 1] == '=')
        out->n--;
}

/* ---- Connect ---- */

static void put_json_details(struct buf *out, const struct rpc_status *status)
{
    for (size_t i = 0; i < status->n_details; i++) {
        const struct rpc_detail *d = &status->details[i];
        buf_put(out, i == 0 ? STR(",\"details\":[{\"type\":") : STR(",{\"type\":"));
        json_put_string(out, d->type);
        buf_put(out, STR(",\"value\":\""));
        put_unpadded(out, d->value);
        buf_put(out, STR("\"}"));
    }
    if (status->n_details > 0)
        buf_putc(out, ']');
}

void rpc_put_error(struct buf *out, const struct rpc_status *status)
{
    buf_put(out, STR("{\"code\":"));
    json_put_string(out, rpc_code_text(status->code));
    if (status->message.n > 0) {
        buf_put(out, STR(",\"message\":"));
        json_put_string(out, status->message);
    }
    put_json_details(out, status);
    buf_putc(out, '}');
}

void rpc_put_end_stream(struct buf *out, const struct rpc_status *status)
{
    size_t start = out->n;
    buf_reserve(out, RPC_ENVELOPE);
    out->n += RPC_ENVELOPE;
    buf_putc(out, '{');
    if (status->code != 0) {
        buf_put(out, STR("\"error\":"));
        rpc_put_error(out, status);
    }
    buf_putc(out, '}');
    rpc_envelope(out->p + start, RPC_FLAG_END, out->n - start - RPC_ENVELOPE);
}

/* ---- gRPC ---- */

void rpc_put_percent(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x20 || c > 0x7e || c == '%')
            buf_printf(out, "%%%02X", c);
        else
            buf_putc(out, (char)c);
    }
}

static void put_varint(struct buf *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_putc(out, (char)(v | 0x80));
    buf_putc(out, (char)v);
}

/* A field of bytes; those with a number up to 15 have tags of one byte. */
static void put_field(struct buf *out, unsigned number, struct str bytes)
{
    buf_putc(out, (char)(number << 3 | 2));
    put_varint(out, bytes.n);
    buf_put(out, bytes);
}

/* google.protobuf.Any: type_url = 1, value = 2. */
static void put_any(struct buf *out, const struct rpc_detail *d)
{
    struct buf url = {0};
    buf_put(&url, STR("type.googleapis.com/"));
    buf_put(&url, d->type);
    put_field(out, 1, buf_str(&url));
    put_field(out, 2, d->value);
    buf_deinit(&url);
}

/* google.rpc.Status: code = 1, message = 2, details = 3. */
void rpc_put_details(struct buf *out, const struct rpc_status *status)
{
    struct buf message = {0}, any = {0};
    buf_putc(&message, 1 << 3);
    put_varint(&message, (uint64_t)status->code);
    put_field(&message, 2, status->message);
    for (size_t i = 0; i < status->n_details; i++) {
        any.n = 0;
        put_any(&any, &status->details[i]);
        put_field(&message, 3, buf_str(&any));
    }
    put_unpadded(out, buf_str(&message));
    buf_deinit(&message);
    buf_deinit(&any);
}
