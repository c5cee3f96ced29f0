// SPDX-License-Identifier: Apache-2.0
#include "unit/scripted.h"

static void bad_addresses_are_refused(void **state)
{
    static const char *const bad[] = {"",        "localhost", "ftp://a/",
                                      "http://", "unix:",     "http://a?b"};
    struct client *c = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(client_new(bad[i], NULL, &c), ERR_SYNTAX);
    assert_null(c);
}

static void create_says_what_is_wanted(void **state)
{
    static const struct turn turns[] = {
        {201, NEXT("0_0"), NULL, WHOLE},
        {200, NEXT("0_0"), NULL, WHOLE},
        {409, NULL, "exists\n", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_config config = {.content_type = "text/plain", .ttl_s = 60};
    bool created = false;
    assert_int_equal(client_create(c, "a b/\xC3\xA4?#%", &config, &created), 0);
    assert_true(created);
    assert_int_equal(client_create(c, "a", &(struct client_config){.closed = true}, &created), 0);
    assert_false(created);
    assert_int_equal(client_create(c, "a", &config, NULL), ERR_EXISTS);
    assert_non_null(strstr(client_error(c), "exists"));
    client_free(c);
    script_end(s);
    assert_begins(s, 0, "PUT /v1/stream/a%20b/%C3%A4%3F%23%25");
    assert_header(s, 0, "Content-Type: text/plain", true);
    assert_header(s, 0, "Stream-TTL: 60", true);
    assert_header(s, 1, "Stream-Closed: true", true);
    assert_null(strcasestr(s->got[1].p, "Content-Type"));
    assert_null(strcasestr(s->got[1].p, "Expect"));
    script_free(s);
}

static void head_reads_the_state(void **state)
{
    static const struct turn turns[] = {
        {200, JSON NEXT("1_7") CLOSED "Stream-End-Reason: completed\r\n", NULL, WHOLE},
        {200, TEXT NEXT("1_9"), NULL, WHOLE},
        {404, NULL, NULL, WHOLE},
        {410, NULL, NULL, WHOLE},
        {200, TEXT, NULL, WHOLE}, /* some other server */
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_state got;
    assert_int_equal(client_head(c, "a", &got), 0);
    assert_string_equal(got.content_type, "application/json; charset=utf-8");
    assert_string_equal(got.next_offset, "1_7");
    assert_string_equal(got.end_reason, "completed");
    assert_true(got.closed);
    assert_int_equal(client_head(c, "a", &got), 0);
    assert_false(got.closed);
    assert_string_equal(got.end_reason, "");
    assert_int_equal(client_head(c, "a", &got), ERR_NOT_FOUND);
    assert_int_equal(client_head(c, "a", &got), ERR_DELETED);
    assert_int_equal(client_head(c, "a", &got), ERR_SYNTAX);
    assert_string_equal(got.next_offset, "1_9"); /* untouched on failure */
    client_free(c);
    script_end(s);
    assert_begins(s, 0, "HEAD /v1/stream/a");
    script_free(s);
}

static void append_close_delete(void **state)
{
    static const struct turn turns[] = {
        {204, NEXT("1_3"), NULL, WHOLE},
        {409, CLOSED NEXT("1_3"), NULL, WHOLE},
        {409, NULL, NULL, WHOLE},
        {413, NULL, NULL, WHOLE},
        {204, CLOSED NEXT("1_3"), NULL, WHOLE},
        {204, NULL, NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    char offset[CLIENT_OFFSET_SIZE];
    assert_int_equal(client_append(c, "a", "text/plain", "x\0y", 3, offset), 0);
    assert_string_equal(offset, "1_3");
    assert_int_equal(client_append(c, "a", "text/plain", "x", 1, NULL), ERR_CLOSED);
    assert_int_equal(client_append(c, "a", "text/plain", "x", 1, NULL), ERR_TYPE_MISMATCH);
    assert_int_equal(client_append(c, "a", "text/plain", "x", 1, NULL), ERR_TOO_LARGE);
    assert_int_equal(client_close(c, "a"), 0);
    assert_int_equal(client_delete(c, "a"), 0);
    client_free(c);
    script_end(s);
    assert_begins(s, 0, "POST /v1/stream/a");
    assert_memory_equal(body_of(s, 0), "x\0y", 3);
    assert_header(s, 4, "Stream-Closed: true", true);
    assert_header(s, 4, "Content-Length: 0", true);
    assert_begins(s, 5, "DELETE /v1/stream/a");
    script_free(s);
}

/* Nobody knows whether the first was stored: a second try might store it twice. */
static void append_is_sent_once(void **state)
{
    static const struct turn turns[] = {
        {200, TEXT NEXT("1_0"), NULL, WHOLE}, /* makes a connection that is kept */
        {0, NULL, NULL, NO_ANSWER},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_state got;
    assert_int_equal(client_head(c, "a", &got), 0);
    assert_int_equal(client_append(c, "a", "text/plain", "x", 1, NULL), ERR_REFUSED);
    client_free(c);
    script_end(s);
    script_free(s);
}

static void what_would_break_a_request_is_refused(void **state)
{
    struct client *c;
    assert_int_equal(client_new("http://127.0.0.1:9", NULL, &c), 0);
    assert_int_equal(client_append(c, "a", "text/plain\r\nX: y", "x", 1, NULL), ERR_SYNTAX);
    assert_int_equal(client_delete(c, ""), ERR_SYNTAX);
    client_free(c);
}

static void nobody_there(void **state)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, but does not listen */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    char url[64], begin[96];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    snprintf(begin, sizeof begin, "cannot reach %s: ", url);
    struct client *c;
    struct client_state got;
    assert_int_equal(client_new(url, NULL, &c), 0);
    assert_int_equal(client_head(c, "a", &got), ERR_REFUSED);
    assert_int_equal(strncmp(client_error(c), begin, strlen(begin)), 0);
    client_free(c);
    close(fd);
}

static void refusals_are_explained(void **state)
{
    static const struct turn turns[] = {
        {400, "Content-Type: application/json\r\n", "{\"error\":{\"message\":\"no such key\"}}",
         WHOLE},
        {409, NULL, "{\"error\":{\"code\":\"FORK_DELETED\",\"message\":\"m\"}}", WHOLE},
        {400, NULL, "plain \x1b[31mred\n", WHOLE},
        {502, NULL, "<html>a page</html>", WHOLE},
        {200,
         NEXT("1_0") "Content-Type: x/"
                     "01234567890123456789012345678901234567890123456789012345678901234567890123456"
                     "78901"
                     "01234567890123456789012345678901234567890123456789012345678901234567890123456"
                     "78901"
                     "01234567890123456789012345678901234567890123456789012345678901234567890123456"
                     "78901"
                     "0123456789012345678901234567890123456789012345678901234567890123456789\r\n",
         NULL, WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct client_state got;
    assert_int_equal(client_delete(c, "a"), ERR_SYNTAX);
    assert_int_equal(strncmp(client_error(c), "no such key (", 13), 0);
    assert_int_equal(client_delete(c, "a"), ERR_FORK_DELETED);
    assert_int_equal(client_delete(c, "a"), ERR_SYNTAX);
    assert_null(strchr(client_error(c), '\x1b'));
    assert_non_null(strstr(client_error(c), "red"));
    assert_int_equal(client_delete(c, "a"), ERR_BUSY);
    assert_null(strstr(client_error(c), "html"));
    assert_non_null(strstr(client_error(c), "502"));
    assert_int_equal(client_head(c, "a", &got), ERR_SYNTAX);
    assert_non_null(strstr(client_error(c), "Content-Type"));
    client_free(c);
    script_end(s);
    script_free(s);
}

/* -- list ------------------------------------------------------------------------------------- */

static bool note_row(void *user, const struct client_row *row)
{
    buf_printf(user, "%s,%s,%s,%d;", row->name, row->content_type, row->next_offset, row->closed);
    return strcmp(row->name, "stop") != 0;
}

#define ROW(name)                                                                                  \
    "{\"name\":\"" name "\",\"contentType\":\"text/"                                               \
    "plain\",\"nextOffset\":\"1_2\",\"closed\":true}"

static void list_follows_pages(void **state)
{
    static const struct turn turns[] = {
        {200, JSON, "{\"streams\":[" ROW("a/1") "," ROW("a/2") "],\"next\":\"a/2\"}", WHOLE},
        {200, JSON, "{\"streams\":[{\"name\":\"a/3\",\"closed\":false}],\"next\":null}", WHOLE},
        {200, JSON, "{\"streams\":[" ROW("b") "," ROW("c") "],\"next\":\"c\"}", WHOLE},
        {200, JSON, "{\"streams\":[" ROW("stop") "," ROW("x") "],\"next\":\"x\"}", WHOLE},
        {200, JSON, "{\"streams\":[" ROW("b") "],\"next\":\"a\"}", WHOLE},
        {200, JSON, "{\"streams\":1}", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct buf rows = {0};
    assert_int_equal(client_list(c, "a/", NULL, 0, &rows, note_row), 0);
    assert_int_equal(client_list(c, NULL, "a/9", 2, &rows, note_row), 0);
    assert_int_equal(client_list(c, "", NULL, 0, &rows, note_row), 0);
    buf_putc(&rows, '\0');
    assert_string_equal(rows.p, "a/1,text/plain,1_2,1;a/2,text/plain,1_2,1;a/3,,,0;"
                                "b,text/plain,1_2,1;c,text/plain,1_2,1;stop,text/plain,1_2,1;");
    /* A page that leads back would never end. */
    assert_int_equal(client_list(c, NULL, "b", 0, &rows, note_row), ERR_SYNTAX);
    assert_int_equal(client_list(c, NULL, NULL, 0, &rows, note_row), ERR_SYNTAX);
    buf_deinit(&rows);
    client_free(c);
    script_end(s);
    assert_begins(s, 0, "GET /v1/stream/?prefix=a%2F&limit=1000");
    assert_begins(s, 1, "GET /v1/stream/?prefix=a%2F&after=a%2F2&limit=1000");
    assert_begins(s, 2, "GET /v1/stream/?after=a%2F9&limit=2");
    script_free(s);
}

/* -- sessions --------------------------------------------------------------------------------- */

static void note_session(void *user, const struct client_session *s)
{
    buf_printf(user, "%s %s %s %d%d%d %d in %d %d %d out %d %d %s;", s->key, s->service, s->created,
               s->connected, s->key_held, s->expired, (int)s->answered, (int)s->in_events,
               (int)s->in_bytes, s->in_closed, (int)s->out_events, (int)s->out_bytes, s->end);
}

static bool note_listed(void *user, const struct client_session *s)
{
    note_session(user, s);
    return true;
}

#define SESSION                                                                                    \
    "\"key\":\"k\",\"service\":\"tidemark.v1\",\"created\":\"now\",\"connected\":false,"           \
    "\"keyHeld\":true,\"expired\":false,\"answered\":3"

static void sessions_are_listed_and_shown(void **state)
{
    static const struct turn turns[] = {
        {200, JSON, "{\"sessions\":[],\"next\":\"j\"}", WHOLE},
        {200, JSON, "{\"sessions\":[{" SESSION "},{\"expired\":true}],\"next\":null}", WHOLE},
        {200, JSON,
         "{" SESSION ",\"in\":{\"events\":4,\"bytes\":44,\"closed\":true},"
         "\"out\":{\"events\":5,\"bytes\":55,\"end\":\"completed\"}}",
         WHOLE},
        {200, JSON, "{" SESSION ",\"in\":null,\"out\":{\"events\":-1,\"end\":null}}", WHOLE},
        {404, JSON, "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"no such session\"}}", WHOLE},
        {200, JSON, "{\"streams\":[]}", WHOLE},
        {200, JSON, "[", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    struct client *c = client_of(s);
    struct buf rows = {0};
    assert_int_equal(client_session_list(c, "k", NULL, 0, &rows, note_listed), 0);
    assert_int_equal(client_session_show(c, "a b", &rows, note_session), 0);
    assert_int_equal(client_session_show(c, "k", &rows, note_session), 0);
    assert_int_equal(client_session_show(c, "k", &rows, note_session), ERR_NOT_FOUND);
    assert_non_null(strstr(client_error(c), "no such session"));
    assert_int_equal(client_session_list(c, NULL, NULL, 0, &rows, note_listed), ERR_SYNTAX);
    assert_int_equal(client_session_show(c, "k", &rows, note_session), ERR_SYNTAX);
    assert_int_equal(client_session_show(c, "", &rows, note_session), ERR_SYNTAX);
    buf_putc(&rows, '\0');
    assert_string_equal(rows.p, "k tidemark.v1 now 010 3 in 0 0 0 out 0 0 ;"
                                "   001 0 in 0 0 0 out 0 0 ;"
                                "k tidemark.v1 now 010 3 in 4 44 1 out 5 55 completed;"
                                "k tidemark.v1 now 010 3 in 0 0 0 out 0 0 ;");
    buf_deinit(&rows);
    client_free(c);
    script_end(s);
    assert_begins(s, 0, "GET /v1/session/?prefix=k&limit=1000");
    assert_begins(s, 1, "GET /v1/session/?prefix=k&after=j&limit=1000");
    assert_begins(s, 2, "GET /v1/session/a%20b");
    assert_null(strcasestr(s->got[0].p, "Authorization"));
    script_free(s);
}

/* -- the token -------------------------------------------------------------------------------- */

static void the_token_goes_with_every_request(void **state)
{
    static const struct turn turns[] = {
        {200, TEXT NEXT("1_0"), NULL, WHOLE},
        {204, NEXT("1_3"), NULL, WHOLE},
        {200, JSON, "{\"streams\":[],\"next\":null}", WHOLE},
    };
    struct script *s = SCRIPT(turns);
    char token[] = "abc.DEF";
    struct client_options options = {.token = token};
    struct client *c;
    struct client_state got;
    assert_int_equal(client_new(s->url, &options, &c), 0);
    memset(token, 'x', sizeof token - 1); /* it was copied */
    assert_int_equal(client_head(c, "a", &got), 0);
    assert_int_equal(client_append(c, "a", "text/plain", "x", 1, NULL), 0);
    assert_int_equal(client_list(c, NULL, NULL, 0, NULL, note_row), 0);
    client_free(c);
    script_end(s);
    for (size_t i = 0; i < 3; i++)
        assert_header(s, i, "Authorization: Bearer abc.DEF", true);
    script_free(s);
}

/* It would begin a header of its own. */
static void a_token_with_a_line_break_is_not_sent(void **state)
{
    struct client_options options = {.token = "a\r\nX-Evil: 1"};
    struct client *c;
    struct client_state got;
    assert_int_equal(client_new("http://127.0.0.1:1", &options, &c), 0);
    assert_int_equal(client_head(c, "a", &got), ERR_SYNTAX);
    assert_null(strstr(client_error(c), "Evil"));
    client_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(create_says_what_is_wanted),
        cmocka_unit_test(head_reads_the_state),
        cmocka_unit_test(append_close_delete),
        cmocka_unit_test(append_is_sent_once),
        cmocka_unit_test(what_would_break_a_request_is_refused),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(refusals_are_explained),
        cmocka_unit_test(list_follows_pages),
        cmocka_unit_test(sessions_are_listed_and_shown),
        cmocka_unit_test(the_token_goes_with_every_request),
        cmocka_unit_test(a_token_with_a_line_break_is_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
