// SPDX-License-Identifier: Apache-2.0
#include "base/num.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "client/client_session_core.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#define RECONNECT_MS       1000
#define UNACKNOWLEDGED_MAX ((size_t)16 << 20)

/* ---- options ---- */

int sess_options(struct tm_client *c, const struct tm_session_options *o,
                 struct tm_session_options *out)
{
    struct tm_session_options all = {0};
    if (o != NULL && o->size < sizeof o->size)
        return client_fail(c, TM_E_INVALID, "session options without their size");
    if (o != NULL)
        memcpy(&all, o, o->size < sizeof all ? o->size : sizeof all);
    all.size = sizeof all;
    if (all.reconnect_ms == 0)
        all.reconnect_ms = RECONNECT_MS;
    if (all.unacknowledged_max == 0)
        all.unacknowledged_max = UNACKNOWLEDGED_MAX;
    if ((unsigned)all.service > TM_SERVICE_AISERVER || all.reconnect_ms < 0 || all.give_up_ms < 0)
        return client_fail(c, TM_E_INVALID, "a session option is out of range");
    if (all.generation != NULL && !utf8_valid(str_of_cstr(all.generation)))
        return client_fail(c, TM_E_INVALID, "the generation is not UTF-8");
    if (all.persist_idempotent_stream_state > 0 && all.state_dir == NULL)
        return client_fail(c, TM_E_INVALID, "to save a session's state, give a state_dir");
    *out = all;
    return 0;
}

static bool saves(const struct tm_session_options *o)
{
    return o->state_dir != NULL && o->persist_idempotent_stream_state >= 0 &&
           o->idempotent_agentic_composer >= 0;
}

static bool key_ok(struct str key)
{
    if (key.n == 0 || key.n > STATE_KEY_MAX)
        return false;
    for (size_t i = 0; i < key.n; i++)
        if (key.p[i] <= 0x20 || key.p[i] >= 0x7f || key.p[i] == '/' || key.p[i] == '%')
            return false;
    return true;
}

/* ---- beginning ---- */

static int no_memory(struct tm_client *c)
{
    return client_fail(c, TM_E_NOMEM, "%s", tm_error_text(TM_E_NOMEM));
}

/* A state of its own, as the options say. */
static int fill_state(struct tm_client *c, const struct tm_session_options *o, const char *key,
                      struct saved_state *state)
{
    state_init(state);
    state->service = o->service;
    state->created_ms = state->updated_ms = clock_wall_ms();
    state->key = client_copy(c, str_of_cstr(key));
    state->generation = client_copy(c, str_of_cstr(o->generation != NULL ? o->generation : key));
    if (state->key == NULL || state->generation == NULL)
        return no_memory(c);
    if (o->secret != NULL)
        memcpy(state->secret, o->secret, SECRET_SIZE);
    else if (RAND_bytes(state->secret, SECRET_SIZE) != 1)
        return client_fail(c, TM_E_IO, "there is no randomness for a secret");
    return 0;
}

/* What was saved under a key is the same session, so it must be meant. */
static int check_saved(struct tm_client *c, const struct tm_session_options *o,
                       const struct saved_state *state)
{
    if (state->service != o->service)
        return client_fail(c, TM_E_CONFLICT,
                           "the saved session of this key is of the other service");
    if (o->secret != NULL && CRYPTO_memcmp(o->secret, state->secret, SECRET_SIZE) != 0)
        return client_fail(c, TM_E_CONFLICT, "the saved session of this key has another secret");
    return 0;
}

static void note_init(struct session_notice *n, enum tm_event_kind kind)
{
    n->item.kind = kind;
    list_init(&n->item.link);
}

/* Where the program was when it saved the state. */
static void begin_at_saved(struct tm_session *s)
{
    const struct saved_state *state = &s->state;
    bool start = strcmp(state->event_id, "0") == 0;
    uint64_t no;
    memcpy(s->received.id, state->event_id, sizeof s->received.id);
    s->received.known = start || state->has_mac;
    if (state->has_mac)
        memcpy(s->received.mac, state->mac, MAC_SIZE);
    s->signs = state->has_mac;
    s->tried = !start || state->next_seqno > 0;
    if (num_parse_canonical(str_of_cstr(state->event_id), UINT64_MAX, &no) == 0)
        s->seen = no;
}

int sess_new(struct tm_client *c, const struct tm_session_options *o, struct saved_state *state,
             struct state_dir *dir, struct tm_session **out)
{
    struct tm_session *s = client_zalloc(c, sizeof *s);
    if (s == NULL || smac_derive(state->secret, str_of_cstr(state->key), s->mac_key) != 0 ||
        state_name(str_of_cstr(state->key), s->name) != 0) {
        client_free_secret(c, s, sizeof *s);
        state_deinit(c, state);
        state_dir_close(dir);
        return no_memory(c);
    }
    s->client = c;
    s->dir = *dir;
    s->saves = dir->fd >= 0;
    s->state = *state;
    list_init(&s->state.chunks);
    list_init(&s->state.results);
    list_splice(&s->state.chunks, &state->chunks);
    list_splice(&s->state.results, &state->results);
    OPENSSL_cleanse(state, sizeof *state);
    s->resumes = o->idempotent_agentic_composer >= 0;
    s->backoff = o->backoff != 0;
    s->reconnect_ms = (uint64_t)o->reconnect_ms;
    s->give_up_ms = (uint64_t)o->give_up_ms;
    s->unacknowledged_max = o->unacknowledged_max;
    list_init(&s->queue);
    note_init(&s->welcome, TM_EVENT_WELCOME);
    note_init(&s->reconnect, TM_EVENT_RECONNECT);
    note_init(&s->end, TM_EVENT_END);
    begin_at_saved(s);
    sess_run_init(s);
    sess_connect_soon(s);
    *out = s;
    return 0;
}

/* The saved state of this key if there is one, or a fresh one, which is not saved yet. */
static int open_saved(struct tm_client *c, const struct tm_session_options *o, const char *key,
                      struct state_dir *dir, struct saved_state *state, bool *fresh)
{
    char name[STATE_NAME_SIZE];
    unsigned dropped = 0;
    int err = state_dir_open(c, o->state_dir, true, dir);
    if (err == 0)
        err = state_name(str_of_cstr(key), name);
    if (err == 0)
        err = state_lock(c, dir, name);
    if (err == 0)
        err = state_load(c, dir, name, state, &dropped);
    if (err == 0 && dropped > 0)
        client_notice(c, "%u saved chunks could not be read and are left out", dropped);
    if (err == 0)
        return check_saved(c, o, state);
    if (err != TM_E_NOT_FOUND)
        return err;
    *fresh = true;
    return fill_state(c, o, key, state);
}

/* A fresh state is saved last: nothing may be found of a session that could not be made. */
static int new_saved(struct tm_client *c, const struct tm_session_options *o,
                     struct saved_state *state, struct state_dir *dir, bool fresh,
                     struct tm_session **out)
{
    struct tm_session *s;
    int err = sess_new(c, o, state, dir, &s);
    if (err == 0 && fresh && (err = state_save(c, &s->dir, &s->state)) != 0)
        tm_session_free(s);
    if (err == 0)
        *out = s;
    return err;
}

int tm_session_new(struct tm_client *c, const struct tm_session_options *options,
                   struct tm_session **out)
{
    struct tm_session_options o;
    struct saved_state state;
    struct state_dir dir = STATE_DIR_NONE;
    char random[SLINK_REQUEST_ID];
    int err = sess_options(c, options, &o);
    if (err == 0 && o.key == NULL && slink_uuid(random) != 0)
        err = client_fail(c, TM_E_IO, "there is no randomness for a key");
    if (err != 0)
        return err;
    const char *key = o.key != NULL ? o.key : random;
    if (!key_ok(str_of_cstr(key)))
        return client_fail(c, TM_E_INVALID,
                           "a session's key is 1 to 200 visible ASCII characters without / and %%");
    bool fresh = false;
    state_init(&state);
    err = saves(&o) ? open_saved(c, &o, key, &dir, &state, &fresh) : fill_state(c, &o, key, &state);
    if (err == 0)
        return new_saved(c, &o, &state, &dir, fresh, out);
    state_deinit(c, &state);
    state_dir_close(&dir);
    return err;
}

/* ---- sending ---- */

static int check_sending(struct tm_session *s)
{
    if (s->over || s->aborting)
        return client_fail(s->client, TM_E_CLOSED, "the session has ended");
    return 0;
}

static int check_chunk(struct tm_session *s, size_t n)
{
    if (s->state.finished)
        return client_fail(s->client, TM_E_CLOSED,
                           "the session was finished: nothing more is sent");
    if (n > s->unacknowledged_max || s->state.next_seqno > UINT32_MAX)
        return client_fail(s->client, TM_E_TOO_LARGE, "%s", tm_error_text(TM_E_TOO_LARGE));
    if (s->state.chunk_bytes + n > s->unacknowledged_max)
        return client_fail(s->client, TM_E_BUSY, "too much is waiting to be acknowledged");
    return 0;
}

/* Saved at once, with all that was to be saved later. */
static int save_now(struct tm_session *s)
{
    if (!s->saves)
        return 0;
    int err = state_save(s->client, &s->dir, &s->state);
    if (err == 0) {
        s->dirty = false;
        timer_stop(&s->save);
    }
    return err;
}

int tm_session_send(struct tm_session *s, const void *data, size_t n, uint32_t *seqno)
{
    struct saved_state *state = &s->state;
    int err = check_sending(s);
    if (err == 0)
        err = check_chunk(s, n);
    if (err != 0)
        return err;
    uint32_t no = (uint32_t)state->next_seqno;
    struct state_chunk *chunk = state_add_chunk(s->client, state, no, str_of(data, n));
    if (chunk == NULL)
        return no_memory(s->client);
    state->next_seqno++;
    err = save_now(s);
    if (err != 0) {
        client_free_secret(s->client, state_take_chunk(state, no), sizeof *chunk + n);
        state->next_seqno--;
        return err;
    }
    sess_send_chunk(s, chunk);
    if (seqno != NULL)
        *seqno = no;
    return 0;
}

int tm_session_finish(struct tm_session *s)
{
    int err = s->state.finished ? 0 : check_sending(s);
    if (err != 0 || s->state.finished)
        return err;
    s->state.finished = true;
    err = save_now(s);
    if (err != 0) {
        s->state.finished = false;
        return err;
    }
    sess_send_close(s);
    return 0;
}

int tm_session_abort(struct tm_session *s)
{
    if (!s->over && !s->aborting)
        sess_abort(s);
    return 0;
}

/* ---- events ---- */

static bool is_note(const struct tm_session *s, const struct state_item *item)
{
    return item == &s->welcome.item || item == &s->reconnect.item || item == &s->end.item ||
           item == &s->given.item;
}

static size_t item_bytes(const struct state_item *item)
{
    if (item->kind == TM_EVENT_CHUNK) {
        const struct received_chunk *h = container_of(item, struct received_chunk, item);
        return sizeof *h + h->n;
    }
    const struct state_chunk *chunk = container_of(item, struct state_chunk, item);
    return sizeof *chunk + chunk->n;
}

void sess_free_item(struct tm_session *s, struct state_item *item)
{
    if (item != NULL && !is_note(s, item))
        client_free_secret(s->client, item, item_bytes(item));
}

static struct state_item *pop(struct tm_session *s)
{
    struct state_item *item = list_item(s->queue.next, struct state_item, link);
    list_remove(&item->link);
    if (!is_note(s, item))
        s->queue_bytes -= item_bytes(item);
    return item;
}

void sess_drop_queue(struct tm_session *s)
{
    while (!list_empty(&s->queue))
        sess_free_item(s, pop(s));
}

/* The position that is saved is behind it from now on. */
static void move_position(struct tm_session *s, const struct received_chunk *h)
{
    struct saved_state *state = &s->state;
    memcpy(state->event_id, h->event_id, strlen(h->event_id) + 1);
    state->has_mac = h->verified;
    memcpy(state->mac, h->mac, MAC_SIZE);
    state_clear_results(s->client, state);
    sess_dirty(s);
}

/* There is nothing to come back for. Other ends leave the state where it is: the session may be
 * somebody else's now, or be there again when the reason has gone. */
static bool is_settled(int err)
{
    return err == 0 || err == TM_E_CANCELLED || err == TM_E_FAILED || err == TM_E_EXPIRED ||
           err == TM_E_NOT_FOUND || err == TM_E_GAP;
}

static void consume_current(struct tm_session *s)
{
    struct state_item *item = s->current;
    s->current = NULL;
    if (item == NULL)
        return;
    if (item->kind == TM_EVENT_CHUNK) {
        const struct received_chunk *h = container_of(item, struct received_chunk, item);
        if (h->moves && h->event_id[0] != '\0')
            move_position(s, h);
    } else if (item->kind == TM_EVENT_END && is_settled(s->given.err)) {
        sess_drop_state(s); /* all events were dealt with, or nobody wanted them */
    }
    sess_free_item(s, item);
}

static void fill_chunk(struct tm_event *out, const struct received_chunk *h)
{
    out->data = h->data;
    out->n = h->n;
    out->event_id = h->event_id;
    out->text = h->text;
    out->thinking = h->thinking;
    out->tool_call_id = h->tool_call_id;
    out->verified = h->verified;
}

static void fill_note(struct tm_session *s, struct tm_event *out, struct session_notice *n)
{
    s->given = *n;
    s->current = &s->given.item;
    out->text = s->given.text;
    out->err = n->err;
    out->degraded = n->degraded;
    s->closed = s->closed || n == &s->end;
}

static void fill_event(struct tm_session *s, struct state_item *item, struct tm_event *out)
{
    *out = (struct tm_event){.kind = item->kind,
                             .event_id = "",
                             .text = "",
                             .thinking = "",
                             .tool_call_id = "",
                             .degraded = s->degraded};
    s->current = item;
    if (item->kind == TM_EVENT_CHUNK)
        fill_chunk(out, container_of(item, struct received_chunk, item));
    else if (item->kind == TM_EVENT_ACK)
        out->seqno = container_of(item, struct state_chunk, item)->seqno;
    else
        fill_note(s, out, container_of(item, struct session_notice, item));
}

int tm_session_next(struct tm_session *s, struct tm_event *out)
{
    consume_current(s);
    if (!list_empty(&s->queue)) {
        fill_event(s, pop(s), out);
        return 1;
    }
    if (s->full) {
        s->full = false;
        sess_connect_soon(s);
    }
    return s->closed ? client_fail(s->client, TM_E_CLOSED, "the session has ended") : 0;
}

static bool client_session_has_event(void *session)
{
    struct tm_session *s = session;
    return !list_empty(&s->queue);
}

int tm_session_wait(struct tm_session *s, struct tm_event *out, int timeout_ms)
{
    int found = tm_session_next(s, out);
    if (found != 0)
        return found;
    int err = client_wait_for(s->client, client_session_has_event, s, timeout_ms);
    return err == TM_E_TIMEOUT ? 0 : err != 0 ? err : tm_session_next(s, out);
}

/* ---- looking at it ---- */

const char *tm_session_key(const struct tm_session *s)
{
    return s->state.key;
}

const uint8_t *tm_session_secret(const struct tm_session *s)
{
    return s->state.secret;
}

const char *tm_session_event_id(const struct tm_session *s)
{
    return s->state.event_id;
}

enum tm_service tm_session_service(const struct tm_session *s)
{
    return s->state.service;
}

uint64_t tm_session_next_seqno(const struct tm_session *s)
{
    return s->state.next_seqno;
}

size_t tm_session_unacknowledged(const struct tm_session *s)
{
    return s->state.n_chunks;
}

/* ---- results of tool calls ---- */

int tm_session_put_result(struct tm_session *s, const char *tool_call_id, const void *data,
                          size_t n)
{
    struct str id = str_of_cstr(tool_call_id);
    if (id.n == 0 || !utf8_valid(id))
        return client_fail(s->client, TM_E_INVALID, "a tool call's id is a text, not empty");
    int err = state_put_result(s->client, &s->state, id, str_of(data, n));
    if (err != 0)
        return client_fail(s->client, err, "%s", tm_error_text(err));
    return save_now(s);
}

int tm_session_get_result(struct tm_session *s, const char *tool_call_id, const void **data,
                          size_t *n)
{
    const struct state_result *r = state_get_result(&s->state, str_of_cstr(tool_call_id));
    if (r == NULL)
        return 0;
    *data = r->bytes + r->id_n + 1;
    *n = r->n;
    return 1;
}

/* ---- letting go ---- */

void tm_session_free(struct tm_session *s)
{
    if (s == NULL)
        return;
    struct tm_client *c = s->client;
    if (s->closed)
        consume_current(s);
    if (s->dirty && s->saves && state_save(c, &s->dir, &s->state) != 0)
        client_notice(c, "%s", c->error);
    sess_run_deinit(s);
    sess_free_item(s, s->current);
    sess_drop_queue(s);
    state_deinit(c, &s->state);
    state_dir_close(&s->dir);
    client_free_secret(c, s, sizeof *s);
}
