// SPDX-License-Identifier: Apache-2.0
#include "bench_access.h"

#include "base/hex.h"
#include "base/sha256.h"
#include "token/jwk.h"
#include "token/jwt.h"

#include <stdlib.h>
#include <time.h>

#define SECRET     "0123456789abcdef0123456789abcdef"
#define SECRET_ENV "BENCH_ISSUER_SECRET"
#define ISSUER     "https://id.example.org/realms/main"
#define FILE_NAME  "tidemark.conf"
#define LIFE_S     3600

static int put_settings(const struct access_plan *p)
{
    char path[DATA_PATH_MAX + sizeof FILE_NAME], digest[2 * SHA256_SIZE + 1] = "";
    uint8_t bytes[SHA256_SIZE];
    sha256(STR(ACCESS_CALLER), bytes);
    hex_encode(bytes, sizeof bytes, digest);
    snprintf(path, sizeof path, "%s/" FILE_NAME, p->folder);
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return -1;
    fprintf(f,
            "address-connections = 0\naddress-connection-rate = 0\n"
            "[caller bench]\ntoken-sha256 = %s\ngrant = read, create, append **\n"
            "[issuer bench]\niss = " ISSUER "\naud = tidemark\nsecret-env = " SECRET_ENV "\n"
            "grant = read, create, append **\n"
            "rate = 1000000\nappend-rate = 1g\ncreates = 1000000\n",
            digest);
    return fclose(f);
}

static int sign(struct access_plan *p)
{
    const struct jwk_secret secret = {.bytes = STR_INIT(SECRET), .kid = STR_INIT("2026-11")};
    char why[128];
    struct jwk_set *keys;
    json_int_t now = (json_int_t)time(NULL);
    json_t *claims =
        json_pack("{ss ss ss ss sI sI}", "iss", ISSUER, "aud", "tidemark", "sub",
                  "8f1b7c52-5d0e-4c1a-9a35-2b1f6d0c7e44", "jti",
                  "b7e0a1c4-93d2-4f6f-8d1b-6a5e0f2c9d17", "iat", now, "exp", now + LIFE_S - 1);
    if (jwk_set_from_secret(&secret, NULL, &keys, why, sizeof why) != 0) {
        json_decref(claims);
        return -1;
    }
    int err = jwt_sign_hs256(keys, STR("at+jwt"), claims, &p->jwt);
    buf_putc(&p->jwt, '\0');
    p->jwt.n--;
    json_decref(claims);
    jwk_set_free(keys);
    return err;
}

int access_plan_init(struct access_plan *p, const char *under, const char *args)
{
    *p = (struct access_plan){.args = ""};
    if (data_make(under, p->folder) != 0)
        return -1;
    snprintf(p->args, sizeof p->args, "--config %s/" FILE_NAME " %s", p->folder,
             args != NULL ? args : "");
    if (setenv(SECRET_ENV, SECRET, 1) == 0 && put_settings(p) == 0 && sign(p) == 0)
        return 0;
    fprintf(stderr, "bench: cannot make settings with access in %s\n", p->folder);
    access_plan_deinit(p);
    return -1;
}

void access_plan_deinit(struct access_plan *p)
{
    data_remove(p->folder);
    buf_deinit(&p->jwt);
    unsetenv(SECRET_ENV);
}
