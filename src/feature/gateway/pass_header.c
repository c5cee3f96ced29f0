// SPDX-License-Identifier: Apache-2.0
#include "feature/gateway/pass_header.h"
#include "base/ascii.h"

#define N_OF(table) (sizeof(table) / sizeof *(table))

/* `*` at the end stands for any text. */
static bool header_is(struct str form, struct str name)
{
    if (form.p[form.n - 1] != '*')
        return str_eq_nocase(form, name);
    form.n--;
    return name.n >= form.n && str_eq_nocase(form, str_of(name.p, form.n));
}

static bool is_among(const struct str *forms, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (header_is(forms[i], name))
            return true;
    return false;
}

/* In both directions. */
static const struct str of_connections[] = {
    STR_INIT("connection"), STR_INIT("keep-alive"),        STR_INIT("proxy-*"),
    STR_INIT("te"),         STR_INIT("trailer"),           STR_INIT("trailers"),
    STR_INIT("upgrade"),    STR_INIT("transfer-encoding"), STR_INIT("content-length"),
    STR_INIT("tidemark-*"), STR_INIT("x-resume-token"),    STR_INIT("x-correlation-id"),
};

bool pass_is_named(const struct header *all, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++) {
        struct str list = all[i].value;
        if (!str_eq_nocase(all[i].name, STR("connection")))
            continue;
        while (list.p != NULL)
            if (str_eq_nocase(str_trim(str_cut(&list, ',')), name))
                return true;
    }
    return false;
}

/* ---- requests ---- */

/* Accept-Encoding is passed by whoever does not look into the answer. */
static const struct str request_never[] = {
    STR_INIT("accept-encoding"), STR_INIT("expect"),        STR_INIT("host"),
    STR_INIT("http2-settings"),  STR_INIT("x-resume-mode"), STR_INIT("idempotency-retry"),
};

/* What a browser says of its user and page is for this server, and for no other. What a proxy says
 * of a client anybody may have written. The last ones make another path or method of the one that
 * was granted. */
static const struct str request_asked[] = {
    STR_INIT("cookie"),
    STR_INIT("cookie2"),
    STR_INIT("origin"),
    STR_INIT("referer"),
    STR_INIT("sec-*"),
    STR_INIT("access-control-*"),
    STR_INIT("forwarded"),
    STR_INIT("via"),
    STR_INIT("x-forwarded-*"),
    STR_INIT("x-real-ip"),
    STR_INIT("x-client-ip"),
    STR_INIT("true-client-ip"),
    STR_INIT("cf-connecting-ip"),
    STR_INIT("x-original-*"),
    STR_INIT("x-rewrite-url"),
    STR_INIT("x-http-method*"),
    STR_INIT("x-method-override"),
};

enum pass pass_request_header(struct str name)
{
    if (is_among(of_connections, N_OF(of_connections), name) ||
        is_among(request_never, N_OF(request_never), name))
        return PASS_NEVER;
    if (is_among(request_asked, N_OF(request_asked), name))
        return PASS_ASKED;
    /* Many servers take `_` and `-` for the same: a name that is withheld must not come so. */
    return memchr(name.p, '_', name.n) != NULL ? PASS_ASKED : PASS_ALWAYS;
}

/* ---- answers ---- */

/* What follows the first line speaks for this server's origin, or to a proxy in front of it. */
static const struct str answer_never[] = {
    STR_INIT("date"),
    STR_INIT("access-control-*"),
    STR_INIT("alt-svc"),
    STR_INIT("clear-site-data"),
    STR_INIT("content-security-policy*"),
    STR_INIT("cross-origin-*"),
    STR_INIT("expect-ct"),
    STR_INIT("feature-policy"),
    STR_INIT("nel"),
    STR_INIT("origin-agent-cluster"),
    STR_INIT("permissions-policy*"),
    STR_INIT("public-key-pins*"),
    STR_INIT("referrer-policy"),
    STR_INIT("refresh"),
    STR_INIT("report-to"),
    STR_INIT("reporting-endpoints"),
    STR_INIT("service-worker-allowed"),
    STR_INIT("set-cookie*"),
    STR_INIT("sourcemap"),
    STR_INIT("strict-transport-security"),
    STR_INIT("timing-allow-origin"),
    STR_INIT("x-accel-*"),
    STR_INIT("x-content-type-options"),
    STR_INIT("x-lighttpd-send-file"),
    STR_INIT("x-sendfile*"),
    STR_INIT("x-tidemark-*"),
    STR_INIT("x-xss-protection"),
};

/* libcurl ends lines at LF alone, and a lone CR is a line end to some clients. */
static bool is_field_value(struct str value)
{
    for (size_t i = 0; i < value.n; i++)
        if (((unsigned char)value.p[i] < ' ' && value.p[i] != '\t') || value.p[i] == 0x7f)
            return false;
    return true;
}

bool pass_answer_header(const struct header *h)
{
    return ascii_is_token(h->name) && is_field_value(h->value) &&
           !is_among(of_connections, N_OF(of_connections), h->name) &&
           !is_among(answer_never, N_OF(answer_never), h->name);
}

static const struct str of_bodies[] = {
    STR_INIT("accept-ranges"),
    STR_INIT("age"),
    STR_INIT("cache-control"),
    STR_INIT("content-digest"),
    STR_INIT("content-disposition"),
    STR_INIT("content-encoding"),
    STR_INIT("content-md5"),
    STR_INIT("content-range"),
    STR_INIT("content-type"),
    STR_INIT("digest"),
    STR_INIT("etag"),
    STR_INIT("expires"),
    STR_INIT("last-modified"),
    STR_INIT("location"),
    STR_INIT("pragma"),
    STR_INIT("repr-digest"),
    STR_INIT("vary"),
    STR_INIT("www-authenticate"),
};

bool pass_stream_header(const struct header *h)
{
    return pass_answer_header(h) && !is_among(of_bodies, N_OF(of_bodies), h->name);
}
