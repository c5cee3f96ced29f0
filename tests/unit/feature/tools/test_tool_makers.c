// SPDX-License-Identifier: Apache-2.0
/* test_tool_makers.c -- tools that are programs or URLs, well-meaning ones and others. Programs
 * write the numbers of their processes into a file; afterwards none of them may be there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"
#include "feature/tools/tool.h"
#include "http/fetch.h"
#include "net/loop.h"
#include "store/store.h"
#include "feature/tools/tool_makers_upstream.h"
#include "token/cursor.h"
#include "feature/tools/tool_config.h"
#include "store/mem/mem_store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_S 120

struct world {
    struct loop loop;
    uv_timer_t awake; /* as a server's listeners: the loop goes on though nothing is under way */
    struct store *store;
    struct cursor_issuer *issuer;
    struct fetcher *fetcher;
    struct tool_config config;
    struct addr_policy policy;
    struct tool_makers *makers;
    struct tools *tools;
    char script[64], pids[64], line[160], url[64];
    char *items[1];
    struct tool_call call;
    char cursor[CURSOR_MAX + 1];
    bool done, stopped;
    /* the site */
    int listener;
    pthread_t thread;
    char answer[512 * 1024];
    size_t answer_n;
    char asked[4096];
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    uint8_t key[CURSOR_KEY_SIZE] = {1}, session[CURSOR_SESSION_SIZE] = {2};
    alarm(PATIENCE_S);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(loop_init(&w->loop), 0);
    uv_timer_init(&w->loop.uv, &w->awake);
    w->store = mem_store_new(&w->loop.sched);
    w->issuer = cursor_issuer_new(key, session);
    w->fetcher = fetcher_new(&w->loop);
    w->policy = (struct addr_policy){.allow_loopback = true};
    snprintf(w->script, sizeof w->script, "/tmp/test_tool.XXXXXX");
    close(mkstemp(w->script));
    snprintf(w->pids, sizeof w->pids, "/tmp/test_tool.XXXXXX");
    close(mkstemp(w->pids));
    snprintf(w->line, sizeof w->line, "sh %s %s", w->script, w->pids);
    w->items[0] = w->line;
    w->config = (struct tool_config){.name = (char *)(uintptr_t) "mine",
                                     .command = {.items = w->items, .n = 1},
                                     .timeout_ms = 60 * SECOND_MS,
                                     .max_output = MIB,
                                     .page_rows = 100,
                                     .page_bytes = 64 * KIB,
                                     .parallel = 4,
                                     .max_memory = GIB};
    *state = w;
    return 0;
}

static void stay_awake(uv_timer_t *t)
{
}

static void on_stopped(void *ctx)
{
    ((struct world *)ctx)->stopped = true;
}

/* Nothing is left of any program when the loop has nothing more to do. */
static void close_tools(struct world *w)
{
    if (w->tools == NULL)
        return;
    w->stopped = false;
    tools_stop(w->tools, on_stopped, w);
    sched_drain(&w->loop.sched);
    while (!w->stopped)
        uv_run(&w->loop.uv, UV_RUN_ONCE);
    uv_timer_stop(&w->awake);
    tools_free(w->tools);
    tool_makers_free(w->makers);
    fetcher_free(w->fetcher);
    w->tools = NULL;
    loop_run(&w->loop);
}

static int teardown(void **state)
{
    struct world *w = *state;
    if (w->tools == NULL && w->makers == NULL)
        fetcher_free(w->fetcher);
    close_tools(w);
    uv_close((uv_handle_t *)&w->awake, NULL);
    loop_run(&w->loop);
    tool_call_deinit(&w->call);
    store_free(w->store);
    cursor_issuer_free(w->issuer);
    loop_deinit(&w->loop);
    unlink(w->script);
    unlink(w->pids);
    alarm(0);
    free(w);
    return 0;
}

static void open_tools(struct world *w)
{
    char why[256] = "";
    uv_timer_start(&w->awake, stay_awake, PATIENCE_S * SECOND_MS, 0);
    w->makers = tool_makers_new(&(struct tool_makers_setup){.loop = &w->loop,
                                                            .fetcher = w->fetcher,
                                                            .policy = w->policy,
                                                            .configs = &w->config,
                                                            .n_configs = 1});
    w->tools = tools_new(&(struct tools_setup){.sched = &w->loop.sched,
                                               .store = w->store,
                                               .issuer = w->issuer,
                                               .cursor_ttl_s = 300,
                                               .keep_max = UINT64_MAX,
                                               .specs = tool_makers_specs(w->makers),
                                               .n_specs = 1},
                         why, sizeof why);
    assert_string_equal(why, "");
}

static void open_script(struct world *w, const char *script)
{
    FILE *f = fopen(w->script, "w");
    fputs(script, f);
    fclose(f);
    open_tools(w);
}

static void on_done(struct tool_call *c)
{
    struct world *w = container_of(c, struct world, call);
    w->done = true;
    memcpy(w->cursor, c->next_cursor.n > 0 ? c->next_cursor.p : "", c->next_cursor.n);
    w->cursor[c->next_cursor.n] = '\0';
}

static void begin(struct world *w, const char *args, const char *cursor)
{
    tool_call_deinit(&w->call);
    w->done = false;
    w->call = (struct tool_call){.tool_id = STR("mine"),
                                 .args = str_of_cstr(args),
                                 .cursor = cursor != NULL ? str_of_cstr(cursor) : STR_NONE,
                                 .done = on_done};
    tools_call(w->tools, &w->call);
    sched_drain(&w->loop.sched); /* we are not called by the loop, which would see to it */
}

static void ask(struct world *w, const char *args, const char *cursor)
{
    begin(w, args, cursor);
    while (!w->done)
        uv_run(&w->loop.uv, UV_RUN_ONCE);
}

static bool same(const struct buf *b, const char *text)
{
    bool is = str_eq(buf_str(b), str_of_cstr(text));
    if (!is)
        print_error("got %.*s\n", (int)b->n, b->p);
    return is;
}

static void assert_result(struct world *w, const char *result)
{
    if (w->call.outcome != TOOL_SUCCESS)
        print_error("%.*s\n", (int)w->call.message.n, w->call.message.p);
    assert_int_equal(w->call.outcome, TOOL_SUCCESS);
    assert_true(same(&w->call.result, result));
    assert_int_equal(w->call.next_cursor.n, 0);
}

static void assert_failed(struct world *w, const char *message, bool retryable)
{
    assert_int_equal(w->call.outcome, TOOL_EXECUTION_FAILED);
    assert_true(same(&w->call.message, message));
    assert_int_equal(w->call.retryable, retryable);
}

static size_t count_pids(struct world *w)
{
    FILE *f = fopen(w->pids, "r");
    size_t n = 0;
    while (fscanf(f, "%*d") != EOF)
        n++;
    fclose(f);
    return n;
}

static void assert_none_left(struct world *w, size_t n)
{
    FILE *f = fopen(w->pids, "r");
    size_t found = 0;
    for (int pid; fscanf(f, "%d", &pid) == 1; found++) {
        errno = 0;
        assert_int_equal(kill(pid, 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    fclose(f);
    assert_int_equal(found, n);
}

/* Follows the cursors to the end; rows that are numbers are counted on from 1. */
static size_t follow(struct world *w)
{
    size_t n = 0, i;
    for (uint64_t page = 1; w->call.outcome == TOOL_SUCCESS; page++) {
        json_t *rows = json_loadb(w->call.result.p, w->call.result.n, 0, NULL), *row;
        assert_true(json_is_array(rows));
        assert_int_equal(w->call.page, page);
        json_array_foreach(rows, i, row) assert_int_equal(json_integer_value(row), ++n);
        json_decref(rows);
        if (w->call.next_cursor.n == 0)
            break;
        char cursor[CURSOR_MAX + 1];
        strcpy(cursor, w->cursor);
        ask(w, "", cursor);
    }
    return n;
}

/* ---- programs that mean well ---- */

static void test_arguments_on_stdin(void **state)
{
    struct world *w = *state;
    open_script(w, "cat\n");
    ask(w, "{\"b\": 2, \"a\":[\"x y\"]}", NULL);
    assert_result(w, "[{\"b\": 2, \"a\":[\"x y\"]}]");
    ask(w, "", NULL);
    assert_result(w, "[{}]");
}

static void test_a_hundred_thousand_rows(void **state)
{
    struct world *w = *state;
    w->config.max_output = 16 * MIB;
    open_script(w, "exec seq 1 100000\n");
    ask(w, "", NULL);
    assert_int_equal(follow(w), 100000);
    assert_int_equal(w->call.outcome, TOOL_SUCCESS);
    assert_int_equal(w->call.page, 1000);
}

static void test_no_output_is_no_rows(void **state)
{
    struct world *w = *state;
    open_script(w, "exit 0\n");
    ask(w, "", NULL);
    assert_result(w, "[]");
}

static void test_slow_program(void **state)
{
    struct world *w = *state;
    w->config.page_rows = 2;
    open_script(w, "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done\n");
    ask(w, "", NULL);
    assert_int_equal(follow(w), 5);
    assert_int_equal(w->call.page, 3);
}

/* ---- others ---- */

static void test_endless_output(void **state)
{
    struct world *w = *state;
    open_script(w, "echo $$ >>$1; exec seq 1 100000000\n");
    ask(w, "", NULL);
    size_t n = follow(w);
    assert_failed(w, "the result has more than 1048576 bytes", false);
    assert_true(n > 100000 && n < 200000); /* what came until then is there */
    close_tools(w);
    assert_none_left(w, 1);
}

static void test_endless_row(void **state)
{
    struct world *w = *state;
    open_script(w, "echo $$ >>$1; echo '[\"'; exec yes\n");
    ask(w, "", NULL);
    assert_failed(w, "the result has more than 1048576 bytes", false);
    close_tools(w);
    assert_none_left(w, 1);
}

static void test_hangs_without_output(void **state)
{
    struct world *w = *state;
    w->config.timeout_ms = 2000;
    open_script(w, "trap '' TERM HUP INT; echo $$ >>$1; while :; do sleep 1000; done\n");
    ask(w, "", NULL);
    assert_failed(w, "the tool took longer than 2000 ms", true);
    close_tools(w);
    assert_none_left(w, 1);
}

static void test_hangs_behind_the_first_page(void **state)
{
    struct world *w = *state;
    w->config.timeout_ms = 2000;
    open_script(w, "echo $$ >>$1; seq 1 150; exec sleep 1000\n");
    ask(w, "", NULL);
    assert_int_equal(w->call.outcome, TOOL_SUCCESS);
    assert_int_equal(follow(w), 150);
    assert_failed(w, "the tool took longer than 2000 ms", true);
    close_tools(w);
    assert_none_left(w, 1);
}

static void test_invalid_json(void **state)
{
    struct world *w = *state;
    open_script(w, "echo $$ >>$1; echo 1; echo 'Traceback (most recent call last):'; sleep 1000\n");
    ask(w, "", NULL);
    assert_failed(w, "row 2 of the result is not valid JSON", false);
    close_tools(w);
    assert_none_left(w, 1);
}

static void test_fails_after_output(void **state)
{
    struct world *w = *state;
    open_script(w, "echo $$ >>$1; echo 1; echo first >&2; echo 'oh no' >&2; exit 3\n");
    ask(w, "", NULL);
    assert_failed(w, "the command exited with status 3: oh no", false);
    assert_none_left(w, 1);
}

static void test_fails_behind_the_first_page(void **state)
{
    struct world *w = *state;
    open_script(w, "seq 1 150; exit 3\n");
    ask(w, "", NULL);
    assert_int_equal(follow(w), 150);
    assert_failed(w, "the command exited with status 3", false);
}

static void test_killed(void **state)
{
    struct world *w = *state;
    open_script(w, "echo 1; kill -SEGV $$\n");
    ask(w, "", NULL);
    assert_failed(w, "the command was ended by signal 11 (Segmentation fault)", false);
}

static void test_fork_bomb(void **state)
{
    struct world *w = *state;
    open_script(w, "set -m; echo $$ >>$1; i=0\n"
                   "while [ $i -lt 30 ]; do setsid sleep 1000 & echo $! >>$1\n"
                   "sleep 1000 & echo $! >>$1; i=$((i+1)); done; wait\n");
    begin(w, "", NULL);
    while (count_pids(w) < 61)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    tools_cancel(w->tools, &w->call);
    close_tools(w);
    assert_none_left(w, 61);
}

static void test_daemon_holds_output(void **state)
{
    struct world *w = *state;
    open_script(w, "echo [1]; (env -i setsid sh -c 'echo $$ >>$0; exec sleep 1000' $1 &)\n"
                   "while ! [ -s $1 ]; do :; done\n");
    ask(w, "", NULL);
    assert_result(w, "[1]");
    assert_none_left(w, 1);
}

static void test_takes_two_gigabytes(void **state)
{
    struct world *w = *state;
    w->config.max_memory = 256 * MIB;
    open_script(w, "echo $$ >>$1; head -c 2147483648 /dev/zero | tail\n");
    ask(w, "", NULL);
    assert_failed(w, "the command exited with status 1: tail: memory exhausted", false);
    assert_none_left(w, 1);
}

static void test_output_after_closing(void **state)
{
    struct world *w = *state;
    open_script(w, "echo $$ >>$1; echo [1]; exec >&-; echo [2]; sleep 0.1; exit 0\n");
    ask(w, "", NULL);
    assert_result(w, "[1]");
    assert_none_left(w, 1);
}

static void test_cannot_be_started(void **state)
{
    struct world *w = *state;
    w->items[0] = (char *)(uintptr_t) "no-such-program-here a b";
    open_tools(w);
    ask(w, "", NULL);
    assert_failed(w, "no-such-program-here cannot be started: No such file or directory", false);
}

/* Nobody waits for it any more, or nobody is there to wait. */
static void test_cancel_and_stop(void **state)
{
    struct world *w = *state;
    open_script(w, "echo $$ >>$1; exec sleep 1000\n");
    begin(w, "", NULL);
    while (count_pids(w) == 0)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    tools_cancel(w->tools, &w->call);
    begin(w, "", NULL);
    uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    close_tools(w);
    assert_false(w->done);
    size_t n = count_pids(w);
    assert_none_left(w, n);
    assert_true(n >= 1);
}

/* ---- URLs ---- */

static size_t receive(int fd, char *out, size_t size)
{
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, out + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        out[n] = '\0';
        const char *end = strstr(out, "\r\n\r\n"), *length = strstr(out, "Content-Length: ");
        if (end != NULL &&
            n >= (size_t)(end + 4 - out) + (length != NULL ? strtoul(length + 16, NULL, 10) : 0))
            break;
    }
    return n;
}

static void *serve(void *arg)
{
    struct world *w = arg;
    int fd = accept(w->listener, NULL, NULL);
    receive(fd, w->asked, sizeof w->asked);
    for (size_t at = 0; at < w->answer_n;) {
        ssize_t n = write(fd, w->answer + at, w->answer_n - at);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    if (w->answer_n == 0) { /* until the other side has had enough */
        char byte;
        while (read(fd, &byte, 1) > 0)
            continue;
    }
    close(fd);
    return NULL;
}

/* One connection is served, with this. */
static void open_site(struct world *w, const char *head, const char *body)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    w->answer_n = (size_t)snprintf(w->answer, sizeof w->answer, "%s%s", head, body);
    w->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(w->listener, 5), 0);
    getsockname(w->listener, (struct sockaddr *)&a, &n);
    snprintf(w->url, sizeof w->url, "http://127.0.0.1:%d/tool", ntohs(a.sin_port));
    w->config.command.n = 0;
    w->config.url = w->url;
    pthread_create(&w->thread, NULL, serve, w);
    open_tools(w);
}

static void close_site(struct world *w)
{
    close_tools(w);
    pthread_join(w->thread, NULL);
    close(w->listener);
}

static void put_length(char *out, size_t size, const char *status, const char *body)
{
    snprintf(out, size, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", status, strlen(body));
}

static void test_url(void **state)
{
    struct world *w = *state;
    open_site(w, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "[1,\n2,3]\n");
    ask(w, "{\"a\":1}", NULL);
    assert_result(w, "[1,2,3]");
    assert_memory_equal(w->asked, "POST /tool HTTP/1.1\r\n", 21);
    assert_non_null(strstr(w->asked, "\r\nContent-Type: application/json\r\n"));
    assert_string_equal(strstr(w->asked, "\r\n\r\n"), "\r\n\r\n{\"a\":1}");
    close_site(w);
}

static void test_url_with_lines(void **state)
{
    struct world *w = *state;
    open_site(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
              "3\r\n1\n2\r\n4\r\n\n3\n4\r\n0\r\n\r\n");
    ask(w, "", NULL);
    assert_result(w, "[1,2,3,4]");
    close_site(w);
}

static void test_url_with_many_rows(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    char head[128];
    for (int i = 1; i <= 60000; i++)
        buf_printf(&body, "%d\n", i);
    buf_putc(&body, '\0');
    put_length(head, sizeof head, "200 OK", body.p);
    open_site(w, head, body.p);
    ask(w, "", NULL);
    assert_int_equal(follow(w), 60000);
    assert_int_equal(w->call.outcome, TOOL_SUCCESS);
    buf_deinit(&body);
    close_site(w);
}

static void assert_url_fails(struct world *w, const char *head, const char *message, bool retryable)
{
    open_site(w, head, "");
    ask(w, "", NULL);
    assert_failed(w, message, retryable);
    close_site(w);
}

static void test_url_is_busy(void **state)
{
    assert_url_fails(*state, "HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\noops",
                     "the upstream answered with status 503", true);
}

static void test_url_is_missing(void **state)
{
    assert_url_fails(*state, "HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\n[1]",
                     "the upstream answered with status 404", false);
}

static void test_url_redirects(void **state)
{
    assert_url_fails(*state, "HTTP/1.1 302 No\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
                     "the upstream answered with status 302", false);
}

static void test_url_breaks_off(void **state)
{
    assert_url_fails(*state, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1\n2\n",
                     "the upstream broke off in the middle of its answer", true);
}

static void test_url_does_not_say_where_it_ends(void **state)
{
    assert_url_fails(
        *state, "HTTP/1.1 200 OK\r\n\r\n1\n2\n",
        "the upstream's answer may have been cut off: it has neither a length nor chunks", false);
}

static void test_url_gives_no_json(void **state)
{
    assert_url_fails(*state, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
                     "row 1 of the result is not valid JSON", false);
}

static void test_url_hangs(void **state)
{
    struct world *w = *state;
    w->config.timeout_ms = 200;
    assert_url_fails(w, "", "the tool took longer than 200 ms", true);
}

static void test_url_gives_too_much(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    char head[128];
    w->config.max_output = 64 * KIB;
    for (int i = 1; i <= 30000; i++)
        buf_printf(&body, "%d\n", i);
    buf_putc(&body, '\0');
    put_length(head, sizeof head, "200 OK", body.p);
    open_site(w, head, body.p);
    ask(w, "", NULL);
    assert_true(follow(w) > 5000);
    assert_failed(w, "the result has more than 65536 bytes", false);
    buf_deinit(&body);
    close_site(w);
}

static void test_url_is_forbidden(void **state)
{
    struct world *w = *state;
    w->policy = (struct addr_policy){0};
    w->config.command.n = 0;
    w->config.url = (char *)(uintptr_t) "http://127.0.0.1:9/";
    open_tools(w);
    ask(w, "", NULL);
    assert_failed(w, "the upstream's address is not allowed", false);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_arguments_on_stdin),
        TEST(test_a_hundred_thousand_rows),
        TEST(test_no_output_is_no_rows),
        TEST(test_slow_program),
        TEST(test_endless_output),
        TEST(test_endless_row),
        TEST(test_hangs_without_output),
        TEST(test_hangs_behind_the_first_page),
        TEST(test_invalid_json),
        TEST(test_fails_after_output),
        TEST(test_fails_behind_the_first_page),
        TEST(test_killed),
        TEST(test_fork_bomb),
        TEST(test_daemon_holds_output),
        TEST(test_takes_two_gigabytes),
        TEST(test_output_after_closing),
        TEST(test_cannot_be_started),
        TEST(test_cancel_and_stop),
        TEST(test_url),
        TEST(test_url_with_lines),
        TEST(test_url_with_many_rows),
        TEST(test_url_is_busy),
        TEST(test_url_is_missing),
        TEST(test_url_redirects),
        TEST(test_url_breaks_off),
        TEST(test_url_does_not_say_where_it_ends),
        TEST(test_url_gives_no_json),
        TEST(test_url_hangs),
        TEST(test_url_gives_too_much),
        TEST(test_url_is_forbidden),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
