// SPDX-License-Identifier: Apache-2.0
#include "http/fetch_core.h"
#include "base/ascii.h"
#include "base/must.h"
#include "http/url.h"

static bool is_field_value(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\r' || s.p[i] == '\n' || s.p[i] == '\0')
            return false;
    return true;
}

static void add_line(struct fetch_transfer *transfer, const char *line)
{
    struct curl_slist *longer = curl_slist_append(transfer->headers, line);
    must(longer != NULL);
    transfer->headers = longer;
}

static void fetch_request_add_header(struct fetch_transfer *transfer, const struct header *h)
{
    struct buf line = {0};
    buf_put(&line, h->name);
    /* To libcurl `name:` means to leave a header out and `name;` to send an empty one. */
    buf_put(&line, h->value.n > 0 ? STR(": ") : STR(";"));
    buf_put(&line, h->value);
    buf_putc(&line, '\0');
    add_line(transfer, line.p);
    buf_deinit(&line);
}

static bool set_headers(struct fetch_transfer *transfer)
{
    const struct fetch *fetch = transfer->fetch;
    bool typed = false;
    for (size_t i = 0; i < fetch->n_headers; i++) {
        const struct header *h = &fetch->headers[i];
        if (!ascii_is_token(h->name) || !is_field_value(h->value))
            return false;
        fetch_request_add_header(transfer, h);
        typed = typed || str_eq_nocase(h->name, STR("content-type"));
    }
    if (!typed)
        add_line(transfer, "Content-Type:"); /* libcurl would call the body a form */
    add_line(transfer, "Expect:"); /* and would wait a second for leave to send a large one */
    FETCH_SET(transfer, CURLOPT_HTTPHEADER, transfer->headers);
    return true;
}

static bool fetch_request_set_text(struct fetch_transfer *transfer, CURLoption option, struct str s)
{
    struct buf z = {0};
    buf_put(&z, s);
    buf_putc(&z, '\0');
    CURLcode code = curl_easy_setopt(transfer->easy, option, z.p); /* copies it */
    buf_deinit(&z);
    return code == CURLE_OK;
}

#define SEND_BUFFER (16 * 1024) /* each transfer has one until it ends */

static void set_body(struct fetch_transfer *transfer)
{
    const struct fetch *fetch = transfer->fetch;
    int64_t length = fetch->on_body != NULL ? fetch->body_length : (int64_t)fetch->body.n;
    FETCH_SET(transfer, CURLOPT_POST, 1L);
    FETCH_SET(transfer, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
    FETCH_SET(transfer, CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BUFFER);
    if (fetch->on_body != NULL) /* a kept connection may be dead, and it would be sent again */
        FETCH_SET(transfer, CURLOPT_FRESH_CONNECT, 1L);
}

/* libcurl knows three methods. It would keep any other across a redirect that asks for a GET, so
 * those are not redirected. */
static bool set_method(struct fetch_transfer *transfer)
{
    const struct fetch *fetch = transfer->fetch;
    bool known = true, streams = fetch->on_body != NULL;
    if (!ascii_is_token(fetch->method))
        return false;
    if (str_eq(fetch->method, STR("GET")) && !streams) {
        FETCH_SET(transfer, CURLOPT_HTTPGET, 1L);
    } else if (str_eq(fetch->method, STR("HEAD"))) {
        FETCH_SET(transfer, CURLOPT_NOBODY, 1L);
    } else {
        set_body(transfer);
        known = str_eq(fetch->method, STR("POST"));
        if (!known && !fetch_request_set_text(transfer, CURLOPT_CUSTOMREQUEST, fetch->method))
            return false;
    }
    transfer->follow = known && !streams && fetch->max_redirects > 0;
    FETCH_SET(transfer, CURLOPT_FOLLOWLOCATION, transfer->follow ? 1L : 0L);
    FETCH_SET(transfer, CURLOPT_MAXREDIRS, (long)fetch->max_redirects);
    return true;
}

#define HTTP2_BUFFER (64 * 1024) /* for libcurl to decode into */

/* How HTTP/2 is had of libcurl 7.88, besides one request on a connection at a time (fetcher_new):
 *
 * Its buffer must take whatever it reads at once, which is 32 KiB. With a smaller one, as it has by
 * itself, it now and then forgets the rest until the socket has more, and the end of an answer does
 * not come.
 *
 * Where HTTP/2 is spoken without TLS every request gets a connection of its own. On a kept one
 * libcurl would greet a second time and be thrown out, and a kept one may speak HTTP/1.1. */
static void set_version(struct fetch_transfer *transfer, bool https)
{
    enum fetch_version v = transfer->fetch->version;
    long version = CURL_HTTP_VERSION_2TLS;
    if (v == FETCH_HTTP1) {
        version = CURL_HTTP_VERSION_1_1;
    } else if (v == FETCH_HTTP2 && !https) {
        version = CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
        FETCH_SET(transfer, CURLOPT_FRESH_CONNECT, 1L);
        FETCH_SET(transfer, CURLOPT_FORBID_REUSE, 1L);
    }
    FETCH_SET(transfer, CURLOPT_HTTP_VERSION, version);
    if (v != FETCH_HTTP1)
        FETCH_SET(transfer, CURLOPT_BUFFERSIZE, (long)HTTP2_BUFFER);
}

static bool set_url(struct fetch_transfer *transfer)
{
    struct url parts;
    if (url_parse(transfer->fetch->url, &parts) != 0)
        return false;
    transfer->plain = !parts.tls;
    set_version(transfer, parts.tls);
    return fetch_request_set_text(transfer, CURLOPT_URL, transfer->fetch->url);
}

static void set_transport(struct fetch_transfer *transfer, const char *ca_file)
{
    const struct fetch *fetch = transfer->fetch;
    uint32_t connect_ms = fetch->connect_timeout_ms;
    FETCH_SET(transfer, CURLOPT_PROTOCOLS_STR, "http,https");
    FETCH_SET(transfer, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    FETCH_SET(transfer, CURLOPT_PATH_AS_IS, 1L); /* whoever made the URL has judged its path */
    FETCH_SET(transfer, CURLOPT_PROXY, "");
    FETCH_SET(transfer, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    FETCH_SET(transfer, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    FETCH_SET(transfer, CURLOPT_USERAGENT, "tidemark");
    FETCH_SET(transfer, CURLOPT_NOSIGNAL, 1L);
    /* A name server that does not answer would otherwise hold up the loop when the lookup is given
     * up: libcurl would wait for its thread. This way the thread cleans up after itself. */
    FETCH_SET(transfer, CURLOPT_QUICK_EXIT, 1L);
    FETCH_SET(transfer, CURLOPT_TCP_KEEPALIVE, 1L);
    FETCH_SET(transfer, CURLOPT_SSL_VERIFYPEER, 1L);
    FETCH_SET(transfer, CURLOPT_SSL_VERIFYHOST, 2L);
    FETCH_SET(transfer, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (ca_file != NULL) {
        FETCH_SET(transfer, CURLOPT_CAINFO, ca_file);
        FETCH_SET(transfer, CURLOPT_CAPATH, NULL);
    }
    FETCH_SET(transfer, CURLOPT_CONNECTTIMEOUT_MS,
              (long)(connect_ms ? connect_ms : FETCH_CONNECT_TIMEOUT_MS));
    FETCH_SET(transfer, CURLOPT_TIMEOUT_MS, (long)fetch->total_timeout_ms);
}

const char *fetch_set_request(struct fetch_transfer *transfer, const char *ca_file)
{
    set_transport(transfer, ca_file);
    if (!set_url(transfer))
        return "this is not an http or https URL";
    if (!set_method(transfer))
        return "this is not an HTTP method";
    return set_headers(transfer) ? NULL : "a header's name or value has characters it may not have";
}
