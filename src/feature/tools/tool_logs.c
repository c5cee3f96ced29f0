// SPDX-License-Identifier: Apache-2.0
/* tool_logs.c -- built-in tools that look at logs, and wait for what people say in the Lab.
 *
 * Both answer as logs do over HTTP: {"items":[...],"nextCursor":"184"}, whose cursor is the log's
 * own and good for asking later what has come since. Within an answer of several pages the position
 * is
 *
 *     u64    where the page begins, big-endian
 *     48     the file that it is of, as log_id_format writes it
 *
 * A page looks at SCAN_MAX bytes at most, whether there is an item among them or not, so that a
 * filter which nothing passes does not hold up a call for the length of a file. */
#include "base/err.h"
#include "base/num.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"
#include "feature/tools/tool_core.h"

#include <inttypes.h>
#include <string.h>

#define PLACE_SIZE (8 + LOG_ID_TEXT)
#define STEP_BYTES (64 * 1024)
#define SCAN_MAX   (16 * 1024 * 1024)
#define POLL_MS    250
#define WAIT_S     30
#define WAIT_MAX_S 300
#define CURSOR_MAX 20

/* ---- both ---- */

static void tool_logs_on_lines(struct log_read *r, int err);

static void read_lines(struct tool_job *j)
{
    bool known = j->lines.has_id;
    struct log_id id = j->lines.id;
    j->lines = (struct log_read){.log = &j->log,
                                 .since = j->scan.next,
                                 .max = STEP_BYTES,
                                 .has_id = known,
                                 .id = id,
                                 .done = tool_logs_on_lines};
    tool_job_begin(j);
    log_read(&j->lines);
}

/* Texts as they are, the others as JSON writes them. ERR_LIMIT, ERR_SYNTAX. */
static int add_filters(struct tool_job *j)
{
    const char *key;
    json_t *value;
    int err = 0;
    json_object_foreach(j->given.where, key, value)
    {
        struct buf text = {0};
        if (json_is_string(value))
            buf_put(&text, str_of(json_string_value(value), json_string_length(value)));
        else
            lab_json_put(&text, value);
        if (err == 0)
            err = log_query_where(&j->query, str_of_cstr(key), buf_str(&text));
        buf_deinit(&text);
    }
    if (err == 0 && j->given.run.n > 0)
        err = log_query_where(&j->query, STR("runId"), j->given.run);
    return err;
}

static bool set_start(struct tool_job *j)
{
    if (j->position.n == PLACE_SIZE) {
        j->query.since = tool_get_be((const uint8_t *)j->position.p, 8);
        j->lines.has_id = true;
        return log_id_parse(str_skip(j->position, 8), &j->lines.id) == 0;
    }
    return j->position.n == 0 && log_query_since(&j->query, j->given.cursor) == 0;
}

static void tool_logs_start(struct tool_job *j, const char *path)
{
    j->log = (struct log){j->all->setup.lane, path};
    j->query.limit = j->given.limit;
    j->until = UINT64_MAX;
    if (!set_start(j)) {
        tool_job_invalid(j, "argument 'cursor' must be a nextCursor (digits only)");
        return;
    }
    if (add_filters(j) != 0) {
        tool_job_invalid(j, "argument 'where' has more than %d members", LOG_FILTERS_MAX);
        return;
    }
    log_scan_init(&j->scan, &j->query);
    read_lines(j);
}

static bool is_feedback(const struct tool_job *j)
{
    return j->tool->builtin == &tool_feedback_wait;
}

static void tool_logs_put_item(struct tool_job *j, struct str item)
{
    if (j->items.n > 0)
        buf_putc(&j->items, ',');
    buf_put(&j->items, item);
}

/* In the Lab's file others may have written what is none of its entries. */
static void put_entry(struct tool_job *j, struct str item)
{
    struct buf text = {0};
    json_t *entry = lab_schema_line(&lab_feedback_schema, item);
    if (entry == NULL) {
        log_scan_reject(&j->scan);
        return;
    }
    lab_json_put(&text, entry);
    tool_logs_put_item(j, buf_str(&text));
    buf_deinit(&text);
    json_decref(entry);
}

static bool is_full(const struct tool_job *j)
{
    return log_scan_full(&j->scan) || j->items.n >= TOOL_BUILTIN_PAGE_BYTES;
}

static void tool_logs_take_lines(struct tool_job *j, const struct log_read *r)
{
    struct str rest = STR_NONE, item;
    if (r->bytes != NULL)
        rest = str_of(r->bytes->bytes, r->bytes->n);
    while (!is_full(j) && log_scan_item(&j->scan, &rest, &item)) {
        if (is_feedback(j))
            put_entry(j, item);
        else
            tool_logs_put_item(j, item);
    }
    if (!is_full(j))
        j->scan.next = r->next; /* also behind a line that was passed over */
    j->scanned += r->next - r->since;
}

static void tool_logs_answer(struct tool_job *j, bool more)
{
    struct buf *out = &j->call->result;
    uint8_t place[PLACE_SIZE];
    tool_put_be(place, j->scan.next, 8);
    log_id_format(&j->lines.id, (char *)place + 8);
    buf_put(out, STR("{\"items\":["));
    buf_put(out, buf_str(&j->items));
    buf_printf(out, "],\"nextCursor\":\"%" PRIu64 "\"}", j->scan.next);
    tool_job_page(j, more ? str_of((const char *)place, sizeof place) : STR_NONE);
}

static void fail_lines(struct tool_job *j, int err)
{
    bool first = !j->lines.has_id;
    if ((err == ERR_GAP || err == ERR_OFFSET) && first)
        tool_job_invalid(j, err == ERR_GAP ? "argument 'cursor' is beyond the end of the file"
                                           : "argument 'cursor' is not behind the end of a line");
    else if (err == ERR_GAP || err == ERR_OFFSET)
        tool_job_failed(j, false,
                        "the file was truncated or replaced; begin anew without a cursor");
    else
        tool_job_failed(j, true, "the file cannot be read: %s", err_text(err));
}

static void tool_logs_on_poll(struct timer *t)
{
    read_lines(container_of(t, struct tool_job, timer));
}

/* All there is has been read. */
static void at_end(struct tool_job *j)
{
    struct sched *s = j->all->setup.sched;
    bool waits = is_feedback(j) && j->items.n == 0 && s->now_ms < j->ends_at_ms;
    if (!waits) {
        tool_logs_answer(j, false);
        return;
    }
    j->until = UINT64_MAX; /* what comes counts */
    j->timer.fire = tool_logs_on_poll;
    sched_start(s, &j->timer, POLL_MS);
}

static void tool_logs_on_lines(struct log_read *r, int err)
{
    struct tool_job *j = container_of(r, struct tool_job, lines);
    if (err == 0 && j->call != NULL) {
        if (j->until == UINT64_MAX)
            j->until = r->size; /* who writes on cannot keep us here */
        j->lines.has_id = true;
        tool_logs_take_lines(j, r);
    }
    bool stuck = r->next == r->since;
    block_unref(r->bytes);
    r->bytes = NULL;
    if (!tool_job_back(j))
        return;
    if (err != 0)
        fail_lines(j, err);
    else if (is_full(j) || j->scanned >= SCAN_MAX)
        tool_logs_answer(j, j->scan.next < j->until && j->tool->info.pages);
    else if (stuck || j->scan.next >= j->until)
        at_end(j);
    else
        read_lines(j);
}

#define FIELD(member) offsetof(struct tool_args, member)
#define LIMIT_ARG                                                                                  \
    {                                                                                              \
        .name = "limit", .type = TOOL_ARG_NUMBER, .field = FIELD(limit), .min = 1,                 \
        .max = LOG_LIMIT_MAX, .fallback = TOOL_BUILTIN_PAGE_ROWS,                                  \
        .help = "Items on a page, at most."                                                        \
    }
#define CURSOR_ARG                                                                                 \
    {                                                                                              \
        .name = "cursor", .type = TOOL_ARG_TEXT, .field = FIELD(cursor), .max = CURSOR_MAX,        \
        .help = "Only what was appended behind this place: the nextCursor of an earlier answer."   \
    }

/* ---- log:read ---- */

static bool tool_has_logs(const struct tools_setup *s)
{
    return s->lane != NULL && s->n_logs > 0;
}

static void tool_start_log_read(struct tool_job *j)
{
    const struct tools_setup *s = &j->all->setup;
    for (size_t i = 0; i < s->n_logs; i++)
        if (str_eq(s->logs[i].name, j->given.name)) {
            tool_logs_start(j, s->logs[i].path);
            return;
        }
    tool_job_failed(j, false, "there is no log named %.*s", (int)j->given.name.n, j->given.name.p);
}

static const struct tool_arg log_read_args[] = {
    {.name = "name",
     .type = TOOL_ARG_TEXT,
     .field = FIELD(name),
     .required = true,
     .max = 128,
     .help = "The log's name."},
    CURSOR_ARG,
    LIMIT_ARG,
    {.name = "where",
     .type = TOOL_ARG_OBJECT,
     .field = FIELD(where),
     .help = "Only objects whose members have these values: texts, numbers or bools."},
};

const struct tool_builtin tool_log_read = {
    .id = "log:read",
    .description = "The JSON objects of a log, up to its end as it is now.",
    .args = log_read_args,
    .n_args = sizeof log_read_args / sizeof *log_read_args,
    .pages = true,
    .is_there = tool_has_logs,
    .start = tool_start_log_read,
};

/* ---- feedback:wait ---- */

static bool tool_logs_has_feedback(const struct tools_setup *s)
{
    return s->lane != NULL && s->feedback != NULL;
}

static void tool_logs_start_feedback_wait(struct tool_job *j)
{
    j->ends_at_ms = j->all->setup.sched->now_ms + j->given.timeout_s * 1000;
    tool_logs_start(j, j->all->setup.feedback);
}

static const struct tool_arg feedback_wait_args[] = {
    {.name = "run",
     .type = TOOL_ARG_TEXT,
     .field = FIELD(run),
     .max = 1024,
     .help = "Only feedback of this run: its runId."},
    CURSOR_ARG,
    LIMIT_ARG,
    {.name = "timeout",
     .type = TOOL_ARG_NUMBER,
     .field = FIELD(timeout_s),
     .max = WAIT_MAX_S,
     .fallback = WAIT_S,
     .help = "How many seconds to wait for it if there is none yet; then no items are given."},
};

const struct tool_builtin tool_feedback_wait = {
    .id = "feedback:wait",
    .description = "What people have said in the Lab of a run, or of all. Waits if there is "
                   "nothing yet; ask again with the nextCursor for what comes later.",
    .args = feedback_wait_args,
    .n_args = sizeof feedback_wait_args / sizeof *feedback_wait_args,
    .is_there = tool_logs_has_feedback,
    .start = tool_logs_start_feedback_wait,
};
