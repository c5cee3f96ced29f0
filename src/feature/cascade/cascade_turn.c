// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_turn.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/must.h"
#include "base/units.h"
#include "base/utf8.h"
#include "feature/cascade/cascade_transcript.h"

#include <stdlib.h>

#define CHECKPOINT     "CORTEX_STEP_TYPE_CHECKPOINT"
#define RECENT_MASK    ((1u << CASCADE_TURN_RECENT) - 1)
#define ERROR_TEXT_MAX 4096 /* bytes */

/* What was sent of one message. */
struct sent {
    uint64_t index;
    struct buf text;
};

/* A message of the Assistant as it stands in the transcript. */
struct part {
    uint64_t index;
    size_t place;
    struct str body;
};

struct cascade_turn {
    struct cascade_turn_rules rules;
    uint64_t start_ms, changed_ms, wait_ms;
    uint64_t steps;
    uint32_t steady, failures;
    uint32_t recent; /* a bit per poll, the last one lowest; set: it failed */
    bool checkpoint, any_sent;
    uint64_t last_index; /* of the last delta, if any_sent */
    struct sent *sent;   /* by index */
    size_t n_sent, text_size;
    /* Of the poll that is looked at. */
    struct part *parts;
    size_t n_parts;
    struct cascade_turn_event *events;
    size_t n_events;
    struct buf lines, joined, error_text;
    struct cascade_error error;
};

const struct cascade_turn_rules cascade_turn_defaults = {
    .steady_polls = 4,
    .quiet_ms = 2 * SECOND_MS,
    .fast_ms = 250,
    .slow_ms = 2 * SECOND_MS,
    .checkpoint_ms = 500,
    .failed_ms = 5 * SECOND_MS,
    .failures_max = 3,
    .recent_max = 5,
    .timeout_ms = 5 * MINUTE_MS,
};

struct cascade_turn *cascade_turn_new(const struct cascade_turn_rules *rules, uint64_t now_ms)
{
    struct cascade_turn *t = mem_zalloc(sizeof *t);
    t->rules = *rules;
    t->start_ms = t->changed_ms = now_ms;
    t->wait_ms = rules->fast_ms;
    return t;
}

void cascade_turn_free(struct cascade_turn *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->n_sent; i++)
        buf_deinit(&t->sent[i].text);
    free(t->sent);
    free(t->parts);
    free(t->events);
    buf_deinit(&t->lines);
    buf_deinit(&t->joined);
    buf_deinit(&t->error_text);
    free(t);
}

uint64_t cascade_turn_first_wait_ms(const struct cascade_turn *t)
{
    return t->rules.fast_ms;
}

/* Room for one more behind n: arrays grow at powers of two. */
static void *cascade_turn_grown(void *array, size_t n, size_t item_size)
{
    bool full = n == 0 || (n >= 8 && (n & (n - 1)) == 0);
    return full ? mem_realloc(array, (n < 8 ? 8 : 2 * n) * item_size) : array;
}

/* ---- what was sent ---- */

/* Where the index is, or would be. */
static size_t sent_place(const struct cascade_turn *t, uint64_t index)
{
    size_t low = 0, high = t->n_sent;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->sent[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL: there are too many. */
static struct sent *sent_of(struct cascade_turn *t, uint64_t index)
{
    size_t at = sent_place(t, index);
    if (at < t->n_sent && t->sent[at].index == index)
        return &t->sent[at];
    if (t->n_sent == CASCADE_TURN_MESSAGES_MAX)
        return NULL;
    t->sent = cascade_turn_grown(t->sent, t->n_sent, sizeof *t->sent);
    memmove(&t->sent[at + 1], &t->sent[at], (t->n_sent - at) * sizeof *t->sent);
    t->sent[at] = (struct sent){.index = index};
    t->n_sent++;
    return &t->sent[at];
}

static void cascade_turn_say(struct cascade_turn *t, struct cascade_turn_event event)
{
    t->events = cascade_turn_grown(t->events, t->n_events, sizeof *t->events);
    t->events[t->n_events++] = event;
}

static void say_delta(struct cascade_turn *t, struct sent *s, struct str more)
{
    size_t before = s->text.n;
    buf_put(&s->text, more);
    cascade_turn_say(t, (struct cascade_turn_event){
                            .kind = CASCADE_DELTA,
                            .index = s->index,
                            .text = str_skip(buf_str(&s->text), before),
                            .apart = t->any_sent && t->last_index != s->index,
                        });
    t->any_sent = true;
    t->last_index = s->index;
}

static void say_rewrite(struct cascade_turn *t, struct sent *s, struct str text)
{
    s->text.n = 0;
    buf_put(&s->text, text);
    cascade_turn_say(t, (struct cascade_turn_event){
                            .kind = CASCADE_REWRITE, .index = s->index, .text = buf_str(&s->text)});
}

/* False: it is beyond the bounds. */
static bool look_at_text(struct cascade_turn *t, uint64_t index, struct str text)
{
    struct sent *s = sent_of(t, index);
    if (s == NULL || t->text_size - s->text.n + text.n > CASCADE_TURN_TEXT_MAX)
        return false;
    struct str old = buf_str(&s->text);
    if (str_eq(text, old))
        return true;
    t->text_size += text.n - old.n;
    if (str_starts(text, old))
        say_delta(t, s, str_skip(text, old.n));
    else
        say_rewrite(t, s, text);
    return true;
}

/* ---- a transcript ---- */

static void look_at_system(struct cascade_turn *t, struct str body)
{
    struct cascade_error e;
    if (t->error.code != 0 || !cascade_error_in_text(body, &e))
        return;
    struct str text = e.text;
    if (text.n > ERROR_TEXT_MAX) {
        text.n = ERROR_TEXT_MAX;
        text.n -= utf8_incomplete_tail(text);
    }
    buf_put(&t->error_text, text);
    t->error = (struct cascade_error){e.code, buf_str(&t->error_text)};
}

/* False: there are too many messages. */
static bool look_at_message(struct cascade_turn *t, const struct cascade_message *m)
{
    switch (m->role) {
    case CASCADE_ROLE_ASSISTANT:
        if (t->n_parts == CASCADE_TURN_MESSAGES_MAX)
            return false;
        t->parts = cascade_turn_grown(t->parts, t->n_parts, sizeof *t->parts);
        t->parts[t->n_parts] = (struct part){m->index, t->n_parts, m->body};
        t->n_parts++;
        return true;
    case CASCADE_ROLE_TOOL:
        if (m->body.n > 0 && memmem(m->body.p, m->body.n, CHECKPOINT, strlen(CHECKPOINT)) != NULL)
            t->checkpoint = true;
        return true;
    case CASCADE_ROLE_SYSTEM: look_at_system(t, m->body); return true;
    default: return true;
    }
}

static int cascade_turn_part_order(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* The text of the n parts of one message. */
static struct str join(struct cascade_turn *t, const struct part *parts, size_t n)
{
    if (n == 1)
        return parts[0].body;
    t->joined.n = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_put(&t->joined, STR("\n\n"));
        buf_put(&t->joined, parts[i].body);
    }
    return buf_str(&t->joined);
}

static bool look_at_parts(struct cascade_turn *t)
{
    if (t->n_parts > 0)
        qsort(t->parts, t->n_parts, sizeof *t->parts, cascade_turn_part_order);
    for (size_t i = 0, n; i < t->n_parts; i += n) {
        const struct part *p = &t->parts[i];
        for (n = 1; i + n < t->n_parts && p[n].index == p->index;)
            n++;
        if (!look_at_text(t, p->index, join(t, p, n)))
            return false;
    }
    return true;
}

static bool look_at_transcript(struct cascade_turn *t, struct str transcript)
{
    struct cascade_message m;
    if (transcript.n > CASCADE_TRANSCRIPT_MAX)
        return false;
    struct str rest = cascade_transcript_lines(transcript, &t->lines);
    t->n_parts = 0;
    while (cascade_transcript_next(&rest, &m))
        if (!look_at_message(t, &m))
            return false;
    return look_at_parts(t);
}

/* ---- what follows ---- */

static uint64_t at_most(uint64_t v, uint64_t max)
{
    return v < max ? v : max;
}

static bool cascade_turn_is_over(const struct cascade_turn *t, uint64_t now_ms)
{
    return t->checkpoint && t->steady >= t->rules.steady_polls &&
           now_ms - t->changed_ms >= t->rules.quiet_ms;
}

static void count_change(struct cascade_turn *t, uint64_t now_ms)
{
    t->steady = 0;
    t->changed_ms = now_ms;
    t->wait_ms = t->rules.fast_ms;
}

static void count_steady(struct cascade_turn *t)
{
    uint64_t max = t->checkpoint ? t->rules.checkpoint_ms : t->rules.slow_ms;
    t->steady++;
    t->wait_ms = at_most(t->wait_ms + t->wait_ms / 2, max);
}

static void begin_poll(struct cascade_turn *t, uint64_t now_ms, bool failed)
{
    must(now_ms >= t->changed_ms && t->error.code == 0);
    t->n_events = 0;
    t->recent = (t->recent << 1 | failed) & RECENT_MASK;
    t->failures = failed ? t->failures + 1 : 0;
}

static void give_step(const struct cascade_turn *t, enum cascade_turn_state state, uint64_t now_ms,
                      struct cascade_turn_step *out)
{
    if (state == CASCADE_TURN_GOING && now_ms - t->start_ms >= t->rules.timeout_ms)
        state = CASCADE_TURN_TIMED_OUT;
    *out = (struct cascade_turn_step){
        .state = state,
        .events = t->events,
        .n_events = t->n_events,
        .wait_ms = t->wait_ms,
        .error = t->error,
    };
}

void cascade_turn_polled(struct cascade_turn *t, uint64_t now_ms, struct str transcript,
                         uint64_t num_total_steps, struct cascade_turn_step *out)
{
    enum cascade_turn_state state = CASCADE_TURN_GOING;
    begin_poll(t, now_ms, false);
    bool fits = look_at_transcript(t, transcript);
    if (t->n_events > 0 || num_total_steps != t->steps)
        count_change(t, now_ms);
    else
        count_steady(t);
    t->steps = num_total_steps;
    if (!fits)
        state = CASCADE_TURN_TOO_LARGE;
    else if (t->error.code != 0)
        state = CASCADE_TURN_FAILED;
    else if (cascade_turn_is_over(t, now_ms))
        state = CASCADE_TURN_ENDED;
    give_step(t, state, now_ms, out);
}

void cascade_turn_held(struct cascade_turn *t, uint64_t held_ms)
{
    t->start_ms += held_ms;
    t->changed_ms += held_ms;
}

void cascade_turn_poll_failed(struct cascade_turn *t, uint64_t now_ms,
                              struct cascade_turn_step *out)
{
    begin_poll(t, now_ms, true);
    t->steady = 0;
    t->changed_ms = now_ms;
    t->wait_ms = at_most(2 * t->wait_ms, t->rules.failed_ms);
    bool lost = t->failures >= t->rules.failures_max ||
                (uint32_t)__builtin_popcount(t->recent) >= t->rules.recent_max;
    give_step(t, lost ? CASCADE_TURN_LOST : CASCADE_TURN_GOING, now_ms, out);
}
