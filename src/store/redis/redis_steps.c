// SPDX-License-Identifier: Apache-2.0
/* redis_steps.c -- on a cluster, where one script sees one slot: operations that take several
 * steps, in an order that leaves garbage when it is broken off, never a lie.
 *
 * To create: its name goes to the index. A fork has to be kept where its source is: that is said at
 * its own place first. Then it is written; if it is kept elsewhere it is made sure that it is still
 * said so. Documents of other slots follow, each slot's by itself; if they cannot be written a
 * stream that was made now is taken back.
 *
 * What a removal leaves in the index is swept up later, by who finds it due. */
#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "store/redis/redis_store_core.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#define PLACES_MAX 4 /* looked for a fork's place */
#define ALL_MS     "15000"
#define ALL_TICKS  4 /* sweeps until everybody knows that somebody wants to hear everything */

static int redis_steps_take_nothing(struct rop *r, const struct redisReply *reply)
{
    return 0;
}

static int redis_steps_take_status(struct rop *r, const struct redisReply *reply)
{
    return reply_status(reply_str(reply, 0));
}

static void redis_steps_finish_none(struct rop *r, int err)
{
}

/* ---- the index ---- */

/* One of announce.lua: 's' for streams, 'd' for documents. wait_ms < 0: none. */
static void arg_announced(struct rop *r, const char *index, char kind, struct str name,
                          int64_t wait_ms)
{
    rop_arg(r, str_of_cstr(index));
    rop_arg(r, name);
    rop_arg(r, JOIN(&r->arena, str_of(&kind, 1), name));
    if (wait_ms < 0)
        rop_arg(r, STR(""));
    else
        rop_arg_u64(r, (uint64_t)wait_ms);
}

static void args_announced_docs(struct rop *r, const struct doc_put *docs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_new = docs[i].value.p != NULL && docs[i].expect_version == 0;
        if (is_new)
            arg_announced(r, "docs", 'd', docs[i].key, -1);
        else if (docs[i].value.p == NULL)
            arg_announced(r, "", 'd', docs[i].key, 0);
    }
}

static struct rop *announce(struct redis_store *rs, void *of,
                            void (*finish)(struct rop *r, int err))
{
    struct rop *r = rop_new(rs, &rstore_scripts.announce, of, redis_steps_take_nothing, finish);
    args_index(r);
    return r;
}

/* ---- a write ---- */

/* Documents that cannot be written should keep the stream from being written: they are looked at
 * before, and again when their turn comes. */
struct steps {
    struct redis_store *rs;
    struct store_write *w;
    struct arena arena;
    struct str own;         /* tag of its name */
    struct str nonce;       /* of what is said of its place */
    struct str source;      /* of a fork: the tag that its source is kept under */
    struct str stale;       /* the nonce of who said that it is where it is not */
    struct str at;          /* where it goes; p == NULL: to its own place */
    struct str status;      /* of the last answer, and the place in it */
    struct str place, seen; /* and whose word that is */
    unsigned places;
    bool source_is_guess;
    bool placed, confirm, doubtful, bad_docs;
    bool made;        /* the stream, by this very write: it may be taken back */
    size_t doc;       /* the next to be written */
    size_t n_checked; /* documents */
    void (*checked)(struct steps *s);
    int err;
};

static void next_docs(struct steps *s);
static void redis_steps_look_for_place(struct steps *s);

/* What it was going to be called may be in the index. */
static void mend_index(struct steps *s)
{
    struct rop *r = announce(s->rs, NULL, redis_steps_finish_none);
    arg_announced(r, "", 's', arena_dup(&r->arena, s->w->name), 0);
    rop_send(r);
}

static void redis_steps_end(struct steps *s, int err)
{
    struct store_write *w = s->w;
    if (w->name.n > 0 && (err == 0 || s->doubtful))
        watchers_changed(&s->rs->watchers, w->name);
    if (w->create != NULL && err != 0)
        mend_index(s);
    w->done(w, err);
    arena_deinit(&s->arena);
    free(s);
}

static int redis_steps_take_placed(struct rop *r, const struct redisReply *reply)
{
    struct steps *s = r->of;
    s->status = arena_dup(&s->arena, reply_str(reply, 0));
    s->place = arena_dup(&s->arena, reply_str(reply, 1));
    s->seen = arena_dup(&s->arena, reply_str(reply, 2));
    return 0;
}

static void announce_place(struct steps *s, void (*finish)(struct rop *r, int err))
{
    struct rop *r = rop_new(s->rs, &rstore_scripts.place, s, redis_steps_take_placed, finish);
    r->name = s->w->name;
    args_place(r, "say", s->source, s->nonce, s->stale);
    rop_send(r);
}

/* It has been made there. */
static void claim_place(struct steps *s, void (*finish)(struct rop *r, int err))
{
    struct rop *r = rop_new(s->rs, &rstore_scripts.place, s, redis_steps_take_placed, finish);
    r->name = s->w->name;
    args_place(r, "claim", s->at, JOIN(&s->arena, s->nonce, STR("!")), s->stale);
    rop_send(r);
}

/* It was not made there after all; nobody waits for this. */
static void retract_place(struct redis_store *rs, struct str name, struct str nonce)
{
    struct rop *r =
        rop_new(rs, &rstore_scripts.place, NULL, redis_steps_take_nothing, redis_steps_finish_none);
    r->name = arena_dup(&r->arena, name);
    args_place(r, "unsay", STR_NONE, arena_dup(&r->arena, nonce), STR_NONE);
    rop_send(r);
}

static void redis_steps_finish_taken_back(struct rop *r, int err)
{
    struct steps *s = r->of;
    redis_steps_end(s, s->err);
}

static void redis_steps_take_back(struct steps *s, int err)
{
    s->err = err;
    s->w->created = false;
    if (!s->made) {
        redis_steps_end(s, err); /* others may have written it since */
        return;
    }
    struct rop *r = rop_new(s->rs, &rstore_scripts.remove, s, redis_steps_take_status,
                            redis_steps_finish_taken_back);
    r->name = s->w->name;
    r->family = s->at;
    r->fill = args_remove;
    rop_send(r);
}

static void redis_steps_finish_verified(struct rop *r, int err)
{
    struct steps *s = r->of;
    if (err == 0 && str_eq(s->status, STR("OK")))
        next_docs(s);
    else
        redis_steps_take_back(s, err != 0 ? err : ERR_BUSY);
}

static int redis_steps_take_written(struct rop *r, const struct redisReply *reply)
{
    struct steps *s = r->of;
    s->status = arena_dup(&s->arena, reply_str(reply, 0));
    s->place = arena_dup(&s->arena, reply_str(reply, 1));
    if (str_eq(s->status, STR("SOURCE_MOVED")))
        return ERR_FORK_SOURCE;
    int err = reply_write(r, reply, s->w);
    if (s->w->info.content_type.n > 0)
        s->w->info.content_type = arena_dup(&s->arena, s->w->info.content_type);
    return err;
}

/* The source, or the stream itself, is somewhere else than was thought. */
static bool is_lost(const struct steps *s, int err)
{
    bool moved = str_eq(s->status, STR("SOURCE_MOVED")) || s->source_is_guess;
    return ((err == ERR_FORK_SOURCE && moved) || (err == ERR_NOT_FOUND && s->confirm)) &&
           s->places < PLACES_MAX;
}

static void look_again(struct steps *s, int err)
{
    struct str source = s->w->create->fork_of;
    s->stale = s->confirm ? s->seen : s->nonce;
    if (str_eq(s->status, STR("SOURCE_MOVED"))) {
        redis_family_learn(s->rs, source, s->place);
        s->source = s->place;
        s->source_is_guess = false;
    } else if (err == ERR_FORK_SOURCE) {
        redis_family_forget(s->rs, source);
        s->source = rstore_tag(&s->arena, source);
        s->source_is_guess = false;
    }
    redis_steps_look_for_place(s);
}

static void redis_steps_finish_written(struct rop *r, int err)
{
    struct steps *s = r->of;
    bool done = err == 0 && str_eq(s->status, STR("OK"));
    s->made = done && s->w->created;
    s->doubtful |= r->doubtful;
    if (r->family.p != NULL)
        s->at = arena_dup(&s->arena, r->family);
    if (err != 0 && is_lost(s, err)) {
        look_again(s, err);
    } else if (err != 0) {
        if (s->placed && !s->doubtful)
            retract_place(s->rs, s->w->name, s->nonce);
        redis_steps_end(s, err == ERR_NOT_FOUND && s->confirm ? ERR_BUSY : err);
    } else if (!done && !(s->w->again && s->w->duplicate)) {
        redis_steps_end(s, 0); /* it was so before */
    } else if (s->w->created && s->at.p != NULL) {
        claim_place(s, redis_steps_finish_verified);
    } else {
        next_docs(s); /* the try before may have got no further than the stream */
    }
}

static void redis_steps_fill_write(struct rop *r)
{
    const struct steps *s = r->of;
    args_write(r, s->w, s->confirm, s->bad_docs);
}

static void write_stream(struct steps *s)
{
    struct rop *r = rop_new(s->rs, &rstore_scripts.write, s, redis_steps_take_written,
                            redis_steps_finish_written);
    r->name = s->w->name;
    r->family = s->at;
    r->fill = redis_steps_fill_write;
    rop_send(r);
}

static void redis_steps_finish_place(struct rop *r, int err)
{
    struct steps *s = r->of;
    if (err != 0) {
        redis_steps_end(s, err);
        return;
    }
    s->placed |= str_eq(s->status, STR("OK"));
    s->confirm = str_eq(s->status, STR("EXISTS")) || str_eq(s->status, STR("ELSEWHERE"));
    if (s->confirm)
        s->at = s->place.n > 0 ? s->place : STR_NONE;
    write_stream(s);
}

static void redis_steps_look_for_place(struct steps *s)
{
    s->confirm = false;
    s->places++;
    s->at = s->source.p == NULL || str_eq(s->source, s->own) ? STR_NONE : s->source;
    if (s->source.p == NULL)
        write_stream(s);
    else
        announce_place(s, redis_steps_finish_place);
}

static int redis_steps_take_version(struct rop *r, const struct redisReply *reply)
{
    struct steps *s = r->of;
    const struct doc_put *doc = r->doc;
    struct str text = reply_str(reply, 0), value = reply_str(reply, 1);
    uint64_t version = 0;
    if (text.p != NULL && num_parse(text, NUM_SAFE_MAX, &version) != 0)
        return ERR_IO;
    bool written = doc->value.p == NULL
                       ? version == 0
                       : version == DOC_NEXT(doc->expect_version) && str_eq(value, doc->value);
    s->bad_docs |= version != doc->expect_version && !(s->w->again && written);
    return 0;
}

static void redis_steps_finish_version(struct rop *r, int err)
{
    struct steps *s = r->of;
    if (err != 0)
        s->err = err;
    if (++s->n_checked < s->w->n_docs)
        return;
    if (s->err != 0)
        redis_steps_end(s, s->err);
    else
        s->checked(s);
}

static void check_docs(struct steps *s)
{
    size_t n = s->w->n_docs;
    for (size_t i = 0; i < n; i++) {
        struct rop *r =
            rop_new(s->rs, NULL, s, redis_steps_take_version, redis_steps_finish_version);
        r->doc = &s->w->docs[i];
        rop_arg(r, STR("HMGET"));
        rop_arg(r, rstore_doc_key(s->rs, &r->arena, s->w->docs[i].key));
        rop_arg(r, STR("version"));
        if (s->w->again)
            rop_arg(r, STR("value"));
        rop_send(r);
    }
    if (n == 0)
        s->checked(s);
}

static void redis_steps_finish_announced(struct rop *r, int err)
{
    struct steps *s = r->of;
    if (err != 0)
        redis_steps_end(s, err);
    else
        check_docs(s);
}

/* How long until it may be gone by itself; -1: never. */
static int64_t life_ms(const struct redis_store *rs, const struct stream_config *c)
{
    int64_t left_ms = c->expires_ms - rs->store.sched->wall_ms;
    if (c->ttl_s >= 0)
        return c->ttl_s * 1000;
    if (c->expires_ms >= 0)
        return left_ms > 0 ? left_ms : 0;
    return -1;
}

/* How long until somebody has to look at it; -1: nobody has to. */
static int64_t term_ms(const struct redis_store *rs, const struct stream_config *c)
{
    int64_t term = life_ms(rs, c);
    uint64_t age = c->retain.age_ms > 0 ? c->retain.age_ms : rs->store.retain.age_ms;
    int64_t aged = age < INT64_MAX ? (int64_t)(age / 4) : INT64_MAX;
    if (age == 0)
        return term;
    return term < 0 || aged < term ? aged : term;
}

/* A fork has the term of its source, which is not known here. */
static int64_t first_term_ms(const struct redis_store *rs, const struct stream_config *c)
{
    int64_t term = term_ms(rs, c);
    return term < 0 && c->fork_of.n > 0 ? 0 : term;
}

void steps_write(struct redis_store *rs, struct store_write *w)
{
    struct steps *s = mem_zalloc(sizeof *s);
    s->rs = rs;
    s->w = w;
    s->checked = redis_steps_look_for_place;
    s->own = rstore_tag(&s->arena, w->name);
    s->nonce =
        arena_printf(&s->arena, "%.16s-%llu", rs->process, (unsigned long long)++rs->next_op);
    struct rop *r = announce(rs, s, redis_steps_finish_announced);
    if (w->create != NULL)
        arg_announced(r, "names", 's', w->name, first_term_ms(rs, w->create));
    if (w->create != NULL && w->create->fork_of.n > 0) {
        struct str known = redis_family_of(rs, w->create->fork_of);
        s->source_is_guess = known.p != NULL;
        s->source = known.p != NULL ? arena_dup(&s->arena, known)
                                    : rstore_tag(&s->arena, w->create->fork_of);
    }
    args_announced_docs(r, w->docs, w->n_docs);
    rop_send(r);
}

/* ---- documents of other slots ---- */

static struct str tag_at(struct steps *s)
{
    return s->at.p != NULL ? s->at : s->own;
}

/* The first that is not in the slot of the stream nor of one before. */
static bool find_doc(struct steps *s)
{
    for (; s->doc < s->w->n_docs; s->doc++) {
        struct str tag = rstore_doc_tag(&s->arena, s->w->docs[s->doc].key);
        bool done = str_eq(tag, tag_at(s));
        for (size_t i = 0; i < s->doc && !done; i++)
            done = str_eq(rstore_doc_tag(&s->arena, s->w->docs[i].key), tag);
        if (!done)
            return true;
    }
    return false;
}

static void redis_steps_finish_docs(struct rop *r, int err)
{
    struct steps *s = r->of;
    s->doc++;
    if (err == 0)
        next_docs(s);
    else
        redis_steps_take_back(s, err);
}

static void redis_steps_fill_docs(struct rop *r)
{
    const struct steps *s = r->of;
    args_put(r, s->w->docs + s->doc, s->w->n_docs - s->doc, s->w->again);
}

static void next_docs(struct steps *s)
{
    if (!find_doc(s)) {
        redis_steps_end(s, 0);
        return;
    }
    struct rop *r =
        rop_new(s->rs, &rstore_scripts.put, s, redis_steps_take_status, redis_steps_finish_docs);
    r->fill = redis_steps_fill_docs;
    rop_send(r);
}

/* The same without a stream. */
struct puts {
    struct steps steps;
    struct store_write write; /* with the documents alone */
    struct store_put *put;
};

static void redis_steps_puts_done(struct store_write *w, int err)
{
    struct puts *p = container_of(w, struct puts, write);
    p->put->done(p->put, err);
}

static void redis_steps_puts_checked(struct steps *s)
{
    if (s->bad_docs)
        redis_steps_end(s, ERR_VERSION);
    else
        next_docs(s);
}

void steps_put(struct redis_store *rs, struct store_put *put)
{
    struct puts *p = mem_zalloc(sizeof *p);
    p->put = put;
    p->write = (struct store_write){
        .docs = put->docs, .n_docs = put->n_docs, .done = redis_steps_puts_done};
    p->steps.rs = rs;
    p->steps.w = &p->write;
    p->steps.checked = redis_steps_puts_checked;
    struct rop *r = announce(rs, &p->steps, redis_steps_finish_announced);
    args_announced_docs(r, put->docs, put->n_docs);
    rop_send(r);
}

/* ---- removal ---- */

struct removal {
    struct store_remove *remove;
    int err;
};

static void redis_steps_finish_removal_announced(struct rop *r, int err)
{
    struct removal *m = r->of;
    m->remove->done(m->remove, m->err);
    free(m);
}

/* Whether the index is told matters little: names are looked at when they are listed. */
static void redis_steps_finish_removed(struct rop *r, int err)
{
    struct removal *m = r->of;
    m->err = err;
    if (err == 0 || r->doubtful)
        watchers_changed(&r->rs->watchers, m->remove->name);
    struct rop *next = announce(r->rs, m, redis_steps_finish_removal_announced);
    arg_announced(next, "", 's', m->remove->name, 0);
    rop_send(next);
}

void steps_remove(struct redis_store *rs, struct store_remove *rm)
{
    struct removal *m = mem_zalloc(sizeof *m);
    struct str family = redis_family_of(rs, rm->name);
    m->remove = rm;
    struct rop *r =
        rop_new(rs, &rstore_scripts.remove, m, redis_steps_take_status, redis_steps_finish_removed);
    r->name = rm->name;
    r->is_guess = family.p != NULL;
    r->family = r->is_guess ? arena_dup(&r->arena, family) : STR_NONE;
    r->fill = args_remove;
    rop_send(r);
}

/* ---- what is due ---- */

/* One name of the index that somebody has to look at. */
struct sweep_item {
    char kind;
    struct str name, member, seen; /* in the rop that looks */
    bool is_there;
    int64_t wait_ms;
};

static void redis_steps_finish_swept(struct rop *r, int err)
{
    rstore_swept(r->rs);
}

static void redis_steps_finish_looked(struct rop *r, int err)
{
    struct sweep_item *l = r->of;
    struct redis_store *rs = r->rs;
    if (err != 0) {
        rstore_swept(rs);
        return;
    }
    if (!l->is_there && r->nonce.n > 0)
        retract_place(rs, l->name, r->nonce);
    struct rop *next;
    if (l->is_there && l->wait_ms >= 0) {
        next = announce(rs, NULL, redis_steps_finish_swept);
        arg_announced(next, "", l->kind, arena_dup(&next->arena, l->name), l->wait_ms);
    } else {
        const char *index = l->is_there ? "" : l->kind == 's' ? "names" : "docs";
        next = rop_new(rs, &rstore_scripts.forget, NULL, redis_steps_take_nothing,
                       redis_steps_finish_swept);
        args_forget(next, index, arena_dup(&next->arena, l->name),
                    arena_dup(&next->arena, l->member), arena_dup(&next->arena, l->seen));
    }
    if (!l->is_there && l->kind == 's')
        watchers_changed(&rs->watchers, l->name);
    rop_send(next); /* counts in the place of this one */
}

static int redis_steps_take_stream(struct rop *r, const struct redisReply *reply)
{
    struct sweep_item *l = r->of;
    const struct redisReply *row = reply_item(reply, 0);
    struct stream_info info;
    int err = reply_status(reply_str(row, 0));
    l->is_there = err == 0 || err == ERR_DELETED;
    l->wait_ms = -1;
    if (err == 0 && reply_info(&r->arena, reply_item(row, 1), &info))
        l->wait_ms = term_ms(r->rs, &(struct stream_config){.ttl_s = info.ttl_s,
                                                            .expires_ms = info.expires_ms,
                                                            .retain = info.retain});
    return err == ERR_NOT_FOUND || l->is_there ? 0 : err;
}

static int redis_steps_take_doc(struct rop *r, const struct redisReply *reply)
{
    struct sweep_item *l = r->of;
    l->is_there = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    l->wait_ms = -1;
    return 0;
}

static void redis_steps_look_at(struct redis_store *rs, struct str member, struct str seen)
{
    bool is_stream = member.p[0] == 's';
    struct rop *r = rop_new(rs, is_stream ? &rstore_scripts.trim : NULL, NULL,
                            is_stream ? redis_steps_take_stream : redis_steps_take_doc,
                            redis_steps_finish_looked);
    struct sweep_item *l = r->of = arena_alloc(&r->arena, sizeof *l);
    *l = (struct sweep_item){.kind = member.p[0],
                             .member = arena_dup(&r->arena, member),
                             .seen = arena_dup(&r->arena, seen)};
    l->name = str_skip(l->member, 1);
    if (is_stream) {
        r->name = l->name;
        r->fill = args_trim;
    } else {
        rop_arg(r, STR("EXISTS"));
        rop_arg(r, rstore_doc_key(rs, &r->arena, l->name));
    }
    rs->n_sweeping++;
    rop_send(r);
}

static int redis_steps_take_due(struct rop *r, const struct redisReply *reply)
{
    r->rs->sweep_more = reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 * REDIS_SWEEP;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2)
        if (reply_str(reply, i).n > 1)
            redis_steps_look_at(r->rs, reply_str(reply, i), reply_str(reply, i + 1));
    return 0;
}

static int redis_steps_take_says_all(struct rop *r, const struct redisReply *reply)
{
    r->rs->says_all = reply->type == REDIS_REPLY_STRING;
    return 0;
}

/* Whether anybody wants to hear of every stream is a key that they keep alive. */
static void ask_for_all(struct redis_store *rs)
{
    struct rop *r = rop_new(
        rs, NULL, NULL, rs->subscribed_all ? redis_steps_take_nothing : redis_steps_take_says_all,
        redis_steps_finish_swept);
    rop_arg(r, rs->subscribed_all ? STR("SET") : STR("GET"));
    rop_arg(r, rstore_index(rs, &r->arena, "all"));
    if (rs->subscribed_all) {
        rop_arg(r, STR("1"));
        rop_arg(r, STR("PX"));
        rop_arg(r, STR(ALL_MS));
        rs->says_all = true;
        if (++rs->all_ticks == ALL_TICKS)
            rstore_rescan(rs);
    }
    rs->n_sweeping++;
    rop_send(r);
}

void steps_sweep(struct redis_store *rs)
{
    struct rop *r = rop_new(rs, NULL, NULL, redis_steps_take_due, redis_steps_finish_swept);
    rop_arg(r, STR("ZRANGEBYSCORE"));
    rop_arg(r, rstore_index(rs, &r->arena, "terms"));
    rop_arg(r, STR("-inf"));
    rop_arg_u64(r, (uint64_t)rs->store.sched->wall_ms);
    rop_arg(r, STR("WITHSCORES"));
    rop_arg(r, STR("LIMIT"));
    rop_arg(r, STR("0"));
    rop_arg_u64(r, REDIS_SWEEP);
    rs->n_sweeping++;
    rop_send(r);
    ask_for_all(rs);
}
