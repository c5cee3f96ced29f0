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
#include "access/principal.h"
#include "base/b64.h"
#include "base/be.h"
#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"
#include "feature/tools/tool_core.h"
#include "feature/tools/tool_rows.h"
#include "store/content.h"
#include "store/names.h"
#include "stream/listing.h"

#include <string.h>

#define PLACE_SIZE (1 + 8 + 8)

/* ---- conformance:page_gen ---- */

#define GEN_PAGES  10
#define GEN_ROWS   10

/* The position is the number of the page, u32 big-endian. */
static void tool_streams_start_page_gen(struct builtin_page *p)
{
    uint64_t page = 1;
    uint8_t next[4];
    if (p->position.n == sizeof next)
        page = be_get((const uint8_t *)p->position.p, sizeof next);
    if ((p->position.n != 0 && p->position.n != sizeof next) || page < 1 || page > GEN_PAGES) {
        p->ops->malformed(p);
        return;
    }
    for (uint64_t row = (page - 1) * GEN_ROWS; row < page * GEN_ROWS; row++)
        buf_printf(p->result, "%s{\"row\":%llu}", row % GEN_ROWS == 0 ? "[" : ",",
                   (unsigned long long)row);
    buf_putc(p->result, ']');
    be_put(next, page + 1, sizeof next);
    p->ops->done(p, page < GEN_PAGES ? str_of((const char *)next, sizeof next) : STR_NONE);
}

/* ---- reading a stream ---- */

struct stream_page {
    struct builtin_page *page;
    struct store_read read;
    uint64_t limit;
};

static void put_place(uint8_t out[PLACE_SIZE], char kind, uint64_t life, uint64_t number)
{
    out[0] = (uint8_t)kind;
    be_put(out + 1, life, 8);
    be_put(out + 9, number, 8);
}

/* The events of a JSON stream are rows. */
static bool take_json(struct stream_page *s, struct str stored, uint8_t more[PLACE_SIZE])
{
    const struct store_read *r = &s->read;
    struct tool_rows rows = {0};
    struct str row;
    while (tool_rows_cut(&stored, &row))
        tool_rows_add(&rows, row);
    size_t count = tool_rows_count(&rows), n = tool_rows_page(&rows, s->limit, BUILTIN_PAGE_BYTES);
    tool_rows_put(&rows, n, s->page->result);
    tool_rows_deinit(&rows);
    put_place(more, 'e', r->info.life, r->ordinal + n);
    return n < count || r->next < r->info.tail;
}

/* Of others the page is one row, since nothing tells their events apart. */
static bool tool_streams_take_bytes(struct stream_page *s, struct str bytes,
                                    uint8_t more[PLACE_SIZE])
{
    const struct store_read *r = &s->read;
    struct buf *out = s->page->result;
    char offset[OFFSET_TEXT];
    offset_format((struct offset){r->info.life, r->start}, offset);
    buf_putc(out, '[');
    if (bytes.n > 0) {
        buf_printf(out, "{\"offset\":\"%.*s\",", OFFSET_TEXT, offset);
        if (utf8_valid(bytes)) {
            buf_put(out, STR("\"text\":"));
            json_put_string(out, bytes);
        } else {
            buf_put(out, STR("\"base64\":\""));
            b64_put(out, bytes);
            buf_putc(out, '"');
        }
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
    put_place(more, 'p', r->info.life, r->next);
    return r->next < r->info.tail;
}

/* True: the stream goes on behind the page, at `more`. */
static bool tool_streams_take(struct stream_page *s, uint8_t more[PLACE_SIZE])
{
    const struct store_read *r = &s->read;
    struct buf bytes = {0};
    for (uint32_t i = 0; i < r->n_slices; i++)
        buf_put(&bytes, r->slices[i].bytes);
    bool goes_on = content_kind(r->info.content_type) == CONTENT_JSON
                       ? take_json(s, buf_str(&bytes), more)
                       : tool_streams_take_bytes(s, buf_str(&bytes), more);
    buf_deinit(&bytes);
    return goes_on;
}

/* About a page, unless a single event has more. */
static size_t tool_streams_size_of(const struct store_read *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < r->n_slices; i++)
        n += r->slices[i].bytes.n;
    return n;
}

static bool is_reborn(const struct stream_page *s)
{
    struct str position = s->page->position;
    return position.n > 0 && be_get((const uint8_t *)position.p + 1, 8) != s->read.info.life;
}

static void fail_read(struct builtin_page *p, struct str stored, int err)
{
    bool later = err == ERR_IO || ERR_IS_PASSING(err) || err == ERR_KEY_ABSENT;
    struct str name = principal_unrooted(p->principal, stored);
    if (err == ERR_TOO_LARGE)
        p->ops->failed(p, false, "%.*s: the next event has more than %d bytes", (int)name.n, name.p,
                       TOOL_ROW_MAX);
    else
        p->ops->failed(p, later, "%.*s: %s", (int)name.n, name.p, err_text(err));
}

static void tool_streams_on_read(struct store_read *r, int err)
{
    struct stream_page *s = container_of(r, struct stream_page, read);
    struct builtin_page *p = s->page;
    uint8_t more[PLACE_SIZE];
    bool goes_on = false;
    if (err == 0 && tool_streams_size_of(r) > TOOL_ROW_MAX)
        err = ERR_TOO_LARGE;
    else if (err == 0 && is_reborn(s))
        err = ERR_GAP;
    if (err == 0 && p->result != NULL)
        goes_on = tool_streams_take(s, more);
    store_read_release(r);
    if (!p->ops->back(p))
        return;
    if (err != 0)
        fail_read(p, r->name, err);
    else
        p->ops->done(p, goes_on ? str_of((const char *)more, sizeof more) : STR_NONE);
}

/* Where the page begins. False: the cursor holds no such place, or there is no such offset. */
static bool set_place(struct store_read *r, struct str position, struct str offset)
{
    const uint8_t *at = (const uint8_t *)position.p;
    if (position.n == PLACE_SIZE) {
        r->from = at[0] == 'e' ? READ_EVENT : READ_AT;
        r->at = (struct offset){be_get(at + 1, 8), be_get(at + 9, 8)};
        r->event = r->at.pos;
        return true;
    }
    r->from = offset.n == 0 || str_eq(offset, STR("-1")) ? READ_START : READ_AT;
    return position.n == 0 && (r->from == READ_START || offset_parse(offset, &r->at) == 0);
}

void tool_read_stream(struct builtin_page *p, const struct builtin_stream *from)
{
    struct stream_page *s = arena_alloc(p->arena, sizeof *s);
    *s = (struct stream_page){.page = p,
                              .limit = from->limit,
                              .read = {.name = from->name,
                                       .max_bytes = BUILTIN_PAGE_BYTES,
                                       .touch = true,
                                       .done = tool_streams_on_read}};
    if (!set_place(&s->read, p->position, from->offset)) {
        p->ops->invalid(p, "argument 'offset' must be -1 or an offset of the stream");
        return;
    }
    p->under_way = true;
    store_read(from->store, &s->read);
}

/* ---- stream:read ---- */

struct stream_read {
    struct str name, offset;
    uint64_t limit;
};

/* What the server keeps for itself is not there: results of others are among it. */
static void tool_streams_start_read(struct builtin_page *p)
{
    struct stream_read *s = p->state;
    struct str name = principal_rooted(p->principal, p->arena, s->name);
    if (!principal_may(p->principal, ACCESS_VERB_READ, ACCESS_STREAM, s->name))
        p->ops->denied(p);
    else if (store_reserved(name) || name.n > STORE_NAME_MAX)
        fail_read(p, name, ERR_NOT_FOUND);
    else
        tool_read_stream(p, &(struct builtin_stream){p->store, name, s->offset, s->limit});
}

static const struct builtin_arg stream_read_args[] = {
    {.name = "name",
     .type = BUILTIN_TEXT,
     .field = offsetof(struct stream_read, name),
     .required = true,
     .max = STORE_NAME_MAX,
     .help = "The stream's name."},
    BUILTIN_OFFSET_ARG(struct stream_read),
    BUILTIN_LIMIT_ARG(struct stream_read, BUILTIN_STREAM_ROWS_MAX, "Events"),
};

/* ---- stream:list ---- */

struct stream_list {
    struct builtin_page *page;
    struct str prefix;
    uint64_t limit;
    struct listing listing;
    struct tool_rows rows;
    struct str *names; /* of the rows */
};

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

static void tool_streams_on_row(struct listing *l, const struct store_row *row)
{
    struct stream_list *s = container_of(l, struct stream_list, listing);
    struct buf text = {0};
    tool_put_stream(&text, row);
    tool_rows_add(&s->rows, buf_str(&text));
    buf_deinit(&text);
    s->names[l->n - 1] = arena_dup(s->page->arena, row->name);
}

static bool tool_streams_list_wanted(const struct listing *l)
{
    return container_of(l, struct stream_list, listing)->page->result != NULL;
}

static void tool_streams_answer_list(struct stream_list *s)
{
    struct builtin_page *p = s->page;
    size_t n = tool_rows_page(&s->rows, s->limit, BUILTIN_PAGE_BYTES);
    bool all = n == tool_rows_count(&s->rows);
    tool_rows_put(&s->rows, n, p->result);
    p->ops->done(p, all ? s->listing.next : s->names[n - 1]);
}

static void tool_streams_on_list(struct listing *l, int err)
{
    struct stream_list *s = container_of(l, struct stream_list, listing);
    struct builtin_page *p = s->page;
    if (!p->ops->back(p))
        return;
    if (err != 0)
        p->ops->failed(p, true, "the streams cannot be listed: %s", err_text(err));
    else
        tool_streams_answer_list(s);
}

static void tool_streams_start_list(struct builtin_page *p)
{
    struct stream_list *s = p->state;
    s->page = p;
    if (!listing_allowed(p->principal)) {
        p->ops->denied(p);
        return;
    }
    s->names = arena_alloc(p->arena, (s->limit + 1) * sizeof *s->names);
    s->listing = (struct listing){.store = p->store,
                                  .principal = p->principal,
                                  .arena = p->arena,
                                  .prefix = s->prefix,
                                  .after = p->position,
                                  .limit = s->limit,
                                  .bookmarks = p->bookmarks,
                                  .row = tool_streams_on_row,
                                  .wanted = tool_streams_list_wanted,
                                  .done = tool_streams_on_list};
    enum listing_start start = listing_start(&s->listing);
    p->under_way = start == LISTING_UNDER_WAY;
    if (start == LISTING_NOTHING)
        tool_streams_answer_list(s);
    else if (start == LISTING_BAD_AFTER)
        p->ops->malformed(p);
}

static void tool_streams_end_list(struct builtin_page *p)
{
    struct stream_list *s = p->state;
    tool_rows_deinit(&s->rows);
}

static const struct builtin_arg stream_list_args[] = {
    {.name = "prefix",
     .type = BUILTIN_TEXT,
     .field = offsetof(struct stream_list, prefix),
     .max = STORE_NAME_MAX,
     .help = "Only streams whose names begin so."},
    BUILTIN_LIMIT_ARG(struct stream_list, BUILTIN_STREAM_ROWS_MAX, "Streams"),
};

const struct builtin_tool tools_builtins[] = {
    {
        .id = "conformance:page_gen",
        .description =
            "Rows numbered from 0 to 99, ten on a page: to try out how pages are followed.",
        .pages = true,
        .bare = true,
        .start = tool_streams_start_page_gen,
    },
    {
        .id = "stream:read",
        .description =
            "The events of a stream, up to its end as it is now. Those of a JSON stream are "
            "given as they are; of others, as texts or base64 with their offset.",
        .args = stream_read_args,
        .n_args = sizeof stream_read_args / sizeof *stream_read_args,
        .pages = true,
        .size = sizeof(struct stream_read),
        .start = tool_streams_start_read,
    },
    {
        .id = "stream:list",
        .description = "The streams there are, by name.",
        .args = stream_list_args,
        .n_args = sizeof stream_list_args / sizeof *stream_list_args,
        .pages = true,
        .size = sizeof(struct stream_list),
        .start = tool_streams_start_list,
        .end = tool_streams_end_list,
    },
    {.id = NULL},
};
