// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/mem.h"
#include "base/must.h"
#include "http/fetch_core.h"
#include "net/loop.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define KEPT_CONNECTIONS 64 /* idle ones at most */

/* Who may call whom. libcurl calls us back from within curl_multi_socket_action, and there most of
 * its own functions are forbidden. So the public functions never call into libcurl: they leave a
 * note on the transfer and put it on the fetcher's list of things to do. fetch_drive() is the one
 * place that runs libcurl and calls done():
 *
 *   loop -> drive -> a step of each transfer on the list   (begin, resume, free what was cancelled)
 *                 -> curl_multi_socket_action      (calls on_head, on_data)
 *                 -> collect                       (calls done)
 */

/* -- transfers ------------------------------------------------------------------------------------
 */

static void transfer_later(struct fetch_transfer *transfer)
{
    struct fetcher *f = transfer->owner;
    if (list_empty(&transfer->link))
        list_push(&f->todo, &transfer->link);
    if (!f->busy)
        curl_loop_wake(&f->curl);
}

static void transfer_detach(struct fetch_transfer *transfer)
{
    timer_stop(&transfer->silence);
    transfer->fetch->transfer = NULL;
    transfer->fetch = NULL;
    transfer->owner->in_flight--;
}

/* The rest of the answer may still come on this connection: it is for nobody else. */
static void forbid_reuse(struct fetch_transfer *transfer)
{
    FETCH_SET(transfer, CURLOPT_FORBID_REUSE, 1L);
}

static void transfer_free(struct fetch_transfer *transfer)
{
    list_remove(&transfer->link);
    if (transfer->easy != NULL) {
        if (!transfer->over)
            forbid_reuse(transfer);
        curl_multi_remove_handle(transfer->owner->curl.multi,
                                 transfer->easy); /* harmless if never added */
        curl_easy_cleanup(transfer->easy);
    }
    curl_slist_free_all(transfer->headers);
    buf_deinit(&transfer->answer);
    free(transfer);
}

/* Calls done(), in which the fetch may go away or start anew; the answer and the header values lent
 * to it belong to the transfer and go after it. */
static void transfer_complete(struct fetch_transfer *transfer, enum fetch_cause cause)
{
    struct fetch *fetch = transfer->fetch;
    if (fetch != NULL) {
        transfer_detach(transfer);
        fetch->answer = transfer->answer;
        fetch->cause = cause;
        snprintf(fetch->error, sizeof fetch->error, "%s", cause != FETCH_NONE ? transfer->why : "");
        struct fetcher *f = transfer->owner;
        if (cause == FETCH_FORBIDDEN && f->refused != NULL)
            f->refused(f->refused_ctx, fetch);
        fetch->done(fetch, fetch_cause_err(cause));
    }
    transfer_free(transfer);
}

void fetch_blame(struct fetch_transfer *transfer, enum fetch_cause cause, const char *why)
{
    transfer->cause = cause;
    snprintf(transfer->why, sizeof transfer->why, "%.*s", (int)sizeof transfer->why - 1, why);
}

/* Ends it without libcurl, in the next round. */
static void transfer_end(struct fetch_transfer *transfer, enum fetch_cause cause, const char *why)
{
    fetch_blame(transfer, cause, why);
    transfer->ended = true;
    transfer_later(transfer);
}

/* -- patience ----------------------------------------------------------------------------------
 */

static uint64_t fetch_now_ms(const struct fetch_transfer *transfer)
{
    return uv_now(&transfer->owner->loop->uv);
}

/* With a silent peer; 0: for ever. While we hold it up the silence is ours. */
static uint32_t silence_limit_ms(const struct fetch_transfer *transfer)
{
    bool ours = transfer->paused || (transfer->starved && !transfer->headed);
    if (!transfer->asked || ours)
        return 0;
    return transfer->headed ? transfer->fetch->idle_timeout_ms
                            : transfer->fetch->first_byte_timeout_ms;
}

/* From now on it is for the peer to do something, and another limit may hold than before. */
static void expect_peer(struct fetch_transfer *transfer)
{
    uint32_t ms = silence_limit_ms(transfer);
    transfer->last_active_ms = fetch_now_ms(transfer);
    if (ms > 0)
        sched_start(&transfer->owner->loop->sched, &transfer->silence, ms);
}

/* Bytes only write down when they came; the timer looks there before it believes itself. */
static void fetch_on_silence(struct timer *t)
{
    struct fetch_transfer *transfer = container_of(t, struct fetch_transfer, silence);
    uint32_t ms = silence_limit_ms(transfer);
    uint64_t silent_ms = fetch_now_ms(transfer) - transfer->last_active_ms;
    if (ms == 0)
        return;
    if (silent_ms < ms) {
        sched_start(&transfer->owner->loop->sched, t, ms - silent_ms);
        return;
    }
    /* It may have been us who slept, and what came meanwhile waits to be read. */
    if (transfer->doubted_ms != transfer->last_active_ms) {
        transfer->doubted_ms = transfer->last_active_ms;
        sched_start(&transfer->owner->loop->sched, t, 1);
        return;
    }
    enum fetch_cause cause = transfer->headed ? FETCH_IDLE_TIMEOUT : FETCH_FIRST_BYTE_TIMEOUT;
    char why[64];
    snprintf(why, sizeof why, "%s for %u ms", transfer->headed ? "silent" : "no answer", ms);
    transfer_end(transfer, cause, why);
}

/* -- what libcurl asks while it runs a transfer ---------------------------------------------- */

/* Before every request, redirected and repeated ones included. */
static int fetch_on_request(void *arg, char *ip, char *own_ip, int port, int own_port)
{
    struct fetch_transfer *transfer = arg;
    struct fetch_ends ends = {ip, own_ip, port, own_port};
    if (transfer->fetch == NULL || !fetch_peer_will_do(transfer, &ends))
        return CURL_PREREQFUNC_ABORT;
    /* libcurl may begin again, as after a stream that was refused, without saying that it wants the
     * body from its start. */
    if (transfer->fetch->on_body != NULL && transfer->sent > 0) {
        fetch_blame(transfer, FETCH_NO_ANSWER, "the request's body cannot be sent again");
        return CURL_PREREQFUNC_ABORT;
    }
    transfer->sent = 0;
    transfer->asked = true;
    expect_peer(transfer);
    return CURL_PREREQFUNC_OK;
}

static size_t next_of_body(struct fetch_transfer *transfer, char *out, size_t room)
{
    struct str rest = str_skip(transfer->fetch->body, transfer->sent);
    size_t part = rest.n < room ? rest.n : room;
    if (part > 0)
        memcpy(out, rest.p, part);
    return part;
}

static size_t fetch_on_read(char *out, size_t size, size_t n, void *arg)
{
    struct fetch_transfer *transfer = arg;
    struct fetch *fetch = transfer->fetch;
    if (fetch == NULL)
        return CURL_READFUNC_ABORT; /* the body may be gone */
    transfer->last_active_ms = fetch_now_ms(transfer);
    size_t part = fetch->on_body != NULL ? fetch->on_body(fetch, out, size * n)
                                         : next_of_body(transfer, out, size * n);
    if (transfer->fetch == NULL)
        return CURL_READFUNC_ABORT;
    transfer->starved = part == FETCH_BODY_WAIT;
    if (transfer->starved)
        return CURL_READFUNC_PAUSE;
    transfer->sent += part;
    return part;
}

/* A redirect or a kept connection that turned out dead sends the body once more. */
static int fetch_on_seek(void *arg, curl_off_t offset, int origin)
{
    struct fetch_transfer *transfer = arg;
    if (transfer->fetch == NULL || origin != SEEK_SET || offset < 0)
        return CURL_SEEKFUNC_FAIL;
    if (transfer->fetch->on_body != NULL)
        return (size_t)offset == transfer->sent ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
    if ((size_t)offset > transfer->fetch->body.n)
        return CURL_SEEKFUNC_FAIL;
    transfer->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* What a callback returns that wants no more of the transfer. */
static size_t fetch_abort(struct fetch_transfer *transfer)
{
    forbid_reuse(transfer);
    return CURL_WRITEFUNC_ERROR;
}

static struct str answer_header(struct fetch_transfer *transfer, const char *name)
{
    struct curl_header *h;
    if (curl_easy_header(transfer->easy, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return STR_NONE;
    return str_of_cstr(h->value);
}

/* libcurl will fetch the place a redirect names, and hand us neither body nor word of it. */
static bool will_follow(struct fetch_transfer *transfer, long status)
{
    return transfer->follow && status >= 300 && status < 400 &&
           answer_header(transfer, "location").n > 0;
}

/* See fetch.end_marked. */
static bool has_marked_end(struct fetch_transfer *transfer)
{
    const struct fetch *fetch = transfer->fetch;
    if (fetch->status == 204 || fetch->status == 304 || str_eq(fetch->method, STR("HEAD")))
        return true;
    if (answer_header(transfer, "content-length").p != NULL)
        return true;
    if (fetch->http_version >= 20)
        return curl_version_info(CURLVERSION_NOW)->version_num >= 0x080000;
    return str_eq_nocase(answer_header(transfer, "transfer-encoding"), STR("chunked"));
}

static int http_version(struct fetch_transfer *transfer)
{
    long v = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_HTTP_VERSION, &v);
    return v == CURL_HTTP_VERSION_1_0 ? 10 : v == CURL_HTTP_VERSION_1_1 ? 11 : 20;
}

/* At the empty line behind a head. */
static void head_complete(struct fetch_transfer *transfer)
{
    struct fetch *fetch = transfer->fetch;
    long status = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return;
    if (will_follow(transfer, status)) {
        transfer->asked = false;
        return;
    }
    transfer->headed = true;
    if (status == 204 || status == 304 || str_eq(fetch->method, STR("HEAD")))
        forbid_reuse(transfer); /* a body that came all the same would be the next one's answer */
    /* libcurl gives up a body that an error answers, but does not end as long as that is paused. */
    if (transfer->starved)
        fetch_resume_body(fetch);
    fetch->status = (int)status;
    fetch->http_version = http_version(transfer);
    fetch->end_marked = has_marked_end(transfer);
    fetch->content_type = answer_header(transfer, "content-type");
    expect_peer(transfer);
    if (fetch->on_head != NULL)
        fetch->on_head(fetch);
}

static void trailer_complete(struct fetch_transfer *transfer, struct str line)
{
    struct header h = {.name = str_cut(&line, ':')};
    while (line.n > 0 && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
        line.n--;
    h.value = str_trim(line);
    if (line.p != NULL && transfer->fetch->on_trailer != NULL)
        transfer->fetch->on_trailer(transfer->fetch, h);
}

/* One line of a head, or of trailers. */
static size_t fetch_on_header(char *line, size_t size, size_t n, void *arg)
{
    struct fetch_transfer *transfer = arg;
    if (transfer->fetch == NULL)
        return fetch_abort(transfer);
    transfer->head += n;
    if (transfer->head > FETCH_HEAD_MAX) {
        fetch_blame(transfer, FETCH_TOO_LARGE, "the answer's headers are too large");
        return fetch_abort(transfer);
    }
    bool last = n == 0 || line[0] == '\r' || line[0] == '\n';
    if (transfer->headed)
        trailer_complete(transfer, str_of(line, n));
    else if (last)
        head_complete(transfer);
    return transfer->fetch != NULL ? n : fetch_abort(transfer);
}

static bool fetch_fits(const struct fetch_transfer *transfer, size_t n)
{
    const struct fetch *fetch = transfer->fetch;
    bool unlimited = fetch->on_data != NULL && fetch->max_answer == 0;
    return unlimited ||
           (transfer->received <= fetch->max_answer && n <= fetch->max_answer - transfer->received);
}

static size_t fetch_on_body(char *p, size_t size, size_t n, void *arg)
{
    struct fetch_transfer *transfer = arg;
    if (transfer->fetch == NULL)
        return fetch_abort(transfer);
    if (!transfer->headed) { /* it has switched to something that nobody asked for */
        fetch_blame(transfer, FETCH_NOT_HTTP, "the answer goes on without a head");
        return fetch_abort(transfer);
    }
    if (!fetch_fits(transfer, n)) {
        fetch_blame(transfer, FETCH_TOO_LARGE, "the answer is larger than the limit");
        return fetch_abort(transfer);
    }
    transfer->last_active_ms = fetch_now_ms(transfer);
    if (transfer->fetch->on_data == NULL) {
        buf_put(&transfer->answer, str_of(p, n));
    } else if (!transfer->fetch->on_data(transfer->fetch, str_of(p, n))) {
        transfer->paused = true;
        return transfer->fetch != NULL ? CURL_WRITEFUNC_PAUSE : fetch_abort(transfer);
    }
    transfer->received += n;
    return transfer->fetch != NULL ? n : fetch_abort(transfer);
}

static void set_callbacks(struct fetch_transfer *transfer)
{
    FETCH_SET(transfer, CURLOPT_PRIVATE, transfer);
    FETCH_SET(transfer, CURLOPT_ERRORBUFFER, transfer->curl_why);
    FETCH_SET(transfer, CURLOPT_OPENSOCKETFUNCTION, fetch_peer_on_open);
    FETCH_SET(transfer, CURLOPT_OPENSOCKETDATA, transfer);
    FETCH_SET(transfer, CURLOPT_CLOSESOCKETFUNCTION, fetch_peer_on_close);
    FETCH_SET(transfer, CURLOPT_CLOSESOCKETDATA, transfer->owner);
    FETCH_SET(transfer, CURLOPT_PREREQFUNCTION, fetch_on_request);
    FETCH_SET(transfer, CURLOPT_PREREQDATA, transfer);
    FETCH_SET(transfer, CURLOPT_READFUNCTION, fetch_on_read);
    FETCH_SET(transfer, CURLOPT_READDATA, transfer);
    FETCH_SET(transfer, CURLOPT_SEEKFUNCTION, fetch_on_seek);
    FETCH_SET(transfer, CURLOPT_SEEKDATA, transfer);
    FETCH_SET(transfer, CURLOPT_HEADERFUNCTION, fetch_on_header);
    FETCH_SET(transfer, CURLOPT_HEADERDATA, transfer);
    FETCH_SET(transfer, CURLOPT_WRITEFUNCTION, fetch_on_body);
    FETCH_SET(transfer, CURLOPT_WRITEDATA, transfer);
}

static void transfer_begin(struct fetch_transfer *transfer)
{
    transfer->easy = curl_easy_init();
    must(transfer->easy != NULL);
    set_callbacks(transfer);
    const char *wrong = fetch_set_request(transfer, transfer->owner->ca_file);
    if (wrong != NULL)
        fetch_blame(transfer, FETCH_MALFORMED, wrong);
    else if (curl_multi_add_handle(transfer->owner->curl.multi, transfer->easy) != CURLM_OK)
        fetch_blame(transfer, FETCH_BUSY, "libcurl takes no more transfers");
    if (transfer->cause != FETCH_NONE)
        transfer_complete(transfer, transfer->cause);
}

/* -- running ---------------------------------------------------------------------------------- */

static void transfer_blame_curl(struct fetch_transfer *transfer, CURLcode code)
{
    enum fetch_cause cause = fetch_cause_of(transfer, code);
    const char *why = transfer->curl_why[0] ? transfer->curl_why : curl_easy_strerror(code);
    fetch_blame(transfer, cause,
                cause == FETCH_TOO_LARGE ? "the answer has too long a header line" : why);
}

/* Nothing of the request was sent. */
static void transfer_begin_anew(struct fetch_transfer *transfer)
{
    curl_multi_remove_handle(transfer->owner->curl.multi, transfer->easy);
    FETCH_SET(transfer, CURLOPT_FRESH_CONNECT, 1L);
    transfer->over = transfer->stale = false;
    if (curl_multi_add_handle(transfer->owner->curl.multi, transfer->easy) == CURLM_OK)
        return;
    fetch_blame(transfer, FETCH_BUSY, "libcurl takes no more transfers");
    transfer_complete(transfer, transfer->cause);
}

static void transfer_ended(struct fetch_transfer *transfer, CURLcode code)
{
    if (code == CURLE_ABORTED_BY_CALLBACK && transfer->stale && transfer->fetch != NULL) {
        transfer_begin_anew(transfer);
        return;
    }
    if (code == CURLE_OK && !transfer->headed) /* it finds nothing wrong with half a head */
        fetch_blame(transfer, FETCH_CUT, "the answer ended within its head");
    else if (code == CURLE_OK)
        transfer->cause = FETCH_NONE;
    else if (transfer->cause == FETCH_NONE)
        transfer_blame_curl(transfer, code);
    transfer_complete(transfer, transfer->cause);
}

/* libcurl hands over what it kept from within curl_easy_pause, and does not end the transfer when
 * that fails. */
static void transfer_resume(struct fetch_transfer *transfer)
{
    bool data = transfer->paused && transfer->go_data;
    bool body = transfer->starved && transfer->go_body;
    transfer->go_data = transfer->go_body = false;
    if (!data && !body)
        return;
    transfer->paused = transfer->paused && !data;
    transfer->starved = transfer->starved && !body;
    expect_peer(transfer);
    int still = (transfer->paused ? CURLPAUSE_RECV : 0) | (transfer->starved ? CURLPAUSE_SEND : 0);
    CURLcode code = curl_easy_pause(transfer->easy, still);
    if (code != CURLE_OK)
        transfer_ended(transfer, code);
}

static void transfer_step(struct fetch_transfer *transfer)
{
    list_remove(&transfer->link);
    if (transfer->fetch == NULL)
        transfer_free(transfer);
    else if (transfer->easy == NULL)
        transfer_begin(transfer);
    else if (transfer->ended)
        transfer_complete(transfer, transfer->cause);
    else
        transfer_resume(transfer);
}

/* What is put on the list meanwhile waits for the next round, so that a fetch that fails at once
 * and is started again from done() cannot hold up the loop. */
static void run_todo(struct fetcher *f)
{
    struct link batch;
    list_init(&batch);
    list_splice(&batch, &f->todo);
    while (!list_empty(&batch))
        transfer_step(list_item(batch.next, struct fetch_transfer, link));
}

static void collect(struct fetcher *f)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(f->curl.multi, &left)) != NULL) {
        struct fetch_transfer *transfer = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &transfer);
        transfer->over = true;
        transfer_ended(transfer, m->data.result);
    }
}

/* What nobody holds any more: cancelled transfers that had no step yet, kept connections. */
static void fetcher_close(struct fetcher *f)
{
    list_each_safe (l, &f->todo)
        transfer_free(list_item(l, struct fetch_transfer, link));
    curl_loop_close(&f->curl);
}

static void fetch_drive(struct curl_loop *c, curl_socket_t fd, int events)
{
    struct fetcher *f = container_of(c, struct fetcher, curl);
    int running;
    f->busy = true;
    run_todo(f);
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
    struct fetch_transfer *transfer = NULL;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
    if (transfer == NULL)
        return; /* one of libcurl's own, that closes a connection */
    transfer_end(transfer, FETCH_BUSY, "the system lets us watch no more sockets");
}

/* -- the public face -------------------------------------------------------------------------- */

static void fetch_on_closed(struct curl_loop *c)
{
    struct fetcher *f = container_of(c, struct fetcher, curl);
    fetch_sockets_deinit(&f->sockets);
    free(f->ca_file);
    free(f);
}

struct fetcher *fetcher_new(struct loop *loop)
{
    struct fetcher *f = mem_zalloc(sizeof *f);
    list_init(&f->todo);
    fetch_sockets_init(&f->sockets);
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

void fetcher_bound(struct fetcher *f, uint64_t connections)
{
    long most = connections < LONG_MAX ? (long)connections : LONG_MAX;
    curl_multi_setopt(f->curl.multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, most);
}

void fetcher_own(struct fetcher *f, const struct addr_own *own)
{
    f->own = own;
}

void fetcher_on_refused(struct fetcher *f, void (*refused)(void *ctx, const struct fetch *fetch),
                        void *ctx)
{
    f->refused = refused;
    f->refused_ctx = ctx;
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
    must(!f->closing && fetch->transfer == NULL);
    struct fetch_transfer *transfer = mem_zalloc(sizeof *transfer);
    list_init(&transfer->link);
    timer_init(&transfer->silence, fetch_on_silence);
    transfer->owner = f;
    transfer->fetch = fetch;
    transfer->policy = fetch->policy;
    fetch->transfer = transfer;
    fetch->status = fetch->http_version = 0;
    fetch->end_marked = false;
    fetch->cause = FETCH_NONE;
    fetch->content_type = STR_NONE;
    fetch->answer = (struct buf){0};
    fetch->error[0] = '\0';
    f->in_flight++;
    transfer_later(transfer);
}

void fetch_resume(struct fetch *fetch)
{
    if (fetch->transfer == NULL)
        return;
    fetch->transfer->go_data = true;
    transfer_later(fetch->transfer);
}

void fetch_resume_body(struct fetch *fetch)
{
    if (fetch->transfer == NULL)
        return;
    fetch->transfer->go_body = true;
    transfer_later(fetch->transfer);
}

void fetch_cancel(struct fetch *fetch)
{
    struct fetch_transfer *transfer = fetch->transfer;
    if (transfer == NULL)
        return;
    transfer_detach(transfer);
    transfer_later(transfer);
}

struct str fetch_header(const struct fetch *fetch, const char *name)
{
    if (fetch->transfer == NULL || !fetch->transfer->headed)
        return STR_NONE;
    return answer_header(fetch->transfer, name);
}

bool fetch_next_header(const struct fetch *fetch, void **at, struct header *out)
{
    if (fetch->transfer == NULL || !fetch->transfer->headed)
        return false;
    struct curl_header *h = curl_easy_nextheader(fetch->transfer->easy, CURLH_HEADER, -1, *at);
    if (h == NULL)
        return false;
    *at = h;
    *out = (struct header){str_of_cstr(h->name), str_of_cstr(h->value)};
    return true;
}
