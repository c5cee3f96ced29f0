// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "token/jwk.h"
#include "token/jwk_core.h"
#include "token/jws.h"
#include "unit/token/token_kit.h"

#include <openssl/err.h>
#include <stdio.h>

/* Of RFC 7515, appendix A, and RFC 8037, appendix A. */
#define RSA_N                                                                                      \
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4" \
    "d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5re" \
    "xMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxX" \
    "FvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
#define EC_X "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
#define EC_Y "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
#define ED_X "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"

#define RSA  "\"kty\":\"RSA\",\"n\":\"" RSA_N "\",\"e\":\"AQAB\""
#define EC   "\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" EC_X "\",\"y\":\"" EC_Y "\""
#define ED   "\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" ED_X "\""
#define CLAIM                                                                                      \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl" \
    "fQ"

static char why[200];

/* The set, or NULL with an error that is looked at here: it has a phrase, and leaves nothing on
 * OpenSSL's queue. */
static struct jwk_set *parse_as(const char *json, const struct jwk_policy *policy, int *err)
{
    struct jwk_set *untouched = (struct jwk_set *)why, *s = untouched;
    why[0] = '\0';
    *err = jwk_set_parse(str_of_cstr(json), policy, &s, why, sizeof why);
    assert_int_equal(ERR_peek_error(), 0);
    if (*err == 0)
        return s;
    assert_ptr_equal(s, untouched);
    assert_true(why[0] != '\0');
    return NULL;
}

static int fails(const char *json)
{
    int err;
    struct jwk_set *s = parse_as(json, NULL, &err);
    jwk_set_free(s);
    return err;
}

static struct jwk_set *parse(const char *json)
{
    int err;
    struct jwk_set *s = parse_as(json, NULL, &err);
    if (s == NULL)
        fail_msg("%s: %s", why, json);
    return s;
}

static void expect_counts(const char *json, size_t usable, size_t skipped, size_t malformed)
{
    struct jwk_set *s = parse(json);
    struct jwk_counts c = jwk_set_counts(s);
    if (c.usable != usable || c.skipped != skipped || c.malformed != malformed)
        fail_msg("%zu usable, %zu skipped, %zu malformed: %s", c.usable, c.skipped, c.malformed,
                 json);
    jwk_set_free(s);
}

/* What becomes of one key beside a good one: 'u', 's' or 'm'. */
static char fate_of(const char *members)
{
    struct buf json = {0};
    buf_printf(&json, "{\"keys\":[{" ED ",\"kid\":\"good\"},{%s}]}", members);
    buf_putc(&json, '\0');
    struct jwk_set *s = parse(json.p);
    struct jwk_counts c = jwk_set_counts(s);
    assert_int_equal(c.usable + c.skipped + c.malformed, 2);
    jwk_set_free(s);
    buf_deinit(&json);
    return c.usable == 2 ? 'u' : c.skipped == 1 ? 's' : 'm';
}

/* ---- keys of the RFCs ---- */

static void rfc_keys_verify_rfc_signatures(void **state)
{
    static const struct {
        const char *jwk, *text, *signature;
        enum jwk_alg alg;
    } rows[] = {
        {"{" RSA "}", "eyJhbGciOiJSUzI1NiJ9." CLAIM,
         "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W"
         "2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkS"
         "jtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnv"
         "Wh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
         JWK_RS256},
        {"{" EC "}", "eyJhbGciOiJFUzI1NiJ9." CLAIM,
         "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
         JWK_ES256},
        {"{" ED "}", "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
         "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
         JWK_EDDSA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct jwk_set *s = parse(rows[i].jwk);
        struct buf signature = {0};
        assert_int_equal(b64url_take(&signature, str_of_cstr(rows[i].signature)), 0);
        assert_int_equal(jwk_set_alg(s, 0), rows[i].alg);
        const struct jwk *key = jwk_set_match(s, STR("any"), NULL);
        struct str text = str_of_cstr(rows[i].text);
        assert_true(jws_check(key, text, buf_str(&signature)));
        for (size_t at = 0; at < signature.n; at++) {
            signature.p[at] ^= 1;
            assert_false(jws_check(key, text, buf_str(&signature)));
            signature.p[at] ^= 1;
        }
        assert_false(jws_check(key, str_skip(text, 1), buf_str(&signature)));
        assert_int_equal(ERR_peek_error(), 0);
        buf_deinit(&signature);
        jwk_set_free(s);
    }
}

/* ---- what is taken ---- */

static void algorithm_is_settled_by_the_key(void **state)
{
    static const struct {
        const char *jwk;
        enum jwk_alg rsa, alg;
    } rows[] = {
        {"{" RSA "}", JWK_RS256, JWK_RS256},
        {"{" RSA "}", JWK_PS256, JWK_PS256},
        {"{" RSA ",\"alg\":\"RS256\"}", JWK_PS256, JWK_RS256},
        {"{" RSA ",\"alg\":\"PS256\"}", JWK_RS256, JWK_PS256},
        {"{" EC ",\"alg\":\"ES256\"}", JWK_RS256, JWK_ES256},
        {"{" ED ",\"alg\":\"EdDSA\"}", JWK_RS256, JWK_EDDSA},
        {"{" ED ",\"alg\":\"Ed25519\"}", JWK_RS256, JWK_EDDSA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int err;
        struct jwk_set *s = parse_as(rows[i].jwk, &(struct jwk_policy){.rsa = rows[i].rsa}, &err);
        assert_int_equal(err, 0);
        assert_int_equal(jwk_set_alg(s, 0), rows[i].alg);
        jwk_set_free(s);
    }
}

static void policy_leaves_algorithms_out(void **state)
{
    const char *json = "{\"keys\":[{" RSA ",\"kid\":\"r\"},{" EC ",\"kid\":\"e\"},{" ED "}]}";
    int err;
    struct jwk_set *s =
        parse_as(json, &(struct jwk_policy){1u << JWK_ES256 | 1u << JWK_HS256, 0}, &err);
    assert_int_equal(jwk_set_counts(s).usable, 1);
    assert_int_equal(jwk_set_counts(s).skipped, 2);
    assert_true(str_eq(jwk_set_kid(s, 0), STR("e")));
    jwk_set_free(s);
    assert_null(parse_as(json, &(struct jwk_policy){1u << JWK_PS256, JWK_RS256}, &err));
    assert_int_equal(err, ERR_EMPTY);
}

static void purpose_is_checked(void **state)
{
    assert_int_equal(fate_of(EC ",\"use\":\"sig\",\"key_ops\":[\"verify\"]"), 'u');
    assert_int_equal(fate_of(EC ",\"key_ops\":[\"encrypt\",\"verify\"]"), 'u');
    assert_int_equal(fate_of(EC ",\"use\":\"enc\""), 's');
    assert_int_equal(fate_of(EC ",\"key_ops\":[\"sign\"]"), 's');
    assert_int_equal(fate_of(EC ",\"key_ops\":[]"), 's');
    assert_int_equal(fate_of(EC ",\"use\":\"sig\",\"key_ops\":[\"encrypt\"]"), 's');
    assert_int_equal(fate_of(EC ",\"use\":1"), 'm');
    assert_int_equal(fate_of(EC ",\"use\":null"), 'm');
    assert_int_equal(fate_of(EC ",\"key_ops\":\"verify\""), 'm');
}

static void unknown_is_skipped(void **state)
{
    assert_int_equal(fate_of("\"kty\":\"AKP\",\"alg\":\"ML-DSA-44\",\"pub\":\"AAAA\""), 's');
    assert_int_equal(fate_of("\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"AA\",\"y\":\"AA\""), 's');
    assert_int_equal(fate_of("\"kty\":\"EC\""), 's');
    assert_int_equal(fate_of("\"kty\":\"OKP\",\"crv\":\"Ed448\",\"x\":\"AA\""), 's');
    assert_int_equal(fate_of("\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"" ED_X "\""), 's');
    assert_int_equal(fate_of(RSA ",\"alg\":\"RS512\""), 's');
    assert_int_equal(fate_of(RSA ",\"alg\":\"RSA-OAEP\""), 's');
    assert_int_equal(fate_of(RSA ",\"alg\":\"none\""), 's');
    assert_int_equal(fate_of(RSA ",\"alg\":\"\""), 's');
}

static void malformed_is_counted(void **state)
{
    /* secrets, and private keys */
    assert_int_equal(fate_of("\"kty\":\"oct\",\"k\":\"" ED_X "\",\"alg\":\"HS256\""), 'm');
    assert_int_equal(fate_of("\"kty\":\"oct\""), 'm');
    assert_int_equal(fate_of(EC ",\"k\":\"AAAA\""), 'm');
    assert_int_equal(fate_of(ED ",\"d\":\"" ED_X "\""), 'm');
    /* an algorithm of another type */
    assert_int_equal(fate_of(RSA ",\"alg\":\"HS256\""), 'm');
    assert_int_equal(fate_of(RSA ",\"alg\":\"ES256\""), 'm');
    assert_int_equal(fate_of(EC ",\"alg\":\"RS256\""), 'm');
    assert_int_equal(fate_of(EC ",\"alg\":\"HS256\""), 'm');
    assert_int_equal(fate_of(ED ",\"alg\":\"ES256\""), 'm');
    assert_int_equal(fate_of(ED ",\"alg\":7"), 'm');
    /* names */
    assert_int_equal(fate_of(EC ",\"kid\":\"../../key\""), 'm');
    assert_int_equal(fate_of(EC ",\"kid\":\"a=b\""), 'm');
    assert_int_equal(fate_of(EC ",\"kid\":\"+ab/cD0=\""), 'u');
    assert_int_equal(fate_of(EC ",\"kid\":\"\""), 'm');
    assert_int_equal(fate_of(EC ",\"kid\":1"), 'm');
    assert_int_equal(fate_of(EC ",\"kid\":\"12345678901234567890123456789012345678901234567890123"
                                "456789012345\""),
                     'm');
    assert_int_equal(fate_of("\"alg\":\"RS256\""), 'm');
    assert_int_equal(fate_of("\"kty\":7"), 'm');
    expect_counts("{\"keys\":[1,\"x\",null,[],{},{" ED "}]}", 1, 0, 5);
}

static void points_are_on_the_curve(void **state)
{
    assert_int_equal(
        fate_of("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" EC_X "\",\"y\":\"" EC_X "\""), 'm');
    assert_int_equal(fate_of("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"" EC_X "\""), 'm');
    assert_int_equal(fate_of("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\""), 'm');
    /* zeros, and 33 bytes with a zero in front */
    assert_int_equal(
        fate_of("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAA"
                "AAAAAAAAAAAAAAA\",\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\""),
        'm');
    assert_int_equal(fate_of("\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\""), 'm');
    assert_int_equal(fate_of("\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" ED_X "AA\""), 'm');
    assert_int_equal(fate_of("\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" ED_X "=\""), 'm');
    assert_int_equal(fate_of("\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":7"), 'm');
}

/* An RSA key with a modulus of so many bits, which nobody can sign with: all ones, but for the
 * lowest bit. */
static char fate_of_rsa(int bits, bool odd, const char *e)
{
    struct buf jwk = {0};
    unsigned char n[1100] = {0};
    int bytes = (bits + 7) / 8;
    memset(n, 0xff, (size_t)bytes);
    n[0] = (unsigned char)(0xff >> (bytes * 8 - bits));
    n[bytes - 1] = odd ? 0xff : 0xfe;
    buf_printf(&jwk, "\"kty\":\"RSA\",\"e\":\"%s\",\"n\":\"", e);
    b64url_put(&jwk, str_of((const char *)n, (size_t)bytes));
    buf_putc(&jwk, '"');
    buf_putc(&jwk, '\0');
    char fate = fate_of(jwk.p);
    buf_deinit(&jwk);
    return fate;
}

static void rsa_has_bounds(void **state)
{
    assert_int_equal(fate_of_rsa(2048, true, "AQAB"), 'u');
    assert_int_equal(fate_of_rsa(8192, true, "AQAB"), 'u');
    assert_int_equal(fate_of_rsa(2048, true, "Aw"), 'u');     /* 3 */
    assert_int_equal(fate_of_rsa(2048, true, "AAEAAQ"), 'u'); /* a zero in front */
    assert_int_equal(fate_of_rsa(2047, true, "AQAB"), 'm');
    assert_int_equal(fate_of_rsa(512, true, "AQAB"), 'm');
    assert_int_equal(fate_of_rsa(8193, true, "AQAB"), 'm');
    assert_int_equal(fate_of_rsa(8800, true, "AQAB"), 'm');
    assert_int_equal(fate_of_rsa(2048, false, "AQAB"), 'm');
    assert_int_equal(fate_of_rsa(2048, true, "AQ"), 'm');           /* 1 */
    assert_int_equal(fate_of_rsa(2048, true, "AA"), 'm');           /* 0 */
    assert_int_equal(fate_of_rsa(2048, true, "Ag"), 'm');           /* 2 */
    assert_int_equal(fate_of_rsa(2048, true, "AQAA"), 'm');         /* 65536 */
    assert_int_equal(fate_of_rsa(2048, true, "AQAAAAAAAAAB"), 'm'); /* 2^64 + 1 */
    assert_int_equal(fate_of_rsa(2048, true, ""), 'm');
    assert_int_equal(fate_of("\"kty\":\"RSA\",\"n\":\"" RSA_N "==\",\"e\":\"AQAB\""), 'm');
}

/* ---- the document ---- */

static void documents_that_are_none(void **state)
{
    static const char *const rows[] = {
        "",
        "[]",
        "7",
        "\"keys\"",
        "{",
        "{}",
        "nonsense",
        "{\"keys\":{}}",
        "{\"keys\":null}",
        "{\"keys\":\"x\"}",
        "{" ED "} x",
        "{" ED ",\"kty\":\"EC\"}",
        "{\"keys\":[{" ED "}],\"keys\":[]}",
        "{\"keys\":[{" ED ",\"\\u0078\":\"AAAA\"}]}",
        "{" ED ",\"kid\":\"a\\u0000b\"}",
        "\xef\xbb\xbf{" ED "}",
        "{\"a\":[[[[[[[[1]]]]]]]]," ED "}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fails(rows[i]) != ERR_SYNTAX)
            fail_msg("taken: %s", rows[i]);
    expect_counts("{\"a\":[[[[[[[1]]]]]]]," ED "}", 1, 0, 0); /* 8 levels */
}

static void nothing_usable_is_an_error(void **state)
{
    assert_int_equal(fails("{\"keys\":[]}"), ERR_EMPTY);
    assert_int_equal(fails("{\"keys\":[{\"kty\":\"oct\",\"k\":\"" ED_X "\"}]}"), ERR_EMPTY);
    assert_int_equal(fails("{\"kty\":\"oct\",\"k\":\"" ED_X "\"}"), ERR_EMPTY);
    assert_int_equal(fails("{" EC ",\"use\":\"enc\"}"), ERR_EMPTY);
}

static void same_name_twice_is_an_error(void **state)
{
    assert_int_equal(fails("{\"keys\":[{" ED ",\"kid\":\"a\"},{" EC ",\"kid\":\"a\"}]}"),
                     ERR_SYNTAX);
    /* one that is not for signatures disturbs nobody */
    expect_counts("{\"keys\":[{" ED ",\"kid\":\"a\"},{" EC ",\"kid\":\"a\",\"use\":\"enc\"}]}", 1,
                  1, 0);
    expect_counts("{\"keys\":[{" ED "},{" EC "}]}", 2, 0, 0);
    assert_int_equal(fails("{\"keys\":[{" ED "},{" EC "},{" RSA "}]}"), ERR_SYNTAX);
}

static void sizes_are_bounded(void **state)
{
    struct buf json = {0};
    char name[32];
    for (int n = 32; n <= 33; n++) {
        json.n = 0;
        buf_put(&json, STR("{\"keys\":["));
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, ",\"kid\":\"k%d\"}", i);
            buf_printf(&json, "%s{" ED "%s", i > 0 ? "," : "", name);
        }
        buf_put(&json, STR("]}"));
        buf_putc(&json, '\0');
        if (n == 32)
            expect_counts(json.p, 32, 0, 0);
        else
            assert_int_equal(fails(json.p), ERR_TOO_LARGE);
    }
    json.n = 0;
    buf_put(&json, STR("{" ED "}"));
    while (json.n < JWK_TEXT_MAX)
        buf_putc(&json, ' ');
    buf_putc(&json, '\0');
    expect_counts(json.p, 1, 0, 0);
    json.p[json.n - 1] = ' ';
    buf_putc(&json, '\0');
    assert_int_equal(fails(json.p), ERR_TOO_LARGE);
    buf_deinit(&json);
}

static void names_choose_keys(void **state)
{
    struct jwk_set *s = parse("{\"keys\":[{" ED ",\"kid\":\"a\"},{" EC "}]}");
    const struct jwk *k = jwk_set_match(s, STR("a"), NULL);
    assert_int_equal(k->alg, JWK_EDDSA);
    assert_null(jwk_set_match(s, STR("a"), k));
    assert_null(jwk_set_match(s, STR("b"), NULL));
    k = jwk_set_match(s, STR_NONE, NULL);
    assert_int_equal(k->alg, JWK_ES256);
    assert_null(jwk_set_match(s, STR_NONE, k));
    jwk_set_free(s);
    s = parse("{" EC "}");
    assert_non_null(jwk_set_match(s, STR("whatever"), NULL));
    assert_non_null(jwk_set_match(s, STR_NONE, NULL));
    jwk_set_free(s);
    s = parse("{" EC ",\"kid\":\"a\"}");
    assert_non_null(jwk_set_match(s, STR("a"), NULL));
    assert_null(jwk_set_match(s, STR("whatever"), NULL));
    assert_null(jwk_set_match(s, STR_NONE, NULL));
    jwk_set_free(s);
}

/* ---- PEM and secrets ---- */

static int from_pem(struct str pem, struct str kid, const struct jwk_policy *policy,
                    struct jwk_set **out)
{
    why[0] = '\0';
    int err = jwk_set_from_pem(pem, kid, policy, out, why, sizeof why);
    assert_true(err == 0 || why[0] != '\0');
    assert_int_equal(ERR_peek_error(), 0);
    return err;
}

static void pem_is_a_set_of_one(void **state)
{
    static const enum jwk_alg algs[] = {JWK_RS256, JWK_PS256, JWK_ES256, JWK_EDDSA};
    for (size_t i = 0; i < sizeof algs / sizeof *algs; i++) {
        struct jwk_policy policy = {.rsa = algs[i] == JWK_PS256 ? JWK_PS256 : JWK_RS256};
        EVP_PKEY *key = kit_key(algs[i]);
        struct buf pem = {0}, signature = {0};
        struct jwk_set *s = NULL;
        kit_put_pem(&pem, key);
        assert_int_equal(from_pem(buf_str(&pem), STR("k1"), &policy, &s), 0);
        assert_int_equal(jwk_set_alg(s, 0), algs[i]);
        assert_true(str_eq(jwk_set_kid(s, 0), STR("k1")));
        assert_null(jwk_set_match(s, STR_NONE, NULL));
        kit_put_signature(&signature, algs[i], key, STR_NONE, STR("text"));
        assert_true(jws_check(jwk_set_match(s, STR("k1"), NULL), STR("text"), buf_str(&signature)));
        jwk_set_free(s);
        assert_int_equal(from_pem(buf_str(&pem), STR_NONE, &policy, &s), 0);
        assert_non_null(jwk_set_match(s, STR_NONE, NULL));
        assert_non_null(jwk_set_match(s, STR("k2"), NULL));
        jwk_set_free(s);
        policy.allowed = 1u << JWK_HS256;
        assert_int_equal(from_pem(buf_str(&pem), STR_NONE, &policy, &s), ERR_EMPTY);
        assert_int_equal(from_pem(buf_str(&pem), STR("a/../b"), NULL, &s), ERR_SYNTAX);
        kit_put_pem(&pem, key);
        assert_int_equal(from_pem(buf_str(&pem), STR_NONE, NULL, &s), ERR_SYNTAX);
        buf_deinit(&pem);
        buf_deinit(&signature);
        EVP_PKEY_free(key);
    }
}

static void pem_of_other_things(void **state)
{
    struct jwk_set *s = NULL;
    assert_int_equal(from_pem(STR_NONE, STR_NONE, NULL, &s), ERR_SYNTAX);
    assert_int_equal(from_pem(STR("{" ED "}"), STR_NONE, NULL, &s), ERR_SYNTAX);
    assert_int_equal(from_pem(STR("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
                              STR_NONE, NULL, &s),
                     ERR_SYNTAX);
    EVP_PKEY *others[] = {
        EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384"),
        EVP_PKEY_Q_keygen(NULL, NULL, "EC", "secp256k1"),
        EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024),
        EVP_PKEY_Q_keygen(NULL, NULL, "X25519"),
        EVP_PKEY_Q_keygen(NULL, NULL, "ED448"),
    };
    struct buf pem = {0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        pem.n = 0;
        kit_put_pem(&pem, others[i]);
        assert_int_equal(from_pem(buf_str(&pem), STR_NONE, NULL, &s), ERR_EMPTY);
        EVP_PKEY_free(others[i]);
    }
    while (pem.n <= JWK_TEXT_MAX)
        buf_putc(&pem, '\n');
    assert_int_equal(from_pem(buf_str(&pem), STR_NONE, NULL, &s), ERR_TOO_LARGE);
    assert_null(s);
    buf_deinit(&pem);
}

static void private_keys_in_pem_are_refused(void **state)
{
    EVP_PKEY *key = kit_key(JWK_ES256);
    BIO *bio = BIO_new(BIO_s_mem());
    struct jwk_set *s = NULL;
    char *p;
    PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
    long n = BIO_get_mem_data(bio, &p);
    assert_int_equal(from_pem(str_of(p, (size_t)n), STR_NONE, NULL, &s), ERR_SYNTAX);
    BIO_free(bio);
    EVP_PKEY_free(key);
}

static void secrets_have_32_bytes(void **state)
{
    const struct str good = STR("0123456789abcdef0123456789abcdef");
    struct jwk_secret current = {good, STR("a")}, previous = {good, STR("b")};
    struct jwk_set *s = NULL;
    assert_int_equal(jwk_set_from_secret(&current, &previous, &s, why, sizeof why), 0);
    assert_int_equal(jwk_set_counts(s).usable, 2);
    assert_int_equal(jwk_set_alg(s, 0), JWK_HS256);
    assert_true(str_eq(jwk_set_kid(s, 0), STR("a")));
    jwk_set_free(s);
    assert_int_equal(jwk_set_from_secret(&current, &(struct jwk_secret){0}, &s, why, sizeof why),
                     0);
    assert_int_equal(jwk_set_counts(s).usable, 1);
    jwk_set_free(s);
    s = NULL;
    previous.bytes.n = 31;
    assert_int_equal(jwk_set_from_secret(&current, &previous, &s, why, sizeof why), ERR_SYNTAX);
    current.bytes = STR_NONE;
    assert_int_equal(jwk_set_from_secret(&current, NULL, &s, why, sizeof why), ERR_SYNTAX);
    current = (struct jwk_secret){good, STR("a b")};
    assert_int_equal(jwk_set_from_secret(&current, NULL, &s, why, sizeof why), ERR_SYNTAX);
    assert_null(s);
    jwk_set_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc_keys_verify_rfc_signatures),
        cmocka_unit_test(algorithm_is_settled_by_the_key),
        cmocka_unit_test(policy_leaves_algorithms_out),
        cmocka_unit_test(purpose_is_checked),
        cmocka_unit_test(unknown_is_skipped),
        cmocka_unit_test(malformed_is_counted),
        cmocka_unit_test(points_are_on_the_curve),
        cmocka_unit_test(rsa_has_bounds),
        cmocka_unit_test(documents_that_are_none),
        cmocka_unit_test(nothing_usable_is_an_error),
        cmocka_unit_test(same_name_twice_is_an_error),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(names_choose_keys),
        cmocka_unit_test(pem_is_a_set_of_one),
        cmocka_unit_test(pem_of_other_things),
        cmocka_unit_test(private_keys_in_pem_are_refused),
        cmocka_unit_test(secrets_have_32_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
