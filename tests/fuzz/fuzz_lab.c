// SPDX-License-Identifier: Apache-2.0
/* fuzz_lab.c -- lines of the Lab's files. What is taken is one line again, is taken again, and then
 * looks the same. The first byte says which file it is of. */
#include "feature/lab/lab_entry.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz_lab: %s\n", what);
        abort();
    }
}

static const struct lab_schema *schema_of(uint8_t choice)
{
    static const struct lab_schema *const all[] = {&lab_feedback_schema, &lab_run_schema,
                                                   &lab_experiment_schema, &lab_settled_schema,
                                                   &lab_intent_schema};
    return all[choice % (sizeof all / sizeof *all)];
}

static void check_ratings(struct str text)
{
    json_t *sent = lab_json_load(text), *ratings = lab_ratings(sent);
    const char *name;
    for (size_t i = 0; (name = lab_rating_name(i)) != NULL; i++) {
        const json_t *v = json_object_get(ratings, name);
        check(v == NULL || (json_integer_value(v) >= 0 && json_integer_value(v) <= 100),
              "a rating out of range");
    }
    json_decref(ratings);
    json_decref(sent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    struct str line = str_of((const char *)data + 1, n - 1);
    struct buf once = {0}, twice = {0};
    json_t *record = lab_schema_line(schema_of(data[0]), line), *again;
    check_ratings(line);
    if (record == NULL)
        return 0;
    lab_json_put(&once, record);
    check(memchr(once.p, '\n', once.n) == NULL, "more than a line");
    again = lab_schema_line(schema_of(data[0]), buf_str(&once));
    check(again != NULL, "not taken again");
    lab_json_put(&twice, again);
    check(str_eq(buf_str(&once), buf_str(&twice)), "it changes each time");
    buf_deinit(&once);
    buf_deinit(&twice);
    json_decref(record);
    json_decref(again);
    return 0;
}
