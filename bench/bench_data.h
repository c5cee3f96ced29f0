// SPDX-License-Identifier: Apache-2.0
/* bench_data.h -- the folder that an embedded store keeps its files in, seen from outside. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stdbool.h>
#include <stdint.h>

#define DATA_PATH_MAX 1024

/* Makes an empty folder below `under` and puts its path into `path`. 0 or -1, said on stderr. */
int data_make(const char *under, char path[DATA_PATH_MAX]);

/* Removes everything in it, and itself. */
void data_remove(const char *path);

/* What it lies on, for people: "ext4". *memory: not on a disk at all. */
const char *data_file_system(const char *path, bool *memory);

/* Does it have so many bytes left? */
bool data_has_room(const char *path, uint64_t bytes);

/* Bytes that the disk below it has written since the machine was started, for whomever. 0 if not
 * known. */
uint64_t data_disk_written(const char *path);

/* The segments' bytes, and how many of them the page cache holds. */
struct data_cached {
    uint64_t bytes, cached;
};
struct data_cached data_segments_cached(const char *path);

/* Makes the page cache let go of the segments, as far as it does. */
void data_segments_evict(const char *path);

/* ---- checkpoints ----
 *
 * One begins with a new file among the segments and ends with the last write to the index. What the
 * server does just before and after (a snapshot; letting go of what rests now) takes its loop's
 * time and cannot be seen: so much is added at both ends. */
#define CHECKPOINT_MARGIN_NS 10000000u
#define CHECKPOINTS_MAX      64

struct checkpoint_watch {
    int fd, segments, index; /* inotify */
    uint64_t looked_ns;
    unsigned n;
    struct {
        uint64_t from_ns, to_ns;
    } spans[CHECKPOINTS_MAX];
};

int checkpoint_watch_open(struct checkpoint_watch *w, const char *path);
void checkpoint_watch_close(struct checkpoint_watch *w);

/* Call it every few milliseconds; what is seen happened now. More often, it does nothing. */
void checkpoint_watch_look(struct checkpoint_watch *w, uint64_t now_ns);

/* Was any of this time within a checkpoint? */
bool checkpoint_watch_covers(const struct checkpoint_watch *w, uint64_t from_ns, uint64_t to_ns);

#endif
