// SPDX-License-Identifier: Apache-2.0
#include "http/fetch.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "http/curl_loop.h"
#include "http/url.h"

#include <assert.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

#define KEPT_CONNECTIONS 64 /* idle ones at most */

/* Who may call whom. libcurl calls us back from within curl_multi_socket_action, and there most of
 * its own functions are forbidden. So the public functions never call into libcurl: they leave a
 * note on the job and put it on the fetcher's list of things to do. drive() is the one place that
 * runs libcurl and calls done():
 *
 *   loop -> drive -> attend each job on the list   (begin, resume, free what was cancelled)
 *                 -> curl_multi_socket_action      (calls on_head, on_data)
 *                 -> collect                       (calls done)
 */
struct fetcher {
    struct curl_loop curl;
    struct link todo; /* of struct fetch_job */
    size_t in_flight;
    char *ca_file;
    bool busy;    /* in drive() */
    bool closing; /* freed while busy */
};

/* One request. Outlives its struct fetch when that is cancelled, until the list is attended to. */
struct fetch_job {
    struct link link; /* in todo, or in no list */
    struct fetcher *owner;
    struct fetch *fetch; /* NULL: cancelled, every callback gives up */
    struct addr_policy policy;
    CURL *easy; /* NULL: not begun */
    struct curl_slist *headers;
    struct buf answer;
    size_t sent;     /* of the request's body */
    size_t received; /* of the answer's body */
    size_t head;     /* bytes of status lines and headers so far */
    bool follow;     /* redirects are libcurl's to follow */
    bool headed;     /* the final answer's head is complete */
    bool paused;
    bool stuck;    /* libcurl cannot go on with it */
    int err;       /* why we ended it, if we did */
    char why[128]; /* in words */
    char curl_why[CURL_ERROR_SIZE];
};

/* -- jobs ------------------------------------------------------------------------------------ */

static void job_later(struct fetch_job *job)
{
    struct fetcher *f = job->owner;
    if (list_empty(&job->link))
        list_push(&f->todo, &job->link);
    if (!f->busy)
        curl_loop_wake(&f->curl);
}

static void job_detach(struct fetch_job *job)
{
    job->fetch->job = NULL;
    job->fetch = NULL;
    job->owner->in_flight--;
}

static void job_free(struct fetch_job *job)
{
    list_remove(&job->link);
    if (job->easy != NULL) {
        curl_multi_remove_handle(job->owner->curl.multi, job->easy); /* harmless if never added */
        curl_easy_cleanup(job->easy);
    }
    curl_slist_free_all(job->headers);
    buf_deinit(&job->answer);
    free(job);
}

/* Calls done(), in which the fetch may go away or start anew; the answer and the header values lent
 * to it belong to the job and go after it. */
static void job_complete(struct fetch_job *job, int err)
{
    struct fetch *fetch = job->fetch;
    if (fetch != NULL) {
        job_detach(job);
        fetch->answer = job->answer;
        snprintf(fetch->error, sizeof fetch->error, "%s", err != 0 ? job->why : "");
        fetch->done(fetch, err);
    }
    job_free(job);
}

static void job_blame(struct fetch_job *job, int err, const char *why)
{
    job->err = err;
    snprintf(job->why, sizeof job->why, "%.*s", (int)sizeof job->why - 1, why);
}

/* -- what libcurl asks while it runs a transfer ---------------------------------------------- */

/* Whether the policy lets this job talk to that address. */
static bool check_address(struct fetch_job *job, const struct sockaddr *sa, size_t size)
{
    enum addr_class class = addr_classify(sa, size);
    if (addr_allowed(class, job->policy)) {
        job->err = 0; /* another address of the same host was forbidden, this one will do */
        return true;
    }
    /* Without the address itself: a name server's private answers are not for everyone. */
    job->err = ERR_FORBIDDEN_ADDR;
    snprintf(job->why, sizeof job->why, "the host has a %s address, which is not allowed",
             addr_class_name(class));
    return false;
}

static curl_socket_t on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL || !check_address(job, &a->addr, a->addrlen))
        return CURL_SOCKET_BAD;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* A kept connection is opened by nobody: it may be one that another policy allowed. */
static int on_request(void *arg, char *ip, char *own_ip, int port, int own_port)
{
    struct fetch_job *job = arg;
    struct sockaddr_storage sa;
    if (job->fetch == NULL || addr_parse_ip(str_of_cstr(ip), &sa) != 0 ||
        !check_address(job, (struct sockaddr *)&sa, sizeof sa))
        return CURL_PREREQFUNC_ABORT;
    return CURL_PREREQFUNC_OK;
}

static size_t on_read(char *out, size_t size, size_t n, void *arg)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL)
        return CURL_READFUNC_ABORT; /* the body may be gone */
    struct str rest = str_skip(job->fetch->body, job->sent);
    size_t part = rest.n < size * n ? rest.n : size * n;
    if (part > 0)
        memcpy(out, rest.p, part);
    job->sent += part;
    return part;
}

/* A redirect or a kept connection that turned out dead sends the body once more. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL || origin != SEEK_SET || offset < 0 ||
        (size_t)offset > job->fetch->body.n)
        return CURL_SEEKFUNC_FAIL;
    job->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static struct str answer_header(struct fetch_job *job, const char *name)
{
    struct curl_header *h;
    if (curl_easy_header(job->easy, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return STR_NONE;
    return str_of_cstr(h->value);
}

/* libcurl will fetch the place a redirect names, and hand us neither body nor word of it. */
static bool will_follow(struct fetch_job *job, long status)
{
    return job->follow && status >= 300 && status < 400 && answer_header(job, "location").n > 0;
}

/* At the empty line behind a head. False: cancelled. */
static bool head_complete(struct fetch_job *job)
{
    struct fetch *fetch = job->fetch;
    long status = 0;
    curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || will_follow(job, status))
        return true;
    job->headed = true;
    fetch->status = (int)status;
    fetch->content_type = answer_header(job, "content-type");
    if (fetch->on_head != NULL)
        fetch->on_head(fetch);
    return job->fetch != NULL;
}

/* One line of a head, or of trailers, which count but say nothing. */
static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL)
        return CURL_WRITEFUNC_ERROR;
    job->head += n;
    if (job->head > FETCH_HEAD_MAX) {
        job_blame(job, ERR_TOO_LARGE, "the answer's headers are too large");
        return CURL_WRITEFUNC_ERROR;
    }
    bool last = n == 0 || line[0] == '\r' || line[0] == '\n';
    if (last && !job->headed && !head_complete(job))
        return CURL_WRITEFUNC_ERROR;
    return n;
}

static bool fits(const struct fetch_job *job, size_t n)
{
    const struct fetch *fetch = job->fetch;
    bool unlimited = fetch->on_data != NULL && fetch->max_answer == 0;
    return unlimited ||
           (job->received <= fetch->max_answer && n <= fetch->max_answer - job->received);
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL)
        return CURL_WRITEFUNC_ERROR;
    if (!fits(job, n)) {
        job_blame(job, ERR_TOO_LARGE, "the answer is larger than the limit");
        return CURL_WRITEFUNC_ERROR;
    }
    if (job->fetch->on_data == NULL) {
        buf_put(&job->answer, str_of(p, n));
    } else if (!job->fetch->on_data(job->fetch, str_of(p, n))) {
        job->paused = true;
        return job->fetch != NULL ? CURL_WRITEFUNC_PAUSE : CURL_WRITEFUNC_ERROR;
    }
    job->received += n;
    return job->fetch != NULL ? n : CURL_WRITEFUNC_ERROR;
}

/* -- the request ------------------------------------------------------------------------------ */

/* Fails for lack of memory or a libcurl older than the one we were built for. Going on without,
 * say, the check of addresses would be worse than not going on. */
#define SET(job, option, value)                                                                    \
    do {                                                                                           \
        CURLcode set_code = curl_easy_setopt((job)->easy, option, value);                          \
        assert(set_code == CURLE_OK);                                                              \
        (void)set_code;                                                                            \
    } while (0)

static bool is_token(struct str s)
{
    static const char tchars[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (size_t i = 0; i < s.n; i++)
        if (memchr(tchars, s.p[i], sizeof tchars - 1) == NULL)
            return false;
    return s.n > 0;
}

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
    assert(longer != NULL);
    job->headers = longer;
}

static void add_header(struct fetch_job *job, const struct header *h)
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
        if (!is_token(h->name) || !is_field_value(h->value))
            return false;
        add_header(job, h);
        typed = typed || str_eq_nocase(h->name, STR("content-type"));
    }
    if (!typed)
        add_line(job, "Content-Type:"); /* libcurl would call the body a form */
    add_line(job, "Expect:");           /* and would wait a second for leave to send a large one */
    SET(job, CURLOPT_HTTPHEADER, job->headers);
    return true;
}

static bool set_text(struct fetch_job *job, CURLoption option, struct str s)
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
    SET(job, CURLOPT_POST, 1L);
    SET(job, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)job->fetch->body.n);
    SET(job, CURLOPT_READFUNCTION, on_read);
    SET(job, CURLOPT_READDATA, job);
    SET(job, CURLOPT_SEEKFUNCTION, on_seek);
    SET(job, CURLOPT_SEEKDATA, job);
}

/* libcurl knows three methods. It would keep any other across a redirect that asks for a GET, so
 * those are not redirected. */
static bool set_method(struct fetch_job *job)
{
    const struct fetch *fetch = job->fetch;
    bool known = true;
    if (!is_token(fetch->method))
        return false;
    if (str_eq(fetch->method, STR("GET"))) {
        SET(job, CURLOPT_HTTPGET, 1L);
    } else if (str_eq(fetch->method, STR("HEAD"))) {
        SET(job, CURLOPT_NOBODY, 1L);
    } else {
        set_body(job);
        known = str_eq(fetch->method, STR("POST"));
        if (!known && !set_text(job, CURLOPT_CUSTOMREQUEST, fetch->method))
            return false;
    }
    job->follow = known && fetch->max_redirects > 0;
    SET(job, CURLOPT_FOLLOWLOCATION, job->follow ? 1L : 0L);
    SET(job, CURLOPT_MAXREDIRS, (long)fetch->max_redirects);
    return true;
}

static bool set_url(struct fetch_job *job)
{
    struct url parts;
    return url_parse(job->fetch->url, &parts) == 0 && set_text(job, CURLOPT_URL, job->fetch->url);
}

static void set_callbacks(struct fetch_job *job)
{
    SET(job, CURLOPT_PRIVATE, job);
    SET(job, CURLOPT_ERRORBUFFER, job->curl_why);
    SET(job, CURLOPT_OPENSOCKETFUNCTION, on_open);
    SET(job, CURLOPT_OPENSOCKETDATA, job);
    SET(job, CURLOPT_PREREQFUNCTION, on_request);
    SET(job, CURLOPT_PREREQDATA, job);
    SET(job, CURLOPT_HEADERFUNCTION, on_header);
    SET(job, CURLOPT_HEADERDATA, job);
    SET(job, CURLOPT_WRITEFUNCTION, on_body);
    SET(job, CURLOPT_WRITEDATA, job);
}

static void set_transport(struct fetch_job *job)
{
    const struct fetch *fetch = job->fetch;
    uint32_t connect_ms = fetch->connect_timeout_ms;
    SET(job, CURLOPT_PROTOCOLS_STR, "http,https");
    SET(job, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    SET(job, CURLOPT_PROXY, "");
    SET(job, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(job, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(job, CURLOPT_USERAGENT, "tidemark");
    SET(job, CURLOPT_NOSIGNAL, 1L);
    /* A name server that does not answer would otherwise hold up the loop when the lookup is given
     * up: libcurl would wait for its thread. This way the thread cleans up after itself. */
    SET(job, CURLOPT_QUICK_EXIT, 1L);
    SET(job, CURLOPT_TCP_KEEPALIVE, 1L);
    SET(job, CURLOPT_SSL_VERIFYPEER, 1L);
    SET(job, CURLOPT_SSL_VERIFYHOST, 2L);
    SET(job, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (job->owner->ca_file != NULL) {
        SET(job, CURLOPT_CAINFO, job->owner->ca_file);
        SET(job, CURLOPT_CAPATH, NULL);
    }
    /* No HTTP/2. libcurl 7.88 shares a kept HTTP/1.1 connection among several requests at once when
     * another connection to that host speaks HTTP/2, and so hands one the answer of another; and
     * to pause a stream holds nobody back: it keeps what still comes, up to 32 MiB. */
    SET(job, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(job, CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_ms ? connect_ms : FETCH_CONNECT_TIMEOUT_MS));
    SET(job, CURLOPT_TIMEOUT_MS, (long)fetch->total_timeout_ms);
}

static const char *prepare(struct fetch_job *job)
{
    set_callbacks(job);
    set_transport(job);
    if (!set_url(job))
        return "this is not an http or https URL";
    if (!set_method(job))
        return "this is not an HTTP method";
    return set_headers(job) ? NULL : "a header's name or value has characters it may not have";
}

static void job_begin(struct fetch_job *job)
{
    job->easy = curl_easy_init();
    assert(job->easy != NULL);
    const char *wrong = prepare(job);
    if (wrong != NULL) {
        job_blame(job, ERR_SYNTAX, wrong);
    } else if (curl_multi_add_handle(job->owner->curl.multi, job->easy) != CURLM_OK) {
        job_blame(job, ERR_IO, "libcurl takes no more transfers");
    }
    if (job->err != 0)
        job_complete(job, job->err);
}

/* -- running ---------------------------------------------------------------------------------- */

static int error_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK: return 0;
    case CURLE_OPERATION_TIMEDOUT: return ERR_TIMEOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_PEER_FAILED_VERIFICATION: return ERR_REFUSED;
    default: return ERR_IO;
    }
}

static void job_ended(struct fetch_job *job, CURLcode code)
{
    if (code == CURLE_OUT_OF_MEMORY && !job->headed)
        job_blame(job, ERR_TOO_LARGE, "the answer has too long a header line"); /* it means that */
    else if (code != CURLE_OK && job->err == 0)
        job_blame(job, error_of(code), job->curl_why[0] ? job->curl_why : curl_easy_strerror(code));
    job_complete(job, code == CURLE_OK ? 0 : job->err);
}

/* libcurl hands over what it kept from within curl_easy_pause, and does not end the transfer when
 * that fails. */
static void job_resume(struct fetch_job *job)
{
    job->paused = false;
    CURLcode code = curl_easy_pause(job->easy, CURLPAUSE_CONT);
    if (code != CURLE_OK)
        job_ended(job, code);
}

static void attend(struct fetch_job *job)
{
    list_remove(&job->link);
    if (job->fetch == NULL)
        job_free(job);
    else if (job->easy == NULL)
        job_begin(job);
    else if (job->stuck)
        job_complete(job, job->err);
    else if (job->paused)
        job_resume(job);
}

/* What is put on the list meanwhile waits for the next round, so that a fetch that fails at once
 * and is started again from done() cannot hold up the loop. */
static void attend_all(struct fetcher *f)
{
    struct link batch;
    list_init(&batch);
    list_splice(&batch, &f->todo);
    while (!list_empty(&batch))
        attend(list_item(batch.next, struct fetch_job, link));
}

static void collect(struct fetcher *f)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(f->curl.multi, &left)) != NULL) {
        struct fetch_job *job = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &job);
        job_ended(job, m->data.result);
    }
}

/* What nobody holds any more: cancelled jobs that were not attended to, kept connections. */
static void fetcher_close(struct fetcher *f)
{
    list_each_safe (l, &f->todo)
        job_free(list_item(l, struct fetch_job, link));
    curl_loop_close(&f->curl);
}

static void drive(struct curl_loop *c, curl_socket_t fd, int events)
{
    struct fetcher *f = container_of(c, struct fetcher, curl);
    int running;
    f->busy = true;
    attend_all(f);
    curl_multi_socket_action(c->multi, fd, events, &running);
    collect(f);
    f->busy = false;
    if (f->closing)
        fetcher_close(f);
    else if (!list_empty(&f->todo))
        curl_loop_wake(c);
}

static void on_stuck(struct curl_loop *c, CURL *easy)
{
    struct fetch_job *job = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &job);
    if (job == NULL)
        return; /* one of libcurl's own, that closes a connection */
    job_blame(job, ERR_IO, "the system lets us watch no more sockets");
    job->stuck = true;
    job_later(job);
}

/* -- the public face -------------------------------------------------------------------------- */

static void on_closed(struct curl_loop *c)
{
    struct fetcher *f = container_of(c, struct fetcher, curl);
    free(f->ca_file);
    free(f);
}

struct fetcher *fetcher_new(struct loop *loop)
{
    struct fetcher *f = mem_zalloc(sizeof *f);
    list_init(&f->todo);
    f->curl.ready = drive;
    f->curl.stuck = on_stuck;
    f->curl.closed = on_closed;
    curl_loop_init(&f->curl, loop);
    curl_multi_setopt(f->curl.multi, CURLMOPT_MAXCONNECTS, (long)KEPT_CONNECTIONS);
    return f;
}

void fetcher_free(struct fetcher *f)
{
    assert(f->in_flight == 0);
    if (f->busy)
        f->closing = true;
    else
        fetcher_close(f);
}

void fetcher_trust(struct fetcher *f, const char *ca_file)
{
    free(f->ca_file);
    f->ca_file = NULL;
    if (ca_file == NULL)
        return;
    f->ca_file = mem_alloc(strlen(ca_file) + 1);
    strcpy(f->ca_file, ca_file);
}

void fetch_start(struct fetcher *f, struct fetch *fetch)
{
    assert(!f->closing && fetch->job == NULL);
    struct fetch_job *job = mem_zalloc(sizeof *job);
    list_init(&job->link);
    job->owner = f;
    job->fetch = fetch;
    job->policy = fetch->policy;
    fetch->job = job;
    fetch->status = 0;
    fetch->content_type = STR_NONE;
    fetch->answer = (struct buf){0};
    fetch->error[0] = '\0';
    f->in_flight++;
    job_later(job);
}

void fetch_resume(struct fetch *fetch)
{
    if (fetch->job != NULL)
        job_later(fetch->job);
}

void fetch_cancel(struct fetch *fetch)
{
    struct fetch_job *job = fetch->job;
    if (job == NULL)
        return;
    job_detach(job);
    job_later(job);
}

struct str fetch_header(const struct fetch *fetch, const char *name)
{
    if (fetch->job == NULL || !fetch->job->headed)
        return STR_NONE;
    return answer_header(fetch->job, name);
}
