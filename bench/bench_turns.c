// SPDX-License-Identifier: Apache-2.0
#include "bench_turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN  "tidemark_loop_turn_seconds_"
#define LIMIT TURN "bucket{le=\"0.01\"} "
#define COUNT TURN "count "
#define HELD  "tidemark_loop_blocked_total{work=\""

static bool starts(const char *line, const char *with, double *value)
{
    size_t n = strlen(with);
    if (strncmp(line, with, n) != 0)
        return false;
    *value = strtod(line + n, NULL);
    return true;
}

static void take_work(struct turns *t, const char *line)
{
    const char *name = line + strlen(HELD), *end = strstr(name, "\"} ");
    if (!end || t->n == TURNS_WORKS)
        return;
    snprintf(t->works[t->n].name, TURNS_WORK_MAX, "%.*s", (int)(end - name), name);
    t->works[t->n++].count = strtod(end + 3, NULL);
}

static void take_line(struct turns *t, const char *line)
{
    if (starts(line, LIMIT, &t->short_ones))
        t->known = true;
    else if (!starts(line, COUNT, &t->all) && strncmp(line, HELD, strlen(HELD)) == 0)
        take_work(t, line);
}

void turns_look(struct bench *b, struct turns *out)
{
    struct buf request = {0}, body = {0};
    *out = (struct turns){0};
    buf_printf(&request, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    ask_for(b, &request, 200, "reading metrics", &body);
    buf_putc(&body, '\0');
    for (char *rest = body.p, *line; !b->swarm.failed && (line = strsep(&rest, "\n"));)
        take_line(out, line);
    buf_deinit(&body);
}

static double *count_of(struct turns *t, const char *work)
{
    for (unsigned i = 0; i < t->n; i++)
        if (strcmp(t->works[i].name, work) == 0)
            return &t->works[i].count;
    if (t->n == TURNS_WORKS)
        return NULL;
    snprintf(t->works[t->n].name, TURNS_WORK_MAX, "%s", work);
    t->works[t->n].count = 0;
    return &t->works[t->n++].count;
}

static void add_works(struct turns *sum, const struct turns *t, int sign)
{
    for (unsigned i = 0; i < t->n; i++) {
        double *count = count_of(sum, t->works[i].name);
        if (count)
            *count += sign * t->works[i].count;
    }
}

void turns_add(struct turns *sum, const struct turns *before, const struct turns *after)
{
    sum->known = before->known && after->known;
    sum->all += after->all - before->all;
    sum->short_ones += after->short_ones - before->short_ones;
    add_works(sum, after, 1);
    add_works(sum, before, -1);
}

double turns_long(const struct turns *sum)
{
    return sum->all - sum->short_ones;
}

void turns_blame(const struct turns *sum, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < sum->n && n < size; i++)
        if (sum->works[i].count > 0)
            n += (size_t)snprintf(out + n, size - n, "%s%s %.0f", n ? ", " : "", sum->works[i].name,
                                  sum->works[i].count);
}
