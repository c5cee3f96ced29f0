// SPDX-License-Identifier: Apache-2.0
#include "token/jwt.h"
#include "base/ascii.h"
#include "base/b64.h"
#include "base/err.h"
#include "base/must.h"
#include "base/num.h"
#include "token/jwk_core.h"
#include "token/jws.h"
#include "token/mac.h"
#include "token/strict_json.h"

#include <stdlib.h>

enum { HEADER, PAYLOAD, SIGNATURE, PARTS };

/* A token in pieces, of which nothing has been verified. */
struct draft {
    struct str text;         /* what was signed: header and payload as they came */
    struct str parts[PARTS]; /* decoded, in bytes */
    json_t *header, *payload;
    enum jwk_alg alg;
    struct str kid, typ; /* in the header; p == NULL: absent */
    struct str iss;      /* in the payload */
    char bytes[JWT_TOKEN_MAX];
};

static void draft_deinit(struct draft *d)
{
    json_decref(d->header);
    json_decref(d->payload);
}

const char *jwt_verdict_name(enum jwt_verdict v)
{
    static const char *const names[] = {
#define X(name, text) #name,
        JWT_VERDICTS(X)
#undef X
    };
    return names[v];
}

const char *jwt_verdict_text(enum jwt_verdict v)
{
    static const char *const texts[] = {
#define X(name, text) text,
        JWT_VERDICTS(X)
#undef X
    };
    return texts[v];
}

/* ---- size and shape ---- */

/* Exactly three parts, none of them empty. Five are a JWE; nobody looks into it. */
static bool split_parts(struct str token, struct str parts[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        parts[i] = str_cut(&token, '.');
        if (parts[i].n == 0)
            return false;
    }
    return token.p == NULL;
}

static enum jwt_verdict decode_parts(struct draft *d, struct str token)
{
    struct str coded[PARTS];
    if (token.n > JWT_TOKEN_MAX)
        return JWT_TOO_LARGE;
    if (!split_parts(token, coded))
        return JWT_BAD_SHAPE;
    if (coded[HEADER].n > b64url_size(JWT_HEADER_MAX))
        return JWT_TOO_LARGE;
    char *to = d->bytes;
    for (int i = 0; i < PARTS; i++) {
        size_t n;
        if (!b64url_decode(coded[i], to, &n))
            return JWT_BAD_SHAPE;
        d->parts[i] = str_of(to, n);
        to += n;
    }
    d->text = str_of(token.p, token.n - coded[SIGNATURE].n - 1);
    return JWT_OK;
}

/* ---- header ---- */

/* Each of them would have us read the token otherwise, or trust a key that it brings along. */
static bool has_refused(const json_t *header)
{
    static const char *const refused[] = {"crit", "b64", "zip", "jku", "x5u", "jwk", "x5c"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (json_object_get(header, refused[i]) != NULL)
            return true;
    return false;
}

/* False: it is there, but no word of at most max bytes. */
static bool take_word(const json_t *object, const char *name, size_t max, struct str *out)
{
    const json_t *v = json_object_get(object, name);
    *out = strict_json_text(v);
    return v == NULL || (out->n <= max && ascii_is_visible(*out));
}

static enum jwt_verdict read_header(struct draft *d)
{
    d->header = strict_json_object(d->parts[HEADER]);
    if (d->header == NULL)
        return JWT_BAD_HEADER;
    if (has_refused(d->header))
        return JWT_REFUSED_HEADER;
    if (!jwk_alg_find(strict_json_text(json_object_get(d->header, "alg")), &d->alg))
        return JWT_UNKNOWN_ALG;
    if (!take_word(d->header, "typ", JWT_TYP_MAX, &d->typ))
        return JWT_BAD_HEADER;
    const json_t *kid = json_object_get(d->header, "kid");
    d->kid = strict_json_text(kid);
    return kid == NULL || jwk_kid_is_valid(d->kid) ? JWT_OK : JWT_BAD_KID;
}

/* ---- payload, before the signature ---- */

static enum jwt_verdict read_payload(struct draft *d)
{
    d->payload = strict_json_object(d->parts[PAYLOAD]);
    if (d->payload == NULL)
        return JWT_BAD_PAYLOAD;
    d->iss = strict_json_text(json_object_get(d->payload, "iss"));
    return d->iss.n > 0 && d->iss.n <= JWT_ISS_MAX ? JWT_OK : JWT_NO_ISSUER;
}

/* *d is zeroed, and to be given to draft_deinit whatever the verdict. */
static enum jwt_verdict read_draft(struct draft *d, struct str token)
{
    enum jwt_verdict v = decode_parts(d, token);
    if (v == JWT_OK)
        v = read_header(d);
    return v == JWT_OK ? read_payload(d) : v;
}

/* Into zeroed room that is larger. */
static void copy_text(char *to, struct str s)
{
    if (s.n > 0)
        memcpy(to, s.p, s.n);
}

enum jwt_verdict jwt_peek(struct str token, struct jwt_head *out)
{
    struct draft d = {0};
    enum jwt_verdict v = read_draft(&d, token);
    if (v == JWT_OK) {
        *out = (struct jwt_head){.alg = d.alg};
        copy_text(out->iss, d.iss);
        copy_text(out->kid, d.kid);
        copy_text(out->typ, d.typ);
    }
    draft_deinit(&d);
    return v;
}

bool jwt_split(struct str token, json_t **header, json_t **payload)
{
    struct draft d = {0};
    if (decode_parts(&d, token) == JWT_OK) {
        d.header = strict_json_object(d.parts[HEADER]);
        d.payload = strict_json_object(d.parts[PAYLOAD]);
    }
    if (d.header != NULL && d.payload != NULL) {
        *header = d.header;
        *payload = d.payload;
        return true;
    }
    draft_deinit(&d);
    return false;
}

/* ---- type and signature ---- */

static bool is_type(struct str typ, struct str wanted)
{
    const struct str prefix = STR("application/");
    if (wanted.n == 0)
        return typ.n == 0;
    return str_eq(typ, wanted) ||
           (str_starts(typ, prefix) && str_eq(str_skip(typ, prefix.n), wanted));
}

static bool type_is_accepted(const struct jwt_rules *rules, struct str typ)
{
    if (rules->n_typ == 0)
        return is_type(typ, JWT_TYP_ACCESS);
    for (size_t i = 0; i < rules->n_typ; i++)
        if (is_type(typ, rules->typ[i]))
            return true;
    return false;
}

/* At most two keys match: those without a kid, or the secrets of a rotation. */
static enum jwt_verdict check_signature(const struct jwk_set *keys, const struct draft *d,
                                        uint64_t *print)
{
    enum jwt_verdict v = JWT_UNKNOWN_KID;
    for (const struct jwk *k = NULL; (k = jwk_set_match(keys, d->kid, k)) != NULL;) {
        v = k->alg == d->alg ? JWT_BAD_SIGNATURE : JWT_WRONG_ALG;
        if (k->alg == d->alg && jws_check(k, d->text, d->parts[SIGNATURE])) {
            *print = k->print;
            return JWT_OK;
        }
    }
    return v;
}

/* ---- claims ---- */

/* A NumericDate as whole seconds; *out stays as it was if it is absent. False: it is something
 * else. jansson reads `1.0` and `1e9` as reals. */
static bool take_date(const json_t *payload, const char *name, int64_t *out)
{
    const json_t *v = json_object_get(payload, name);
    if (v == NULL)
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > NUM_SAFE_MAX)
        return false;
    *out = json_integer_value(v);
    return true;
}

static bool take_text(const json_t *payload, const char *name, size_t max, struct str *out)
{
    const json_t *v = json_object_get(payload, name);
    *out = strict_json_text(v);
    return v == NULL || (out->n > 0 && out->n <= max);
}

static enum jwt_verdict check_times(const struct jwt_rules *rules, const json_t *payload,
                                    int64_t now_s, struct jwt *out)
{
    int64_t exp_s = -1, iat_s = -1, nbf_s = -1;
    if (!take_date(payload, "exp", &exp_s) || !take_date(payload, "iat", &iat_s) ||
        !take_date(payload, "nbf", &nbf_s) || exp_s < 0 || (iat_s < 0 && !rules->iat_optional) ||
        iat_s >= exp_s)
        return JWT_BAD_CLAIM;
    if (now_s >= exp_s + rules->skew_s)
        return JWT_EXPIRED;
    if (iat_s > now_s + rules->skew_s || nbf_s > now_s + rules->skew_s)
        return JWT_NOT_YET_VALID;
    int64_t since_s = iat_s >= 0 ? iat_s : now_s + rules->skew_s;
    if (exp_s - since_s > rules->max_lifetime_s)
        return JWT_TOO_LONG_LIVED;
    out->exp_s = exp_s;
    out->iat_s = iat_s;
    return JWT_OK;
}

static bool is_our_name(const struct jwt_rules *rules, struct str aud)
{
    for (size_t i = 0; i < rules->n_aud; i++)
        if (aud.n > 0 && str_eq(aud, rules->aud[i]))
            return true;
    return false;
}

static enum jwt_verdict check_audience(const struct jwt_rules *rules, const json_t *aud)
{
    if (json_is_string(aud))
        return is_our_name(rules, strict_json_text(aud)) ? JWT_OK : JWT_WRONG_AUDIENCE;
    size_t n = json_array_size(aud); /* 0 for what is no array */
    bool found = false;
    if (n == 0 || n > JWT_AUD_MAX)
        return JWT_BAD_CLAIM;
    for (size_t i = 0; i < n; i++) {
        struct str one = strict_json_text(json_array_get(aud, i));
        if (one.p == NULL)
            return JWT_BAD_CLAIM;
        found = found || is_our_name(rules, one);
    }
    return found ? JWT_OK : JWT_WRONG_AUDIENCE;
}

bool jwt_is_for(const json_t *payload, const struct str *aud, size_t n_aud)
{
    const struct jwt_rules rules = {.aud = aud, .n_aud = n_aud};
    return check_audience(&rules, json_object_get(payload, "aud")) == JWT_OK;
}

static enum jwt_verdict check_claims(const struct jwt_rules *rules, const struct draft *d,
                                     int64_t now_s, struct jwt *out)
{
    if (!take_text(d->payload, "sub", JWT_SUB_MAX, &out->sub) ||
        !take_text(d->payload, "jti", JWT_JTI_MAX, &out->jti))
        return JWT_BAD_CLAIM;
    enum jwt_verdict v = check_audience(rules, json_object_get(d->payload, "aud"));
    return v == JWT_OK ? check_times(rules, d->payload, now_s, out) : v;
}

/* ---- verify ---- */

static enum jwt_verdict judge(const struct jwt_rules *rules, const struct draft *d, int64_t now_s,
                              struct jwt *out)
{
    if (rules->iss.n == 0 || !str_eq(d->iss, rules->iss))
        return JWT_WRONG_ISSUER;
    if (!type_is_accepted(rules, d->typ))
        return JWT_WRONG_TYPE;
    enum jwt_verdict v = check_signature(rules->keys, d, &out->key);
    return v == JWT_OK ? check_claims(rules, d, now_s, out) : v;
}

enum jwt_verdict jwt_verify(const struct jwt_rules *rules, struct str token, int64_t now_s,
                            struct jwt *out)
{
    must(now_s >= 0 && rules->skew_s >= 0 && rules->skew_s <= JWT_SKEW_MAX_S);
    struct draft d = {0};
    struct jwt found = {0};
    enum jwt_verdict v = read_draft(&d, token);
    if (v == JWT_OK)
        v = judge(rules, &d, now_s, &found);
    if (v == JWT_OK) {
        copy_text(found.kid, d.kid);
        found.payload = json_incref(d.payload);
        *out = found;
    }
    draft_deinit(&d);
    return v;
}

void jwt_deinit(struct jwt *t)
{
    json_decref(t->payload);
    *t = (struct jwt){0};
}

/* ---- sign ---- */

static void put_header(struct buf *out, struct str typ, struct str kid)
{
    struct buf json = {0};
    buf_printf(&json, "{\"alg\":\"HS256\",\"typ\":\"%.*s\"", (int)typ.n, typ.p);
    if (kid.n > 0)
        buf_printf(&json, ",\"kid\":\"%.*s\"", (int)kid.n, kid.p);
    buf_putc(&json, '}');
    b64url_put(out, buf_str(&json));
    buf_deinit(&json);
}

static void put_payload(struct buf *out, const json_t *payload)
{
    char *json = json_dumps(payload, JSON_COMPACT | JSON_SORT_KEYS);
    must(json != NULL);
    b64url_put(out, str_of_cstr(json));
    free(json);
}

int jwt_sign_hs256(const struct jwk_set *keys, struct str typ, const json_t *payload,
                   struct buf *out)
{
    const struct jwk *key = &keys->keys[0];
    must(keys->counts.usable > 0 && key->alg == JWK_HS256 && json_is_object(payload) &&
         typ.n <= JWT_TYP_MAX && ascii_is_word(typ, "+-./"));
    size_t start = out->n;
    uint8_t tag[MAC_SIZE];
    put_header(out, typ, jwk_set_kid(keys, 0));
    buf_putc(out, '.');
    put_payload(out, payload);
    mac_sign(key->mac, (struct str[]){str_of(out->p + start, out->n - start)}, 1, tag);
    buf_putc(out, '.');
    b64url_put(out, str_of((const char *)tag, sizeof tag));
    if (out->n - start <= JWT_TOKEN_MAX)
        return 0;
    out->n = start;
    return ERR_TOO_LARGE;
}
