// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/transcript.h"
#include "base/b64.h"
#include "base/json.h"
#include "base/num.h"
#include "base/utf8.h"
#include "cmd/cmd_common.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#define READ_BYTES (64 * 1024)

/* Ids of other servers may be no numbers: those are all new. */
static uint64_t number_of(const char *id)
{
    uint64_t n;
    return num_parse(str_of_cstr(id), NUM_SAFE_MAX, &n) == 0 ? n : 0;
}

static int transcript_take_line(struct transcript *t, struct str line)
{
    json_t *doc = json_loadb(line.p, line.n, 0, NULL);
    const char *key = json_string_value(json_object_get(doc, "session"));
    const char *id = json_string_value(json_object_get(doc, "id"));
    int err = key && id ? 0 : EINVAL;
    if (err == 0 && strcmp(key, t->key) == 0 && number_of(id) > t->last)
        t->last = number_of(id);
    json_decref(doc);
    return err;
}

/* *whole: where the last whole line ended. */
static int transcript_take_bytes(struct transcript *t, struct str bytes, off_t *whole)
{
    while (bytes.n > 0) {
        const char *end = memchr(bytes.p, '\n', bytes.n);
        size_t n = end ? (size_t)(end - bytes.p) + 1 : bytes.n;
        if (n > TRANSCRIPT_LINE_MAX - t->line.n)
            return EINVAL;
        buf_put(&t->line, str_of(bytes.p, n));
        bytes = str_skip(bytes, n);
        if (end == NULL)
            continue;
        int err = transcript_take_line(t, buf_str(&t->line));
        if (err)
            return err;
        *whole += (off_t)t->line.n;
        t->line.n = 0;
    }
    return 0;
}

static int transcript_read_all(struct transcript *t, off_t *whole)
{
    struct buf room = {0};
    char *p = buf_reserve(&room, READ_BYTES);
    int err = 0;
    for (ssize_t n = 1; err == 0 && n != 0;) {
        n = read(t->fd, p, READ_BYTES);
        if (n > 0)
            err = transcript_take_bytes(t, str_of(p, (size_t)n), whole);
        else if (n < 0 && errno != EINTR)
            err = errno;
    }
    buf_deinit(&room);
    return err;
}

int transcript_open(struct transcript *t, const char *path, const char *key)
{
    off_t whole = 0;
    *t = (struct transcript){.key = key};
    t->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int err = t->fd < 0 ? errno : transcript_read_all(t, &whole);
    if (err == 0 && t->line.n > 0 && ftruncate(t->fd, whole) != 0)
        err = errno;
    t->line.n = 0;
    if (err)
        transcript_close(t);
    return err;
}

void transcript_close(struct transcript *t)
{
    if (t->fd >= 0)
        close(t->fd);
    buf_deinit(&t->line);
    *t = (struct transcript)TRANSCRIPT_NONE;
}

bool transcript_has(const struct transcript *t, const char *id)
{
    uint64_t n = number_of(id);
    return t->fd >= 0 && n > 0 && n <= t->last;
}

void transcript_line(struct buf *line, const char *key, const char *id, struct str payload)
{
    buf_put(line, STR("{\"session\":"));
    json_put_string(line, str_of_cstr(key));
    buf_put(line, STR(",\"id\":"));
    json_put_string(line, str_of_cstr(id));
    if (utf8_valid(payload)) {
        buf_put(line, STR(",\"text\":"));
        json_put_string(line, payload);
    } else {
        buf_put(line, STR(",\"data\":\""));
        b64_put(line, payload);
        buf_putc(line, '"');
    }
    buf_put(line, STR("}\n"));
}

int transcript_put(struct transcript *t, const char *id, struct str payload)
{
    if (t->fd < 0)
        return 0;
    t->line.n = 0;
    transcript_line(&t->line, t->key, id, payload);
    int err = common_write(t->fd, buf_str(&t->line));
    if (err == 0 && number_of(id) > t->last)
        t->last = number_of(id);
    return err;
}
