// SPDX-License-Identifier: Apache-2.0
/* cmd_access.c -- `tidemark access`: finds its part. */
#include "access/verb.h"
#include "app/access_commands.h"
#include "app/config.h"
#include "cmd/cmd.h"
#include "cmd/cmd_access.h"
#include "cmd/cmd_common.h"
#include "telemetry/trace.h"

static const struct command parts[] = {
    {"init", access_init, "write a config file with fresh tokens"},
    {"check", access_check, "say what a config file grants to whom"},
    {"explain", access_explain, "say why a request is allowed or refused"},
    {"rules", access_rules, "list what each request needs"},
    {"mint", access_mint, "get a short-lived token or link from a server"},
    {"revoke", access_revoke, "take tokens back"},
};

static const char usage[] =
    "Usage: tidemark access init [flags]\n"
    "       tidemark access check FILE\n"
    "       tidemark access explain --config FILE [flags] METHOD PATH\n"
    "       tidemark access rules [flags]\n"
    "       tidemark access mint [flags] --on PATTERN --actions VERB,...\n"
    "       tidemark access revoke [flags] --jti ID | --sub SUBJECT | --root ROOT\n"
    "\n"
    "init writes a config file with fresh tokens. check and explain read such a file: what it\n"
    "grants to whom, and why a request is allowed or refused. rules lists what each request\n"
    "needs. mint and revoke ask a running server: for a short-lived token or link, and to take\n"
    "tokens back.\n"
    "`tidemark access init --help`, and so on, shows the flags.\n";

int cmd_access(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].name, what) == 0)
            return parts[i].run(argc - 1, argv + 1);
    return common_no_subcommand("access", "init, check, explain, rules, mint or revoke", usage,
                                what);
}

/* ---- what its parts share ---- */

int access_load(const struct common_command *command, const char *file, struct config *c)
{
    struct trace t = {.to = stderr, .level = TRACE_WARN};
    char flag[] = "--config", why[512];
    char *argv[] = {flag, (char *)file, NULL};
    if (config_load(c, 2, argv, &t, why, sizeof why) == 0)
        return CMD_OK;
    common_fail(command, "%s", why);
    return CMD_USAGE;
}

void access_put_verbs(struct buf *out, uint32_t verbs)
{
    const char *comma = "";
    for (unsigned v = 0; v < ACCESS_N_VERBS; v++)
        if ((verbs & ACCESS_BIT(v)) != 0) {
            buf_printf(out, "%s%s", comma, access_verb_text(v).p);
            comma = ", ";
        }
}

void access_put_pattern(struct buf *out, enum access_kind kind, struct str pattern)
{
    struct str word = access_kind_text(kind);
    if (kind != ACCESS_STREAM)
        buf_put(out, word);
    if (kind != ACCESS_STREAM && access_kind_named(kind))
        buf_putc(out, ':');
    if (kind == ACCESS_ROUTE && (pattern.n == 0 || pattern.p[0] != '/'))
        buf_putc(out, '/');
    buf_put(out, pattern);
}
