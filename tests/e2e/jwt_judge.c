// SPDX-License-Identifier: Apache-2.0
/* jwt_judge -- what jwt-oracles.test.mjs asks:
 *
 *     jwt_judge NOW AUDIENCE ISSUER JWKS-FILE SECRET-ISSUER SECRET
 *
 * Tokens come in on stdin, in base64, one a line. For each goes out a line with the name of its
 * verdict. The issuer that the token names chooses the keys, as in the server. */
#include "base/b64.h"
#include "base/num.h"
#include "token/jwt.h"

#include <stdio.h>
#include <stdlib.h>

static void die(const char *what)
{
    fprintf(stderr, "jwt_judge: %s\n", what);
    exit(2);
}

static struct jwk_set *read_keys(const char *path)
{
    char text[JWK_TEXT_MAX + 1], why[100];
    struct jwk_set *keys;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        die("no such file");
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    if (jwk_set_parse(str_of(text, n), NULL, &keys, why, sizeof why) != 0)
        die(why);
    return keys;
}

static struct jwk_set *read_secret(const char *secret)
{
    char why[100];
    struct jwk_set *keys;
    const struct jwk_secret s = {str_of_cstr(secret), STR("hs")};
    if (jwk_set_from_secret(&s, NULL, &keys, why, sizeof why) != 0)
        die(why);
    return keys;
}

static enum jwt_verdict judge(const struct jwt_rules rules[2], struct str token, int64_t now_s)
{
    struct jwt_head head;
    struct jwt t;
    enum jwt_verdict v = jwt_peek(token, &head);
    if (v != JWT_OK)
        return v;
    bool second = str_eq(str_of_cstr(head.iss), rules[1].iss);
    v = jwt_verify(&rules[second], token, now_s, &t);
    if (v == JWT_OK)
        jwt_deinit(&t);
    return v;
}

int main(int argc, char **argv)
{
    uint64_t now_s;
    if (argc != 7 || num_parse(str_of_cstr(argv[1]), NUM_SAFE_MAX, &now_s) != 0)
        die("six arguments");
    const struct str aud = str_of_cstr(argv[2]);
    struct jwk_set *public = read_keys(argv[4]), *secret = read_secret(argv[6]);
    struct jwt_rules rules[2] = {
        {.iss = str_of_cstr(argv[3]), .keys = public},
        {.iss = str_of_cstr(argv[5]), .keys = secret},
    };
    for (int i = 0; i < 2; i++) {
        rules[i].aud = &aud;
        rules[i].n_aud = 1;
        rules[i].max_lifetime_s = JWT_LIFETIME_S;
        rules[i].skew_s = JWT_SKEW_S;
    }
    struct buf token = {0};
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        token.n = 0;
        if (b64_take(&token, str_of(line, strcspn(line, "\n"))) != 0)
            die("a line that is not base64");
        puts(jwt_verdict_name(judge(rules, buf_str(&token), (int64_t)now_s)));
    }
    buf_deinit(&token);
    free(line);
    jwk_set_free(public);
    jwk_set_free(secret);
    return fflush(stdout) != 0 || ferror(stdin);
}
