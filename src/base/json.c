// SPDX-License-Identifier: Apache-2.0
#include "base/json_core.h"
#include "base/err.h"
#include "base/must.h"
#include "base/utf8.h"

/* Line breaks stand between tokens only, or the value would not have been valid. */
static char *copy_unbroken(char *to, const char *p, const char *end)
{
    for (; p < end; p++)
        if (*p != '\n' && *p != '\r')
            *to++ = *p;
    return to;
}

/* One value into *out, which has the room, as an event. */
static const char *split_value(struct json_scan *s, const char *p, struct buf *out,
                               struct buf *ends)
{
    s->broken = false;
    const char *end = json_scan_value(s, p);
    if (end == NULL)
        return NULL;
    char *to = out->p + out->n;
    if (s->broken) {
        to = copy_unbroken(to, p, end);
    } else {
        memcpy(to, p, (size_t)(end - p));
        to += end - p;
    }
    *to++ = ',';
    uint32_t event_end = (uint32_t)(to - out->p);
    out->n = event_end;
    memcpy(buf_reserve(ends, sizeof event_end), &event_end, sizeof event_end);
    ends->n += sizeof event_end;
    return end;
}

static const char *split_array(struct json_scan *s, const char *p, struct buf *out,
                               struct buf *ends)
{
    s->depth_max--; /* its own brackets are not counted by json_scan_value */
    p = json_scan_space(s, p + 1);
    if (p < s->end && *p == ']')
        return p + 1;
    for (unsigned n = 1; (p = split_value(s, p, out, ends)) != NULL; n++) {
        p = json_scan_space(s, p);
        if (p < s->end && *p == ']')
            return p + 1;
        if (p == s->end || *p != ',')
            return json_scan_fail(s, p);
        s->too_many = n == JSON_EVENTS_MAX;
        if (s->too_many)
            return json_scan_fail(s, p);
        p = json_scan_space(s, p + 1);
    }
    return NULL;
}

int json_split(struct str text, struct buf *out, struct buf *ends, size_t *at)
{
    struct json_scan s;
    size_t out_n = out->n, ends_n = ends->n;
    if (text.n == 0) {
        *at = 0;
        return ERR_JSON;
    }
    must(out_n + text.n < UINT32_MAX);
    buf_reserve(out, text.n + 1); /* a comma takes a separator's place, but for a lone value */
    json_scan_init(&s, text);
    const char *p = json_scan_space(&s, text.p);
    bool array = p < s.end && *p == '[';
    p = array ? split_array(&s, p, out, ends) : split_value(&s, p, out, ends);
    int err = json_scan_end(&s, p, text.p, at);
    if (s.too_many)
        err = ERR_TOO_MANY_EVENTS;
    if (err != 0) {
        out->n = out_n;
        ends->n = ends_n;
    }
    return err;
}

void json_put_string(struct buf *out, struct str s)
{
    const char *p = s.p, *end = s.n > 0 ? s.p + s.n : s.p;
    buf_putc(out, '"');
    while (p < end) {
        const char *odd = skip_plain(p, end);
        buf_put(out, str_of(p, (size_t)(odd - p)));
        p = odd;
        if (p == end)
            break;
        if ((unsigned char)*p < 0x80) {
            out->n += json_escape(*p++, buf_reserve(out, JSON_ESCAPE_MAX));
            continue;
        }
        size_t n = utf8_length(p, (size_t)(end - p));
        buf_put(out, n > 0 ? str_of(p, n) : STR("\xef\xbf\xbd"));
        p += n > 0 ? n : 1;
    }
    buf_putc(out, '"');
}

void json_put_strings(struct buf *out, const struct str *all, size_t n)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        json_put_string(out, all[i]);
    }
    buf_putc(out, ']');
}

void json_put_problem(struct buf *out, struct str code, struct str message, struct str extra)
{
    buf_put(out, STR("{\"error\":{\"code\":"));
    json_put_string(out, code);
    buf_put(out, STR(",\"message\":"));
    json_put_string(out, message);
    buf_put(out, extra);
    buf_put(out, STR("}}"));
}
