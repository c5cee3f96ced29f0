// SPDX-License-Identifier: Apache-2.0
/* cmd_cascade_ask.c -- `tidemark cascade ask`: one question, whose answer is printed as it comes.
 *
 * A connection that is lost is nothing to the answer: it is read on from behind the last event that
 * came. Until the first one came, the question is sent again under the same idempotency key. */
#include "feature/cascade/cmd_cascade_ask.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/list.h"
#include "base/rand.h"
#include "base/sched.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "cmd/pages.h"
#include "http/fetch.h"
#include "http/sse_host.h"
#include "net/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define CHAT         "/v1/chat/completions"
#define QUESTION_MAX (8 << 20)
#define EVENT_MAX    (2 << 20)
#define ERROR_MAX    (64 * 1024)
#define TRIES        10
#define RETRY_MS     1000
#define ID_MAX       64
#define INTERRUPTED  130 /* as shells have it */

struct ask_flags {
    char *server, *token_file, *model;
};

#define ROW(...) OPTION_ROW(struct ask_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    COMMON_SERVER_ROWS(struct ask_flags),
    {ROW("model", OPTION_TEXT, model), .value = "NAME",
     .help = "Which model answers, as `tidemark cascade models` lists them. Without it the "
             "account's own."},
};

static const struct common_command command = {
    .name = "cascade ask",
    .arguments = "[TEXT]",
    .max_args = 1,
    .about =
        "Asks a model of the editor's account and prints the answer as it comes. The question\n"
        "is TEXT, or what standard input holds. A lost connection is taken up again; an\n"
        "interrupt stops the answer. Texts that the model has written anew are told on\n"
        "standard error.\n",
    .examples = "  tidemark cascade ask 'What does EAGAIN mean?'\n"
                "  git diff | tidemark cascade ask --model claude-opus-4-7-medium\n",
    .flags = {rows, sizeof rows / sizeof *rows},
};

struct ask {
    const struct ask_flags *flags;
    struct loop loop;
    struct fetcher *fetcher;
    uv_signal_t on_int;
    struct fetch fetch, stop;
    struct sse_parser parser;
    struct timer retry;
    struct buf url, body, stop_url, error;
    struct header headers[4];
    char token[COMMON_TOKEN_SIZE + sizeof "Bearer "];
    char key[RAND_UUID + 1];
    char id[ID_MAX];    /* of the generation; empty: not known yet */
    char last_id[32];   /* of the last event that came */
    int tries;          /* since the last event */
    int status, failed; /* failed: errno of writing */
    bool over, ended_line, interrupted;
};

/* ---- the end ---- */

static void cmd_cascade_ask_finish(struct ask *a, int status)
{
    a->over = true;
    a->status = status;
    timer_stop(&a->retry);
    fetch_cancel(&a->fetch);
    uv_signal_stop(&a->on_int);
    if (!a->ended_line)
        common_write(STDOUT_FILENO, STR("\n"));
    a->ended_line = true;
}

static void cmd_cascade_ask_on_stopped(struct fetch *f, int err)
{
    cmd_cascade_ask_finish(container_of(f, struct ask, stop), INTERRUPTED);
}

/* The second one waits for nothing. */
static void cmd_cascade_ask_on_interrupt(uv_signal_t *handle, int number)
{
    struct ask *a = handle->data;
    if (a->interrupted || *a->id == '\0') {
        fetch_cancel(&a->stop);
        cmd_cascade_ask_finish(a, INTERRUPTED);
        return;
    }
    a->interrupted = true;
    buf_printf(&a->stop_url, "%s" CHAT "/%s", a->flags->server, a->id);
    a->stop = (struct fetch){.url = buf_str(&a->stop_url),
                             .method = STR("DELETE"),
                             .headers = a->headers,
                             .n_headers = *a->token ? 1 : 0,
                             .policy = {.configured = true},
                             .total_timeout_ms = 10000,
                             .max_answer = ERROR_MAX,
                             .done = cmd_cascade_ask_on_stopped};
    fetch_start(a->fetcher, &a->stop);
}

/* ---- what comes ---- */

static void print(struct ask *a, const char *text)
{
    struct str s = str_of_cstr(text);
    if (s.n == 0)
        return;
    a->ended_line = s.p[s.n - 1] == '\n';
    a->failed = common_write(STDOUT_FILENO, s);
}

static const char *cmd_cascade_ask_error_of(const json_t *answer)
{
    const json_t *error = json_object_get(answer, "error");
    const char *text = pages_text(json_is_object(error) ? error : answer, "message");
    return *text ? text : "the server did not say why";
}

static void cmd_cascade_ask_take_chunk(struct ask *a, const json_t *chunk)
{
    const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
    const json_t *own = json_object_get(chunk, "tidemark");
    const json_t *rewrite = json_object_get(own, "rewrite"), *end = json_object_get(own, "end");
    print(a, pages_text(json_object_get(choice, "delta"), "content"));
    if (rewrite != NULL)
        common_fail(&command, "message %llu was written anew:\n%s",
                    (unsigned long long)pages_number(rewrite, "index"),
                    pages_text(rewrite, "text"));
    if (end != NULL && strcmp(pages_text(end, "reason"), "cancelled") == 0)
        a->status = INTERRUPTED;
    if (json_object_get(chunk, "error") != NULL)
        a->status = common_fail(&command, "%s", cmd_cascade_ask_error_of(chunk));
}

static int cmd_cascade_ask_on_event(void *user, const struct sse_event *event)
{
    struct ask *a = user;
    if (event->id.n > 0 && event->id.n < sizeof a->last_id) {
        memcpy(a->last_id, event->id.p, event->id.n);
        a->last_id[event->id.n] = '\0';
    }
    a->tries = 0;
    if (str_eq(event->data, STR("[DONE]"))) {
        a->over = true;
        return 0;
    }
    json_t *chunk = json_loadb(event->data.p, event->data.n, 0, NULL);
    cmd_cascade_ask_take_chunk(a, chunk);
    json_decref(chunk);
    a->over = a->over || a->status != CMD_OK || a->failed != 0;
    return 0;
}

static void cmd_cascade_ask_on_head(struct fetch *f)
{
    struct ask *a = container_of(f, struct ask, fetch);
    struct str id = fetch_header(f, "X-Correlation-ID");
    if (f->status == 200 && id.n > 0 && id.n < sizeof a->id) {
        memcpy(a->id, id.p, id.n);
        a->id[id.n] = '\0';
    }
}

/* What is no stream of events is an error, whose body is kept. */
static bool cmd_cascade_ask_on_data(struct fetch *f, struct str data)
{
    struct ask *a = container_of(f, struct ask, fetch);
    if (f->status == 200)
        sse_parser_feed(&a->parser, data);
    else if (a->error.n + data.n <= ERROR_MAX)
        buf_put(&a->error, data);
    if (a->failed)
        cmd_cascade_ask_finish(a, common_written(&command, a->failed));
    return true;
}

static void cmd_cascade_ask_refused(struct ask *a)
{
    json_t *answer = json_loadb(a->error.p, a->error.n, 0, NULL);
    if (a->fetch.status == 404 && answer == NULL)
        common_fail(&command, "%s has no Cascade bridge: [cascade] in its config file",
                    a->flags->server);
    else
        common_fail(&command, "%s", cmd_cascade_ask_error_of(answer));
    json_decref(answer);
    cmd_cascade_ask_finish(a, CMD_FAILED);
}

static void cmd_cascade_ask_on_done(struct fetch *f, int err)
{
    struct ask *a = container_of(f, struct ask, fetch);
    if (a->over && !a->interrupted)
        cmd_cascade_ask_finish(a, a->status);
    else if (err == 0 && f->status == 204) /* nothing more will come */
        cmd_cascade_ask_finish(a, a->status);
    else if (err == 0 && f->status != 200)
        cmd_cascade_ask_refused(a);
    else if (++a->tries < TRIES && !a->interrupted)
        sched_start(&a->loop.sched, &a->retry, RETRY_MS);
    else if (!a->interrupted)
        cmd_cascade_ask_finish(a, common_fail(&command,
                                              "cannot reach %s: is `tidemark serve` running? %s",
                                              a->flags->server, f->error));
}

/* ---- what goes ---- */

static void send_request(struct ask *a)
{
    bool known = *a->id != '\0';
    size_t n = *a->token ? 1 : 0;
    a->url.n = a->error.n = 0;
    buf_put(&a->url, str_of_cstr(a->flags->server));
    buf_put(&a->url, STR(CHAT));
    if (known)
        buf_printf(&a->url, "/%s", a->id);
    a->headers[0] = (struct header){STR("Authorization"), str_of_cstr(a->token)};
    if (known) {
        a->headers[n++] = (struct header){STR("Last-Event-ID"), str_of_cstr(a->last_id)};
    } else {
        a->headers[n++] = (struct header){STR("Content-Type"), STR("application/json")};
        a->headers[n++] = (struct header){STR("Idempotency-Key"), str_of_cstr(a->key)};
    }
    sse_parser_reset(&a->parser);
    a->fetch = (struct fetch){.url = buf_str(&a->url),
                              .method = known ? STR("GET") : STR("POST"),
                              .headers = a->headers,
                              .n_headers = n,
                              .body = known ? STR_NONE : buf_str(&a->body),
                              .policy = {.configured = true},
                              .on_head = cmd_cascade_ask_on_head,
                              .on_data = cmd_cascade_ask_on_data,
                              .done = cmd_cascade_ask_on_done};
    fetch_start(a->fetcher, &a->fetch);
}

static void cmd_cascade_ask_on_retry(struct timer *t)
{
    send_request(container_of(t, struct ask, retry));
}

static int read_question(struct buf *out)
{
    for (;;) {
        ssize_t n = read(STDIN_FILENO, buf_reserve(out, 65536), 65536);
        if (n == 0)
            return 0;
        if (n > 0)
            out->n += (size_t)n;
        else if (errno != EINTR)
            return common_fail(&command, "cannot read the question: %s", strerror(errno));
        if (out->n > QUESTION_MAX)
            return common_fail(&command, "the question is larger than %d bytes", QUESTION_MAX);
    }
}

static int make_body(struct ask *a, const char *text)
{
    struct buf question = {0};
    int status = text == NULL ? read_question(&question) : 0;
    if (text != NULL)
        buf_put(&question, str_of_cstr(text));
    buf_put(&a->body, STR("{\"stream\":true,"));
    if (a->flags->model != NULL) {
        buf_put(&a->body, STR("\"model\":"));
        json_put_string(&a->body, str_of_cstr(a->flags->model));
        buf_putc(&a->body, ',');
    }
    buf_put(&a->body, STR("\"messages\":[{\"role\":\"user\",\"content\":"));
    json_put_string(&a->body, buf_str(&question));
    buf_put(&a->body, STR("}]}"));
    buf_deinit(&question);
    return status;
}

static int make_token(struct ask *a)
{
    char token[COMMON_TOKEN_SIZE];
    int status = common_token(&command, a->flags->token_file, token);
    if (status == 0 && *token)
        snprintf(a->token, sizeof a->token, "Bearer %s", token);
    explicit_bzero(token, sizeof token);
    return status;
}

static void cmd_cascade_ask_run(struct ask *a)
{
    rand_uuid(a->key);
    signal(SIGPIPE, SIG_IGN);
    a->fetcher = fetcher_new(&a->loop);
    timer_init(&a->retry, cmd_cascade_ask_on_retry);
    sse_parser_init(&a->parser, &sse_server_host, NULL, EVENT_MAX, a, cmd_cascade_ask_on_event);
    uv_signal_init(&a->loop.uv, &a->on_int);
    a->on_int.data = a;
    a->ended_line = true;
    uv_signal_start(&a->on_int, cmd_cascade_ask_on_interrupt, SIGINT);
    send_request(a);
    loop_run(&a->loop); /* until cmd_cascade_ask_finish() has let go of all */
    fetcher_free(a->fetcher);
    uv_close((uv_handle_t *)&a->on_int, NULL);
    loop_run(&a->loop);
    loop_deinit(&a->loop);
    sse_parser_deinit(&a->parser);
}

int cascade_ask(int argc, char **argv)
{
    struct ask_flags flags = {0};
    struct ask *a = calloc(1, sizeof *a);
    int status = CMD_FAILED, n;
    if (a == NULL)
        return status;
    a->flags = &flags;
    if (common_read(&command, &flags, argc, argv, &n, &status) && (status = make_token(a)) == 0 &&
        (status = make_body(a, n > 0 ? argv[1] : NULL)) == 0) {
        if (loop_init(&a->loop) == 0)
            cmd_cascade_ask_run(a);
        else
            a->status = common_fail(&command, "no event loop can be had");
        status = a->status;
    }
    buf_deinit(&a->url);
    buf_deinit(&a->body);
    buf_deinit(&a->stop_url);
    buf_deinit(&a->error);
    explicit_bzero(a->token, sizeof a->token);
    free(a);
    options_free(&command.flags, &flags);
    return status;
}
