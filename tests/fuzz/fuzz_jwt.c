// SPDX-License-Identifier: Apache-2.0
/* fuzz_jwt.c -- whatever jwt_verify accepts keeps the rules, as a plainer reader sees it that
 * shares nothing with it but for the checker of JSON. Signatures are not real here: jws_check is
 * another one, which anybody can satisfy, so that what lies behind it is reached.
 *
 * The first byte says whose rules count, and what the rest is: a token; a header, a payload and a
 * signature in lines, which are put into base64url here; a payload alone; or choices of which a
 * header and a payload are made, most of them nearly right. */
#include "base/b64.h"
#include "base/json.h"
#include "base/json_view.h"
#include "token/jwk_core.h"
#include "token/jws.h"
#include "token/jwt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define INPUT_MAX (JWT_TOKEN_MAX + 64)
#define NOW       1700000000
#define LONGEST   (JWT_TOKEN_MAX + 1)

static const struct str audiences[] = {STR_INIT("us"), STR_INIT("u2")};
static const struct str link_types[] = {STR_INIT("tm-link+jwt")};
static const struct str lax_types[] = {STR_INIT("JWT"), STR_INIT("")};

static struct jwt_rules all_rules[] = {
    {.max_lifetime_s = 3600, .skew_s = 30},
    {.max_lifetime_s = 1800, .skew_s = 0, .iat_optional = true, .typ = link_types, .n_typ = 1},
    {.max_lifetime_s = 100000, .skew_s = 60, .typ = lax_types, .n_typ = 2},
};

/* In place of the real one: 32 bytes that begin with the name of the key's algorithm. */
bool jws_check(const struct jwk *key, struct str text, struct str signature)
{
    return signature.n == 32 && str_starts(signature, str_of_cstr(jwk_alg_name(key->alg))) &&
           text.n > 0;
}

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_jwt: %s\n", what);
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct jwk_set *public, *secret;
    static char why[100];
    const struct str jwks =
        STR("{\"keys\":[{\"kid\":\"ed\",\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":"
            "\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"},{\"kty\":\"EC\",\"crv\":\"P-256\","
            "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
            "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}");
    const struct jwk_secret bytes = {STR("0123456789abcdef0123456789abcdef"), STR("hs")};
    check(jwk_set_parse(jwks, NULL, &public, why, sizeof why) == 0, why);
    check(jwk_set_from_secret(&bytes, NULL, &secret, why, sizeof why) == 0, why);
    for (size_t i = 0; i < sizeof all_rules / sizeof *all_rules; i++) {
        all_rules[i].iss = STR("issuer");
        all_rules[i].aud = audiences;
        all_rules[i].n_aud = 2;
        all_rules[i].keys = i == 1 ? secret : public;
    }
    return 0;
}

/* ---- the plain reader ---- */

/* Into out; it was in the one spelling if it comes out the same again. */
static struct str plain_decode(struct str text, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t n = 0, bits = 0;
    unsigned long v = 0;
    for (size_t i = 0; i < text.n; i++) {
        const char *at = text.p[i] != '\0' ? strchr(digits, text.p[i]) : NULL;
        check(at != NULL, "accepted, with a character that base64url has not");
        v = (v << 6 | (unsigned long)(at - digits)) & 0xffffff;
        for (bits += 6; bits >= 8; bits -= 8)
            out[n++] = (char)(v >> (bits - 8));
    }
    char again[LONGEST + 4];
    size_t size = b64url_encode(str_of(out, n), again);
    check(str_eq(str_of(again, size), text), "accepted, in another spelling");
    return str_of(out, n);
}

struct text {
    char p[LONGEST];
    size_t n;
};

static bool plain_text(struct str value, struct text *out)
{
    if (view_type(value) != VIEW_STRING)
        return false;
    check(view_decode_to(view_inside(value), out->p, &out->n), "accepted, with half a character");
    check(memchr(out->p, '\0', out->n) == NULL, "accepted, with a NUL");
    return true;
}

static bool plain_is(struct str value, const char *text)
{
    struct text t;
    return plain_text(value, &t) && str_eq(str_of(t.p, t.n), str_of_cstr(text));
}

static bool name_is(struct str name, const char *text)
{
    return view_name_is(name, str_of_cstr(text));
}

/* How often a member is there; the last one. */
static int plain_find(struct str object, const char *wanted, struct str *out)
{
    struct str rest = view_inside(object), name, value;
    int n = 0;
    *out = STR_NONE;
    while (view_member(&rest, &name, &value))
        if (name_is(name, wanted)) {
            *out = value;
            n++;
        }
    return n;
}

static void check_names(struct str object)
{
    struct str rest = view_inside(object), name, value;
    while (view_member(&rest, &name, &value)) {
        struct text t;
        struct str others = rest, other, ignored;
        check(view_decode_to(name, t.p, &t.n), "accepted, with half a character in a name");
        while (view_member(&others, &other, &ignored))
            check(!view_name_is(other, str_of(t.p, t.n)), "accepted, with a name twice");
    }
}

static int nesting(struct str json)
{
    int depth = 0, deepest = 0;
    bool quoted = false;
    for (size_t i = 0; i < json.n; i++) {
        if (json.p[i] == '"')
            quoted = !quoted;
        else if (json.p[i] == '\\')
            i++;
        else if (!quoted && (json.p[i] == '{' || json.p[i] == '[')) {
            depth++;
            deepest = depth > deepest ? depth : deepest;
        } else if (!quoted && (json.p[i] == '}' || json.p[i] == ']'))
            depth--;
    }
    return deepest;
}

static struct str plain_object(struct str json)
{
    size_t at;
    check(json_check(json, &at) == 0, "accepted, although it is not JSON");
    json = view_trim(json);
    check(view_type(json) == VIEW_OBJECT, "accepted, although it is no object");
    check(nesting(json) <= 8, "accepted, nested too deep");
    check_names(json);
    return json;
}

/* Digits and nothing else; -1: absent. Negative zero is zero. */
static int64_t plain_date(struct str payload, const char *name)
{
    struct str value;
    if (plain_find(payload, name, &value) == 0)
        return -1;
    if (str_eq(value, STR("-0")))
        return 0;
    check(value.n > 0 && value.n <= 16, "accepted, with a date that is no number in 2^53");
    int64_t v = 0;
    for (size_t i = 0; i < value.n; i++) {
        check(value.p[i] >= '0' && value.p[i] <= '9', "accepted, with a date that is not digits");
        v = v * 10 + (value.p[i] - '0');
    }
    check(v < (int64_t)1 << 53, "accepted, with a date beyond 2^53");
    return v;
}

static void check_header(const struct jwt_rules *rules, struct str header, struct str signature)
{
    static const char *const refused[] = {"crit", "b64", "zip", "jku", "x5u", "jwk", "x5c"};
    struct str alg, kid, typ, value;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check(plain_find(header, refused[i], &value) == 0, "accepted, with a refused header");
    plain_find(header, "alg", &alg);
    plain_find(header, "kid", &kid);
    plain_find(header, "typ", &typ);
    struct str signer = str_of(signature.p, 5);
    if (rules == &all_rules[1])
        check(plain_is(kid, "hs") && plain_is(alg, "HS256") && str_eq(signer, STR("HS256")),
              "accepted, but not by the secret");
    else if (kid.n > 0)
        check(plain_is(kid, "ed") && (plain_is(alg, "EdDSA") || plain_is(alg, "Ed25519")) &&
                  str_eq(signer, STR("EdDSA")),
              "accepted, but not by the key that it names");
    else
        check(plain_is(alg, "ES256") && str_eq(signer, STR("ES256")),
              "accepted, but not by the key without a name");
    if (rules == &all_rules[0])
        check(plain_is(typ, "at+jwt") || plain_is(typ, "application/at+jwt"), "a type");
    else if (rules == &all_rules[1])
        check(plain_is(typ, "tm-link+jwt") || plain_is(typ, "application/tm-link+jwt"), "a link");
    else
        check(typ.n == 0 || plain_is(typ, "JWT") || plain_is(typ, "application/JWT"), "any type");
}

static void check_audience(struct str payload)
{
    struct str aud, rest, one;
    struct text t;
    int n = 0, ours = 0;
    plain_find(payload, "aud", &aud);
    if (view_type(aud) == VIEW_ARRAY)
        for (rest = view_inside(aud); view_element(&rest, &one); n++) {
            check(plain_text(one, &t), "accepted, for an audience that is no string");
            ours += plain_is(one, "us") || plain_is(one, "u2");
        }
    else
        ours = plain_is(aud, "us") || plain_is(aud, "u2");
    check(ours > 0 && n <= 16, "accepted, for others");
}

static void check_times(const struct jwt_rules *rules, struct str payload, const struct jwt *t)
{
    int64_t exp = plain_date(payload, "exp"), iat = plain_date(payload, "iat");
    int64_t nbf = plain_date(payload, "nbf");
    check(exp == t->exp_s && iat == t->iat_s, "other times");
    check(exp > NOW - rules->skew_s, "accepted after its end");
    check(nbf <= NOW + rules->skew_s && iat <= NOW + rules->skew_s, "accepted too early");
    check(iat >= 0 || rules->iat_optional, "accepted without iat");
    check(exp - (iat >= 0 ? iat : NOW + rules->skew_s) <= rules->max_lifetime_s, "a long life");
}

static void check_name(struct str payload, const char *name, struct str got)
{
    struct str value;
    struct text t;
    if (plain_find(payload, name, &value) == 0) {
        check(got.p == NULL, "a name from nowhere");
        return;
    }
    check(plain_text(value, &t) && t.n > 0 && t.n <= 128, "accepted, with a name of no good size");
    check(str_eq(str_of(t.p, t.n), got), "another name");
}

static void check_accepted(const struct jwt_rules *rules, struct str token, const struct jwt *t)
{
    char bytes[3][LONGEST];
    struct str rest = token, parts[3], iss;
    check(token.n <= 4096, "accepted, although it is large");
    for (int i = 0; i < 3; i++)
        parts[i] = plain_decode(str_cut(&rest, '.'), bytes[i]);
    check(rest.p == NULL, "accepted, with more than three parts");
    check(parts[0].n <= 1024, "accepted, with a large header");
    check(parts[2].n == 32, "accepted, but not signed");
    struct str payload = plain_object(parts[1]);
    check_header(rules, plain_object(parts[0]), parts[2]);
    plain_find(payload, "iss", &iss);
    check(plain_is(iss, "issuer"), "accepted, of another issuer");
    check_audience(payload);
    check_times(rules, payload, t);
    check_name(payload, "sub", t->sub);
    check_name(payload, "jti", t->jti);
}

/* Whatever can be read at all is split, whoever signed it. */
static void check_split(struct str token, bool read)
{
    json_t *header = NULL, *payload = NULL;
    bool split = jwt_split(token, &header, &payload);
    check(split || !read, "read, but not split");
    check(split == (json_is_object(header) && json_is_object(payload)), "half of it");
    json_decref(header);
    json_decref(payload);
}

static bool fuzz_token(const struct jwt_rules *rules, struct str token)
{
    struct jwt t = {.exp_s = -7};
    struct jwt_head head;
    enum jwt_verdict peeked = jwt_peek(token, &head);
    enum jwt_verdict v = jwt_verify(rules, token, NOW, &t);
    check(peeked == (v <= JWT_NO_ISSUER ? v : JWT_OK), "peek and verify differ");
    check_split(token, peeked == JWT_OK);
    check(jwt_verdict_name(v)[0] != '\0', "a verdict without a name");
    if (v != JWT_OK) {
        check(t.exp_s == -7 && t.payload == NULL, "refused, but written");
        return false;
    }
    check(strcmp(head.iss, "issuer") == 0 && strcmp(head.kid, t.kid) == 0, "peek saw another");
    check_accepted(rules, token, &t);
    jwt_deinit(&t);
    return true;
}

/* ---- tokens that are made of the input ---- */

static bool fuzz_parts(const struct jwt_rules *rules, struct str header, struct str payload,
                       struct str signature)
{
    struct buf token = {0};
    b64url_put(&token, header);
    buf_putc(&token, '.');
    b64url_put(&token, payload);
    buf_putc(&token, '.');
    b64url_put(&token, signature);
    bool ok = fuzz_token(rules, buf_str(&token));
    buf_deinit(&token);
    return ok;
}

static void good_header(const struct jwt_rules *rules, struct str *header, struct str *signature)
{
    if (rules == &all_rules[0]) {
        *header = STR("{\"alg\":\"EdDSA\",\"kid\":\"ed\",\"typ\":\"at+jwt\"}");
        *signature = STR("EdDSA...........................");
    } else if (rules == &all_rules[1]) {
        *header = STR("{\"alg\":\"HS256\",\"kid\":\"hs\",\"typ\":\"tm-link+jwt\"}");
        *signature = STR("HS256...........................");
    } else {
        *header = STR("{\"alg\":\"ES256\"}");
        *signature = STR("ES256...........................");
    }
}

static uint8_t next(struct str *input)
{
    uint8_t c = input->n > 0 ? (uint8_t)input->p[0] : 0;
    if (input->n > 0)
        *input = str_skip(*input, 1);
    return c;
}

/* A time near now, or near now and so much, or something that looks like one. */
static void put_date(struct buf *out, const char *name, struct str *input, int64_t later)
{
    static const char *const odd[] = {"null",           "-1", "1.7e9", "1700000000.0",
                                      "\"1700000000\"", "[]"};
    uint8_t choice = next(input);
    int64_t v = NOW + (next(input) % 2 ? 0 : later) + (int8_t)choice;
    if (choice == 0x80)
        return; /* absent */
    buf_printf(out, ",\"%s\":", name);
    if (choice == 0x81)
        buf_printf(out, "%s", odd[next(input) % 6]);
    else if (choice == 0x82)
        buf_printf(out, "%" PRIu64, (uint64_t)1 << next(input) % 64);
    else
        buf_printf(out, "%" PRId64, v);
}

static void put_choice(struct buf *out, const char *name, struct str *input,
                       const char *const *choices, size_t n)
{
    const char *chosen = choices[next(input) % n];
    if (chosen[0] != '\0')
        buf_printf(out, ",\"%s\":%s", name, chosen);
}

/* The header that is right here, and perhaps a member that is not. */
static void put_header(struct buf *out, struct str good, struct str *input)
{
    static const char *const others[] = {"",
                                         ",\"crit\":[]",
                                         ",\"b64\":true",
                                         ",\"zip\":\"DEF\"",
                                         ",\"jku\":\"x\"",
                                         ",\"x5u\":\"x\"",
                                         ",\"jwk\":{}",
                                         ",\"x5c\":[]",
                                         ",\"\\u0063rit\":[]",
                                         ",\"alg\":\"none\"",
                                         ",\"cty\":\"JWT\"",
                                         ",\"x\":[[[[[[[0]]]]]]]",
                                         ",\"x\":[[[[[[[[0]]]]]]]]"};
    buf_put(out, str_of(good.p, good.n - 1));
    buf_printf(out, "%s}", others[next(input) % (sizeof others / sizeof *others)]);
}

static void fuzz_choices(const struct jwt_rules *rules, struct str input)
{
    static const char *const issuers[] = {"\"issuer\"", "\"issuer/\"", "\"\\u0069ssuer\"", "7", ""};
    static const char *const auds[] = {
        "\"us\"", "[\"x\",\"u2\"]", "[]", "[\"us\",1]", "\"US\"", "", "[1,\"us\"]", "[[\"us\"]]"};
    static const char *const subs[] = {"\"u\"",      "", "\"\"", "1", "\"\\ud83d\\ude00\"",
                                       "\"\\u0000\""};
    struct buf header = {0}, payload = {0};
    struct str good, signature;
    good_header(rules, &good, &signature);
    put_header(&header, good, &input);
    buf_put(&payload, STR("{\"x\":0"));
    put_choice(&payload, "iss", &input, issuers, 5);
    put_choice(&payload, "aud", &input, auds, 8);
    put_choice(&payload, "sub", &input, subs, 6);
    put_choice(&payload, "jti", &input, subs, 6);
    put_date(&payload, "exp", &input, rules->max_lifetime_s);
    put_date(&payload, "iat", &input, -rules->max_lifetime_s);
    put_date(&payload, "nbf", &input, -60);
    if (input.n > 0) {
        buf_putc(&payload, ',');
        buf_put(&payload, input);
    }
    buf_putc(&payload, '}');
    fuzz_parts(rules, buf_str(&header), buf_str(&payload), signature);
    buf_deinit(&header);
    buf_deinit(&payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0 || n > INPUT_MAX)
        return 0;
    struct str input = str_of((const char *)data, n), header, signature, line;
    uint8_t choice = next(&input);
    const struct jwt_rules *rules = &all_rules[choice / 4 % 3];
    switch (choice % 4) {
    case 0: fuzz_token(rules, input); break;
    case 1:
        header = str_cut(&input, '\n');
        line = str_cut(&input, '\n');
        fuzz_parts(rules, header, line, input);
        break;
    case 2:
        good_header(rules, &header, &signature);
        fuzz_parts(rules, header, input, signature);
        break;
    default: fuzz_choices(rules, input);
    }
    return 0;
}
