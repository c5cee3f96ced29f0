// SPDX-License-Identifier: Apache-2.0
#include "client/codec.h"
#include "base/num.h"
#include "base/utf8.h"

int codec_put_base64(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = bytes_room(c, out, b64_size(s.n));
    if (to == NULL)
        return TM_E_NOMEM;
    out->n += b64_encode(s, to);
    out->p[out->n] = '\0';
    return 0;
}

int codec_put_base64url(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = bytes_room(c, out, b64url_size(s.n));
    if (to == NULL)
        return TM_E_NOMEM;
    out->n += b64url_encode(s, to);
    out->p[out->n] = '\0';
    return 0;
}

int codec_put_hex(struct tm_client *c, struct bytes *out, struct str s)
{
    char *to = s.n > SIZE_MAX / 4 ? NULL : bytes_room(c, out, 2 * s.n);
    if (to == NULL)
        return TM_E_NOMEM;
    hex_encode(s.p, s.n, to);
    out->n += 2 * s.n;
    out->p[out->n] = '\0';
    return 0;
}

/* ---- writing JSON ---- */

static int codec_put_escaped(struct tm_client *c, struct bytes *out, char ch)
{
    if (ch == '"' || ch == '\\')
        return bytes_printf(c, out, "\\%c", ch);
    return bytes_printf(c, out, "\\u%04x", (unsigned char)ch);
}

static bool needs_escape(char ch)
{
    return (unsigned char)ch < 0x20 || ch == '"' || ch == '\\' || ch == 0x7f;
}

int codec_put_json(struct tm_client *c, struct bytes *out, struct str s)
{
    size_t before = out->n, from = 0;
    int err = bytes_put(c, out, STR("\""));
    for (size_t i = 0; i <= s.n && err == 0; i++) {
        if (i < s.n && !needs_escape(s.p[i]))
            continue;
        if (i > from)
            err = bytes_put(c, out, str_of(s.p + from, i - from));
        if (i < s.n && err == 0)
            err = codec_put_escaped(c, out, s.p[i]);
        from = i + 1;
    }
    if (err == 0)
        err = bytes_put(c, out, STR("\""));
    if (err != 0)
        out->n = before;
    return err;
}
