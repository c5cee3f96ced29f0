// SPDX-License-Identifier: Apache-2.0
/* lab_feedback_http.c -- feedback by cursor, and what people send. */
#include "base/err.h"
#include "base/mem.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/lab/lab_store.h"
#include "feature/lab/lab_submit.h"
#include "feature/logs/logs.h"
#include "feature/lab/lab_http_core.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- reading ---- */

struct feedback_source {
    struct lab_source source;
    struct log_query query;
    struct log_scan scan;
    struct log_read read; /* the last step */
    uint64_t until;       /* the size at first: who writes on cannot keep us here */
    bool begun;           /* something has been said */
};

static void lab_feedback_free_source(struct lab_source *source)
{
    struct feedback_source *f = container_of(source, struct feedback_source, source);
    block_unref(f->read.bytes);
    log_query_deinit(&f->query);
    free(f);
}

/* From where the scan is. From the second step on it must be the same file. */
static int read_step(struct feedback_source *f, const struct lab_store *store)
{
    struct log log = {.path = store->feedback};
    struct log_id file = f->read.id;
    block_unref(f->read.bytes);
    f->read = (struct log_read){.log = &log, .since = f->scan.next, .has_id = f->begun, .id = file};
    int err = lab_log_read(&f->read);
    f->read.log = NULL;
    return err;
}

static void put_items(struct feedback_source *f, struct str rest, struct buf *out)
{
    struct str item;
    while (log_scan_item(&f->scan, &rest, &item)) {
        json_t *entry = lab_schema_line(&lab_feedback_schema, item);
        if (entry == NULL) {
            log_scan_reject(&f->scan);
            continue;
        }
        if (f->scan.items > 1)
            buf_putc(out, ',');
        lab_json_put(out, entry);
        json_decref(entry);
    }
}

/* Steps of the log, of which the first has been read already. */
static int lab_feedback_next_items(struct lab_source *source, struct lab_store *store,
                                   struct buf *out)
{
    struct feedback_source *f = container_of(source, struct feedback_source, source);
    const struct log_read *r = &f->read;
    int err = f->begun ? read_step(f, store) : 0;
    if (err != 0)
        return err;
    if (!f->begun)
        buf_put(out, STR("{\"items\":["));
    f->begun = true;
    if (r->bytes != NULL)
        put_items(f, str_of(r->bytes->bytes, r->bytes->n), out);
    if (!log_scan_full(&f->scan))
        f->scan.next = r->next; /* also behind a line that was passed over */
    if (!log_scan_full(&f->scan) && r->next > r->since && r->next < f->until)
        return 1;
    buf_printf(out, "],\"nextCursor\":\"%" PRIu64 "\"}", f->scan.next);
    return 0;
}

static void lab_feedback_refuse_cursor(struct lab_call *c, enum log_cursor_fault fault,
                                       struct str since, uint64_t size)
{
    struct buf text = {0};
    log_cursor_refusal(&text, fault, since, size);
    json_t *body = lab_json_load(buf_str(&text)), *error = json_object_get(body, "error");
    struct str message = lab_json_get(error, "message");
    lab_problem_set(&c->problem, LAB_INVALID_CURSOR, "%.*s", (int)message.n, message.p);
    c->problem.context = json_incref(json_object_get(error, "context"));
    json_decref(body);
    buf_deinit(&text);
}

/* The first step shows whether the cursor is one of this file. */
static void lab_feedback_begin(struct lab_call *c, struct lab_store *s, struct feedback_source *f)
{
    int err = read_step(f, s);
    f->until = f->read.size;
    if (err == ERR_GAP)
        lab_feedback_refuse_cursor(c, LOG_CURSOR_AHEAD, c->since, f->read.size);
    else if (err == ERR_OFFSET)
        lab_feedback_refuse_cursor(c, LOG_CURSOR_WITHIN, c->since, f->read.size);
    else if (err != 0)
        lab_problem_of(&c->problem, err, s->feedback);
}

void lab_get_feedback(struct lab_call *c, struct lab_store *s)
{
    struct feedback_source *f = mem_zalloc(sizeof *f);
    f->source = (struct lab_source){lab_feedback_next_items, lab_feedback_free_source};
    c->source = &f->source;
    if (c->session.n > 0)
        log_query_where(&f->query, STR("sessionId"), c->session);
    if (c->run.n > 0)
        log_query_where(&f->query, STR("runId"), c->run);
    log_query_limit(&f->query, c->limit);
    bool valid = log_query_since(&f->query, c->since) == 0;
    log_scan_init(&f->scan, &f->query);
    if (valid)
        lab_feedback_begin(c, s, f);
    else
        lab_feedback_refuse_cursor(c, LOG_CURSOR_MALFORMED, c->since, 0);
}

/* ---- writing ---- */

void lab_post_feedback(struct lab_call *c, struct lab_store *s)
{
    json_t *body = lab_call_body(c);
    if (body == NULL)
        return;
    const char *review = c->lab->setup.review;
    struct str run = lab_json_trimmed(body, "runId");
    lab_submit_feedback(s, body, lab_call_request(c, body), &c->answer, &c->problem);
    c->counts = review != NULL && str_eq(run, str_of_cstr(review));
    json_decref(body);
}
