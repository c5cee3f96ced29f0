// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"
#include "base/hex.h"
#include "base/rand.h"
#include "base/sha256.h"
#include "cmd/cmd.h"
#include "cmd/cmd_access.h"
#include "cmd/cmd_common.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_BYTES 32
#define TOKEN_TEXT  (2 * TOKEN_BYTES + 4) /* `tmk_` before it */

struct init_flags {
    char *config, *public_url;
};

#define ROW(...) OPTION_ROW(struct init_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("config", OPTION_TEXT, config), .fallback = "tidemark.conf", .value = "FILE",
     .help = "The file to write. A file that exists is never overwritten."},
    {ROW("public-url", OPTION_TEXT, public_url), .value = "URL",
     .help = "How clients reach the server, as https://streams.example.com."},
};

static const struct common_command command = {
    .name = "access init",
    .arguments = "",
    .about = "Writes a config file with two callers: `admin`, who may do everything, and `app`,\n"
             "the backend of an application, who may use streams and mint short-lived tokens for\n"
             "browsers. Their tokens are new. They are printed once; the file holds only their\n"
             "digests.\n",
    .examples = "  tidemark access init\n"
                "  tidemark access init --config /etc/tidemark.conf \\\n"
                "      --public-url https://streams.example.com\n",
    .flags = {rows, sizeof rows / sizeof *rows},
    .takes_no_environment = true,
};

/* ---- tokens ---- */

static void make_token(char token[TOKEN_TEXT + 1])
{
    uint8_t random[TOKEN_BYTES];
    rand_bytes(random, sizeof random);
    memcpy(token, "tmk_", 4);
    hex_encode(random, sizeof random, token + 4);
    token[TOKEN_TEXT] = '\0';
    explicit_bzero(random, sizeof random);
}

static void put_digest(struct buf *out, const char *token)
{
    char hex[SHA256_HEX];
    sha256_hex(str_of_cstr(token), hex);
    buf_put(out, STR("token-sha256 = "));
    buf_put(out, str_of(hex, sizeof hex));
    buf_putc(out, '\n');
}

/* ---- the file ---- */

static const char head[] = "# Settings of tidemark. docs/security.md explains who may do what.\n"
                           "# Check changes with: tidemark access check FILE\n"
                           "\n"
                           "listen = 127.0.0.1:4437\n";

static const char head_rest[] = "\n"
                                "# Web pages of these origins may use the server from a browser.\n"
                                "# allow-origin = https://app.example.com\n"
                                "\n"
                                "# The operator. Keep this token away from applications.\n"
                                "[caller admin]\n";

static const char admin_rest[] =
    "grant = read, append, create, close, delete, list, fork, subscribe, webhook, erase **\n"
    "grant = generate, stop, call route:/**\n"
    "grant = session, work session:**\n"
    "grant = tool tool:**\n"
    "grant = read, append log:**\n"
    "grant = lab\n"
    "grant = admin, mint, revoke, metrics server\n"
    "\n"
    "# The backend of an application. It hands out parts of its rights to browsers.\n"
    "[caller app]\n";

static const char app_rest[] =
    "grant = read, append, create, close, list **\n"
    "grant = generate, stop route:/**\n"
    "grant = mint server\n"
    "\n"
    "# Users of an identity provider, each with streams of its own.\n"
    "# [issuer login]\n"
    "# iss = https://login.example.com\n"
    "# aud = https://streams.example.com\n"
    "# jwks = https://login.example.com/.well-known/jwks.json\n"
    "# grant = read, append, create users/{sub}/**\n"
    "\n"
    "# Requests without a credential. Without this section they are refused.\n"
    "# [anonymous]\n"
    "# grant = read public/**\n";

static void put_file(struct buf *out, const char *public_url, const char *admin, const char *app)
{
    buf_put(out, str_of_cstr(head));
    if (public_url != NULL)
        buf_printf(out, "public-url = %s\n", public_url);
    buf_put(out, str_of_cstr(head_rest));
    put_digest(out, admin);
    buf_put(out, str_of_cstr(admin_rest));
    put_digest(out, app);
    buf_put(out, str_of_cstr(app_rest));
}

static int write_file(const char *path, struct str text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0 && errno == EEXIST)
        return common_fail(&command, "%s exists; --config FILE names another one", path);
    int error = fd < 0 ? errno : common_write(fd, text);
    if (fd >= 0 && close(fd) != 0 && error == 0)
        error = errno;
    return error == 0 ? CMD_OK
                      : common_fail(&command, "cannot write %s: %s", path, strerror(error));
}

/* ---- the command ---- */

static void say_next(const char *file, const char *admin, const char *app)
{
    printf("Wrote %s. These tokens are shown only now; keep them where secrets are kept:\n"
           "\n"
           "  admin  %s\n"
           "  app    %s\n"
           "\n"
           "Start the server:\n"
           "  tidemark serve --config %s\n"
           "\n"
           "Create a stream and append to it, as the backend of your application does:\n"
           "  curl -X PUT -H 'Authorization: Bearer APP-TOKEN' "
           "-H 'Content-Type: application/json' \\\n"
           "      -d '[\"hello\"]' http://127.0.0.1:4437/v1/stream/chats/1\n"
           "\n"
           "Make a link with which a browser can read that stream for ten minutes:\n"
           "  TIDEMARK_TOKEN=APP-TOKEN tidemark access mint --link --on chats/1 --actions read "
           "--expires 10m\n"
           "\n"
           "The admin token is for you: `tidemark ls`, /metrics, `tidemark access revoke`.\n",
           file, admin, app, file);
}

static int init_with(const struct init_flags *f)
{
    char admin[TOKEN_TEXT + 1], app[TOKEN_TEXT + 1];
    struct buf text = {0};
    make_token(admin);
    make_token(app);
    put_file(&text, f->public_url, admin, app);
    int status = write_file(f->config, buf_str(&text));
    if (status == CMD_OK)
        say_next(f->config, admin, app);
    explicit_bzero(admin, sizeof admin);
    explicit_bzero(app, sizeof app);
    buf_deinit(&text);
    return status;
}

int access_init(int argc, char **argv)
{
    struct init_flags f = {0};
    int status = CMD_USAGE, n;
    if (common_read(&command, &f, argc, argv, &n, &status)) {
        if (n > 0)
            common_fail(&command, "unexpected argument '%.60s'; --config names the file", argv[1]);
        else
            status = init_with(&f);
    }
    options_free(&command.flags, &f);
    return status;
}
