// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "http/curl_loop.h"
#include "http/fetch_core.h"
#include "net/loop.h"
#include "net/socket_owner.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#define KEPT_CONNECTIONS 64 /* idle ones at most */

/* Who may call whom. libcurl calls us back from within curl_multi_socket_action, and there most of
 * its own functions are forbidden. So the public functions never call into libcurl: they leave a
 * note on the job and put it on the fetcher's list of things to do. fetch_drive() is the one place
 * that runs libcurl and calls done():
 *
 *   loop -> drive -> attend each job on the list   (begin, resume, free what was cancelled)
 *                 -> curl_multi_socket_action      (calls on_head, on_data)
 *                 -> collect                       (calls done)
 */
struct fetcher {
    struct curl_loop curl;
    struct loop *loop;
    struct link todo; /* of struct fetch_job */
    size_t in_flight;
    char *ca_file;
    const struct addr_own *own; /* NULL: nothing */
    bool busy;                  /* in fetch_drive() */
    bool closing;               /* freed while busy */
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
    timer_stop(&job->patience);
    job->fetch->job = NULL;
    job->fetch = NULL;
    job->owner->in_flight--;
}

/* The rest of the answer may still come on this connection: it is for nobody else. */
static void forbid_reuse(struct fetch_job *job)
{
    FETCH_SET(job, CURLOPT_FORBID_REUSE, 1L);
}

static void job_free(struct fetch_job *job)
{
    list_remove(&job->link);
    if (job->easy != NULL) {
        if (!job->over)
            forbid_reuse(job);
        curl_multi_remove_handle(job->owner->curl.multi, job->easy); /* harmless if never added */
        curl_easy_cleanup(job->easy);
    }
    curl_slist_free_all(job->headers);
    buf_deinit(&job->answer);
    free(job);
}

/* Calls done(), in which the fetch may go away or start anew; the answer and the header values lent
 * to it belong to the job and go after it. */
static void job_complete(struct fetch_job *job, enum fetch_cause cause)
{
    struct fetch *fetch = job->fetch;
    if (fetch != NULL) {
        job_detach(job);
        fetch->answer = job->answer;
        fetch->cause = cause;
        snprintf(fetch->error, sizeof fetch->error, "%s", cause != FETCH_NONE ? job->why : "");
        fetch->done(fetch, fetch_cause_err(cause));
    }
    job_free(job);
}

static void job_blame(struct fetch_job *job, enum fetch_cause cause, const char *why)
{
    job->cause = cause;
    snprintf(job->why, sizeof job->why, "%.*s", (int)sizeof job->why - 1, why);
}

/* Ends it without libcurl, in the next round. */
static void job_end(struct fetch_job *job, enum fetch_cause cause, const char *why)
{
    job_blame(job, cause, why);
    job->ended = true;
    job_later(job);
}

/* -- patience ----------------------------------------------------------------------------------
 */

static uint64_t fetch_now_ms(const struct fetch_job *job)
{
    return uv_now(&job->owner->loop->uv);
}

/* With a silent peer; 0: for ever. While we hold it up the silence is ours. */
static uint32_t patience_ms(const struct fetch_job *job)
{
    if (!job->asked || job->paused)
        return 0;
    return job->headed ? job->fetch->idle_timeout_ms : job->fetch->first_byte_timeout_ms;
}

/* From now on it is for the peer to do something, and another limit may hold than before. */
static void expect_peer(struct fetch_job *job)
{
    uint32_t ms = patience_ms(job);
    job->heard_ms = fetch_now_ms(job);
    if (ms > 0)
        sched_start(&job->owner->loop->sched, &job->patience, ms);
}

/* Bytes only write down when they came; the timer looks there before it believes itself. */
static void fetch_on_silence(struct timer *t)
{
    struct fetch_job *job = container_of(t, struct fetch_job, patience);
    uint32_t ms = patience_ms(job);
    uint64_t silent_ms = fetch_now_ms(job) - job->heard_ms;
    if (ms == 0)
        return;
    if (silent_ms < ms) {
        sched_start(&job->owner->loop->sched, t, ms - silent_ms);
        return;
    }
    /* It may have been us who slept, and what came meanwhile waits to be read. */
    if (job->doubted_ms != job->heard_ms) {
        job->doubted_ms = job->heard_ms;
        sched_start(&job->owner->loop->sched, t, 1);
        return;
    }
    enum fetch_cause cause = job->headed ? FETCH_IDLE_TIMEOUT : FETCH_FIRST_BYTE_TIMEOUT;
    char why[64];
    snprintf(why, sizeof why, "%s for %u ms", job->headed ? "silent" : "no answer", ms);
    job_end(job, cause, why);
}

/* -- what libcurl asks while it runs a transfer ---------------------------------------------- */

static uint16_t port_of(const struct sockaddr *sa)
{
    struct addr a = {.kind = ADDR_TCP};
    memcpy(&a.sa, sa, sizeof(struct sockaddr_in)); /* the port of IPv6 lies at the same place */
    return addr_port(&a);
}

/* Whether the policy lets this job talk to that address. */
static bool check_address(struct fetch_job *job, const struct sockaddr *sa, size_t size)
{
    enum addr_class class = addr_classify(sa, size);
    if (!job->policy.configured && addr_is_own(job->owner->own, sa, size, port_of(sa))) {
        job_blame(job, FETCH_FORBIDDEN, "the host is this server itself, which is not allowed");
        return false;
    }
    if (addr_allowed(class, job->policy)) {
        /* Another address of the same host may have been forbidden: this one will do. */
        job->cause = FETCH_NONE;
        return true;
    }
    /* Without the address itself: a name server's private answers are not for everyone. */
    job->cause = FETCH_FORBIDDEN;
    snprintf(job->why, sizeof job->why, "the host has a %s address, which is not allowed",
             addr_class_name(class));
    return false;
}

static curl_socket_t fetch_on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL || !check_address(job, &a->addr, a->addrlen))
        return CURL_SOCKET_BAD;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* One end of a connection. */
static bool read_end(const char *ip, int port, struct sockaddr_storage *out)
{
    if (addr_parse_ip(str_of_cstr(ip), out) != 0)
        return false;
    if (out->ss_family == AF_INET)
        ((struct sockaddr_in *)out)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)out)->sin6_port = htons((uint16_t)port);
    return true;
}

static bool check_owner(struct fetch_job *job, const struct sockaddr_storage *peer,
                        const char *own_ip, int own_port)
{
    struct sockaddr_storage own;
    uid_t uid = 0;
    int err = ERR_NOT_FOUND;
    if (read_end(own_ip, own_port, &own))
        err = socket_peer_uid((struct sockaddr *)&own, (const struct sockaddr *)peer, &uid);
    if (err == 0 && uid == job->fetch->peer_uid)
        return true;
    job->cause = FETCH_STRANGER;
    if (err == 0)
        snprintf(job->why, sizeof job->why, "the process at the other end runs as user %u", uid);
    else
        snprintf(job->why, sizeof job->why, "whose process is at the other end cannot be told: %s",
                 err == ERR_NOT_FOUND ? "the connection is gone" : "the kernel has no sock_diag");
    return false;
}

/* Before every request, redirected and repeated ones included. A kept connection is opened by
 * nobody: it may be one that another policy allowed. */
static int fetch_on_request(void *arg, char *ip, char *own_ip, int port, int own_port)
{
    struct fetch_job *job = arg;
    struct sockaddr_storage peer;
    if (job->fetch == NULL || !read_end(ip, port, &peer) ||
        !check_address(job, (struct sockaddr *)&peer, sizeof peer))
        return CURL_PREREQFUNC_ABORT;
    if (job->fetch->check_peer && !check_owner(job, &peer, own_ip, own_port))
        return CURL_PREREQFUNC_ABORT;
    /* libcurl may begin again, as after a stream that was refused, without saying that it wants the
     * body from its start. */
    job->sent = 0;
    job->asked = true;
    expect_peer(job);
    return CURL_PREREQFUNC_OK;
}

static size_t fetch_on_read(char *out, size_t size, size_t n, void *arg)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL)
        return CURL_READFUNC_ABORT; /* the body may be gone */
    struct str rest = str_skip(job->fetch->body, job->sent);
    size_t part = rest.n < size * n ? rest.n : size * n;
    if (part > 0)
        memcpy(out, rest.p, part);
    job->sent += part;
    job->heard_ms = fetch_now_ms(job);
    return part;
}

/* A redirect or a kept connection that turned out dead sends the body once more. */
static int fetch_on_seek(void *arg, curl_off_t offset, int origin)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL || origin != SEEK_SET || offset < 0 ||
        (size_t)offset > job->fetch->body.n)
        return CURL_SEEKFUNC_FAIL;
    job->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* What a callback returns that wants no more of the transfer. */
static size_t fetch_give_up(struct fetch_job *job)
{
    forbid_reuse(job);
    return CURL_WRITEFUNC_ERROR;
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

/* See fetch.end_marked. */
static bool has_marked_end(struct fetch_job *job)
{
    const struct fetch *fetch = job->fetch;
    if (fetch->status == 204 || fetch->status == 304 || str_eq(fetch->method, STR("HEAD")))
        return true;
    if (answer_header(job, "content-length").p != NULL)
        return true;
    if (fetch->http_version >= 20)
        return curl_version_info(CURLVERSION_NOW)->version_num >= 0x080000;
    return str_eq_nocase(answer_header(job, "transfer-encoding"), STR("chunked"));
}

static int http_version(struct fetch_job *job)
{
    long v = 0;
    curl_easy_getinfo(job->easy, CURLINFO_HTTP_VERSION, &v);
    return v == CURL_HTTP_VERSION_1_0 ? 10 : v == CURL_HTTP_VERSION_1_1 ? 11 : 20;
}

/* At the empty line behind a head. */
static void head_complete(struct fetch_job *job)
{
    struct fetch *fetch = job->fetch;
    long status = 0;
    curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return;
    if (will_follow(job, status)) {
        job->asked = false;
        return;
    }
    job->headed = true;
    fetch->status = (int)status;
    fetch->http_version = http_version(job);
    fetch->end_marked = has_marked_end(job);
    fetch->content_type = answer_header(job, "content-type");
    expect_peer(job);
    if (fetch->on_head != NULL)
        fetch->on_head(fetch);
}

static void trailer_complete(struct fetch_job *job, struct str line)
{
    struct header h = {.name = str_cut(&line, ':')};
    while (line.n > 0 && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
        line.n--;
    h.value = str_trim(line);
    if (line.p != NULL && job->fetch->on_trailer != NULL)
        job->fetch->on_trailer(job->fetch, h);
}

/* One line of a head, or of trailers. */
static size_t fetch_on_header(char *line, size_t size, size_t n, void *arg)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL)
        return fetch_give_up(job);
    job->head += n;
    if (job->head > FETCH_HEAD_MAX) {
        job_blame(job, FETCH_TOO_LARGE, "the answer's headers are too large");
        return fetch_give_up(job);
    }
    bool last = n == 0 || line[0] == '\r' || line[0] == '\n';
    if (job->headed)
        trailer_complete(job, str_of(line, n));
    else if (last)
        head_complete(job);
    return job->fetch != NULL ? n : fetch_give_up(job);
}

static bool fetch_fits(const struct fetch_job *job, size_t n)
{
    const struct fetch *fetch = job->fetch;
    bool unlimited = fetch->on_data != NULL && fetch->max_answer == 0;
    return unlimited ||
           (job->received <= fetch->max_answer && n <= fetch->max_answer - job->received);
}

static size_t fetch_on_body(char *p, size_t size, size_t n, void *arg)
{
    struct fetch_job *job = arg;
    if (job->fetch == NULL)
        return fetch_give_up(job);
    if (!fetch_fits(job, n)) {
        job_blame(job, FETCH_TOO_LARGE, "the answer is larger than the limit");
        return fetch_give_up(job);
    }
    job->heard_ms = fetch_now_ms(job);
    if (job->fetch->on_data == NULL) {
        buf_put(&job->answer, str_of(p, n));
    } else if (!job->fetch->on_data(job->fetch, str_of(p, n))) {
        job->paused = true;
        return job->fetch != NULL ? CURL_WRITEFUNC_PAUSE : fetch_give_up(job);
    }
    job->received += n;
    return job->fetch != NULL ? n : fetch_give_up(job);
}

static void set_callbacks(struct fetch_job *job)
{
    FETCH_SET(job, CURLOPT_PRIVATE, job);
    FETCH_SET(job, CURLOPT_ERRORBUFFER, job->curl_why);
    FETCH_SET(job, CURLOPT_OPENSOCKETFUNCTION, fetch_on_open);
    FETCH_SET(job, CURLOPT_OPENSOCKETDATA, job);
    FETCH_SET(job, CURLOPT_PREREQFUNCTION, fetch_on_request);
    FETCH_SET(job, CURLOPT_PREREQDATA, job);
    FETCH_SET(job, CURLOPT_READFUNCTION, fetch_on_read);
    FETCH_SET(job, CURLOPT_READDATA, job);
    FETCH_SET(job, CURLOPT_SEEKFUNCTION, fetch_on_seek);
    FETCH_SET(job, CURLOPT_SEEKDATA, job);
    FETCH_SET(job, CURLOPT_HEADERFUNCTION, fetch_on_header);
    FETCH_SET(job, CURLOPT_HEADERDATA, job);
    FETCH_SET(job, CURLOPT_WRITEFUNCTION, fetch_on_body);
    FETCH_SET(job, CURLOPT_WRITEDATA, job);
}

static void job_begin(struct fetch_job *job)
{
    job->easy = curl_easy_init();
    must(job->easy != NULL);
    set_callbacks(job);
    const char *wrong = fetch_set_request(job, job->owner->ca_file);
    if (wrong != NULL)
        job_blame(job, FETCH_MALFORMED, wrong);
    else if (curl_multi_add_handle(job->owner->curl.multi, job->easy) != CURLM_OK)
        job_blame(job, FETCH_BUSY, "libcurl takes no more transfers");
    if (job->cause != FETCH_NONE)
        job_complete(job, job->cause);
}

/* -- running ---------------------------------------------------------------------------------- */

static void job_blame_curl(struct fetch_job *job, CURLcode code)
{
    enum fetch_cause cause = fetch_cause_of(job, code);
    const char *why = job->curl_why[0] ? job->curl_why : curl_easy_strerror(code);
    job_blame(job, cause, cause == FETCH_TOO_LARGE ? "the answer has too long a header line" : why);
}

static void job_ended(struct fetch_job *job, CURLcode code)
{
    if (code == CURLE_OK && !job->headed) /* it finds nothing wrong with half a head */
        job_blame(job, FETCH_CUT, "the answer ended within its head");
    else if (code == CURLE_OK)
        job->cause = FETCH_NONE;
    else if (job->cause == FETCH_NONE)
        job_blame_curl(job, code);
    job_complete(job, job->cause);
}

/* libcurl hands over what it kept from within curl_easy_pause, and does not end the transfer when
 * that fails. */
static void job_resume(struct fetch_job *job)
{
    job->paused = false;
    expect_peer(job);
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
    else if (job->ended)
        job_complete(job, job->cause);
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
        job->over = true;
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

static void fetch_drive(struct curl_loop *c, curl_socket_t fd, int events)
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

static void fetch_on_stuck(struct curl_loop *c, CURL *easy)
{
    struct fetch_job *job = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &job);
    if (job == NULL)
        return; /* one of libcurl's own, that closes a connection */
    job_end(job, FETCH_BUSY, "the system lets us watch no more sockets");
}

/* -- the public face -------------------------------------------------------------------------- */

static void fetch_on_closed(struct curl_loop *c)
{
    struct fetcher *f = container_of(c, struct fetcher, curl);
    free(f->ca_file);
    free(f);
}

struct fetcher *fetcher_new(struct loop *loop)
{
    struct fetcher *f = mem_zalloc(sizeof *f);
    list_init(&f->todo);
    f->loop = loop;
    f->curl.ready = fetch_drive;
    f->curl.stuck = fetch_on_stuck;
    f->curl.closed = fetch_on_closed;
    curl_loop_init(&f->curl, loop);
    curl_multi_setopt(f->curl.multi, CURLMOPT_MAXCONNECTS, (long)KEPT_CONNECTIONS);
    /* One request on a connection at a time. A libcurl before 8.5 that may put several on one does
     * so with connections that speak HTTP/1.1, too, once another connection to that host speaks
     * HTTP/2, and hands one the answer of another. */
    CURLMcode code = curl_multi_setopt(f->curl.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    must(code == CURLM_OK);
    return f;
}

void fetcher_free(struct fetcher *f)
{
    must(f->in_flight == 0);
    if (f->busy)
        f->closing = true;
    else
        fetcher_close(f);
}

void fetcher_own(struct fetcher *f, const struct addr_own *own)
{
    f->own = own;
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
    must(!f->closing && fetch->job == NULL);
    struct fetch_job *job = mem_zalloc(sizeof *job);
    list_init(&job->link);
    timer_init(&job->patience, fetch_on_silence);
    job->owner = f;
    job->fetch = fetch;
    job->policy = fetch->policy;
    fetch->job = job;
    fetch->status = fetch->http_version = 0;
    fetch->end_marked = false;
    fetch->cause = FETCH_NONE;
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

bool fetch_next_header(const struct fetch *fetch, void **at, struct header *out)
{
    if (fetch->job == NULL || !fetch->job->headed)
        return false;
    struct curl_header *h = curl_easy_nextheader(fetch->job->easy, CURLH_HEADER, -1, *at);
    if (h == NULL)
        return false;
    *at = h;
    *out = (struct header){str_of_cstr(h->name), str_of_cstr(h->value)};
    return true;
}
