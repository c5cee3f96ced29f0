// SPDX-License-Identifier: Apache-2.0
/* file_watch.h -- tells that a file may have changed: by inotify, or where that cannot be had (too
 * many watches, some network file systems) by looking now and then.
 *
 * The file need not be there yet, and may be replaced: it is its path that is watched. changed() is
 * called on the loop thread, once for many changes, also when there was none; never from within
 * file_watch_new. */
#ifndef NET_FILE_WATCH_H
#define NET_FILE_WATCH_H

#include <stdint.h>

struct file_watch;
struct loop;

/* poll_ms: how often to look where nobody tells; besides, a watch that works is checked every so
 * many of these, since some file systems drop notices. */
struct file_watch *file_watch_new(struct loop *loop, const char *path, uint64_t poll_ms,
                                  void (*changed)(void *ctx), void *ctx);

/* Its memory goes with the loop's next round. NULL is fine. */
void file_watch_free(struct file_watch *w);

#endif
