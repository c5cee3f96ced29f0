// SPDX-License-Identifier: Apache-2.0
#include "feature/logs/log_page.h"
#include "base/err.h"
#include "base/mem.h"
#include "feature/builtin.h"

#include <inttypes.h>

#define STEP_BYTES (64 * 1024)

void log_page_deinit(struct log_page *p)
{
    log_query_deinit(&p->query);
    buf_deinit(&p->items);
}

static bool is_full(const struct log_page *p)
{
    return log_scan_full(&p->scan) || p->items.n >= p->max_bytes;
}

static void log_page_take_item(struct log_page *p, struct str item)
{
    struct buf text = {0};
    if (p->take != NULL && !p->take(&text, item)) {
        log_scan_reject(&p->scan);
        return;
    }
    if (p->items.n > 0)
        buf_putc(&p->items, ',');
    buf_put(&p->items, p->take != NULL ? buf_str(&text) : item);
    buf_deinit(&text);
}

static void log_page_take_lines(struct log_page *p)
{
    const struct log_read *r = &p->read;
    struct str rest = STR_NONE, item;
    if (r->bytes != NULL)
        rest = str_of(r->bytes->bytes, r->bytes->n);
    while (!is_full(p) && log_scan_item(&p->scan, &rest, &item))
        log_page_take_item(p, item);
    if (!is_full(p))
        p->scan.next = r->next; /* also behind a line that was passed over */
    p->scanned += r->next - r->since;
    p->next = p->scan.next;
}

static void log_page_on_lines(struct log_read *r, int err)
{
    struct log_page *p = container_of(r, struct log_page, read);
    if (err == 0) {
        if (p->until == 0)
            p->until = r->size; /* who writes on cannot keep us here */
        p->id = r->id;
        p->has_id = true;
        log_page_take_lines(p);
    }
    bool stuck = r->next == r->since;
    block_unref(r->bytes);
    r->bytes = NULL;
    p->goes_on = p->next < p->until;
    if (is_full(p) || p->scanned >= LOG_PAGE_SCAN_MAX)
        p->state = LOG_PAGE_FULL;
    else
        p->state = stuck || !p->goes_on ? LOG_PAGE_END : LOG_PAGE_MORE;
    p->done(p, err);
}

void log_page_step(struct log_page *p)
{
    if (p->state == LOG_PAGE_END)
        p->until = 0; /* what has come since counts */
    p->read = (struct log_read){.log = &p->log,
                                .since = p->scan.next,
                                .max = STEP_BYTES,
                                .has_id = p->has_id,
                                .id = p->id,
                                .done = log_page_on_lines};
    log_read(&p->read);
}

void log_page_start(struct log_page *p)
{
    log_scan_init(&p->scan, &p->query);
    log_page_step(p);
}

void log_page_put(const struct log_page *p, struct buf *out)
{
    buf_put(out, STR("{\"items\":["));
    buf_put(out, buf_str(&p->items));
    buf_printf(out, "],\"nextCursor\":\"%" PRIu64 "\"}", p->next);
}

void log_page_fail(const struct log_page *p, int err, struct builtin_page *page)
{
    if (err != ERR_GAP && err != ERR_OFFSET)
        page->ops->failed(page, true, "the file cannot be read: %s", err_text(err));
    else if (p->has_id)
        page->ops->failed(page, false,
                          "the file was truncated or replaced; begin anew without a cursor");
    else if (err == ERR_GAP)
        page->ops->invalid(page, "argument 'cursor' is beyond the end of the file");
    else
        page->ops->invalid(page, "argument 'cursor' is not behind the end of a line");
}
