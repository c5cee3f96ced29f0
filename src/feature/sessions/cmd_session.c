// SPDX-License-Identifier: Apache-2.0
/* cmd_session.c -- `tidemark session ls` and `tidemark session show`: what a server tells those who
 * look after its sessions. `session chat` is in cmd_session_chat.c, `session resume` in
 * cmd_session_resume.c. */
#include "base/json.h"
#include "cmd/cmd.h"
#include "feature/sessions/sessions_commands.h"
#include "cmd/cmd_common.h"
#include "cmd/pages.h"
#include "feature/sessions/cmd_session_chat.h"
#include "feature/sessions/cmd_session_resume.h"
#include "cmd/table.h"

#include <inttypes.h>

#define LS_COLUMNS   6
#define SHOW_COLUMNS 2

struct session_flags {
    char *server, *token_file;
    bool json;
};

#define ROW(...) OPTION_ROW(struct session_flags, __VA_ARGS__)

static const struct option_row ls_rows[] = {
    COMMON_SERVER_ROWS(struct session_flags),
    {ROW("json", OPTION_BOOL, json),
     .help = "One JSON object a line: key, service, created, connected, keyHeld, expired, "
             "answered."},
};

static const struct common_command ls_command = {
    .name = "session ls",
    .arguments = "[PREFIX]",
    .max_args = 1,
    .about = "Lists the sessions of a server, or those whose keys begin with PREFIX, in order of\n"
             "keys: key, service, time of creation, whether its client is connected, whether the\n"
             "server holds the key to what was said, and how many of the client's messages are\n"
             "answered. They are shown to callers with the capability `worker` only.\n",
    .examples = "  tidemark session ls --token-file worker.token\n"
                "  TIDEMARK_TOKEN=... tidemark session ls chat-\n"
                "  tidemark session ls --json | jq -r 'select(.connected).key'\n",
    .flags = {ls_rows, sizeof ls_rows / sizeof *ls_rows},
};

static const struct option_row show_rows[] = {
    COMMON_SERVER_ROWS(struct session_flags),
    {ROW("json", OPTION_BOOL, json),
     .help = "One JSON object: what ls has, and in (events, bytes, closed) and out (events, bytes, "
             "end); both null if the session has expired."},
};

static const struct common_command show_command = {
    .name = "session show",
    .arguments = "KEY",
    .min_args = 1,
    .max_args = 1,
    .about = "Shows one session: how far its client and the backend have got, but nothing of what\n"
             "they said. It is shown to callers with the capability `worker` only.\n",
    .examples = "  tidemark session show chat-1 --token-file worker.token\n"
                "  tidemark session show chat-1 --json | jq .out.end\n",
    .flags = {show_rows, sizeof show_rows / sizeof *show_rows},
};

/* ---- what both print ---- */

#define SESSIONS "/v1/session/"

/* As feature/sessions/session_status_http.h has it. Texts are lent by the document. */
struct session_json_row {
    const char *key, *service, *created;
    bool connected, key_held, expired;
    uint64_t answered;
    /* Of show. All 0 and empty if it has expired. */
    uint64_t in_events, in_bytes, out_events, out_bytes;
    bool in_closed;
    const char *end;
};

static struct session_json_row cmd_session_row_of(const json_t *session)
{
    const json_t *in = json_object_get(session, "in"), *out = json_object_get(session, "out");
    return (struct session_json_row){
        .key = pages_text(session, "key"),
        .service = pages_text(session, "service"),
        .created = pages_text(session, "created"),
        .connected = pages_truth(session, "connected"),
        .key_held = pages_truth(session, "keyHeld"),
        .expired = pages_truth(session, "expired"),
        .answered = pages_number(session, "answered"),
        .in_events = pages_number(in, "events"),
        .in_bytes = pages_number(in, "bytes"),
        .in_closed = pages_truth(in, "closed"),
        .out_events = pages_number(out, "events"),
        .out_bytes = pages_number(out, "bytes"),
        .end = pages_text(out, "end"),
    };
}

struct view {
    const struct common_command *command;
    const struct session_flags *flags;
    struct tm_client *client;
    struct table table;
    uint64_t n; /* sessions seen */
};

static const char *cmd_session_truth(bool b)
{
    return b ? "true" : "false";
}

static const char *state_of(const struct session_json_row *s)
{
    return s->expired ? "expired" : s->connected ? "connected" : "away";
}

/* Without the brace that ends it. */
static void cmd_session_put_json(struct buf *out, const struct session_json_row *s)
{
    buf_put(out, STR("{\"key\":"));
    json_put_string(out, str_of_cstr(s->key));
    buf_put(out, STR(",\"service\":"));
    json_put_string(out, str_of_cstr(s->service));
    buf_put(out, STR(",\"created\":"));
    json_put_string(out, str_of_cstr(s->created));
    buf_printf(out, ",\"connected\":%s,\"keyHeld\":%s,\"expired\":%s,\"answered\":%" PRIu64,
               cmd_session_truth(s->connected), cmd_session_truth(s->key_held),
               cmd_session_truth(s->expired), s->answered);
}

/* To others than workers there are no sessions at all: which of the two it is, the list tells. */
static int not_shown(const struct view *v)
{
    bool presented = common_has_token(v->flags->token_file);
    return common_fail(v->command,
                       presented ? "%s shows no sessions to this token: it must be that of a "
                                   "caller with the capability `worker`"
                                 : "%s shows its sessions only to callers with the capability "
                                   "`worker`: --token-file FILE or TIDEMARK_TOKEN gives the token",
                       v->flags->server);
}

/* ---- ls ---- */

static bool cmd_session_take_row(void *user, const json_t *session)
{
    struct session_json_row row = cmd_session_row_of(session), *s = &row;
    struct view *v = user;
    char answered[48];
    v->n++;
    if (v->flags->json) {
        struct buf *out = table_line(&v->table);
        cmd_session_put_json(out, s);
        buf_put(out, STR("}\n"));
    } else {
        snprintf(answered, sizeof answered, "%" PRIu64 " answered", s->answered);
        table_cell(&v->table, s->key);
        table_cell(&v->table, s->service);
        table_cell(&v->table, s->created);
        table_cell(&v->table, state_of(s));
        table_cell(&v->table, s->key_held ? "key held" : "no key");
        table_cell(&v->table, answered);
    }
    return v->table.failed == 0;
}

static int walk(struct view *v, const char *prefix, uint64_t limit,
                bool (*item)(void *user, const json_t *item), char why[PAGES_WHY])
{
    struct pages pages = {.path = SESSIONS,
                          .member = "sessions",
                          .prefix = prefix,
                          .limit = limit,
                          .user = v,
                          .item = item};
    return pages_walk(v->client, &pages, why);
}

static int cmd_session_list(struct view *v, const char *prefix)
{
    char why[PAGES_WHY];
    v->table.columns = LS_COLUMNS;
    int err = walk(v, prefix, 0, cmd_session_take_row, why);
    table_end(&v->table);
    if (err == TM_E_NOT_FOUND)
        return not_shown(v);
    if (err && *why)
        return common_fail(v->command, "%s %s", v->flags->server, why);
    if (err)
        return common_client_failed(v->command, v->flags->server, v->client, err);
    if (v->n == 0 && prefix && *prefix)
        common_fail(v->command, "no session's key begins with %s", prefix);
    else if (v->n == 0)
        common_fail(v->command, "%s has no sessions", v->flags->server);
    return common_written(v->command, v->table.failed); /* none is an answer too */
}

/* ---- show ---- */

static void cmd_session_put_streams(struct buf *out, const struct session_json_row *s)
{
    if (s->expired) {
        buf_put(out, STR(",\"in\":null,\"out\":null"));
        return;
    }
    buf_printf(out,
               ",\"in\":{\"events\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"closed\":%s},"
               "\"out\":{\"events\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"end\":",
               s->in_events, s->in_bytes, cmd_session_truth(s->in_closed), s->out_events,
               s->out_bytes);
    if (*s->end)
        json_put_string(out, str_of_cstr(s->end));
    else
        buf_put(out, STR("null"));
    buf_putc(out, '}');
}

static void line(struct view *v, const char *name, const char *value)
{
    table_cell(&v->table, name);
    table_cell(&v->table, value);
}

static void cmd_session_put_stream(struct view *v, const char *name, uint64_t events,
                                   uint64_t bytes, const char *end)
{
    char text[128];
    snprintf(text, sizeof text, "%" PRIu64 " event%s, %" PRIu64 " bytes, %s", events,
             events == 1 ? "" : "s", bytes, end);
    line(v, name, text);
}

static void put_lines(struct view *v, const struct session_json_row *s)
{
    char answered[24];
    snprintf(answered, sizeof answered, "%" PRIu64, s->answered);
    line(v, "key", s->key);
    line(v, "service", s->service);
    line(v, "created", s->created);
    line(v, "state", state_of(s));
    line(v, "key held", s->key_held ? "yes" : "no");
    if (!s->expired) {
        cmd_session_put_stream(v, "in", s->in_events, s->in_bytes,
                               s->in_closed ? "closed" : "open");
        cmd_session_put_stream(v, "out", s->out_events, s->out_bytes, *s->end ? s->end : "open");
    }
    line(v, "answered", answered);
}

static void put_session(struct view *v, const json_t *session)
{
    struct session_json_row row = cmd_session_row_of(session);
    if (v->flags->json) {
        struct buf *out = table_line(&v->table);
        cmd_session_put_json(out, &row);
        cmd_session_put_streams(out, &row);
        buf_put(out, STR("}\n"));
    } else {
        put_lines(v, &row);
    }
}

static bool cmd_session_take_none(void *user, const json_t *session)
{
    return false;
}

static int not_there(struct view *v, const char *key)
{
    char why[PAGES_WHY];
    if (walk(v, NULL, 1, cmd_session_take_none, why) == TM_E_NOT_FOUND)
        return not_shown(v);
    return common_fail(
        v->command, "no session with the key %s; `tidemark session ls` lists what is there", key);
}

static int cmd_session_show(struct view *v, const char *key)
{
    json_t *session = NULL;
    int err = pages_get(v->client, SESSIONS, key, &session), status;
    v->table.columns = SHOW_COLUMNS;
    if (err == TM_E_NOT_FOUND) {
        status = not_there(v, key);
    } else if (err) {
        status = common_client_failed(v->command, v->flags->server, v->client, err);
    } else if (*pages_text(session, "key") == '\0') {
        status =
            common_fail(v->command, "%s does not show a session as expected", v->flags->server);
    } else {
        put_session(v, session);
        table_end(&v->table);
        status = common_written(v->command, v->table.failed);
    }
    json_decref(session);
    return status;
}

/* ---- the command ---- */

static int cmd_session_run(const struct common_command *command,
                           int (*act)(struct view *v, const char *arg), int argc, char **argv)
{
    struct session_flags flags = {0};
    struct view v = {.command = command, .flags = &flags};
    int status = CMD_USAGE, n;
    if (common_read(command, &flags, argc, argv, &n, &status))
        status = common_connect(command, flags.server, flags.token_file, false, &v.client);
    if (v.client)
        status = act(&v, n > 0 ? argv[1] : NULL);
    tm_close(v.client);
    options_free(&command->flags, &flags);
    return status;
}

static const char usage[] =
    "Usage: tidemark session ls [flags] [PREFIX]\n"
    "       tidemark session show [flags] KEY\n"
    "       tidemark session chat [flags]\n"
    "       tidemark session resume [flags] --state DIR\n"
    "\n"
    "ls and show look at the sessions of a server: which there are, and how far each has got.\n"
    "chat is the client of one: it sends lines and prints what is answered. resume goes on with\n"
    "all that were interrupted and saved.\n"
    "`tidemark session ls --help`, and so on, shows the flags.\n";

int cmd_session(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "ls") == 0)
        return cmd_session_run(&ls_command, cmd_session_list, argc - 1, argv + 1);
    if (strcmp(what, "show") == 0)
        return cmd_session_run(&show_command, cmd_session_show, argc - 1, argv + 1);
    if (strcmp(what, "chat") == 0)
        return session_chat(argc - 1, argv + 1);
    if (strcmp(what, "resume") == 0)
        return session_resume(argc - 1, argv + 1);
    return common_no_subcommand("session", "ls, show, chat or resume", usage, what);
}
