// SPDX-License-Identifier: Apache-2.0
/* Saved state: what is written is read again, and what somebody else wrote is not. */
#include "unit/client/failing_memory.h"
#include "client/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const uint8_t dir_key[MAC_SIZE] = "the key of a directory, of 32 b";

struct world {
    struct failing_memory memory;
    struct tm_client *client;
    char folder[64], path[96];
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct tm_options o = TM_OPTIONS_INIT;
    failing_init(&w->memory);
    o.server = "http://127.0.0.1:1";
    o.allocator = &w->memory.allocator;
    assert_int_equal(tm_open(&o, &w->client), 0);
    strcpy(w->folder, "/tmp/tidemark-state-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/state", w->folder);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[128];
    tm_close(w->client);
    assert_int_equal(w->memory.held, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static void fill(struct tm_client *c, struct saved_state *s, enum tm_service service)
{
    state_init(s);
    s->service = service;
    s->key = client_copy(c, STR("chat-\"1\\"));
    s->generation = client_copy(c, STR("g\xc3\xa9n\n\x01"));
    memset(s->secret, 0xa5, sizeof s->secret);
    strcpy(s->event_id, "17");
    s->has_mac = true;
    memset(s->mac, 0x3c, sizeof s->mac);
    s->next_seqno = (uint64_t)UINT32_MAX + 1;
    assert_non_null(state_add_chunk(c, s, 4, STR("four")));
    assert_non_null(state_add_chunk(c, s, 2, str_of("\0\xff\n", 3)));
    assert_non_null(state_add_chunk(c, s, UINT32_MAX, STR("")));
    assert_int_equal(state_put_result(c, s, STR("call \"1\""), STR("{\"a\":1}")), 0);
    assert_int_equal(state_put_result(c, s, STR("call 2"), STR("")), 0);
    s->created_ms = 1700000000000;
    s->updated_ms = 1700000000001;
    s->finished = true;
}

static void assert_chunk(struct saved_state *s, uint32_t seqno, struct str bytes)
{
    assert_false(list_empty(&s->chunks));
    struct state_chunk *chunk = list_item(s->chunks.next, struct state_chunk, item.link);
    assert_int_equal(chunk->seqno, seqno);
    assert_true(str_eq(str_of(chunk->bytes, chunk->n), bytes));
    list_remove(&chunk->item.link);
    list_push(&s->chunks, &chunk->item.link); /* to its end: the next one is the first now */
}

static void assert_result(const struct saved_state *s, struct str id, struct str result)
{
    const struct state_result *r = state_get_result(s, id);
    assert_non_null(r);
    assert_true(str_eq(str_of(r->bytes + r->id_n + 1, r->n), result));
}

static void assert_filled(struct saved_state *s, enum tm_service service)
{
    uint8_t secret[SECRET_SIZE], mac[MAC_SIZE];
    memset(secret, 0xa5, sizeof secret);
    memset(mac, 0x3c, sizeof mac);
    assert_int_equal(s->service, service);
    assert_string_equal(s->key, "chat-\"1\\");
    assert_string_equal(s->generation, "g\xc3\xa9n\n\x01");
    assert_memory_equal(s->secret, secret, sizeof secret);
    assert_string_equal(s->event_id, "17");
    assert_true(s->has_mac);
    assert_memory_equal(s->mac, mac, sizeof mac);
    assert_int_equal(s->next_seqno, (uint64_t)UINT32_MAX + 1);
    assert_int_equal(s->n_chunks, 3);
    assert_int_equal(s->chunk_bytes, 7);
    assert_chunk(s, 4, STR("four"));
    assert_chunk(s, 2, str_of("\0\xff\n", 3));
    assert_chunk(s, UINT32_MAX, STR(""));
    assert_result(s, STR("call \"1\""), STR("{\"a\":1}"));
    assert_result(s, STR("call 2"), STR(""));
    assert_null(state_get_result(s, STR("call")));
    assert_int_equal(s->created_ms, 1700000000000);
    assert_true(s->finished);
}

static void test_format(void **state)
{
    struct world *w = *state;
    struct saved_state s;
    struct bytes text = {0};
    fill(w->client, &s, TM_SERVICE_TIDEMARK);
    assert_int_equal(state_format(w->client, dir_key, &s, &text), 0);
    static const char right[] =
        "{\"idempotencyKey\":\"chat-\\\"1\\\\\",\"idempotencyEventId\":\"17\","
        "\"idempotentEncryptionKey\":\"paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaU\","
        "\"nextSeqno\":4294967296,\"playbackChunks\":["
        "[4,\"{\\\"clientChunk\\\":\\\"Zm91cg==\\\",\\\"seqno\\\":4}\"],"
        "[2,\"{\\\"clientChunk\\\":\\\"AP8K\\\",\\\"seqno\\\":2}\"],"
        "[4294967295,\"{\\\"clientChunk\\\":\\\"\\\",\\\"seqno\\\":4294967295}\"]],"
        "\"chatGenerationUUID\":\"g\xc3\xa9n\\u000a\\u0001\",\"createdAt\":1700000000000,"
        "\"lastUpdatedAt\":1700000000001,"
        "\"toolCallResultCache\":{\"call \\\"1\\\"\":\"eyJhIjoxfQ==\",\"call 2\":\"\"},"
        "\"service\":\"tidemark.v1\",\"eventMac\":"
        "\"3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c\",\"finished\":true,"
        "\"mac\":\"";
    assert_true(text.n == sizeof right - 1 + 64 + 3);
    assert_memory_equal(text.p, right, sizeof right - 1);
    bytes_free(w->client, &text);
    state_deinit(w->client, &s);
}

static void test_round_trip(void **state)
{
    struct world *w = *state;
    for (int service = 0; service < 2; service++) {
        struct saved_state s, again;
        struct bytes text = {0};
        unsigned dropped = 0;
        fill(w->client, &s, (enum tm_service)service);
        assert_int_equal(state_format(w->client, dir_key, &s, &text), 0);
        assert_int_equal(strstr(text.p, "clientChunkBytes") != NULL, service == 1);
        assert_int_equal(state_parse(w->client, dir_key, bytes_str(&text), &again, &dropped), 0);
        assert_int_equal(dropped, 0);
        assert_filled(&again, (enum tm_service)service);
        bytes_free(w->client, &text);
        state_deinit(w->client, &s);
        state_deinit(w->client, &again);
    }
}

static void assert_refused(struct tm_client *c, struct str text)
{
    struct saved_state s;
    unsigned dropped;
    assert_int_equal(state_parse(c, dir_key, text, &s, &dropped), TM_E_TAMPERED);
    assert_null(s.key);
}

/* Any byte that is another, any length that is another, any other key. */
static void test_tampered(void **state)
{
    struct world *w = *state;
    struct saved_state s;
    struct bytes text = {0};
    unsigned dropped;
    fill(w->client, &s, TM_SERVICE_TIDEMARK);
    assert_int_equal(state_format(w->client, dir_key, &s, &text), 0);
    state_deinit(w->client, &s);
    for (size_t i = 0; i < text.n; i++) {
        text.p[i] ^= 1;
        assert_refused(w->client, bytes_str(&text));
        text.p[i] ^= 1;
        assert_refused(w->client, str_of(text.p, i));
    }
    uint8_t other[MAC_SIZE];
    memcpy(other, dir_key, MAC_SIZE);
    other[31] ^= 1;
    assert_int_equal(state_parse(w->client, other, bytes_str(&text), &s, &dropped), TM_E_TAMPERED);
    assert_int_equal(bytes_put(w->client, &text, STR("\n")), 0);
    assert_refused(w->client, bytes_str(&text));
    bytes_free(w->client, &text);
}

/* Text with its MAC: shapes that are not ours are refused even from whoever has the key. */
static int parse_body(struct world *w, const char *chunks, struct saved_state *out,
                      unsigned *dropped)
{
    struct bytes text = {0};
    uint8_t mac[MAC_SIZE];
    struct tm_client *c = w->client;
    assert_int_equal(
        bytes_printf(c, &text,
                     "{\"idempotencyKey\":\"k\",\"idempotencyEventId\":\"0\","
                     "\"idempotentEncryptionKey\":\"paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaU\","
                     "\"nextSeqno\":9,\"playbackChunks\":%s,\"chatGenerationUUID\":\"g\","
                     "\"createdAt\":1,\"lastUpdatedAt\":2,\"toolCallResultCache\":{},"
                     "\"service\":\"tidemark.v1\",\"eventMac\":\"\",\"finished\":false",
                     chunks),
        0);
    assert_int_equal(smac_sign(dir_key, bytes_str(&text), mac), 0);
    assert_int_equal(bytes_put(c, &text, STR(",\"mac\":\"")), 0);
    for (size_t i = 0; i < MAC_SIZE; i++)
        assert_int_equal(bytes_printf(c, &text, "%02x", mac[i]), 0);
    assert_int_equal(bytes_put(c, &text, STR("\"}\n")), 0);
    int err = state_parse(c, dir_key, bytes_str(&text), out, dropped);
    bytes_free(c, &text);
    return err;
}

#define CHUNK(seqno, inner) "[" seqno ",\"" inner "\"]"

static void test_chunks_dropped(void **state)
{
    static const char *const bad[] = {
        CHUNK("1", ""),
        CHUNK("1", "{\\\"clientChunk\\\":\\\"AA\\\",\\\"seqno\\\":1}"),
        CHUNK("1", "{\\\"clientChunk\\\":\\\"AA==\\\",\\\"seqno\\\":2}"),
        CHUNK("1", "{\\\"clientChunk\\\":\\\"AA==\\\"}"),
        CHUNK("1", "{\\\"close\\\":{}}"),
        CHUNK("1", "{\\\"clientChunk\\\":\\\"AA==\\\",\\\"seqno\\\":1}}"),
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        char chunks[256];
        struct saved_state s;
        unsigned dropped = 0;
        snprintf(chunks, sizeof chunks, "[%s,%s,%s]",
                 CHUNK("0", "{\\\"clientChunk\\\":\\\"AA==\\\",\\\"seqno\\\":0}"), bad[i],
                 CHUNK("2", "{\\\"clientChunkBytes\\\":\\\"Ag==\\\",\\\"seqno\\\":2}"));
        assert_int_equal(parse_body(*state, chunks, &s, &dropped), 0);
        assert_int_equal(dropped, 1);
        assert_int_equal(s.n_chunks, 2);
        assert_chunk(&s, 0, str_of("\0", 1));
        assert_chunk(&s, 2, str_of("\2", 1));
        state_deinit(((struct world *)*state)->client, &s);
    }
}

static void test_wrong_shape(void **state)
{
    static const char *const bad[] = {"[",
                                      "[1]",
                                      "[[1]]",
                                      "{}",
                                      "[[-1,\"\"]]",
                                      "[[4294967296,\"\"]]",
                                      "[[1,\"\",2]]",
                                      "[],\"more\":1",
                                      "[[1,\"\"],]"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct saved_state s;
        unsigned dropped;
        if (parse_body(*state, bad[i], &s, &dropped) != TM_E_TAMPERED)
            fail_msg("%s was read", bad[i]);
    }
}

/* ---- files ---- */

static struct state_dir open_dir(struct world *w)
{
    struct state_dir d = STATE_DIR_NONE;
    assert_int_equal(state_dir_open(w->client, w->path, true, &d), 0);
    return d;
}

static void save_filled(struct world *w, struct state_dir *d, char name[STATE_NAME_SIZE])
{
    struct saved_state s;
    fill(w->client, &s, TM_SERVICE_AISERVER);
    assert_int_equal(state_name(str_of_cstr(s.key), name), 0);
    assert_int_equal(state_save(w->client, d, &s), 0);
    assert_true(s.updated_ms > 1700000000001);
    state_deinit(w->client, &s);
}

static mode_t mode_of(const struct world *w, const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", w->path, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

static bool exists(const struct world *w, const char *name, const char *suffix)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s%s", w->path, name, suffix);
    return access(path, F_OK) == 0;
}

static size_t count_files(const struct world *w)
{
    DIR *dir = opendir(w->path);
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static void test_files(void **state)
{
    struct world *w = *state;
    struct state_dir d = open_dir(w), other;
    struct saved_state s;
    char name[STATE_NAME_SIZE];
    unsigned dropped = 0;
    save_filled(w, &d, name);
    assert_true(state_is_name(name));
    assert_false(state_is_name(".tidemark-key"));
    assert_int_equal(mode_of(w, ""), 0700);
    assert_int_equal(mode_of(w, name), 0600);
    assert_int_equal(mode_of(w, ".tidemark-key"), 0600);
    assert_int_equal(count_files(w), 2); /* nothing temporary is left */

    other = open_dir(w); /* finds the same key */
    assert_memory_equal(d.key, other.key, MAC_SIZE);
    assert_int_equal(state_load(w->client, &other, name, &s, &dropped), 0);
    assert_filled(&s, TM_SERVICE_AISERVER);
    state_deinit(w->client, &s);
    assert_int_equal(state_remove(w->client, &other, name), 0);
    assert_int_equal(state_remove(w->client, &other, name), 0); /* gone is gone */
    assert_int_equal(state_load(w->client, &d, name, &s, &dropped), TM_E_NOT_FOUND);
    state_dir_close(&d);
    state_dir_close(&other);
}

static void test_refused_files(void **state)
{
    struct world *w = *state;
    struct state_dir d = open_dir(w);
    struct saved_state s;
    char name[STATE_NAME_SIZE], elsewhere[STATE_NAME_SIZE];
    unsigned dropped;

    save_filled(w, &d, name); /* somebody changes it */
    int fd = openat(d.fd, name, O_WRONLY);
    assert_int_equal(pwrite(fd, "X", 1, 20), 1);
    close(fd);
    assert_int_equal(state_load(w->client, &d, name, &s, &dropped), TM_E_TAMPERED);
    assert_false(exists(w, name, ""));
    assert_true(exists(w, name, ".refused"));

    save_filled(w, &d, name); /* somebody renames it */
    assert_int_equal(state_name(STR("another"), elsewhere), 0);
    assert_int_equal(renameat(d.fd, name, d.fd, elsewhere), 0);
    assert_int_equal(state_load(w->client, &d, elsewhere, &s, &dropped), TM_E_TAMPERED);
    assert_true(exists(w, elsewhere, ".refused"));

    save_filled(w, &d, name); /* somebody takes it to another directory */
    d.key[0] ^= 1;
    assert_int_equal(state_load(w->client, &d, name, &s, &dropped), TM_E_TAMPERED);
    d.key[0] ^= 1;

    assert_int_equal(symlinkat(w->folder, d.fd, elsewhere), 0); /* somebody points elsewhere */
    assert_int_equal(state_load(w->client, &d, elsewhere, &s, &dropped), TM_E_TAMPERED);

    save_filled(w, &d, name); /* what a crash leaves behind is no state, and in nobody's way */
    char temporary[STATE_NAME_SIZE + 4];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    fd = openat(d.fd, temporary, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    assert_false(state_is_name(temporary));
    assert_int_equal(state_load(w->client, &d, name, &s, &dropped), 0);
    assert_int_equal(state_save(w->client, &d, &s), 0);
    assert_false(exists(w, temporary, ""));
    state_deinit(w->client, &s);
    state_dir_close(&d);
}

static void test_locks(void **state)
{
    struct world *w = *state;
    struct state_dir one = open_dir(w), two = open_dir(w);
    char a[STATE_NAME_SIZE], b[STATE_NAME_SIZE];
    assert_int_equal(state_name(STR("a"), a), 0);
    assert_int_equal(state_name(STR("b"), b), 0);
    assert_int_equal(state_lock(w->client, &one, a), 0);
    assert_int_equal(state_lock(w->client, &two, a), TM_E_BUSY);
    assert_int_equal(state_lock(w->client, &two, b), 0);
    state_dir_close(&one);
    assert_int_equal(state_lock(w->client, &two, a), 0);
    state_dir_close(&two);
}

static void test_directories(void **state)
{
    struct world *w = *state;
    struct state_dir d = STATE_DIR_NONE;
    assert_int_equal(state_dir_open(w->client, w->path, false, &d), TM_E_NOT_FOUND);
    assert_int_equal(state_dir_open(w->client, "/proc/nowhere/state", true, &d), TM_E_IO);
    d = open_dir(w);
    int fd = openat(d.fd, ".tidemark-key", O_WRONLY | O_TRUNC);
    close(fd);
    state_dir_close(&d);
    assert_int_equal(state_dir_open(w->client, w->path, true, &d),
                     TM_E_IO); /* half a key is none */
    assert_int_equal(d.fd, -1);
}

static void test_results(void **state)
{
    struct world *w = *state;
    struct saved_state s;
    state_init(&s);
    char *large = calloc(1, STATE_RESULTS_MAX);
    assert_int_equal(state_put_result(w->client, &s, STR("a"), STR("1")), 0);
    assert_int_equal(state_put_result(w->client, &s, STR("a"), STR("2")), 0);
    assert_result(&s, STR("a"), STR("2"));
    assert_int_equal(s.result_bytes, 2);
    assert_int_equal(
        state_put_result(w->client, &s, STR("b"), str_of(large, STATE_RESULTS_MAX - 2)),
        TM_E_TOO_LARGE);
    assert_int_equal(
        state_put_result(w->client, &s, STR("b"), str_of(large, STATE_RESULTS_MAX - 3)), 0);
    state_clear_results(w->client, &s);
    assert_null(state_get_result(&s, STR("a")));
    assert_int_equal(s.result_bytes, 0);
    free(large);
    state_deinit(w->client, &s);
}

/* A session that sends much saves often: what it takes to do so is bounded by what there is. */
static void test_memory_of_saving(void **state)
{
    struct world *w = *state;
    struct state_dir d = open_dir(w);
    struct saved_state s;
    size_t n = 1 << 20;
    char *large = calloc(1, n);
    fill(w->client, &s, TM_SERVICE_TIDEMARK);
    assert_non_null(state_add_chunk(w->client, &s, 9, str_of(large, n)));
    assert_int_equal(state_put_result(w->client, &s, STR("\x01"), str_of(large, n)), 0);
    w->memory.largest = 0;
    size_t asked = w->memory.asked;
    assert_int_equal(state_save(w->client, &d, &s), 0);
    assert_true(w->memory.largest < 5 * n);
    assert_int_equal(w->memory.asked, asked + 1); /* it never grew: no copy of the secret is left */
    free(large);
    state_deinit(w->client, &s);
    state_dir_close(&d);
}

/* A long chunk behind the secret makes room that the secret was read into move. */
static void test_memory_of_loading(void **state)
{
    struct world *w = *state;
    struct saved_state s, again;
    struct bytes text = {0};
    unsigned dropped;
    char large[5000] = {0};
    fill(w->client, &s, TM_SERVICE_TIDEMARK);
    struct state_chunk *chunk = state_add_chunk(w->client, &s, 9, str_of(large, sizeof large));
    assert_non_null(chunk);
    while (s.chunks.next != &chunk->item.link) { /* what is short would hide it */
        struct link *first = s.chunks.next;
        list_remove(first);
        list_push(&s.chunks, first);
    }
    assert_int_equal(state_format(w->client, dir_key, &s, &text), 0);
    w->memory.secret = "paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaU";
    assert_int_equal(state_parse(w->client, dir_key, bytes_str(&text), &again, &dropped), 0);
    assert_int_equal(w->memory.leaks, 0);
    bytes_free(w->client, &text);
    assert_int_equal(w->memory.leaks, 1); /* it would have been seen */
    state_deinit(w->client, &again);
    state_deinit(w->client, &s);
}

/* Each allocation of saving and loading fails once; nothing is lost or half done. */
static void test_no_memory(void **state)
{
    struct world *w = *state;
    struct state_dir d = open_dir(w);
    struct saved_state s, again;
    char name[STATE_NAME_SIZE];
    unsigned dropped = 0, failures = 0;
    save_filled(w, &d, name);
    size_t held = w->memory.held;
    fill(w->client, &s, TM_SERVICE_AISERVER);
    for (size_t at = 1;; at++) {
        w->memory.fail_at = w->memory.asked + at;
        int err = state_save(w->client, &d, &s);
        if (err == 0)
            err = state_load(w->client, &d, name, &again, &dropped);
        bool all = w->memory.asked < w->memory.fail_at;
        w->memory.fail_at = 0;
        if (err == 0) {
            assert_filled(&again, TM_SERVICE_AISERVER);
            state_deinit(w->client, &again);
        }
        if (all)
            break;
        assert_int_equal(err, TM_E_NOMEM);
        failures++;
        assert_int_equal(state_load(w->client, &d, name, &again, &dropped), 0);
        state_deinit(w->client, &again);
    }
    assert_true(failures > 10);
    state_deinit(w->client, &s);
    assert_int_equal(w->memory.held, held);
    assert_false(exists(w, name, ".refused"));
    state_dir_close(&d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_format),
        TEST(test_round_trip),
        TEST(test_tampered),
        TEST(test_memory_of_loading),
        TEST(test_chunks_dropped),
        TEST(test_wrong_shape),
        TEST(test_files),
        TEST(test_refused_files),
        TEST(test_locks),
        TEST(test_directories),
        TEST(test_results),
        TEST(test_no_memory),
        TEST(test_memory_of_saving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
