// SPDX-License-Identifier: Apache-2.0
/* cascade_access.c -- which language server is asked, and as whom: from the settings, the editor's
 * process and its state file. Looking blocks, so it is done on a lane. */
#include "base/mem.h"
#include "base/secret.h"
#include "feature/cascade/editor_state.h"
#include "feature/cascade/cascade_core.h"
#include "feature/cascade/cascade_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The job's own until it is done. */
struct cascade_lookup {
    struct job job;
    struct cascade *cascade;
    struct cascade_access *access;
    const char *code; /* of what went wrong */
    struct buf why;
    pid_t pid; /* that was found */
};

/* ---- waiting ---- */

void cascade_notify_all(struct link *waiters, const struct cascade_fault *fault)
{
    struct link all;
    list_init(&all);
    list_splice(&all, waiters);
    while (!list_empty(&all)) {
        struct cascade_wait *w = list_item(all.next, struct cascade_wait, link);
        list_remove(&w->link);
        w->done(w, fault);
    }
}

/* ---- an access ---- */

static struct cascade_access *access_new(struct cascade *c)
{
    struct cascade_access *a = mem_zalloc(sizeof *a);
    a->cascade = c;
    a->refs = 1;
    a->secrets = secret_alloc(sizeof *a->secrets);
    list_init(&a->panel.waiters);
    list_init(&a->status.waiters);
    return a;
}

struct cascade_access *cascade_access_ref(struct cascade_access *a)
{
    a->refs++;
    return a;
}

void cascade_access_unref(struct cascade_access *a)
{
    if (a == NULL || --a->refs > 0)
        return;
    secret_free(a->secrets, sizeof *a->secrets);
    arena_deinit(&a->arena);
    free(a);
}

void cascade_access_recheck(struct cascade_access *a)
{
    if (a->cascade->access == a)
        a->cascade->recheck = true;
}

bool cascade_second_try(struct cascade_second_try *t, const struct cascade_access *a,
                        const struct cascade_fault *fault)
{
    if (t->used || (a->cascade->access == a && !a->cascade->recheck))
        return false;
    t->used = true;
    t->fault = (struct cascade_fault){fault->status, arena_dup(&t->arena, fault->code),
                                      arena_dup(&t->arena, fault->message)};
    return true;
}

static bool cascade_access_is_same(const struct cascade_access *a, const struct cascade_access *b)
{
    return strcmp(a->target, b->target) == 0 && strcmp(a->version, b->version) == 0 &&
           strcmp(a->secrets->csrf_token, b->secrets->csrf_token) == 0 &&
           strcmp(a->secrets->api_key, b->secrets->api_key) == 0;
}

/* Takes over `a`. One that is the same as before is that one still, with all that it knows. */
static void use(struct cascade *c, struct cascade_access *a)
{
    bool same = c->access != NULL && a != NULL && cascade_access_is_same(c->access, a);
    cascade_access_unref(same ? a : c->access);
    if (!same)
        c->access = a;
    c->recheck = false;
}

/* ---- looking; on the lane ---- */

static bool look_for_server(struct cascade_lookup *l)
{
    struct cascade *c = l->cascade;
    struct cascade_access *a = l->access;
    struct cascade_found *found = secret_alloc(sizeof *found);
    int err = cascade_discover(c->setup.proc, getuid(), found, &l->why);
    if (err == 0) {
        l->pid = found->pid;
        a->found = true;
        snprintf(a->target, sizeof a->target, "http://127.0.0.1:%u", found->port);
        memcpy(a->version, found->version, sizeof a->version);
        memcpy(a->secrets->csrf_token, found->csrf_token, sizeof found->csrf_token);
    }
    secret_free(found, sizeof *found);
    return err == 0;
}

static const char *find_key(struct cascade_lookup *l)
{
    struct cascade_secrets *s = l->access->secrets;
    if (*s->api_key == '\0' &&
        editor_state_api_key(l->cascade->setup.state_file, s->api_key, &l->why) != 0)
        return "API_KEY_MISSING";
    const char *refusal = cascade_key_refusal(cascade_key_kind(str_of_cstr(s->api_key)));
    if (refusal == NULL)
        return NULL;
    buf_put(&l->why, str_of_cstr(refusal));
    return "API_KEY_MISSING";
}

/* What is given goes before what is found. */
static void cascade_access_run_look(struct job *j)
{
    struct cascade_lookup *l = container_of(j, struct cascade_lookup, job);
    const struct cascade *c = l->cascade;
    struct cascade_access *a = l->access;
    memcpy(a->target, c->target, sizeof a->target);
    if (*a->target == '\0' && !look_for_server(l)) {
        l->code = "NOT_RUNNING";
        return;
    }
    if (*c->version != '\0')
        memcpy(a->version, c->version, sizeof a->version);
    else if (*a->version == '\0')
        memcpy(a->version, CASCADE_VERSION_DEFAULT, sizeof CASCADE_VERSION_DEFAULT);
    if (*c->given->csrf_token != '\0')
        memcpy(a->secrets->csrf_token, c->given->csrf_token, sizeof a->secrets->csrf_token);
    memcpy(a->secrets->api_key, c->given->api_key, sizeof a->secrets->api_key);
    l->code = find_key(l);
}

/* ---- and back ---- */

static void cascade_access_on_looked(struct job *j)
{
    struct cascade_lookup *l = container_of(j, struct cascade_lookup, job);
    struct cascade *c = l->cascade;
    struct cascade_access *a = l->access;
    c->look = NULL;
    if (l->code == NULL) {
        a->csrf = (struct header){STR("x-codeium-csrf-token"), str_of_cstr(a->secrets->csrf_token)};
        use(c, a);
        if (l->pid != 0)
            trace(c->setup.trace, CASCADE_FOUND, TRACE_INT("pid", l->pid),
                  TRACE_STR("target", str_of_cstr(c->access->target)));
        cascade_notify_all(&c->lookers, NULL);
    } else {
        struct cascade_fault fault = {503, str_of_cstr(l->code), buf_str(&l->why)};
        trace(c->setup.trace, CASCADE_FAILED, TRACE_STR("error", fault.message));
        use(c, NULL);
        cascade_access_unref(a);
        cascade_notify_all(&c->lookers, &fault);
    }
    buf_deinit(&l->why);
    free(l);
    cascade_end(c);
}

void cascade_want_access(struct cascade *c, struct cascade_wait *w)
{
    if (c->access != NULL && !c->recheck) {
        w->done(w, NULL);
        return;
    }
    list_push(&c->lookers, &w->link);
    if (c->look != NULL)
        return;
    struct cascade_lookup *l = mem_zalloc(sizeof *l);
    l->cascade = c;
    l->access = access_new(c);
    l->job.run = cascade_access_run_look;
    l->job.done = cascade_access_on_looked;
    c->look = l;
    cascade_begin(c);
    lane_submit(c->setup.lane, &l->job);
}
