// SPDX-License-Identifier: Apache-2.0
#include "net/child.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/rand.h"
#include "base/units.h"
#include "net/census.h"
#include "net/loop.h"
#include "net/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MARK_NAME     "TIDEMARK_CHILD="
#define MARK_HEX      16
#define MARK_SIZE     (sizeof MARK_NAME + MARK_HEX) /* with its NUL */
#define ENV_MAX       8
#define FD_LEAST      3   /* those below are its standard ones */
#define SWEEP_ROUNDS  400 /* of looking for processes, at most */
#define SWEEP_EMPTY   2   /* rounds that find none, and all is well: one might have just forked */
#define SWEEP_REST_NS 2000000L
#define CENSUS_MS     250

struct children {
    struct loop *loop;
    uv_mutex_t lock; /* of `running`, which is looked at while processes are looked for */
    struct link running;
    struct timer census_due;
    uv_work_t census;
    struct census_group *groups; /* of the census under way */
    size_t n_groups;
    bool counting; /* one is under way */
    bool freed;
};

/* uv_poll on one of its descriptors. */
struct tap {
    uv_poll_t poll;
    int fd;
    bool open;
};

struct child {
    struct children *all;
    struct link link; /* in all->running */
    pid_t pid;        /* also of its session and its first group */
    char mark[MARK_SIZE];
    bool (*output)(void *ctx, struct str bytes);
    void (*done)(void *ctx, const struct child_end *end);
    void *ctx;
    struct tap exited, out, err;
    uv_work_t sweep;
    struct buf errors;
    siginfo_t how;
    uint64_t max_processes, max_cpu_ms;
    const char *bound; /* that it went beyond; NULL: none */
    unsigned handles;  /* that are not closed, and the sweep */
    bool paused;
    bool cancelled; /* nothing is called any more */
    bool swept;     /* nothing of it runs any more */
    bool draining;  /* what is left in its pipes is being read at this moment */
    bool over;
};

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* ---- in the new process ---- */

/* What it needs; nothing is allocated there, since its memory is ours until it has loaded the
 * program. */
struct launch {
    const char *const *argv;
    char *env[ENV_MAX];
    pid_t parent;
    int in, out, err;
    uint64_t max_memory, max_tasks;
    uint64_t files;      /* it may have open unless it asks for more; 0: as many as we */
    uint64_t max_cpu_s;  /* a little more than it may have: who counts comes first and says why */
    volatile int failed; /* errno, told in the memory that is shared */
};

static void limit(int what, uint64_t most)
{
    struct rlimit now;
    if (getrlimit(what, &now) != 0)
        return;
    rlim_t n = most < now.rlim_max ? (rlim_t)most : now.rlim_max;
    setrlimit(what, &(struct rlimit){n, n});
}

static void lower_files(uint64_t n)
{
    struct rlimit now;
    if (n > 0 && getrlimit(RLIMIT_NOFILE, &now) == 0)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)n, now.rlim_max});
}

/* What we handle or ignore is nothing to it. */
static void forget_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void close_others(void)
{
    if (syscall(SYS_close_range, FD_LEAST, UINT_MAX, 0) == 0)
        return;
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = FD_LEAST; fd < most; fd++)
        close(fd);
}

static _Noreturn void become(struct launch *l)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (getppid() != l->parent)
        _exit(127); /* died before it could be asked to take us along */
    if (dup2(l->in, 0) >= 0 && dup2(l->out, 1) >= 0 && dup2(l->err, 2) >= 0) {
        close_others();
        lower_files(l->files);
        limit(RLIMIT_CORE, 0);
        limit(RLIMIT_AS, l->max_memory);
        if (l->max_tasks > 0)
            limit(RLIMIT_NPROC, l->max_tasks);
        if (l->max_cpu_s > 0)
            limit(RLIMIT_CPU, l->max_cpu_s);
        forget_signals();
        execvpe(l->argv[0], (char *const *)l->argv, l->env);
    }
    l->failed = errno;
    _exit(127);
}

/* No handler of ours may run in a process that shares our memory. */
static pid_t launch(struct launch *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork();
    if (pid == 0)
        become(l);
    int failed = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid > 0 && l->failed != 0)
        waitpid(pid, NULL, 0);
    errno = pid > 0 ? l->failed : failed;
    return errno == 0 ? pid : -1;
}

/* ---- looking for processes ---- */

/* NULL: nobody who runs has this mark. */
static const struct child *owner_of(const struct children *all, struct str mark)
{
    list_each (l, &all->running) {
        const struct child *c = list_item(l, struct child, link);
        if (str_eq(mark, str_of_cstr(c->mark)))
            return c;
    }
    return NULL;
}

static bool is_first(const struct children *all, pid_t pid)
{
    list_each (l, &all->running)
        if (list_item(l, struct child, link)->pid == pid)
            return true;
    return false;
}

/* One that came to us as an orphan: of this child, or of one that has hidden whose it is. Others
 * who came to us, as they do to the first process of a container, are none of our business. */
static bool is_orphan_of(const struct child *c, const struct process *p, struct str mark)
{
    if (p->parent != getpid() || is_first(c->all, p->pid))
        return false;
    const struct child *owner = owner_of(c->all, mark);
    return owner != NULL ? owner == c : census_is_contained(p->pid);
}

static bool may_be_of(const struct child *c, const struct process *p)
{
    return (p->session == c->pid || p->parent == getpid()) && p->group != getpgrp();
}

/* True: it was still there, or has gone just now, maybe not without leaving others. One that has
 * ended may be a first thread only, before the others. Of an orphan all the group is ended at the
 * same moment, since one that forks and ends all the time is never found under the number that it
 * had; as long as nobody but us can reap it, the group's number is no other's. */
static bool end_held(struct child *c, const struct process *p, int fd, struct str mark)
{
    bool orphan = p->parent == getpid() && !is_first(c->all, p->pid);
    if (p->ended && orphan && waitpid(p->pid, NULL, WNOHANG) == p->pid)
        return true;
    if (p->session != c->pid && !is_orphan_of(c, p, mark))
        return false;
    if (orphan)
        kill(-p->group, SIGKILL);
    syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    return !p->ended || orphan;
}

/* What is read once the descriptor is there is of the process that it stands for, or that one is
 * gone and gets no signal: its number may be another's by now. The lock keeps one that is just
 * being started from being taken for adrift. Not so while the mark is read: that is in the memory
 * of the other, which can make us wait for it. */
static bool end_process(struct child *c, pid_t pid)
{
    struct process p;
    char mark[MARK_SIZE] = "";
    if (!process_read(pid, &p) || !may_be_of(c, &p))
        return false;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p.session != c->pid)
        process_env(pid, STR(MARK_NAME), mark, sizeof mark);
    uv_mutex_lock(&c->all->lock);
    bool found = fd >= 0 && process_read(pid, &p) && may_be_of(c, &p) &&
                 end_held(c, &p, fd, str_of_cstr(mark));
    uv_mutex_unlock(&c->all->lock);
    close_fd(fd);
    return found;
}

/* True: there were some, or it could not be seen whether there are. */
static bool sweep_round(struct child *c)
{
    bool found = false;
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return true;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        uint64_t pid;
        if (num_parse(str_of_cstr(e->d_name), INT_MAX, &pid) == 0 && end_process(c, (pid_t)pid))
            found = true;
    }
    closedir(proc);
    return found;
}

/* On a thread of libuv's. Those who are killed leave their children to us, so that each round finds
 * what the last one has uncovered. The first process is not reaped meanwhile: that keeps its
 * number, which is the session's, from being given to another. */
static void child_sweep(uv_work_t *w)
{
    struct child *c = w->data;
    for (int round = 0, empty = 0; round < SWEEP_ROUNDS && empty < SWEEP_EMPTY; round++) {
        empty = sweep_round(c) ? 0 : empty + 1;
        if (empty == 0)
            nanosleep(&(struct timespec){.tv_nsec = SWEEP_REST_NS}, NULL);
    }
}

/* ---- lifetime ---- */

static void children_unref(struct children *all)
{
    if (!all->freed || all->counting || !list_empty(&all->running))
        return;
    uv_mutex_destroy(&all->lock);
    free(all);
}

static void child_forget(struct child *c)
{
    uv_mutex_lock(&c->all->lock);
    list_remove(&c->link);
    uv_mutex_unlock(&c->all->lock);
}

static void child_unref(struct child *c)
{
    if (--c->handles > 0)
        return;
    struct children *all = c->all;
    child_forget(c);
    buf_deinit(&c->errors);
    free(c);
    children_unref(all);
}

static void child_on_closed(uv_handle_t *h)
{
    child_unref(h->data);
}

static void tap_close(struct tap *t)
{
    if (!t->open)
        return;
    t->open = false;
    uv_close((uv_handle_t *)&t->poll, child_on_closed);
    close(t->fd);
}

/* Takes the descriptor over. 0, or an error number where the system watches no more of them. */
static int tap_open(struct child *c, struct tap *t, int fd, uv_poll_cb ready)
{
    int err = uv_poll_init(&c->all->loop->uv, &t->poll, fd);
    if (err != 0) {
        close(fd);
        return -err;
    }
    t->fd = fd;
    t->open = true;
    t->poll.data = c;
    c->handles++;
    uv_poll_start(&t->poll, UV_READABLE, ready);
    return 0;
}

/* ---- output ---- */

/* Reads once. False: there is nothing to be read at present, or at all. */
static bool read_out(struct child *c)
{
    ssize_t n = read(c->out.fd, c->all->loop->scratch, LOOP_SCRATCH);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    if (n <= 0) {
        tap_close(&c->out);
        return false;
    }
    if (c->output(c->ctx, str_of(c->all->loop->scratch, (size_t)n)) || c->cancelled)
        return true;
    c->paused = true;
    if (c->out.open)
        uv_poll_stop(&c->out.poll);
    return true;
}

static void keep_errors(struct child *c, struct str bytes)
{
    buf_put(&c->errors, bytes);
    if (c->errors.n <= CHILD_ERRORS_MAX)
        return;
    memmove(c->errors.p, c->errors.p + (c->errors.n - CHILD_ERRORS_MAX), CHILD_ERRORS_MAX);
    c->errors.n = CHILD_ERRORS_MAX;
}

static bool read_err(struct child *c)
{
    ssize_t n = read(c->err.fd, c->all->loop->scratch, LOOP_SCRATCH);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    if (n > 0)
        keep_errors(c, str_of(c->all->loop->scratch, (size_t)n));
    else
        tap_close(&c->err);
    return n > 0;
}

/* ---- the end ---- */

static void child_finish(struct child *c)
{
    c->over = true;
    bool exited = c->how.si_code == CLD_EXITED;
    struct child_end end = {.status = exited ? c->how.si_status : -1,
                            .signal = exited ? 0 : c->how.si_status,
                            .errors = buf_str(&c->errors),
                            .bound = c->bound};
    tap_close(&c->out);
    tap_close(&c->err);
    if (!c->cancelled)
        c->done(c->ctx, &end);
    child_unref(c);
}

/* Nobody writes any more, or nobody whom we could end: what is in the pipes is all. */
static void drain(struct child *c)
{
    c->draining = true;
    while (c->out.open && !c->paused && !c->cancelled && read_out(c))
        continue;
    c->draining = false;
    if (c->paused && !c->cancelled)
        return;
    for (int reads = 0; c->err.open && reads < 64 && read_err(c); reads++)
        continue;
    child_finish(c);
}

static void child_on_swept(uv_work_t *w, int status)
{
    struct child *c = w->data;
    c->swept = true;
    waitpid(c->pid, NULL, 0);
    drain(c);
}

static void child_on_exited(uv_poll_t *poll, int status, int events)
{
    struct child *c = poll->data;
    if (waitid(P_PID, (id_t)c->pid, &c->how, WEXITED | WNOWAIT | WNOHANG) != 0 ||
        c->how.si_pid != c->pid)
        return;
    kill(-c->pid, SIGKILL);
    tap_close(&c->exited);
    uv_queue_work(&c->all->loop->uv, &c->sweep, child_sweep, child_on_swept);
}

static void child_on_out(uv_poll_t *poll, int status, int events)
{
    struct child *c = poll->data;
    if (c->swept)
        drain(c);
    else
        read_out(c);
}

static void child_on_err(uv_poll_t *poll, int status, int events)
{
    read_err(poll->data);
}

void child_resume(struct child *c)
{
    if (!c->paused || c->cancelled || c->over)
        return;
    c->paused = false;
    if (c->out.open)
        uv_poll_start(&c->out.poll, UV_READABLE, child_on_out);
}

void child_cancel(struct child *c)
{
    if (c->cancelled || c->over)
        return;
    c->cancelled = true;
    tap_close(&c->out);
    if (!c->swept)
        kill(-c->pid, SIGKILL);
    else if (!c->draining)
        child_finish(c);
}

/* ---- counting ---- */

static void child_count_all(uv_work_t *w)
{
    struct children *all = w->data;
    census_take(all->groups, all->n_groups);
}

static struct child *find_first(struct children *all, pid_t pid)
{
    list_each (l, &all->running)
        if (list_item(l, struct child, link)->pid == pid)
            return list_item(l, struct child, link);
    return NULL;
}

static void hold_to_bounds(struct child *c, const struct census_group *g)
{
    if (c->bound != NULL || c->over || c->cancelled || !c->exited.open)
        return;
    if (c->max_processes > 0 && g->processes > c->max_processes)
        c->bound = "it had more processes than max-processes";
    else if (c->max_cpu_ms > 0 && g->cpu_ms > c->max_cpu_ms)
        c->bound = "it used more CPU time than max-cpu";
    if (c->bound != NULL)
        kill(-c->pid, SIGKILL); /* the sweep finds the others */
}

static void child_on_counted(uv_work_t *w, int status)
{
    struct children *all = w->data;
    for (size_t i = 0; i < all->n_groups; i++) {
        struct child *c = find_first(all, all->groups[i].first);
        if (c != NULL && strcmp(c->mark, all->groups[i].mark) == 0)
            hold_to_bounds(c, &all->groups[i]);
    }
    free(all->groups);
    all->groups = NULL;
    all->counting = false;
    if (!all->freed && !list_empty(&all->running))
        sched_start(&all->loop->sched, &all->census_due, CENSUS_MS);
    children_unref(all);
}

static void child_census_begin(struct timer *t)
{
    struct children *all = container_of(t, struct children, census_due);
    size_t n = 0;
    list_each (l, &all->running)
        n++;
    if (n == 0)
        return;
    all->groups = mem_zalloc(n * sizeof *all->groups);
    all->n_groups = 0;
    list_each (l, &all->running) {
        const struct child *c = list_item(l, struct child, link);
        struct census_group *g = &all->groups[all->n_groups++];
        g->first = c->pid;
        memcpy(g->mark, c->mark, sizeof c->mark);
    }
    all->counting = true;
    all->census.data = all;
    uv_queue_work(&all->loop->uv, &all->census, child_count_all, child_on_counted);
}

/* ---- the beginning ---- */

struct children *children_new(struct loop *loop)
{
    struct children *all = mem_zalloc(sizeof *all);
    all->loop = loop;
    list_init(&all->running);
    timer_init(&all->census_due, child_census_begin);
    uv_mutex_init(&all->lock); /* cannot fail on Linux */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Whoever started us may have left it ignored: children would be gone before we have looked. */
    signal(SIGCHLD, SIG_DFL);
    return all;
}

void children_free(struct children *all)
{
    if (all == NULL)
        return;
    list_each_safe (l, &all->running)
        child_cancel(list_item(l, struct child, link));
    timer_stop(&all->census_due);
    all->freed = true; /* from now on the last one takes it along */
    children_unref(all);
}

static void make_mark(char out[MARK_SIZE])
{
    snprintf(out, MARK_SIZE, MARK_NAME "%016llx", (unsigned long long)rand_u64());
}

/* The mark first; then those of ours that it may know. The value of one stands behind its name and
 * a `=`, in our own environment. */
static void choose_env(struct launch *l, char *mark)
{
    static const char *const names[] = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"};
    _Static_assert(sizeof names / sizeof *names + 2 <= ENV_MAX, "with the mark and the end");
    size_t n = 0;
    l->env[n++] = mark;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *value = getenv(names[i]);
        if (value != NULL)
            l->env[n++] = value - strlen(names[i]) - 1;
    }
    l->env[n] = NULL;
}

/* A file that lies in memory alone, with nothing to be changed in it: the program can read it in
 * its own time, and nobody has to wait for that. */
static int input_file(struct str input)
{
    int fd = memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    while (fd >= 0 && input.n > 0) {
        ssize_t n = write(fd, input.p, input.n);
        if (n < 0) {
            close(fd);
            return -1;
        }
        input = str_skip(input, (size_t)n);
    }
    if (fd >= 0) {
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK);
        lseek(fd, 0, SEEK_SET);
    }
    return fd;
}

/* Our end does not block. */
static int make_pipe(int *theirs)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *theirs = ends[1];
    return ends[0];
}

/* Under the lock from before it is there until it is known. */
static int launch_known(struct child *c, struct launch *l)
{
    uv_mutex_lock(&c->all->lock);
    c->pid = launch(l);
    int failed = errno;
    if (c->pid > 0)
        list_push(&c->all->running, &c->link);
    uv_mutex_unlock(&c->all->lock);
    return c->pid > 0 ? 0 : failed;
}

/* Takes the descriptors over; exited: -1 if there is none, with the reason in `failed`. 0 or an
 * error number. */
static int watch(struct child *c, int exited, int failed, int out, int err)
{
    int first = tap_open(c, &c->out, out, child_on_out);
    int second = tap_open(c, &c->err, err, child_on_err);
    int third = exited >= 0 ? tap_open(c, &c->exited, exited, child_on_exited) : failed;
    return first != 0 ? first : second != 0 ? second : third;
}

/* It runs, and nobody would see how it ends. */
static void child_kill(struct child *c)
{
    kill(-c->pid, SIGKILL);
    tap_close(&c->out);
    tap_close(&c->err);
    tap_close(&c->exited);
    waitpid(c->pid, NULL, 0);
    c->over = true;
}

/* 0 or an error number; the descriptors in *l are closed. */
static int child_spawn(struct child *c, struct launch *l, struct str input)
{
    int out = make_pipe(&l->out), err = out >= 0 ? make_pipe(&l->err) : -1;
    l->in = err >= 0 ? input_file(input) : -1;
    int failed = l->in >= 0 ? launch_known(c, l) : errno;
    close_fd(l->in);
    close_fd(l->out);
    close_fd(l->err);
    if (failed != 0) {
        close_fd(out);
        close_fd(err);
        return failed;
    }
    int exited = (int)syscall(SYS_pidfd_open, c->pid, 0);
    failed = watch(c, exited, errno, out, err);
    if (failed != 0)
        child_kill(c);
    return failed;
}

struct child *child_start(struct children *all, const struct child_setup *setup, char *why,
                          size_t size)
{
    struct child *c = mem_alloc(sizeof *c);
    *c = (struct child){.all = all,
                        .output = setup->output,
                        .done = setup->done,
                        .ctx = setup->ctx,
                        .max_processes = setup->max_processes,
                        .max_cpu_ms = setup->max_cpu_ms,
                        .handles =
                            1}; /* until child_finish(), or until we know that it is of no use */
    struct launch l = {.argv = setup->argv,
                       .parent = getpid(),
                       .in = -1,
                       .out = -1,
                       .err = -1,
                       .files = all->loop->files_before,
                       .max_memory = census_memory(setup->max_memory),
                       .max_cpu_s = setup->max_cpu_ms > 0 ? setup->max_cpu_ms / SECOND_MS + 2 : 0};
    uint64_t tasks = setup->max_processes > 0 ? census_tasks() : 0;
    if (tasks > 0)
        l.max_tasks = tasks + setup->max_processes;
    list_init(&c->link);
    c->sweep.data = c;
    make_mark(c->mark);
    choose_env(&l, c->mark);
    int failed = child_spawn(c, &l, setup->input);
    if (failed == 0) {
        if (!all->counting && !timer_running(&all->census_due))
            sched_start(&all->loop->sched, &all->census_due, CENSUS_MS);
        return c;
    }
    snprintf(why, size, "%s cannot be started: %s", setup->argv[0], strerror(failed));
    child_unref(c);
    return NULL;
}
