// SPDX-License-Identifier: Apache-2.0
/* Sessions of the library whose connections are cut at random, and whose program is killed at
 * random: nothing is lost, nothing comes twice, and the server answers each chunk once.
 *
 *     TIDEMARK_KILLS   how often the program is killed (20)
 *     TIDEMARK_SEEDS   how many sessions with cuts (4) */
#include "unit/client/session_site.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>

#include <cmocka.h>

#define WAIT_MS 20000
#define CHUNKS  120
#define PAIRS   64
#define PASSES  4000 /* bytes of a connection before it is cut, at most */

static unsigned setting(const char *name, unsigned standard)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : standard;
}

/* ---- a proxy that cuts ---- */

struct pair {
    int fds[2];   /* client, server; -1: free */
    long left[2]; /* bytes that still pass, from either */
};

static int socket_at(const char *folder, const char *name, bool listens)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/%s", folder, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int err = listens ? bind(fd, (struct sockaddr *)&at, sizeof at) | listen(fd, 64)
                      : connect(fd, (struct sockaddr *)&at, sizeof at);
    if (err != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void cut(struct pair *p)
{
    close(p->fds[0]);
    close(p->fds[1]);
    p->fds[0] = p->fds[1] = -1;
}

/* What may pass does, even if it is the half of something. */
static void relay(struct pair *p, int from)
{
    char bytes[2048];
    ssize_t n = read(p->fds[from], bytes, sizeof bytes);
    if (n > p->left[from])
        n = p->left[from];
    p->left[from] -= n;
    if (n <= 0 || send(p->fds[1 - from], bytes, (size_t)n, MSG_NOSIGNAL) != n || p->left[from] <= 0)
        cut(p);
}

static void take(struct pair *pairs, int listener, const char *folder)
{
    int client = accept(listener, NULL, NULL), server = socket_at(folder, "socket", false);
    for (int i = 0; i < PAIRS; i++)
        if (pairs[i].fds[0] < 0) {
            pairs[i] = (struct pair){{client, server}, {rand() % PASSES, rand() % PASSES}};
            if (server < 0)
                cut(&pairs[i]);
            return;
        }
    abort();
}

static void cut_for_ever(const char *folder, int listener, unsigned seed)
{
    struct pair pairs[PAIRS];
    srand(seed);
    for (int i = 0; i < PAIRS; i++)
        pairs[i].fds[0] = pairs[i].fds[1] = -1;
    for (;;) {
        struct pollfd polled[1 + 2 * PAIRS] = {{.fd = listener, .events = POLLIN}};
        for (int i = 0; i < 2 * PAIRS; i++)
            polled[1 + i] = (struct pollfd){.fd = pairs[i / 2].fds[i % 2], .events = POLLIN};
        poll(polled, 1 + 2 * PAIRS, -1);
        for (int i = 0; i < 2 * PAIRS; i++)
            if (polled[1 + i].revents != 0 && pairs[i / 2].fds[i % 2] == polled[1 + i].fd)
                relay(&pairs[i / 2], i % 2);
        if (polled[0].revents != 0)
            take(pairs, listener, folder);
    }
}

/* ---- a program ---- */

/* The transcript is the program's own: an event and its id in one write, so that it knows after any
 * crash what it has. */
static unsigned long last_id(int transcript)
{
    static char text[64 * 1024];
    ssize_t n = pread(transcript, text, sizeof text - 1, 0);
    unsigned long id = 0;
    text[n > 0 ? n : 0] = '\0';
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        id = strtoul(line, NULL, 10);
    return id;
}

/* Maybe in a process of its own, which cmocka does not know of. */
static void check(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "the program failed: %s\n", what);
    abort();
}

/* Returns when the session is complete. */
static void run_program(const char *server, enum tm_http http, const char *folder, bool saves)
{
    struct tm_options o = TM_OPTIONS_INIT;
    struct tm_session_options so = TM_SESSION_INIT;
    struct tm_client *c;
    struct tm_session *s;
    struct tm_event e;
    char path[96], state[96];
    snprintf(path, sizeof path, "%s/transcript", folder);
    snprintf(state, sizeof state, "%s/state", folder);
    int transcript = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unsigned long have = last_id(transcript);
    if (have == CHUNKS) {
        close(transcript);
        return;
    }
    o.server = server;
    o.http = http;
    so.key = "chaos";
    so.state_dir = saves ? state : NULL;
    so.reconnect_ms = 1;
    check(tm_open(&o, &c) == 0, "open");
    check(tm_session_new(c, &so, &s) == 0, tm_error(c));
    for (;;) {
        /* A few are on their way at a time. */
        uint64_t sent = tm_session_next_seqno(s);
        if (sent < CHUNKS && sent < have + 8) {
            char text[32];
            int n = snprintf(text, sizeof text, "chunk %u", (unsigned)sent);
            check(tm_session_send(s, text, (size_t)n, NULL) == 0, tm_error(c));
            continue;
        }
        if (sent == CHUNKS)
            check(tm_session_finish(s) == 0, tm_error(c));
        check(tm_session_wait(s, &e, WAIT_MS) == 1, "nothing comes");
        if (e.kind == TM_EVENT_END) {
            check(e.err == 0, e.text);
            break;
        }
        if (e.kind != TM_EVENT_CHUNK || strtoul(e.event_id, NULL, 10) <= have)
            continue;
        check(e.verified, "not verified");
        char line[96];
        int n = snprintf(line, sizeof line, "%s %.*s\n", e.event_id, (int)e.n, (char *)e.data);
        check(write(transcript, line, (size_t)n) == n, "write");
        have = strtoul(e.event_id, NULL, 10);
    }
    tm_session_free(s);
    tm_close(c);
    close(transcript);
}

/* Every chunk is answered once, in order: event i + 1 is chunk i. */
static void assert_transcript(const char *folder)
{
    char path[96], line[96], right[96];
    snprintf(path, sizeof path, "%s/transcript", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i < CHUNKS; i++) {
        assert_non_null(fgets(line, sizeof line, f));
        snprintf(right, sizeof right, "%d chunk %d\n", i + 1, i);
        assert_string_equal(line, right);
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
}

/* ---- tests ---- */

#define CONFIG "sync = never\n[session]\nhandler = echo\n"

static void with_cuts(enum tm_http http, unsigned seed)
{
    struct site site;
    char url[128];
    site_init(&site, CONFIG);
    int listener = socket_at(site.folder, "proxy", true);
    pid_t proxy = fork();
    if (proxy == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cut_for_ever(site.folder, listener, seed);
    }
    close(listener);
    snprintf(url, sizeof url, "unix:%s/proxy", site.folder);
    print_message("seed %u\n", seed);
    run_program(url, http, site.folder, false);
    assert_transcript(site.folder);
    kill(proxy, SIGKILL);
    waitpid(proxy, NULL, 0);
    site_deinit(&site);
}

static void test_cuts_http2(void **state)
{
    for (unsigned seed = 1; seed <= setting("TIDEMARK_SEEDS", 4); seed++)
        with_cuts(TM_HTTP_2, seed);
}

static void test_cuts_http1(void **state)
{
    for (unsigned seed = 1; seed <= setting("TIDEMARK_SEEDS", 4); seed++)
        with_cuts(TM_HTTP_1, seed);
}

/* Lets a program run for so long, and kills it. true: it was done before. */
static bool run_for(struct site *site, enum tm_http http, long ms)
{
    pid_t pid = fork();
    if (pid == 0) {
        run_program(site->url, http, site->folder, true);
        _exit(0);
    }
    int status = 0;
    if (ms >= 0) {
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
}

static void with_kills(enum tm_http http)
{
    struct site site;
    unsigned kills = 0, wanted = setting("TIDEMARK_KILLS", 20);
    srand(1);
    while (kills < wanted) {
        site_init(&site, CONFIG);
        while (kills < wanted && !run_for(&site, http, rand() % 150))
            kills++;
        if (kills == wanted)
            assert_true(run_for(&site, http, -1));
        assert_transcript(site.folder);
        site_deinit(&site);
    }
}

static void test_kills_http2(void **state)
{
    with_kills(TM_HTTP_2);
}

static void test_kills_http1(void **state)
{
    with_kills(TM_HTTP_1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts_http2),
        cmocka_unit_test(test_cuts_http1),
        cmocka_unit_test(test_kills_http2),
        cmocka_unit_test(test_kills_http1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
