// SPDX-License-Identifier: Apache-2.0
/* fuzz_lib_state.c -- saved state that has the right MAC and says anything at all: it is refused,
 * or read; and what was read is written, read and written again as the same. Without its MAC it is
 * refused. */
#include "fuzz/lib_client.h"
#include "client/codec.h"
#include "client/state.h"

static const uint8_t key[MAC_SIZE] = "the key of a directory, of 32 b";

static void sign(struct tm_client *c, struct str body, struct bytes *out)
{
    uint8_t mac[MAC_SIZE];
    check(smac_sign(key, body, mac) == 0 && bytes_put(c, out, body) == 0 &&
              bytes_put(c, out, STR(",\"mac\":\"")) == 0 &&
              codec_put_hex(c, out, str_of((const char *)mac, MAC_SIZE)) == 0 &&
              bytes_put(c, out, STR("\"}\n")) == 0,
          "no memory");
}

/* What is written of what text says; false: it is refused. */
static bool again(struct tm_client *c, struct str text, struct bytes *out)
{
    struct saved_state s;
    unsigned dropped = 0;
    int err = state_parse(c, key, text, &s, &dropped);
    if (err == 0)
        check(state_format(c, key, &s, out) == 0, "read, and not written");
    else
        check(err == TM_E_TAMPERED, "another error");
    state_deinit(c, &s);
    return err == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tm_client *c = fuzz_client();
    struct str body = str_of((const char *)data, n);
    struct bytes text = {0}, once = {0}, twice = {0};
    sign(c, body, &text);
    if (again(c, bytes_str(&text), &once)) {
        check(again(c, bytes_str(&once), &twice), "written, and refused");
        check(str_eq(bytes_str(&once), bytes_str(&twice)), "not the same again");
        once.p[0] ^= 1;
        check(!again(c, bytes_str(&once), &twice), "taken without its MAC");
    }
    check(!again(c, body, &twice), "taken without a MAC");
    bytes_free(c, &text);
    bytes_free(c, &once);
    bytes_free(c, &twice);
    tm_close(c);
    return 0;
}
