// SPDX-License-Identifier: Apache-2.0
#include "store/doctor/doctor.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/options.h"
#include "base/secret.h"
#include "cmd/cmd.h"
#include "cmd/cmd_doctor_redis.h"
#include "store/embedded/vfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_SIZE   4096
#define PROGRESS_MS 1000

struct doctor_flags {
    bool repair;
};

#define ROW(...) OPTION_ROW(struct doctor_flags, __VA_ARGS__)

static const struct option_row rows[] = {
    {ROW("repair", OPTION_BOOL, repair),
     .help = "Repair what can be repaired. All that verifies is kept; what does not is never "
             "deleted, but set aside under the name NAME.damaged."},
};

static const struct options options = {rows, sizeof rows / sizeof *rows};

static void print_help(void)
{
    fputs("Usage: tidemark doctor [flags] DIR\n"
          "       tidemark doctor redis://...\n"
          "\n"
          "Verifies the data directory DIR of a server that is not running: every row of the\n"
          "index, every event in the segments, every batch of the journal; and says what is\n"
          "wrong. Without --repair nothing is changed.\n"
          "\n"
          "With the URL of a Redis, as `serve --store` takes it: says what this Redis promises to\n"
          "keep, and what of it would lose streams.\n"
          "\n"
          "The exit status is 0 if all is well; 1 if something is wrong (after a repair: if\n"
          "something still is), or if it cannot be verified; 2 if the command is wrong.\n"
          "\n"
          "Flags:\n",
          stdout);
    options_help(&options, stdout);
    fputs("\n"
          "Examples:\n"
          "  tidemark doctor /var/lib/tidemark\n"
          "  tidemark doctor /var/lib/tidemark --repair\n"
          "  tidemark doctor 'redis://127.0.0.1:6379?wait=1'\n",
          stdout);
}

static int __attribute__((format(printf, 2, 3))) cmd_doctor_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fflush(stdout);
    fputs("tidemark doctor: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return status;
}

/* From the command line alone: a variable of the environment must not begin a repair. */
static bool read_line(struct doctor_flags *flags, int argc, char **argv, int *status)
{
    char why[512] = "";
    int n = 0, err = options_defaults(&options, flags, why, sizeof why);
    if (err == 0)
        err = options_args(&options, flags, argc - 1, argv + 1, &n, why, sizeof why);
    if (err == ERR_CANCELLED) {
        print_help();
        *status = CMD_OK;
        return false;
    }
    if (err == 0 && n != 1)
        snprintf(why, sizeof why,
                 "%s; it is called as `tidemark doctor DIR` or with the URL of a Redis",
                 n == 0 ? "an argument is missing" : "too many arguments");
    if (err == 0 && n == 1)
        return true;
    *status = cmd_doctor_fail(CMD_USAGE, "%s\n`tidemark doctor --help` explains it.", why);
    return false;
}

/* ---- what is said ---- */

struct screen {
    bool terminal;
    bool line; /* the progress stands there, without an end */
    uint64_t next_ms;
};

static void clear_line(struct screen *s)
{
    if (s->line)
        fputs("\r\033[K", stderr);
    s->line = false;
}

static void cmd_doctor_say(void *ctx, enum doctor_tone tone, const char *sentence)
{
    static const char *const begin[] = {
        [DOCTOR_NOTE] = "note: ", [DOCTOR_WRONG] = "WRONG: ", [DOCTOR_DONE] = "repaired: "};
    clear_line(ctx);
    printf("%s%s.\n", begin[tone], sentence);
}

static void cmd_doctor_show_progress(void *ctx, uint64_t done, uint64_t all)
{
    struct screen *s = ctx;
    uint64_t now = clock_mono_ms();
    if (!s->terminal || now < s->next_ms)
        return;
    s->next_ms = now + PROGRESS_MS;
    s->line = true;
    fflush(stdout);
    fprintf(stderr, "\r\033[K%" PRIu64 " of %" PRIu64 " MiB verified", done >> 20, all >> 20);
    fflush(stderr);
}

static void print_totals(const struct doctor *d)
{
    printf("%" PRIu64 " streams with %" PRIu64 " events at rest, %" PRIu64
           " batches in the journal; %" PRIu64 " files, %" PRIu64 " bytes.\n",
           d->streams, d->events, d->batches, d->files, d->bytes);
    if (d->found == 0)
        puts("All is well.");
    else if (!d->repaired)
        printf("%" PRIu64 " %s wrong.%s\n", d->found, d->found == 1 ? "thing is" : "things are",
               d->repair ? " None of it can be repaired; all the rest can be used." : "");
    else if (d->left == 0)
        printf("%" PRIu64 " %s wrong, and all is well now.\n", d->found,
               d->found == 1 ? "thing was" : "things were");
    else
        printf("%" PRIu64 " %s wrong, and %" PRIu64
               " cannot be repaired; all the rest can be used.\n",
               d->found, d->found == 1 ? "thing was" : "things were", d->left);
    if (d->found > 0 && !d->repair)
        puts("`tidemark doctor DIR --repair` repairs what can be repaired; copy DIR before, if "
             "there "
             "is room.");
}

/* ---- the directory ---- */

static bool has(const char *dir, const char *name)
{
    char path[PATH_SIZE];
    struct stat st;
    return snprintf(path, sizeof path, "%s/%s", dir, name) < PATH_SIZE && stat(path, &st) == 0;
}

/* Opening it would make it, and a typing error would be found to be sound. */
static int check_dir(const char *dir)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return cmd_doctor_fail(CMD_USAGE, "%s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return cmd_doctor_fail(CMD_USAGE, "%s is not a directory", dir);
    if (has(dir, "index.mdb") || has(dir, "journal") || has(dir, "segments"))
        return CMD_OK;
    return cmd_doctor_fail(
        CMD_USAGE,
        "%s is no data directory of tidemark: it has no index.mdb, no journal and no "
        "segments",
        dir);
}

static int examine(struct vfs *vfs, const char *dir, bool repair)
{
    char path[PATH_SIZE], why[512];
    struct screen screen = {.terminal = isatty(STDERR_FILENO),
                            .next_ms = clock_mono_ms() + PROGRESS_MS};
    struct doctor d = {.vfs = vfs,
                       .index_path = path,
                       .sync = true,
                       .repair = repair,
                       .ctx = &screen,
                       .say = cmd_doctor_say,
                       .progress = cmd_doctor_show_progress};
    if (snprintf(path, sizeof path, "%s/index.mdb", dir) >= PATH_SIZE)
        return cmd_doctor_fail(CMD_USAGE, "the path of the directory is too long");
    int err = doctor_run(&d, why, sizeof why);
    clear_line(&screen);
    if (err != 0)
        return cmd_doctor_fail(CMD_FAILED, "%s", why);
    print_totals(&d);
    return d.left == 0 ? CMD_OK : CMD_FAILED;
}

/* url: in argv, where every user of the machine would see its password as long as this takes. */
static int examine_redis(char *url)
{
    size_t n = strlen(url) + 1;
    char *copy = memcpy(secret_alloc(n), url, n);
    options_hide_url(url);
    int status = doctor_redis(str_of_cstr(copy));
    secret_free(copy, n);
    return status;
}

int cmd_doctor(int argc, char **argv)
{
    struct doctor_flags flags = {0};
    char why[512];
    int status;
    if (!read_line(&flags, argc, argv, &status))
        return status;
    const char *dir = argv[1];
    if (doctor_is_redis(str_of_cstr(dir)))
        return examine_redis(argv[1]);
    status = check_dir(dir);
    if (status != CMD_OK)
        return status;
    struct vfs *vfs = vfs_posix_new(dir, why, sizeof why);
    if (vfs == NULL)
        return cmd_doctor_fail(CMD_FAILED, "%s", why);
    status = examine(vfs, dir, flags.repair);
    vfs_free(vfs);
    return status;
}
