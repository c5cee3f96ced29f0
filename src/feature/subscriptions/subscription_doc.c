// SPDX-License-Identifier: Apache-2.0
#include "feature/subscriptions/subscription_doc.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/num.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static const struct str type_texts[] = {
    [SUBSCRIPTION_WEBHOOK] = STR_INIT("webhook"),
    [SUBSCRIPTION_PULL] = STR_INIT("pull-wake"),
};
static const struct str phase_texts[] = {
    [SUBSCRIPTION_LINKING] = STR_INIT("linking"),
    [SUBSCRIPTION_ACTIVE] = STR_INIT("active"),
    [SUBSCRIPTION_DELETING] = STR_INIT("deleting"),
};
static const struct str state_texts[] = {
    [SUBSCRIPTION_IDLE] = STR_INIT("idle"),
    [SUBSCRIPTION_WAKING] = STR_INIT("waking"),
    [SUBSCRIPTION_HELD] = STR_INIT("held"),
};

/* ---- the head ---- */

static void subscription_doc_put_text(struct buf *out, const char *key, struct str value)
{
    if (value.p == NULL)
        return;
    buf_printf(out, ",\"%s\":", key);
    json_put_string(out, value);
}

static void subscription_doc_put_number(struct buf *out, const char *key, uint64_t value)
{
    buf_printf(out, ",\"%s\":%" PRIu64, key, value);
}

/* ["path", linked by name, "acked", "tail"] */
static void subscription_doc_put_stream(struct buf *out, const struct subscription_stream *s)
{
    char acked[OFFSET_TEXT], tail[OFFSET_TEXT];
    offset_format(s->acked, acked);
    offset_format(s->tail, tail);
    buf_putc(out, '[');
    json_put_string(out, s->path);
    buf_printf(out, ",%s,\"%.*s\",\"%.*s\"]", s->is_explicit ? "true" : "false", OFFSET_TEXT, acked,
               OFFSET_TEXT, tail);
}

size_t subscription_stream_cost(const struct subscription_stream *s)
{
    size_t n = s->path.n + sizeof "[\"\",false,\"\",\"\"]," + (size_t)2 * OFFSET_TEXT;
    for (size_t i = 0; i < s->path.n; i++)
        n += s->path.p[i] == '"' || s->path.p[i] == '\\';
    return n;
}

void subscription_head_put(struct buf *out, const struct subscription_head *h)
{
    const struct subscription_config *c = &h->config;
    /* birth is written as text: JSON numbers end at 2^63 here */
    buf_printf(out, "{\"v\":1,\"birth\":\"%016" PRIx64 "\"", h->birth);
    subscription_doc_put_text(out, "phase", phase_texts[h->phase]);
    subscription_doc_put_text(out, "type", type_texts[c->type]);
    subscription_doc_put_text(out, "pattern", c->pattern);
    subscription_doc_put_text(out, "webhook_url", c->webhook_url);
    subscription_doc_put_text(out, "wake_stream", c->wake_stream);
    subscription_doc_put_number(out, "lease_ttl_ms", c->lease_ttl_ms);
    subscription_doc_put_text(out, "description", c->description);
    subscription_doc_put_text(out, "public_url", c->public_url);
    if (c->root.n > 0)
        subscription_doc_put_text(out, "root", c->root);
    if (c->owner.n > 0)
        subscription_doc_put_text(out, "owner", c->owner);
    if (c->sealed)
        buf_put(out, STR(",\"sessions\":true"));
    subscription_doc_put_text(out, "hash", str_of(h->hash, sizeof h->hash));
    subscription_doc_put_number(out, "created_ms", (uint64_t)h->created_ms);
    subscription_doc_put_number(out, "edits", h->edits);
    subscription_doc_put_text(out, "state", state_texts[h->state]);
    subscription_doc_put_number(out, "generation", h->generation);
    subscription_doc_put_text(out, "wake_id", h->wake_id);
    subscription_doc_put_text(out, "holder", h->holder);
    subscription_doc_put_number(out, "until_ms", (uint64_t)h->until_ms);
    subscription_doc_put_number(out, "attempts", h->attempts);
    buf_put(out, STR(",\"streams\":["));
    for (size_t i = 0; i < h->n_streams; i++) {
        if (i > 0)
            buf_putc(out, ',');
        subscription_doc_put_stream(out, &h->streams[i]);
    }
    buf_put(out, STR("]}"));
}

static struct str subscription_doc_take_text(struct arena *a, const json_t *value)
{
    if (!json_is_string(value))
        return STR_NONE;
    return arena_dup(a, str_of(json_string_value(value), json_string_length(value)));
}

static struct str get_text(struct arena *a, const json_t *doc, const char *key)
{
    return subscription_doc_take_text(a, json_object_get(doc, key));
}

static uint64_t get_number(const json_t *doc, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(doc, key));
}

/* Which of the words the value is; -1: none. */
static int get_word(const json_t *doc, const char *key, const struct str *words, int n)
{
    const json_t *value = json_object_get(doc, key);
    struct str text = str_of(json_string_value(value), json_string_length(value));
    for (int i = 0; i < n; i++)
        if (json_is_string(value) && str_eq(text, words[i]))
            return i;
    return -1;
}

static int parse_stream(struct arena *a, const json_t *item, struct subscription_stream *out)
{
    *out = (struct subscription_stream){
        .path = subscription_doc_take_text(a, json_array_get(item, 0)),
        .is_explicit = json_is_true(json_array_get(item, 1)),
        .has_pending = true,
    };
    struct str acked = subscription_doc_take_text(a, json_array_get(item, 2));
    struct str tail = subscription_doc_take_text(a, json_array_get(item, 3));
    if (out->path.n == 0 || offset_parse(acked, &out->acked) || offset_parse(tail, &out->tail))
        return ERR_CORRUPT;
    return 0;
}

static int parse_streams(struct arena *a, const json_t *list, struct subscription_head *h)
{
    h->n_streams = json_array_size(list);
    h->streams = arena_alloc(a, h->n_streams * sizeof *h->streams);
    for (size_t i = 0; i < h->n_streams; i++)
        if (parse_stream(a, json_array_get(list, i), &h->streams[i]))
            return ERR_CORRUPT;
    return 0;
}

static int parse_fixed(struct arena *a, const json_t *doc, struct subscription_head *h)
{
    struct str birth = get_text(a, doc, "birth"), hash = get_text(a, doc, "hash");
    int type = get_word(doc, "type", type_texts, 2);
    int phase = get_word(doc, "phase", phase_texts, 3);
    int state = get_word(doc, "state", state_texts, 3);
    if (get_number(doc, "v") != 1 || type < 0 || phase < 0 || state < 0 || birth.n != 16 ||
        hash.n != SUBSCRIPTION_HASH_TEXT)
        return ERR_CORRUPT;
    char hex[17] = {0};
    memcpy(hex, birth.p, birth.n);
    h->birth = strtoull(hex, NULL, 16);
    memcpy(h->hash, hash.p, hash.n);
    h->config.type = (enum subscription_type)type;
    h->phase = (enum subscription_phase)phase;
    h->state = (enum subscription_state)state;
    return 0;
}

static int parse_head(struct arena *a, const json_t *doc, struct subscription_head *h)
{
    if (parse_fixed(a, doc, h))
        return ERR_CORRUPT;
    h->config.pattern = get_text(a, doc, "pattern");
    h->config.webhook_url = get_text(a, doc, "webhook_url");
    h->config.wake_stream = get_text(a, doc, "wake_stream");
    h->config.lease_ttl_ms = get_number(doc, "lease_ttl_ms");
    h->config.description = get_text(a, doc, "description");
    h->config.public_url = get_text(a, doc, "public_url");
    h->config.root = get_text(a, doc, "root");
    h->config.owner = get_text(a, doc, "owner");
    h->config.sealed = json_is_true(json_object_get(doc, "sessions"));
    h->created_ms = (int64_t)get_number(doc, "created_ms");
    h->edits = get_number(doc, "edits");
    h->generation = get_number(doc, "generation");
    h->wake_id = get_text(a, doc, "wake_id");
    h->holder = get_text(a, doc, "holder");
    h->until_ms = (int64_t)get_number(doc, "until_ms");
    h->attempts = (uint32_t)get_number(doc, "attempts");
    return parse_streams(a, json_object_get(doc, "streams"), h);
}

int subscription_head_parse(struct arena *a, struct str doc, struct subscription_head *out)
{
    json_t *json = json_loadb(doc.p, doc.n, JSON_ALLOW_NUL, NULL);
    struct subscription_head h = {0};
    int err = json == NULL ? ERR_CORRUPT : parse_head(a, json, &h);
    json_decref(json);
    if (err == 0)
        *out = h;
    return err;
}

/* ---- links ----
 *
 *   e 0123456789abcdef 0000000000000007 0000000000000007_0000000000000042
 *   | birth, hex       life, decimal    acked
 *   e: by name, g: by the pattern */

void subscription_link_format(const struct subscription_link *l, char out[SUBSCRIPTION_LINK_TEXT])
{
    char text[64];
    snprintf(text, sizeof text, "%c %016" PRIx64 " %016" PRIu64 " ", l->is_explicit ? 'e' : 'g',
             l->birth, l->life);
    size_t n = SUBSCRIPTION_LINK_TEXT - OFFSET_TEXT;
    memcpy(out, text, n);
    offset_format(l->acked, out + n);
}

int subscription_link_parse(struct str doc, struct subscription_link *out)
{
    if (doc.n != SUBSCRIPTION_LINK_TEXT || (doc.p[0] != 'e' && doc.p[0] != 'g'))
        return ERR_CORRUPT;
    char hex[17] = {0};
    memcpy(hex, doc.p + 2, 16);
    struct subscription_link l = {.is_explicit = doc.p[0] == 'e', .birth = strtoull(hex, NULL, 16)};
    if (num_parse(str_of(doc.p + 19, 16), OFFSET_PART_MAX, &l.life) ||
        offset_parse(str_of(doc.p + 36, OFFSET_TEXT), &l.acked))
        return ERR_CORRUPT;
    *out = l;
    return 0;
}

/* ---- ids in keys ---- */

static bool plain(char c)
{
    return ascii_is_alnum(c) || c == '-' || c == '_' || c == '.';
}

void subscription_id_put(struct buf *out, struct str id)
{
    for (size_t i = 0; i < id.n; i++)
        if (plain(id.p[i]))
            buf_putc(out, id.p[i]);
        else
            buf_printf(out, "%%%02X", (unsigned char)id.p[i]);
}

int subscription_id_parse(struct arena *a, struct str text, struct str *id)
{
    char *p = arena_alloc(a, text.n + 1);
    size_t n;
    if (!percent_decode(text, false, p, &n) || n == 0 || n > SUBSCRIPTION_STORED_ID_MAX)
        return ERR_CORRUPT;
    *id = str_of(p, n);
    return 0;
}

/* ---- identity of a configuration ---- */

/* Each part with its length in front, so that no two lists of parts are the same bytes. */
static void subscription_doc_put_part(struct buf *out, struct str part)
{
    buf_printf(out, "%zu:", part.n);
    buf_put(out, part);
}

static int subscription_doc_by_name(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static void put_names(struct buf *out, const struct str *names, size_t n)
{
    struct str *sorted = mem_alloc(n * sizeof *sorted + 1);
    for (size_t i = 0; i < n; i++)
        sorted[i] = names[i];
    qsort(sorted, n, sizeof *sorted, subscription_doc_by_name);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || !str_eq(sorted[i], sorted[i - 1]))
            subscription_doc_put_part(out, sorted[i]);
    free(sorted);
}

void subscription_config_hash(const struct subscription_config *c, char out[SUBSCRIPTION_HASH_TEXT])
{
    struct buf text = {0};
    subscription_doc_put_part(&text, type_texts[c->type]);
    subscription_doc_put_part(&text, c->pattern);
    subscription_doc_put_part(&text, c->webhook_url);
    subscription_doc_put_part(&text, c->wake_stream);
    subscription_doc_put_part(&text, c->description);
    buf_printf(&text, "%" PRIu64 ";", c->lease_ttl_ms);
    put_names(&text, c->streams, c->n_streams);
    if (c->sealed) /* and nothing otherwise, so that those made before it keep their hash */
        buf_put(&text, STR(";sessions"));
    sha256_hex(buf_str(&text), out);
    buf_deinit(&text);
}
