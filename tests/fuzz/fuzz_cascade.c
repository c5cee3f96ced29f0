// SPDX-License-Identifier: Apache-2.0
/* fuzz_cascade.c -- whatever a language server answers is read within its budget or refused, and
 * means what a plainer way of reading says. An input is taken as every answer, as a text that may
 * be an error, a key or a name; and as what we send, which must hold it as it is. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"
#include "feature/cascade/cascade_errors.h"
#include "feature/cascade/cascade_keys.h"
#include "feature/cascade/cascade_messages.h"
#include "feature/cascade/cascade_models.h"
#include "base/wire_message.h"
#include "fuzz/plain_wire.h"

#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_cascade: %s\n", what);
    abort();
}

/* ---- the plainer way ---- */

/* Fields below 64, as far as they are wanted; the last one of each. */
#define FIELDS 64
struct message {
    uint64_t numbers[FIELDS];
    struct str texts[FIELDS];
    size_t counts[FIELDS];
};

/* wires: of the fields that are known, 0 or 2; -1: others. */
static bool plain_message(struct str rest, const int wires[FIELDS], struct message *out)
{
    struct field f;
    *out = (struct message){0};
    while (rest.n > 0) {
        if (!cut_field(&rest, &f))
            return false;
        if (f.tag >= FIELDS || wires[f.tag] < 0)
            continue;
        if (f.wire != wires[f.tag])
            return false;
        if (f.wire == 0 && f.bytes.n == 10 && (uint8_t)f.bytes.p[9] > 1)
            return false; /* more than 64 bits */
        out->numbers[f.tag] = f.number;
        out->texts[f.tag] = f.value;
        out->counts[f.tag]++;
    }
    return true;
}

static void set_wires(int wires[FIELDS], size_t texts, size_t numbers)
{
    for (size_t i = 0; i < FIELDS; i++)
        wires[i] = texts >> i & 1 ? 2 : numbers >> i & 1 ? 0 : -1;
}

/* What we refuse, the plain way refuses, too; of what it takes protobuf-c takes some odd tags. */
static bool agree(int err, bool plain)
{
    check(err == 0 || err == ERR_SYNTAX || err == ERR_TOO_LARGE || err == ERR_EMPTY,
          "an error it cannot have");
    check(err != ERR_SYNTAX || !plain, "an answer was refused");
    return err == 0 && plain;
}

/* ---- answers ---- */

static bool plain_id(struct str s)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    for (size_t i = 0; i < s.n; i++)
        if (memchr(letters, s.p[i], sizeof letters - 1) == NULL)
            return false;
    return s.n <= CASCADE_ID_MAX && !str_eq(s, STR(".")) && !str_eq(s, STR(".."));
}

static void fuzz_started(struct arena *a, struct str input)
{
    int wires[FIELDS];
    struct message m;
    struct str id = STR("untouched");
    set_wires(wires, 1 << 1, 0);
    bool plain = plain_message(input, wires, &m) && plain_id(m.texts[1]);
    int err = cascade_started_read(a, input, &id);
    if (agree(err, plain))
        check(str_eq(id, m.texts[1]), "another id");
    if (plain && err != ERR_TOO_LARGE)
        check((err == ERR_EMPTY) == (m.texts[1].n == 0), "an id was not seen");
    check(err == 0 ? id.n > 0 && plain_id(id) : str_eq(id, STR("untouched")), "no id");
}

static void fuzz_transcript(struct arena *a, struct str input)
{
    int wires[FIELDS];
    struct message m;
    struct cascade_transcript_answer t;
    set_wires(wires, 1 << 1, 1 << 2);
    bool plain = plain_message(input, wires, &m) && utf8_valid(m.texts[1]);
    if (agree(cascade_transcript_answer_read(a, input, &t), plain))
        check(str_eq(t.text, m.texts[1]) && t.num_total_steps == m.numbers[2],
              "another transcript");
}

static void fuzz_raw(struct arena *a, struct str input)
{
    int outer_wires[FIELDS], wires[FIELDS];
    struct message outer, m = {0};
    struct cascade_raw_message raw;
    struct cascade_error e;
    set_wires(outer_wires, 1 << 1, 0);
    set_wires(wires, 1 << 5, 1 << 6 | 1 << 7);
    /* One that comes twice is merged, which is not plain. */
    bool plain = plain_message(input, outer_wires, &outer) && outer.counts[1] <= 1 &&
                 plain_message(outer.texts[1], wires, &m) && utf8_valid(m.texts[5]);
    int err = cascade_raw_message_read(a, input, &raw);
    if (err == 0)
        check(cascade_error_in_raw(&raw, &e) == raw.is_error, "an error was not seen");
    if (agree(err, plain))
        check(str_eq(raw.text, m.texts[5]) && raw.in_progress == (m.numbers[6] != 0) &&
                  raw.is_error == (m.numbers[7] != 0),
              "another message");
}

static void check_models(const struct cascade_models *m)
{
    check(m->n <= CASCADE_MODELS_MAX, "too many models");
    for (size_t i = 0; i < m->n; i++) {
        const struct cascade_model *x = &m->items[i];
        check(x->uid.n > 0 && x->uid.n <= CASCADE_MODEL_UID_MAX && utf8_valid(x->uid), "no UID");
        check(x->label.n > 0 && utf8_valid(x->label), "no label");
        check(i == 0 || x->is_private || !x[-1].is_private, "a slot in front of others");
        check(cascade_models_find(m, x->uid) == x, "a UID that is there twice");
        check(cascade_models_find(m, x->label) != NULL, "a label that is not found");
    }
    check(m->default_uid.n == 0 || cascade_models_find(m, m->default_uid) != NULL,
          "a default that is not there");
}

static void fuzz_models(struct arena *a, struct str input)
{
    struct cascade_models m;
    int err = cascade_models_read(a, input, &m);
    check(err == 0 || err == ERR_SYNTAX || err == ERR_TOO_LARGE, "an error it cannot have");
    if (err == 0)
        check_models(&m);
}

/* ---- texts ---- */

static void fuzz_text(struct str input)
{
    struct cascade_error e, trailers;
    bool is_error = cascade_error_in_text(input, &e);
    if (is_error) {
        check(e.code >= GRPC_CANCELLED && e.code <= GRPC_UNAUTHENTICATED, "no code");
        check(e.text.n < input.n && e.text.p + e.text.n <= input.p + input.n, "another's text");
    }
    check(!cascade_error_in_trailers(0, input, &trailers), "an error of a call that went well");
    check(cascade_error_in_trailers(GRPC_UNKNOWN, input, &trailers), "no error");
    check(trailers.code == (is_error ? e.code : GRPC_UNKNOWN), "another code");
    (void)cascade_error_is_session(input);
    enum cascade_key_kind kind = cascade_key_kind(input);
    check((cascade_key_refusal(kind) == NULL) == (kind >= CASCADE_KEY_WINDSURF), "a wrong refusal");
    check(!cascade_csrf_valid(input) || kind == CASCADE_KEY_LEGACY, "a token that is no text");
}

/* ---- what we send ---- */

static struct str only_text(struct str message, uint32_t tag)
{
    struct field f;
    struct str found = STR_NONE;
    while (message.n > 0) {
        check(cut_field(&message, &f), "a request is no message");
        if (f.tag == tag) {
            check(f.wire == 2 && found.p == NULL, "a field twice");
            found = f.value;
        }
    }
    check(found.p != NULL, "a field is missing");
    return found;
}

static void fuzz_send(struct str input)
{
    struct buf out = {0};
    struct cascade_metadata m = {.version = input, .api_key = input, .os = STR("linux")};
    cascade_put_send(&out, STR("C"), input, input, &m);
    struct str sent = buf_str(&out);
    check(str_eq(only_text(only_text(sent, 2), 1), input), "another text");
    check(str_eq(only_text(only_text(only_text(sent, 5), 1), 35), input), "another model");
    struct str metadata = only_text(sent, 3);
    check(str_eq(only_text(metadata, 3), input), "another key");
    check(str_eq(only_text(metadata, 7), input), "another version");
    check(only_text(metadata, 17).n == 0 && only_text(metadata, 24).n == 0, "not empty");
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct arena a = {0};
    struct str input = str_of((const char *)data, n);
    size_t before = __sanitizer_get_current_allocated_bytes();
    fuzz_models(&a, input);
    size_t used = __sanitizer_get_current_allocated_bytes() - before;
    /* The arena's pieces may be half empty; models are made of what was read, twice. */
    size_t models = 2 * (n / 2) * sizeof(struct cascade_model);
    check(used <= 2 * (WIRE_READ_TIMES * n + WIRE_READ_FIXED + models) + 8192, "over the budget");
    fuzz_started(&a, input);
    fuzz_transcript(&a, input);
    fuzz_raw(&a, input);
    fuzz_text(input);
    fuzz_send(input);
    arena_deinit(&a);
    return 0;
}
