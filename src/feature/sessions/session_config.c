// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_config.h"
#include "base/ascii.h"
#include "feature/feature.h"
#include "base/err.h"
#include "base/units.h"

#define CONTENT_TYPE_MAX 128 /* bytes */

/* ---- checks ---- */

/* It becomes a header as it is. */
static int session_config_check_content_type(struct str value, char *reason, size_t size)
{
    if (value.n > CONTENT_TYPE_MAX || memchr(value.p, '/', value.n) == NULL)
        return ERR_SYNTAX;
    return ascii_is_word(value, "!#$%&'*+-.^_`|~/;= \"") ? 0 : ERR_SYNTAX;
}

int session_finish(void *session, char *reason, size_t size)
{
    const struct session_config *c = session;
    if (c->upstream && c->handler != SESSION_HANDLER_NONE) {
        snprintf(reason, size, "upstream and handler both answer; only one of them can be given");
        return ERR_SYNTAX;
    }
    if (c->max_bytes < c->max_message_bytes) {
        snprintf(reason, size,
                 "max-bytes must be at least max-message, or a message of the full "
                 "size could never be taken");
        return ERR_SYNTAX;
    }
    return 0;
}

/* ---- the table ---- */

#define ROW(...) OPTION_ROW(struct session_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("upstream", OPTION_TEXT, upstream), .value = "http://HOST/PATH|https://HOST/PATH",
     .check = option_check_url,
     .help = "Where each message of a client is POSTed until it is answered; the events of the "
             "answer go to the client. Without it, and without a handler, workers answer."},
    {ROW("handler", OPTION_CHOICE, handler), .value = "echo",
     .help = "Answer without an upstream. echo: each message is answered with its own text, for "
             "demos and tests."},
    {ROW("upstream-http", OPTION_CHOICE, upstream_http), .fallback = "1.1", .value = "1.1|auto|2",
     .help = "How the upstream is spoken to. auto: HTTP/2 where a https upstream chooses it. 2: "
             "also over http, by prior knowledge. With 1.1 an answer that breaks off is always "
             "told from one that has ended; with HTTP/2 not from a proxy that resets without an "
             "error."},
    {ROW("content-type", OPTION_TEXT, content_type), .value = "TYPE/SUBTYPE",
     .check = session_config_check_content_type,
     .help = "What a message is called when it is POSTed. Without it application/octet-stream for "
             "clients of tidemark.v1 and application/proto for those of aiserver.v1."},
    {ROW("connect-timeout", OPTION_DURATION, connect_timeout_ms), .fallback = "10s",
     .value = "TIME", BETWEEN(10, HOUR_MS),
     .help = "How long a connection to the upstream may take to open. When this or one of the "
             "next three runs out, the upstream is asked again."},
    {ROW("first-byte-timeout", OPTION_DURATION, first_byte_timeout_ms), .fallback = "60s",
     .value = "TIME", BETWEEN(10, DAY_MS),
     .help = "How long the upstream may take to begin its answer."},
    {ROW("idle-timeout", OPTION_DURATION, idle_timeout_ms), .fallback = "60s", .value = "TIME",
     BETWEEN(10, DAY_MS), .help = "How long the upstream may then be silent."},
    {ROW("total-timeout", OPTION_DURATION, total_timeout_ms), .fallback = "1h", .value = "TIME",
     BETWEEN(10, 30 * DAY_MS), .zero_is_off = true,
     .help = "How long one request to the upstream may take in all. 0 sets no bound."},

    {ROW("lifetime", OPTION_DURATION, lifetime_ms), .fallback = "2h", .value = "TIME",
     BETWEEN(SECOND_MS, 30 * DAY_MS),
     .help = "How long after its last activity a session can be resumed."},
    {ROW("key-hold", OPTION_DURATION, key_hold_ms), .fallback = "10m", .value = "TIME",
     BETWEEN(0, DAY_MS),
     .help = "How long the key of a session is kept in memory for workers when its client has "
             "gone; then they wait until it is back."},
    {ROW("max-open", OPTION_NUMBER, max_open), .fallback = "10000", .value = "N",
     BETWEEN(1, 1000000),
     .help = "Sessions under way at the same time; further ones are told that they will not "
             "survive a drop."},
    {ROW("max-message", OPTION_SIZE, max_message_bytes), .fallback = "4m", .value = "SIZE",
     BETWEEN(KIB, 64 * MIB), .help = "The largest message of a client; a larger one is refused."},
    {ROW("max-bytes", OPTION_SIZE, max_bytes), .fallback = "256m", .value = "SIZE",
     BETWEEN(KIB, 64 * GIB),
     .help = "The most that a session may keep of what its client sends, and of what it is "
             "answered."},
};
const struct options session_options = {rows, sizeof rows / sizeof *rows};

/* ---- the feature's ---- */

static const struct section_kind sections[] = {
    {.word = "session",
     .size = sizeof(struct session_config),
     .list_field = offsetof(struct sessions_settings, session),
     .options = &session_options,
     .finish = session_finish,
     .help = "Who answers the clients of sessions, and how long what is kept."},
};

/* There are sessions without a section, too: with the defaults. */
static int sessions_settings_finish(void *settings, char *why, size_t size)
{
    struct sessions_settings *s = settings;
    struct section ignored;
    return s->session.n > 0 ? 0 : sections_add(&sections[0], s, STR_NONE, &ignored, why, size);
}

const struct feature_settings sessions_settings = {
    .size = sizeof(struct sessions_settings),
    .sections = sections,
    .n_sections = sizeof sections / sizeof *sections,
    .finish = sessions_settings_finish,
};
