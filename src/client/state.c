// SPDX-License-Identifier: Apache-2.0
#include "client/state.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/num.h"
#include "base/utf8.h"
#include "client/codec.h"

#include <openssl/crypto.h>
#include <stdio.h>

/* Behind what the MAC covers. */
#define TAIL_SIZE (sizeof ",\"mac\":\"" - 1 + 2 * MAC_SIZE + sizeof "\"}\n" - 1)

static const char *const service_names[] = {
    [TM_SERVICE_TIDEMARK] = "tidemark.v1",
    [TM_SERVICE_AISERVER] = "aiserver.v1",
};
static const char *const chunk_members[] = {
    [TM_SERVICE_TIDEMARK] = "clientChunk",
    [TM_SERVICE_AISERVER] = "clientChunkBytes",
};

/* ---- in memory ---- */

void state_init(struct saved_state *s)
{
    *s = (struct saved_state){.event_id = "0"};
    list_init(&s->chunks);
    list_init(&s->results);
}

void state_deinit(struct tm_client *c, struct saved_state *s)
{
    list_each_safe (l, &s->chunks) {
        struct state_chunk *chunk = list_item(l, struct state_chunk, item.link);
        client_free_secret(c, chunk, sizeof *chunk + chunk->n);
    }
    state_clear_results(c, s);
    client_free(c, s->key);
    client_free(c, s->generation);
    OPENSSL_cleanse(s->secret, sizeof s->secret);
    state_init(s);
}

struct state_chunk *state_add_chunk(struct tm_client *c, struct saved_state *s, uint32_t seqno,
                                    struct str bytes)
{
    struct state_chunk *chunk = client_alloc(c, sizeof *chunk + bytes.n);
    if (chunk == NULL)
        return NULL;
    chunk->item.kind = TM_EVENT_ACK;
    chunk->seqno = seqno;
    chunk->n = bytes.n;
    if (bytes.n > 0)
        memcpy(chunk->bytes, bytes.p, bytes.n);
    list_push(&s->chunks, &chunk->item.link);
    s->n_chunks++;
    s->chunk_bytes += bytes.n;
    return chunk;
}

struct state_chunk *state_take_chunk(struct saved_state *s, uint32_t seqno)
{
    list_each (l, &s->chunks) {
        struct state_chunk *chunk = list_item(l, struct state_chunk, item.link);
        if (chunk->seqno == seqno) {
            list_remove(l);
            s->n_chunks--;
            s->chunk_bytes -= chunk->n;
            return chunk;
        }
    }
    return NULL;
}

static struct state_result *find_result(const struct saved_state *s, struct str id)
{
    list_each (l, &s->results) {
        struct state_result *r = list_item(l, struct state_result, link);
        if (str_eq(str_of(r->bytes, r->id_n), id))
            return r;
    }
    return NULL;
}

const struct state_result *state_get_result(const struct saved_state *s, struct str id)
{
    return find_result(s, id);
}

static void free_result(struct tm_client *c, struct saved_state *s, struct state_result *r)
{
    list_remove(&r->link);
    s->result_bytes -= r->id_n + r->n;
    client_free_secret(c, r, sizeof *r + r->id_n + 1 + r->n);
}

int state_put_result(struct tm_client *c, struct saved_state *s, struct str id, struct str result)
{
    struct state_result *before = find_result(s, id);
    size_t held = s->result_bytes - (before == NULL ? 0 : before->id_n + before->n);
    if (id.n > STATE_RESULTS_MAX || result.n > STATE_RESULTS_MAX ||
        held + id.n + result.n > STATE_RESULTS_MAX)
        return TM_E_TOO_LARGE;
    struct state_result *r = client_alloc(c, sizeof *r + id.n + 1 + result.n);
    if (r == NULL)
        return TM_E_NOMEM;
    if (before != NULL)
        free_result(c, s, before);
    r->id_n = id.n;
    r->n = result.n;
    memcpy(r->bytes, id.p, id.n);
    r->bytes[id.n] = '\0';
    if (result.n > 0)
        memcpy(r->bytes + id.n + 1, result.p, result.n);
    list_push(&s->results, &r->link);
    s->result_bytes += id.n + result.n;
    return 0;
}

void state_clear_results(struct tm_client *c, struct saved_state *s)
{
    while (!list_empty(&s->results))
        free_result(c, s, list_item(s->results.next, struct state_result, link));
}

/* ---- writing ---- */

/* More than the text takes, so that the secret in it is never moved by a growing buffer. */
static size_t format_size(const struct saved_state *s)
{
    size_t n = 2048 + 6 * (strlen(s->key) + strlen(s->generation)); /* \u0001 */
    list_each (l, &s->results) {
        const struct state_result *r = list_item(l, struct state_result, link);
        n += 64 + 6 * r->id_n + r->n / 3 * 4;
    }
    return n + s->n_chunks * 96 + s->chunk_bytes / 3 * 4;
}

/* A text that grows until something fails; then nothing more is put. */
struct writing {
    struct tm_client *c;
    struct bytes *out;
    int err;
};

typedef int put_fn(struct tm_client *c, struct bytes *out, struct str s);

static void put(struct writing *w, put_fn *as, struct str s)
{
    if (w->err == 0)
        w->err = as(w->c, w->out, s);
}

static void put_number(struct writing *w, const char *before, uint64_t v)
{
    if (w->err == 0)
        w->err = bytes_printf(w->c, w->out, "%s%llu", before, (unsigned long long)v);
}

static void state_put_member(struct writing *w, const char *name, const char *value)
{
    if (w->err == 0)
        w->err = bytes_printf(w->c, w->out, "%s\"%s\":", w->out->n == 0 ? "{" : ",", name);
    put(w, codec_put_json, str_of_cstr(value));
}

static void put_chunks(struct writing *w, const struct saved_state *s)
{
    put(w, bytes_put, STR(",\"playbackChunks\":["));
    list_each (l, &s->chunks) {
        const struct state_chunk *chunk = list_item(l, struct state_chunk, item.link);
        put_number(w, l == s->chunks.next ? "[" : ",[", chunk->seqno);
        put(w, bytes_put, STR(",\"{\\\""));
        put(w, bytes_put, str_of_cstr(chunk_members[s->service]));
        put(w, bytes_put, STR("\\\":\\\""));
        put(w, codec_put_base64, str_of(chunk->bytes, chunk->n));
        put_number(w, "\\\",\\\"seqno\\\":", chunk->seqno);
        put(w, bytes_put, STR("}\"]"));
    }
    put(w, bytes_put, STR("]"));
}

static void put_results(struct writing *w, const struct saved_state *s)
{
    put(w, bytes_put, STR(",\"toolCallResultCache\":{"));
    list_each (l, &s->results) {
        const struct state_result *r = list_item(l, struct state_result, link);
        if (l != s->results.next)
            put(w, bytes_put, STR(","));
        put(w, codec_put_json, str_of(r->bytes, r->id_n));
        put(w, bytes_put, STR(":\""));
        put(w, codec_put_base64, str_of(r->bytes + r->id_n + 1, r->n));
        put(w, bytes_put, STR("\""));
    }
    put(w, bytes_put, STR("}"));
}

static void state_put_body(struct writing *w, const struct saved_state *s)
{
    state_put_member(w, "idempotencyKey", s->key);
    state_put_member(w, "idempotencyEventId", s->event_id);
    put(w, bytes_put, STR(",\"idempotentEncryptionKey\":\""));
    put(w, codec_put_base64url, str_of((const char *)s->secret, SECRET_SIZE));
    put_number(w, "\",\"nextSeqno\":", s->next_seqno);
    put_chunks(w, s);
    state_put_member(w, "chatGenerationUUID", s->generation);
    put_number(w, ",\"createdAt\":", (uint64_t)s->created_ms);
    put_number(w, ",\"lastUpdatedAt\":", (uint64_t)s->updated_ms);
    put_results(w, s);
    state_put_member(w, "service", service_names[s->service]);
    put(w, bytes_put, STR(",\"eventMac\":\""));
    if (s->has_mac)
        put(w, codec_put_hex, str_of((const char *)s->mac, MAC_SIZE));
    put(w, bytes_put, STR("\",\"finished\":"));
    put(w, bytes_put, s->finished ? STR("true") : STR("false"));
}

int state_format(struct tm_client *c, const uint8_t key[MAC_SIZE], const struct saved_state *s,
                 struct bytes *out)
{
    struct writing w = {.c = c, .out = out};
    uint8_t mac[MAC_SIZE];
    if (bytes_room(c, out, format_size(s)) == NULL)
        return TM_E_NOMEM;
    state_put_body(&w, s);
    if (w.err == 0)
        w.err = smac_sign(key, bytes_str(out), mac);
    put(&w, bytes_put, STR(",\"mac\":\""));
    put(&w, codec_put_hex, str_of((const char *)mac, MAC_SIZE));
    put(&w, bytes_put, STR("\"}\n"));
    return w.err == 0 && out->n > STATE_FILE_MAX ? TM_E_TOO_LARGE : w.err;
}

/* ---- reading ---- */

struct reading {
    struct tm_client *c;
    struct saved_state *s;
    struct bytes text; /* the last string */
    unsigned dropped;
};

/* A string without half a surrogate pair, and without a NUL. */
static int state_read_text(struct reading *x, struct str value)
{
    size_t n;
    if (view_type(value) != VIEW_STRING)
        return TM_E_PROTOCOL;
    x->text.n = 0;
    if (bytes_room(x->c, &x->text, value.n) == NULL)
        return TM_E_NOMEM;
    if (!view_decode_to(view_inside(value), x->text.p, &n) || memchr(x->text.p, '\0', n) != NULL)
        return TM_E_PROTOCOL;
    x->text.n = n;
    x->text.p[n] = '\0';
    return 0;
}

static int state_read_number(struct str value, uint64_t max, uint64_t *out)
{
    return num_parse_canonical(value, max, out) == 0 ? 0 : TM_E_PROTOCOL;
}

static int read_owned(struct reading *x, struct str value, char **out)
{
    int err = state_read_text(x, value);
    if (err != 0)
        return err;
    *out = client_copy(x->c, bytes_str(&x->text));
    return *out == NULL ? TM_E_NOMEM : 0;
}

static int state_read_key(struct reading *x, struct str value)
{
    return read_owned(x, value, &x->s->key);
}

static int state_read_generation(struct reading *x, struct str value)
{
    return read_owned(x, value, &x->s->generation);
}

static int state_read_event_id(struct reading *x, struct str value)
{
    int err = state_read_text(x, value);
    if (err == 0 && (x->text.n == 0 || x->text.n > SWIRE_EVENT_ID_MAX))
        err = TM_E_PROTOCOL;
    if (err == 0)
        memcpy(x->s->event_id, x->text.p, x->text.n + 1);
    return err;
}

static int state_read_secret(struct reading *x, struct str value)
{
    int err = state_read_text(x, value);
    if (err == 0)
        err = codec_take_base64url(bytes_str(&x->text), x->s->secret, SECRET_SIZE);
    if (x->text.p != NULL)
        OPENSSL_cleanse(x->text.p, x->text.cap); /* or it is left behind when the text grows */
    return err;
}

static int state_read_next_seqno(struct reading *x, struct str value)
{
    return state_read_number(value, (uint64_t)UINT32_MAX + 1, &x->s->next_seqno);
}

static int read_time(struct str value, int64_t *out)
{
    uint64_t v;
    int err = state_read_number(value, INT64_MAX, &v);
    if (err == 0)
        *out = (int64_t)v;
    return err;
}

static int state_read_created(struct reading *x, struct str value)
{
    return read_time(value, &x->s->created_ms);
}

static int state_read_updated(struct reading *x, struct str value)
{
    return read_time(value, &x->s->updated_ms);
}

static int state_read_service(struct reading *x, struct str value)
{
    for (int i = 0; i < 2; i++)
        if (view_text_is(value, str_of_cstr(service_names[i]))) {
            x->s->service = (enum tm_service)i;
            return 0;
        }
    return TM_E_PROTOCOL;
}

static int state_read_event_mac(struct reading *x, struct str value)
{
    int err = state_read_text(x, value);
    x->s->has_mac = x->text.n > 0;
    return err != 0 || !x->s->has_mac ? err
                                      : codec_take_hex(bytes_str(&x->text), x->s->mac, MAC_SIZE);
}

static int state_read_finished(struct reading *x, struct str value)
{
    x->s->finished = str_eq(value, STR("true"));
    return view_type(value) == VIEW_BOOL ? 0 : TM_E_PROTOCOL;
}

/* The chunk out of its own JSON, decoded in place: text becomes its bytes. Which of the two members
 * it must have is not known yet, since the service comes later; either is taken. */
static int read_inner(struct bytes *text, uint64_t seqno)
{
    struct str rest = view_trim(bytes_str(text)), name, data, value, no;
    uint64_t said;
    size_t at, n;
    if (json_check(rest, &at) != 0 || view_type(rest) != VIEW_OBJECT)
        return TM_E_PROTOCOL;
    rest = view_inside(rest);
    if (!view_member(&rest, &name, &data) || view_type(data) != VIEW_STRING ||
        !(view_name_is(name, str_of_cstr(chunk_members[0])) ||
          view_name_is(name, str_of_cstr(chunk_members[1]))))
        return TM_E_PROTOCOL;
    if (!view_member(&rest, &name, &value) || !view_name_is(name, STR("seqno")) ||
        state_read_number(value, UINT32_MAX, &said) != 0 || said != seqno ||
        view_member(&rest, &name, &no))
        return TM_E_PROTOCOL;
    view_decode_to(view_inside(data), text->p, &n);
    return codec_take_base64(str_of(text->p, n), text->p, &text->n);
}

/* A chunk that cannot be read is left out, and the others are not. */
static int read_chunk(struct reading *x, struct str chunk)
{
    struct str rest, number, text, no;
    uint64_t seqno;
    if (view_type(chunk) != VIEW_ARRAY)
        return TM_E_PROTOCOL;
    rest = view_inside(chunk);
    if (!view_element(&rest, &number) || !view_element(&rest, &text) || view_element(&rest, &no))
        return TM_E_PROTOCOL;
    int err = state_read_number(number, UINT32_MAX, &seqno);
    if (err == 0)
        err = state_read_text(x, text);
    if (err != 0)
        return err;
    if (read_inner(&x->text, seqno) != 0) {
        x->dropped++;
        return 0;
    }
    bool added = state_add_chunk(x->c, x->s, (uint32_t)seqno, bytes_str(&x->text)) != NULL;
    return added ? 0 : TM_E_NOMEM;
}

static int state_read_chunks(struct reading *x, struct str list)
{
    struct str rest, chunk;
    int err = 0;
    if (view_type(list) != VIEW_ARRAY)
        return TM_E_PROTOCOL;
    rest = view_inside(list);
    while (err == 0 && view_element(&rest, &chunk))
        err = read_chunk(x, chunk);
    return err;
}

static int read_result(struct reading *x, struct bytes *id, struct str name, struct str value)
{
    size_t n;
    if (bytes_room(x->c, id, name.n) == NULL)
        return TM_E_NOMEM;
    if (!view_decode_to(name, id->p, &n))
        return TM_E_PROTOCOL;
    id->n = n;
    int err = state_read_text(x, value);
    if (err == 0)
        err = codec_take_base64(bytes_str(&x->text), x->text.p, &n);
    if (err == 0)
        err = state_put_result(x->c, x->s, bytes_str(id), str_of(x->text.p, n));
    id->n = 0;
    return err;
}

static int state_read_results(struct reading *x, struct str results)
{
    struct bytes id = {0};
    struct str rest, name, value;
    int err = 0;
    if (view_type(results) != VIEW_OBJECT)
        return TM_E_PROTOCOL;
    rest = view_inside(results);
    while (err == 0 && view_member(&rest, &name, &value))
        err = read_result(x, &id, name, value);
    bytes_free(x->c, &id);
    return err;
}

static const struct member {
    const char *name;
    int (*read)(struct reading *x, struct str value);
} members[] = {
    {"idempotencyKey", state_read_key},
    {"idempotencyEventId", state_read_event_id},
    {"idempotentEncryptionKey", state_read_secret},
    {"nextSeqno", state_read_next_seqno},
    {"playbackChunks", state_read_chunks},
    {"chatGenerationUUID", state_read_generation},
    {"createdAt", state_read_created},
    {"lastUpdatedAt", state_read_updated},
    {"toolCallResultCache", state_read_results},
    {"service", state_read_service},
    {"eventMac", state_read_event_mac},
    {"finished", state_read_finished},
};

/* All of them, in their order, then the MAC, which has been checked, and nothing else. */
static int read_members(struct reading *x, struct str text)
{
    struct str rest, name, value;
    size_t at;
    int err = 0;
    if (json_check(text, &at) != 0)
        return TM_E_PROTOCOL;
    rest = view_inside(view_trim(text));
    for (size_t i = 0; i < sizeof members / sizeof *members && err == 0; i++) {
        bool found =
            view_member(&rest, &name, &value) && view_name_is(name, str_of_cstr(members[i].name));
        err = found ? members[i].read(x, value) : TM_E_PROTOCOL;
    }
    if (err == 0 && (!view_member(&rest, &name, &value) || view_member(&rest, &name, &value)))
        err = TM_E_PROTOCOL;
    return err;
}

static int check_mac(const uint8_t key[MAC_SIZE], struct str text)
{
    uint8_t said[MAC_SIZE], right[MAC_SIZE];
    if (text.n <= TAIL_SIZE)
        return TM_E_TAMPERED;
    struct str tail = str_skip(text, text.n - TAIL_SIZE);
    struct str body = str_of(text.p, text.n - TAIL_SIZE);
    if (!str_starts(tail, STR(",\"mac\":\"")) || memcmp(tail.p + tail.n - 3, "\"}\n", 3) != 0)
        return TM_E_TAMPERED;
    struct str hex = str_of(tail.p + sizeof ",\"mac\":\"" - 1, 2 * MAC_SIZE);
    if (codec_take_hex(hex, said, MAC_SIZE) != 0)
        return TM_E_TAMPERED;
    int err = smac_sign(key, body, right);
    if (err == 0 && !smac_same(said, right))
        err = TM_E_TAMPERED;
    OPENSSL_cleanse(right, sizeof right);
    return err;
}

int state_parse(struct tm_client *c, const uint8_t key[MAC_SIZE], struct str text,
                struct saved_state *out, unsigned *dropped)
{
    state_init(out);
    int err = check_mac(key, text);
    if (err != 0)
        return err;
    struct reading x = {.c = c, .s = out};
    err = read_members(&x, text);
    client_free_secret(c, x.text.p, x.text.cap);
    if (err != 0) {
        state_deinit(c, out);
        return err == TM_E_NOMEM ? err : TM_E_TAMPERED;
    }
    *dropped = x.dropped;
    return 0;
}
