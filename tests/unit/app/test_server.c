// SPDX-License-Identifier: Apache-2.0
/* The life of a server. One that cannot start says why, and takes back what it had opened so far:
 * here each feature in turn cannot be opened, and the sanitizers look for what stays behind. */
#include "app/server.h"
#include "app/config.h"
#include "base/err.h"
#include "base/secret.h"
#include "base/units.h"
#include "telemetry/trace.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

/* ---- threads that cannot be had ---- */

static int threads_left; /* < 0: as many as somebody wants */

/* In front of libuv's. */
int uv_thread_create(uv_thread_t *id, uv_thread_cb entry, void *arg)
{
    int (*real)(uv_thread_t *, uv_thread_cb, void *);
    *(void **)&real = dlsym(RTLD_NEXT, "uv_thread_create");
    if (threads_left == 0)
        return UV_EAGAIN;
    if (threads_left > 0)
        threads_left--;
    return real(id, entry, arg);
}

/* ---- traces ---- */

struct said {
    char text[4096];
    size_t n;
    const char *signals_at; /* SIGTERM comes with the line that this is in; NULL: never */
};

static ssize_t hear(void *ctx, const char *text, size_t n)
{
    struct said *s = ctx;
    size_t room = sizeof s->text - 1 - s->n, take = n < room ? n : room;
    memcpy(s->text + s->n, text, take);
    s->n += take;
    if (s->signals_at != NULL && strstr(s->text, s->signals_at) != NULL) {
        s->signals_at = NULL;
        raise(SIGTERM);
    }
    return (ssize_t)n;
}

/* ---- a server with all features ---- */

struct fixture {
    char folder[32];
    struct said said;
    struct trace trace;
    struct config config;
    struct server server;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->folder, "/tmp/test_server.XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->trace =
        (struct trace){.to = fopencookie(&f->said, "w", (cookie_io_functions_t){.write = hear}),
                       .level = TRACE_INFO};
    threads_left = -1;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[64];
    secret_unshield(); /* or no leak would be found */
    snprintf(command, sizeof command, "rm -r %s", f->folder);
    assert_int_equal(system(command), 0);
    fclose(f->trace.to);
    free(f);
    return 0;
}

static const char everything[] = "[route /chat]\n"
                                 "upstream = http://127.0.0.1:1/\n"
                                 "[log things]\n"
                                 "path = things.jsonl\n"
                                 "[lab]\n"
                                 "root = lab\n"
                                 "feedback = feedback.jsonl\n"
                                 "%s\n" /* of the Lab */
                                 "[poll news]\n"
                                 "url = http://127.0.0.1:1/\n"
                                 "[tool t]\n"
                                 "url = http://127.0.0.1:1/\n"
                                 "[cascade]\n"
                                 "target = http://127.0.0.1:1\n"
                                 "csrf-token = some-token\n";

struct failure {
    const char *above; /* settings above the first section */
    const char *lab;   /* settings of the Lab */
    int threads;       /* that can be had; < 0: all */
    int err;
    const char *said;
};

static const struct failure failures[] = {
    {"telemetry-prefix = 9", "", -1, ERR_SYNTAX, "cannot set up the gateway: "},
    {"", "", 0, ERR_IO, "cannot set up logs: no thread for their files"},
    {"", "review = nothing", -1, ERR_SYNTAX, "cannot set up the Lab: "},
    {"", "", 1, ERR_IO, "cannot set up the Lab: no thread could be had"},
    {"tools-socket = no/folder/s", "", -1, ERR_IO, "cannot set up the tools: cannot listen on "},
    {"", "", 2, ERR_IO, "cannot set up the tools: no thread for their files"},
    {"", "", 3, ERR_IO, "cannot set up the Cascade bridge: no thread to look around with"},
    {"route = /mcp=http://127.0.0.1:1/", "", -1, ERR_EXISTS,
     "the path /mcp is claimed twice: by the gateway and by the tools"},
    {"listen = unix:no/folder/s", "", -1, ERR_IO, "no/folder/s"},
};

static void load(struct fixture *f, const char *above, const char *lab)
{
    char path[48], store[] = "--store", memory[] = "memory", flag[] = "--config", why[512];
    char *argv[] = {flag, path, store, memory, NULL};
    snprintf(path, sizeof path, "%s/conf", f->folder);
    FILE *to = fopen(path, "w");
    fprintf(to, "listen = unix:s\n%s\n", above);
    fprintf(to, everything, lab);
    fclose(to);
    assert_int_equal(chdir(f->folder), 0);
    if (config_load(&f->config, 4, argv, &f->trace, why, sizeof why) != 0)
        fail_msg("%s", why);
}

static void start_in_vain(struct fixture *f, const struct failure *failure, bool signals)
{
    load(f, failure->above, failure->lab);
    f->said = (struct said){.signals_at = signals ? failure->said : NULL};
    threads_left = failure->threads;
    assert_int_equal(server_init(&f->server, &f->config, &f->trace), failure->err);
    threads_left = -1;
    if (strstr(f->said.text, failure->said) == NULL)
        fail_msg("it did not say %s, but: %s", failure->said, f->said.text);
    config_deinit(&f->config);
}

static void what_cannot_be_opened_ends_the_start(void **state)
{
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        start_in_vain(*state, &failures[i], false);
}

/* Whoever started it may end it while it takes back what was opened. */
static void a_signal_then_changes_nothing(void **state)
{
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        start_in_vain(*state, &failures[i], true);
}

/* ---- one that runs ---- */

static int connect_to(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void turn(struct server *s, int times)
{
    while (times-- > 0)
        uv_run(&s->loop.uv, UV_RUN_NOWAIT);
}

/* All timers come that somebody has left armed, maybe in memory that is freed. */
static void end(struct fixture *f)
{
    struct sched *sched = &f->server.loop.sched;
    server_run(&f->server);
    assert_int_equal(f->server.life, SERVER_STOPPING);
    sched_turn(sched, sched->now_ms + 2 * HOUR_MS, sched->wall_ms + 2 * HOUR_MS);
    assert_int_equal(server_deinit(&f->server), 0);
    config_deinit(&f->config);
}

/* The task of a Lab may be done while the server drains: that is no second SIGTERM. */
static void work_that_is_done_cuts_nothing_off(void **state)
{
    struct fixture *f = *state;
    struct server *s = &f->server;
    load(f, "", "");
    assert_int_equal(server_init(s, &f->config, &f->trace), 0);
    s->host.finished(s->host.ctx, STR("done"));
    assert_int_equal(s->life, SERVER_DRAINING);
    s->host.finished(s->host.ctx, STR("done once more"));
    assert_int_equal(s->life, SERVER_DRAINING);
    server_drain(s, STR("asked again"));
    assert_int_equal(s->life, SERVER_LAST_WORDS);
    end(f);
}

static void call_a_tool(int fd)
{
    static const char call[] = "\0\0\0\x3e{\"type\":\"run_tool\",\"tool_id\":\"wait\",\"args\":{},"
                               "\"dry_run\":false}";
    assert_int_equal(write(fd, call, sizeof call - 1), sizeof call - 1);
}

static bool is_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* It has as long as a request over HTTP: until connections are closed. */
static void a_call_over_the_socket_outlives_the_limit(void **state)
{
    struct fixture *f = *state;
    struct server *s = &f->server;
    load(f, "tools-socket = tools",
         "[tool wait]\ncommand = sh -c 'touch started; exec sleep 600'\n"
         "timeout = 1h");
    assert_int_equal(server_init(s, &f->config, &f->trace), 0);
    int fd = connect_to("tools");
    call_a_tool(fd);
    while (access("started", F_OK) != 0)
        turn(s, 1);
    server_drain(s, STR("asked"));
    server_drain(s, STR("asked again"));
    timer_stop(&s->drain_limit); /* however slow this machine is */
    assert_int_equal(s->life, SERVER_LAST_WORDS);
    turn(s, 10);
    assert_false(is_closed(fd));
    server_drain(s, STR("asked once more"));
    while (!is_closed(fd))
        turn(s, 1);
    end(f);
    close(fd);
}

static void ask(struct fixture *f, int fd, const char *request, char *answer, size_t size)
{
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    while (!is_closed(fd)) /* or answered */
        turn(&f->server, 1);
    ssize_t n = read(fd, answer, size - 1);
    assert_true(n > 0);
    answer[n] = '\0';
}

/* A review of the run that the Lab is about: the last thing that its server waits for. */
static void submit(struct fixture *f, int fd)
{
    char answer[8192], body[256], request[768];
    ask(f, fd, "GET /api/config HTTP/1.1\r\nHost: localhost\r\n\r\n", answer, sizeof answer);
    const char *token = strstr(answer, "tok_"), *run = strstr(answer, "run_");
    if (token == NULL || run == NULL)
        fail_msg("%s", answer);
    snprintf(body, sizeof body, "{\"runId\":\"%.*s\",\"ratings\":{\"overall\":70}}",
             (int)strcspn(run, "\""), run);
    snprintf(request, sizeof request,
             "POST /api/feedback HTTP/1.1\r\nHost: localhost\r\nX-CM-LAB-TOKEN: %.*s\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             (int)strcspn(token, "\""), token, strlen(body), body);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
}

static void a_submission_may_end_when_the_lab_is_being_stopped(void **state)
{
    struct fixture *f = *state;
    struct server *s = &f->server;
    assert_int_equal(chdir(f->folder), 0);
    assert_int_equal(mkdir("shown", 0700), 0);
    fclose(fopen("shown/video.mp4", "w"));
    load(f, "", "review = shown");
    assert_int_equal(server_init(s, &f->config, &f->trace), 0);
    int fd = connect_to("s"), lock = open("lab/lock", O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    submit(f, fd);
    turn(s, 100);
    for (int i = 0; i < 3; i++)
        server_drain(s, STR("asked"));
    while (strcmp(s->features[s->n_features - 1].feature->name, "lab") != 0)
        turn(s, 1);
    close(lock);
    end(f);
    assert_int_equal(access("feedback.jsonl", F_OK), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_cannot_be_opened_ends_the_start, setup, teardown),
        cmocka_unit_test_setup_teardown(a_signal_then_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(work_that_is_done_cuts_nothing_off, setup, teardown),
        cmocka_unit_test_setup_teardown(a_call_over_the_socket_outlives_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_submission_may_end_when_the_lab_is_being_stopped, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
