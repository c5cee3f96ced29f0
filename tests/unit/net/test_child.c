// SPDX-License-Identifier: Apache-2.0
/* test_child.c -- programs that mean no good. Each writes the numbers of its processes into a file;
 * afterwards none of them may be there. */
#include "net/child.h"
#include "base/buf.h"
#include "base/units.h"
#include "net/loop.h"
#include "net/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

/* libuv tries a descriptor out with no data behind it before it watches it. */
static int watches_to_take = -1; /* -1: all */

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *e)
{
    if (op == EPOLL_CTL_ADD && e->data.fd == -1 && watches_to_take >= 0 && watches_to_take-- == 0) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, epoll, op, fd, e);
}

#define PATIENCE_MS (60 * 1000)
#define PIDS_MAX    256

struct world {
    struct loop loop;
    struct children *all;
    char pids[64];
    uv_timer_t patience;
    bool impatient;
};

/* One program and what came of it. */
struct program {
    struct world *w;
    struct child *child;
    struct buf out, errors;
    struct child_end end;
    uint64_t max_processes, max_cpu_ms;
    size_t enough; /* bytes behind which it is cancelled; 0: never */
    bool pauses;   /* behind each piece */
    bool paused, cancelled, done;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_int_equal(loop_init(&w->loop), 0);
    w->all = children_new(&w->loop);
    snprintf(w->pids, sizeof w->pids, "/tmp/test_child.XXXXXX");
    close(mkstemp(w->pids));
    uv_timer_init(&w->loop.uv, &w->patience);
    w->patience.data = w;
    *state = w;
    return 0;
}

/* Whoever still runs keeps the loop alive: that it ends is half of each test. */
static int teardown(void **state)
{
    struct world *w = *state;
    children_free(w->all);
    uv_close((uv_handle_t *)&w->patience, NULL);
    loop_run(&w->loop);
    loop_deinit(&w->loop);
    unlink(w->pids);
    free(w);
    return 0;
}

static bool on_output(void *ctx, struct str bytes)
{
    struct program *p = ctx;
    assert_false(p->paused || p->cancelled || p->done);
    buf_put(&p->out, bytes);
    if (p->enough > 0 && p->out.n >= p->enough) {
        p->cancelled = true;
        child_cancel(p->child);
        return false;
    }
    p->paused = p->pauses;
    return !p->paused;
}

static void on_done(void *ctx, const struct child_end *end)
{
    struct program *p = ctx;
    assert_false(p->cancelled || p->done);
    p->done = true;
    p->end = *end;
    buf_put(&p->errors, end->errors);
    p->end.errors = buf_str(&p->errors);
}

static void give_up(uv_timer_t *t)
{
    ((struct world *)t->data)->impatient = true;
}

static void be_patient(struct world *w)
{
    w->impatient = false;
    uv_timer_start(&w->patience, give_up, PATIENCE_MS, 0);
}

static void until(struct world *w, const bool *flag)
{
    be_patient(w);
    while (!*flag && !w->impatient)
        uv_run(&w->loop.uv, UV_RUN_ONCE);
    assert_true(*flag);
    uv_timer_stop(&w->patience);
}

static void start_argv(struct world *w, struct program *p, const char *const *argv,
                       uint64_t max_memory)
{
    char why[256] = "";
    p->w = w;
    p->child = child_start(w->all,
                           &(struct child_setup){.argv = argv,
                                                 .input = STR("{\"a\":1}"),
                                                 .max_memory = max_memory,
                                                 .max_processes = p->max_processes,
                                                 .max_cpu_ms = p->max_cpu_ms,
                                                 .output = on_output,
                                                 .done = on_done,
                                                 .ctx = p},
                           why, sizeof why);
    assert_string_equal(why, "");
    assert_non_null(p->child);
}

static void start_within(struct world *w, struct program *p, const char *script,
                         uint64_t max_memory)
{
    const char *argv[] = {"sh", "-c", script, "sh", w->pids, NULL};
    start_argv(w, p, argv, max_memory);
}

static void start(struct world *w, struct program *p, const char *script)
{
    start_within(w, p, script, GIB);
}

static void run(struct world *w, struct program *p, const char *script)
{
    start(w, p, script);
    until(w, &p->done);
}

static void deinit(struct program *p)
{
    buf_deinit(&p->out);
    buf_deinit(&p->errors);
}

static size_t read_pids(struct world *w, pid_t out[PIDS_MAX])
{
    FILE *f = fopen(w->pids, "r");
    size_t n = 0;
    for (int pid; n < PIDS_MAX && fscanf(f, "%d", &pid) == 1; n++)
        out[n] = pid;
    fclose(f);
    return n;
}

static void wait_for_pids(struct world *w, size_t n)
{
    pid_t pids[PIDS_MAX];
    be_patient(w);
    while (read_pids(w, pids) < n && !w->impatient) {
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
        usleep(2000);
    }
    uv_timer_stop(&w->patience);
    assert_int_equal(read_pids(w, pids), n);
}

/* As a process that does something; a zombie does not. */
static bool is_running(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    assert_true(fscanf(f, "%*d (%*[^)]) %c", &state) >= 0);
    fclose(f);
    return state != 'Z';
}

/* Not even as zombies. */
static void assert_none_left(struct world *w, size_t n)
{
    pid_t pids[PIDS_MAX];
    assert_int_equal(read_pids(w, pids), n);
    for (size_t i = 0; i < n; i++) {
        errno = 0;
        assert_int_equal(kill(pids[i], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
}

/* All there is to do for a program that was cancelled. */
static void until_gone(struct world *w)
{
    children_free(w->all);
    w->all = NULL;
    be_patient(w);
    uv_unref((uv_handle_t *)&w->patience);
    loop_run(&w->loop);
    assert_false(w->impatient);
}

static void assert_out(const struct program *p, const char *text)
{
    assert_int_equal(p->out.n, strlen(text));
    assert_memory_equal(p->out.p, text, p->out.n);
}

static bool contains(const struct buf *b, const char *text)
{
    return memmem(b->p, b->n, text, strlen(text)) != NULL;
}

/* ---- what a program gets ---- */

static void test_input_and_output(void **state)
{
    struct program p = {0};
    run(*state, &p, "cat; echo; cat; echo oh >&2; exit 3");
    assert_out(&p, "{\"a\":1}\n");
    assert_int_equal(p.end.status, 3);
    assert_int_equal(p.end.signal, 0);
    assert_true(str_eq(p.end.errors, STR("oh\n")));
    deinit(&p);
}

static void test_input_cannot_be_changed(void **state)
{
    struct program p = {0};
    run(*state, &p, "echo x 1<>/proc/self/fd/0 || echo refused; cat");
    assert_out(&p, "refused\n{\"a\":1}");
    deinit(&p);
}

static void test_no_secrets(void **state)
{
    struct program p = {0};
    setenv("TEST_CHILD_SECRET", "hidden", 1);
    run(*state, &p, "env");
    unsetenv("TEST_CHILD_SECRET");
    assert_false(contains(&p.out, "hidden"));
    assert_true(contains(&p.out, "PATH="));
    deinit(&p);
}

static void test_no_descriptors(void **state)
{
    struct program p = {0};
    int ours = dup(0); /* not closed on exec */
    run(*state, &p, "echo /proc/$$/fd/*");
    close(ours);
    buf_putc(&p.out, '\0');
    assert_null(strstr(p.out.p, "/fd/4"));
    assert_non_null(strstr(p.out.p, "/fd/0 "));
    char path[32];
    snprintf(path, sizeof path, "/fd/%d", ours);
    assert_null(strstr(p.out.p, path));
    deinit(&p);
}

/* Not those that we have raised for ourselves: what uses select() would break. */
static void test_limit_of_descriptors_is_as_it_was(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    struct rlimit was, raised;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(was.rlim_max > 300);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){300, was.rlim_max}), 0);
    assert_int_equal(loop_raise_files(&w->loop), was.rlim_max);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &raised), 0);
    assert_int_equal(raised.rlim_cur, was.rlim_max);
    run(w, &p, "ulimit -Sn; [ $(ulimit -Hn) -gt 300 ] && echo more");
    assert_out(&p, "300\nmore\n");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    deinit(&p);
}

static void test_no_privileges_and_no_core(void **state)
{
    struct program p = {0};
    run(*state, &p, "grep NoNewPrivs /proc/self/status; ulimit -c; kill -SEGV $$");
    assert_out(&p, "NoNewPrivs:\t1\n0\n");
    assert_int_equal(p.end.status, -1);
    assert_int_equal(p.end.signal, SIGSEGV);
    deinit(&p);
}

/* Also those that leave the session, hide whose they are, or are orphans. */
static void test_too_many_processes(void **state)
{
    struct world *w = *state;
    pid_t pids[PIDS_MAX];
    static const char *const scripts[] = {
        "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & echo $! >> $1; done; wait",
        "for i in 1 2 3 4 5 6 7 8 9; do setsid sleep 1000 & echo $! >> $1; done; wait",
        "for i in 1 2 3 4 5 6 7 8 9; do"
        " (setsid env -i sh -c 'echo $$ >> $0; exec sleep 1000' $1 &) done; sleep 1000",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct program p = {.max_processes = 8};
        run(w, &p, scripts[i]);
        assert_non_null(p.end.bound);
        assert_non_null(strstr(p.end.bound, "max-processes"));
        assert_int_equal(p.end.signal, SIGKILL);
        assert_none_left(w, read_pids(w, pids));
        assert_int_equal(truncate(w->pids, 0), 0);
        deinit(&p);
    }
}

static void test_too_much_cpu(void **state)
{
    struct program alone = {.max_cpu_ms = 1000}, together = {.max_cpu_ms = 1000};
    run(*state, &alone, "while :; do :; done");
    assert_int_equal(alone.end.signal, SIGKILL);
    assert_non_null(alone.end.bound);
    run(*state, &together, "for i in 1 2 3 4 5 6; do (while :; do :; done) & done; wait");
    assert_non_null(together.end.bound);
    assert_non_null(strstr(together.end.bound, "max-cpu"));
    deinit(&alone);
    deinit(&together);
}

static void test_within_its_bounds(void **state)
{
    struct program p = {.max_processes = 8, .max_cpu_ms = 10000};
    run(*state, &p, "sleep 0.4 & sleep 0.4 & sleep 0.6; echo done");
    assert_null(p.end.bound);
    assert_int_equal(p.end.status, 0);
    assert_true(contains(&p.out, "done\n"));
    deinit(&p);
}

static void test_cannot_be_started(void **state)
{
    struct world *w = *state;
    char why[256] = "";
    const char *argv[] = {"no-such-program-here", NULL};
    struct child_setup s = {.argv = argv, .max_memory = GIB, .output = on_output, .done = on_done};
    assert_null(child_start(w->all, &s, why, sizeof why));
    assert_string_equal(why, "no-such-program-here cannot be started: No such file or directory");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie either */
}

static void test_cannot_be_watched(void **state)
{
    struct world *w = *state;
    const char *argv[] = {"sleep", "1000", NULL};
    struct child_setup s = {.argv = argv, .max_memory = GIB, .output = on_output, .done = on_done};
    for (int i = 0; i < 3; i++) {
        char why[256] = "";
        watches_to_take = i;
        struct child *c = child_start(w->all, &s, why, sizeof why);
        watches_to_take = -1;
        assert_null(c);
        assert_string_equal(why, "sleep cannot be started: No space left on device");
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* it is gone */
    }
    uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    assert_true(uv_loop_alive(&w->loop.uv) == 0);
}

static void test_errors_are_the_last(void **state)
{
    struct program p = {0};
    run(*state, &p, "i=0; while [ $i -lt 500 ]; do echo line-$i >&2; i=$((i+1)); done");
    assert_int_equal(p.end.errors.n, CHILD_ERRORS_MAX);
    assert_true(contains(&p.errors, "line-499\n"));
    assert_false(contains(&p.errors, "line-1\n"));
    deinit(&p);
}

static void test_pause(void **state)
{
    struct world *w = *state;
    struct program p = {.pauses = true};
    int pauses = 0;
    start(w, &p, "head -c 300000 /dev/zero");
    be_patient(w);
    while (!p.done && !w->impatient) {
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
        usleep(500);
        if (!p.paused)
            continue;
        for (int i = 0; i < 20; i++) /* on_output fails if any comes */
            uv_run(&w->loop.uv, UV_RUN_NOWAIT);
        pauses++;
        p.paused = false;
        child_resume(p.child);
    }
    assert_true(p.done && pauses > 1);
    assert_int_equal(p.out.n, 300000);
    deinit(&p);
}

/* It has ended, and what it said is not wanted any more while it is being read. */
static void test_cancel_of_the_rest(void **state)
{
    struct world *w = *state;
    struct program p = {.pauses = true};
    char go[80];
    pid_t pids[PIDS_MAX];
    snprintf(go, sizeof go, "%s.go", w->pids);
    start(w, &p,
          "echo; while ! [ -e $1.go ]; do :; done; echo $$ >>$1; exec head -c 60000 /dev/zero");
    until(w, &p.paused);
    close(creat(go, 0600));
    wait_for_pids(w, 1);
    unlink(go);
    read_pids(w, pids);
    be_patient(w);
    while (kill(pids[0], 0) == 0 && !w->impatient) /* until it was looked for everywhere */
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    assert_false(w->impatient);
    p.paused = false;
    p.enough = 1;
    child_resume(p.child);
    until(w, &p.cancelled);
    until_gone(w);
    assert_none_left(w, 1);
    deinit(&p);
}

/* ---- what it does to us ---- */

static void test_endless_output(void **state)
{
    struct world *w = *state;
    struct program p = {.enough = MIB};
    start(w, &p, "echo $$ >>$1; yes '{\"row\":1}' & echo $! >>$1; wait");
    until(w, &p.cancelled);
    until_gone(w);
    assert_none_left(w, 2);
    assert_true(p.out.n < MIB + LOOP_SCRATCH);
    deinit(&p);
}

static void test_endless_errors(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    start(w, &p, "echo $$ >>$1; exec yes >&2");
    wait_for_pids(w, 1);
    for (int i = 0; i < 100; i++)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    child_cancel(p.child);
    until_gone(w);
    assert_none_left(w, 1);
    deinit(&p);
}

static void test_ignores_sigterm(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    start(w, &p, "trap '' TERM HUP INT; echo $$ >>$1; while :; do sleep 1000; done");
    wait_for_pids(w, 1);
    child_cancel(p.child);
    until_gone(w);
    assert_none_left(w, 1);
    deinit(&p);
}

/* Jobs of an interactive shell have groups of their own. */
static void test_forks_into_groups(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    start(w, &p,
          "set -m; echo $$ >>$1; i=0; "
          "while [ $i -lt 60 ]; do sleep 1000 & echo $! >>$1; i=$((i+1)); done; wait");
    wait_for_pids(w, 61);
    child_cancel(p.child);
    until_gone(w);
    assert_none_left(w, 61);
    deinit(&p);
}

/* Each starts two, five times over: sixty-three in all, each in a session of its own. */
static void test_fork_bomb_of_sessions(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    char script[512];
    snprintf(script, sizeof script,
             "cat >%s.sh <<'end'\n"
             "echo $$ >>$1\n"
             "[ $2 -gt 0 ] && { setsid sh $1.sh $1 $(($2-1)) & setsid sh $1.sh $1 $(($2-1)) & }\n"
             "exec sleep 1000\n"
             "end\n"
             "exec sh %s.sh $1 5",
             w->pids, w->pids);
    start(w, &p, script);
    wait_for_pids(w, 63);
    child_cancel(p.child);
    until_gone(w);
    assert_none_left(w, 63);
    snprintf(script, sizeof script, "%s.sh", w->pids);
    unlink(script);
    deinit(&p);
}

/* It has ended well, and its output is not waited for any longer. */
static void test_daemon_holds_output(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    run(w, &p,
        "echo [1]; (setsid sh -c 'echo $$ >>$0; exec sleep 1000' $1 &); "
        "while ! [ -s $1 ]; do :; done");
    assert_out(&p, "[1]\n");
    assert_int_equal(p.end.status, 0);
    assert_none_left(w, 1);
    deinit(&p);
}

static void test_daemon_hides(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    run(w, &p,
        "echo [1]; (env -i setsid sh -c '(env -i setsid sh -c \"echo \\$\\$ >>$0; "
        "exec sleep 1000\" &)' $1 &); while ! [ -s $1 ]; do :; done");
    assert_int_equal(p.end.status, 0);
    assert_none_left(w, 1);
    deinit(&p);
}

static bool has_session(pid_t session)
{
    DIR *proc = opendir("/proc");
    bool has = false;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        struct process p;
        has = has || (process_read(atoi(e->d_name), &p) && p.session == session);
    }
    closedir(proc);
    return has;
}

/* It is another process all the time. */
static void test_daemon_hops(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    pid_t pids[PIDS_MAX];
    run(w, &p,
        "echo [1]; (setsid sh -c 'echo $$ >>$0; hop() { hop & exit; }; hop' $1 &); "
        "while ! [ -s $1 ]; do :; done");
    assert_int_equal(p.end.status, 0);
    assert_int_equal(read_pids(w, pids), 1);
    for (int i = 0; i < 20; i++)
        assert_false(has_session(pids[0]));
    deinit(&p);
}

static void test_daemon_forges_a_mark(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    run(w, &p,
        "echo [1]; (env TIDEMARK_CHILD=0123456789abcdef setsid sh -c 'echo $$ >>$0; "
        "exec sleep 1000' $1 &); while ! [ -s $1 ]; do :; done");
    assert_int_equal(p.end.status, 0);
    assert_none_left(w, 1);
    deinit(&p);
}

/* ---- this program as the one that is started: what a shell cannot do ---- */

static void *rest_for_long(void *arg)
{
    sleep(1000);
    return NULL;
}

static void tell_pid(const char *path)
{
    FILE *f = fopen(path, "a");
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
}

/* A daemon whose first thread is over looks like a zombie. */
static int play_headless(const char *path)
{
    pthread_t other;
    if (fork() > 0) {
        struct stat st = {0};
        while (stat(path, &st) == 0 && st.st_size == 0)
            usleep(1000);
        return 0;
    }
    setsid();
    pthread_create(&other, NULL, rest_for_long, NULL);
    tell_pid(path);
    syscall(SYS_exit, 0);
    return 1;
}

/* One that is never there any more when it is looked at: it goes on in a child. */
static int play_runner(const char *path)
{
    if (fork() > 0)
        return 0;
    setsid();
    for (int64_t i = 0; i < 100000; i++) {
        if (fork() > 0)
            _exit(0);
        if (i % 100 == 0)
            setsid();
    }
    tell_pid(path); /* nobody has caught it */
    sleep(1000);
    return 1;
}

static int play(const char *part, const char *path)
{
    return strcmp(part, "headless") == 0 ? play_headless(path) : play_runner(path);
}

static void run_part(struct world *w, struct program *p, const char *part)
{
    const char *argv[] = {"/proc/self/exe", part, w->pids, NULL};
    start_argv(w, p, argv, UINT64_MAX);
    until(w, &p->done);
    assert_int_equal(p->end.status, 0);
}

static void test_headless_daemon(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    run_part(w, &p, "headless");
    assert_none_left(w, 1);
    deinit(&p);
}

static void test_daemon_runs_ahead(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    run_part(w, &p, "runner");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    deinit(&p);
}

/* Whoever started us may have ignored what children say; theirs is not ours. */
static void test_ignored_children(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    children_free(w->all);
    signal(SIGCHLD, SIG_IGN);
    w->all = children_new(&w->loop);
    run(w, &p, "echo $$ >>$1; exit 3");
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(p.end.status, 3);
    assert_none_left(w, 1);
    deinit(&p);
}

/* One child's end is not the end of what another has set adrift and is still there for. */
static void test_others_daemons_stay(void **state)
{
    struct world *w = *state;
    struct program one = {0}, two = {0};
    pid_t pids[PIDS_MAX];
    start(w, &one,
          "echo $$ >>$1; (setsid sh -c 'echo $$ >>$0; exec sleep 1000' $1 &); exec env -i "
          "sleep 1000");
    wait_for_pids(w, 2);
    run(w, &two, "echo [2]");
    read_pids(w, pids);
    assert_true(is_running(pids[0]));
    assert_true(is_running(pids[1]));
    child_cancel(one.child);
    until_gone(w);
    assert_none_left(w, 2);
    deinit(&one);
    deinit(&two);
}

/* One that came to us otherwise, as the daemons of a container come to its first process, is not
 * ours to end or to count, though it cannot gain privileges either: all of the container cannot. */
static void test_strangers_stay(void **state)
{
    struct world *w = *state;
    struct program p = {.max_processes = 1, .max_cpu_ms = 60000};
    pid_t stranger = fork();
    if (stranger == 0) {
        setsid();
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        tell_pid(w->pids);
        sleep(1000);
        _exit(0);
    }
    wait_for_pids(w, 1);
    run(w, &p, "exec sleep 0.6"); /* a census or two */
    assert_int_equal(p.end.status, 0);
    assert_true(is_running(stranger));
    kill(stranger, SIGKILL);
    assert_int_equal(waitpid(stranger, NULL, 0), stranger);
    deinit(&p);
}

static void test_memory(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    start_within(w, &p, "echo $$ >>$1; head -c 2147483648 /dev/zero | tail", 256 * MIB);
    until(w, &p.done);
    assert_int_not_equal(p.end.status, 0);
    assert_true(contains(&p.errors, "memory exhausted"));
    assert_none_left(w, 1);
    deinit(&p);
}

static void test_output_after_closing(void **state)
{
    struct world *w = *state;
    struct program p = {0};
    run(w, &p, "echo $$ >>$1; echo [1]; exec >&-; echo [2]; sleep 0.1; exit 4");
    assert_out(&p, "[1]\n");
    assert_int_equal(p.end.status, 4);
    assert_none_left(w, 1);
    deinit(&p);
}

static void test_all_are_cancelled_at_the_end(void **state)
{
    struct world *w = *state;
    struct program p[3] = {{0}};
    for (int i = 0; i < 3; i++)
        start(w, &p[i], "echo $$ >>$1; exec sleep 1000");
    wait_for_pids(w, 3);
    until_gone(w);
    assert_none_left(w, 3);
    for (int i = 0; i < 3; i++)
        deinit(&p[i]);
}

/* Whatever happens to us, it does not stay behind. */
static void test_dies_with_us(void **state)
{
    struct world *w = *state;
    pid_t us = fork();
    assert_int_not_equal(us, -1);
    if (us == 0) {
        struct world inner = {0};
        struct program p = {0};
        memcpy(inner.pids, w->pids, sizeof inner.pids);
        if (loop_init(&inner.loop) != 0)
            _exit(1);
        inner.all = children_new(&inner.loop);
        start(&inner, &p, "echo $$ >>$1; exec sleep 1000");
        for (;;)
            pause();
    }
    pid_t pids[PIDS_MAX];
    wait_for_pids(w, 1);
    read_pids(w, pids);
    assert_true(is_running(pids[0]));
    kill(us, SIGKILL);
    assert_int_equal(waitpid(us, NULL, 0), us);
    be_patient(w);
    while (is_running(pids[0]) && !w->impatient)
        uv_run(&w->loop.uv, UV_RUN_NOWAIT);
    assert_false(is_running(pids[0]));
    waitpid(pids[0], NULL, 0); /* it has come to us */
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return play(argv[1], argv[2]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_input_and_output),
        TEST(test_input_cannot_be_changed),
        TEST(test_no_secrets),
        TEST(test_no_descriptors),
        TEST(test_limit_of_descriptors_is_as_it_was),
        TEST(test_no_privileges_and_no_core),
        TEST(test_too_many_processes),
        TEST(test_too_much_cpu),
        TEST(test_within_its_bounds),
        TEST(test_cannot_be_started),
        TEST(test_cannot_be_watched),
        TEST(test_errors_are_the_last),
        TEST(test_pause),
        TEST(test_cancel_of_the_rest),
        TEST(test_endless_output),
        TEST(test_endless_errors),
        TEST(test_ignores_sigterm),
        TEST(test_forks_into_groups),
        TEST(test_fork_bomb_of_sessions),
        TEST(test_daemon_holds_output),
        TEST(test_daemon_hides),
        TEST(test_daemon_hops),
        TEST(test_daemon_forges_a_mark),
        TEST(test_headless_daemon),
        TEST(test_daemon_runs_ahead),
        TEST(test_ignored_children),
        TEST(test_others_daemons_stay),
        TEST(test_strangers_stay),
        TEST(test_memory),
        TEST(test_output_after_closing),
        TEST(test_all_are_cancelled_at_the_end),
        TEST(test_dies_with_us),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
