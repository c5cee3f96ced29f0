// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/b64.h"
#include "token/signer.h"

#include <openssl/evp.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = 0;
    for (unsigned byte; sscanf(hex + 2 * n, "%2x", &byte) == 1; n++)
        out[n] = (uint8_t)byte;
    return n;
}

static struct signer *signer_of(const char *seed_hex)
{
    uint8_t seed[SIGNER_SEED_SIZE];
    assert_int_equal(unhex(seed_hex, seed), sizeof seed);
    return signer_new(seed);
}

/* RFC 8032, section 7.1, tests 1 to 3. */
static const struct {
    const char *seed, *public, *message, *signature;
} vectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
};

static void test_rfc8032(void **state)
{
    for (size_t i = 0; i < COUNT(vectors); i++) {
        struct signer *s = signer_of(vectors[i].seed);
        uint8_t message[8], right[SIGNER_SIZE], signature[SIGNER_SIZE];
        struct str whole = str_of((char *)message, unhex(vectors[i].message, message));
        assert_int_equal(unhex(vectors[i].signature, right), SIGNER_SIZE);
        signer_sign(s, &whole, 1, signature);
        assert_memory_equal(signature, right, SIGNER_SIZE);
        signer_free(s);
    }
}

static void test_parts_are_one_message(void **state)
{
    struct signer *s = signer_of(vectors[2].seed);
    const struct str parts[] = {STR("\xaf"), STR_NONE, STR("\x82")};
    uint8_t right[SIGNER_SIZE], signature[SIGNER_SIZE];
    unhex(vectors[2].signature, right);
    signer_sign(s, parts, COUNT(parts), signature);
    assert_memory_equal(signature, right, SIGNER_SIZE);
    signer_free(s);
}

/* RFC 8037, appendix A.2 and A.3: the key of the first vector and its thumbprint. */
static void test_rfc8037_thumbprint(void **state)
{
    struct signer *s = signer_of(vectors[0].seed);
    assert_true(str_eq(signer_kid(s), STR("ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")));
    assert_true(
        str_eq(signer_jwk(s), STR("{\"kty\":\"OKP\",\"crv\":\"Ed25519\","
                                  "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\","
                                  "\"kid\":\"ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k\","
                                  "\"use\":\"sig\",\"alg\":\"EdDSA\"}")));
    signer_free(s);
}

static bool verifies(const char *public_hex, struct str message, struct str signature)
{
    uint8_t public[32];
    unhex(public_hex, public);
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public, sizeof public);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key), 1);
    int ok = EVP_DigestVerify(ctx, (const uint8_t *)signature.p, signature.n,
                              (const uint8_t *)message.p, message.n);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return ok == 1;
}

/* As a receiver would: take the header apart, verify with the public key alone. */
static void test_header_verifies(void **state)
{
    struct signer *s = signer_of(vectors[1].seed);
    struct buf header = {0}, signature = {0};
    buf_put(&header, STR("before;"));
    signer_put_header(s, 1762000000, STR("{\"n\":1}\0x"), &header);

    struct str rest = str_skip(buf_str(&header), strlen("before;"));
    assert_true(str_eq(str_cut(&rest, ','), STR("t=1762000000")));
    struct str kid = str_cut(&rest, ',');
    assert_true(str_starts(kid, STR("kid=ds_")));
    assert_true(str_eq(str_skip(kid, 4), signer_kid(s)));
    assert_true(str_starts(rest, STR("ed25519=")));
    assert_int_equal(b64url_take(&signature, str_skip(rest, 8)), 0);

    const char *public = vectors[1].public;
    assert_true(verifies(public, STR("1762000000.{\"n\":1}\0x"), buf_str(&signature)));
    assert_false(verifies(public, STR("1762000001.{\"n\":1}\0x"), buf_str(&signature)));
    assert_false(verifies(public, STR("1762000000.{\"n\":1}\0y"), buf_str(&signature)));
    assert_false(verifies(vectors[0].public, STR("1762000000.{\"n\":1}\0x"), buf_str(&signature)));
    buf_deinit(&header);
    buf_deinit(&signature);
    signer_free(s);
}

static void test_empty_body(void **state)
{
    struct signer *s = signer_of(vectors[1].seed);
    struct buf header = {0}, signature = {0};
    signer_put_header(s, 0, STR_NONE, &header);
    assert_true(str_starts(buf_str(&header), STR("t=0,kid=")));
    const char *at = memmem(header.p, header.n, "ed25519=", 8);
    assert_non_null(at);
    struct str text = str_of(at + 8, header.n - (size_t)(at + 8 - header.p));
    assert_int_equal(b64url_take(&signature, text), 0);
    assert_true(verifies(vectors[1].public, STR("0."), buf_str(&signature)));
    buf_deinit(&header);
    buf_deinit(&signature);
    signer_free(s);
    signer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc8032),
        cmocka_unit_test(test_parts_are_one_message),
        cmocka_unit_test(test_rfc8037_thumbprint),
        cmocka_unit_test(test_header_verifies),
        cmocka_unit_test(test_empty_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
