// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "token/jwt.h"
#include "unit/token/token_kit.h"

#include <openssl/err.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define NOW      1700000000
#define SECRET   STR("0123456789abcdef0123456789abcdef")
#define ISS      "https://id.example/"
#define AUD      "https://tidemark.example"
#define TIMES    "\"iat\":1699999900,\"exp\":1700000300"
#define CLAIMS   "\"iss\":\"" ISS "\",\"aud\":\"" AUD "\",\"sub\":\"u1\"," TIMES
#define PAYLOAD  "{" CLAIMS "}"

/* One issuer with a key of each kind, and one with a secret. */
static struct world {
    EVP_PKEY *keys[JWK_HS256 + 1];
    struct jwk_set *public, *secret;
    struct buf jwks;
} w;

static const char *const kids[] = {"rs", "ps", "es", "ed", "hs"};
static const struct str audiences[] = {STR_INIT("https://other.example"), STR_INIT(AUD)};

static struct jwt_rules rules_of(const struct jwk_set *keys)
{
    return (struct jwt_rules){
        .iss = STR(ISS),
        .aud = audiences,
        .n_aud = COUNT(audiences),
        .max_lifetime_s = JWT_LIFETIME_S,
        .skew_s = JWT_SKEW_S,
        .keys = keys,
    };
}

static int set_up(void **state)
{
    char why[100], more[64];
    buf_put(&w.jwks, STR("{\"keys\":["));
    for (int alg = JWK_RS256; alg <= JWK_EDDSA; alg++) {
        w.keys[alg] = kit_key(alg);
        snprintf(more, sizeof more, ",\"kid\":\"%s\",\"alg\":\"%s\"", kids[alg], jwk_alg_name(alg));
        kit_put_jwk(&w.jwks, w.keys[alg], more);
        buf_put(&w.jwks, alg < JWK_EDDSA ? STR(",") : STR("]}"));
    }
    const struct jwk_secret secret = {SECRET, STR("hs")};
    return jwk_set_parse(buf_str(&w.jwks), NULL, &w.public, why, sizeof why) ||
           jwk_set_from_secret(&secret, NULL, &w.secret, why, sizeof why);
}

static int tear_down(void **state)
{
    for (size_t i = 0; i < COUNT(w.keys); i++)
        EVP_PKEY_free(w.keys[i]);
    jwk_set_free(w.public);
    jwk_set_free(w.secret);
    buf_deinit(&w.jwks);
    return 0;
}

/* What verify says. What it must leave alone unless it says OK is looked at, and that peek agrees.
 */
static enum jwt_verdict verify_by(const struct jwt_rules *rules, struct str token, int64_t now_s)
{
    struct jwt t = {.exp_s = 77};
    struct jwt_head head;
    enum jwt_verdict v = jwt_verify(rules, token, now_s, &t);
    enum jwt_verdict peeked = jwt_peek(token, &head);
    assert_int_equal(ERR_peek_error(), 0);
    assert_int_equal(peeked, v <= JWT_NO_ISSUER ? v : JWT_OK);
    if (v != JWT_OK) {
        assert_true(t.exp_s == 77 && t.payload == NULL);
        return v;
    }
    assert_string_equal(head.kid, t.kid);
    assert_string_equal(head.iss, json_string_value(json_object_get(t.payload, "iss")));
    assert_true(t.exp_s == json_integer_value(json_object_get(t.payload, "exp")));
    jwt_deinit(&t);
    return v;
}

static enum jwt_verdict verify_text(struct str token)
{
    struct jwt_rules rules = rules_of(w.public);
    return verify_by(&rules, token, NOW);
}

static void make(struct buf *out, enum jwk_alg alg, const char *header, const char *payload)
{
    kit_put_token(out, alg, w.keys[alg], SECRET, str_of_cstr(header), str_of_cstr(payload));
}

/* A token with the secret, rightly signed: what only its holder can make. */
static enum jwt_verdict verify_hs(const struct jwt_rules *rules, const char *header,
                                  const char *payload)
{
    struct buf token = {0};
    make(&token, JWK_HS256, header, payload);
    enum jwt_verdict v = verify_by(rules, buf_str(&token), NOW);
    buf_deinit(&token);
    return v;
}

#define HEADER "{\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"

static enum jwt_verdict with_payload(const char *payload)
{
    struct jwt_rules rules = rules_of(w.secret);
    return verify_hs(&rules, HEADER, payload);
}

static enum jwt_verdict with_header(const char *header)
{
    struct jwt_rules rules = rules_of(w.secret);
    return verify_hs(&rules, header, PAYLOAD);
}

#define EXPECT(verdict, call)                                                                      \
    do {                                                                                           \
        enum jwt_verdict got_ = (call);                                                            \
        if (got_ != JWT_##verdict)                                                                 \
            fail_msg("%s: %s and not " #verdict, #call, jwt_verdict_name(got_));                   \
    } while (0)

static void put_good(struct buf *out, enum jwk_alg alg)
{
    char header[100];
    snprintf(header, sizeof header, "{\"alg\":\"%s\",\"typ\":\"at+jwt\",\"kid\":\"%s\"}",
             jwk_alg_name(alg), kids[alg]);
    make(out, alg, header, PAYLOAD);
}

/* ---- good ones ---- */

static void good_tokens_of_all_algorithms(void **state)
{
    for (int alg = JWK_RS256; alg <= JWK_HS256; alg++) {
        struct buf token = {0};
        struct jwt_rules rules = rules_of(alg == JWK_HS256 ? w.secret : w.public);
        struct jwt t;
        put_good(&token, alg);
        assert_int_equal(jwt_verify(&rules, buf_str(&token), NOW, &t), JWT_OK);
        assert_true(str_eq(t.sub, STR("u1")));
        assert_null(t.jti.p);
        assert_string_equal(t.kid, kids[alg]);
        assert_true(t.exp_s == 1700000300 && t.iat_s == 1699999900);
        assert_int_equal(json_object_size(t.payload), 5);
        jwt_deinit(&t);
        /* with the other issuer's keys it is nobody's */
        rules.keys = alg == JWK_HS256 ? w.public : w.secret;
        EXPECT(UNKNOWN_KID, verify_by(&rules, buf_str(&token), NOW));
        buf_deinit(&token);
    }
}

static void both_names_of_eddsa(void **state)
{
    struct buf token = {0};
    make(&token, JWK_EDDSA, "{\"alg\":\"Ed25519\",\"typ\":\"at+jwt\",\"kid\":\"ed\"}", PAYLOAD);
    EXPECT(OK, verify_text(buf_str(&token)));
    buf_deinit(&token);
}

/* RFC 7515, A.1: rightly signed, so that its claims are looked at, which lack an audience. */
static void token_of_the_rfc(void **state)
{
    const struct str token = STR(
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogI"
        "mh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_"
        "wW1gFWFOEjXk");
    struct buf key = {0};
    b64url_take(&key, STR("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUu"
                          "TwjAzZr1Z9CAow"));
    char why[100];
    struct jwk_set *keys;
    const struct jwk_secret secret = {buf_str(&key), STR_NONE};
    const struct str typ = STR("JWT");
    assert_int_equal(jwk_set_from_secret(&secret, NULL, &keys, why, sizeof why), 0);
    struct jwt_rules rules = rules_of(keys);
    rules.iss = STR("joe");
    EXPECT(WRONG_TYPE, verify_by(&rules, token, NOW));
    rules.typ = &typ;
    rules.n_typ = 1;
    EXPECT(BAD_CLAIM, verify_by(&rules, token, NOW));
    jwk_set_free(keys);
    rules.keys = w.secret;
    EXPECT(UNKNOWN_KID, verify_by(&rules, token, NOW));
    buf_deinit(&key);
}

/* ---- attack 4: no algorithm ---- */

static void algorithms_that_are_none(void **state)
{
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":\"none\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":\"nOnE\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":\"\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":256,\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":null,\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":[\"HS256\"],\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":\"hs256\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":\"HS256 \",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(UNKNOWN_ALG, with_header("{\"alg\":\"HS512\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
}

static void no_signature_and_the_empty_key(void **state)
{
    struct buf token = {0}, text = {0};
    kit_put_text(&text, STR("{\"alg\":\"none\",\"typ\":\"at+jwt\"}"), STR(PAYLOAD));
    buf_put(&token, buf_str(&text));
    EXPECT(BAD_SHAPE, verify_text(buf_str(&token)));
    buf_putc(&token, '.');
    EXPECT(BAD_SHAPE, verify_text(buf_str(&token)));
    token.n = 0;
    kit_put_token(&token, JWK_HS256, NULL, STR_NONE, STR(HEADER), STR(PAYLOAD));
    struct jwt_rules rules = rules_of(w.secret);
    EXPECT(BAD_SIGNATURE, verify_by(&rules, buf_str(&token), NOW));
    buf_deinit(&token);
    buf_deinit(&text);
}

/* ---- attack 5: a public key as the secret ---- */

static void forge(enum jwk_alg victim, struct str secret)
{
    char header[100];
    struct buf token = {0};
    snprintf(header, sizeof header, "{\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":\"%s\"}",
             kids[victim]);
    kit_put_token(&token, JWK_HS256, NULL, secret, str_of_cstr(header), STR(PAYLOAD));
    EXPECT(WRONG_ALG, verify_text(buf_str(&token)));
    buf_deinit(&token);
}

static void public_keys_are_no_secrets(void **state)
{
    for (int alg = JWK_RS256; alg <= JWK_EDDSA; alg++) {
        struct buf pem = {0}, jwk = {0};
        unsigned char *der = NULL;
        kit_put_pem(&pem, w.keys[alg]);
        kit_put_jwk(&jwk, w.keys[alg], "");
        int n = i2d_PUBKEY(w.keys[alg], &der);
        forge(alg, buf_str(&pem));
        forge(alg, str_of(pem.p, pem.n - 1)); /* without the last line break */
        forge(alg, buf_str(&jwk));
        forge(alg, str_of((const char *)der, (size_t)n));
        OPENSSL_free(der);
        buf_deinit(&pem);
        buf_deinit(&jwk);
    }
}

/* A JWK without alg is for one algorithm all the same. */
static void token_does_not_choose(void **state)
{
    struct buf jwk = {0}, token = {0};
    struct jwk_set *keys;
    char why[100];
    kit_put_jwk(&jwk, w.keys[JWK_RS256], ",\"kid\":\"rs\"");
    assert_int_equal(jwk_set_parse(buf_str(&jwk), NULL, &keys, why, sizeof why), 0);
    struct jwt_rules rules = rules_of(keys);
    put_good(&token, JWK_RS256);
    EXPECT(OK, verify_by(&rules, buf_str(&token), NOW));
    token.n = 0;
    kit_put_token(&token, JWK_PS256, w.keys[JWK_RS256], STR_NONE,
                  STR("{\"alg\":\"PS256\",\"typ\":\"at+jwt\",\"kid\":\"rs\"}"), STR(PAYLOAD));
    EXPECT(WRONG_ALG, verify_by(&rules, buf_str(&token), NOW));
    jwk_set_free(keys);
    buf_deinit(&jwk);
    buf_deinit(&token);
}

/* ---- attack 6: another algorithm or form of signature ---- */

static enum jwt_verdict with_signature(const char *header, struct buf *signature)
{
    struct buf token = {0};
    kit_put_text(&token, str_of_cstr(header), STR(PAYLOAD));
    buf_putc(&token, '.');
    b64url_put(&token, buf_str(signature));
    enum jwt_verdict v = verify_text(buf_str(&token));
    buf_deinit(&token);
    buf_deinit(signature);
    return v;
}

static void rsa_signatures_of_other_algorithms(void **state)
{
    EVP_PKEY *key = w.keys[JWK_RS256];
    const char *rs = "{\"alg\":\"RS256\",\"typ\":\"at+jwt\",\"kid\":\"rs\"}";
    const char *rs512 = "{\"alg\":\"RS512\",\"typ\":\"at+jwt\",\"kid\":\"rs\"}";
    const char *ps = "{\"alg\":\"PS256\",\"typ\":\"at+jwt\",\"kid\":\"rs\"}";
    struct buf text = {0}, s = {0};
    kit_put_text(&text, str_of_cstr(rs), STR(PAYLOAD));
    kit_put_raw(&s, key, EVP_sha256(), false, buf_str(&text));
    buf_putc(&s, '\0');
    EXPECT(BAD_SIGNATURE, with_signature(rs, &s)); /* 257 bytes */
    s = (struct buf){0};
    kit_put_raw(&s, key, EVP_sha512(), false, buf_str(&text));
    EXPECT(BAD_SIGNATURE, with_signature(rs, &s));
    s = (struct buf){0};
    kit_put_raw(&s, key, EVP_sha256(), true, buf_str(&text));
    EXPECT(BAD_SIGNATURE, with_signature(rs, &s));
    text.n = 0;
    kit_put_text(&text, str_of_cstr(rs512), STR(PAYLOAD));
    s = (struct buf){0};
    kit_put_raw(&s, key, EVP_sha512(), false, buf_str(&text));
    EXPECT(UNKNOWN_ALG, with_signature(rs512, &s));
    text.n = 0;
    kit_put_text(&text, str_of_cstr(ps), STR(PAYLOAD));
    s = (struct buf){0};
    kit_put_raw(&s, key, EVP_sha256(), true, buf_str(&text));
    EXPECT(WRONG_ALG, with_signature(ps, &s));
    buf_deinit(&text);
}

static void es256_is_two_numbers_of_32_bytes(void **state)
{
    const char *es = "{\"alg\":\"ES256\",\"typ\":\"at+jwt\",\"kid\":\"es\"}";
    EVP_PKEY *key = w.keys[JWK_ES256];
    struct buf text = {0}, s = {0};
    kit_put_text(&text, str_of_cstr(es), STR(PAYLOAD));
    kit_put_es256(&s, key, buf_str(&text));
    EXPECT(OK, with_signature(es, &s));
    s = (struct buf){0};
    kit_put_raw(&s, key, EVP_sha256(), false, buf_str(&text));
    EXPECT(BAD_SIGNATURE, with_signature(es, &s)); /* DER */
    for (int change = 0; change < 6; change++) {
        s = (struct buf){0};
        kit_put_es256(&s, key, buf_str(&text));
        switch (change) {
        case 0: s.n = 63; break;
        case 1: buf_putc(&s, '\0'); break;
        case 2: memset(s.p, 0, 32); break;      /* r = 0 */
        case 3: memset(s.p + 32, 0, 32); break; /* s = 0 */
        case 4: memset(s.p, 0, 64); break;      /* both, CVE-2022-21449 */
        case 5: memset(s.p, 0xff, 64); break;   /* beyond the order */
        }
        EXPECT(BAD_SIGNATURE, with_signature(es, &s));
    }
    EVP_PKEY *other = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "secp256k1");
    s = (struct buf){0};
    kit_put_es256(&s, other, buf_str(&text));
    EXPECT(BAD_SIGNATURE, with_signature(es, &s)); /* another curve */
    EVP_PKEY_free(other);
    buf_deinit(&text);
}

/* ---- attacks 7 and 8: changes, and other spellings ---- */

static void each_bit_counts(void **state)
{
    for (int alg = JWK_RS256; alg <= JWK_HS256; alg++) {
        struct buf token = {0};
        struct jwt_rules rules = rules_of(alg == JWK_HS256 ? w.secret : w.public);
        put_good(&token, alg);
        for (size_t i = 0; i < token.n * 8; i += alg == JWK_HS256 ? 1 : 7) {
            token.p[i / 8] = (char)(token.p[i / 8] ^ 1 << i % 8);
            if (verify_by(&rules, buf_str(&token), NOW) == JWT_OK)
                fail_msg("%s with bit %zu changed", jwk_alg_name(alg), i);
            token.p[i / 8] = (char)(token.p[i / 8] ^ 1 << i % 8);
        }
        for (size_t n = 0; n < token.n; n++)
            assert_int_not_equal(verify_by(&rules, str_of(token.p, n), NOW), JWT_OK);
        EXPECT(OK, verify_by(&rules, buf_str(&token), NOW));
        buf_deinit(&token);
    }
}

static void three_parts_in_their_order(void **state)
{
    struct buf token = {0}, other = {0};
    put_good(&token, JWK_EDDSA);
    struct str rest = buf_str(&token), parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = str_cut(&rest, '.');
    static const char *const orders[] = {"0",    "01",    "10.2",  "012", "0122", "01.",
                                         ".012", "0..12", "01200", "..",  ".",    "",
                                         "....", "021",   "102",   "210"};
    for (size_t i = 0; i < COUNT(orders); i++) {
        other.n = 0;
        for (const char *p = orders[i]; *p != '\0'; p++) {
            if (p > orders[i])
                buf_putc(&other, '.');
            if (*p != '.')
                buf_put(&other, parts[*p - '0']);
        }
        enum jwt_verdict v = verify_text(buf_str(&other));
        if ((v == JWT_OK) != (strcmp(orders[i], "012") == 0))
            fail_msg("%s: %s", orders[i], jwt_verdict_name(v));
    }
    buf_deinit(&token);
    buf_deinit(&other);
}

static void one_spelling(void **state)
{
    struct buf token = {0}, other = {0};
    put_good(&token, JWK_EDDSA); /* 64 bytes: the last character has four bits to spare */
    const size_t last = token.n - 1;
    const struct str tails[] = {STR("="), STR("=="), STR(" "), STR("\n"), STR("\r\n"), STR("\t"),
                                STR("."), STR("A"),  STR("!"), STR("#x"), {"", 1},     {".\0", 2}};
    for (size_t i = 0; i < COUNT(tails); i++) {
        other.n = 0;
        buf_put(&other, buf_str(&token));
        buf_put(&other, tails[i]);
        assert_int_not_equal(verify_text(buf_str(&other)), JWT_OK);
        other.n = 0;
        buf_put(&other, tails[i]);
        buf_put(&other, buf_str(&token));
        assert_int_not_equal(verify_text(buf_str(&other)), JWT_OK);
    }
    const char was = token.p[last];
    for (int c = 1; c < 256; c++) {
        token.p[last] = (char)c;
        bool same = token.p[last] == was;
        assert_true((verify_text(buf_str(&token)) == JWT_OK) == same);
    }
    buf_deinit(&token);
    buf_deinit(&other);
}

/* A payload whose base64 has both `-` and `_`, in the other alphabet. */
static void other_alphabet(void **state)
{
    struct jwt_rules rules = rules_of(w.secret);
    struct buf token = {0};
    make(&token, JWK_HS256, HEADER, "{\"?>\":\"~~~???\",\"\xc3\xbb\xc3\xbf>>\":1," CLAIMS "}");
    EXPECT(OK, verify_by(&rules, buf_str(&token), NOW));
    size_t changed = 0;
    for (size_t i = 0; i < token.n; i++) {
        const char was = token.p[i];
        if (was != '-' && was != '_')
            continue;
        token.p[i] = was == '-' ? '+' : '/';
        EXPECT(BAD_SHAPE, verify_by(&rules, buf_str(&token), NOW));
        token.p[i] = was;
        changed++;
    }
    assert_true(changed > 0);
    buf_deinit(&token);
}

/* ---- attack 9: JSON that is read in two ways, or takes long ---- */

static void no_name_twice(void **state)
{
    EXPECT(BAD_HEADER,
           with_header("{\"alg\":\"HS256\",\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":\"hs\"}"));
    EXPECT(BAD_HEADER, with_header("{\"alg\":\"none\",\"\\u0061lg\":\"HS256\",\"typ\":\"at+jwt\","
                                   "\"kid\":\"hs\"}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"sub\":\"root\"," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"s\\u0075b\":\"root\"," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"exp\":1700000300," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"iss\":\"" ISS "\"," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"a\":{\"b\":1,\"b\":1}," CLAIMS "}"));
}

static void json_is_an_object_and_flat(void **state)
{
    EXPECT(OK, with_payload("{\"a\":[[[[[[[1]]]]]]]," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"a\":[[[[[[[[1]]]]]]]]," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("[" PAYLOAD "]"));
    EXPECT(BAD_PAYLOAD, with_payload("\"x\""));
    EXPECT(BAD_PAYLOAD, with_payload(PAYLOAD " x"));
    EXPECT(BAD_PAYLOAD, with_payload("\xef\xbb\xbf" PAYLOAD));
    EXPECT(BAD_PAYLOAD, with_payload("{\"a\":\"\xff\"," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"a\":\"\\u0000\"," CLAIMS "}"));
    EXPECT(BAD_PAYLOAD, with_payload("{\"a\":\"\\ud800\"," CLAIMS "}"));
    EXPECT(BAD_HEADER, with_header("[\"HS256\"]"));
    EXPECT(BAD_HEADER, with_header("{\"alg\":\"HS256\",\"a\":[[[[[[[[1]]]]]]]]}"));
    EXPECT(OK, with_payload(" \r\n" PAYLOAD "\t"));
}

static void tokens_and_headers_are_bounded(void **state)
{
    struct jwt_rules rules = rules_of(w.secret);
    struct buf payload = {0}, header = {0}, token = {0};
    buf_put(&payload, STR(PAYLOAD));
    while (token.n < JWT_TOKEN_MAX - 3) {
        buf_putc(&payload, ' ');
        token.n = 0;
        kit_put_token(&token, JWK_HS256, NULL, SECRET, STR(HEADER), buf_str(&payload));
    }
    assert_true(token.n <= JWT_TOKEN_MAX);
    EXPECT(OK, verify_by(&rules, buf_str(&token), NOW));
    buf_put(&payload, STR("     "));
    token.n = 0;
    kit_put_token(&token, JWK_HS256, NULL, SECRET, STR(HEADER), buf_str(&payload));
    EXPECT(TOO_LARGE, verify_by(&rules, buf_str(&token), NOW));
    buf_put(&header, STR(HEADER));
    while (header.n < JWT_HEADER_MAX)
        buf_putc(&header, ' ');
    token.n = 0;
    kit_put_token(&token, JWK_HS256, NULL, SECRET, buf_str(&header), STR(PAYLOAD));
    EXPECT(OK, verify_by(&rules, buf_str(&token), NOW));
    buf_putc(&header, ' ');
    token.n = 0;
    kit_put_token(&token, JWK_HS256, NULL, SECRET, buf_str(&header), STR(PAYLOAD));
    EXPECT(TOO_LARGE, verify_by(&rules, buf_str(&token), NOW));
    while (token.n < 1000 * 1000)
        buf_putc(&token, '9');
    EXPECT(TOO_LARGE, verify_by(&rules, buf_str(&token), NOW));
    buf_deinit(&payload);
    buf_deinit(&header);
    buf_deinit(&token);
}

/* ---- attack 10: headers that bring trouble ---- */

static void headers_that_are_refused(void **state)
{
    static const char *const members[] = {
        "\"crit\":[]",
        "\"crit\":[\"exp\"]",
        "\"crit\":null",
        "\"b64\":true",
        "\"b64\":false",
        "\"zip\":\"DEF\"",
        "\"jku\":\"https://id.example/jwks\"",
        "\"x5u\":\"https://id.example/x\"",
        "\"jwk\":{}",
        "\"x5c\":[]",
        "\"\\u0063rit\":[\"b64\"]",
    };
    for (size_t i = 0; i < COUNT(members); i++) {
        char header[200];
        snprintf(header, sizeof header, "{\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":\"hs\",%s}",
                 members[i]);
        enum jwt_verdict v = with_header(header);
        if (v != JWT_REFUSED_HEADER)
            fail_msg("%s: %s", members[i], jwt_verdict_name(v));
    }
    EXPECT(OK,
           with_header("{\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":\"hs\",\"x5t\":\"AAAA\"}"));
}

/* ---- attacks 11 and 12: the key's name ---- */

static void kid_is_a_word(void **state)
{
#define KID(kid) with_header("{\"alg\":\"HS256\",\"typ\":\"at+jwt\",\"kid\":" kid "}")
    EXPECT(BAD_KID, KID("\"../../key\""));
    EXPECT(BAD_KID, KID("\"https://id.example/key\""));
    EXPECT(BAD_KID, KID("\"x' OR 1=1\""));
    EXPECT(BAD_KID, KID("\"\""));
    EXPECT(BAD_KID, KID("7"));
    EXPECT(BAD_KID, KID("null"));
    EXPECT(BAD_KID, KID("[\"hs\"]"));
    EXPECT(BAD_KID, KID("\"h s\""));
    EXPECT(BAD_KID, KID("\"h\\ns\""));
    EXPECT(BAD_KID, KID("\"12345678901234567890123456789012345678901234567890123456789012345\""));
    EXPECT(UNKNOWN_KID,
           KID("\"1234567890123456789012345678901234567890123456789012345678901234\""));
    EXPECT(BAD_KID, KID("\"a/../b\""));
    EXPECT(BAD_KID, KID("\"a/b===\""));
    EXPECT(BAD_KID, KID("\"==\""));
    EXPECT(BAD_KID, KID("\"a=b\""));
    EXPECT(BAD_KID, KID("\"a+b_c\""));
    EXPECT(UNKNOWN_KID, KID("\"ab+/cd==\""));
    EXPECT(UNKNOWN_KID, KID("\"hS\""));
    EXPECT(UNKNOWN_KID, KID("\"h\""));
    EXPECT(OK, KID("\"\\u0068s\""));
    EXPECT(UNKNOWN_KID, with_header("{\"alg\":\"HS256\",\"typ\":\"at+jwt\"}"));
}

/* Tenant A signs with its own key, of the same kid as B's, and says that it is B. */
static void keys_of_another_issuer(void **state)
{
    EVP_PKEY *key = kit_key(JWK_EDDSA);
    struct buf jwk = {0}, token = {0};
    struct jwk_set *keys_of_a;
    char why[100];
    kit_put_jwk(&jwk, key, ",\"kid\":\"ed\"");
    assert_int_equal(jwk_set_parse(buf_str(&jwk), NULL, &keys_of_a, why, sizeof why), 0);
    kit_put_token(&token, JWK_EDDSA, key, STR_NONE,
                  STR("{\"alg\":\"EdDSA\",\"typ\":\"at+jwt\",\"kid\":\"ed\"}"), STR(PAYLOAD));
    struct jwt_rules a = rules_of(keys_of_a), b = rules_of(w.public);
    a.iss = STR("https://a.example/");
    EXPECT(WRONG_ISSUER, verify_by(&a, buf_str(&token), NOW));
    EXPECT(BAD_SIGNATURE, verify_by(&b, buf_str(&token), NOW));
    a.iss = b.iss; /* only if A were B */
    EXPECT(OK, verify_by(&a, buf_str(&token), NOW));
    jwk_set_free(keys_of_a);
    EVP_PKEY_free(key);
    buf_deinit(&jwk);
    buf_deinit(&token);
}

static void secrets_rotate(void **state)
{
    const struct jwk_secret fresh = {STR("fedcba9876543210fedcba9876543210"), STR_NONE};
    const struct jwk_secret old = {SECRET, STR_NONE};
    struct jwk_set *both, *new;
    char why[100];
    assert_int_equal(jwk_set_from_secret(&fresh, &old, &both, why, sizeof why), 0);
    assert_int_equal(jwk_set_from_secret(&fresh, NULL, &new, why, sizeof why), 0);
    struct jwt_rules rules = rules_of(both);
    EXPECT(OK, verify_hs(&rules, HEADER, PAYLOAD));
    EXPECT(OK, verify_hs(&rules, "{\"alg\":\"HS256\",\"typ\":\"at+jwt\"}", PAYLOAD));
    rules.keys = new;
    EXPECT(BAD_SIGNATURE, verify_hs(&rules, HEADER, PAYLOAD));
    jwk_set_free(both);
    jwk_set_free(new);
}

/* ---- attack 13: issuer and audience ---- */

#define REST "\"sub\":\"u1\"," TIMES "}"

static void issuer_is_exact(void **state)
{
#define BY(iss) with_payload("{\"iss\":" iss ",\"aud\":\"" AUD "\"," REST)
    EXPECT(OK, BY("\"https:\\/\\/id.example/\""));
    EXPECT(WRONG_ISSUER, BY("\"https://id.example\""));
    EXPECT(WRONG_ISSUER, BY("\"https://id.example//\""));
    EXPECT(WRONG_ISSUER, BY("\"https://ID.example/\""));
    EXPECT(WRONG_ISSUER, BY("\" https://id.example/\""));
    EXPECT(NO_ISSUER, BY("\"\""));
    EXPECT(NO_ISSUER, BY("7"));
    EXPECT(NO_ISSUER, BY("[\"" ISS "\"]"));
    EXPECT(NO_ISSUER, with_payload("{\"aud\":\"" AUD "\"," REST));
}

static void audience_is_ours(void **state)
{
#define FOR(aud) with_payload("{\"iss\":\"" ISS "\",\"aud\":" aud "," REST)
#define FOUR     "\"a\",\"b\",\"c\",\"d\""
    EXPECT(OK, FOR("[\"x\",\"" AUD "\"]"));
    EXPECT(OK, FOR("\"https://other.example\""));
    EXPECT(OK, FOR("[" FOUR "," FOUR "," FOUR ",\"e\",\"f\",\"g\",\"" AUD "\"]"));
    EXPECT(BAD_CLAIM, FOR("[" FOUR "," FOUR "," FOUR "," FOUR ",\"" AUD "\"]"));
    EXPECT(WRONG_AUDIENCE, FOR("\"https://tidemark.example/\""));
    EXPECT(WRONG_AUDIENCE, FOR("\"https://TIDEMARK.example\""));
    EXPECT(WRONG_AUDIENCE, FOR("\"\""));
    EXPECT(WRONG_AUDIENCE, FOR("[\"x\"]"));
    EXPECT(BAD_CLAIM, FOR("[]"));
    EXPECT(BAD_CLAIM, FOR("[\"" AUD "\",7]"));
    EXPECT(BAD_CLAIM, FOR("[[\"" AUD "\"]]"));
    EXPECT(BAD_CLAIM, FOR("{\"" AUD "\":1}"));
    EXPECT(BAD_CLAIM, FOR("null"));
    EXPECT(BAD_CLAIM, with_payload("{\"iss\":\"" ISS "\"," REST));
    struct jwt_rules rules = rules_of(w.secret);
    rules.n_aud = 0;
    EXPECT(WRONG_AUDIENCE, verify_hs(&rules, HEADER, PAYLOAD));
}

/* ---- attack 14: times ---- */

#define WHO "{\"iss\":\"" ISS "\",\"aud\":\"" AUD "\","

static enum jwt_verdict at(const char *times)
{
    char payload[400];
    snprintf(payload, sizeof payload, WHO "%s}", times);
    return with_payload(payload);
}

static void expiry_with_skew(void **state)
{
    EXPECT(OK, at("\"iat\":1699999000,\"exp\":1699999971"));
    EXPECT(EXPIRED, at("\"iat\":1699999000,\"exp\":1699999970"));
    EXPECT(EXPIRED, at("\"iat\":1699999000,\"exp\":1699999969"));
    EXPECT(EXPIRED, at("\"iat\":0,\"exp\":1"));
    EXPECT(BAD_CLAIM, at("\"iat\":1699999000"));
    EXPECT(BAD_CLAIM, at("\"iat\":1699999900,\"exp\":1699999900"));
    EXPECT(BAD_CLAIM, at("\"iat\":1700000000,\"exp\":1699999990"));
}

static void nothing_from_the_future(void **state)
{
    EXPECT(OK, at("\"iat\":1700000030,\"exp\":1700000300"));
    EXPECT(NOT_YET_VALID, at("\"iat\":1700000031,\"exp\":1700000300"));
    EXPECT(OK, at("\"nbf\":1700000030," TIMES));
    EXPECT(NOT_YET_VALID, at("\"nbf\":1700000031," TIMES));
    EXPECT(NOT_YET_VALID, at("\"nbf\":9007199254740991," TIMES));
    EXPECT(BAD_CLAIM, at("\"exp\":1700000300"));
}

static void life_is_bounded(void **state)
{
    EXPECT(OK, at("\"iat\":1699999900,\"exp\":1700003500"));
    EXPECT(TOO_LONG_LIVED, at("\"iat\":1699999900,\"exp\":1700003501"));
    EXPECT(TOO_LONG_LIVED, at("\"iat\":1700000000,\"exp\":2015360000"));
    EXPECT(TOO_LONG_LIVED, at("\"iat\":0,\"exp\":9007199254740991"));
    struct jwt_rules rules = rules_of(w.secret);
    rules.max_lifetime_s = 0;
    EXPECT(TOO_LONG_LIVED, verify_hs(&rules, HEADER, PAYLOAD));
}

static void dates_are_whole_numbers(void **state)
{
    static const char *const wrong[] = {
        "1700000300.0", "1.7000003e9",  "17000003e2", "\"1700000300\"",   "null",
        "true",         "[1700000300]", "-1",         "9007199254740992", "9223372036854775807"};
    static const char *const not_even_json[] = {
        "9223372036854775808", "1e400",       "NaN",       "Infinity",
        "01700000300",         "+1700000300", "0x7fffffff"};
    static const char *const names[] = {"exp", "iat", "nbf"};
    char times[200];
    for (size_t i = 0; i < COUNT(wrong) + COUNT(not_even_json); i++)
        for (size_t k = 0; k < COUNT(names); k++) {
            bool json = i < COUNT(wrong);
            snprintf(times, sizeof times, "%s%s\"%s\":%s", k != 0 ? "\"exp\":1700000300," : "",
                     k != 1 ? "\"iat\":1699999900," : "", names[k],
                     json ? wrong[i] : not_even_json[i - COUNT(wrong)]);
            enum jwt_verdict v = at(times);
            if (v != (json ? JWT_BAD_CLAIM : JWT_BAD_PAYLOAD))
                fail_msg("%s: %s", times, jwt_verdict_name(v));
        }
}

static void digits_without_end(void **state)
{
    struct buf payload = {0}, token = {0};
    struct jwt_rules rules = rules_of(w.secret);
    buf_put(&payload, STR(WHO "\"exp\":1"));
    while (payload.n < 2800)
        buf_putc(&payload, '0');
    buf_putc(&payload, '}');
    kit_put_token(&token, JWK_HS256, NULL, SECRET, STR(HEADER), buf_str(&payload));
    EXPECT(BAD_PAYLOAD, verify_by(&rules, buf_str(&token), NOW));
    buf_deinit(&payload);
    buf_deinit(&token);
}

/* Neither claims nor times are told to who cannot sign. */
static void signature_comes_first(void **state)
{
    struct buf token = {0};
    struct jwt_rules rules = rules_of(w.secret);
    kit_put_token(&token, JWK_HS256, NULL, STR("another secret"), STR(HEADER),
                  STR("{\"iss\":\"" ISS "\",\"aud\":7,\"exp\":\"x\"}"));
    EXPECT(BAD_SIGNATURE, verify_by(&rules, buf_str(&token), NOW));
    buf_deinit(&token);
}

/* ---- subject, and attack 15: one type is not another ---- */

static void subject_is_short(void **state)
{
#define SUB(sub) with_payload(WHO TIMES ",\"sub\":" sub "}")
#define EIGHT    "12345678"
#define LONG     EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
    EXPECT(OK, with_payload(WHO TIMES "}"));
    EXPECT(OK, SUB("\"" LONG LONG "\""));
    EXPECT(BAD_CLAIM, SUB("\"" LONG LONG "x\""));
    EXPECT(BAD_CLAIM, SUB("\"\""));
    EXPECT(BAD_CLAIM, SUB("7"));
    EXPECT(BAD_CLAIM, SUB("null"));
    EXPECT(OK, SUB("\"x\",\"jti\":\"" LONG LONG "\""));
    EXPECT(BAD_CLAIM, SUB("\"x\",\"jti\":\"" LONG LONG "x\""));
    EXPECT(BAD_CLAIM, SUB("\"x\",\"jti\":[]"));
}

static void types_are_kept_apart(void **state)
{
#define TYPE(rules, typ) verify_hs(rules, "{\"alg\":\"HS256\",\"kid\":\"hs\"" typ "}", PAYLOAD)
    struct jwt_rules access = rules_of(w.secret), link = access, lax = access;
    const struct str link_types[] = {JWT_TYP_LINK}, lax_types[] = {STR("JWT"), STR_NONE};
    link.typ = link_types;
    link.n_typ = 1;
    lax.typ = lax_types;
    lax.n_typ = 2;
    EXPECT(OK, TYPE(&access, ",\"typ\":\"at+jwt\""));
    EXPECT(OK, TYPE(&access, ",\"typ\":\"application/at+jwt\""));
    EXPECT(WRONG_TYPE, TYPE(&access, ""));
    EXPECT(WRONG_TYPE, TYPE(&access, ",\"typ\":\"JWT\""));
    EXPECT(WRONG_TYPE, TYPE(&access, ",\"typ\":\"AT+JWT\""));
    EXPECT(WRONG_TYPE, TYPE(&access, ",\"typ\":\"application/application/at+jwt\""));
    EXPECT(WRONG_TYPE, TYPE(&access, ",\"typ\":\"tm-link+jwt\""));
    EXPECT(OK, TYPE(&link, ",\"typ\":\"tm-link+jwt\""));
    EXPECT(WRONG_TYPE, TYPE(&link, ",\"typ\":\"at+jwt\""));
    EXPECT(OK, TYPE(&lax, ",\"typ\":\"JWT\""));
    EXPECT(OK, TYPE(&lax, ""));
    EXPECT(WRONG_TYPE, TYPE(&lax, ",\"typ\":\"at+jwt\""));
    EXPECT(BAD_HEADER, TYPE(&lax, ",\"typ\":\"\""));
    EXPECT(BAD_HEADER, TYPE(&lax, ",\"typ\":7"));
    EXPECT(BAD_HEADER, TYPE(&access, ",\"typ\":\"at+jwt \""));
    EXPECT(BAD_HEADER, TYPE(&access, ",\"typ\":\"" LONG "x\""));
}

static void links_have_no_birth(void **state)
{
    struct jwt_rules rules = rules_of(w.secret);
    rules.iat_optional = true;
    rules.max_lifetime_s = 1800;
    EXPECT(OK, verify_hs(&rules, HEADER, WHO "\"exp\":1700001830}"));
    EXPECT(TOO_LONG_LIVED, verify_hs(&rules, HEADER, WHO "\"exp\":1700001831}"));
    EXPECT(EXPIRED, verify_hs(&rules, HEADER, WHO "\"exp\":1699999970}"));
    EXPECT(TOO_LONG_LIVED, verify_hs(&rules, HEADER, WHO "\"iat\":1699999999,\"exp\":1700001800}"));
    EXPECT(BAD_CLAIM, verify_hs(&rules, HEADER, WHO "\"iat\":\"x\",\"exp\":1700001800}"));
}

/* ---- our own ---- */

static void what_we_sign_we_verify(void **state)
{
    struct jwt_rules rules = rules_of(w.secret);
    struct buf one = {0}, two = {0};
    json_t *payload = json_pack("{s:s, s:[s], s:i, s:i, s:{s:i, s:i}}", "iss", ISS, "aud", AUD,
                                "iat", NOW, "exp", NOW + 60, "limits", "b", 1, "a", 2);
    json_t *turned = json_pack("{s:{s:i, s:i}, s:i, s:i, s:[s], s:s}", "limits", "a", 2, "b", 1,
                               "exp", NOW + 60, "iat", NOW, "aud", AUD, "iss", ISS);
    buf_put(&two, STR("before "));
    assert_int_equal(jwt_sign_hs256(w.secret, JWT_TYP_ACCESS, payload, &one), 0);
    assert_int_equal(jwt_sign_hs256(w.secret, JWT_TYP_ACCESS, turned, &two), 0);
    assert_true(str_eq(buf_str(&one), str_skip(buf_str(&two), 7)));
    EXPECT(OK, verify_by(&rules, buf_str(&one), NOW));
    struct jwt_head head;
    assert_int_equal(jwt_peek(buf_str(&one), &head), JWT_OK);
    assert_string_equal(head.kid, "hs");
    assert_string_equal(head.typ, "at+jwt");
    assert_int_equal(head.alg, JWK_HS256);
    char large[JWT_TOKEN_MAX];
    memset(large, 'x', sizeof large);
    json_object_set_new(payload, "large", json_stringn(large, 2900));
    one.n = 3;
    assert_int_equal(jwt_sign_hs256(w.secret, JWT_TYP_ACCESS, payload, &one), ERR_TOO_LARGE);
    assert_int_equal(one.n, 3);
    json_decref(payload);
    json_decref(turned);
    buf_deinit(&one);
    buf_deinit(&two);
}

static void verdicts_have_names(void **state)
{
    assert_string_equal(jwt_verdict_name(JWT_UNKNOWN_KID), "UNKNOWN_KID");
    for (int v = JWT_OK + 1; v <= JWT_TOO_LONG_LIVED; v++)
        assert_true(strlen(jwt_verdict_text(v)) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_tokens_of_all_algorithms),
        cmocka_unit_test(both_names_of_eddsa),
        cmocka_unit_test(token_of_the_rfc),
        cmocka_unit_test(algorithms_that_are_none),
        cmocka_unit_test(no_signature_and_the_empty_key),
        cmocka_unit_test(public_keys_are_no_secrets),
        cmocka_unit_test(token_does_not_choose),
        cmocka_unit_test(rsa_signatures_of_other_algorithms),
        cmocka_unit_test(es256_is_two_numbers_of_32_bytes),
        cmocka_unit_test(each_bit_counts),
        cmocka_unit_test(three_parts_in_their_order),
        cmocka_unit_test(one_spelling),
        cmocka_unit_test(other_alphabet),
        cmocka_unit_test(no_name_twice),
        cmocka_unit_test(json_is_an_object_and_flat),
        cmocka_unit_test(tokens_and_headers_are_bounded),
        cmocka_unit_test(headers_that_are_refused),
        cmocka_unit_test(kid_is_a_word),
        cmocka_unit_test(keys_of_another_issuer),
        cmocka_unit_test(secrets_rotate),
        cmocka_unit_test(issuer_is_exact),
        cmocka_unit_test(audience_is_ours),
        cmocka_unit_test(expiry_with_skew),
        cmocka_unit_test(nothing_from_the_future),
        cmocka_unit_test(life_is_bounded),
        cmocka_unit_test(dates_are_whole_numbers),
        cmocka_unit_test(digits_without_end),
        cmocka_unit_test(signature_comes_first),
        cmocka_unit_test(subject_is_short),
        cmocka_unit_test(types_are_kept_apart),
        cmocka_unit_test(links_have_no_birth),
        cmocka_unit_test(what_we_sign_we_verify),
        cmocka_unit_test(verdicts_have_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
