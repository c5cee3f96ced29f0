// SPDX-License-Identifier: Apache-2.0
/* Listings with grants and roots, over a store in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/sched.h"
#include "store/mem/mem_store.h"
#include "stream/listing.h"
#include "token/bookmark.h"

#include <string.h>

struct site {
    struct sched sched;
    struct store *store;
};

static void turn(struct site *s)
{
    for (int i = 0; i < 1000; i++)
        sched_turn(&s->sched, s->sched.now_ms, s->sched.wall_ms);
}

static void on_written(struct store_write *w, int err)
{
    assert_int_equal(err, 0);
}

static void make(struct site *s, const char *name)
{
    struct stream_config config = {
        .content_type = STR("text/plain"), .ttl_s = STORE_TTL_NONE, .expires_ms = STORE_TTL_NONE};
    struct store_write w = {.name = str_of_cstr(name), .create = &config, .done = on_written};
    store_write(s->store, &w);
    turn(s);
}

static int set_up(void **state)
{
    static const char *const names[] = {
        "a",         "chats/41/z", "chats/42",     "chats/42-", "chats/42/a", "chats/42/b/c",
        "chats/420", "chats/43/a", "t/a/x",        "t/a/y/1",   "t/a/y/2",    "t/b/x",
        "t/b/y/1",   "z",          "sessions/k/in"};
    struct site *s = mem_zalloc(sizeof *s);
    sched_init(&s->sched, 1000, 1000);
    s->store = mem_store_new(&s->sched);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        make(s, names[i]);
    *state = s;
    return 0;
}

static void on_stopped(void *ctx)
{
}

static int tear_down(void **state)
{
    struct site *s = *state;
    store_stop(s->store, on_stopped, NULL);
    turn(s);
    store_free(s->store);
    free(s);
    return 0;
}

/* ---- listings ---- */

struct asked {
    struct listing listing;
    struct buf names; /* "a b c " */
    bool done;
};

static void on_row(struct listing *l, const struct store_row *row)
{
    struct asked *a = container_of(l, struct asked, listing);
    buf_put(&a->names, row->name);
    buf_putc(&a->names, ' ');
}

static void on_done(struct listing *l, int err)
{
    assert_int_equal(err, 0);
    container_of(l, struct asked, listing)->done = true;
}

struct query {
    const char *root;
    const char *grants[4], *ceiling[4]; /* grants[0] == NULL: nothing is bounded */
    const char *prefix, *after;
    size_t limit; /* 0: 100 */
};

static struct access_grants grants_of(struct arena *a, const char *const lines[4])
{
    struct access_grants g = {0};
    char why[256];
    for (size_t i = 0; i < 4 && lines[i] != NULL; i++)
        assert_int_equal(access_grants_add_line(&g, a, str_of_cstr(lines[i]), why, sizeof why), 0);
    return g;
}

static struct str text_of(const char *text)
{
    return text != NULL ? str_of_cstr(text) : STR_NONE;
}

/* The names, and `+` behind them if there are more. */
static void expect(struct site *s, struct query q, const char *names)
{
    struct arena arena = {0};
    struct access_grants own = grants_of(&arena, q.grants), above = grants_of(&arena, q.ceiling);
    struct principal p = {.root = text_of(q.root)};
    if (q.ceiling[0] != NULL)
        p.rights.layers[p.rights.n++] = &above;
    if (q.grants[0] != NULL)
        p.rights.layers[p.rights.n++] = &own;
    struct asked a = {.listing = {.store = s->store,
                                  .principal = &p,
                                  .arena = &arena,
                                  .prefix = text_of(q.prefix),
                                  .after = text_of(q.after),
                                  .limit = q.limit > 0 ? q.limit : 100,
                                  .row = on_row,
                                  .done = on_done}};
    enum listing_start start = listing_start(&a.listing);
    assert_int_not_equal(start, LISTING_BAD_AFTER);
    assert_false(a.done);
    turn(s);
    assert_int_equal(a.done, start == LISTING_UNDER_WAY);
    if (a.listing.next.n > 0)
        buf_putc(&a.names, '+');
    buf_putc(&a.names, '\0');
    assert_string_equal(a.names.p, names);
    buf_deinit(&a.names);
    arena_deinit(&arena);
}

static void test_open(void **state)
{
    struct site *s = *state;
    expect(s, (struct query){.limit = 2}, "a chats/41/z +");
    expect(s, (struct query){.after = "t/a/y/2"}, "t/b/x t/b/y/1 z ");
    expect(s, (struct query){.prefix = "z", .limit = 1}, "z ");
    expect(s, (struct query){.root = "t/a/"}, "x y/1 y/2 ");
    expect(s, (struct query){.root = "t/a/", .prefix = "y/", .limit = 1}, "y/1 +");
    expect(s, (struct query){.root = "t/a/", .after = "y/1"}, "y/2 ");
}

static void test_granted(void **state)
{
    struct site *s = *state;
    struct query one = {.grants = {"list chats/42/**"}};
    expect(s, one, "chats/42 chats/42/a chats/42/b/c ");
    one.limit = 3;
    expect(s, one, "chats/42 chats/42/a chats/42/b/c ");
    one.limit = 1;
    expect(s, one, "chats/42 +");
    one.after = "chats/42";
    expect(s, one, "chats/42/a +");
    one.after = "chats/42/a";
    expect(s, one, "chats/42/b/c ");
    one.after = "chats/43";
    expect(s, one, "");
    expect(s, (struct query){.grants = {"list chats/42/**"}, .prefix = "chats/43"}, "");
    expect(s, (struct query){.grants = {"list chats/42/**"}, .prefix = "chats/42/b"},
           "chats/42/b/c ");
    expect(s, (struct query){.grants = {"list chats/*/a"}}, "chats/42/a chats/43/a ");
    expect(s, (struct query){.grants = {"list z a", "list chats/43/**", "read **"}},
           "a chats/43/a z ");
    expect(s, (struct query){.grants = {"list chats/**", "list chats/42/** chats/42"}, .limit = 3},
           "chats/41/z chats/42 chats/42- +");
    expect(s, (struct query){.grants = {"list none"}}, "");
    expect(s, (struct query){.grants = {"list **"}, .prefix = "sess"}, "");
}

static void test_layers_and_roots(void **state)
{
    struct site *s = *state;
    expect(s, (struct query){.grants = {"list **"}, .ceiling = {"list t/a/**"}},
           "t/a/x t/a/y/1 t/a/y/2 ");
    expect(s, (struct query){.grants = {"list t/a/**"}, .ceiling = {"list t/*/x"}}, "t/a/x ");
    expect(s, (struct query){.root = "t/b/", .grants = {"list **"}}, "x y/1 ");
    expect(s, (struct query){.root = "t/b/", .grants = {"list **"}, .prefix = "t/a/"}, "");
    expect(s, (struct query){.root = "t/b/", .grants = {"list y/*"}, .after = "x"}, "y/1 ");
}

/* ---- many names that are not his ---- */

#define FOREIGN 25000

static void make_many(struct site *s)
{
    static struct store_write writes[FOREIGN];
    static char names[FOREIGN][24];
    static struct stream_config config = {.content_type = STR_INIT("text/plain"),
                                          .ttl_s = STORE_TTL_NONE,
                                          .expires_ms = STORE_TTL_NONE};
    for (int i = 0; i < FOREIGN; i++) {
        snprintf(names[i], sizeof names[i], "f/%05d/acme", i);
        writes[i] = (struct store_write){
            .name = str_of_cstr(names[i]), .create = &config, .done = on_written};
        store_write(s->store, &writes[i]);
    }
    turn(s);
    make(s, "f/00010/x");
    make(s, "f/12000/x");
    make(s, "f/24000/x");
}

/* A listing, page by page. */
struct paging {
    struct site *site;
    struct bookmark_key *key;
    struct principal *principal;
    size_t limit;
    struct buf names; /* of all pages */
    struct buf next;
    struct task watch; /* has its turn between the steps */
    struct asked *asked;
    size_t last, most; /* names that were looked at in a step */
};

static void on_watch(struct task *t)
{
    struct paging *p = container_of(t, struct paging, watch);
    size_t n = p->asked->listing.looked;
    if (n - p->last > p->most)
        p->most = n - p->last;
    p->last = n;
    if (!p->asked->done)
        sched_post(&p->site->sched, t);
}

/* How many names it looked at. */
static size_t read_page(struct paging *p)
{
    struct arena arena = {0};
    struct asked a = {.listing = {.store = p->site->store,
                                  .principal = p->principal,
                                  .arena = &arena,
                                  .after = buf_str(&p->next),
                                  .limit = p->limit,
                                  .bookmarks = p->key,
                                  .row = on_row,
                                  .done = on_done}};
    p->asked = &a;
    p->last = 0;
    task_init(&p->watch, on_watch);
    assert_int_equal(listing_start(&a.listing), LISTING_UNDER_WAY);
    sched_post(&p->site->sched, &p->watch);
    turn(p->site);
    assert_true(a.done);
    p->next.n = 0;
    buf_put(&p->next, a.listing.next);
    buf_put(&p->names, buf_str(&a.names));
    buf_deinit(&a.names);
    arena_deinit(&arena);
    return a.listing.looked;
}

/* Each page looks at so many and no more; nobody's name is told; and in the end all is there, each
 * once. */
static void test_a_page_looks_at_some(void **state)
{
    static const uint8_t root[32] = {1};
    struct arena arena = {0};
    struct access_grants own = grants_of(&arena, (const char *const[4]){"list f/*/x"});
    struct principal who = {.rights = {.layers = {&own}, .n = 1}};
    for (size_t limit = 1; limit <= 1000; limit *= 10) {
        struct paging p = {
            .site = *state, .key = bookmark_key_new(root), .principal = &who, .limit = limit};
        unsigned pages = 0, bookmarks = 0;
        do {
            size_t looked = read_page(&p);
            assert_true(looked < LISTING_MOST + 1001);
            assert_null(p.next.n == 0 ? NULL : memmem(p.next.p, p.next.n, "acme", 4));
            bookmarks += bookmark_is(buf_str(&p.next));
        } while (p.next.n > 0 && ++pages < 100);
        buf_putc(&p.names, '\0');
        assert_string_equal(p.names.p, "f/00010/x f/12000/x f/24000/x ");
        assert_in_range(bookmarks, 1, 3);
        assert_in_range(p.most, 1, 256);
        bookmark_key_free(p.key);
        buf_deinit(&p.names);
        buf_deinit(&p.next);
    }
    arena_deinit(&arena);
}

static void test_bookmarks_of_others(void **state)
{
    static const uint8_t root[32] = {1}, other_root[32] = {2};
    struct site *s = *state;
    struct arena arena = {0};
    struct principal who = {0};
    struct buf text = {0};
    struct bookmark_key *key = bookmark_key_new(root), *other = bookmark_key_new(other_root);
    bookmark_put(other, STR("a"), &text);
    struct asked a = {.listing = {.store = s->store,
                                  .principal = &who,
                                  .arena = &arena,
                                  .after = buf_str(&text),
                                  .limit = 1,
                                  .bookmarks = key,
                                  .row = on_row,
                                  .done = on_done}};
    assert_int_equal(listing_start(&a.listing), LISTING_BAD_AFTER);
    turn(s);
    assert_false(a.done);
    bookmark_key_free(key);
    bookmark_key_free(other);
    buf_deinit(&text);
    arena_deinit(&arena);
}

static int set_up_many(void **state)
{
    set_up(state);
    make_many(*state);
    return 0;
}

static void test_who_may(void **state)
{
    struct arena a = {0};
    struct access_grants list = grants_of(&a, (const char *const[4]){"list x"});
    struct access_grants read = grants_of(&a, (const char *const[4]){"read **"});
    struct principal p = {0};
    assert_true(listing_allowed(&p));
    p.rights = (struct access_rights){.layers = {&list}, .n = 1};
    assert_true(listing_allowed(&p));
    p.rights = (struct access_rights){.layers = {&list, &read}, .n = 2};
    assert_false(listing_allowed(&p));
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_granted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_and_roots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_page_looks_at_some, set_up_many, tear_down),
        cmocka_unit_test_setup_teardown(test_bookmarks_of_others, set_up, tear_down),
        cmocka_unit_test(test_who_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
