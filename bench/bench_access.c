// SPDX-License-Identifier: Apache-2.0
#include "bench_access.h"

#include "base/b64.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "token/jwk.h"
#include "token/jwt.h"

#include <stdlib.h>
#include <time.h>

#define SECRET     "0123456789abcdef0123456789abcdef"
#define SECRET_ENV "BENCH_ISSUER_SECRET"
#define ISSUER     "https://id.example.org/realms/main"
#define ED_ISSUER  "https://id.example.org/realms/other"
#define ED_HEADER  "{\"alg\":\"EdDSA\",\"typ\":\"at+jwt\",\"kid\":\"2026-11\"}"
#define ED_KEY     "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" /* of RFC 8037 */
#define ED_SIZE    64
#define FILE_NAME  "tidemark.conf"
#define KEYS_NAME  "keys.json"
#define LIFE_S     3600

/* ---- files ---- */

static FILE *file_in(const struct access_plan *p, const char *name)
{
    char path[DATA_PATH_MAX + sizeof FILE_NAME];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    return fopen(path, "w");
}

static int put_keys(const struct access_plan *p)
{
    FILE *f = file_in(p, KEYS_NAME);
    if (f == NULL)
        return -1;
    fprintf(f,
            "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"2026-11\",\"x\":\"%s\"}]}",
            ED_KEY);
    return fclose(f);
}

/* Bad tokens come from where good ones do: none is refused for its address. */
static int put_settings(const struct access_plan *p)
{
    char digest[2 * SHA256_SIZE + 1] = "";
    uint8_t bytes[SHA256_SIZE];
    sha256(STR(ACCESS_CALLER), bytes);
    hex_encode(bytes, sizeof bytes, digest);
    FILE *f = file_in(p, FILE_NAME);
    if (f == NULL)
        return -1;
    fprintf(f,
            "address-connections = 0\naddress-connection-rate = 0\naddress-failures = 0\n"
            "[caller bench]\ntoken-sha256 = %s\ngrant = read, create, append **\n"
            "[issuer bench]\niss = " ISSUER "\naud = tidemark\nsecret-env = " SECRET_ENV "\n"
            "grant = read, create, append **\n"
            "rate = 1000000\nappend-rate = 1g\ncreates = 1000000\n"
            "[issuer other]\niss = " ED_ISSUER "\naud = tidemark\njwks = %s/" KEYS_NAME "\n"
            "grant = read **\n",
            digest, p->folder);
    return fclose(f);
}

/* ---- tokens ---- */

static json_t *claims_of(const char *issuer)
{
    json_int_t now = (json_int_t)time(NULL);
    return json_pack("{ss ss ss ss sI sI}", "iss", issuer, "aud", "tidemark", "sub",
                     "8f1b7c52-5d0e-4c1a-9a35-2b1f6d0c7e44", "jti",
                     "b7e0a1c4-93d2-4f6f-8d1b-6a5e0f2c9d17", "iat", now, "exp", now + LIFE_S - 1);
}

static void end_text(struct buf *b)
{
    buf_putc(b, '\0');
    b->n--;
}

static int sign(struct access_plan *p)
{
    const struct jwk_secret secret = {.bytes = STR_INIT(SECRET), .kid = STR_INIT("2026-11")};
    char why[128];
    struct jwk_set *keys;
    json_t *claims = claims_of(ISSUER);
    if (jwk_set_from_secret(&secret, NULL, &keys, why, sizeof why) != 0) {
        json_decref(claims);
        return -1;
    }
    int err = jwt_sign_hs256(keys, STR("at+jwt"), claims, &p->jwt);
    end_text(&p->jwt);
    json_decref(claims);
    jwk_set_free(keys);
    return err;
}

/* It has the digits where a signature begins. */
static void forge_hmac(struct access_plan *p)
{
    buf_put(&p->forged_hmac, buf_str(&p->jwt));
    end_text(&p->forged_hmac);
    memcpy(strrchr(p->forged_hmac.p, '.') + 1, ACCESS_DIGITS, sizeof ACCESS_DIGITS - 1);
}

/* A signature that could be one, so that verifying it takes as long as it can: its second half is
 * a number below the order of the curve's group. */
static void forge_ed(struct access_plan *p)
{
    json_t *claims = claims_of(ED_ISSUER);
    char *payload = json_dumps(claims, JSON_COMPACT), *digits;
    uint8_t signature[ED_SIZE];
    for (size_t i = 0; i < ED_SIZE; i++)
        signature[i] = (uint8_t)(i * 37 + 1);
    signature[ED_SIZE - 1] &= 0x0f;
    b64url_put(&p->forged_ed, STR(ED_HEADER));
    buf_putc(&p->forged_ed, '.');
    b64url_put(&p->forged_ed, str_of_cstr(payload));
    buf_putc(&p->forged_ed, '.');
    b64url_put(&p->forged_ed, str_of((const char *)signature, sizeof signature));
    end_text(&p->forged_ed);
    digits = strrchr(p->forged_ed.p, '.') + 1;
    memcpy(digits, ACCESS_DIGITS, sizeof ACCESS_DIGITS - 1);
    free(payload);
    json_decref(claims);
}

/* ---- the whole ---- */

int access_plan_init(struct access_plan *p, const char *under, const char *args)
{
    *p = (struct access_plan){.args = ""};
    if (data_make(under, p->folder) != 0)
        return -1;
    snprintf(p->args, sizeof p->args, "--config %s/" FILE_NAME " %s", p->folder,
             args != NULL ? args : "");
    if (setenv(SECRET_ENV, SECRET, 1) == 0 && put_keys(p) == 0 && put_settings(p) == 0 &&
        sign(p) == 0) {
        forge_hmac(p);
        forge_ed(p);
        return 0;
    }
    fprintf(stderr, "bench: cannot make settings with access in %s\n", p->folder);
    access_plan_deinit(p);
    return -1;
}

void access_plan_deinit(struct access_plan *p)
{
    data_remove(p->folder);
    buf_deinit(&p->jwt);
    buf_deinit(&p->forged_hmac);
    buf_deinit(&p->forged_ed);
    unsetenv(SECRET_ENV);
}

void access_await(struct bench *b, const char *token)
{
    struct buf body = {0};
    bool busy = true;
    while (busy && !b->swarm.failed) {
        struct buf request = {0};
        buf_printf(&request,
                   "GET /v1/stream/none HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                   "Authorization: Bearer %s\r\n\r\n",
                   token);
        body.n = 0;
        ask_for(b, &request, ASK_ANY, "asking with a token", &body);
        busy = memmem(body.p, body.n, "BUSY", 4) != NULL;
    }
    buf_deinit(&body);
}
