// SPDX-License-Identifier: Apache-2.0
/* An index that is lost, old or damaged, and what the segments' notes make of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/embedded/note.h"
#include "unit/store/store_bench.h"

#include <fcntl.h>

#define SEEDS 60
#define STEPS 120
#define KEYS  5

/* ---- notes ---- */

static struct block_info a_block(void)
{
    return (struct block_info){.life = 3,
                               .first = 1000,
                               .end = 70000,
                               .ordinal = 12,
                               .events = 5,
                               .oldest_ms = -1,
                               .newest_ms = 1700000000000,
                               .place = {9, 40, 69100}};
}

static const struct str texts[] = {STR_INIT(""), STR_INIT("x"), STR_INIT("a longer text \x80\xff")};

static size_t some_notes(struct note *out)
{
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        out[n++] = (struct note){.type = NOTE_STREAM, .life = i << 40, .row = texts[i]};
        out[n++] = (struct note){
            .type = NOTE_PRODUCER, .life = 7, .producer = {texts[i], i, UINT64_MAX - i}};
        out[n++] = (struct note){
            .type = NOTE_DOC, .key = texts[2 - i], .version = i * 1000, .value = texts[i]};
        out[n++] = (struct note){.type = NOTE_DOC_GONE, .key = texts[i]};
    }
    out[n++] = (struct note){.type = NOTE_BASE};
    out[n++] = (struct note){.type = NOTE_BLOCK, .life = 5, .block = a_block()};
    out[n++] = (struct note){.type = NOTE_COPY, .life = 1, .to = 2, .pos = 300};
    out[n++] = (struct note){.type = NOTE_TRIM, .life = 1, .pos = 300};
    out[n++] = (struct note){.type = NOTE_GONE, .life = UINT64_MAX};
    out[n++] = (struct note){.type = NOTE_META,
                             .meta = {.batch = 1, .lives = 2, .next_segment = 3, .wall_ms = -4}};
    return n;
}

static void assert_notes_equal(const struct note *a, const struct note *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->life, b->life);
    assert_int_equal(a->to, b->to);
    assert_int_equal(a->pos, b->pos);
    assert_int_equal(a->version, b->version);
    assert_true(str_eq(a->row, b->row) && str_eq(a->key, b->key) && str_eq(a->value, b->value));
    assert_true(str_eq(a->producer.id, b->producer.id));
    assert_int_equal(a->producer.epoch, b->producer.epoch);
    assert_int_equal(a->producer.seq, b->producer.seq);
    assert_memory_equal(&a->block, &b->block, sizeof a->block);
    assert_memory_equal(&a->meta, &b->meta, sizeof a->meta);
}

/* What remains of a note that is cut off is none, but where its end is a text's. */
static void test_notes(void **state)
{
    struct note notes[32], back;
    size_t n = some_notes(notes);
    for (size_t i = 0; i < n; i++) {
        struct buf bytes = {0};
        note_pack(&bytes, &notes[i]);
        assert_int_equal(note_unpack(buf_str(&bytes), &back), 0);
        assert_notes_equal(&notes[i], &back);
        bool open = notes[i].type == NOTE_STREAM || notes[i].type == NOTE_DOC;
        for (size_t cut = 0; cut < bytes.n && !open; cut++)
            assert_int_equal(note_unpack(str_of(bytes.p, cut), &back), ERR_CORRUPT);
        buf_putc(&bytes, 0);
        assert_int_equal(note_unpack(buf_str(&bytes), &back), open ? 0 : ERR_CORRUPT);
        buf_deinit(&bytes);
    }
}

static int unpack_one(const struct note *n)
{
    struct buf bytes = {0};
    struct note back;
    note_pack(&bytes, n);
    int err = note_unpack(buf_str(&bytes), &back);
    buf_deinit(&bytes);
    return err;
}

static void test_notes_that_make_no_sense(void **state)
{
    struct note n = {.type = NOTE_COPY, .life = 4, .to = 4, .pos = 1}, back;
    assert_int_equal(unpack_one(&n), ERR_CORRUPT);
    n = (struct note){.type = NOTE_BLOCK, .life = 4, .block = a_block()};
    n.block.end = n.block.first;
    assert_int_equal(unpack_one(&n), ERR_CORRUPT);
    n.block.end = n.block.first - 1;
    assert_int_equal(unpack_one(&n), ERR_CORRUPT);
    assert_int_equal(note_unpack(STR("\x00"), &back), ERR_CORRUPT);
    assert_int_equal(note_unpack(STR("\x0b"), &back), ERR_CORRUPT);
    char *long_row = mem_zalloc(INDEX_ROW_MAX + 1);
    n = (struct note){.type = NOTE_STREAM, .life = 1, .row = {long_row, INDEX_ROW_MAX}};
    assert_int_equal(unpack_one(&n), 0);
    n.row.n++;
    assert_int_equal(unpack_one(&n), ERR_CORRUPT);
    free(long_row);
}

/* ---- all kinds of changes ---- */

static void change_at_random(struct bench *b)
{
    char text[3000];
    struct rng *rng = &b->rng;
    size_t i = rng_below(rng, NAMES);
    const char *name = name_of(i);
    size_t n = rng_between(rng, 1, rng_one_in(rng, 10) ? sizeof text : 30);
    memset(text, 'A' + (int)(b->serial++ % 26), n);
    struct str data = str_of(text, n), key = str_of(&"klmno"[rng_below(rng, KEYS)], 1);
    struct store_write claimed = {.name = str_of_cstr(name),
                                  .data = data,
                                  .n_events = 1,
                                  .claim = {STR("p"), 0, b->seqs[i]},
                                  .close = rng_one_in(rng, 20),
                                  .end = END_FAILED};
    switch (rng_below(rng, 9)) {
    case 0:
        if (create(b, name, NULL) == 0)
            b->seqs[i] = 0;
        break;
    case 1:
        if (create(b, name, name_of(rng_below(rng, NAMES))) == 0)
            b->seqs[i] = 0;
        break;
    case 2:
    case 3: b->seqs[i] += write_op(b, claimed) == 0; break;
    case 4:
        if (rng_one_in(rng, 2) && remove_stream(b, name) == 0)
            b->seqs[i] = 0;
        break;
    case 5: put_doc(b, key, rng_one_in(rng, 3) ? STR_NONE : data, rng_below(rng, 3)); break;
    default: append(b, name, data); break;
    }
}

static uint64_t checkpoints_applied, stores_rebuilt;

static void check_rebuilt(struct bench *b)
{
    struct rebuild r = {0};
    struct buf before = {0}, after = {0};
    show_all(b, &before);
    bench_close(b);
    assert_true(index_is_rebuilt(simfs_vfs(b->fs), b->index, &r));
    assert_int_equal(r.damaged, 0);
    checkpoints_applied += r.checkpoints;
    stores_rebuilt++;
    index_forget(b->index);
    if (!bench_open(b))
        fail_msg("%s", b->why);
    show_all(b, &after);
    if (!str_eq(buf_str(&before), buf_str(&after)))
        dump_tell_difference(buf_str(&before), buf_str(&after));
    assert_true(str_eq(buf_str(&before), buf_str(&after)));
    buf_deinit(&before);
    buf_deinit(&after);
}

static void random_store(struct rng *rng)
{
    struct bench *b = bench_new(rng_next(rng));
    b->config.rest.base_bytes = rng_between(rng, 1, 20) * 1000;
    b->config.rest.base_files = rng_between(rng, 1, 20);
    b->config.rest.rewrite_bytes = rng_below(rng, 3) * 1000;
    assert_true(bench_open(b));
    for (unsigned step = 0; step < STEPS; step++) {
        change_at_random(b);
        if (rng_one_in(rng, 8))
            checkpoint(b);
        if (rng_one_in(rng, 40))
            check_rebuilt(b);
    }
    check_rebuilt(b);
    bench_free(b);
}

static void test_random_stores(void **state)
{
    seeds_run(SEEDS, random_store);
    print_message("%" PRIu64 " times an index was made again, from %" PRIu64 " checkpoints\n",
                  stores_rebuilt, checkpoints_applied);
    if (seeds_env("TIDEMARK_SEED") == 0)
        assert_true(checkpoints_applied > 3 * stores_rebuilt);
}

/* ---- files that come and go ---- */

/* Many checkpoints, of which little is live in the end: their notes do not pile up. */
static void test_bases_let_files_go(void **state)
{
    struct bench *b = bench_new(1);
    b->config.rest.base_files = 5;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "keeper", NULL), 0);
    assert_int_equal(append(b, "keeper", STR("kept")), 0);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(create(b, "a", NULL), 0);
        assert_int_equal(append(b, "a", STR("gone soon")), 0);
        checkpoint(b);
        assert_int_equal(remove_stream(b, "a"), 0);
        checkpoint(b);
        assert_true(segments_there(b) <= 8);
    }
    check_rebuilt(b);
    bench_close(b);
    struct index_meta meta = meta_of(b);
    assert_true(meta.next_segment > 100 && meta.base > 100);
    assert_non_null(simfs_content(b->fs, "segments/00000001.s").p); /* holds a live block */
    assert_null(simfs_content(b->fs, "segments/00000002.s").p);
    assert_true(bench_open(b));
    bench_free(b);
}

/* Large files that only their notes keep are not kept for long. */
static void test_dead_bytes_ask_for_a_base(void **state)
{
    struct bench *b = bench_new(1);
    static char big[50000];
    memset(big, 'x', sizeof big);
    b->config.rest.base_bytes = 20000;
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(append(b, "a", str_of(big, sizeof big)), 0);
    checkpoint(b);
    assert_int_equal(append(b, "a", str_of(big, sizeof big)), 0);
    checkpoint(b);
    uint64_t before = simfs_bytes(b->fs);
    assert_int_equal(remove_stream(b, "a"), 0);
    checkpoint(b);
    assert_true(simfs_bytes(b->fs) < before - 2 * sizeof big);
    assert_int_equal(segments_there(b), 1); /* and no checkpoint after the base */
    pass_turns(b, 500);
    assert_int_equal(segments_there(b), 1);
    bench_close(b);
    struct index_meta meta = meta_of(b);
    assert_int_equal(meta.base, 4);
    assert_int_equal(meta.next_segment, 5);
    bench_free(b);
}

static void copy_file(const char *from, const char *to)
{
    struct buf all = {0};
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf_reserve(&all, 65536), 65536)) > 0)
        all.n += (size_t)n;
    assert_int_equal(n, 0);
    assert_int_equal(write(out, all.p, all.n), all.n);
    close(in);
    close(out);
    buf_deinit(&all);
}

/* Somebody puts an old copy of the index back: it catches up, over a base or not. */
static void test_old_copy(void **state)
{
    for (uint64_t base_files = 0; base_files < 20; base_files += 4) {
        struct bench *b = bench_new(base_files + 1);
        struct buf before = {0}, after = {0};
        char copy[100];
        snprintf(copy, sizeof copy, "%s.copy", b->index);
        b->config.rest.base_files = base_files;
        assert_true(bench_open(b));
        for (int i = 0; i < 40; i++)
            change_at_random(b);
        checkpoint(b);
        bench_close(b);
        copy_file(b->index, copy);
        assert_true(bench_open(b));
        for (int i = 0; i < 200; i++) {
            change_at_random(b);
            if (i % 20 == 19)
                checkpoint(b);
        }
        checkpoint(b);
        show_all(b, &before);
        bench_close(b);
        struct buf had = {0}, has = {0};
        index_dump_file(b->index, &had);
        index_forget(b->index);
        assert_int_equal(rename(copy, b->index), 0);
        if (!bench_open(b))
            fail_msg("%s", b->why);
        show_all(b, &after);
        assert_true(str_eq(buf_str(&before), buf_str(&after)));
        bench_close(b);
        index_dump_file(b->index, &has);
        assert_true(str_eq(buf_str(&had), buf_str(&has)));
        buf_deinit(&before);
        buf_deinit(&after);
        buf_deinit(&had);
        buf_deinit(&has);
        bench_free(b);
    }
}

/* ---- damage ---- */

/* Four checkpoints: 1 is the base and has "one" of stream a; 2 has "two"; 3 has stream b; 4 has
 * documents alone. */
static struct bench *four_checkpoints(void)
{
    struct bench *b = bench_new(1);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    assert_int_equal(append(b, "a", STR("one")), 0);
    checkpoint(b);
    assert_int_equal(append(b, "a", STR("two")), 0);
    checkpoint(b);
    assert_int_equal(create(b, "b", NULL), 0);
    assert_int_equal(append(b, "b", STR("three")), 0);
    checkpoint(b);
    assert_int_equal(put_doc(b, STR("k"), STR("value"), 0), 0);
    checkpoint(b);
    bench_close(b);
    return b;
}

static void damage_end(struct bench *b, uint64_t id)
{
    char name[SEGMENT_NAME_MAX];
    segment_name(id, name);
    simfs_flip(b->fs, name, simfs_content(b->fs, name).n - 1, 1);
}

static void lose_segment(struct bench *b, uint64_t id)
{
    assert_int_equal(segment_remove(simfs_vfs(b->fs), id), 0);
}

/* It is refused, with this in the sentence, and what was there still is. */
static void assert_refused(struct bench *b, const char *reason)
{
    struct rebuild r = {0};
    struct buf before = {0}, after = {0};
    index_dump_file(b->index, &before);
    int err = index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why);
    assert_int_equal(err, ERR_CORRUPT);
    assert_true(r.damaged > 0);
    if (strstr(b->why, reason) == NULL || strstr(r.damage, reason) == NULL)
        fail_msg("%s", b->why);
    index_dump_file(b->index, &after);
    assert_true(str_eq(buf_str(&before), buf_str(&after)));
    buf_deinit(&before);
    buf_deinit(&after);
}

static struct rebuild salvage(struct bench *b)
{
    struct rebuild r = {.salvage = true};
    int err = index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why);
    if (err != 0)
        fail_msg("%s", b->why);
    assert_true(r.damage[0] != '\0');
    return r;
}

static void test_damaged_note(void **state)
{
    struct bench *b = four_checkpoints();
    damage_text(b, 4, STR("value"));
    assert_refused(b, "segment 4");
    struct rebuild r = salvage(b);
    assert_int_equal(r.damaged, 1);
    assert_int_equal(r.streams, 2);
    assert_int_equal(r.blocks, 3);
    assert_int_equal(r.docs, 0);
    assert_int_equal(r.checkpoints, 4);
    assert_true(bench_open(b));
    assert_shows(b, "a", "onetwo\n");
    assert_shows(b, "b", "three\n");
    bench_free(b);
}

static void test_missing_checkpoint(void **state)
{
    struct bench *b = four_checkpoints();
    lose_segment(b, 3);
    assert_refused(b, "segment 3 is missing");
    struct rebuild r = salvage(b);
    assert_int_equal(r.damaged, 1);
    assert_int_equal(r.streams, 1);
    assert_int_equal(r.docs, 1);
    assert_true(bench_open(b));
    assert_shows(b, "a", "onetwo\n");
    bench_free(b);
}

static void test_missing_base(void **state)
{
    struct bench *b = four_checkpoints();
    lose_segment(b, 1);
    assert_refused(b, "before segment 2");
    struct rebuild r = salvage(b);
    assert_int_equal(r.streams, 2);
    assert_int_equal(r.blocks, 2);
    assert_true(bench_open(b));
    assert_shows(b, "b", "three\n");
    bench_free(b);
}

/* Nothing but the footer: every note is found, so that the same rows come out. */
static void test_damaged_footer(void **state)
{
    for (uint64_t id = 1; id <= 4; id++) {
        struct bench *b = four_checkpoints();
        struct buf had = {0}, has = {0};
        index_dump_file(b->index, &had);
        damage_end(b, id);
        assert_refused(b, "footer");
        struct rebuild r = salvage(b);
        assert_true(r.damaged > 0);
        index_dump_file(b->index, &has);
        assert_true(str_eq(buf_str(&had), buf_str(&has)));
        assert_true(bench_open(b));
        assert_shows(b, "a", "onetwo\n");
        assert_shows(b, "b", "three\n");
        buf_deinit(&had);
        buf_deinit(&has);
        bench_free(b);
    }
}

/* Events are no part of it: what is lost of them is counted, and reading it is an error. */
static void test_lost_events(void **state)
{
    struct bench *b = four_checkpoints();
    struct rebuild r = {0};
    b->config.rest.base_files = 0;
    assert_true(bench_open(b));
    for (int i = 1; i <= 2; i++) { /* without events, so that a base is due */
        assert_int_equal(put_doc(b, STR("k"), STR("value"), (uint64_t)i), 0);
        checkpoint(b);
    }
    bench_close(b);
    assert_true(meta_of(b).base > 4);
    lose_segment(b, 2);
    index_forget(b->index);
    assert_int_equal(index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why),
                     0);
    assert_int_equal(r.damaged, 2); /* the file, and its only block */
    assert_non_null(strstr(r.damage, "segment 2 is missing"));
    assert_int_equal(r.blocks, 3);
    index_forget(b->index);
    assert_true(bench_open(b));
    assert_shows(b, "b", "three\n");
    struct buf shown = {0};
    show_stream(b, "a", &shown);
    assert_true(str_starts(buf_str(&shown), STR("one\na: ")));
    assert_false(str_starts(buf_str(&shown), STR("one\na: 0")));
    buf_deinit(&shown);
    bench_free(b);
}

/* A base that is damaged does not make one forget what was there before it. */
static void test_damaged_base(void **state)
{
    struct bench *b = four_checkpoints();
    b->config.rest.base_files = 0;
    assert_true(bench_open(b));
    assert_int_equal(put_doc(b, STR("k"), STR("new value"), 1), 0);
    checkpoint(b);
    assert_int_equal(append(b, "a", STR("four")), 0);
    checkpoint(b);
    bench_close(b);
    uint64_t base = meta_of(b).base;
    assert_int_equal(meta_of(b).next_segment, base + 2);
    damage_end(b, base);
    damage_text(b, base, STR("new value"));
    assert_refused(b, "segment 4 is missing"); /* for which there was no use any more */
    salvage(b);                                /* of the base only what stands before the damage */
    if (!bench_open(b))
        fail_msg("%s", b->why);
    assert_shows(b, "a", "onetwofour\n");
    assert_shows(b, "b", "three\n");
    bench_free(b);
}

/* What a crash leaves of making it is no index; what is none is not taken for one. */
static void test_leftovers(void **state)
{
    struct bench *b = four_checkpoints();
    char path[100];
    struct rebuild r = {0};
    snprintf(path, sizeof path, "%s.new", b->index);
    copy_file("/proc/self/stat", path);
    assert_true(index_is_rebuilt(simfs_vfs(b->fs), b->index, &r));
    index_forget(b->index);
    assert_true(bench_open(b));
    assert_shows(b, "a", "onetwo\n");
    bench_close(b);
    copy_file("/proc/self/stat", b->index);
    assert_false(bench_open(b));
    assert_non_null(strstr(b->why, "tidemark doctor DIR --repair"));
    bench_close(b);
    assert_int_equal(index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why),
                     0);
    assert_int_equal(r.streams, 2);
    assert_true(bench_open(b));
    assert_shows(b, "a", "onetwo\n");
    bench_free(b);
}

static void test_nothing_there(void **state)
{
    struct bench *b = bench_new(1);
    struct rebuild r = {0};
    assert_int_equal(index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why),
                     0);
    assert_int_equal(r.checkpoints + r.streams + r.docs + r.damaged, 0);
    assert_true(bench_open(b));
    assert_int_equal(create(b, "a", NULL), 0);
    bench_close(b);
    index_forget(b->index); /* nothing has come to rest: the journal has it */
    assert_true(bench_open(b));
    assert_shows(b, "a", "\na: 0");
    bench_free(b);
}

/* An error of the disk is no damage, and says so. */
static void test_unreadable(void **state)
{
    struct bench *b = four_checkpoints();
    struct rebuild r = {.salvage = true};
    for (uint64_t n = 1; n < 6; n++) {
        simfs_fail(b->fs, SIMFS_OPEN, n, ERR_IO);
        int err = index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why);
        assert_int_equal(err, ERR_IO);
    }
    simfs_fail(b->fs, SIMFS_LIST, 1, ERR_IO);
    assert_int_equal(index_rebuild(simfs_vfs(b->fs), b->index, false, &r, b->why, sizeof b->why),
                     ERR_IO);
    assert_true(bench_open(b));
    assert_shows(b, "a", "onetwo\n");
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_notes_that_make_no_sense),
        cmocka_unit_test_teardown(test_random_stores, seeds_teardown),
        cmocka_unit_test(test_bases_let_files_go),
        cmocka_unit_test(test_dead_bytes_ask_for_a_base),
        cmocka_unit_test(test_old_copy),
        cmocka_unit_test(test_damaged_note),
        cmocka_unit_test(test_missing_checkpoint),
        cmocka_unit_test(test_missing_base),
        cmocka_unit_test(test_damaged_footer),
        cmocka_unit_test(test_lost_events),
        cmocka_unit_test(test_damaged_base),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_unreadable),
    };
    return cmocka_run_group_tests_name("store/rebuild", tests, NULL, NULL);
}
