// SPDX-License-Identifier: Apache-2.0
/* session_own.c -- which of several processes has a session.
 *
 * The one that the document names drives its backend, and its copy in memory is right. Another one
 * to which the client has come takes the session over when it reads it (session_open.c), and tells
 * this one by a record in `in`: it watches that stream. A notice that got lost does no harm: its
 * next write is refused, and a client that comes back is admitted only after a look at the
 * document.
 *
 *     UNWATCHED --it is loaded-----------------------> SURE
 *     SURE      --`in` changed-----------------------> DOUBTED
 *     DOUBTED   --no write of ours is under way------> LOOKING
 *     LOOKING   --still ours-------------------------> SURE
 *     LOOKING   --failed, or was too late------------> DOUBTED
 *     LOOKING   --`in` changed again-----------------> LOOKING_DOUBTED --looked--> DOUBTED
 *     each      --the session dies, taken away or not--> UNWATCHED
 */
#include "base/err.h"
#include "stream/instances.h"
#include "feature/sessions/session_visit.h"

bool session_is_shared(const struct session *s)
{
    return s->all->setup.instances != NULL && !session_is_degraded(s);
}

bool session_is_anothers(const struct session *s)
{
    return session_is_shared(s) && s->doc.owner != instances_id(s->all->setup.instances);
}

/* ---- is it being taken away? ---- */

void session_taken(struct session *s)
{
    list_each_safe (l, &s->waiting)
        session_visit_over(list_item(l, struct session_visit, link), SESSION_FAILED, ERR_VERSION);
    session_kill(s, SESSION_REPLACED, 0);
}

static void session_own_on_stat(struct store_stat *st, int err)
{
    struct session *s = container_of(st, struct session, stat);
    /* Otherwise nothing was found out about what we have now. */
    bool found =
        err == 0 && session_is_open(s) && s->in.going == NULL && s->in.tail == s->stat_tail;
    if (s->own != SESSION_OWN_UNWATCHED)
        s->own = s->own == SESSION_OWN_LOOKING && found ? SESSION_OWN_SURE : SESSION_OWN_DOUBTED;
    if (found && (st->info.life != s->in.life || st->info.tail != s->in.tail))
        session_taken(s);
    if (err == 0)
        session_own_look(s);
    session_release(s);
}

void session_own_look(struct session *s)
{
    if (s->own != SESSION_OWN_DOUBTED || session_is_degraded(s) || !session_is_open(s) ||
        s->in.going != NULL)
        return;
    s->own = SESSION_OWN_LOOKING;
    s->stat_tail = s->in.tail;
    s->stat = (struct store_stat){.name = s->in.name, .done = session_own_on_stat};
    session_hold(s);
    store_stat(s->home->store, &s->stat);
}

static void session_own_on_changed(struct store_watch *w, struct str name)
{
    struct session *s = container_of(w, struct session, watch);
    bool looking = s->own == SESSION_OWN_LOOKING || s->own == SESSION_OWN_LOOKING_DOUBTED;
    s->own = looking ? SESSION_OWN_LOOKING_DOUBTED : SESSION_OWN_DOUBTED;
    writer_retry_now(&s->in.writer); /* which finds out as well as a look does */
    session_own_look(s);
}

/* With workers there is nothing here that would have to be stopped. */
void session_own_watch(struct session *s)
{
    if (!session_is_shared(s) || s->own != SESSION_OWN_UNWATCHED || s->all->setup.backend == NULL)
        return;
    s->own = SESSION_OWN_SURE;
    s->watch = (struct store_watch){.name = s->in.name, .changed = session_own_on_changed};
    store_watch(s->home->store, &s->watch);
}

void session_own_unwatch(struct session *s)
{
    if (s->own != SESSION_OWN_UNWATCHED)
        store_unwatch(s->all->durable.store, &s->watch);
    s->own = SESSION_OWN_UNWATCHED;
}

/* ---- is it still ours? ---- */

static void session_own_on_checked(struct store_docs *d, int err)
{
    struct session *s = container_of(d, struct session, check);
    struct session_doc doc = {0};
    s->checking = false;
    err = session_doc_found(d, err, &doc);
    bool ours = err == 0 && doc.owner == s->doc.owner && doc.out_life == s->doc.out_life;
    if (session_is_open(s) && !ours)
        session_kill(s, SESSION_FAILED, err != 0 ? err : ERR_VERSION); /* it is read anew then */
    else if (session_is_open(s))
        sched_post(s->all->setup.sched, &s->admit);
    session_release(s);
}

void session_own_admit(struct session *s)
{
    if (!session_is_shared(s)) {
        sched_post(s->all->setup.sched, &s->admit);
        return;
    }
    if (s->checking)
        return;
    s->checking = true;
    session_hold(s);
    session_doc_ask(s, &s->check, session_own_on_checked);
}
