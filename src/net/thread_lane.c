// SPDX-License-Identifier: Apache-2.0
#include "net/thread_lane.h"
#include "base/mem.h"
#include "base/must.h"
#include "net/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#define BACKGROUND_NICE 10 /* about a tenth of what a thread at 0 gets, if both want all */

struct thread_lane {
    struct lane lane;
    char name[16]; /* what Linux keeps of it */
    bool background;
    uv_thread_t threads[THREAD_LANE_MAX];
    int n_threads;

    /* A byte comes through when a job has run. uv_async_send would set a flag that the loop spins
     * on: a background thread that loses its processor there makes the loop wait for it. */
    uv_file pipe[2];
    uv_poll_t wake;

    /* Shared, under the lock. */
    uv_mutex_t lock;
    uv_cond_t filled;
    struct link waiting, ran;
    bool woken; /* the loop will look at `ran` */
    bool ending;

    /* The loop thread's. */
    struct loop *loop;
    struct task finish;
    size_t under_way; /* submitted, and done() not called yet */
};

/* ---- the lane's thread ---- */

static struct job *next_job(struct thread_lane *l)
{
    struct job *j = NULL;
    uv_mutex_lock(&l->lock);
    while (list_empty(&l->waiting) && !l->ending)
        uv_cond_wait(&l->filled, &l->lock);
    if (!list_empty(&l->waiting)) {
        j = list_item(l->waiting.next, struct job, link);
        list_remove(&j->link);
    }
    uv_mutex_unlock(&l->lock);
    return j;
}

static void hand_back(struct thread_lane *l, struct job *j)
{
    uv_mutex_lock(&l->lock);
    bool woken = l->woken;
    l->woken = true;
    list_push(&l->ran, &j->link);
    uv_mutex_unlock(&l->lock);
    ssize_t wrote;
    do
        wrote = woken ? 1 : write(l->pipe[1], "", 1);
    while (wrote < 0 && errno == EINTR);
}

static void thread_lane_work(void *arg)
{
    struct thread_lane *l = arg;
#ifdef __linux__
    pthread_setname_np(pthread_self(), l->name);
    if (l->background) /* it is the thread's own on Linux; without success it just competes */
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), BACKGROUND_NICE);
#endif
    for (struct job *j; (j = next_job(l)) != NULL;) {
        j->run(j);
        hand_back(l, j);
    }
}

/* ---- the loop's thread ---- */

static void thread_lane_on_wake(uv_poll_t *p, int status, int events)
{
    struct thread_lane *l = p->data;
    char bytes[THREAD_LANE_MAX];
    (void)status;
    (void)events;
    if (read(l->pipe[0], bytes, sizeof bytes) <= 0)
        return; /* there was nothing yet */
    sched_io(&l->loop->sched);
    sched_post(&l->loop->sched, &l->finish);
}

/* NULL: it was told of before the byte came. */
static struct job *thread_lane_next_ran(struct thread_lane *l)
{
    struct job *j = NULL;
    uv_mutex_lock(&l->lock);
    if (!list_empty(&l->ran)) {
        j = list_item(l->ran.next, struct job, link);
        list_remove(&j->link);
    }
    l->woken = !list_empty(&l->ran);
    if (l->woken)
        sched_post(&l->loop->sched, &l->finish);
    uv_mutex_unlock(&l->lock);
    return j;
}

/* One at a time: very many may have run while the loop had other things to do. The last done() may
 * free the lane, so it is not looked at after that. */
static void thread_lane_finish(struct task *t)
{
    struct thread_lane *l = container_of(t, struct thread_lane, finish);
    struct job *j = thread_lane_next_ran(l);
    if (j == NULL)
        return;
    if (--l->under_way == 0)
        uv_unref((uv_handle_t *)&l->wake);
    j->done(j);
}

static void thread_lane_submit(struct lane *lane, struct job *j)
{
    struct thread_lane *l = container_of(lane, struct thread_lane, lane);
    if (l->under_way++ == 0)
        uv_ref((uv_handle_t *)&l->wake);
    uv_mutex_lock(&l->lock);
    list_push(&l->waiting, &j->link);
    uv_cond_signal(&l->filled);
    uv_mutex_unlock(&l->lock);
}

static void thread_lane_on_closed(uv_handle_t *h)
{
    struct thread_lane *l = h->data;
    close(l->pipe[0]);
    close(l->pipe[1]);
    uv_cond_destroy(&l->filled);
    uv_mutex_destroy(&l->lock);
    free(l);
}

static void close_wake(struct thread_lane *l)
{
    task_cancel(&l->finish);
    uv_close((uv_handle_t *)&l->wake, thread_lane_on_closed);
}

static void thread_lane_free(struct lane *lane)
{
    struct thread_lane *l = container_of(lane, struct thread_lane, lane);
    must(l->under_way == 0);
    uv_mutex_lock(&l->lock);
    l->ending = true;
    uv_cond_broadcast(&l->filled);
    uv_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++)
        uv_thread_join(&l->threads[i]);
    close_wake(l);
}

/* Signals are for the loop's thread: the new ones start with all of them blocked. */
static void start_threads(struct thread_lane *l, int n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (l->n_threads < n &&
           uv_thread_create(&l->threads[l->n_threads], thread_lane_work, l) == 0)
        l->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool open_wake(struct thread_lane *l)
{
    if (uv_pipe(l->pipe, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE) != 0)
        return false;
    if (uv_poll_init(&l->loop->uv, &l->wake, l->pipe[0]) != 0) {
        close(l->pipe[0]);
        close(l->pipe[1]);
        return false;
    }
    l->wake.data = l;
    must(uv_poll_start(&l->wake, UV_READABLE, thread_lane_on_wake) == 0);
    uv_unref((uv_handle_t *)&l->wake);
    return true;
}

static struct lane *make_lane(struct loop *loop, const char *name, int threads, bool background)
{
    must(threads > 0 && threads <= THREAD_LANE_MAX);
    struct thread_lane *l = mem_zalloc(sizeof *l);
    l->lane.submit = thread_lane_submit;
    l->lane.free = thread_lane_free;
    l->loop = loop;
    l->background = background;
    snprintf(l->name, sizeof l->name, "%s", name);
    list_init(&l->waiting);
    list_init(&l->ran);
    task_init(&l->finish, thread_lane_finish);
    if (!open_wake(l)) {
        free(l);
        return NULL;
    }
    must(uv_mutex_init(&l->lock) == 0 && uv_cond_init(&l->filled) == 0); /* needs memory only */
    start_threads(l, threads);
    if (l->n_threads == 0) {
        close_wake(l);
        return NULL;
    }
    return &l->lane;
}

struct lane *thread_lane_new(struct loop *loop, const char *name)
{
    return make_lane(loop, name, 1, false);
}

struct lane *thread_lane_new_pool(struct loop *loop, const char *name, int threads)
{
    return make_lane(loop, name, threads, false);
}

struct lane *thread_lane_new_background(struct loop *loop, const char *name)
{
    return make_lane(loop, name, 1, true);
}
