// SPDX-License-Identifier: Apache-2.0
/* session_tool.c -- session:read, a built-in tool: the streams of a session as workers see them. */
#include "access/principal.h"
#include "base/arena.h"
#include "feature/builtin.h"
#include "feature/sessions/session.h"
#include "feature/sessions/sessions.h"
#include "store/offset.h"

struct session_read {
    struct str session, stream, offset;
    uint64_t limit;
};

static void session_tool_start(struct builtin_page *p)
{
    struct session_read *s = p->state;
    if (!session_key_valid(s->session)) {
        p->ops->invalid(p, "argument 'session' is no key of a session");
        return;
    }
    if (!principal_may(p->principal, ACCESS_VERB_WORK, ACCESS_SESSION, s->session)) {
        p->ops->denied(p);
        return;
    }
    struct str key = session_key_rooted(p->principal, p->arena, s->session);
    struct str name = arena_printf(p->arena, SESSION_PREFIX "%.*s/%s", (int)key.n, key.p,
                                   str_eq(s->stream, STR("in")) ? "in" : "out");
    p->ops->read_stream(
        p, &(struct builtin_stream){sessions_workers_view(p->feature), name, s->offset, s->limit});
}

static const struct builtin_arg args[] = {
    {.name = "session",
     .type = BUILTIN_TEXT,
     .field = offsetof(struct session_read, session),
     .required = true,
     .max = SESSION_KEY_MAX,
     .help = "The session's key."},
    {.name = "stream",
     .type = BUILTIN_TEXT,
     .field = offsetof(struct session_read, stream),
     .max = 3,
     .choices = "in|out",
     .help = "in: what its client sent. out, as without it: what it was answered."},
    BUILTIN_OFFSET_ARG(struct session_read),
    BUILTIN_LIMIT_ARG(struct session_read, BUILTIN_STREAM_ROWS_MAX, "Events"),
};

const struct builtin_tool sessions_tools[] = {
    {
        .id = "session:read",
        .description = "What the client of a session sent, or what it was answered.",
        .args = args,
        .n_args = sizeof args / sizeof *args,
        .capability = "worker",
        .pages = true,
        .size = sizeof(struct session_read),
        .start = session_tool_start,
    },
    {.id = NULL},
};
