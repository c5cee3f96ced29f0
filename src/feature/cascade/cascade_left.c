// SPDX-License-Identifier: Apache-2.0
/* cascade_left.c -- Cascades that nobody looks after any more.
 *
 * While a Cascade is not archived, a document stands for it: CASCADE_DOC_PREFIX and its id, with
 * who began it as its value (base/pack.h):
 *
 *     str host   str boot   u64 pid   u64 start   i64 begun_ms
 *
 * Several processes may share a store, on several machines, each with a language server that the
 * others cannot reach. So a process takes up what began on its own machine, by a process that is no
 * more: another boot, or a pid that is free or belongs to a process with another start time. */
#include "base/mem.h"
#include "base/pack.h"
#include "net/process.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_trace.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define LEFT_LIMIT 1000 /* in one sweep */
#define LEFT_PAGE  64   /* looked at together: of each a file in /proc is read */
#define KEEP_MS    (7LL * 24 * 60 * 60 * 1000) /* then its server will not come back */

struct owner {
    struct str host, boot;
    uint64_t pid, start;
    int64_t begun_ms;
};

/* ---- processes ---- */

/* The text of a small file, without the line's end. */
static struct str cascade_left_read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size);
    if (fd >= 0)
        close(fd);
    struct str text = str_of(out, n > 0 ? (size_t)n : 0);
    if (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    return text;
}

/* 0: there is none, or what is left of one waits for its parent. */
static uint64_t start_of(uint64_t pid)
{
    struct process p;
    return pid <= INT_MAX && process_read((pid_t)pid, &p) && !p.ended ? p.start : 0;
}

struct machine {
    char host[256], boot[64];
    struct str host_name, boot_id;
};

static void this_machine(struct machine *m)
{
    if (gethostname(m->host, sizeof m->host) != 0)
        m->host[0] = '\0';
    m->host[sizeof m->host - 1] = '\0';
    m->host_name = str_of_cstr(m->host);
    m->boot_id = cascade_left_read_text("/proc/sys/kernel/random/boot_id", m->boot, sizeof m->boot);
}

void cascade_doc_put(struct buf *out, int64_t wall_ms)
{
    struct machine m;
    this_machine(&m);
    pack_str(out, m.host_name);
    pack_str(out, m.boot_id);
    pack_u64(out, (uint64_t)getpid());
    pack_u64(out, start_of((uint64_t)getpid()));
    pack_i64(out, wall_ms);
}

static int owner_take(struct str value, struct owner *o)
{
    struct unpack u = {.rest = value};
    o->host = unpack_str(&u);
    o->boot = unpack_str(&u);
    o->pid = unpack_u64(&u);
    o->start = unpack_u64(&u);
    o->begun_ms = unpack_i64(&u);
    return unpack_end(&u);
}

static bool lives(const struct owner *o, const struct machine *m)
{
    return str_eq(o->boot, m->boot_id) && start_of(o->pid) == o->start;
}

/* Of those that live. */
static bool is_us(const struct owner *o)
{
    return o->pid == (uint64_t)getpid();
}

/* ---- sweeping ---- */

struct left {
    struct str key, id;
    uint64_t version;
    bool expired;
};

struct cascade_sweep {
    struct cascade *cascade;
    struct cascade_access *access;
    struct cascade_wait wait;
    struct store_docs docs;
    struct store_put put;
    struct doc_put removal;
    struct cascade_call call;
    struct arena arena;
    struct left items[LEFT_LIMIT];
    size_t n, at, n_expired; /* those that have expired come first */
};

static void sweep_free(struct cascade_sweep *s)
{
    struct cascade *c = s->cascade;
    c->sweeping = NULL;
    cascade_access_unref(s->access);
    arena_deinit(&s->arena);
    free(s);
    cascade_end(c);
}

static void next(struct cascade_sweep *s);

static void cascade_left_on_removed(struct store_put *put, int err)
{
    next(container_of(put, struct cascade_sweep, put));
}

static void cascade_left_drop(struct cascade_sweep *s)
{
    const struct left *l = &s->items[s->at++];
    s->removal = (struct doc_put){.key = l->key, .expect_version = l->version};
    s->put = (struct store_put){.docs = &s->removal, .n_docs = 1, .done = cascade_left_on_removed};
    store_put(s->cascade->setup.store, &s->put);
}

/* A server that cannot be reached, or does not know us now, is asked again with the next sweep. */
static void cascade_left_on_archived(struct cascade_call *c, int err)
{
    struct cascade_sweep *s = container_of(c, struct cascade_sweep, call);
    if (err == 0)
        trace(s->cascade->setup.trace, CASCADE_ARCHIVED, TRACE_STR("id", s->items[s->at].id));
    if (cascade_archive_settled(c, err)) {
        cascade_left_drop(s);
    } else {
        cascade_access_recheck(s->access);
        sweep_free(s);
    }
}

static void cascade_left_on_access(struct cascade_wait *w, const struct cascade_fault *fault)
{
    struct cascade_sweep *s = container_of(w, struct cascade_sweep, wait);
    if (fault != NULL) {
        sweep_free(s);
        return;
    }
    s->access = cascade_access_ref(s->cascade->access);
    next(s);
}

/* Those whose time is over come first: they need no server. */
static void next(struct cascade_sweep *s)
{
    if (s->at == s->n || cascade_is_stopping(s->cascade)) {
        sweep_free(s);
    } else if (s->items[s->at].expired) {
        cascade_left_drop(s);
    } else if (s->access == NULL) {
        s->wait.done = cascade_left_on_access;
        cascade_want_access(s->cascade, &s->wait);
    } else {
        s->call = (struct cascade_call){.rpc = CASCADE_ARCHIVE,
                                        .cascade_id = s->items[s->at].id,
                                        .done = cascade_left_on_archived};
        cascade_call_start(s->access, &s->call);
    }
}

static bool is_left(const struct cascade *c, struct str id, const struct owner *o,
                    const struct machine *m)
{
    return str_eq(o->host, m->host_name) && map_get(&c->flows, id) == NULL &&
           (!lives(o, m) || is_us(o));
}

/* Whoever finds it takes it away: its machine may not be there any more. */
static bool is_expired(const struct cascade *c, const struct owner *o)
{
    return c->setup.sched->wall_ms - o->begun_ms > KEEP_MS;
}

static void cascade_left_add(struct cascade_sweep *s, const struct doc_row *row, bool expired)
{
    struct str key = arena_dup(&s->arena, row->key);
    struct left l = {.key = key,
                     .id = str_skip(key, sizeof CASCADE_DOC_PREFIX - 1),
                     .version = row->version,
                     .expired = expired};
    size_t at = s->n++;
    if (expired) { /* the first of the others makes room */
        s->items[at] = s->items[s->n_expired];
        at = s->n_expired++;
    }
    s->items[at] = l;
}

static void cascade_left_look(struct cascade_sweep *s, const struct doc_row *row,
                              const struct machine *m)
{
    struct owner o;
    struct str id = str_skip(row->key, sizeof CASCADE_DOC_PREFIX - 1);
    if (owner_take(row->value, &o) != 0)
        return;
    bool expired = is_expired(s->cascade, &o);
    if (expired || is_left(s->cascade, id, &o, m))
        cascade_left_add(s, row, expired);
}

static void look_behind(struct cascade_sweep *s, struct str after);

static void cascade_left_on_docs(struct store_docs *docs, int err)
{
    struct cascade_sweep *s = container_of(docs, struct cascade_sweep, docs);
    size_t n = err == 0 ? docs->n_rows : 0;
    struct machine m;
    this_machine(&m);
    for (size_t i = 0; i < n; i++)
        cascade_left_look(s, &docs->rows[i], &m);
    if (n > 0 && docs->more && s->n + LEFT_PAGE <= LEFT_LIMIT && !cascade_is_stopping(s->cascade))
        look_behind(s, arena_dup(&s->arena, docs->rows[n - 1].key));
    else
        next(s);
}

static void look_behind(struct cascade_sweep *s, struct str after)
{
    s->docs = (struct store_docs){.prefix = STR(CASCADE_DOC_PREFIX),
                                  .after = after,
                                  .limit = LEFT_PAGE,
                                  .done = cascade_left_on_docs};
    store_docs(s->cascade->setup.store, &s->docs);
}

void cascade_sweep(struct cascade *c)
{
    if (c->sweeping != NULL || cascade_is_stopping(c))
        return;
    struct cascade_sweep *s = mem_zalloc(sizeof *s);
    s->cascade = c;
    list_init(&s->wait.link);
    c->sweeping = s;
    cascade_begin(c);
    look_behind(s, STR_NONE);
}
