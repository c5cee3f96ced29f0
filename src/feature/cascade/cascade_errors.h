// SPDX-License-Identifier: Apache-2.0
/* cascade_errors.h -- the places where a language server puts its errors.
 *
 *   - the trailers of a call; the message may begin with a code of its own,
 *     `failed_precondition: ...`, that says more than an `unknown` in grpc-status;
 *   - a transcript's message of the System that begins with such a code, of a call that went well;
 *   - of the old calls: a RawChatMessage with is_error, of a call that went well. Its text looks
 *     like an answer otherwise.
 *
 * Pure functions; texts of errors are parts of what was given. */
#ifndef FEATURE_CASCADE_CASCADE_ERRORS_H
#define FEATURE_CASCADE_CASCADE_ERRORS_H

#include "base/str.h"

struct cascade_raw_message;

struct cascade_error {
    int code;        /* of gRPC, GRPC_* in base/err.h; never 0 */
    struct str text; /* behind the code, or all there is; may be empty */
};

/* The text is a code's name (of either case), alone or with a colon behind it. False: it is none;
 * *out is untouched. */
bool cascade_error_in_text(struct str text, struct cascade_error *out);

/* Of a call's trailers, the message decoded. False: grpc_status is 0. A code above all that are
 * known is GRPC_UNKNOWN. */
bool cascade_error_in_trailers(int grpc_status, struct str message, struct cascade_error *out);

bool cascade_error_in_raw(const struct cascade_raw_message *m, struct cascade_error *out);

/* Whether a StartCascade that failed with this text is worth a second try behind a new
 * InitializeCascadePanelState: `cascade session`, `panel ... not ... initialized`,
 * `session expired` or `panel state`, of either case. */
bool cascade_error_is_session(struct str text);

#endif
