// SPDX-License-Identifier: Apache-2.0
/* tool_streams.c -- built-in tools that look at streams, and the one that conformance tests know.
 *
 * A page of a stream ends at an event. Where to go on:
 *
 *     u8   `e`: number is an event's (JSON, where they can be told apart); `p`: a position
 *     u64  life
 *     u64  number          both big-endian
 *
 * and in a list of streams: the last name. */
#include "base/b64.h"
#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"
#include "feature/sessions/session.h"
#include "feature/tools/tool_core.h"
#include "store/content.h"

#include <string.h>

#define LIMIT_MAX  1000
#define PLACE_SIZE (1 + 8 + 8)

/* ---- conformance:page_gen ---- */

#define GEN_PAGES  10
#define GEN_ROWS   10

/* The position is the number of the page, u32 big-endian. */
static void tool_streams_start_page_gen(struct tool_job *j)
{
    uint64_t page = 1;
    uint8_t next[4];
    if (j->position.n == sizeof next)
        page = tool_get_be((const uint8_t *)j->position.p, sizeof next);
    if ((j->position.n != 0 && j->position.n != sizeof next) || page < 1 || page > GEN_PAGES) {
        tool_job_malformed(j);
        return;
    }
    for (uint64_t row = (page - 1) * GEN_ROWS; row < page * GEN_ROWS; row++)
        buf_printf(&j->call->result, "%s{\"row\":%llu}", row % GEN_ROWS == 0 ? "[" : ",",
                   (unsigned long long)row);
    buf_putc(&j->call->result, ']');
    tool_put_be(next, page + 1, sizeof next);
    tool_job_page(j, page < GEN_PAGES ? str_of((const char *)next, sizeof next) : STR_NONE);
}

const struct tool_builtin tool_page_gen = {
    .id = "conformance:page_gen",
    .description = "Rows numbered from 0 to 99, ten on a page: to try out how pages are followed.",
    .pages = true,
    .bare = true,
    .start = tool_streams_start_page_gen,
};

/* ---- reading a stream ---- */

static void put_place(uint8_t out[PLACE_SIZE], char kind, uint64_t life, uint64_t number)
{
    out[0] = (uint8_t)kind;
    tool_put_be(out + 1, life, 8);
    tool_put_be(out + 9, number, 8);
}

/* The events of a JSON stream are rows. */
static bool take_json(struct tool_job *j, const struct store_read *r, uint8_t more[PLACE_SIZE])
{
    struct buf stored = {0};
    struct str rest, row;
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(&stored, r->slices[i].bytes);
    for (rest = buf_str(&stored); tool_rows_cut(&rest, &row);)
        tool_rows_add(&j->rows, row);
    buf_deinit(&stored);
    size_t n = tool_rows_page(&j->rows, j->given.limit, TOOL_BUILTIN_PAGE_BYTES);
    tool_rows_put(&j->rows, n, &j->call->result);
    put_place(more, 'e', r->info.life, r->ordinal + n);
    return n < tool_rows_count(&j->rows) || r->next < r->info.tail;
}

/* Of others the page is one row, since nothing tells their events apart. */
static bool tool_streams_take_bytes(struct tool_job *j, const struct store_read *r,
                                    uint8_t more[PLACE_SIZE])
{
    struct buf bytes = {0}, text = {0}, *out = &j->call->result;
    char offset[OFFSET_TEXT];
    offset_format((struct offset){r->info.life, r->start}, offset);
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(&bytes, r->slices[i].bytes);
    bool is_text = utf8_valid(buf_str(&bytes));
    if (is_text)
        json_put_string(&text, buf_str(&bytes));
    else
        b64_put(&text, buf_str(&bytes));
    buf_put(out, STR("["));
    if (bytes.n > 0)
        buf_printf(out, "{\"offset\":\"%.*s\",", OFFSET_TEXT, offset);
    if (bytes.n > 0 && is_text) {
        buf_put(out, STR("\"text\":"));
        buf_put(out, buf_str(&text));
        buf_putc(out, '}');
    } else if (bytes.n > 0) {
        buf_put(out, STR("\"base64\":\""));
        buf_put(out, buf_str(&text));
        buf_put(out, STR("\"}"));
    }
    buf_putc(out, ']');
    buf_deinit(&bytes);
    buf_deinit(&text);
    put_place(more, 'p', r->info.life, r->next);
    return r->next < r->info.tail;
}

static void fail_read(struct tool_job *j, int err)
{
    int n = (int)j->read.name.n;
    bool later = err == ERR_IO || ERR_IS_PASSING(err) || err == ERR_KEY_ABSENT;
    if (err == ERR_TOO_LARGE)
        tool_job_failed(j, false, "%.*s: the next event has more than %d bytes", n, j->read.name.p,
                        TOOL_ROW_MAX);
    else
        tool_job_failed(j, later, "%.*s: %s", n, j->read.name.p, err_text(err));
}

/* About a page, unless a single event has more. */
static size_t tool_streams_size_of(const struct store_read *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < r->n_slices; i++)
        n += r->slices[i].bytes.n;
    return n;
}

static void tool_streams_on_read(struct store_read *r, int err)
{
    struct tool_job *j = container_of(r, struct tool_job, read);
    uint8_t more[PLACE_SIZE];
    bool goes_on = false, reborn = false;
    if (err == 0 && tool_streams_size_of(r) > TOOL_ROW_MAX)
        err = ERR_TOO_LARGE;
    if (err == 0 && j->continues)
        reborn = tool_get_be((const uint8_t *)j->position.p + 1, 8) != r->info.life;
    if (err == 0 && !reborn && j->call != NULL) {
        bool is_json = content_kind(r->info.content_type) == CONTENT_JSON;
        goes_on = is_json ? take_json(j, r, more) : tool_streams_take_bytes(j, r, more);
    }
    store_read_release(r);
    if (!tool_job_back(j))
        return;
    if (err != 0 || reborn)
        fail_read(j, reborn ? ERR_GAP : err);
    else
        tool_job_page(j, goes_on ? str_of((const char *)more, sizeof more) : STR_NONE);
}

/* Where the page begins. False: the cursor holds no such place, or there is no such offset. */
static bool set_place(struct tool_job *j)
{
    struct store_read *r = &j->read;
    const uint8_t *at = (const uint8_t *)j->position.p;
    struct str offset = j->given.offset;
    if (j->position.n == PLACE_SIZE) {
        r->from = at[0] == 'e' ? READ_EVENT : READ_AT;
        r->at = (struct offset){tool_get_be(at + 1, 8), tool_get_be(at + 9, 8)};
        r->event = r->at.pos;
        return true;
    }
    r->from = offset.n == 0 || str_eq(offset, STR("-1")) ? READ_START : READ_AT;
    return j->position.n == 0 && (r->from == READ_START || offset_parse(offset, &r->at) == 0);
}

static void read_stream(struct tool_job *j, struct store *store, struct str name)
{
    j->read = (struct store_read){.name = name,
                                  .max_bytes = TOOL_BUILTIN_PAGE_BYTES,
                                  .touch = true,
                                  .done = tool_streams_on_read};
    if (!set_place(j)) {
        tool_job_invalid(j, "argument 'offset' must be -1 or an offset of the stream");
        return;
    }
    tool_job_begin(j);
    store_read(store, &j->read);
}

/* What the server keeps for itself is not there: results of others are among it. */
static void tool_start_stream_read(struct tool_job *j)
{
    struct str name = j->given.name;
    if (store_reserved(name))
        tool_job_failed(j, false, "%.*s: %s", (int)name.n, name.p, err_text(ERR_NOT_FOUND));
    else
        read_stream(j, j->all->setup.store, name);
}

#define FIELD(member) offsetof(struct tool_args, member)
#define OFFSET_ARG                                                                                 \
    {                                                                                              \
        .name = "offset", .type = TOOL_ARG_TEXT, .field = FIELD(offset), .max = OFFSET_TEXT,       \
        .help = "Where to begin: an offset of the stream, or -1 for its first event, as without "  \
                "it."                                                                              \
    }
#define LIMIT_ARG(what)                                                                            \
    {                                                                                              \
        .name = "limit", .type = TOOL_ARG_NUMBER, .field = FIELD(limit), .min = 1,                 \
        .max = LIMIT_MAX, .fallback = TOOL_BUILTIN_PAGE_ROWS, .help = what " on a page, at most."  \
    }

static const struct tool_arg stream_read_args[] = {
    {.name = "name",
     .type = TOOL_ARG_TEXT,
     .field = FIELD(name),
     .required = true,
     .max = STORE_NAME_MAX,
     .help = "The stream's name."},
    OFFSET_ARG,
    LIMIT_ARG("Events"),
};

const struct tool_builtin tool_stream_read = {
    .id = "stream:read",
    .description = "The events of a stream, up to its end as it is now. Those of a JSON stream are "
                   "given as they are; of others, as texts or base64 with their offset.",
    .args = stream_read_args,
    .n_args = sizeof stream_read_args / sizeof *stream_read_args,
    .pages = true,
    .start = tool_start_stream_read,
};

/* ---- session:read ---- */

static bool tool_streams_has_sessions(const struct tools_setup *s)
{
    return s->sessions != NULL;
}

static void tool_streams_start_session_read(struct tool_job *j)
{
    struct str key = j->given.session, which = j->given.stream;
    if (!session_key_valid(key)) {
        tool_job_invalid(j, "argument 'session' is no key of a session");
        return;
    }
    struct str name = arena_printf(&j->arena, SESSION_PREFIX "%.*s/%s", (int)key.n, key.p,
                                   str_eq(which, STR("in")) ? "in" : "out");
    read_stream(j, j->all->setup.sessions, name);
}

static const struct tool_arg session_read_args[] = {
    {.name = "session",
     .type = TOOL_ARG_TEXT,
     .field = FIELD(session),
     .required = true,
     .max = SESSION_KEY_MAX,
     .help = "The session's key."},
    {.name = "stream",
     .type = TOOL_ARG_TEXT,
     .field = FIELD(stream),
     .max = 3,
     .choices = "in|out",
     .help = "in: what its client sent. out, as without it: what it was answered."},
    OFFSET_ARG,
    LIMIT_ARG("Events"),
};

const struct tool_builtin tool_session_read = {
    .id = "session:read",
    .description = "What the client of a session sent, or what it was answered.",
    .args = session_read_args,
    .n_args = sizeof session_read_args / sizeof *session_read_args,
    .capability = "worker",
    .pages = true,
    .is_there = tool_streams_has_sessions,
    .start = tool_streams_start_session_read,
};

/* ---- stream:list ---- */

static void tool_put_stream(struct buf *out, const struct store_row *row)
{
    const struct stream_info *i = &row->info;
    struct str end = end_reason_text(i->end);
    char tail[OFFSET_TEXT];
    offset_format((struct offset){i->life, i->tail}, tail);
    buf_put(out, STR("{\"name\":"));
    json_put_string(out, row->name);
    buf_put(out, STR(",\"contentType\":"));
    json_put_string(out, i->content_type);
    buf_printf(out, ",\"tail\":\"%.*s\",\"events\":%llu,\"closed\":%s", OFFSET_TEXT, tail,
               (unsigned long long)(i->events - i->first_event),
               i->end != END_NONE ? "true" : "false");
    if (i->end != END_NONE) {
        buf_put(out, STR(",\"reason\":"));
        json_put_string(out, end);
    }
    buf_putc(out, '}');
}

static void tool_streams_on_list(struct store_list *l, int err)
{
    struct tool_job *j = container_of(l, struct tool_job, list);
    struct str last = STR_NONE;
    for (size_t i = 0; err == 0 && j->call != NULL && i < l->n_rows; i++) {
        struct buf row = {0};
        tool_put_stream(&row, &l->rows[i]);
        tool_rows_add(&j->rows, buf_str(&row));
        buf_deinit(&row);
    }
    size_t n = tool_rows_page(&j->rows, j->given.limit, TOOL_BUILTIN_PAGE_BYTES);
    bool more = l->more || n < tool_rows_count(&j->rows);
    if (err == 0 && more && n > 0)
        last = arena_dup(&j->arena, l->rows[n - 1].name);
    if (!tool_job_back(j))
        return;
    if (err != 0) {
        tool_job_failed(j, true, "the streams cannot be listed: %s", err_text(err));
        return;
    }
    tool_rows_put(&j->rows, n, &j->call->result);
    tool_job_page(j, last);
}

static void tool_start_stream_list(struct tool_job *j)
{
    j->list = (struct store_list){.prefix = j->given.prefix,
                                  .after = j->position,
                                  .limit = j->given.limit,
                                  .done = tool_streams_on_list};
    tool_job_begin(j);
    store_list(j->all->setup.store, &j->list);
}

static const struct tool_arg stream_list_args[] = {
    {.name = "prefix",
     .type = TOOL_ARG_TEXT,
     .field = FIELD(prefix),
     .max = STORE_NAME_MAX,
     .help = "Only streams whose names begin so."},
    LIMIT_ARG("Streams"),
};

const struct tool_builtin tool_stream_list = {
    .id = "stream:list",
    .description = "The streams there are, by name.",
    .args = stream_list_args,
    .n_args = sizeof stream_list_args / sizeof *stream_list_args,
    .pages = true,
    .start = tool_start_stream_list,
};
