// SPDX-License-Identifier: Apache-2.0
#include "app/access_token.h"
#include "access/issuer.h"
#include "access/minted.h"
#include "access/policy.h"
#include "base/b64.h"
#include "token/jwt.h"

static struct str text_of(const json_t *payload, const char *claim)
{
    const json_t *value = json_object_get(payload, claim);
    return json_is_string(value) ? str_of(json_string_value(value), json_string_length(value))
                                 : STR_NONE;
}

/* What it says, whoever has signed it. False: it cannot be read. jwt_deinit is due otherwise. */
static bool read_unchecked(struct str token, struct jwt *out)
{
    struct buf json = {0};
    str_cut(&token, '.');
    bool good = b64url_take(&json, str_cut(&token, '.')) == 0;
    json_t *payload = good ? json_loadb(json.p, json.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    buf_deinit(&json);
    if (payload == NULL)
        return false;
    const json_t *iat = json_object_get(payload, "iat");
    *out = (struct jwt){.sub = text_of(payload, "sub"),
                        .jti = text_of(payload, "jti"),
                        .exp_s = json_integer_value(json_object_get(payload, "exp")),
                        .iat_s = json_is_integer(iat) ? json_integer_value(iat) : -1,
                        .payload = payload};
    return true;
}

static void take_minted(struct str token, const struct jwt_head *head, int64_t now_s,
                        struct access_token *out)
{
    struct jwt t;
    out->why = "it cannot be read";
    out->unchecked = "the key is in the server's store";
    if (!read_unchecked(token, &t))
        return;
    out->why = "it has expired";
    if (now_s < t.exp_s)
        out->principal = minted_principal(&t, str_eq(str_of_cstr(head->typ), JWT_TYP_LINK));
    jwt_deinit(&t);
}

static void take_issued(const struct issuer *i, struct str token, int64_t now_s,
                        struct access_token *out)
{
    struct jwt t;
    bool good;
    out->why = "it cannot be read";
    if (i->keys != NULL) {
        struct jwt_rules rules;
        issuer_rules(i, i->keys, &rules);
        enum jwt_verdict v = jwt_verify(&rules, token, now_s, &t);
        out->why = jwt_verdict_text(v);
        good = v == JWT_OK;
    } else {
        out->unchecked = "the issuer's keys are at a URL, which is not asked";
        good = read_unchecked(token, &t);
    }
    if (!good)
        return;
    if (i->keys == NULL && now_s >= t.exp_s)
        out->why = "it has expired";
    else
        out->principal = issuer_principal(i, &t, &out->why);
    jwt_deinit(&t);
}

void access_token_read(const struct policy *policy, struct str token, int64_t now_s,
                       struct access_token *out)
{
    const struct principal *caller = policy_find_caller(policy, token);
    struct jwt_head head;
    *out = (struct access_token){.why = "it is no caller's, and no JWT"};
    if (caller != NULL) {
        out->principal = principal_ref(caller);
        return;
    }
    if (jwt_peek(token, &head) != JWT_OK)
        return;
    const struct issuer *i = policy_find_issuer(policy, str_of_cstr(head.iss));
    if (i != NULL)
        take_issued(i, token, now_s, out);
    else if (strcmp(head.iss, MINTED_ISSUER) == 0)
        take_minted(token, &head, now_s, out);
    else
        out->why = "no [issuer] has its iss";
}
