// SPDX-License-Identifier: Apache-2.0
/* Tools over a Unix socket: frames, what they say, time limits and the socket's file. */
#include "tools_world.h"
#include "base/err.h"
#include "net/addr.h"
#include "feature/tools/tools_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>

struct site {
    struct world *w;
    struct tools_socket *socket;
    struct option_list capabilities;
    char *granted[2];
};

static struct site *site_with(const struct tools_socket_setup *given)
{
    struct site *s = mem_zalloc(sizeof *s);
    struct tools_socket_setup setup = given != NULL ? *given : (struct tools_socket_setup){0};
    char why[256];
    s->w = world_new(NULL);
    s->granted[0] = (char *)"a:b";
    s->granted[1] = (char *)"tool";
    s->capabilities = (struct option_list){.items = s->granted, .n = 2};
    setup.loop = &s->w->loop;
    setup.service = s->w->service;
    setup.trace = &s->w->trace;
    setup.capabilities = &s->capabilities;
    s->socket = tools_socket_new(&setup, why, sizeof why);
    assert_non_null(s->socket);
    return s;
}

static int set_up(void **state)
{
    *state = site_with(NULL);
    return 0;
}

static void site_free(struct site *s)
{
    bool stopped = false;
    tools_socket_cut(s->socket);
    tools_socket_stop(s->socket, world_stopped, &stopped);
    while (!stopped)
        world_turn(s->w);
    tools_socket_free(s->socket);
    world_free(s->w);
    free(s);
}

static int tear_down(void **state)
{
    site_free(*state);
    return 0;
}

static int join(struct site *s)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    tools_socket_accept(s->socket, fds[0]);
    return fds[1];
}

static void put(int fd, const char *json)
{
    size_t n = strlen(json);
    unsigned char head[4] = {(unsigned char)(n >> 24), (unsigned char)(n >> 16),
                             (unsigned char)(n >> 8), (unsigned char)n};
    assert_int_equal(write(fd, head, 4), 4);
    assert_int_equal(write(fd, json, n), (ssize_t)n);
}

/* n bytes, or fewer at the end of the connection. */
static size_t get_bytes(struct site *s, int fd, char *into, size_t n)
{
    size_t got = 0;
    for (int i = 0; i < 4000 && got < n; i++) {
        ssize_t k = read(fd, into + got, n - got);
        if (k == 0)
            break;
        if (k > 0)
            got += (size_t)k;
        else
            world_turn(s->w);
    }
    return got;
}

/* The next answer; "" at the end of the connection. Until the next call. */
static const char *get(struct site *s, int fd)
{
    static char json[64 * 1024];
    unsigned char head[4];
    json[0] = '\0';
    if (get_bytes(s, fd, (char *)head, 4) < 4)
        return json;
    size_t n = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
    assert_true(n < sizeof json);
    assert_int_equal(get_bytes(s, fd, json, n), n);
    json[n] = '\0';
    return json;
}

#define expect(s, fd, ask, answer)                                                                 \
    do {                                                                                           \
        put(fd, ask);                                                                              \
        assert_string_equal(get(s, fd), answer);                                                   \
    } while (0)

#define RUN  "{\"type\":\"run_tool\",\"tool_id\":\"plain\",\"args\":{},\"dry_run\":false}"
#define PONG "{\"type\":\"pong\"}"
#define ACK(has)                                                                                   \
    "{\"type\":\"hello_ack\",\"granted_capabilities\":[" has "],\"server_version\":"               \
    "\"tidemark " TIDEMARK_VERSION "\",\"supported_tiers\":[\"hot\",\"warm\",\"cold\"]}"
#define BAD(why) "{\"type\":\"error\",\"message\":\"" why "\",\"code\":400,\"retryable\":false}"

static void frames_are_as_published(void **state)
{
    static const char ping[] = "\0\0\0\x0f{\"type\":\"ping\"}", pong[] = "\0\0\0\x0f" PONG;
    char got[sizeof pong];
    struct site *s = *state;
    int fd = join(s);
    /* A byte at a time is a frame, too. */
    for (size_t i = 0; i < sizeof ping - 1; i++) {
        assert_int_equal(write(fd, ping + i, 1), 1);
        world_turn(s->w);
    }
    assert_int_equal(get_bytes(s, fd, got, sizeof pong - 1), sizeof pong - 1);
    assert_memory_equal(got, pong, sizeof pong - 1);
    expect(s, fd, "{\"type\":\"hello\",\"client_id\":\"a\",\"requested_capabilities\":[]}",
           ACK(""));
    close(fd);
}

static void frames_are_taken_whole(void **state)
{
    struct str json = STR("x");
    assert_int_equal(tools_frame_take(STR(""), &json), 0);
    assert_int_equal(tools_frame_take(STR("\0\0\0"), &json), 0);
    assert_int_equal(tools_frame_take(STR("\0\0\0\2a"), &json), 0);
    assert_true(str_eq(json, STR("x")));
    assert_int_equal(tools_frame_take(STR("\0\0\0\2abc"), &json), 1);
    assert_true(str_eq(json, STR("ab")));
    assert_int_equal(tools_frame_take(STR("\0\0\0\0"), &json), 1);
    assert_int_equal(json.n, 0);
    assert_int_equal(tools_frame_take(STR("\x00\xa0\x00\x00"), &json), 0); /* 10 MiB */
    assert_int_equal(tools_frame_take(STR("\x00\xa0\x00\x01"), &json), ERR_TOO_LARGE);
    assert_int_equal(tools_frame_take(STR("\xff\xff\xff\xff"), &json), ERR_TOO_LARGE);
}

static void a_hello_says_who(void **state)
{
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int fd = join(s);
    put(fd, RUN);
    get(s, fd);
    assert_false(t->had_caller);
    expect(s, fd, "{\"type\":\"hello\",\"client_id\":\"conformance\"}", ACK(""));
    expect(s, fd,
           "{\"type\":\"hello\",\"client_id\":\"me\",\"ucan_tokens\":[1],"
           "\"requested_capabilities\":[\"worker\",\"tool\",\"a:b\",\"a:b\"]}",
           ACK("\"a:b\",\"tool\""));
    put(fd, RUN);
    get(s, fd);
    assert_true(str_eq(buf_str(&t->caller), STR("me")));
    assert_true(str_eq(buf_str(&t->capabilities), STR("a:b tool ")));
    /* Another one takes back what the first was given. */
    expect(s, fd, "{\"type\":\"hello\",\"client_id\":\"\"}", ACK(""));
    put(fd, RUN);
    get(s, fd);
    assert_true(t->had_caller);
    assert_int_equal(t->caller.n, 0);
    assert_int_equal(t->capabilities.n, 0);
    expect(s, fd, "{\"type\":\"hello\",\"client_id\":null}", ACK(""));
    put(fd, RUN);
    get(s, fd);
    assert_false(t->had_caller);
    close(fd);
}

static void lists_and_schemas(void **state)
{
    struct site *s = *state;
    int fd = join(s);
    put(fd, "{\"type\":\"tool_list\"}");
    assert_non_null(strstr(get(s, fd), "{\"type\":\"tool_list\",\"tools\":[{\"id\":"
                                       "\"conformance:page_gen\""));
    expect(s, fd, "{\"type\":\"tool_schema\",\"tool_id\":\"plain\"}",
           "{\"type\":\"tool_schema\",\"schema\":{\"id\":\"plain\",\"description\":"
           "\"One \\\"thing\\\".\",\"input_schema\":{\"type\":\"object\"},\"capability\":\"a:b\","
           "\"paginated\":false}}");
    expect(s, fd, "{\"type\":\"tool_schema\",\"tool_id\":\"x\"}",
           "{\"type\":\"error\",\"message\":\"tool not found: x\",\"retryable\":false}");
    close(fd);
}

static void results_and_continuations(void **state)
{
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int fd = join(s);
    t->next_cursor = "c2";
    expect(s, fd,
           "{\"type\":\"run_tool\",\"tool_id\":\"plain\",\"args\":{\"a\":1},\"dry_run\":true,"
           "\"more\":[]}",
           "{\"type\":\"tool_result\",\"tool_id\":\"plain\",\"result\":[{\"row\":0}],"
           "\"success\":true,\"dry_run\":true,\"next_cursor\":\"c2\"}");
    assert_true(t->dry_run && str_eq(buf_str(&t->args), STR("{\"a\":1}")));
    t->next_cursor = NULL;
    expect(s, fd, "{\"type\":\"run_tool_continue\",\"tool_id\":\"plain\",\"cursor\":\"c2\"}",
           "{\"type\":\"tool_result\",\"tool_id\":\"plain\",\"result\":[{\"row\":0}],"
           "\"success\":true,\"dry_run\":false}");
    assert_true(t->had_cursor && t->args.n == 0 && !t->loose);
    put(fd, "{\"type\":\"run_tool_continue\",\"tool_id\":\"plain\",\"cursor\":\"\",\"args\":{}}");
    get(s, fd);
    assert_true(t->had_cursor && t->cursor.n == 0);
    assert_true(str_eq(buf_str(&t->args), STR("{}")));
    t->outcome = TOOL_EXECUTION_FAILED;
    t->result = "{\"code\":\"E\",\"message\":\"m\",\"retryable\":false}";
    expect(s, fd, RUN,
           "{\"type\":\"tool_result\",\"tool_id\":\"plain\",\"result\":{\"code\":\"E\","
           "\"message\":\"m\",\"retryable\":false},\"success\":false,\"dry_run\":false}");
    close(fd);
}

static void every_code_is_told(void **state)
{
    static const struct {
        enum tool_outcome outcome;
        uint16_t code;
        bool retryable;
        const char *details, *answer;
    } rows[] = {
        {TOOL_CAPABILITY_DENIED, 1001, false, "{\"required\":[\"x\"]}",
         "\"code\":1001,\"retryable\":false,\"details\":{\"required\":[\"x\"]}}"},
        {TOOL_RATE_LIMITED, 1002, true, NULL, "\"code\":1002,\"retryable\":true}"},
        {TOOL_CURSOR_REFUSED, 1020, false, NULL, "\"code\":1020,\"retryable\":false}"},
        {TOOL_CURSOR_REFUSED, 1021, false, NULL, "\"code\":1021,\"retryable\":false}"},
        {TOOL_TOOL_NOT_FOUND, 0, false, NULL, "\"retryable\":false}"},
        {TOOL_INVALID_ARGS, 0, false, NULL, "\"retryable\":false}"},
    };
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int fd = join(s);
    t->message = "what";
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf answer = {0};
        t->outcome = rows[i].outcome;
        t->code = rows[i].code;
        t->retryable = rows[i].retryable;
        t->details = rows[i].details;
        buf_printf(&answer, "{\"type\":\"error\",\"message\":\"what\",%s%c", rows[i].answer, 0);
        expect(s, fd, RUN, answer.p);
        buf_deinit(&answer);
    }
    close(fd);
}

static void what_is_no_message_ends_it(void **state)
{
    static const struct {
        const char *ask, *why;
    } rows[] = {
        {"{", "the message is no JSON object"},
        {"", "the message is no JSON object"},
        {"[]", "the message is no JSON object"},
        {"{\"type\":\"ping\"} x", "the message is no JSON object"},
        {"{\"type\":\"pang\"}", "unknown type of message"},
        {"{\"type\":1}", "unknown type of message"},
        {"{}", "unknown type of message"},
        {"{\"type\":\"run_tool\",\"tool_id\":\"a\",\"args\":{}}", "dry_run must be true or false"},
        {"{\"type\":\"run_tool\",\"tool_id\":\"a\",\"dry_run\":true}", "args is missing"},
        {"{\"type\":\"run_tool\",\"args\":{},\"dry_run\":true}", "tool_id must be a string"},
        {"{\"type\":\"run_tool_continue\",\"tool_id\":\"a\"}", "cursor must be a string"},
        {"{\"type\":\"run_tool_continue\",\"tool_id\":\"a\",\"cursor\":null}",
         "cursor must be a string"},
        {"{\"type\":\"tool_schema\"}", "tool_id must be a string"},
        {"{\"type\":\"hello\",\"client_id\":1}", "client_id must be a string"},
        {"{\"type\":\"hello\",\"requested_capabilities\":{}}",
         "requested_capabilities must be an array of strings"},
        {"{\"type\":\"hello\",\"requested_capabilities\":[1]}",
         "requested_capabilities must be an array of strings"},
    };
    struct site *s = *state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf answer = {0};
        int fd = join(s);
        put(fd, rows[i].ask);
        put(fd, "{\"type\":\"ping\"}"); /* is not looked at any more */
        buf_printf(&answer, BAD("%s") "%c", rows[i].why, 0);
        assert_string_equal(get(s, fd), answer.p);
        assert_string_equal(get(s, fd), "");
        buf_deinit(&answer);
        close(fd);
    }
    assert_int_equal(s->w->tools.n_calls, 0);
    int fd = join(s);
    assert_int_equal(write(fd, "\x00\xa0\x00\x01", 4), 4); /* nothing of it is waited for */
    assert_string_equal(get(s, fd), BAD("a frame has at most 10 MiB"));
    assert_string_equal(get(s, fd), "");
    close(fd);
}

static void too_many_capabilities(void **state)
{
    struct site *s = *state;
    struct buf ask = {0};
    int fd = join(s);
    buf_put(&ask, STR("{\"type\":\"hello\",\"requested_capabilities\":[\"a\""));
    for (int i = 0; i < 64; i++)
        buf_put(&ask, STR(",\"a\""));
    buf_put(&ask, STR("]}\0"));
    expect(s, fd, ask.p, BAD("too many requested_capabilities"));
    buf_deinit(&ask);
    close(fd);
}

static void one_at_a_time_and_in_order(void **state)
{
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int fd = join(s);
    t->hold = true;
    put(fd, RUN);
    put(fd, "{\"type\":\"ping\"}");
    put(fd, RUN);
    while (t->n_calls == 0)
        world_turn(s->w);
    world_turns(s->w, 5);
    assert_int_equal(t->n_calls, 1);
    fake_release(t);
    assert_non_null(strstr(get(s, fd), "tool_result"));
    assert_string_equal(get(s, fd), PONG);
    assert_non_null(strstr(get(s, fd), "tool_result"));
    assert_int_equal(t->n_calls, 2);
    assert_int_equal(t->max_at_once, 0);
    close(fd);
}

static void whoever_leaves_ends_the_call(void **state)
{
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int fd = join(s);
    t->hold = true;
    put(fd, RUN);
    while (t->n_calls == 0)
        world_turn(s->w);
    close(fd);
    for (int i = 0; i < 1000 && t->n_cancelled == 0; i++)
        world_turn(s->w);
    assert_int_equal(t->n_cancelled, 1);
}

static void whoever_only_ends_sending_is_answered(void **state)
{
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int fd = join(s);
    t->hold = true;
    put(fd, RUN);
    shutdown(fd, SHUT_WR);
    while (t->n_calls == 0)
        world_turn(s->w);
    world_turns(s->w, 5);
    fake_release(t);
    assert_non_null(strstr(get(s, fd), "tool_result"));
    assert_string_equal(get(s, fd), "");
    assert_int_equal(t->n_cancelled, 0);
    close(fd);
}

static void answers_fit_into_frames(void **state)
{
    struct site *s = *state;
    char *large = mem_alloc(TOOLS_FRAME_MAX + 2);
    int fd = join(s);
    memset(large, '1', TOOLS_FRAME_MAX + 1);
    large[TOOLS_FRAME_MAX + 1] = '\0';
    s->w->tools.result = large;
    expect(s, fd, RUN,
           "{\"type\":\"error\",\"message\":\"the answer does not fit in a frame; ask for smaller "
           "pages\",\"retryable\":false}");
    free(large);
    close(fd);
}

/* ---- time ---- */

static bool is_closed(struct site *s, int fd, int turns)
{
    char c;
    for (int i = 0; i < turns; i++) {
        if (read(fd, &c, 1) == 0)
            return true;
        world_turn(s->w);
    }
    return false;
}

static void time_limits(void **state)
{
    struct site *s =
        site_with(&(struct tools_socket_setup){.hello_ms = 50, .active_ms = 10 * 60 * 1000});
    int silent = join(s), half = join(s), known = join(s), slow = join(s);
    put(known, "{\"type\":\"hello\"}");
    assert_int_equal(write(half, "\0\0\0\x0f{", 5), 5);
    get(s, known);
    s->w->tools.hold = true;
    put(slow, RUN); /* how long a call takes is not its client's fault */
    assert_true(is_closed(s, silent, 1000));
    assert_true(is_closed(s, half, 1000));
    assert_false(is_closed(s, known, 30));
    assert_false(is_closed(s, slow, 30));
    fake_release(&s->w->tools);
    assert_non_null(strstr(get(s, slow), "tool_result"));
    assert_true(is_closed(s, slow, 1000));
    close(silent), close(half), close(known), close(slow);
    site_free(s);
    s = site_with(&(struct tools_socket_setup){.hello_ms = 10 * 60 * 1000, .active_ms = 50});
    known = join(s), silent = join(s);
    put(known, "{\"type\":\"hello\"}");
    get(s, known);
    assert_true(is_closed(s, known, 1000));
    assert_false(is_closed(s, silent, 30));
    close(known), close(silent);
    site_free(s);
}

static void only_so_many_at_a_time(void **state)
{
    struct site *s = *state;
    int fds[TOOLS_SOCKET_CONNS + 1];
    for (size_t i = 0; i < COUNT(fds); i++)
        fds[i] = join(s);
    assert_true(is_closed(s, fds[TOOLS_SOCKET_CONNS], 10));
    expect(s, fds[TOOLS_SOCKET_CONNS - 1], "{\"type\":\"ping\"}", PONG);
    for (size_t i = 0; i < COUNT(fds); i++)
        close(fds[i]);
}

static void draining_waits_for_answers(void **state)
{
    struct site *s = *state;
    struct tools *t = &s->w->tools;
    int idle = join(s), busy = join(s);
    t->hold = true;
    put(busy, RUN);
    while (t->n_calls == 0)
        world_turn(s->w);
    tools_socket_drain(s->socket);
    assert_true(is_closed(s, idle, 10));
    assert_true(is_closed(s, join(s), 10));
    assert_false(is_closed(s, busy, 10));
    fake_release(t);
    assert_non_null(strstr(get(s, busy), "tool_result"));
    assert_string_equal(get(s, busy), "");
    assert_int_equal(t->n_cancelled, 0);
    close(idle), close(busy);
}

/* ---- the file ---- */

static struct tools_socket *listen_at(struct site *s, const char *path, char *why, size_t size)
{
    return tools_socket_new(
        &(struct tools_socket_setup){
            .loop = &s->w->loop, .service = s->w->service, .trace = &s->w->trace, .path = path},
        why, size);
}

static int reach(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0)
        return fd;
    close(fd);
    return -1;
}

static void stop(struct site *s, struct tools_socket *socket)
{
    bool stopped = false;
    tools_socket_stop(socket, world_stopped, &stopped);
    while (!stopped)
        world_turn(s->w);
    tools_socket_free(socket);
}

static void the_file_is_private(void **state)
{
    struct site *s = *state;
    char folder[] = "/tmp/tools_socket_XXXXXX", path[64], why[256] = "";
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    mode_t before = umask(0);
    struct tools_socket *socket = listen_at(s, path, why, sizeof why);
    umask(before);
    assert_non_null(socket);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    int fd = reach(path);
    expect(s, fd, "{\"type\":\"ping\"}", PONG);
    /* One that lives is left alone. */
    assert_null(listen_at(s, path, why, sizeof why));
    assert_non_null(strstr(why, "use"));
    int again = reach(path);
    assert_true(again >= 0);
    close(again);
    close(fd);
    stop(s, socket);
    assert_int_equal(stat(path, &st), -1);
    rmdir(folder);
}

static void a_stale_file_is_replaced(void **state)
{
    struct site *s = *state;
    char folder[] = "/tmp/tools_socket_XXXXXX", path[64], why[256] = "";
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    assert_int_equal(bind(dead, (struct sockaddr *)&sa, sizeof sa), 0);
    close(dead);
    struct tools_socket *socket = listen_at(s, path, why, sizeof why);
    assert_non_null(socket);
    int fd = reach(path);
    expect(s, fd, "{\"type\":\"ping\"}", PONG);
    close(fd);
    stop(s, socket);
    /* A file that is no socket is somebody's. */
    FILE *f = fopen(path, "w");
    fputs("mine", f);
    fclose(f);
    assert_null(listen_at(s, path, why, sizeof why));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 4);
    unlink(path);
    rmdir(folder);
}

#define WITH_SITE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SITE(frames_are_as_published),
        cmocka_unit_test(frames_are_taken_whole),
        WITH_SITE(a_hello_says_who),
        WITH_SITE(lists_and_schemas),
        WITH_SITE(results_and_continuations),
        WITH_SITE(every_code_is_told),
        WITH_SITE(what_is_no_message_ends_it),
        WITH_SITE(too_many_capabilities),
        WITH_SITE(one_at_a_time_and_in_order),
        WITH_SITE(whoever_leaves_ends_the_call),
        WITH_SITE(whoever_only_ends_sending_is_answered),
        WITH_SITE(answers_fit_into_frames),
        cmocka_unit_test(time_limits),
        WITH_SITE(only_so_many_at_a_time),
        WITH_SITE(draining_waits_for_answers),
        WITH_SITE(the_file_is_private),
        WITH_SITE(a_stale_file_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
