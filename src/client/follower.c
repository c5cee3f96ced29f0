// SPDX-License-Identifier: Apache-2.0
/* A follower makes one request after another, each from the last position it knows: catch-up reads
 * until the tail, then live ones. What it hands over is counted from that position on, in values
 * (JSON) or bytes; when a connection breaks half-way, the next answer begins at the same position
 * again, and just as much of it is passed over. */
#include "base/b64.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "client/backoff.h"
#include "client/client.h"
#include "client/json_values.h"
#include "client/request.h"
#include "http/sse_parse.h"
#include "store/content.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* An answer that came sooner, with nothing new, is not asked for again at once. */
#define SOON_MS 200

struct client_follower {
    struct client *client;
    char *name;
    struct client_follow_options options; /* but for `from` */
    struct client_state state;            /* next_offset: the position */
    char cursor[CLIENT_CURSOR_SIZE];
    enum content_kind kind; /* as of the first answer */
    bool live;              /* caught up once */
    bool polls;             /* live by long-polling, not SSE */
    bool at_tail;
    uint64_t handed; /* values or bytes handed over past the position */
    uint64_t seen;   /* of this answer, past the position */
    bool moved;      /* this answer brought something */
    bool leave;      /* this answer has done its work: its end is no failure */
    struct json_values values;
    struct sse_parser sse;
    struct buf decoded, scratch;
    struct backoff backoff;
    uint64_t last_good_ms; /* when the server last answered well */
};

/* -- handing over ----------------------------------------------------------------------------- */

static int call_data(struct client_follower *f, struct str data)
{
    f->moved = true;
    return f->options.data(f->options.user, data.p, data.n) == 0 ? 0 : ERR_CANCELLED;
}

static int hand_value(void *user, struct str value)
{
    struct client_follower *f = user;
    if (f->seen++ < f->handed)
        return 0;
    f->handed++;
    return call_data(f, value);
}

static int hand_bytes(struct client_follower *f, struct str bytes)
{
    uint64_t known = f->handed - f->seen;
    f->seen += bytes.n;
    if (bytes.n <= known)
        return 0;
    f->handed = f->seen;
    return call_data(f, str_skip(bytes, known));
}

/* All before `next` is handed over, and maybe more, if the answer before this one broke off. */
static int advance(struct client_follower *f, const char *next, bool up_to_date)
{
    struct client *c = f->client;
    if (*next == '\0' || strlen(next) >= sizeof f->state.next_offset)
        return client_fail(c, ERR_SYNTAX, "%s does not answer as a stream server does", c->server);
    f->handed -= f->seen;
    f->seen = 0;
    f->moved = f->moved || strcmp(next, f->state.next_offset) != 0;
    f->at_tail = up_to_date;
    snprintf(f->state.next_offset, sizeof f->state.next_offset, "%s", next);
    if (f->options.position && f->options.position(f->options.user, next, up_to_date) != 0)
        return ERR_CANCELLED;
    return 0;
}

/* -- gaps ------------------------------------------------------------------------------------- */

static const char *text_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int go_on_from(struct client_follower *f, const char *earliest)
{
    /* To be sent where we were just sent away from would go on for ever. */
    if (strcmp(earliest, f->state.next_offset) == 0)
        return client_fail(f->client, ERR_GAP, "%s cannot read its own earliest position %s",
                           f->client->server, earliest);
    snprintf(f->state.next_offset, sizeof f->state.next_offset, "%s", earliest);
    f->handed = f->seen = 0;
    *f->cursor = '\0';
    f->live = f->at_tail = false;
    f->moved = f->leave = true;
    return 0;
}

/* ERR_SYNTAX: this is no gap, and the error text is left as it is. */
static int take_gap(struct client_follower *f, struct str text)
{
    json_t *doc = json_loadb(text.p ? text.p : "", text.n, 0, NULL);
    json_t *object = json_object_get(doc, "gap");
    struct client_gap gap = {
        .requested = text_in(object, "requested"),
        .earliest = text_in(object, "earliest"),
        .reason = text_in(object, "reason"),
        .snapshot = text_in(object, "snapshot"),
    };
    int err = ERR_SYNTAX;
    if (gap.requested && gap.earliest && gap.reason &&
        strlen(gap.earliest) < sizeof f->state.next_offset) {
        err = client_fail(f->client, ERR_GAP,
                          "what stood at %s can no longer be read (%s); the earliest position is "
                          "now %s",
                          gap.requested, gap.reason, gap.earliest);
        if (f->options.gap)
            err = f->options.gap(f->options.user, &gap) == 0 ? go_on_from(f, gap.earliest)
                                                             : ERR_CANCELLED;
    }
    json_decref(doc);
    return err;
}

/* -- live events ------------------------------------------------------------------------------ */

/* Padded base64 over any number of lines into f->decoded. The decoder of the unpadded alphabet is
 * the strict one, so the text is brought to that form. */
static int decode(struct client_follower *f, struct str text)
{
    struct buf *plain = &f->scratch;
    plain->n = f->decoded.n = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '-' || c == '_')
            return ERR_SYNTAX;
        if (c != '\n')
            buf_putc(plain, c == '+' ? '-' : c == '/' ? '_' : c);
    }
    if (plain->n % 4 != 0)
        return ERR_SYNTAX;
    for (int i = 0; i < 2 && plain->n > 0 && plain->p[plain->n - 1] == '='; i++)
        plain->n--;
    return b64url_take(&f->decoded, buf_str(plain));
}

static int take_data_event(struct client_follower *f, struct str data)
{
    if (f->kind != CONTENT_JSON) {
        if (decode(f, data) != 0)
            return client_fail(f->client, ERR_SYNTAX, "%s sent broken base64", f->client->server);
        return hand_bytes(f, buf_str(&f->decoded));
    }
    json_values_reset(&f->values);
    int err = json_values_feed(&f->values, data);
    return err ? err : json_values_end(&f->values);
}

static void keep_end(struct client_follower *f, const char *reason)
{
    f->state.closed = true;
    snprintf(f->state.end_reason, sizeof f->state.end_reason, "%s", reason ? reason : "");
}

static int take_control_event(struct client_follower *f, struct str data)
{
    json_t *doc = json_loadb(data.p ? data.p : "", data.n, 0, NULL);
    const char *next = text_in(doc, "streamNextOffset");
    const char *cursor = text_in(doc, "streamCursor");
    bool closed = json_is_true(json_object_get(doc, "streamClosed"));
    if (cursor)
        snprintf(f->cursor, sizeof f->cursor, "%s", cursor);
    if (closed)
        keep_end(f, text_in(doc, "endReason"));
    int err =
        advance(f, next ? next : "", closed || json_is_true(json_object_get(doc, "upToDate")));
    json_decref(doc);
    f->leave = f->leave || (err == 0 && closed);
    return err;
}

static int take_gap_event(struct client_follower *f, struct str data)
{
    int err = take_gap(f, data);
    if (err == ERR_SYNTAX)
        return client_fail(f->client, ERR_GAP, "%s reports a gap that cannot be understood",
                           f->client->server);
    return err;
}

static int take_event(void *user, const struct sse_event *event)
{
    struct client_follower *f = user;
    int err = 0;
    if (str_eq(event->type, STR("data")))
        err = take_data_event(f, event->data);
    else if (str_eq(event->type, STR("control")))
        err = take_control_event(f, event->data);
    else if (str_eq(event->type, STR("gap")))
        err = take_gap_event(f, event->data);
    return err == 0 && f->leave ? ERR_CANCELLED : err;
}

/* -- one request ------------------------------------------------------------------------------ */

static bool is_sse(const struct client_follower *f)
{
    return f->live && !f->polls;
}

/* The content type is the stream's own in all answers but SSE. */
static void learn_type(struct client_follower *f, const struct client_answer *a)
{
    if (*f->state.content_type || *a->state.content_type == '\0' || is_sse(f))
        return;
    memcpy(f->state.content_type, a->state.content_type, sizeof f->state.content_type);
    f->kind = content_kind(str_of_cstr(f->state.content_type));
    f->polls = f->kind == CONTENT_TEXT;
}

static int take_sse(struct client_follower *f, const struct client_answer *a, struct str bytes)
{
    if (f->kind != CONTENT_JSON && !a->base64) {
        f->polls = true; /* bytes as bare text do not survive SSE */
        f->leave = true;
        return ERR_CANCELLED;
    }
    return sse_parser_feed(&f->sse, bytes);
}

static int take_body(struct client_request *r, struct str bytes)
{
    struct client_follower *f = r->user;
    int err;
    learn_type(f, &r->answer);
    if (is_sse(f))
        err = take_sse(f, &r->answer, bytes);
    else if (f->kind == CONTENT_JSON)
        err = json_values_feed(&f->values, bytes);
    else
        err = hand_bytes(f, bytes);
    if (err == ERR_JSON || err == ERR_TOO_LARGE)
        client_fail(f->client, err, "%s sent what cannot be used: %s", f->client->server,
                    err == ERR_JSON ? "this is not JSON" : "a value above the limit");
    return err;
}

static void prepare(struct client_follower *f, struct client_request *r)
{
    client_request_init(r, f->client, "GET", f->name);
    client_request_param(r, "offset", str_of_cstr(f->state.next_offset));
    if (f->live)
        client_request_param(r, "live", is_sse(f) ? STR("sse") : STR("long-poll"));
    if (f->live && *f->cursor)
        client_request_param(r, "cursor", str_of_cstr(f->cursor));
    r->live = f->live;
    r->user = f;
    r->on_body = take_body;
    f->seen = 0;
    f->moved = f->leave = f->at_tail = false;
    json_values_reset(&f->values);
    sse_parser_reset(&f->sse);
}

/* A whole answer that is not SSE: its headers say where it ends. */
static int finish_read(struct client_follower *f, const struct client_answer *a)
{
    learn_type(f, a);
    if (!a->framed)
        return client_fail(f->client, ERR_SYNTAX, "%s does not say where its answers end",
                           f->client->server);
    bool is_empty = f->values.state == JSON_VALUES_BEFORE;
    if (f->kind == CONTENT_JSON && !is_empty && json_values_end(&f->values) != 0)
        return client_fail(f->client, ERR_JSON, "%s sent half a JSON array", f->client->server);
    if (*a->cursor)
        memcpy(f->cursor, a->cursor, sizeof f->cursor);
    if (a->state.closed)
        keep_end(f, a->state.end_reason);
    int err = advance(f, a->state.next_offset, a->up_to_date || a->state.closed);
    /* An answer with nothing new is at the tail, whether it says so or not. */
    f->at_tail = f->at_tail || !f->moved;
    return err;
}

static int refused(struct client_follower *f, const struct client_answer *a, int err)
{
    if (a->status == 410) {
        int gap = take_gap(f, buf_str(&a->body));
        return gap == ERR_SYNTAX ? err : gap;
    }
    /* Of what a follower sends, only the offset can be wrong. */
    return a->status == 400 && err == ERR_SYNTAX ? ERR_OFFSET : err;
}

/* One request from the position on. *again: it failed in a way that may pass. */
static int read_on(struct client_follower *f, uint64_t *wait_ms, bool *again)
{
    struct client_request r;
    prepare(f, &r);
    bool sse = is_sse(f);
    int err = client_request_run(&r);
    *wait_ms = r.answer.retry_after_ms;
    *again = client_request_may_retry(&r, err);
    /* Whether the client of a sealed session comes back, nobody knows: only who follows can wait.
     */
    if (err == ERR_KEY_ABSENT && f->options.stop_at_tail)
        *again = false;
    if (f->leave && err == ERR_CANCELLED)
        err = 0;
    else if (err == 0 && !sse)
        err = finish_read(f, &r.answer);
    else if (err && r.answer.status >= 400)
        err = refused(f, &r.answer, err);
    client_request_deinit(&r);
    return err;
}

/* -- the run ---------------------------------------------------------------------------------- */

/* After an answer: closed streams end, and a reader who has caught up goes live. */
static bool is_over(struct client_follower *f)
{
    if (f->state.closed && f->at_tail)
        return true;
    if (f->options.stop_at_tail)
        return f->at_tail;
    f->live = f->live || f->at_tail;
    return false;
}

static void note_good(struct client_follower *f)
{
    f->last_good_ms = clock_mono_ms();
    backoff_reset(&f->backoff);
}

static int wait_after_failure(struct client_follower *f, int err, uint64_t least_ms)
{
    struct client *c = f->client;
    if (f->moved)
        note_good(f);
    uint64_t wait = backoff_next(&f->backoff, least_ms, rand_u64());
    uint64_t limit = f->options.retry_for_ms;
    if (limit && clock_mono_ms() - f->last_good_ms + wait > limit)
        return client_fail(c, err, "%s; gave up after %llu s", c->error,
                           (unsigned long long)limit / 1000);
    client_notice(c, "%s; trying again in %.1f s", c->error, (double)wait / 1000);
    return client_wait(c, wait);
}

/* An answer that brought nothing, and that soon, must not be asked for in a tight loop. */
static int pace(struct client_follower *f, uint64_t began_ms)
{
    if (!f->moved && f->live && clock_mono_ms() - began_ms < SOON_MS) {
        f->last_good_ms = clock_mono_ms();
        return client_wait(f->client, backoff_next(&f->backoff, 0, rand_u64()));
    }
    note_good(f);
    return 0;
}

int client_follower_run(struct client_follower *f)
{
    f->last_good_ms = clock_mono_ms();
    for (;;) {
        uint64_t began = clock_mono_ms(), least_ms;
        bool again, was_live = f->live;
        int err = read_on(f, &least_ms, &again);
        if (err == 0 && is_over(f))
            return 0;
        if (err == 0 && was_live == f->live)
            err = pace(f, began);
        else if (again)
            err = wait_after_failure(f, err, least_ms);
        if (err)
            return err;
    }
}

struct client_follower *client_follower_new(struct client *c, const char *name,
                                            const struct client_follow_options *options)
{
    struct client_follower *f = mem_zalloc(sizeof *f);
    const char *from = options->from ? options->from : "start";
    f->client = c;
    f->name = client_copy(str_of_cstr(name));
    f->options = *options;
    f->options.from = NULL;
    /* An offset too long for the buffer is cut, and the server will not know it either. */
    snprintf(f->state.next_offset, sizeof f->state.next_offset, "%s",
             strcmp(from, "start") == 0 ? "-1" : from);
    f->backoff =
        (struct backoff){.first_ms = c->options.retry_first_ms, .max_ms = c->options.retry_max_ms};
    json_values_init(&f->values, c->options.value_max, f, hand_value);
    sse_parser_init(&f->sse, c->options.value_max, f, take_event);
    return f;
}

void client_follower_free(struct client_follower *f)
{
    if (f == NULL)
        return;
    json_values_deinit(&f->values);
    sse_parser_deinit(&f->sse);
    buf_deinit(&f->decoded);
    buf_deinit(&f->scratch);
    free(f->name);
    free(f);
}

const struct client_state *client_follower_state(const struct client_follower *f)
{
    return &f->state;
}
