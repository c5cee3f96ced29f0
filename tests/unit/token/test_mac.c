// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "token/mac.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct buf unhex(const char *hex)
{
    struct buf b = {0};
    buf_reserve(&b, 1);
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

static struct str repeat(char c, size_t n, char *room)
{
    memset(room, c, n);
    return str_of(room, n);
}

/* RFC 4231, section 4. Case 5 shows 16 bytes of its tag only. */
static void test_rfc4231(void **state)
{
    char k1[20], k3[20], d3[50], d4[50], k5[20], k6[131], k4[25];
    for (int i = 0; i < 25; i++)
        k4[i] = (char)(i + 1);
    struct str large = repeat('\xaa', sizeof k6, k6);
    const struct {
        struct str key, data;
        const char *tag;
    } cases[] = {
        {repeat('\x0b', sizeof k1, k1), STR("Hi There"),
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {STR("Jefe"), STR("what do ya want for nothing?"),
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {repeat('\xaa', sizeof k3, k3), repeat('\xdd', sizeof d3, d3),
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {str_of(k4, sizeof k4), repeat('\xcd', sizeof d4, d4),
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {repeat('\x0c', sizeof k5, k5), STR("Test With Truncation"),
         "a3b6167473100ee06e0c796c2955552b"},
        {large, STR("Test Using Larger Than Block-Size Key - Hash Key First"),
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {large,
         STR("This is a test using a larger than block-size key and a larger than block-size data. "
             "The key needs to be hashed before being used by the HMAC algorithm."),
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mac *m = mac_new(cases[i].key);
        uint8_t tag[MAC_SIZE];
        for (int again = 0; again < 2; again++) { /* the kept key must give the same tag */
            mac_sign(m, &cases[i].data, 1, tag);
            assert_hex(tag, strlen(cases[i].tag) / 2, cases[i].tag);
        }
        mac_free(m);
    }
}

static void test_parts_are_one_message(void **state)
{
    struct mac *m = mac_new(STR("Jefe"));
    const struct str parts[] = {STR("what do ya "), STR_NONE, STR("want"), STR(" for nothing?")};
    uint8_t tag[MAC_SIZE];
    mac_sign(m, parts, COUNT(parts), tag);
    assert_hex(tag, MAC_SIZE, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    mac_free(m);
}

static void test_empty_key_and_message(void **state)
{
    struct mac *m = mac_new(STR_NONE);
    uint8_t tag[MAC_SIZE];
    mac_sign(m, NULL, 0, tag);
    assert_hex(tag, MAC_SIZE, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
    mac_free(m);
}

static void test_check(void **state)
{
    struct mac *m = mac_new(STR("key")), *other = mac_new(STR("yek"));
    struct str data = STR("data"), changed = STR("datb");
    uint8_t tag[MAC_SIZE];
    mac_sign(m, &data, 1, tag);
    struct str right = str_of((char *)tag, MAC_SIZE);
    assert_true(mac_check(m, &data, 1, right));
    assert_false(mac_check(m, &changed, 1, right));
    assert_false(mac_check(other, &data, 1, right));
    assert_false(mac_check(m, &data, 1, str_of(right.p, MAC_SIZE - 1)));
    assert_false(mac_check(m, &data, 1, STR_NONE));
    for (int bit = 0; bit < MAC_SIZE * 8; bit++) {
        tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(mac_check(m, &data, 1, right));
        tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    mac_free(m);
    mac_free(other);
    mac_free(NULL);
}

static void test_equal(void **state)
{
    assert_true(mac_equal(STR("abc"), STR("abc")));
    assert_true(mac_equal(STR_NONE, STR("")));
    assert_false(mac_equal(STR("abc"), STR("abd")));
    assert_false(mac_equal(STR("abc"), STR("abcd")));
    assert_false(mac_equal(STR("abc"), STR_NONE));
}

/* RFC 5869, appendix A, the SHA-256 cases. */
static void test_rfc5869(void **state)
{
    static const struct {
        const char *secret, *salt, *info, *out;
    } cases[] = {
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c",
         "f0f1f2f3f4f5f6f7f8f9",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b"
         "2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f",
         "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b"
         "8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
         "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadb"
         "dcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
         "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf secret = unhex(cases[i].secret), salt = unhex(cases[i].salt),
                   info = unhex(cases[i].info);
        size_t n = strlen(cases[i].out) / 2;
        uint8_t out[128];
        mac_hkdf(buf_str(&secret), buf_str(&salt), buf_str(&info), out, n);
        assert_hex(out, n, cases[i].out);
        buf_deinit(&secret);
        buf_deinit(&salt);
        buf_deinit(&info);
    }
}

/* Frozen: tokens that clients hold were made with these. The values come from the definition,
 * HMAC(HMAC(32 zeros, root), "tidemark/" purpose 0x01). */
static void test_subkeys(void **state)
{
    uint8_t root[MAC_KEY_SIZE], key[MAC_KEY_SIZE], other[MAC_KEY_SIZE], inner[MAC_SIZE];
    for (int i = 0; i < MAC_KEY_SIZE; i++)
        root[i] = (uint8_t)i;
    mac_subkey(root, "callback", key);
    mac_subkey(root, "cursor", other);
    assert_memory_not_equal(key, other, sizeof key);

    char zeros[32];
    struct mac *extract = mac_new(repeat('\0', sizeof zeros, zeros));
    mac_sign(extract, &(struct str){(char *)root, sizeof root}, 1, inner);
    struct mac *expand = mac_new(str_of((char *)inner, sizeof inner));
    mac_sign(expand, (struct str[]){STR("tidemark/callback"), STR("\x01")}, 2, other);
    assert_memory_equal(key, other, sizeof key);
    mac_free(extract);
    mac_free(expand);

    root[31] ^= 1;
    mac_subkey(root, "callback", other);
    assert_memory_not_equal(key, other, sizeof key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc4231),
        cmocka_unit_test(test_parts_are_one_message),
        cmocka_unit_test(test_empty_key_and_message),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_rfc5869),
        cmocka_unit_test(test_subkeys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
