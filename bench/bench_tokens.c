// SPDX-License-Identifier: Apache-2.0
/* Many chats, each a stream with one writer and one reader; a chat's next token goes out when its
 * last has been acknowledged to the writer and has reached the reader. */
#include "bench_hist.h"
#include "bench_reader.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

#define CHATS      64
#define TOKEN_SIZE 32
#define WARM_UP_S  0.5

struct tokens;

struct chat {
    struct tokens *run;
    struct peer writer;
    struct reader *reader;
    struct buf request;
    uint64_t sent, answered, sent_ns;
};

struct tokens {
    struct bench *bench;
    struct chat chats[CHATS];
    struct reader *readers; /* one per chat, owned by it */
    bool stopping;
    struct hist latency; /* from sending a token to reading it */
};

static bool chat_rests(const struct chat *c)
{
    return c->answered == c->sent && c->reader->tally.next == c->sent;
}

static void chat_next(struct chat *c)
{
    if (!chat_rests(c) || c->run->stopping)
        return;
    event_renumber(c->request.p, c->request.n, c->sent++);
    c->sent_ns = clock_mono_ns();
    peer_send(&c->writer, buf_str(&c->request));
}

static void writer_end(struct peer *p)
{
    peer_expect(p, 204, "appending a token");
    container_of(p, struct chat, writer)->answered++;
}

static void writer_after(struct peer *p)
{
    chat_next(container_of(p, struct chat, writer));
}

static void token_body(struct peer *p, struct str piece)
{
    struct reader *r = container_of(p, struct reader, peer);
    struct chat *c = r->owner;
    uint64_t before = r->tally.seen;
    reader_body(p, piece);
    if (r->tally.seen > before)
        hist_add(&c->run->latency, clock_mono_ns() - c->sent_ns);
}

static void token_after(struct peer *p)
{
    struct chat *c = container_of(p, struct reader, peer)->owner;
    if (c->sent > 0) /* not for the first control event */
        chat_next(c);
}

static const struct peer_ops writer_ops = {.end = writer_end, .after = writer_after};
static const struct peer_ops reader_ops = {
    .head = reader_head, .body = token_body, .after = token_after};

static void chat_open(struct chat *c, struct tokens *run, unsigned i, struct str token)
{
    struct name stream = stream_name("tokens", i);
    c->run = run;
    c->reader = &run->readers[i];
    c->reader->owner = c;
    ask_create(run->bench, stream, TYPE_TEXT);
    request_append(&c->request, stream, TYPE_TEXT, token);
    peer_open(&c->writer, &run->bench->swarm, &writer_ops);
    reader_open(c->reader, run->bench, &reader_ops, stream, "now", 0);
}

static void tokens_open(struct tokens *t)
{
    struct buf token = {0};
    event_put_text(&token, 0, TOKEN_SIZE);
    t->readers = readers_new(CHATS, NULL);
    for (unsigned i = 0; i < CHATS; i++)
        chat_open(&t->chats[i], t, i, buf_str(&token));
    readers_wait(t->bench, t->readers, CHATS);
    buf_deinit(&token);
}

static bool all_rest(void *arg)
{
    const struct tokens *t = arg;
    for (unsigned i = 0; i < CHATS; i++)
        if (!chat_rests(&t->chats[i]))
            return false;
    return true;
}

static void tokens_close(struct tokens *t)
{
    t->stopping = true;
    swarm_run(&t->bench->swarm, "all chats to get their tokens", all_rest, t);
    for (unsigned i = 0; i < CHATS; i++) {
        struct chat *c = &t->chats[i];
        readers_verify(t->bench, c->reader, 1, c->sent);
        peer_close(&c->writer);
        buf_deinit(&c->request);
    }
    readers_close(t->readers, CHATS);
    free(t->readers);
    for (unsigned i = 0; i < CHATS; i++)
        ask_delete(t->bench, stream_name("tokens", i));
}

static void tokens_report(struct tokens *t, const struct spent *spent)
{
    struct report *r = &t->bench->report;
    double delivered = (double)t->latency.n;
    row_spent(report_add(r, "tokens", delivered / spent->seconds), t->bench, spent, delivered);
    report_add(r, "tokens-p50", (double)hist_at(&t->latency, 0.5) / 1e3);
    report_add(r, "tokens-p99", (double)hist_at(&t->latency, 0.99) / 1e3);
}

void phase_tokens(struct bench *b)
{
    struct tokens t = {.bench = b};
    progress("tokens: %d chats, each one writer and one SSE reader", CHATS);
    tokens_open(&t);
    for (unsigned i = 0; i < CHATS; i++)
        chat_next(&t.chats[i]);
    swarm_run_for(&b->swarm, WARM_UP_S);
    memset(&t.latency, 0, sizeof t.latency);
    struct spent spent = spent_begin(b);
    swarm_run_for(&b->swarm, b->seconds);
    spent_end(b, &spent);
    tokens_report(&t, &spent);
    tokens_close(&t);
}
