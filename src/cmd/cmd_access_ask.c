// SPDX-License-Identifier: Apache-2.0
/* cmd_access_ask.c -- `tidemark access mint` and `revoke`: what a running server is asked for. */
#include "access/verb.h"
#include "base/ascii.h"
#include "base/buf.h"
#include "base/date.h"
#include "base/err.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cmd/cmd_access.h"
#include "cmd/cmd_common.h"
#include "http/url.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#define GRANTS      "/v1/access/grants"
#define REVOCATIONS "/v1/access/revocations"
#define STREAMS     "/v1/stream/"

struct ask_flags {
    char *server, *token_file;
    struct option_list on, actions;
    uint64_t expires_ms;
    bool link, json;
    char *jti, *sub, *root, *before;
};

static int check_action(struct str value, char *reason, size_t size)
{
    enum access_verb ignored;
    return access_verb_parse(value, &ignored) ? 0 : ERR_SYNTAX;
}

static int check_time(struct str value, char *reason, size_t size)
{
    int64_t ignored;
    return date_parse_rfc3339(value, &ignored);
}

#define ROW(...) OPTION_ROW(struct ask_flags, __VA_ARGS__)

static const struct option_row mint_rows[] = {
    COMMON_SERVER_ROWS(struct ask_flags),
    {ROW("on", OPTION_LIST, on), .value = "PATTERN",
     .help = "What the token is for, as in a grant: chats/42, chats/42/**, route:/v1/chat. May be "
             "given many times."},
    {ROW("actions", OPTION_LIST, actions), .value = "VERB", .commas = true, .check = check_action,
     .help = "What may be done: read, append and other verbs, with commas between them."},
    {ROW("expires", OPTION_DURATION, expires_ms), .fallback = "10m", .value = "TIME",
     BETWEEN(1000, DAY_MS), .help = "How long the token is good."},
    {ROW("sub", OPTION_TEXT, sub), .value = "USER",
     .help = "Whom the token is for. Chats, generations and idempotency keys of two users are "
             "apart."},
    {ROW("link", OPTION_BOOL, link),
     .help = "A token for URLs, for reading alone. Of one stream, the whole URL is printed."},
    {ROW("json", OPTION_BOOL, json), .help = "Print the server's answer: token and expires_at."},
};

static const struct option_row revoke_rows[] = {
    COMMON_SERVER_ROWS(struct ask_flags),
    {ROW("jti", OPTION_TEXT, jti), .value = "ID",
     .help = "The token with this `jti`, and all that were made from it."},
    {ROW("sub", OPTION_TEXT, sub), .value = "SUBJECT",
     .help = "All tokens of this subject that have been issued so far."},
    {ROW("root", OPTION_TEXT, root), .value = "ROOT",
     .help = "All tokens of this tenant that have been issued so far."},
    {ROW("before", OPTION_TEXT, before), .value = "TIME", .check = check_time,
     .help = "Only those that were issued before this time, as 2026-01-31T12:00:00Z."},
};

#define COUNTED(a)                                                                                 \
    {                                                                                              \
        a, sizeof a / sizeof *(a)                                                                  \
    }

static const struct common_command mint_command = {
    .name = "access mint",
    .arguments = "--on PATTERN --actions VERB,...",
    .about = "Gets a short-lived token from a server and prints it. The token can do no more than\n"
             "the one that asks for it, which needs the verb `mint`.\n",
    .examples = "  tidemark access mint --on 'chats/42/**' --actions read,append\n"
                "  tidemark access mint --on chats/42 --actions read --link --expires 10m\n",
    .flags = COUNTED(mint_rows),
};

static const struct common_command revoke_command = {
    .name = "access revoke",
    .arguments = "--jti ID | --sub SUBJECT | --root ROOT",
    .about = "Takes tokens back before they expire. What is being read with them ends at once.\n"
             "This needs the verb `revoke`. Callers of the config file are not concerned: remove\n"
             "them there.\n",
    .examples = "  tidemark access revoke --jti 9f2c...\n"
                "  tidemark access revoke --sub alice --before 2026-01-31T12:00:00Z\n",
    .flags = COUNTED(revoke_rows),
};

/* ---- asking ---- */

struct ask {
    const struct common_command *command;
    const struct ask_flags *flags;
    const char *path;
    int wanted; /* the status of a success */
    int (*take)(struct ask *a, const json_t *answer);
};

static int refused(const struct ask *a, int status, const json_t *answer)
{
    const json_t *error = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *code = json_string_value(json_object_get(error, "code"));
    return common_fail(a->command, "%s (%d %s)",
                       message != NULL ? message : "the server refuses this", status,
                       code != NULL ? code : "");
}

static int take_answer(struct ask *a, struct tm_call *call)
{
    const struct tm_result *r = tm_call_result(call);
    json_t *answer = json_loadb(r->data, r->n, JSON_REJECT_DUPLICATES, NULL);
    int status =
        r->status / 100 == a->wanted / 100 ? a->take(a, answer) : refused(a, r->status, answer);
    json_decref(answer);
    return status;
}

/* Takes over the body. */
static int post(struct ask *a, json_t *body)
{
    struct tm_client *c = NULL;
    struct tm_call *call = NULL;
    char *text = json_dumps(body, JSON_COMPACT);
    int status = common_connect(a->command, a->flags->server, a->flags->token_file, false, &c);
    if (status == CMD_OK) {
        struct tm_post_options o = TM_POST_INIT;
        o.content_type = "application/json";
        o.data = text;
        o.n = strlen(text);
        int err = tm_post(c, a->path, &o, &call);
        err = common_call(err, call);
        status = err == 0 ? take_answer(a, call)
                          : common_client_failed(a->command, a->flags->server, c, err);
    }
    tm_call_free(call);
    tm_close(c);
    free(text);
    json_decref(body);
    return status;
}

/* ---- mint ---- */

static json_t *texts(const struct option_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(array, json_string(list->items[i]));
    return array;
}

/* One stream, no pattern: then the link has a URL. */
static bool is_stream(const struct option_list *on)
{
    const char *name = on->n == 1 ? on->items[0] : "*";
    struct str rest = str_of_cstr(name), word = str_cut(&rest, ':');
    enum access_kind kind;
    return strpbrk(name, "*{") == NULL && (rest.p == NULL || !access_kind_parse(word, &kind));
}

static void put_link(struct buf *out, const struct ask_flags *f, const char *token)
{
    struct str server = str_of_cstr(f->server);
    if (!str_starts(server, STR("unix:")))
        buf_put(out, server);
    if (out->n > 0 && out->p[out->n - 1] == '/')
        out->n--;
    buf_put(out, STR(STREAMS));
    url_encode(out, str_of_cstr(f->on.items[0]), true);
    buf_printf(out, "?grant=%s", token);
}

static int take_minted(struct ask *a, const json_t *answer)
{
    const char *token = json_string_value(json_object_get(answer, "token"));
    struct buf out = {0};
    if (token == NULL)
        return common_fail(a->command, "%s does not answer with a token", a->flags->server);
    if (a->flags->json) {
        char *text = json_dumps(answer, JSON_COMPACT);
        buf_put(&out, str_of_cstr(text));
        free(text);
    } else if (a->flags->link && is_stream(&a->flags->on)) {
        put_link(&out, a->flags, token);
    } else {
        buf_put(&out, str_of_cstr(token));
    }
    buf_putc(&out, '\n');
    int error = common_write(STDOUT_FILENO, buf_str(&out));
    buf_deinit(&out);
    return common_written(a->command, error);
}

static int mint_with(const struct ask_flags *f)
{
    struct ask a = {&mint_command, f, GRANTS, 201, take_minted};
    if (f->on.n == 0 || f->actions.n == 0) {
        common_fail(&mint_command, "--on PATTERN and --actions VERB,... are both needed");
        return CMD_USAGE;
    }
    return post(&a, json_pack("{s:o,s:o,s:I,s:b,s:s*}", "actions", texts(&f->actions), "on",
                              texts(&f->on), "expires_in", (json_int_t)(f->expires_ms / 1000),
                              "link", f->link, "sub", f->sub));
}

/* ---- revoke ---- */

static int take_revoked(struct ask *a, const json_t *answer)
{
    const struct ask_flags *f = a->flags;
    printf("revoked: %s %s\n",
           f->jti   ? "jti"
           : f->sub ? "sub"
                    : "root",
           f->jti   ? f->jti
           : f->sub ? f->sub
                    : f->root);
    return CMD_OK;
}

static json_t *revocation(const struct ask_flags *f)
{
    json_t *body = json_pack("{s:s*,s:s*,s:s*}", "jti", f->jti, "sub", f->sub, "root", f->root);
    int64_t before_ms;
    if (f->before != NULL && date_parse_rfc3339(str_of_cstr(f->before), &before_ms) == 0)
        json_object_set_new(body, "before", json_integer(before_ms / 1000));
    return body;
}

static int revoke_with(const struct ask_flags *f)
{
    struct ask a = {&revoke_command, f, REVOCATIONS, 201, take_revoked};
    const char *wrong = NULL;
    if ((f->jti != NULL) + (f->sub != NULL) + (f->root != NULL) != 1)
        wrong = "say which tokens: one of --jti ID, --sub SUBJECT, --root ROOT";
    else if (f->before != NULL && f->jti != NULL)
        wrong = "--before goes with --sub or --root";
    if (wrong == NULL)
        return post(&a, revocation(f));
    common_fail(&revoke_command, "%s", wrong);
    return CMD_USAGE;
}

/* ---- the commands ---- */

static int ask_run(const struct common_command *command, int (*act)(const struct ask_flags *f),
                   int argc, char **argv)
{
    struct ask_flags f = {0};
    int status = CMD_USAGE, n;
    if (common_read(command, &f, argc, argv, &n, &status)) {
        if (n > 0)
            common_fail(command, "unexpected argument '%.60s'", argv[1]);
        else
            status = act(&f);
    }
    options_free(&command->flags, &f);
    return status;
}

int access_mint(int argc, char **argv)
{
    return ask_run(&mint_command, mint_with, argc, argv);
}

int access_revoke(int argc, char **argv)
{
    return ask_run(&revoke_command, revoke_with, argc, argv);
}
