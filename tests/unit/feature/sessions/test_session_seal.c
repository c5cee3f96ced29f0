// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"
#include "base/le.h"
#include "feature/sessions/session_seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The fixed values below were made by another program, `node` with this:
 *
 *     const c = require('crypto'), name = Buffer.from('chat-1');
 *     const secret = Buffer.from([...Array(32).keys()]);
 *     const salt = Buffer.from([...Array(16).keys()].map(i => 160 + i));
 *     const key = (s, what) =>
 *         Buffer.from(c.hkdfSync('sha256', secret, s, 'tidemark session ' + what, 32));
 *     const chain = (before, covered) =>
 *         c.createHmac('sha256', key(name, 'mac')).update(before).update(covered).digest();
 *     const head = Buffer.from('2a00000004' + '0700000000000000', 'hex');
 *     const nonce = Buffer.from('000102030405060708090a0b', 'hex');
 *     const gcm = c.createCipheriv('aes-256-gcm', key(salt, 'out'), nonce);
 *     gcm.setAAD(Buffer.concat([Buffer.from('010300000000000000', 'hex'), head, name]));
 *     const sealed = Buffer.concat(
 *         [head, nonce, gcm.update('hello'), gcm.final(), gcm.getAuthTag()]);
 *     const one = chain(Buffer.alloc(32), 'first');
 *     for (const v of [key(salt, 'check'), one, chain(one, 'second'), sealed])
 *         console.log(v.toString('hex'));
 */
static const char right_check[] =
    "cb6faf40835bac11c338fb6fa1caaf0c87e7722fbfa106faf783f59dac8c3e71";
static const char right_chain[2][65] = {
    "f20cce18aa9d3ebb7c47f2b59fc8094d8841e0e68678c7b1b24ceb818bcb0caf",
    "2dd4f5ccbc2f38bd401e638a8df7b2968ad6d464d097e5f2ca3057cc7b628cea",
};
static const char right_sealed[] = "2a000000040700000000000000000102030405060708090a0b"
                                   "8d6b42c277da509430e86f05bb7fd965c0d386bc70";
static const uint64_t sealed_ordinal = 3, sealed_a = 7;

struct material {
    uint8_t secret[SESSION_SECRET_SIZE], salt[SESSION_SALT_SIZE];
    struct str name;
};

static struct material material(void)
{
    struct material m = {.name = STR("chat-1")};
    for (size_t i = 0; i < SESSION_SECRET_SIZE; i++)
        m.secret[i] = (uint8_t)i;
    for (size_t i = 0; i < SESSION_SALT_SIZE; i++)
        m.salt[i] = (uint8_t)(160 + i);
    return m;
}

static struct session_keys *keys_of(const struct material *m)
{
    return session_keys_new(m->secret, m->salt, m->name);
}

static struct session_keys *keys(void)
{
    struct material m = material();
    return keys_of(&m);
}

static struct buf unhex(const char *hex)
{
    struct buf b = {0};
    for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        buf_putc(&b, (char)byte);
    return b;
}

static void assert_hex(const uint8_t *bytes, size_t n, const char *hex)
{
    struct buf right = unhex(hex);
    assert_int_equal(right.n, n);
    assert_memory_equal(bytes, right.p, n);
    buf_deinit(&right);
}

/* Cuts and opens a lone record. What cannot be opened leaves *out as it was. */
static int open_one(struct session_keys *k, enum session_direction direction, uint64_t ordinal,
                    struct str bytes, struct buf *out)
{
    struct session_record r;
    int err = session_record_cut(&bytes, &r);
    if (err == 0 && bytes.n > 0)
        err = ERR_CORRUPT;
    size_t n = out->n;
    if (err == 0)
        err = session_open(k, direction, ordinal, &r, out);
    if (err)
        assert_int_equal(out->n, n);
    return err;
}

static void test_check_vector(void **state)
{
    struct material m = material();
    uint8_t check[SESSION_CHECK_SIZE], other[SESSION_CHECK_SIZE];
    session_check(m.secret, m.salt, check);
    assert_hex(check, sizeof check, right_check);
    m.salt[15] ^= 1;
    session_check(m.secret, m.salt, other);
    assert_memory_not_equal(check, other, sizeof check);
    m = material();
    m.secret[31] ^= 1;
    session_check(m.secret, m.salt, other);
    assert_memory_not_equal(check, other, sizeof check);
}

static void test_chain_vector(void **state)
{
    struct session_keys *k = keys();
    uint8_t mac[SESSION_MAC_SIZE] = {0};
    session_chain(k, mac, STR("first"), mac); /* in place, as a session keeps it */
    assert_hex(mac, sizeof mac, right_chain[0]);
    session_chain(k, mac, STR("second"), mac);
    assert_hex(mac, sizeof mac, right_chain[1]);
    session_keys_free(k);
}

/* A client makes the chain without knowing the salt; the name and the secret count. */
static void test_chain_keys(void **state)
{
    static const uint8_t zeros[SESSION_MAC_SIZE];
    struct material salt = material(), name = material(), secret = material();
    salt.salt[0] ^= 1;
    name.name = STR("chat-2");
    secret.secret[0] ^= 1;
    const struct material *all[] = {&salt, &name, &secret};
    for (size_t i = 0; i < COUNT(all); i++) {
        struct session_keys *k = keys_of(all[i]);
        uint8_t mac[SESSION_MAC_SIZE];
        session_chain(k, zeros, STR("first"), mac);
        struct buf right = unhex(right_chain[0]);
        assert_int_equal(memcmp(mac, right.p, sizeof mac) == 0, all[i] == &salt);
        buf_deinit(&right);
        session_keys_free(k);
    }
}

static void test_open_vector(void **state)
{
    struct session_keys *k = keys();
    struct buf record = unhex(right_sealed), content = {0};
    struct str rest = buf_str(&record);
    struct session_record r;
    assert_int_equal(session_record_cut(&rest, &r), 0);
    assert_int_equal(rest.n, 0);
    assert_int_equal(r.type, SESSION_RECORD_EVENT);
    assert_int_equal(r.a, sealed_a);
    buf_put(&content, STR("> "));
    assert_int_equal(session_open(k, SESSION_OUT, sealed_ordinal, &r, &content), 0);
    assert_true(str_eq(buf_str(&content), STR("> hello")));
    buf_deinit(&record);
    buf_deinit(&content);
    session_keys_free(k);
}

static void test_round_trip(void **state)
{
    struct session_keys *k = keys();
    char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 + i / 256);
    static const size_t sizes[] = {0, 1, 15, 16, 17, 31, 32, 33, 4096, sizeof bytes};
    struct buf out = {0}, content = {0};
    for (uint64_t i = 0; i < COUNT(sizes); i++) {
        size_t before = out.n;
        session_seal(k, SESSION_IN, i, SESSION_RECORD_CHUNK, i << 40, str_of(bytes, sizes[i]),
                     &out);
        assert_int_equal(out.n - before, sizes[i] + SESSION_SEAL_EXTRA);
        assert_int_equal(le_get_u32(out.p + before), out.n - before - 4);
    }
    struct str rest = buf_str(&out);
    for (uint64_t i = 0; i < COUNT(sizes); i++) {
        struct session_record r;
        assert_int_equal(session_record_cut(&rest, &r), 0);
        assert_int_equal(r.type, SESSION_RECORD_CHUNK);
        assert_int_equal(r.a, i << 40);
        content.n = 0;
        assert_int_equal(session_open(k, SESSION_IN, i, &r, &content), 0);
        assert_true(str_eq(buf_str(&content), str_of(bytes, sizes[i])));
    }
    assert_int_equal(rest.n, 0);
    buf_deinit(&out);
    buf_deinit(&content);
    session_keys_free(k);
}

static void test_types(void **state)
{
    struct session_keys *k = keys();
    struct buf out = {0}, content = {0};
    for (int type = SESSION_RECORD_CHUNK; type <= SESSION_RECORD_MOVED; type++) {
        out.n = 0;
        session_seal(k, SESSION_IN, 0, (enum session_record_type)type, 0, STR_NONE, &out);
        struct str rest = buf_str(&out);
        struct session_record r;
        assert_int_equal(session_record_cut(&rest, &r), 0);
        assert_int_equal(r.type, type);
        assert_int_equal(session_open(k, SESSION_IN, 0, &r, &content), 0);
        assert_int_equal(content.n, 0);
    }
    buf_deinit(&out);
    buf_deinit(&content);
    session_keys_free(k);
}

static void test_every_bit_counts(void **state)
{
    struct session_keys *k = keys();
    struct buf record = {0}, content = {0};
    session_seal(k, SESSION_IN, 5, SESSION_RECORD_CHUNK, 9, STR("what the client said"), &record);
    assert_int_equal(open_one(k, SESSION_IN, 5, buf_str(&record), &content), 0);
    content.n = 0;
    for (size_t bit = 0; bit < record.n * 8; bit++) {
        record.p[bit / 8] ^= (char)(1 << bit % 8);
        if (open_one(k, SESSION_IN, 5, buf_str(&record), &content) != ERR_CORRUPT)
            fail_msg("bit %zu", bit);
        record.p[bit / 8] ^= (char)(1 << bit % 8);
    }
    /* The keys have come through all of that. */
    assert_int_equal(open_one(k, SESSION_IN, 5, buf_str(&record), &content), 0);
    assert_true(str_eq(buf_str(&content), STR("what the client said")));
    buf_deinit(&record);
    buf_deinit(&content);
    session_keys_free(k);
}

static void test_belongs_to_its_place(void **state)
{
    struct session_keys *k = keys();
    struct buf record = unhex(right_sealed), content = {0};
    struct str bytes = buf_str(&record);
    assert_int_equal(open_one(k, SESSION_OUT, 2, bytes, &content), ERR_CORRUPT);
    assert_int_equal(open_one(k, SESSION_OUT, 4, bytes, &content), ERR_CORRUPT);
    assert_int_equal(open_one(k, SESSION_OUT, sealed_ordinal | (uint64_t)1 << 63, bytes, &content),
                     ERR_CORRUPT);
    assert_int_equal(open_one(k, SESSION_IN, sealed_ordinal, bytes, &content), ERR_CORRUPT);
    assert_int_equal(open_one(k, SESSION_OUT, sealed_ordinal, bytes, &content), 0);
    buf_deinit(&record);
    buf_deinit(&content);
    session_keys_free(k);
}

static void test_belongs_to_its_session(void **state)
{
    struct material salt = material(), name = material(), longer = material(), empty = material(),
                    secret = material();
    salt.salt[0] ^= 1;
    name.name = STR("chat-2");
    longer.name = STR("chat-10");
    empty.name = STR_NONE;
    secret.secret[0] ^= 1;
    const struct material *others[] = {&salt, &name, &longer, &empty, &secret};
    struct buf record = unhex(right_sealed), content = {0};
    for (size_t i = 0; i < COUNT(others); i++) {
        struct session_keys *k = keys_of(others[i]);
        if (open_one(k, SESSION_OUT, sealed_ordinal, buf_str(&record), &content) != ERR_CORRUPT)
            fail_msg("opened by %zu", i);
        session_keys_free(k);
    }
    buf_deinit(&record);
    buf_deinit(&content);
}

static void test_two_seals_differ(void **state)
{
    struct session_keys *k = keys();
    struct buf one = {0}, two = {0};
    session_seal(k, SESSION_OUT, 0, SESSION_RECORD_EVENT, 0, STR("the same words"), &one);
    session_seal(k, SESSION_OUT, 0, SESSION_RECORD_EVENT, 0, STR("the same words"), &two);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.p, two.p, 13);
    assert_memory_not_equal(one.p + 13, two.p + 13, 12);
    assert_memory_not_equal(one.p + 25, two.p + 25, one.n - 25);
    assert_null(memmem(one.p, one.n, "the same", 8));
    buf_deinit(&one);
    buf_deinit(&two);
    session_keys_free(k);
}

static void test_cut_short(void **state)
{
    struct buf record = unhex(right_sealed);
    for (size_t n = 0; n < record.n; n++) {
        char *copy = malloc(n + 1); /* a byte read too far is found */
        memcpy(copy, record.p, n);
        char *exact = realloc(copy, n ? n : 1);
        struct str rest = str_of(exact, n);
        struct session_record r;
        if (session_record_cut(&rest, &r) != ERR_CORRUPT)
            fail_msg("cut at %zu", n);
        assert_int_equal(rest.n, n);
        free(exact);
    }
    buf_deinit(&record);
}

static void test_no_records(void **state)
{
    struct buf record = unhex(right_sealed);
    struct session_record r;
    static const uint32_t sizes[] = {0, 36, 43, 0x7fffffff, UINT32_MAX - 3, UINT32_MAX};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        le_put_u32(record.p, sizes[i]);
        struct str rest = buf_str(&record);
        assert_int_equal(session_record_cut(&rest, &r), ERR_CORRUPT);
    }
    le_put_u32(record.p, (uint32_t)record.n - 4);
    static const unsigned char types[] = {0, 6, 128, 255};
    for (size_t i = 0; i < COUNT(types); i++) {
        record.p[4] = (char)types[i];
        struct str rest = buf_str(&record);
        assert_int_equal(session_record_cut(&rest, &r), ERR_CORRUPT);
    }
    buf_deinit(&record);
}

static void test_secret(void **state)
{
    struct material m = material();
    uint8_t secret[SESSION_SECRET_SIZE];
    assert_int_equal(
        session_secret_parse(STR("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"), secret), 0);
    assert_memory_equal(secret, m.secret, sizeof secret);
    static const struct str bad[] = {
        STR_INIT(""),
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh"),
        STR_INIT(
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh="), /* its padding in the place of it */
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8A"),
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=="),
        STR_INIT("=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"),
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9"), /* bits behind the last byte */
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+"),
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdH 8"),
        STR_INIT("00010203040506070809101112131415161718192021"),
    };
    /* Either alphabet, padded or not, is the same secret. */
    static const struct str same[] = {
        STR_INIT("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        STR_INIT("-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_8"),
        STR_INIT("+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/8"),
        STR_INIT("+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/8="),
        STR_INIT("-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_8="),
    };
    uint8_t first[SESSION_SECRET_SIZE], other[SESSION_SECRET_SIZE];
    assert_int_equal(session_secret_parse(same[0], other), 0);
    assert_memory_equal(other, m.secret, sizeof other);
    assert_int_equal(session_secret_parse(same[1], first), 0);
    for (size_t i = 2; i < COUNT(same); i++) {
        assert_int_equal(session_secret_parse(same[i], other), 0);
        assert_memory_equal(other, first, sizeof other);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        if (session_secret_parse(bad[i], secret) != ERR_SYNTAX)
            fail_msg("taken: %s", bad[i].p);
        assert_memory_equal(secret, m.secret, sizeof secret); /* untouched */
    }
}

/* A tenant's session is stored under another name than its client knows. */
static void test_chain_of_a_tenant(void **state)
{
    struct material m = material();
    uint8_t before[SESSION_MAC_SIZE] = {0}, one[SESSION_MAC_SIZE], other[SESSION_MAC_SIZE];
    struct session_keys *own = keys_of(&m);
    m.name = STR("t%a%chat-1");
    struct session_keys *stored = keys_of(&m);
    session_chain(own, before, STR("event"), one);
    session_chain(stored, before, STR("event"), other);
    assert_memory_equal(one, other, sizeof one);
    session_keys_free(own);
    session_keys_free(stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_a_tenant),
        cmocka_unit_test(test_check_vector),
        cmocka_unit_test(test_chain_vector),
        cmocka_unit_test(test_chain_keys),
        cmocka_unit_test(test_open_vector),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_belongs_to_its_place),
        cmocka_unit_test(test_belongs_to_its_session),
        cmocka_unit_test(test_two_seals_differ),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_no_records),
        cmocka_unit_test(test_secret),
    };
    session_keys_free(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
