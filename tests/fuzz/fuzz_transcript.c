// SPDX-License-Identifier: Apache-2.0
/* fuzz_transcript.c -- whatever a language server puts into its transcript, poll after poll.
 *
 * The input is cut at each 0x1e. A piece is a poll's answer: its first byte the number of steps,
 * the rest the transcript; one that begins with `!` is a poll that failed. Messages are also read
 * in a plainer way, line by line; after each poll, what a reader has made of the events so far must
 * be what the Assistant's messages say now. */
#include "base/buf.h"
#include "base/mem.h"
#include "feature/cascade/cascade_transcript.h"
#include "feature/cascade/cascade_turn.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define POLLS_MAX   64
#define INDICES_MAX 512
#define INPUT_MAX   8192

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_transcript: %s\n", what);
    abort();
}

/* ---- the plainer way ---- */

struct text {
    uint64_t index;
    bool there; /* in this poll */
    struct buf now, folded;
};

struct reader {
    struct text texts[INDICES_MAX];
    size_t n;
    bool checkpoint, any;
    uint64_t last_index;
};

static struct text *text_of(struct reader *r, uint64_t index)
{
    size_t i = 0;
    while (i < r->n && r->texts[i].index != index)
        i++;
    check(i < INDICES_MAX, "more messages than such an input can hold");
    if (i == r->n)
        r->texts[r->n++] = (struct text){.index = index};
    return &r->texts[i];
}

/* What it would be if it were a header is written down and compared. */
static bool plain_header(struct str line, uint64_t *index, char role[INPUT_MAX + 1])
{
    char copy[INPUT_MAX + 1], digits[INPUT_MAX + 1], again[2 * INPUT_MAX + 64];
    if (line.n == 0 || memchr(line.p, '\0', line.n) != NULL)
        return false;
    memcpy(copy, line.p, line.n);
    copy[line.n] = '\0';
    if (sscanf(copy, "=== MESSAGE %8191[0-9] - %8191[A-Za-z0-9_]", digits, role) != 2)
        return false;
    snprintf(again, sizeof again, "=== MESSAGE %s - %s ===", digits, role);
    *index = strtoull(digits, NULL, 10);
    return strcmp(again, copy) == 0 && *index < (uint64_t)1 << 53;
}

static void plain_trim(struct buf *b)
{
    static const char space[] = " \t\n\v\f\r";
    size_t start = 0;
    while (b->n > 0 && memchr(space, b->p[b->n - 1], 6) != NULL)
        b->n--;
    while (start < b->n && memchr(space, b->p[start], 6) != NULL)
        start++;
    if (start > 0)
        memmove(b->p, b->p + start, b->n - start);
    b->n -= start;
}

static void end_message(struct reader *r, uint64_t index, const char *role, struct buf *body)
{
    plain_trim(body);
    if (strcmp(role, "Assistant") == 0) {
        struct text *t = text_of(r, index);
        if (t->there)
            buf_put(&t->now, STR("\n\n"));
        buf_put(&t->now, buf_str(body));
        t->there = true;
    }
    if (strcmp(role, "Tool") == 0 && body->n > 0 &&
        memmem(body->p, body->n, "CORTEX_STEP_TYPE_CHECKPOINT", 27) != NULL)
        r->checkpoint = true;
    body->n = 0;
}

static void plain_read(struct reader *r, struct str rest)
{
    char role[INPUT_MAX + 1] = "", next_role[INPUT_MAX + 1];
    uint64_t index = 0, next_index;
    struct buf body = {0};
    for (size_t i = 0; i < r->n; i++) {
        r->texts[i].there = false;
        r->texts[i].now.n = 0;
    }
    while (rest.n > 0) {
        struct str line = str_cut(&rest, '\n');
        if (rest.p != NULL && line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (!plain_header(line, &next_index, next_role)) {
            buf_put(&body, line);
            buf_putc(&body, '\n');
            continue;
        }
        end_message(r, index, role, &body);
        index = next_index;
        strcpy(role, next_role);
    }
    end_message(r, index, role, &body);
    buf_deinit(&body);
}

/* ---- what the turn says ---- */

static void fold(struct reader *r, const struct cascade_turn_event *e)
{
    struct text *t = text_of(r, e->index);
    if (e->kind == CASCADE_REWRITE) {
        check(!str_starts(e->text, buf_str(&t->folded)), "a rewrite that is growth");
        t->folded.n = 0;
    } else {
        check(e->text.n > 0, "an empty delta");
        check(e->apart == (r->any && r->last_index != e->index), "wrongly apart");
        r->any = true;
        r->last_index = e->index;
    }
    buf_put(&t->folded, e->text);
}

static void check_step(struct reader *r, const struct cascade_turn_step *step)
{
    for (size_t i = 0; i < step->n_events; i++) {
        check(i == 0 || step->events[i - 1].index < step->events[i].index, "out of order");
        fold(r, &step->events[i]);
    }
    for (size_t i = 0; i < r->n; i++)
        check(!r->texts[i].there || str_eq(buf_str(&r->texts[i].now), buf_str(&r->texts[i].folded)),
              "another text");
    if (step->state == CASCADE_TURN_ENDED)
        check(step->n_events == 0 && (r->checkpoint || r->any), "ended too early");
    check(step->wait_ms >= cascade_turn_defaults.fast_ms &&
              step->wait_ms <= cascade_turn_defaults.failed_ms,
          "a wait beyond the bounds");
}

static void play(struct reader *r, struct cascade_turn *t, struct str rest)
{
    struct cascade_turn_step step = {.wait_ms = cascade_turn_first_wait_ms(t)};
    uint64_t now_ms = 0;
    for (int i = 0; i < POLLS_MAX && rest.p != NULL; i++) {
        struct str piece = str_cut(&rest, 0x1e);
        now_ms += step.wait_ms;
        if (piece.n > 0 && piece.p[0] == '!') {
            cascade_turn_poll_failed(t, now_ms, &step);
            check(step.n_events == 0, "a failed poll has said something");
        } else {
            uint64_t steps = piece.n > 0 ? (uint8_t)piece.p[0] : 0;
            struct str text = piece.n > 0 ? str_skip(piece, 1) : piece;
            plain_read(r, text);
            cascade_turn_polled(t, now_ms, text, steps, &step);
            check_step(r, &step);
        }
        if (step.state != CASCADE_TURN_GOING)
            return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct reader *r = mem_zalloc(sizeof *r);
    struct cascade_turn *t = cascade_turn_new(&cascade_turn_defaults, 0);
    if (n <= INPUT_MAX)
        play(r, t, str_of((const char *)data, n));
    cascade_turn_free(t);
    for (size_t i = 0; i < r->n; i++) {
        buf_deinit(&r->texts[i].now);
        buf_deinit(&r->texts[i].folded);
    }
    free(r);
    return 0;
}
