// SPDX-License-Identifier: Apache-2.0
#include "client/client_session_wire.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/utf8.h"
#include "client/codec.h"

#define FIELD_MAX    ((1u << 29) - 1)
#define MESSAGE_MAX  ((size_t)1 << 31) /* protobuf's own limit */
#define VARINT_MAX   10
#define FLAG_END     0x02

#define DETAILS_TYPE "aiserver.v1.ErrorDetails"

enum field_type { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* ---- writing ----
 *
 * What a caller sends is wiped, as its own copy is. */

static size_t varint(char out[VARINT_MAX], uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (char)(v | 0x80);
    out[n++] = (char)v;
    return n;
}

static int put_varint(struct tm_client *c, struct bytes *out, uint64_t v)
{
    char text[VARINT_MAX];
    return bytes_put_secret(c, out, str_of(text, varint(text, v)));
}

static int put_tag(struct tm_client *c, struct bytes *out, unsigned field, enum field_type type)
{
    return put_varint(c, out, (uint64_t)field << 3 | type);
}

static int client_session_wire_put_number(struct tm_client *c, struct bytes *out, unsigned field,
                                          uint64_t v)
{
    int err = put_tag(c, out, field, VARINT);
    return err != 0 ? err : put_varint(c, out, v);
}

/* The tag and length of a field of n bytes, which the caller puts behind it. */
static int put_length(struct tm_client *c, struct bytes *out, unsigned field, size_t n)
{
    int err = put_tag(c, out, field, LENGTH);
    return err != 0 ? err : put_varint(c, out, n);
}

static int put_bytes(struct tm_client *c, struct bytes *out, unsigned field, struct str s)
{
    int err = put_length(c, out, field, s.n);
    return err != 0 ? err : bytes_put_secret(c, out, s);
}

/* All or nothing. */
static int put_whole(struct bytes *out, size_t before, int err)
{
    if (err != 0)
        out->n = before;
    return err;
}

int swire_put_chunk(struct tm_client *c, struct bytes *out, struct str chunk, uint32_t seqno)
{
    size_t before = out->n;
    int err = put_bytes(c, out, 1, chunk);
    if (err == 0)
        err = client_session_wire_put_number(c, out, 5, seqno);
    return put_whole(out, before, err);
}

int swire_put_abort(struct tm_client *c, struct bytes *out)
{
    return bytes_put_secret(c, out, str_of("\x12\x00", 2));
}

int swire_put_close(struct tm_client *c, struct bytes *out)
{
    return bytes_put_secret(c, out, str_of("\x1a\x00", 2));
}

int swire_put_request_id(struct tm_client *c, struct bytes *out, struct str id)
{
    size_t before = out->n;
    return put_whole(out, before, put_bytes(c, out, 1, id));
}

static int client_session_wire_put_hex(struct tm_client *c, struct bytes *out, struct str message)
{
    int err = put_length(c, out, 1, 2 * message.n);
    return err != 0 ? err : codec_put_hex(c, out, message);
}

static int put_nested_id(struct tm_client *c, struct bytes *out, struct str id)
{
    char length[VARINT_MAX];
    int err = put_length(c, out, 2, 1 + varint(length, id.n) + id.n);
    return err != 0 ? err : put_bytes(c, out, 1, id);
}

int swire_put_append(struct tm_client *c, struct bytes *out, struct str message, bool hex,
                     struct str request_id, uint64_t append_seqno)
{
    size_t before = out->n;
    int err = hex ? client_session_wire_put_hex(c, out, message) : 0;
    if (err == 0)
        err = put_nested_id(c, out, request_id);
    if (err == 0 && append_seqno > 0)
        err = client_session_wire_put_number(c, out, 3, append_seqno);
    if (err == 0 && !hex)
        err = put_bytes(c, out, 4, message);
    return put_whole(out, before, err);
}

int swire_open_envelope(struct tm_client *c, struct bytes *out, size_t *at)
{
    *at = out->n;
    return bytes_put_secret(c, out, str_of("\0\0\0\0\0", SWIRE_ENVELOPE));
}

void swire_close_envelope(struct bytes *out, size_t at)
{
    size_t n = out->n - at - SWIRE_ENVELOPE;
    for (int i = 0; i < 4; i++)
        out->p[at + 1 + (size_t)i] = (char)(n >> (24 - 8 * i));
}

/* ---- reading ---- */

struct field {
    unsigned number;
    enum field_type type;
    uint64_t value;   /* of a number */
    struct str bytes; /* of a LENGTH */
};

static int read_varint(struct str *rest, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < VARINT_MAX && i < rest->n; i++) {
        uint8_t b = (uint8_t)rest->p[i];
        if (i == VARINT_MAX - 1 && b > 1)
            return TM_E_PROTOCOL;
        v |= (uint64_t)(b & 0x7f) << (7 * i);
        if (b < 0x80) {
            *out = v;
            *rest = str_skip(*rest, i + 1);
            return 0;
        }
    }
    return TM_E_PROTOCOL;
}

static int read_fixed(struct str *rest, size_t n)
{
    if (rest->n < n)
        return TM_E_PROTOCOL;
    *rest = str_skip(*rest, n);
    return 0;
}

static int read_length(struct str *rest, struct str *out)
{
    uint64_t n;
    if (read_varint(rest, &n) != 0 || n > rest->n)
        return TM_E_PROTOCOL;
    *out = str_of(rest->p, (size_t)n);
    *rest = str_skip(*rest, (size_t)n);
    return 0;
}

/* Groups, which nobody sends any more, are refused. */
static int read_field(struct str *rest, struct field *f)
{
    uint64_t tag;
    if (read_varint(rest, &tag) != 0 || tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
        return TM_E_PROTOCOL;
    *f = (struct field){.number = (unsigned)(tag >> 3), .type = (enum field_type)(tag & 7)};
    switch (f->type) {
    case VARINT: return read_varint(rest, &f->value);
    case FIXED64: return read_fixed(rest, 8);
    case LENGTH: return read_length(rest, &f->bytes);
    case FIXED32: return read_fixed(rest, 4);
    }
    return TM_E_PROTOCOL;
}

/* A field that we know, of a type that it does not have, cannot be read. */
static int expect(const struct field *f, enum field_type type)
{
    return f->type == type ? 0 : TM_E_PROTOCOL;
}

static int client_session_wire_take_text(const struct field *f, struct str *out)
{
    if (f->type != LENGTH || !utf8_valid(f->bytes))
        return TM_E_PROTOCOL;
    *out = f->bytes;
    return 0;
}

static int read_welcome(struct str bytes, struct swire_response *out)
{
    struct field f;
    int err = 0;
    while (bytes.n > 0 && err == 0) {
        err = read_field(&bytes, &f);
        if (err == 0 && f.number == 1)
            err = client_session_wire_take_text(&f, &out->message);
        if (err == 0 && f.number == 2) {
            err = expect(&f, VARINT);
            out->degraded = f.value != 0;
        }
    }
    return err;
}

static int take_response(const struct field *f, struct swire_response *r)
{
    switch (f->number) {
    case 1:
        *r = (struct swire_response){.kind = SWIRE_CHUNK, .chunk = f->bytes};
        return expect(f, LENGTH);
    case 3:
        *r = (struct swire_response){.kind = SWIRE_WELCOME};
        return f->type == LENGTH ? read_welcome(f->bytes, r) : TM_E_PROTOCOL;
    case 4: /* a uint32 keeps the low bits of what it is given */
        *r = (struct swire_response){.kind = SWIRE_ACK, .seqno = (uint32_t)f->value};
        return expect(f, VARINT);
    default: return 0;
    }
}

int swire_read_response(struct str bytes, struct swire_response *out)
{
    struct swire_response r = {.kind = SWIRE_NOTHING};
    struct field f;
    int err = 0;
    while (bytes.n > 0 && err == 0) {
        err = read_field(&bytes, &f);
        if (err == 0)
            err = take_response(&f, &r);
    }
    if (err == 0)
        *out = r;
    return err;
}

/* ---- server chunks ---- */

static int take_event_id(const struct field *f, struct swire_chunk *out)
{
    if (f->type != LENGTH || f->bytes.n > SWIRE_EVENT_ID_MAX)
        return TM_E_PROTOCOL;
    for (size_t i = 0; i < f->bytes.n; i++)
        if (f->bytes.p[i] <= 0x20 || f->bytes.p[i] >= 0x7f)
            return TM_E_PROTOCOL;
    out->event_id = f->bytes;
    return 0;
}

/* whole: the chunk; rest: what is behind the field. */
static int take_mac(const struct field *f, struct str whole, size_t start, struct str rest,
                    struct swire_chunk *out)
{
    if (f->type != LENGTH || f->bytes.n != MAC_SIZE || rest.n > 0)
        return TM_E_PROTOCOL;
    memcpy(out->mac, f->bytes.p, MAC_SIZE);
    out->has_mac = true;
    out->covered = str_of(whole.p, start);
    return 0;
}

static int take_tidemark(const struct field *f, struct swire_chunk *out)
{
    if (f->number != 1)
        return 0;
    out->payload = f->bytes;
    return expect(f, LENGTH);
}

/* The text in field `number` of a message. */
static int client_session_wire_read_text(struct str bytes, unsigned number, struct str *out)
{
    struct field f;
    int err = 0;
    *out = STR_NONE;
    while (bytes.n > 0 && err == 0) {
        err = read_field(&bytes, &f);
        if (err == 0 && f.number == number)
            err = client_session_wire_take_text(&f, out);
    }
    return err;
}

/* StreamUnifiedChatResponse: 1 text, 25 thinking { 1 text }. */
static int read_chat_response(struct str bytes, struct swire_chunk *out)
{
    struct field f;
    int err = client_session_wire_read_text(bytes, 1, &out->text);
    bool thinks = false;
    while (bytes.n > 0 && err == 0) {
        err = read_field(&bytes, &f);
        if (err == 0 && f.number == 25) {
            err = expect(&f, LENGTH);
            thinks = true;
            if (err == 0)
                err = client_session_wire_read_text(f.bytes, 1, &out->thinking);
        }
    }
    out->moves = out->text.n > 0 || thinks;
    return err;
}

/* Fields 1 to 5 are one of: 1 client_side_tool_v2_call { 3 tool_call_id },
 * 2 stream_unified_chat_response, and others that only their presence tells of. */
static int take_aiserver(const struct field *f, struct swire_chunk *out)
{
    if (f->number > 5)
        return 0;
    if (f->type != LENGTH)
        return TM_E_PROTOCOL;
    out->text = out->thinking = out->tool_call_id = STR_NONE;
    out->moves = false;
    if (f->number == 1)
        return client_session_wire_read_text(f->bytes, 3, &out->tool_call_id);
    return f->number == 2 ? read_chat_response(f->bytes, out) : 0;
}

int swire_read_chunk(enum tm_service service, struct str bytes, struct swire_chunk *out)
{
    bool aiserver = service == TM_SERVICE_AISERVER;
    unsigned mac_field = aiserver ? 2048 : 8;
    struct swire_chunk w = {.payload = aiserver ? bytes : STR_NONE, .moves = !aiserver};
    struct str rest = bytes;
    struct field f;
    int err = 0;
    while (rest.n > 0 && err == 0) {
        size_t start = bytes.n - rest.n;
        err = read_field(&rest, &f);
        if (err != 0)
            return err;
        if (f.number == 7)
            err = take_event_id(&f, &w);
        else if (f.number == mac_field)
            err = take_mac(&f, bytes, start, rest, &w);
        else
            err = aiserver ? take_aiserver(&f, &w) : take_tidemark(&f, &w);
    }
    if (err == 0)
        *out = w;
    return err;
}

/* ---- envelopes ---- */

void swire_frames_free(struct tm_client *c, struct swire_frames *f)
{
    bytes_free(c, &f->in);
    *f = (struct swire_frames){.max = f->max};
}

int swire_frames_put(struct tm_client *c, struct swire_frames *f, struct str bytes)
{
    if (f->at > 0)
        bytes_cut(&f->in, f->at);
    f->at = 0;
    return bytes_put(c, &f->in, bytes);
}

int swire_frames_next(struct swire_frames *f, struct str *payload, bool *end)
{
    struct str rest = str_skip(bytes_str(&f->in), f->at);
    if (rest.n < SWIRE_ENVELOPE)
        return 0;
    const unsigned char *p = (const unsigned char *)rest.p;
    size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (p[0] != 0 && p[0] != FLAG_END)
        return TM_E_PROTOCOL;
    if (n > f->max || n > MESSAGE_MAX)
        return TM_E_TOO_LARGE;
    if (rest.n - SWIRE_ENVELOPE < n)
        return 0;
    *payload = str_of(rest.p + SWIRE_ENVELOPE, n);
    *end = p[0] == FLAG_END;
    f->at += SWIRE_ENVELOPE + n;
    return 1;
}

/* ---- how a call ended ---- */

/* A string: as much of it as fits, up to the end of a character. */
static int copy_text(struct str value, char *to, size_t size)
{
    size_t n = 0;
    bool full = false;
    if (view_type(value) != VIEW_STRING)
        return TM_E_PROTOCOL;
    for (struct str inside = view_inside(value); inside.n > 0;) {
        char c[4] = {inside.p[0]};
        size_t more = 1;
        if (c[0] == '\\')
            more = view_unescape(&inside, c);
        else
            inside = str_skip(inside, 1);
        if (view_is_half(c))
            return TM_E_PROTOCOL;
        full = full || more >= size - n;
        if (full)
            continue; /* what it does not take must be good, too */
        memcpy(to + n, c, more);
        n += more;
    }
    n -= utf8_incomplete_tail(str_of(to, n));
    to[n] = '\0';
    return 0;
}

static int read_detail(struct str detail, struct swire_end *out)
{
    struct str rest, name, value;
    if (view_type(detail) != VIEW_OBJECT)
        return TM_E_PROTOCOL;
    rest = view_inside(detail);
    while (view_member(&rest, &name, &value)) {
        if (!view_name_is(name, STR("type")))
            continue;
        if (view_type(value) != VIEW_STRING)
            return TM_E_PROTOCOL;
        out->final = out->final || view_text_is(value, STR(DETAILS_TYPE));
    }
    return 0;
}

static int read_details(struct str details, struct swire_end *out)
{
    struct str rest, value;
    int err = 0;
    if (view_type(details) != VIEW_ARRAY)
        return TM_E_PROTOCOL;
    rest = view_inside(details);
    while (err == 0 && view_element(&rest, &value))
        err = read_detail(value, out);
    return err;
}

static int read_error(struct str error, struct swire_end *out)
{
    struct str rest, name, value;
    int err = 0;
    if (view_type(error) != VIEW_OBJECT)
        return TM_E_PROTOCOL;
    rest = view_inside(error);
    out->failed = true;
    while (err == 0 && view_member(&rest, &name, &value)) {
        if (view_name_is(name, STR("code")))
            err = copy_text(value, out->code, sizeof out->code);
        else if (view_name_is(name, STR("message")))
            err = copy_text(value, out->message, sizeof out->message);
        else if (view_name_is(name, STR("details")))
            err = read_details(value, out);
    }
    return err;
}

int swire_read_end(struct str json, struct swire_end *out)
{
    struct swire_end end = {0};
    struct str rest, name, value;
    size_t at;
    int err = json_check(json, &at) != 0 ? TM_E_PROTOCOL : 0;
    json = view_trim(json);
    if (err != 0 || view_type(json) != VIEW_OBJECT)
        return TM_E_PROTOCOL;
    rest = view_inside(json);
    while (err == 0 && view_member(&rest, &name, &value))
        if (view_name_is(name, STR("error")))
            err = read_error(value, &end);
    if (err == 0)
        *out = end;
    return err;
}

int swire_read_error(struct str json, struct swire_end *out)
{
    struct swire_end end = {0};
    size_t at;
    int err = json_check(json, &at) != 0 ? TM_E_PROTOCOL : read_error(view_trim(json), &end);
    if (err == 0)
        *out = end;
    return err;
}

int swire_error_code(const char *code)
{
    static const struct {
        const char *code;
        int err;
    } rows[] = {
        {"canceled", TM_E_CANCELLED},        {"invalid_argument", TM_E_REFUSED},
        {"deadline_exceeded", TM_E_TIMEOUT}, {"not_found", TM_E_NOT_FOUND},
        {"permission_denied", TM_E_DENIED},  {"unauthenticated", TM_E_DENIED},
        {"resource_exhausted", TM_E_BUSY},   {"failed_precondition", TM_E_EXPIRED},
        {"aborted", TM_E_REPLACED},          {"out_of_range", TM_E_GAP},
        {"internal", TM_E_FAILED},           {"unavailable", TM_E_BUSY},
        {"data_loss", TM_E_FAILED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].code, code) == 0)
            return rows[i].err;
    return TM_E_REFUSED;
}
