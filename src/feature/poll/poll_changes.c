// SPDX-License-Identifier: Apache-2.0
#include "feature/poll/poll_changes.h"
#include "base/backoff.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/pack.h"
#include "base/utf8.h"
#include "base/json_view.h"

#include <stdio.h>
#include <stdlib.h>

#define POSITION_VERSION 1

/* ---- places ---- */

void poll_position_deinit(struct poll_position *p)
{
    buf_deinit(&p->etag);
    buf_deinit(&p->cursor);
    buf_deinit(&p->seen);
    *p = (struct poll_position){0};
}

void poll_position_copy(struct poll_position *to, const struct poll_position *from)
{
    *to = (struct poll_position){.length = from->length, .begun = from->begun};
    memcpy(to->digest, from->digest, sizeof to->digest);
    buf_put(&to->etag, buf_str(&from->etag));
    buf_put(&to->cursor, buf_str(&from->cursor));
    buf_put(&to->seen, buf_str(&from->seen));
}

void poll_position_put(struct buf *out, const struct poll_position *p)
{
    pack_u64(out, POSITION_VERSION);
    pack_u64(out, p->begun);
    pack_u64(out, p->length);
    pack_str(out, str_of((const char *)p->digest, sizeof p->digest));
    pack_str(out, buf_str(&p->etag));
    pack_str(out, buf_str(&p->cursor));
    pack_str(out, buf_str(&p->seen));
}

int poll_position_take(struct str bytes, struct poll_position *out)
{
    struct unpack u = {.rest = bytes};
    *out = (struct poll_position){0};
    uint64_t version = unpack_u64(&u);
    bool begun = unpack_bool(&u);
    uint64_t length = unpack_u64(&u);
    struct str digest = unpack_str(&u);
    struct str etag = unpack_str(&u), cursor = unpack_str(&u), seen = unpack_str(&u);
    if (unpack_end(&u) != 0 || version != POSITION_VERSION || digest.n != sizeof out->digest ||
        seen.n % POLL_KEY_SIZE != 0 || seen.n > (size_t)POLL_SEEN_MAX * POLL_KEY_SIZE)
        return ERR_CORRUPT;
    out->begun = begun;
    out->length = length;
    memcpy(out->digest, digest.p, sizeof out->digest);
    buf_put(&out->etag, etag);
    buf_put(&out->cursor, cursor);
    buf_put(&out->seen, seen);
    return 0;
}

/* ---- pointers ---- */

bool poll_pointer_ok(struct str pointer)
{
    if (pointer.n > 0 && pointer.p[0] != '/')
        return false;
    for (size_t i = 0; i < pointer.n; i++) {
        bool escaped = i + 1 < pointer.n && (pointer.p[i + 1] == '0' || pointer.p[i + 1] == '1');
        if (pointer.p[i] == '~' && !escaped)
            return false;
    }
    return utf8_valid(pointer);
}

static void unescape_token(struct str token, struct buf *out)
{
    for (size_t i = 0; i < token.n; i++) {
        char c = token.p[i];
        if (c == '~')
            c = token.p[++i] == '0' ? '~' : '/';
        buf_putc(out, c);
    }
}

static struct str member_of(struct str object, struct str wanted)
{
    struct str rest = view_inside(object), name, value, found = STR_NONE;
    struct buf decoded = {0};
    while (view_member(&rest, &name, &value)) {
        decoded.n = 0;
        view_decode(name, &decoded);
        if (str_eq(buf_str(&decoded), wanted))
            found = value;
    }
    buf_deinit(&decoded);
    return found;
}

static struct str element_of(struct str array, struct str wanted)
{
    uint64_t index;
    struct str rest = view_inside(array), value;
    if (num_parse_canonical(wanted, UINT32_MAX, &index) != 0)
        return STR_NONE;
    while (view_element(&rest, &value))
        if (index-- == 0)
            return value;
    return STR_NONE;
}

/* An empty run if there is nothing at this place. */
static struct str look_up(struct str value, struct str pointer)
{
    struct buf token = {0};
    struct str rest = str_skip(pointer, pointer.n > 0);
    while (pointer.n > 0 && rest.p != NULL && value.n > 0) {
        token.n = 0;
        unescape_token(str_cut(&rest, '/'), &token);
        switch (view_type(value)) {
        case VIEW_OBJECT: value = member_of(value, buf_str(&token)); break;
        case VIEW_ARRAY: value = element_of(value, buf_str(&token)); break;
        default: value = STR_NONE;
        }
    }
    buf_deinit(&token);
    return value;
}

/* ---- events ---- */

static void end_event(struct buf *events, struct buf *ends)
{
    buf_putc(events, ',');
    uint32_t end = (uint32_t)events->n;
    buf_put(ends, str_of((const char *)&end, sizeof end));
}

static void put_text_event(struct buf *events, struct buf *ends, const char *name, struct str text)
{
    buf_printf(events, "{\"%s\":", name);
    json_put_string(events, text);
    buf_putc(events, '}');
    end_event(events, ends);
}

/* ---- append ---- */

static void take_append(struct poll_position *p, struct str body, struct buf *events,
                        struct buf *ends)
{
    body.n -= utf8_incomplete_tail(body);
    uint8_t digest[SHA256_SIZE];
    bool grown = body.n >= p->length;
    if (grown && p->begun) {
        sha256(str_of(body.p, p->length), digest);
        grown = memcmp(digest, p->digest, sizeof digest) == 0;
    }
    struct str added = grown ? str_skip(body, p->length) : body;
    if (!grown)
        put_text_event(events, ends, "rewrite", body);
    else if (added.n > 0)
        put_text_event(events, ends, "text", added);
    p->length = body.n;
    sha256(body, p->digest);
}

/* ---- replace ---- */

static void take_replace(struct poll_position *p, struct str body, struct buf *events,
                         struct buf *ends)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    size_t ignored;
    sha256(body, digest);
    if (p->begun && memcmp(digest, p->digest, sizeof digest) == 0)
        return;
    memcpy(p->digest, digest, sizeof digest);
    sha256_hex(body, hex);
    buf_printf(events, "{\"digest\":\"%.*s\",\"body\":", SHA256_HEX, hex);
    if (json_check(body, &ignored) == 0)
        view_put_unbroken(events, view_trim(body));
    else
        json_put_string(events, body);
    buf_putc(events, '}');
    end_event(events, ends);
}

/* ---- jsonlines ---- */

struct items {
    const struct poll_rules *rules;
    struct poll_position *position;
    struct buf *events, *ends;
    uint64_t *table; /* the keys that are known, by open addressing; 0: free */
    struct buf keys; /* of this answer, in its order */
    struct str last; /* the newest item that is new; n == 0: none */
    char *why;
    size_t size;
};

/* Twice as many slots as keys that are remembered and that an answer may have. */
#define TABLE_SLOTS ((size_t)4 * POLL_SEEN_MAX)

/* False: it was there before. */
static bool enter_key(uint64_t *table, uint64_t key)
{
    size_t at = key % TABLE_SLOTS;
    for (; table[at] != 0; at = (at + 1) % TABLE_SLOTS)
        if (table[at] == key)
            return false;
    table[at] = key;
    return true;
}

static uint64_t key_at(const struct buf *keys, size_t i)
{
    uint64_t key;
    memcpy(&key, keys->p + i * POLL_KEY_SIZE, sizeof key);
    return key;
}

static size_t key_count(const struct buf *keys)
{
    return keys->n / POLL_KEY_SIZE;
}

static uint64_t poll_changes_key_of(struct str value)
{
    uint8_t digest[SHA256_SIZE];
    uint64_t key;
    sha256(value, digest);
    memcpy(&key, digest, sizeof key);
    return key == 0 ? 1 : key; /* 0 is a free slot */
}

static int take_item(struct items *in, struct str item)
{
    struct str value = look_up(item, in->rules->key);
    if (value.n == 0) {
        snprintf(in->why, in->size, "an item has nothing at the key %.*s", (int)in->rules->key.n,
                 in->rules->key.p);
        return ERR_SYNTAX;
    }
    if (key_count(&in->keys) == POLL_SEEN_MAX) {
        snprintf(in->why, in->size, "more than %d items in one answer; ask for fewer",
                 POLL_SEEN_MAX);
        return ERR_TOO_LARGE;
    }
    uint64_t key = poll_changes_key_of(value);
    buf_put(&in->keys, str_of((const char *)&key, sizeof key));
    if (!enter_key(in->table, key))
        return 0;
    view_put_unbroken(in->events, item);
    end_event(in->events, in->ends);
    if (in->last.n == 0 || !in->rules->newest_first)
        in->last = item;
    return 0;
}

static int take_array(struct items *in, struct str array)
{
    struct str rest = view_inside(array), item;
    int err = 0;
    while (err == 0 && view_element(&rest, &item))
        err = take_item(in, item);
    return err;
}

static int poll_changes_take_lines(struct items *in, struct str body)
{
    int err = 0;
    while (err == 0 && body.p != NULL) {
        struct str line = view_trim(str_cut(&body, '\n'));
        size_t at;
        if (line.n == 0)
            continue;
        err = json_check(line, &at);
        if (err == 0)
            err = take_item(in, line);
        else
            snprintf(in->why, in->size, "a line is not JSON");
    }
    return err;
}

static int take_items(struct items *in, struct str body)
{
    size_t at;
    body = view_trim(body);
    if (json_check(body, &at) != 0)
        return poll_changes_take_lines(in, body);
    struct str array = look_up(body, in->rules->items);
    if (view_type(array) == VIEW_ARRAY)
        return take_array(in, array);
    if (in->rules->items.n == 0) /* one line is valid JSON as a whole */
        return body.n == 0 ? 0 : take_item(in, body);
    snprintf(in->why, in->size, "no array at %.*s in the answer", (int)in->rules->items.n,
             in->rules->items.p);
    return ERR_SYNTAX;
}

/* Those added behind events_n and ends_n, the other way round. */
static void reverse_events(struct items *in, size_t events_n, size_t ends_n)
{
    struct buf turned = {0}, turned_ends = {0};
    if (in->ends->n == ends_n)
        return;
    const uint32_t *ends = (const uint32_t *)(const void *)(in->ends->p + ends_n);
    size_t n = (in->ends->n - ends_n) / sizeof *ends;
    for (size_t i = n; i-- > 0;) {
        size_t from = i == 0 ? events_n : ends[i - 1];
        buf_put(&turned, str_of(in->events->p + from, ends[i] - from));
        uint32_t end = (uint32_t)(events_n + turned.n);
        buf_put(&turned_ends, str_of((const char *)&end, sizeof end));
    }
    memcpy(in->events->p + events_n, turned.p, turned.n);
    memcpy(in->ends->p + ends_n, turned_ends.p, turned_ends.n);
    buf_deinit(&turned);
    buf_deinit(&turned_ends);
}

/* What this answer has counts as newest, so that an item that stays is never forgotten. */
static void remember(struct items *in)
{
    struct buf *seen = &in->position->seen, kept = {0};
    memset(in->table, 0, TABLE_SLOTS * sizeof *in->table);
    for (size_t i = 0; i < key_count(&in->keys); i++)
        enter_key(in->table, key_at(&in->keys, i));
    for (size_t i = 0; i < key_count(seen); i++) {
        uint64_t key = key_at(seen, i);
        if (enter_key(in->table, key))
            buf_put(&kept, str_of((const char *)&key, sizeof key));
    }
    buf_put(&kept, buf_str(&in->keys));
    size_t most = (size_t)POLL_SEEN_MAX * POLL_KEY_SIZE;
    size_t drop = kept.n > most ? kept.n - most : 0;
    seen->n = 0;
    if (kept.n > 0)
        buf_put(seen, str_skip(buf_str(&kept), drop));
    buf_deinit(&kept);
}

static int put_cursor(struct items *in, struct str body, struct buf *out)
{
    struct str from = in->rules->cursor_of_answer ? view_trim(body) : in->last;
    struct str value = from.n == 0 ? STR_NONE : look_up(from, in->rules->cursor);
    switch (view_type(value)) {
    case VIEW_NONE:
    case VIEW_NULL: buf_put(out, buf_str(&in->position->cursor)); return 0; /* stays */
    case VIEW_STRING: view_decode(view_inside(value), out); break;
    case VIEW_NUMBER: buf_put(out, value); break;
    default:
        snprintf(in->why, in->size, "the cursor is neither text nor a number");
        return ERR_SYNTAX;
    }
    if (out->n <= POLL_CURSOR_MAX)
        return 0;
    snprintf(in->why, in->size, "the cursor is longer than %d bytes", POLL_CURSOR_MAX);
    return ERR_SYNTAX;
}

static int take_jsonlines(const struct poll_rules *rules, struct poll_position *p, struct str body,
                          struct buf *events, struct buf *ends, char *why, size_t size)
{
    struct items in = {
        .rules = rules, .position = p, .events = events, .ends = ends, .why = why, .size = size};
    size_t events_n = events->n, ends_n = ends->n, ignored;
    struct buf cursor = {0};
    in.table = mem_zalloc(TABLE_SLOTS * sizeof *in.table);
    for (size_t i = 0; i < key_count(&p->seen); i++)
        enter_key(in.table, key_at(&p->seen, i));
    int err = take_items(&in, body);
    /* Lines as a whole are no JSON to look into. */
    bool can =
        rules->cursor.p != NULL && (!rules->cursor_of_answer || json_check(body, &ignored) == 0);
    if (err == 0 && can)
        err = put_cursor(&in, body, &cursor);
    if (err == 0) {
        if (rules->newest_first)
            reverse_events(&in, events_n, ends_n);
        remember(&in);
        if (can) {
            p->cursor.n = 0;
            buf_put(&p->cursor, buf_str(&cursor));
        }
    } else {
        events->n = events_n;
        ends->n = ends_n;
    }
    buf_deinit(&cursor);
    buf_deinit(&in.keys);
    free(in.table);
    return err;
}

int poll_take(const struct poll_rules *rules, struct poll_position *p, struct str body,
              struct buf *events, struct buf *ends, char *why, size_t size)
{
    int err = 0;
    switch (rules->mode) {
    case POLL_APPEND: take_append(p, body, events, ends); break;
    case POLL_REPLACE: take_replace(p, body, events, ends); break;
    case POLL_JSONLINES: err = take_jsonlines(rules, p, body, events, ends, why, size); break;
    }
    p->begun = p->begun || err == 0;
    return err;
}

/* ---- the pace ---- */

static uint64_t poll_changes_grown(uint64_t ms, uint64_t most)
{
    uint64_t next = ms + ms / 2 + 1;
    return next > most ? most : next;
}

uint64_t poll_pause_ms(struct poll_pace *pace, enum poll_outcome outcome, uint64_t retry_ms,
                       uint64_t random)
{
    uint64_t slowest = pace->slowest_ms < pace->every_ms ? pace->every_ms : pace->slowest_ms;
    uint64_t failed_max = slowest > POLL_FAILED_MAX_MS ? slowest : POLL_FAILED_MAX_MS;
    pace->failures = outcome == POLL_FAILED ? pace->failures + 1 : 0;
    switch (outcome) {
    case POLL_CHANGED: pace->now_ms = pace->every_ms; break;
    case POLL_SAME:
        pace->now_ms = pace->now_ms < pace->every_ms ? pace->every_ms
                                                     : poll_changes_grown(pace->now_ms, slowest);
        break;
    case POLL_FAILED:
        pace->now_ms = backoff_ms(2 * pace->every_ms, failed_max, pace->failures);
        break;
    }
    uint64_t ms = backoff_jitter(pace->now_ms, 10, random);
    return ms < retry_ms ? retry_ms : ms;
}
