// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/gateway_lines.h"
#include "base/err.h"
#include "base/json_view.h"

void gateway_lines_deinit(struct gateway_lines *l)
{
    buf_deinit(&l->rest);
}

static int take_line(struct gateway_lines *l, struct str line)
{
    if (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    if (line.n > l->max)
        return ERR_TOO_LARGE;
    return view_trim(line).n == 0 ? 0 : l->on_line(l->user, line);
}

/* A line that began in an earlier piece. */
static int take_rest(struct gateway_lines *l, struct str end)
{
    if (end.n > l->max + 1 - l->rest.n) /* one more for a CR */
        return ERR_TOO_LARGE;
    buf_put(&l->rest, end);
    int err = take_line(l, buf_str(&l->rest));
    buf_deinit(&l->rest);
    return err;
}

static int keep_rest(struct gateway_lines *l, struct str bytes)
{
    if (bytes.n > l->max + 1 - l->rest.n)
        return ERR_TOO_LARGE;
    buf_put(&l->rest, bytes);
    return 0;
}

int gateway_lines_feed(struct gateway_lines *l, struct str bytes)
{
    int err = 0;
    while (err == 0 && bytes.n > 0) {
        const char *end = memchr(bytes.p, '\n', bytes.n);
        if (end == NULL)
            return keep_rest(l, bytes);
        struct str line = str_of(bytes.p, (size_t)(end - bytes.p));
        err = l->rest.n > 0 ? take_rest(l, line) : take_line(l, line);
        bytes = str_skip(bytes, line.n + 1);
    }
    return err;
}

int gateway_lines_end(struct gateway_lines *l)
{
    return l->rest.n > 0 ? take_rest(l, STR("")) : 0;
}
