// SPDX-License-Identifier: Apache-2.0
/* file_watch.c -- two watches a file: its folder tells that it appears, goes or is replaced, the
 * file itself that it is written to, by whichever of its names (it may be a link). */
#include "net/file_watch.h"
#include "base/mem.h"
#include "net/loop.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_POLLS 20 /* a watch that works is made anew that seldom */

struct file_watch {
    struct loop *loop;
    char *path, *folder;
    const char *name, *folder_name; /* the last parts of both */
    uint64_t poll_ms;
    void (*changed)(void *ctx);
    void *ctx;
    uv_fs_event_t of_folder, of_file;
    int open_handles;
    bool blind; /* nobody tells of changes */
    struct timer look;
    struct task notify;
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static char *folder_of(const char *path)
{
    size_t n = (size_t)(last_part(path) - path);
    if (n > 1)
        n--; /* its slash, unless that is all */
    const char *from = n > 0 ? path : ".";
    n = n > 0 ? n : 1;
    char *folder = mem_alloc(n + 1);
    memcpy(folder, from, n);
    folder[n] = '\0';
    return folder;
}

static void schedule_look(struct file_watch *w)
{
    sched_start(&w->loop->sched, &w->look, w->blind ? w->poll_ms : w->poll_ms * CHECK_POLLS);
}

static void file_watch_on_event(uv_fs_event_t *handle, const char *name, int events, int status);

/* What is under the path may be another file or folder than the last time. */
static void watch_anew(struct file_watch *w)
{
    uv_fs_event_stop(&w->of_folder);
    uv_fs_event_stop(&w->of_file);
    int folder = uv_fs_event_start(&w->of_folder, file_watch_on_event, w->folder, 0);
    int file = uv_fs_event_start(&w->of_file, file_watch_on_event, w->path, 0);
    w->blind = folder != 0 || (file != 0 && file != UV_ENOENT);
    schedule_look(w);
}

static void file_watch_on_event(uv_fs_event_t *handle, const char *name, int events, int status)
{
    struct file_watch *w = handle->data;
    bool ours = name == NULL || status != 0 || handle == &w->of_file ||
                strcmp(name, w->name) == 0 || strcmp(name, w->folder_name) == 0;
    if (!ours)
        return;
    sched_post(&w->loop->sched, &w->notify);
    if (status != 0 || events & UV_RENAME)
        watch_anew(w);
}

static void file_watch_on_look(struct timer *t)
{
    struct file_watch *w = container_of(t, struct file_watch, look);
    watch_anew(w);
    sched_post(&w->loop->sched, &w->notify);
}

static void file_watch_notify(struct task *t)
{
    struct file_watch *w = container_of(t, struct file_watch, notify);
    w->changed(w->ctx);
}

static void open_handle(struct file_watch *w, uv_fs_event_t *handle)
{
    uv_fs_event_init(&w->loop->uv, handle); /* cannot fail */
    handle->data = w;
    uv_unref((uv_handle_t *)handle);
    w->open_handles++;
}

struct file_watch *file_watch_new(struct loop *loop, const char *path, uint64_t poll_ms,
                                  void (*changed)(void *ctx), void *ctx)
{
    struct file_watch *w = mem_zalloc(sizeof *w);
    size_t n = strlen(path) + 1;
    w->loop = loop;
    w->path = memcpy(mem_alloc(n), path, n);
    w->folder = folder_of(path);
    w->name = last_part(w->path);
    w->folder_name = last_part(w->folder);
    w->poll_ms = poll_ms;
    w->changed = changed;
    w->ctx = ctx;
    timer_init(&w->look, file_watch_on_look);
    task_init(&w->notify, file_watch_notify);
    open_handle(w, &w->of_folder);
    open_handle(w, &w->of_file);
    watch_anew(w);
    return w;
}

static void file_watch_on_closed(uv_handle_t *h)
{
    struct file_watch *w = h->data;
    if (--w->open_handles > 0)
        return;
    free(w->path);
    free(w->folder);
    free(w);
}

void file_watch_free(struct file_watch *w)
{
    if (w == NULL)
        return;
    timer_stop(&w->look);
    task_cancel(&w->notify);
    uv_close((uv_handle_t *)&w->of_folder, file_watch_on_closed);
    uv_close((uv_handle_t *)&w->of_file, file_watch_on_closed);
}
