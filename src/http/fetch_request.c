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

static void add_line(struct fetch_job *job, const char *line)
{
    struct curl_slist *longer = curl_slist_append(job->headers, line);
    must(longer != NULL);
    job->headers = longer;
}

static void fetch_request_add_header(struct fetch_job *job, const struct header *h)
{
    struct buf line = {0};
    buf_put(&line, h->name);
    /* To libcurl `name:` means to leave a header out and `name;` to send an empty one. */
    buf_put(&line, h->value.n > 0 ? STR(": ") : STR(";"));
    buf_put(&line, h->value);
    buf_putc(&line, '\0');
    add_line(job, line.p);
    buf_deinit(&line);
}

static bool set_headers(struct fetch_job *job)
{
    const struct fetch *fetch = job->fetch;
    bool typed = false;
    for (size_t i = 0; i < fetch->n_headers; i++) {
        const struct header *h = &fetch->headers[i];
        if (!ascii_is_token(h->name) || !is_field_value(h->value))
            return false;
        fetch_request_add_header(job, h);
        typed = typed || str_eq_nocase(h->name, STR("content-type"));
    }
    if (!typed)
        add_line(job, "Content-Type:"); /* libcurl would call the body a form */
    add_line(job, "Expect:");           /* and would wait a second for leave to send a large one */
    FETCH_SET(job, CURLOPT_HTTPHEADER, job->headers);
    return true;
}

static bool fetch_request_set_text(struct fetch_job *job, CURLoption option, struct str s)
{
    struct buf z = {0};
    buf_put(&z, s);
    buf_putc(&z, '\0');
    CURLcode code = curl_easy_setopt(job->easy, option, z.p); /* copies it */
    buf_deinit(&z);
    return code == CURLE_OK;
}

static void set_body(struct fetch_job *job)
{
    FETCH_SET(job, CURLOPT_POST, 1L);
    FETCH_SET(job, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)job->fetch->body.n);
}

/* libcurl knows three methods. It would keep any other across a redirect that asks for a GET, so
 * those are not redirected. */
static bool set_method(struct fetch_job *job)
{
    const struct fetch *fetch = job->fetch;
    bool known = true;
    if (!ascii_is_token(fetch->method))
        return false;
    if (str_eq(fetch->method, STR("GET"))) {
        FETCH_SET(job, CURLOPT_HTTPGET, 1L);
    } else if (str_eq(fetch->method, STR("HEAD"))) {
        FETCH_SET(job, CURLOPT_NOBODY, 1L);
    } else {
        set_body(job);
        known = str_eq(fetch->method, STR("POST"));
        if (!known && !fetch_request_set_text(job, CURLOPT_CUSTOMREQUEST, fetch->method))
            return false;
    }
    job->follow = known && fetch->max_redirects > 0;
    FETCH_SET(job, CURLOPT_FOLLOWLOCATION, job->follow ? 1L : 0L);
    FETCH_SET(job, CURLOPT_MAXREDIRS, (long)fetch->max_redirects);
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
static void set_version(struct fetch_job *job, bool https)
{
    enum fetch_version v = job->fetch->version;
    long version = CURL_HTTP_VERSION_2TLS;
    if (v == FETCH_HTTP1) {
        version = CURL_HTTP_VERSION_1_1;
    } else if (v == FETCH_HTTP2 && !https) {
        version = CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
        FETCH_SET(job, CURLOPT_FRESH_CONNECT, 1L);
        FETCH_SET(job, CURLOPT_FORBID_REUSE, 1L);
    }
    FETCH_SET(job, CURLOPT_HTTP_VERSION, version);
    if (v != FETCH_HTTP1)
        FETCH_SET(job, CURLOPT_BUFFERSIZE, (long)HTTP2_BUFFER);
}

static bool set_url(struct fetch_job *job)
{
    struct url parts;
    if (url_parse(job->fetch->url, &parts) != 0)
        return false;
    set_version(job, str_eq_nocase(parts.scheme, STR("https")));
    return fetch_request_set_text(job, CURLOPT_URL, job->fetch->url);
}

static void set_transport(struct fetch_job *job, const char *ca_file)
{
    const struct fetch *fetch = job->fetch;
    uint32_t connect_ms = fetch->connect_timeout_ms;
    FETCH_SET(job, CURLOPT_PROTOCOLS_STR, "http,https");
    FETCH_SET(job, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    FETCH_SET(job, CURLOPT_PROXY, "");
    FETCH_SET(job, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    FETCH_SET(job, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    FETCH_SET(job, CURLOPT_USERAGENT, "tidemark");
    FETCH_SET(job, CURLOPT_NOSIGNAL, 1L);
    /* A name server that does not answer would otherwise hold up the loop when the lookup is given
     * up: libcurl would wait for its thread. This way the thread cleans up after itself. */
    FETCH_SET(job, CURLOPT_QUICK_EXIT, 1L);
    FETCH_SET(job, CURLOPT_TCP_KEEPALIVE, 1L);
    FETCH_SET(job, CURLOPT_SSL_VERIFYPEER, 1L);
    FETCH_SET(job, CURLOPT_SSL_VERIFYHOST, 2L);
    FETCH_SET(job, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (ca_file != NULL) {
        FETCH_SET(job, CURLOPT_CAINFO, ca_file);
        FETCH_SET(job, CURLOPT_CAPATH, NULL);
    }
    FETCH_SET(job, CURLOPT_CONNECTTIMEOUT_MS,
              (long)(connect_ms ? connect_ms : FETCH_CONNECT_TIMEOUT_MS));
    FETCH_SET(job, CURLOPT_TIMEOUT_MS, (long)fetch->total_timeout_ms);
}

const char *fetch_set_request(struct fetch_job *job, const char *ca_file)
{
    set_transport(job, ca_file);
    if (!set_url(job))
        return "this is not an http or https URL";
    if (!set_method(job))
        return "this is not an HTTP method";
    return set_headers(job) ? NULL : "a header's name or value has characters it may not have";
}
