// SPDX-License-Identifier: Apache-2.0
/* log_file.h -- the files of logs and of their keys: which one it is, opened, read, and locked.
 *
 * Other programs write, truncate and replace them at any time. Calls block; any thread. Errors: IO,
 * FULL where something is written or made, BUSY. */
#ifndef FEATURE_LOGS_LOG_FILE_H
#define FEATURE_LOGS_LOG_FILE_H

#include "feature/logs/log_id.h"

#include <sys/stat.h>

/* Of the file as it is now. */
int log_file_id(int fd, const struct stat *st, struct log_id *out);

/* What an errno means. */
int log_file_err(int error);

/* The descriptor, or -1 and errno. What is not a plain file is not opened for good: a FIFO would
 * hold the lane. */
int log_file_open(const char *path, int flags);

/* *got < n: the file ends there. */
int log_file_read(int fd, uint64_t at, char *into, size_t n, size_t *got);

/* ERR_IO also if it is no plain file. */
int log_file_stat(int fd, struct stat *st);

/* Opens the file that is under this path once its lock is ours; makes it, and its folders, if need
 * be. ERR_BUSY: somebody else has the lock. */
int log_file_open_locked(const char *path, int *out, struct stat *st);

/* What has been made in a folder is there after a power cut only when the folder is on the disk,
 * too. path: of what was made. */
int log_file_sync_folder(const char *path);

#endif
