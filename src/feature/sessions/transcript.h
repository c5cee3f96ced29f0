// SPDX-License-Identifier: Apache-2.0
/* transcript.h -- a file with what sessions have said, each event once.
 *
 * One line of JSON an event, put there by one write:
 *
 *     {"session":"KEY","id":"7","text":"..."}      or "data":BASE64 for what is no UTF-8
 *
 * Whoever dies between an event and the moment its session knows of it gets that event again; its
 * id is then found here. Ids of one session are numbers that grow. */
#ifndef FEATURE_SESSIONS_TRANSCRIPT_H
#define FEATURE_SESSIONS_TRANSCRIPT_H

#include "base/buf.h"

#include <stdbool.h>

#define TRANSCRIPT_LINE_MAX (64 * 1024 * 1024)

struct transcript {
    int fd; /* -1: there is none, and nothing is kept */
    const char *key;
    uint64_t last; /* id of the session's last event in it */
    struct buf line;
};
#define TRANSCRIPT_NONE                                                                            \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Appends one line. */
void transcript_line(struct buf *line, const char *key, const char *id, struct str payload);

/* Reads what is there of this session (key: lent), and cuts off a line that has no end: half of one
 * was written when the machine went down. 0 or the errno; EINVAL: this is no transcript. */
int transcript_open(struct transcript *t, const char *path, const char *key);
void transcript_close(struct transcript *t);

bool transcript_has(const struct transcript *t, const char *id);

/* 0 or the errno; then it may be there in part, and the file must be opened anew. */
int transcript_put(struct transcript *t, const char *id, struct str payload);

#endif
