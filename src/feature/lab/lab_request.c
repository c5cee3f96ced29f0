// SPDX-License-Identifier: Apache-2.0
#include "feature/lab/lab_request.h"
#include "base/buf.h"
#include "feature/lab/lab_json.h"
#include "feature/lab/lab_schema.h"

#include <xxhash.h>

uint64_t lab_request_group(struct str experiment)
{
    return experiment.n > 0 ? XXH3_64bits(experiment.p, experiment.n) | 1 : 0;
}

struct str lab_request_key(struct str type, struct str request, char room[SHA256_SIZE])
{
    struct buf both = {0};
    buf_put(&both, type);
    buf_putc(&both, '\0');
    buf_put(&both, request);
    sha256(buf_str(&both), (uint8_t *)room);
    buf_deinit(&both);
    return str_of(room, SHA256_SIZE);
}

json_t *lab_request_accept(struct str line, struct lab_line *out)
{
    json_t *record = lab_schema_line(&lab_settled_schema, line);
    out->mark = LAB_REQUEST_SETTLED;
    if (record == NULL) {
        record = lab_schema_line(&lab_intent_schema, line);
        out->mark = LAB_REQUEST_INTENT;
        out->group =
            lab_request_group(lab_json_get(json_object_get(record, "intent"), "experimentId"));
    }
    if (record != NULL)
        out->id = lab_request_key(lab_json_get(record, "type"), lab_json_get(record, "requestId"),
                                  out->room);
    return record;
}
