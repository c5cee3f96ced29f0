// SPDX-License-Identifier: Apache-2.0
/* cmd_demo_backend.c -- `tidemark demo-backend`: a backend to try the gateway with. Everybody who
 * POSTs gets the same text, word by word; whoever goes away has lost the rest, as with most
 * backends. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cmd/cmd_common.h"
#include "cmd/demo_script.h"
#include "http/exchange.h"
#include "http/http.h"
#include "http/surface.h"
#include "net/addr.h"
#include "net/listener.h"
#include "net/loop.h"
#include "telemetry/trace.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#define CONNECTIONS_MAX 1000
#define PATH_SHOWN      100 /* bytes of a request's path */
#define CUT_MS          50  /* from the last word to the cut, at least */

/* ---- the command line ---- */

struct settings {
    char *listen;
    uint64_t delay_ms, tokens, cut_after;
    int dialect; /* enum demo_dialect */
};

static int cmd_demo_backend_check_listen(struct str value, char *reason, size_t size)
{
    struct addr ignored;
    return addr_parse_listen(value, &ignored, reason, size);
}

#define ROW(...) OPTION_ROW(struct settings, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("listen", OPTION_TEXT, listen), .fallback = "127.0.0.1:3101",
     .value = "HOST:PORT|unix:PATH", .check = cmd_demo_backend_check_listen,
     .help = "Where to listen. Port 0 takes any free port."},
    {ROW("tokens", OPTION_NUMBER, tokens), .fallback = "200", .value = "N", .min = 1,
     .max = DEMO_TOKENS_MAX, .help = "Words of an answer, one an event."},
    {ROW("delay", OPTION_DURATION, delay_ms), .fallback = "50ms", .value = "TIME", .max = MINUTE_MS,
     .help = "How long to wait after each. 0 sends them at once."},
    {ROW("dialect", OPTION_CHOICE, dialect), .fallback = "sse", .value = "sse|openai|ui-message",
     .help = "How the events look: any server-sent events, chunks of a chat completion, or the UI "
             "message stream of the AI SDK."},
    {ROW("cut-after", OPTION_NUMBER, cut_after), .fallback = "0", .value = "N",
     .max = DEMO_TOKENS_MAX,
     .help = "Break the connection off after so many words, to see how that is told. 0 does not."},
};

static const struct common_command command = {
    .name = "demo-backend",
    .arguments = "",
    .about = "A backend to try routes with: it answers every POST with a text as server-sent\n"
             "events, word by word. A client that goes away has lost the rest, unless tidemark\n"
             "stands in between.\n",
    .examples = "  tidemark demo-backend\n"
                "  tidemark serve --route /assist/draft-graph=http://127.0.0.1:3101/\n"
                "  curl -N -X POST http://127.0.0.1:4437/assist/draft-graph\n"
                "\n"
                "  tidemark demo-backend --dialect openai --tokens 1000 --delay 5ms\n",
    .flags = {rows, sizeof rows / sizeof *rows},
    .takes_no_environment = true,
};

/* ---- answers ---- */

struct demo {
    struct settings settings;
    struct trace trace;
    struct loop loop;
    struct http http;
    struct listener *listener;
    uv_signal_t on_term, on_int;
    uint64_t answers;
};

struct answer {
    struct demo *demo;
    struct exchange *x;
    struct demo_script script;
    struct timer timer;
    uint64_t next; /* event */
    bool waits;    /* for the timer */
};

static void cmd_demo_backend_say(const struct answer *a, const char *what)
{
    printf("answer %" PRIu64 ": %s\n", a->script.number, what);
    fflush(stdout);
}

static void end_answer(struct answer *a)
{
    timer_stop(&a->timer);
    free(a);
}

static uint64_t tokens_said(const struct answer *a)
{
    return a->next == 0 ? 0 : demo_tokens_upto(&a->script, a->next - 1);
}

static void cmd_demo_backend_on_gone(struct exchange *x)
{
    struct answer *a = x->state;
    char text[64];
    snprintf(text, sizeof text, "broken off after %" PRIu64 " words", tokens_said(a));
    cmd_demo_backend_say(a, text);
    end_answer(a);
}

/* A broken connection tells the truth: nothing more can be said than what was. */
static bool is_to_be_cut(const struct answer *a)
{
    uint64_t after = a->demo->settings.cut_after;
    return after > 0 && tokens_said(a) >= after;
}

static void cmd_demo_backend_on_timer(struct timer *t)
{
    struct answer *a = container_of(t, struct answer, timer);
    a->waits = false;
    if (is_to_be_cut(a))
        exchange_abort(a->x);
    else
        exchange_wake(a->x);
}

static enum pull cmd_demo_backend_on_pull(struct exchange *x)
{
    struct answer *a = x->state;
    if (a->waits)
        return PULL_WAIT;
    struct buf event = {0};
    uint64_t before = tokens_said(a);
    demo_put_event(&a->script, a->next++, &event);
    struct block *b = block_of(buf_str(&event));
    exchange_put(x, slice_of(b, 0, b->n));
    block_unref(b);
    buf_deinit(&event);
    if (a->next == demo_events(&a->script)) {
        cmd_demo_backend_say(a, "complete");
        end_answer(a);
        return PULL_END;
    }
    uint64_t delay_ms = tokens_said(a) > before ? a->demo->settings.delay_ms : 0;
    if (is_to_be_cut(a) && delay_ms < CUT_MS)
        delay_ms = CUT_MS; /* what was said is to arrive */
    if (delay_ms == 0)
        return PULL_MORE;
    a->waits = true;
    sched_start(&a->demo->loop.sched, &a->timer, delay_ms);
    return PULL_WAIT;
}

static const struct exchange_ops answer_ops = {.pull = cmd_demo_backend_on_pull,
                                               .gone = cmd_demo_backend_on_gone};

static void cmd_demo_backend_begin_answer(struct demo *d, struct exchange *x)
{
    struct answer *a = mem_alloc(sizeof *a);
    *a = (struct answer){.demo = d,
                         .x = x,
                         .script = {.dialect = (enum demo_dialect)d->settings.dialect,
                                    .tokens = d->settings.tokens,
                                    .number = ++d->answers,
                                    .created_s = d->loop.sched.wall_ms / 1000}};
    timer_init(&a->timer, cmd_demo_backend_on_timer);
    struct str path = x->request->path;
    char text[PATH_SHOWN + 32];
    snprintf(text, sizeof text, "POST %.*s", (int)(path.n < PATH_SHOWN ? path.n : PATH_SHOWN),
             path.p);
    cmd_demo_backend_say(a, text);
    x->state = a;
    x->ops = &answer_ops;
    exchange_header(x, STR("Content-Type"), STR("text/event-stream"));
    exchange_header(x, STR("Cache-Control"), STR("no-cache"));
    if (d->settings.dialect == DEMO_UI_MESSAGE)
        exchange_header(x, STR("X-Vercel-AI-UI-Message-Stream"), STR("v1"));
    exchange_stream(x);
}

static void cmd_demo_backend_on_body(struct exchange *x, struct str data, bool end)
{
    if (end)
        cmd_demo_backend_begin_answer(x->state, x);
    else
        exchange_want(x, cmd_demo_backend_on_body);
}

static void cmd_demo_backend_handle(void *ctx, struct exchange *x)
{
    x->state = ctx;
    if (x->request->method == METHOD_POST) {
        exchange_want(x, cmd_demo_backend_on_body);
        return;
    }
    exchange_header(x, STR("Allow"), STR("POST"));
    exchange_problem(x, 405, STR("METHOD"), STR("POST something here, and a text comes back"));
}

/* ---- the whole ---- */

static void cmd_demo_backend_on_accepted(void *ctx, int fd)
{
    http_accept(&((struct demo *)ctx)->http, fd, NULL);
}

static void cmd_demo_backend_on_accept_failed(void *ctx, int error)
{
    struct demo *d = ctx;
    trace(&d->trace, ACCEPT_FAILED, TRACE_STR("error", str_of_cstr(strerror(error))));
}

static const struct listener_ops listener_ops = {.accepted = cmd_demo_backend_on_accepted,
                                                 .failed = cmd_demo_backend_on_accept_failed};

static void cmd_demo_backend_close_all(struct demo *d)
{
    if (d->listener != NULL)
        listener_close(d->listener);
    http_close_all(&d->http);
    uv_close((uv_handle_t *)&d->on_term, NULL);
    uv_close((uv_handle_t *)&d->on_int, NULL);
}

static void cmd_demo_backend_on_signal(uv_signal_t *handle_, int number)
{
    struct demo *d = handle_->data;
    if (!uv_is_closing((uv_handle_t *)&d->on_term))
        cmd_demo_backend_close_all(d);
}

static void cmd_demo_backend_init_signals(struct demo *d)
{
    signal(SIGPIPE, SIG_IGN);
    uv_signal_init(&d->loop.uv, &d->on_term);
    uv_signal_init(&d->loop.uv, &d->on_int);
    d->on_term.data = d->on_int.data = d;
    uv_signal_start(&d->on_term, cmd_demo_backend_on_signal, SIGTERM);
    uv_signal_start(&d->on_int, cmd_demo_backend_on_signal, SIGINT);
}

static void cmd_demo_backend_print_address(const struct demo *d)
{
    struct str at = listener_address(d->listener);
    bool is_unix = str_starts(at, STR("unix:"));
    printf("demo backend on %s%.*s: %" PRIu64 " words, one every %" PRIu64 " ms\n",
           is_unix ? "" : "http://", (int)at.n, at.p, d->settings.tokens, d->settings.delay_ms);
    if (!is_unix)
        printf("put tidemark in front of it: tidemark serve --route "
               "/assist/draft-graph=http://%.*s/\n",
               (int)at.n, at.p);
    fflush(stdout);
}

static const struct surface_rule rules[] = {{0}};
static const struct surface surface = {.path = "/", .rules = rules};

static int cmd_demo_backend_serve(struct demo *d)
{
    char why[256];
    int status = CMD_OK;
    if (loop_init(&d->loop) != 0)
        return common_fail(&command, "cannot start an event loop");
    http_init(&d->http, &d->loop, &d->trace,
              &(struct http_limits){.connections = CONNECTIONS_MAX,
                                    .inflight_bytes = MIB,
                                    .head_timeout_ms = 10 * SECOND_MS,
                                    .idle_timeout_ms = MINUTE_MS,
                                    .body_timeout_ms = 10 * SECOND_MS,
                                    .write_timeout_ms = MINUTE_MS,
                                    .body_min_bytes = 1});
    http_mount(&d->http, &surface, cmd_demo_backend_handle, d);
    cmd_demo_backend_init_signals(d);
    d->listener =
        listener_new(&d->loop, str_of_cstr(d->settings.listen), &listener_ops, d, why, sizeof why);
    if (d->listener != NULL) {
        cmd_demo_backend_print_address(d);
    } else {
        status = common_fail(&command, "cannot listen on %s: %s", d->settings.listen, why);
        cmd_demo_backend_close_all(d);
    }
    loop_run(&d->loop);
    http_deinit(&d->http);
    loop_deinit(&d->loop);
    return status;
}

static int refuse_argument(const char *text)
{
    common_fail(&command, "%s is no flag, and arguments are not taken; see --help", text);
    return CMD_USAGE;
}

int cmd_demo_backend(int argc, char **argv)
{
    struct demo d = {.trace = {.to = stderr, .level = TRACE_WARN}};
    int n_args = 0, status;
    if (common_read(&command, &d.settings, argc, argv, &n_args, &status)) {
        if (n_args == 0)
            status = cmd_demo_backend_serve(&d);
        else
            status = refuse_argument(argv[1]);
    }
    options_free(&command.flags, &d.settings);
    return status;
}
