// SPDX-License-Identifier: Apache-2.0
/* Folders laid out like /proc. What cannot be read is a folder where a file should be, or the other
 * way round: permissions would not stop root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/units.h"
#include "feature/cascade/cascade_discovery.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ME         1000
#define SOMEBODY   1001
#define TOKEN      "11111111-2222-4333-8444-555555555555"
#define OLD_TOKEN  "99999999-2222-4333-8444-555555555555"
#define WINDSURF   "/usr/share/windsurf/resources/bin/language_server_linux_x64"
#define ANTIGRAV   "/usr/share/antigravity/resources/bin/language_server_linux_x64"
#define VARIABLE   "WINDSURF_CSRF_TOKEN="
#define NO_ENVIRON "none"
#define NO_FDS     1

/* ---- a /proc ---- */

struct world {
    char root[32];
    struct buf tcp, tcp6, why;
    struct cascade_found found;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    if (w == NULL)
        return -1;
    snprintf(w->root, sizeof w->root, "/tmp/discovery-XXXXXX");
    *state = w;
    return mkdtemp(w->root) == NULL ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static int tear_down(void **state)
{
    struct world *w = *state;
    int err = nftw(w->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    buf_deinit(&w->tcp);
    buf_deinit(&w->tcp6);
    buf_deinit(&w->why);
    free(w);
    return err;
}

static const char *path_of(const struct world *w, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", w->root, name);
    return out;
}

static void make_folder(const struct world *w, const char *name)
{
    char path[128];
    assert_int_equal(mkdir(path_of(w, name, path), 0700), 0);
}

static void make_file(const struct world *w, const char *name, struct str bytes)
{
    char path[128];
    FILE *f = fopen(path_of(w, name, path), "w");
    assert_non_null(f);
    if (bytes.n > 0)
        assert_int_equal(fwrite(bytes.p, 1, bytes.n, f), bytes.n);
    assert_int_equal(fclose(f), 0);
}

static void make_link(const struct world *w, const char *name, const char *target)
{
    char path[128];
    assert_int_equal(symlink(target, path_of(w, name, path)), 0);
}

struct process {
    int pid;
    unsigned uid; /* ME if it is 0 */
    char state;   /* S if it is 0 */
    const char *comm;
    uint64_t started;
    const char *args;        /* separated by spaces */
    const char *environment; /* the same; NO_ENVIRON: it cannot be read */
    const char *exe;
    int socket; /* inode; NO_FDS: cannot be seen */
};

/* Spaces become NULs, and the last one has one, too. */
static void make_strings(const struct world *w, const char *name, const char *text)
{
    struct buf bytes = {0};
    for (const char *p = text; p != NULL && *p != '\0'; p++)
        buf_putc(&bytes, *p == ' ' ? '\0' : *p);
    if (bytes.n > 0)
        buf_putc(&bytes, '\0');
    make_file(w, name, buf_str(&bytes));
    buf_deinit(&bytes);
}

static void make_status(const struct world *w, const struct process *p)
{
    struct buf text = {0};
    char name[64];
    unsigned uid = p->uid != 0 ? p->uid : ME;
    char state = p->state != 0 ? p->state : 'S';
    const char *comm = p->comm != NULL ? p->comm : "language_server";
    snprintf(name, sizeof name, "%d/status", p->pid);
    buf_printf(&text, "Name:\t%s\nState:\t%c\nPid:\t%d\nUid:\t%u\t%u\t%u\t%u\nGid:\t0\t0\t0\t0\n",
               comm, state, p->pid, uid, uid, uid, uid);
    make_file(w, name, buf_str(&text));
    text.n = 0;
    snprintf(name, sizeof name, "%d/stat", p->pid);
    buf_printf(&text, "%d (%s) %c 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %llu 99 98\n",
               p->pid, comm, state, (unsigned long long)p->started);
    make_file(w, name, buf_str(&text));
    buf_deinit(&text);
}

static void make_process(const struct world *w, const struct process *p)
{
    char name[64], target[64];
    snprintf(name, sizeof name, "%d", p->pid);
    make_folder(w, name);
    make_status(w, p);
    snprintf(name, sizeof name, "%d/cmdline", p->pid);
    make_strings(w, name, p->args);
    snprintf(name, sizeof name, "%d/environ", p->pid);
    if (p->environment != NULL && strcmp(p->environment, NO_ENVIRON) == 0)
        make_folder(w, name);
    else
        make_strings(w, name, p->environment);
    snprintf(name, sizeof name, "%d/exe", p->pid);
    if (p->exe != NULL)
        make_link(w, name, p->exe);
    snprintf(name, sizeof name, "%d/fd", p->pid);
    if (p->socket == NO_FDS)
        return;
    make_folder(w, name);
    snprintf(name, sizeof name, "%d/fd/0", p->pid);
    make_link(w, name, "/dev/null");
    snprintf(name, sizeof name, "%d/fd/7", p->pid);
    snprintf(target, sizeof target, "socket:[%d]", p->socket);
    make_link(w, name, target);
}

static void remove_process(const struct world *w, int pid)
{
    char name[16], path[128];
    snprintf(name, sizeof name, "%d", pid);
    assert_int_equal(nftw(path_of(w, name, path), remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void add_socket(const struct world *w, int pid, int fd, int inode)
{
    char name[64], target[64];
    snprintf(name, sizeof name, "%d/fd/%d", pid, fd);
    snprintf(target, sizeof target, "socket:[%d]", inode);
    make_link(w, name, target);
}

#define V4_LOOPBACK "0100007F"
#define V4_ANY      "00000000"
#define V4_OUTSIDE  "0200A8C0"
#define V6_ANY      "00000000000000000000000000000000"
#define V6_LOOPBACK "00000000000000000000000001000000"
#define V6_MAPPED   "0000000000000000FFFF00000100007F"
#define LISTENING   0x0a
#define ESTABLISHED 0x01

static void listen_at(struct world *w, const char *address, unsigned port, unsigned state,
                      unsigned uid, int inode)
{
    struct buf *table = strlen(address) == 8 ? &w->tcp : &w->tcp6;
    if (table->n == 0)
        buf_put(table, STR("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
                           "retrnsmt   uid  timeout inode\n"));
    buf_printf(table,
               "%4d: %s:%04X %s:0000 %02X 00000000:00000000 00:00000000 00000000 %5u %8d %d 1 "
               "0000000000000000 100 0 0 10 0\n",
               0, address, port, address, state, uid, 0, inode);
}

static int discover(struct world *w)
{
    char path[128];
    if (access(path_of(w, "net", path), F_OK) != 0)
        make_folder(w, "net");
    make_file(w, "net/tcp", buf_str(&w->tcp));
    make_file(w, "net/tcp6", buf_str(&w->tcp6));
    w->why.n = 0;
    w->found = (struct cascade_found){.pid = -1};
    int err = cascade_discover(w->root, ME, &w->found, &w->why);
    buf_putc(&w->why, '\0');
    assert_null(strstr(w->why.p, "1111")); /* no token, nor a part of one */
    assert_null(strstr(w->why.p, "9999"));
    assert_int_equal(strlen(w->why.p) > 0, err != 0);
    if (err != 0)
        assert_int_equal(w->found.pid, -1);
    return err;
}

static void assert_found(struct world *w, pid_t pid, unsigned port, const char *version)
{
    assert_int_equal(discover(w), 0);
    assert_int_equal(w->found.pid, pid);
    assert_int_equal(w->found.port, port);
    assert_string_equal(w->found.csrf_token, TOKEN);
    assert_string_equal(w->found.version, version);
}

static void assert_none(struct world *w, const char *reason)
{
    assert_int_equal(discover(w), ERR_NOT_FOUND);
    if (strstr(w->why.p, reason) == NULL)
        fail_msg("another reason: %s", w->why.p);
}

/* ---- which process ---- */

static const struct process plain = {
    .pid = 500,
    .started = 1000,
    .args = WINDSURF " --stdin_initial_metadata --extension_server_port 42000 --ide_name windsurf "
                     "--windsurf_version 2.3.4+abc",
    .environment = "HOME=/home/me " VARIABLE TOKEN " PATH=/bin",
    .exe = WINDSURF,
    .socket = 77,
};

static void the_language_server_is_found(void **state)
{
    struct world *w = *state;
    static const struct process others[] = {
        {.pid = 1, .args = "/sbin/init", .environment = NO_ENVIRON, .socket = NO_FDS},
        {.pid = 2}, /* of the kernel: no arguments */
        {.pid = 700, .args = "/usr/bin/vim language_server_linux", .exe = "/usr/bin/vim"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        make_process(w, &others[i]);
    make_file(w, "uptime", STR("1 1\n"));
    make_folder(w, "123x");
    make_process(w, &plain);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_found(w, 500, 42003, "2.3.4");
}

static void without_one_there_is_none(void **state)
{
    assert_none(*state, "no language server of Windsurf is running as this user");
}

static void a_proc_that_is_not_there(void **state)
{
    struct cascade_found found;
    struct buf why = {0};
    assert_int_equal(cascade_discover("/nowhere/proc", ME, &found, &why), ERR_IO);
    buf_putc(&why, '\0');
    assert_non_null(strstr(why.p, "Linux alone"));
    buf_deinit(&why);
}

static void zombies_are_passed_over(void **state)
{
    struct world *w = *state;
    struct process zombie = plain;
    zombie.pid = 600;
    zombie.state = 'Z';
    zombie.started = 9000;
    make_process(w, &zombie);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_none(w, "is running as this user");
    make_process(w, &plain);
    assert_found(w, 500, 42003, "2.3.4");
}

/* Its name looks like the fields behind it. */
static void names_may_hold_anything(void **state)
{
    struct world *w = *state;
    struct process odd = plain;
    odd.comm = "a) Z 1 (b";
    make_process(w, &odd);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_found(w, 500, 42003, "2.3.4");
}

static void other_users_are_none_of_ours(void **state)
{
    struct world *w = *state;
    struct process theirs = plain;
    theirs.uid = SOMEBODY;
    make_process(w, &theirs);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, SOMEBODY, 77);
    assert_none(w, "is running as this user");
    /* One that runs with the rights of another, either. */
    make_file(w, "500/status", STR("Name:\tx\nUid:\t1000\t1001\t1000\t1000\n"));
    assert_none(w, "is running as this user");
    make_file(w, "500/status", STR("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n"));
    assert_found(w, 500, 42003, "2.3.4");
}

static void antigravity_is_told_apart(void **state)
{
    static const struct {
        const char *args, *exe;
        bool ours;
    } cases[] = {
        {ANTIGRAV " --ide_name antigravity", ANTIGRAV, false},
        {ANTIGRAV, ANTIGRAV, false},
        {WINDSURF, WINDSURF, true},
        {WINDSURF " --ide_name Windsurf", WINDSURF, true},
        {WINDSURF " --ide_name=windsurf", WINDSURF, true},
        {"/opt/Windsurf/language_server_linux_arm", NULL, true},
        {"/opt/ide/language_server_linux_x64 --ide_name windsurf", NULL, true},
        {"/opt/ide/language_server_linux_x64", NULL, false},
        /* What it says of itself counts, not where somebody has put it. */
        {"/home/me/windsurf/antigravity/language_server_linux_x64 --ide_name antigravity", NULL,
         false},
        /* A workspace is no program's folder. */
        {ANTIGRAV " --workspace /home/me/windsurf/x", ANTIGRAV, false},
        {"/opt/windsurfer/language_server_linux_x64", NULL, false},
        {"/usr/share/windsurf/bin/other_server", NULL, false},
        /* Called by another name, and replaced by an update since. */
        {"server", WINDSURF " (deleted)", true},
        {"language_server_linux_x64", WINDSURF " (deleted)", true},
        {"language_server_linux_x64", "/usr/bin/bash", false},
        /* A flag without its value. */
        {"/opt/ide/language_server_linux_x64 --ide_name", NULL, false},
        {WINDSURF " --ide_name_of antigravity", NULL, true},
    };
    struct world *w = *state;
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process p = plain;
        p.args = cases[i].args;
        p.exe = cases[i].exe;
        p.pid = 500;
        make_process(w, &p);
        bool found = discover(w) == 0;
        if (found != cases[i].ours)
            fail_msg("%s", cases[i].args);
        remove_process(w, p.pid);
    }
}

static void the_newest_comes_first(void **state)
{
    struct world *w = *state;
    struct process old = plain;
    old.pid = 900; /* numbers of processes begin anew, too */
    old.started = 10;
    old.environment = VARIABLE OLD_TOKEN;
    old.socket = 88;
    make_process(w, &old);
    make_process(w, &plain);
    listen_at(w, V4_LOOPBACK, 42001, LISTENING, ME, 88);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_found(w, 500, 42003, "2.3.4");
}

static void one_that_cannot_be_used_is_passed_over(void **state)
{
    struct world *w = *state;
    struct process young = plain;
    young.pid = 600;
    young.started = 5000;
    young.socket = 88; /* it does not listen yet */
    young.environment = VARIABLE OLD_TOKEN;
    make_process(w, &young);
    make_process(w, &plain);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_found(w, 500, 42003, "2.3.4");
}

static void a_huge_command_line_is_none_of_ours(void **state)
{
    struct world *w = *state;
    struct buf args = {0};
    buf_put(&args, STR(WINDSURF " --ide_name windsurf "));
    memset(buf_reserve(&args, MIB), 'x', MIB);
    args.n += MIB;
    buf_putc(&args, '\0');
    struct process huge = plain;
    huge.args = args.p;
    make_process(w, &huge);
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_none(w, "is running as this user");
    buf_deinit(&args);
}

static void many_reasons_are_given_in_order(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 12; i++) {
        struct process p = plain;
        p.pid = 100 + i;
        p.started = (uint64_t)i;
        p.environment = i == 11 ? NO_ENVIRON : "";
        make_process(w, &p);
    }
    assert_none(w, "can be used: process 111: its environment cannot be read; process 110: it has "
                   "no CSRF token; process 109:");
    assert_null(strstr(w->why.p, "process 103")); /* enough is enough */
}

/* ---- the token ---- */

static void tokens_come_from_two_places(void **state)
{
    static const struct {
        const char *environment, *args;
        bool found;
    } cases[] = {
        {VARIABLE TOKEN, WINDSURF " --csrf_token " OLD_TOKEN, true},
        {"A=b", WINDSURF " --csrf_token " TOKEN, true},
        {"A=b", WINDSURF " --csrf_token=" TOKEN, true},
        {NO_ENVIRON, WINDSURF " --csrf_token " TOKEN, true},
        {NO_ENVIRON, WINDSURF, false},
        {"MY_" VARIABLE TOKEN, WINDSURF, false},
        {VARIABLE "1111", WINDSURF, false},
        {VARIABLE TOKEN "1", WINDSURF, false},
        {VARIABLE " " VARIABLE TOKEN, WINDSURF, true},
        {"A=" VARIABLE TOKEN, WINDSURF, false},
        {"", WINDSURF " --csrf_token", false},
        {"", WINDSURF " --csrf_token 11111111-2222-4333-8444-55555555555X", false},
    };
    struct world *w = *state;
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process p = plain;
        p.environment = cases[i].environment;
        p.args = cases[i].args;
        make_process(w, &p);
        if (cases[i].found)
            assert_found(w, 500, 42003, "2.0.0");
        else
            assert_none(w, strcmp(p.environment, NO_ENVIRON) == 0 ? "environment cannot be read"
                                                                  : "no CSRF token");
        remove_process(w, p.pid);
    }
}

/* ---- the port ---- */

static void the_lowest_above_the_extension_servers_is_taken(void **state)
{
    struct world *w = *state;
    make_process(w, &plain);
    add_socket(w, 500, 8, 78);
    add_socket(w, 500, 9, 79);
    listen_at(w, V4_LOOPBACK, 41000, LISTENING, ME, 78);
    assert_found(w, 500, 41000, "2.3.4"); /* none is above */
    listen_at(w, V4_LOOPBACK, 42010, LISTENING, ME, 77);
    listen_at(w, V4_LOOPBACK, 42005, LISTENING, ME, 79);
    assert_found(w, 500, 42005, "2.3.4");
}

static void without_an_extension_server_it_is_the_lowest(void **state)
{
    struct world *w = *state;
    struct process p = plain;
    p.args = WINDSURF " --extension_server_port 70000";
    make_process(w, &p);
    add_socket(w, 500, 8, 78);
    listen_at(w, V4_LOOPBACK, 42010, LISTENING, ME, 77);
    listen_at(w, V4_LOOPBACK, 42005, LISTENING, ME, 78);
    assert_found(w, 500, 42005, "2.0.0");
}

static void only_what_listens_here_counts(void **state)
{
    struct world *w = *state;
    make_process(w, &plain);
    listen_at(w, V4_LOOPBACK, 42001, ESTABLISHED, ME, 77);
    listen_at(w, V4_OUTSIDE, 42002, LISTENING, ME, 77);
    listen_at(w, V6_LOOPBACK, 42003, LISTENING, ME, 77); /* 127.0.0.1 does not lead there */
    listen_at(w, V4_LOOPBACK, 42004, LISTENING, ME, 99); /* somebody else's */
    buf_put(&w->tcp, STR("nonsense\n   1: 0100007F:A413\n"));
    assert_none(w, "it does not listen on 127.0.0.1");
    listen_at(w, V6_MAPPED, 42005, LISTENING, ME, 77);
    assert_found(w, 500, 42005, "2.3.4");
}

static void any_address_is_here_too(void **state)
{
    static const char *const addresses[] = {V4_ANY, V6_ANY, V6_MAPPED, V4_LOOPBACK};
    struct world *w = *state;
    make_process(w, &plain);
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        w->tcp.n = w->tcp6.n = 0;
        listen_at(w, addresses[i], 42003, LISTENING, ME, 77);
        assert_found(w, 500, 42003, "2.3.4");
    }
}

/* The token must not go to whoever is quick enough to listen there. */
static void a_guess_is_made_of_our_own_ports_alone(void **state)
{
    struct world *w = *state;
    struct process p = plain;
    p.socket = NO_FDS;
    make_process(w, &p);
    assert_none(w, "its sockets cannot be seen");
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, SOMEBODY, 77);
    assert_none(w, "its sockets cannot be seen");
    listen_at(w, V4_LOOPBACK, 42004, LISTENING, ME, 78);
    assert_none(w, "its sockets cannot be seen");
    w->tcp.n = 0;
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    assert_found(w, 500, 42003, "2.3.4");
}

static void without_an_extension_server_there_is_no_guess(void **state)
{
    struct world *w = *state;
    struct process p = plain;
    p.socket = NO_FDS;
    p.args = WINDSURF;
    make_process(w, &p);
    listen_at(w, V4_LOOPBACK, 3, LISTENING, ME, 77);
    assert_none(w, "its sockets cannot be seen");
}

/* ---- the version ---- */

static void versions_are_cut_and_checked(void **state)
{
    static const struct {
        const char *args, *version;
    } cases[] = {
        {WINDSURF " --windsurf_version 1.48.2", "1.48.2"},
        {WINDSURF " --windsurf_version=1.48.2+next.7", "1.48.2"},
        {WINDSURF " --windsurf_version 1.0 --windsurf_version 2.0-rc1", "2.0-rc1"},
        {WINDSURF " --windsurf_version +abc", "2.0.0"},
        {WINDSURF " --windsurf_version 1.0\n", "2.0.0"},
        {WINDSURF " --windsurf_version 111111111122222222223333333333444", "2.0.0"},
        {WINDSURF " --windsurf_version", "2.0.0"},
        {WINDSURF, "2.0.0"},
    };
    struct world *w = *state;
    listen_at(w, V4_LOOPBACK, 42003, LISTENING, ME, 77);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process p = plain;
        p.args = cases[i].args;
        make_process(w, &p);
        assert_found(w, 500, 42003, cases[i].version);
        remove_process(w, p.pid);
    }
}

/* ---- the real one ---- */

/* What this program is when it is called like one: listens, says where, and ends with its input. */
static int be_language_server(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char c;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, n) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) != 0)
        return 1;
    uint16_t port = ntohs(address.sin_port);
    if (write(STDOUT_FILENO, &port, sizeof port) != sizeof port)
        return 1;
    return read(STDIN_FILENO, &c, 1) == 0 ? 0 : 1;
}

static pid_t start_language_server(int *input, int *output)
{
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char program[] = WINDSURF, flag[] = "--windsurf_version", version[] = "3.1+x";
        char variable[] = VARIABLE TOKEN;
        char *args[] = {program, flag, version, NULL};
        char *environment[] = {variable, NULL};
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execve("/proc/self/exe", args, environment);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    *input = in[1];
    *output = out[0];
    return pid;
}

/* It is the newest on this machine, so that no other one's environment is looked at. */
static void a_process_of_this_machine_is_found(void **state)
{
    struct world *w = *state;
    int input, output, status;
    uint16_t port;
    pid_t pid = start_language_server(&input, &output);
    assert_int_equal(read(output, &port, sizeof port), sizeof port);
    int err = cascade_discover("/proc", getuid(), &w->found, &w->why);
    close(input);
    close(output);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(err, 0);
    assert_int_equal(w->found.pid, pid);
    assert_int_equal(w->found.port, port);
    assert_string_equal(w->found.csrf_token, TOKEN);
    assert_string_equal(w->found.version, "3.1");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
    if (strcmp(argv[0], WINDSURF) == 0)
        return be_language_server();
    const struct CMUnitTest tests[] = {
        TEST(the_language_server_is_found),
        TEST(without_one_there_is_none),
        TEST(a_proc_that_is_not_there),
        TEST(zombies_are_passed_over),
        TEST(names_may_hold_anything),
        TEST(other_users_are_none_of_ours),
        TEST(antigravity_is_told_apart),
        TEST(the_newest_comes_first),
        TEST(one_that_cannot_be_used_is_passed_over),
        TEST(a_huge_command_line_is_none_of_ours),
        TEST(many_reasons_are_given_in_order),
        TEST(tokens_come_from_two_places),
        TEST(the_lowest_above_the_extension_servers_is_taken),
        TEST(without_an_extension_server_it_is_the_lowest),
        TEST(only_what_listens_here_counts),
        TEST(any_address_is_here_too),
        TEST(a_guess_is_made_of_our_own_ports_alone),
        TEST(without_an_extension_server_there_is_no_guess),
        TEST(versions_are_cut_and_checked),
        TEST(a_process_of_this_machine_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
