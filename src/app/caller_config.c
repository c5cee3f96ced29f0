// SPDX-License-Identifier: Apache-2.0
#include "app/caller_config.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/hex.h"
#include "http/principal.h"

int caller_check_name(struct str name, char *reason, size_t size)
{
    if (ascii_is_word(name, "-._@"))
        return 0;
    snprintf(reason, size, "a caller's name is made of letters, digits and -._@");
    return ERR_SYNTAX;
}

/* ---- the token's digest ---- */

static int caller_config_check_digest(struct str value, char *reason, size_t size)
{
    uint8_t ignored[CALLER_DIGEST_N];
    return hex_decode(value, ignored, sizeof ignored) ? 0 : ERR_SYNTAX;
}

int caller_finish(void *caller, char *reason, size_t size)
{
    struct caller_config *c = caller;
    return hex_decode(str_of_cstr(c->token_text), c->token_sha256, CALLER_DIGEST_N) ? 0
                                                                                    : ERR_SYNTAX;
}

/* ---- the table ---- */

#define ROW(...) OPTION_ROW(struct caller_config, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("token-sha256", OPTION_TEXT, token_text), .value = "64 hex digits", .required = true,
     .secret = true, .check = caller_config_check_digest,
     .help = "The SHA-256 digest of the token that the caller presents as `Authorization: Bearer "
             "TOKEN`, as `printf %s TOKEN | sha256sum` prints it. The token itself stands nowhere "
             "on the server."},
    {ROW("capabilities", OPTION_LIST, capabilities), .value = "worker|tool|admin|NAME:NAME",
     .commas = true, .check = principal_check_capability,
     .help = "What the caller may do, one word or several with commas between them. One with a `:` "
             "is for a tool that asks for it."},
};
const struct options caller_options = {rows, sizeof rows / sizeof *rows};
