// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/must.h"
#include "feature/sessions/sessions_http_core.h"

#include <stdlib.h>

static struct channel *channel_of(struct session_client *c)
{
    return container_of(c, struct channel, client);
}

/* ---- by name ---- */

/* service, proof, bytes of the request id, request id, caller: no two names look the same. */
static struct buf name_text(const struct channel_name *name)
{
    struct buf text = {0};
    must(name->request_id.n <= SESSION_REQUEST_ID_MAX);
    buf_putc(&text, (char)name->service);
    buf_put(&text, str_of((const char *)name->proof, SESSION_PROOF_SIZE));
    buf_putc(&text, (char)name->request_id.n);
    buf_put(&text, name->request_id);
    buf_put(&text, name->caller);
    return text;
}

struct channel *channel_find(struct sessions_http *s, const struct channel_name *name)
{
    struct buf text = name_text(name);
    struct channel *ch = map_get(&s->channels, buf_str(&text));
    buf_deinit(&text);
    return ch;
}

static void session_channel_on_timer(struct timer *t);

static struct channel *channel_new(struct sessions_http *s, const struct channel_name *name)
{
    struct buf text = name_text(name);
    struct channel *ch = mem_zalloc(sizeof *ch + text.n);
    ch->surface = s;
    ch->name_n = text.n;
    memcpy(ch->name, text.p, text.n);
    buf_deinit(&text);
    timer_init(&ch->timer, session_channel_on_timer);
    list_init(&ch->said);
    list_init(&ch->idle);
    list_push(&s->idle, &ch->idle);
    map_put(&s->channels, str_of(ch->name, ch->name_n), ch);
    return ch;
}

/* The longest idle that nobody waits for. */
static bool session_channel_make_room(struct sessions_http *s)
{
    list_each (l, &s->idle) {
        struct channel *ch = list_item(l, struct channel, idle);
        if (ch->n_waiting == 0) {
            channel_free(ch);
            return true;
        }
    }
    return false;
}

struct channel *channel_get(struct sessions_http *s, const struct channel_name *name)
{
    struct channel *ch = channel_find(s, name);
    if (ch != NULL)
        return ch;
    if (s->channels.n >= CHANNEL_MAX && !session_channel_make_room(s))
        return NULL;
    return channel_new(s, name);
}

/* ---- appends ---- */

static void answer_settled(struct channel *ch)
{
    uint64_t settled = session_settled(&ch->client);
    while (!list_empty(&ch->said)) {
        struct session_append_call *a = list_item(ch->said.next, struct session_append_call, link);
        if (a->ordinal > settled)
            return;
        append_answer(a);
    }
}

static void session_channel_on_settled(struct session_client *c)
{
    answer_settled(channel_of(c));
}

void channel_deliver(struct channel *ch)
{
    struct session_append_call *a;
    if (!channel_is_attached(ch))
        return;
    while (session_room(&ch->client) && (a = session_window_peek(&ch->window)) != NULL) {
        session_window_advance(&ch->window);
        session_receive(&ch->client, buf_str(&a->data));
        append_delivered(a, ++ch->n_said);
    }
    answer_settled(ch); /* what was said before need not be written again */
}

static void end_appends(struct channel *ch, const struct rpc_status *status)
{
    struct session_append_call *a;
    while (!list_empty(&ch->said))
        append_end(list_item(ch->said.next, struct session_append_call, link), status);
    while ((a = session_window_take(&ch->window)) != NULL)
        append_end(a, status);
}

static void appends_are_due(struct channel *ch)
{
    for (size_t i = 0; i < sizeof ch->window.held / sizeof *ch->window.held; i++)
        if (ch->window.held[i] != NULL)
            append_is_due(ch->window.held[i]);
}

/* ---- its downlink ---- */

static void session_channel_on_ready(struct session_client *c)
{
    struct channel *ch = channel_of(c);
    channel_deliver(ch);
    if (ch->downlink != NULL)
        downlink_wake(ch->downlink);
}

static const struct session_client_ops client_ops = {.ready = session_channel_on_ready,
                                                     .settled = session_channel_on_settled};

static void session_channel_detach(struct channel *ch, enum session_refusal appends)
{
    struct session_status status;
    session_status_refusal(&status, appends);
    channel_detach(ch, CHANNEL_LINGERING, &status.rpc);
    session_status_deinit(&status);
}

static void session_channel_replace(struct channel *ch)
{
    struct session_downlink *d = ch->downlink;
    session_channel_detach(ch, REFUSE_DOWNLINK_GONE);
    if (d == NULL)
        return;
    struct session_status status;
    session_status_refusal(&status, REFUSE_REPLACED);
    downlink_end(d, &status.rpc);
    session_status_deinit(&status);
}

void channel_attach(struct channel *ch, enum channel_state state, struct session_downlink *d,
                    struct session_headers *h, enum session_service service)
{
    if (channel_is_attached(ch))
        session_channel_replace(ch);
    timer_stop(&ch->timer);
    list_remove(&ch->idle);
    ch->state = state;
    ch->downlink = d;
    ch->position = h->position;
    ch->polls_given = 0;
    ch->n_said = 0;
    ch->client = (struct session_client){.ops = &client_ops};
    session_connect_headers(ch->surface, &ch->client, h, service);
    appends_are_due(ch);
    channel_deliver(ch);
}

void channel_detach(struct channel *ch, enum channel_state state, const struct rpc_status *appends)
{
    must(channel_is_attached(ch));
    end_appends(ch, appends);
    session_disconnect(&ch->client);
    ch->window = (struct session_window){0};
    ch->state = state;
    ch->downlink = NULL;
    list_push(&ch->surface->idle, &ch->idle);
    sched_start(ch->surface->sched, &ch->timer, CHANNEL_LINGER_MS);
}

void channel_drop(struct channel *ch)
{
    session_channel_detach(ch, REFUSE_DOWNLINK_GONE);
}

static void session_channel_on_timer(struct timer *t)
{
    struct channel *ch = container_of(t, struct channel, timer);
    if (channel_is_attached(ch))
        channel_drop(ch); /* nobody polls any more */
    else
        channel_free(ch);
}

void channel_tidy(struct channel *ch)
{
    if (ch->state == CHANNEL_NEW && ch->n_waiting == 0)
        channel_free(ch);
}

void channel_free(struct channel *ch)
{
    map_remove(&ch->surface->channels, str_of(ch->name, ch->name_n));
    channel_release(ch);
}

void channel_release(struct channel *ch)
{
    struct session_status status;
    must(ch->downlink == NULL);
    session_status_refusal(&status, REFUSE_DOWNLINK_GONE);
    end_appends(ch, &status.rpc);
    session_status_deinit(&status);
    if (channel_is_attached(ch))
        session_disconnect(&ch->client);
    timer_stop(&ch->timer);
    list_remove(&ch->idle);
    free(ch);
}
