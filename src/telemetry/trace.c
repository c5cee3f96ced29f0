// SPDX-License-Identifier: Apache-2.0
#include "telemetry/trace.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/date.h"
#include "base/json.h"

#include <inttypes.h>
#include <time.h>

TRACE_TABLE_DEFINE(server_traces, SERVER_TRACES);

static const char *const levels[] = {
    [TRACE_ERROR] = "error", [TRACE_WARN] = "warn", [TRACE_INFO] = "info", [TRACE_DEBUG] = "debug"};

/* The code point s begins with and, returned, its bytes; 0: not UTF-8. */
static size_t trace_decode(struct str s, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* of 2, 3 and 4 bytes */
    unsigned char lead = (unsigned char)s.p[0];
    size_t n = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
    if (n == 0 || n > s.n || lead > 0xf4)
        return 0;
    uint32_t v = n == 1 ? lead : lead & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s.p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | ((unsigned char)s.p[i] & 0x3f);
    }
    if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
        return 0;
    *point = v;
    return n;
}

/* Controls can forge lines and drive a terminal; marks that are invisible or turn the direction of
 * text can make a line read as another. */
static bool trace_is_plain(uint32_t point)
{
    bool control = point < 0x20 || (point >= 0x7f && point < 0xa0);
    bool mark = (point >= 0x200b && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
                (point >= 0x2060 && point <= 0x206f) || point == 0xfeff;
    return !control && !mark;
}

static void trace_put_escaped(struct buf *out, struct str s)
{
    while (s.n > 0) {
        uint32_t point;
        size_t n = trace_decode(s, &point);
        if (s.p[0] == '\\')
            buf_put(out, STR("\\\\"));
        else if (n > 0 && trace_is_plain(point))
            buf_put(out, str_of(s.p, n));
        else if (s.p[0] == '\n')
            buf_put(out, STR("\\n"));
        else
            buf_printf(out, "\\x%02x", (unsigned char)s.p[0]);
        s = str_skip(s, n > 0 && trace_is_plain(point) ? n : 1);
    }
}

/* At most TRACE_VALUE_MAX bytes, not ending within a character. */
static struct str trace_cut(struct str s)
{
    if (s.n <= TRACE_VALUE_MAX)
        return s;
    size_t n = TRACE_VALUE_MAX;
    while (n > TRACE_VALUE_MAX - 4 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return str_of(s.p, n);
}

static void trace_put_value(struct buf *out, const struct trace_field *f, bool escape)
{
    if (!f->is_text) {
        buf_printf(out, "%" PRId64, f->number);
        return;
    }
    if (escape)
        trace_put_escaped(out, trace_cut(f->text));
    else
        buf_put(out, trace_cut(f->text));
    if (f->text.n > TRACE_VALUE_MAX)
        buf_put(out, STR("..."));
}

/* escape: for a terminal; JSON does its own. */
static void put_sentence(struct buf *out, const struct trace_kind *kind,
                         const struct trace_field *fields, size_t n, bool escape)
{
    size_t next = 0;
    struct str rest = str_of_cstr(kind->text);
    while (rest.n > 0) {
        if (!str_starts(rest, STR("{}"))) {
            buf_putc(out, rest.p[0]);
            rest = str_skip(rest, 1);
            continue;
        }
        if (next < n)
            trace_put_value(out, &fields[next++], escape);
        else
            buf_putc(out, '?');
        rest = str_skip(rest, 2);
    }
    for (; next < n; next++) {
        buf_printf(out, " %s=", fields[next].key);
        trace_put_value(out, &fields[next], escape);
    }
}

static void put_human(struct buf *out, int64_t now_ms, const struct trace_kind *kind,
                      const struct trace_field *fields, size_t n)
{
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    buf_printf(out, "%02d:%02d:%02d %-5s ", local.tm_hour, local.tm_min, local.tm_sec,
               levels[kind->level]);
    put_sentence(out, kind, fields, n, true);
}

static void put_json_head(struct buf *out, int64_t now_ms, const struct trace_kind *kind)
{
    char time[DATE_RFC3339_TEXT];
    date_format_rfc3339(now_ms, time);
    buf_printf(out, "{\"time\":\"%.*s\",\"level\":\"%s\",\"kind\":\"", DATE_RFC3339_TEXT, time,
               levels[kind->level]);
    for (const char *c = kind->name; *c; c++)
        buf_putc(out, *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c);
    buf_put(out, STR("\",\"message\":"));
}

static void trace_put_json(struct buf *out, int64_t now_ms, const struct trace_kind *kind,
                           const struct trace_field *fields, size_t n)
{
    struct buf text = {0};
    put_json_head(out, now_ms, kind);
    put_sentence(&text, kind, fields, n, false);
    json_put_string(out, buf_str(&text));
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, ",\"%s\":", fields[i].key);
        text.n = 0;
        trace_put_value(&text, &fields[i], false);
        if (fields[i].is_text)
            json_put_string(out, buf_str(&text));
        else
            buf_put(out, buf_str(&text));
    }
    buf_putc(out, '}');
    buf_deinit(&text);
}

void trace_line(const struct trace *t, const struct trace_kind *kind,
                const struct trace_field *fields, size_t n)
{
    if (kind->level > t->level)
        return;
    struct buf line = {0};
    int64_t now_ms = clock_wall_ms();
    if (t->json)
        trace_put_json(&line, now_ms, kind, fields, n);
    else
        put_human(&line, now_ms, kind, fields, n);
    buf_putc(&line, '\n');
    FILE *to = t->to ? t->to : stderr;
    /* Whole, so that lines of several processes on one terminal do not mix. */
    fwrite(line.p, 1, line.n, to);
    fflush(to);
    buf_deinit(&line);
}
