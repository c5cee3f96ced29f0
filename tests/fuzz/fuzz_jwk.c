// SPDX-License-Identifier: Apache-2.0
/* fuzz_jwk.c -- whatever is taken for a key is one that may be used. The first byte says what the
 * rest is: a set of keys; the members of one key beside a good one; the bytes of the numbers of a
 * key, of the type that it also names; or a PEM file. */
#include "base/b64.h"
#include "token/jwk_core.h"
#include "token/jws.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX 8192
#define GOOD                                                                                       \
    "{\"kid\":\"good\",\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":"                                 \
    "\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_jwk: %s\n", what);
    abort();
}

static void check_rsa(const struct jwk *k)
{
    BIGNUM *n = NULL, *e = NULL;
    check(k->alg == JWK_RS256 || k->alg == JWK_PS256, "RSA for something else");
    check(EVP_PKEY_get_bn_param(k->public, OSSL_PKEY_PARAM_RSA_N, &n) == 1 &&
              EVP_PKEY_get_bn_param(k->public, OSSL_PKEY_PARAM_RSA_E, &e) == 1,
          "no RSA key");
    check(BN_num_bits(n) >= 2048 && BN_num_bits(n) <= 8192, "a modulus of that size");
    check(BN_is_odd(n) && BN_is_odd(e) && BN_get_word(e) >= 3 && BN_num_bits(e) <= 64, "RSA");
    BN_free(n);
    BN_free(e);
}

/* y^2 = x^3 - 3x + b, by hand. */
static void check_p256(const struct jwk *k)
{
    BIGNUM *x = NULL, *y = NULL, *p = NULL, *b = NULL, *t = BN_new(), *u = BN_new();
    BN_CTX *ctx = BN_CTX_new();
    check(k->alg == JWK_ES256, "EC for something else");
    check(EVP_PKEY_get_bn_param(k->public, OSSL_PKEY_PARAM_EC_PUB_X, &x) == 1 &&
              EVP_PKEY_get_bn_param(k->public, OSSL_PKEY_PARAM_EC_PUB_Y, &y) == 1,
          "no point");
    BN_hex2bn(&p, "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
    BN_hex2bn(&b, "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b");
    BN_mod_sqr(t, x, p, ctx);
    BN_sub_word(t, 3);
    BN_mod_mul(t, t, x, p, ctx);
    BN_mod_add(t, t, b, p, ctx);
    BN_mod_sqr(u, y, p, ctx);
    check(BN_cmp(t, u) == 0, "a point that is not on the curve");
    check(BN_cmp(x, p) < 0 && BN_cmp(y, p) < 0, "a point beyond the field");
    BN_free(x), BN_free(y), BN_free(p), BN_free(b), BN_free(t), BN_free(u);
    BN_CTX_free(ctx);
}

static void check_key(const struct jwk *k, const struct jwk_policy *policy)
{
    static const char zeros[1024];
    check(k->mac == NULL && k->public != NULL && k->alg != JWK_HS256, "a secret from outside");
    check(policy->allowed == 0 || (policy->allowed & 1u << k->alg) != 0, "not what is allowed");
    check(k->kid_n == 0 || jwk_kid_is_valid(str_of(k->kid, k->kid_n)), "a kid that is none");
    switch (k->alg) {
    case JWK_RS256:
    case JWK_PS256: check_rsa(k); break;
    case JWK_ES256: check_p256(k); break;
    default: check(EVP_PKEY_is_a(k->public, "ED25519"), "another curve");
    }
    check(!jws_check(k, STR("text"), str_of(zeros, (size_t)EVP_PKEY_get_size(k->public))),
          "zeros are a signature");
}

static void check_set(const struct jwk_set *s, const struct jwk_policy *policy)
{
    size_t n = s->counts.usable, nameless = 0;
    check(n > 0 && n <= JWK_KEYS_MAX, "a set of that size");
    check(n + s->counts.skipped + s->counts.malformed <= JWK_KEYS_MAX, "more keys than allowed");
    for (size_t i = 0; i < n; i++) {
        check_key(&s->keys[i], policy);
        nameless += s->keys[i].kid_n == 0;
        for (size_t j = 0; j < i && s->keys[i].kid_n > 0; j++)
            check(!str_eq(jwk_set_kid(s, i), jwk_set_kid(s, j)), "the same kid twice");
        check(!s->keys[i].any_kid || (n == 1 && s->keys[i].kid_n == 0), "for all tokens");
    }
    check(nameless <= 2, "many without a kid");
}

static void fuzz_set(struct str json, const struct jwk_policy *policy)
{
    char why[100] = "";
    struct jwk_set *s = NULL;
    int err = jwk_set_parse(json, policy, &s, why, sizeof why);
    check((err == 0) == (s != NULL) && (err == 0 || why[0] != '\0'), "an error without a reason");
    check(ERR_peek_error() == 0, "OpenSSL's errors are left");
    if (s != NULL)
        check_set(s, policy);
    jwk_set_free(s);
}

static void fuzz_members(struct str members, const struct jwk_policy *policy)
{
    struct buf json = {0};
    buf_put(&json, STR("{\"keys\":[" GOOD ",{"));
    buf_put(&json, members);
    buf_put(&json, STR("}]}"));
    fuzz_set(buf_str(&json), policy);
    buf_deinit(&json);
}

static void put_member(struct buf *json, const char *name, struct str bytes)
{
    buf_printf(json, ",\"%s\":\"", name);
    b64url_put(json, bytes);
    buf_putc(json, '"');
}

static void fuzz_numbers(struct str input, const struct jwk_policy *policy)
{
    struct buf json = {0};
    size_t half = input.n / 2;
    switch (input.n > 0 ? input.p[0] % 3 : 0) {
    case 0: /* e has three bytes, and n the others */
        half = input.n > 3 ? 3 : input.n;
        buf_put(&json, STR("{\"kty\":\"RSA\""));
        put_member(&json, "e", str_of(input.p, half));
        put_member(&json, "n", str_skip(input, half));
        break;
    case 1:
        buf_put(&json, STR("{\"kty\":\"EC\",\"crv\":\"P-256\""));
        put_member(&json, "x", str_of(input.p, half));
        put_member(&json, "y", str_skip(input, half));
        break;
    default:
        buf_put(&json, STR("{\"kty\":\"OKP\",\"crv\":\"Ed25519\""));
        put_member(&json, "x", input);
    }
    buf_putc(&json, '}');
    fuzz_set(buf_str(&json), policy);
    buf_deinit(&json);
}

static void fuzz_pem(struct str pem, const struct jwk_policy *policy)
{
    char why[100] = "";
    struct jwk_set *s = NULL;
    int err = jwk_set_from_pem(pem, STR_NONE, policy, &s, why, sizeof why);
    check((err == 0) == (s != NULL) && (err == 0 || why[0] != '\0'), "an error without a reason");
    check(ERR_peek_error() == 0, "OpenSSL's errors are left");
    if (s != NULL)
        check_set(s, policy);
    jwk_set_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0 || n > INPUT_MAX)
        return 0;
    struct str input = str_of((const char *)data + 1, n - 1);
    struct jwk_policy policy = {
        .allowed = data[0] & 4 ? 1u << JWK_PS256 | 1u << JWK_ES256 | 1u << JWK_HS256 : 0,
        .rsa = data[0] & 8 ? JWK_PS256 : JWK_RS256,
    };
    switch (data[0] % 4) {
    case 0: fuzz_set(input, &policy); break;
    case 1: fuzz_members(input, &policy); break;
    case 2: fuzz_numbers(input, &policy); break;
    default: fuzz_pem(input, &policy);
    }
    return 0;
}
