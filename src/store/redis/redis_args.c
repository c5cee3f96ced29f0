// SPDX-License-Identifier: Apache-2.0
/* redis_args.c -- operations as arguments of scripts, in the order in which the scripts name them.
 */
#include "base/le.h"
#include "base/mem.h"
#include "base/num.h"
#include "store/names.h"
#include "store/redis/redis_store_core.h"

#include <stdlib.h>

#define PART_BYTES (64 * 1024)  /* of a large append; more only for an event that is larger */
#define READ_MAX   (256 * 1024) /* of one read: longer than a few ms others should not wait */
#define PART_HEAD  8

struct rop *rop_new(struct redis_store *rs, const struct redis_script *script, void *of,
                    int (*take)(struct rop *r, const struct redisReply *reply),
                    void (*finish)(struct rop *r, int err))
{
    struct rop *r = mem_zalloc(sizeof *r);
    r->rs = rs;
    r->script = script;
    r->of = of;
    r->take = take;
    r->finish = finish;
    list_init(&r->tag_link);
    return r;
}

void rop_free(struct rop *r)
{
    arena_deinit(&r->arena);
    free(r->args);
    free(r);
}

void rop_arg(struct rop *r, struct str text)
{
    if (r->n_args == r->cap_args) {
        r->cap_args = r->cap_args ? r->cap_args * 2 : 16;
        r->args = mem_realloc(r->args, r->cap_args * sizeof *r->args);
    }
    r->args[r->n_args++] = text.p == NULL ? STR("") : text;
}

void rop_arg_u64(struct rop *r, uint64_t v)
{
    char *text = arena_alloc(&r->arena, NUM_TEXT_MAX);
    rop_arg(r, str_of(text, num_format(v, text)));
}

static void arg_i64(struct rop *r, int64_t v)
{
    rop_arg(r, arena_printf(&r->arena, "%lld", (long long)v));
}

static void arg_bool(struct rop *r, bool v)
{
    rop_arg(r, v ? STR("1") : STR(""));
}

/* ---- keys ---- */

struct str rstore_join(struct arena *a, const struct str *parts, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += parts[i].n;
    char *out = arena_alloc(a, size + 1), *at = out;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].n > 0)
            memcpy(at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    return str_of(out, size);
}

static struct str space(const struct redis_store *rs)
{
    return str_of_cstr(rs->prefix);
}

/* A brace would end the tag. */
static struct str escape(struct arena *a, struct str text)
{
    size_t n = 0;
    char *out = arena_alloc(a, text.n * 3 + 1);
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool special = c == '{' || c == '}' || c == '%';
        if (special)
            memcpy(out + n, c == '{' ? "%7B" : c == '}' ? "%7D" : "%25", 3);
        else
            out[n] = c;
        n += special ? 3 : 1;
    }
    return str_of(out, n);
}

struct str rstore_tag(struct arena *a, struct str name)
{
    const struct store_names *names = store_names_of(name);
    size_t n = name.n;
    if (names == NULL || !names->grouped)
        return escape(a, name);
    while (n > 0 && name.p[n - 1] != '/')
        n--;
    return escape(a, n > names->prefix.n ? str_of(name.p, n - (n < name.n)) : name);
}

/* Documents that are written together, or with a stream, have its tag. */
struct str rstore_doc_tag(struct arena *a, struct str key)
{
    for (const struct store_doc_group *g = store_doc_groups; g->prefix.n > 0; g++) {
        if (!str_starts(key, g->prefix))
            continue;
        struct str rest = str_skip(key, g->prefix.n);
        return escape(a, JOIN(a, g->group, str_cut(&rest, '/')));
    }
    return escape(a, key);
}

/* As key in stream.lua. */
static struct str state_key(struct rop *r, struct str tag, struct str name)
{
    bool snapshot = r->rs->prefix[0] == '\0' && str_ends(name, STR(".snapshot"));
    return JOIN(&r->arena, space(r->rs), snapshot ? STR("sse:snapshot:{") : STR("sse:state:{"), tag,
                STR("}:"), name);
}

struct str rstore_doc_key(struct redis_store *rs, struct arena *a, struct str key)
{
    struct str tag = rstore_doc_tag(a, key);
    return JOIN(a, space(rs), STR("doc:{"), tag, STR("}:"), key);
}

struct str rstore_index(struct redis_store *rs, struct arena *a, const char *index)
{
    return JOIN(a, space(rs), STR("{index}:"), str_of_cstr(index));
}

struct str rstore_channel(struct redis_store *rs, struct arena *a, struct str tag, struct str name)
{
    return JOIN(a, space(rs), STR("wake:{"), tag, STR("}:"), name);
}

/* ---- what scripts have in common ---- */

static void args_common(struct rop *r, struct str key)
{
    struct redis_store *rs = r->rs;
    r->n_args = 0;
    r->n_keys = 1;
    rop_arg(r, key);
    rop_arg(r, space(rs));
    if (rs->clock != NULL)
        arg_i64(r, rs->clock->wall_ms);
    else
        rop_arg(r, STR(""));
    rop_arg(r, str_of(rs->process, sizeof rs->process));
    rop_arg(r, !rs->cluster ? STR("") : rs->says_all ? STR("all") : STR("1"));
}

/* Its number, by which Redis knows whether it has been done. */
static void args_op(struct rop *r, struct str tag)
{
    if (r->tag.p == NULL)
        le_put_u64(r->op, ++r->rs->next_op);
    r->tag = tag;
    rop_arg(r, str_of(r->op, sizeof r->op));
}

static struct str args_stream(struct rop *r)
{
    struct str tag = r->family.p != NULL ? r->family : rstore_tag(&r->arena, r->name);
    args_common(r, state_key(r, tag, r->name));
    rop_arg(r, tag);
    rop_arg(r, r->name);
    return tag;
}

/* Scripts can count no further. */
static void arg_bound(struct rop *r, uint64_t v)
{
    rop_arg_u64(r, v < NUM_SAFE_MAX ? v : NUM_SAFE_MAX);
}

static void args_retain(struct rop *r, const struct retain *retain)
{
    arg_bound(r, retain->events);
    arg_bound(r, retain->bytes);
    arg_bound(r, retain->age_ms);
}

/* On a cluster only those that are in the same slot. */
static bool is_beside(struct rop *r, const struct doc_put *doc, struct str tag)
{
    return !r->rs->cluster || str_eq(rstore_doc_tag(&r->arena, doc->key), tag);
}

static size_t count_docs(struct rop *r, const struct doc_put *docs, size_t n, struct str tag)
{
    size_t beside = 0;
    for (size_t i = 0; i < n; i++)
        beside += is_beside(r, &docs[i], tag);
    return beside;
}

static void args_docs(struct rop *r, const struct doc_put *docs, size_t n, struct str tag)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_beside(r, &docs[i], tag))
            continue;
        rop_arg(r, rstore_doc_key(r->rs, &r->arena, docs[i].key));
        rop_arg(r, docs[i].key);
        rop_arg_u64(r, docs[i].expect_version);
        arg_bool(r, docs[i].value.p != NULL);
        rop_arg(r, docs[i].value);
    }
}

/* ---- a write ---- */

/* What the same request again has to say; nothing if it says nothing. */
static struct str config_text(struct arena *a, const struct stream_config *c)
{
    const struct retain *k = &c->retain;
    if (c->ttl_s < 0 && c->expires_ms < 0 && k->events + k->bytes + k->age_ms == 0 &&
        c->fork_of.n == 0 && !c->fork_at_tail && c->fork_sub + c->fork_at.pos == 0)
        return STR("");
    struct str numbers = arena_printf(
        a, "%lld %lld %llu %llu %llu %d %llu %llu ", (long long)c->ttl_s, (long long)c->expires_ms,
        (unsigned long long)k->events, (unsigned long long)k->bytes, (unsigned long long)k->age_ms,
        c->fork_at_tail, (unsigned long long)c->fork_at.pos, (unsigned long long)c->fork_sub);
    return JOIN(a, numbers, c->fork_of);
}

static void args_create(struct rop *r, const struct stream_config *c, bool confirm, struct str tag)
{
    arg_bool(r, confirm);
    rop_arg(r, config_text(&r->arena, c));
    rop_arg(r, c->content_type);
    arg_i64(r, c->ttl_s);
    arg_i64(r, c->expires_ms);
    args_retain(r, &c->retain);
    rop_arg(r, c->fork_of);
    rop_arg(r, r->rs->cluster ? tag : rstore_tag(&r->arena, c->fork_of));
    arg_bool(r, c->fork_at_tail);
    rop_arg_u64(r, c->fork_at.life);
    rop_arg_u64(r, c->fork_at.pos);
    rop_arg_u64(r, c->fork_sub);
    rop_arg_u64(r, r->rs->store.fork_depth);
}

static void args_conditions(struct rop *r, const struct store_write *w)
{
    arg_bool(r, w->content_type.p != NULL);
    rop_arg(r, w->content_type);
    rop_arg(r, w->claim.id);
    rop_arg_u64(r, w->claim.epoch);
    rop_arg_u64(r, w->claim.seq);
    arg_bool(r, w->seq.p != NULL);
    rop_arg(r, w->seq);
    arg_bool(r, w->if_match);
    rop_arg_u64(r, w->match.life);
    rop_arg_u64(r, w->match.pos);
    arg_bool(r, w->data_err != 0);
}

/* Where the events of an append end. */
struct ends {
    const uint32_t *at;
    uint32_t n;
};

static struct ends ends_of(const struct store_write *w, uint32_t *one)
{
    *one = (uint32_t)w->data.n;
    if (w->data.n == 0)
        return (struct ends){NULL, 0};
    return w->ends == NULL ? (struct ends){one, 1} : (struct ends){w->ends, w->n_events};
}

/* The part that begins with this event ends before the one returned. */
static uint32_t part_end(struct ends e, uint32_t first)
{
    uint32_t from = first == 0 ? 0 : e.at[first - 1], i = first + 1;
    while (i < e.n && e.at[i] - from <= PART_BYTES)
        i++;
    return i;
}

static uint32_t count_parts(struct ends e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e.n; i = part_end(e, i))
        n++;
    return n;
}

static void put_be32(char *to, uint32_t v)
{
    for (int i = 3; i >= 0; i--, v >>= 8)
        to[i] = (char)(v & 0xff);
}

/* `e` of stream.lua. */
static struct str part_ends(struct arena *a, struct ends e, uint32_t first, uint32_t behind)
{
    if (e.n == 1)
        return STR("");
    uint32_t from = first == 0 ? 0 : e.at[first - 1], n = behind - first;
    char *out = arena_alloc(a, PART_HEAD + 4 * (size_t)n);
    put_be32(out, e.n - behind);
    put_be32(out + 4, e.at[e.n - 1] - e.at[behind - 1]);
    for (uint32_t i = 0; i < n; i++)
        put_be32(out + PART_HEAD + 4 * i, e.at[first + i] - from);
    return str_of(out, PART_HEAD + 4 * (size_t)n);
}

static void args_parts(struct rop *r, struct str data, struct ends e)
{
    for (uint32_t i = 0, behind; i < e.n; i = behind) {
        uint32_t from = i == 0 ? 0 : e.at[i - 1];
        behind = part_end(e, i);
        rop_arg(r, str_of(data.p + from, e.at[behind - 1] - from));
        rop_arg(r, part_ends(&r->arena, e, i, behind));
    }
}

void args_write(struct rop *r, const struct store_write *w, bool confirm, bool bad_docs)
{
    uint32_t one;
    struct ends e = ends_of(w, &one);
    struct str tag = args_stream(r);
    args_op(r, tag);
    arg_bool(r, w->create != NULL);
    args_conditions(r, w);
    arg_bool(r, w->data.n > 0);
    rop_arg_u64(r, e.n > 1 ? e.at[e.n - 2] : 0);
    arg_bool(r, w->close);
    rop_arg_u64(r, w->end);
    args_retain(r, &r->rs->store.retain);
    arg_bool(r, bad_docs);
    arg_bool(r, w->again);
    rop_arg_u64(r, count_parts(e));
    rop_arg_u64(r, count_docs(r, w->docs, w->n_docs, tag));
    if (w->create != NULL)
        args_create(r, w->create, confirm, tag);
    args_parts(r, w->data, e);
    args_docs(r, w->docs, w->n_docs, tag);
}

/* ---- the others ---- */

void args_remove(struct rop *r)
{
    args_op(r, args_stream(r));
}

void args_read(struct rop *r, const struct store_read *rd)
{
    static const struct str from[] = {[READ_AT] = STR_INIT("at"),
                                      [READ_START] = STR_INIT("start"),
                                      [READ_TAIL] = STR_INIT("tail"),
                                      [READ_EVENT] = STR_INIT("event")};
    args_stream(r);
    rop_arg(r, from[rd->from]);
    rop_arg_u64(r, rd->at.life);
    rop_arg_u64(r, rd->at.pos);
    rop_arg_u64(r, rd->event);
    rop_arg_u64(r, rd->max_bytes < READ_MAX ? rd->max_bytes : READ_MAX);
    arg_bool(r, rd->touch);
}

void args_stat(struct rop *r, const struct str *names, size_t n)
{
    bool elsewhere = r->family.p != NULL;
    struct str tag = elsewhere ? r->family : rstore_tag(&r->arena, names[0]);
    args_common(r, state_key(r, tag, names[0]));
    for (size_t i = 0; i < n; i++) {
        rop_arg(r, elsewhere ? tag : rstore_tag(&r->arena, names[i]));
        rop_arg(r, names[i]);
    }
}

void args_put(struct rop *r, const struct doc_put *docs, size_t n, bool again)
{
    struct str tag = rstore_doc_tag(&r->arena, docs[0].key);
    args_common(r, rstore_doc_key(r->rs, &r->arena, docs[0].key));
    rop_arg(r, tag);
    args_op(r, tag);
    arg_bool(r, again);
    rop_arg_u64(r, count_docs(r, docs, n, tag));
    args_docs(r, docs, n, tag);
}

void args_index(struct rop *r)
{
    args_common(r, rstore_index(r->rs, &r->arena, "terms"));
}

void args_sweep(struct rop *r, unsigned limit)
{
    args_index(r);
    rop_arg_u64(r, limit);
    args_retain(r, &r->rs->store.retain);
}

void args_trim(struct rop *r)
{
    args_stream(r);
    args_retain(r, &r->rs->store.retain);
}

void args_place(struct rop *r, const char *what, struct str family, struct str nonce,
                struct str stale)
{
    args_stream(r);
    rop_arg(r, str_of_cstr(what));
    rop_arg(r, family);
    rop_arg(r, nonce);
    rop_arg(r, stale);
}

void args_forget(struct rop *r, const char *index, struct str name, struct str member,
                 struct str seen)
{
    args_index(r);
    rop_arg(r, str_of_cstr(index));
    rop_arg(r, name);
    rop_arg(r, member);
    rop_arg(r, seen);
}
