// SPDX-License-Identifier: Apache-2.0
#include "feature/cascade/cascade_errors.h"

#include "base/err.h"
#include "feature/cascade/cascade_messages.h"

static bool starts_nocase(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq_nocase_n(s.p, prefix.p, prefix.n);
}

static bool begins_with_code(struct str text, struct str name, struct str *behind)
{
    if (!starts_nocase(text, name))
        return false;
    struct str rest = str_skip(text, name.n);
    if (rest.n > 0 && rest.p[0] != ':')
        return false;
    *behind = str_trim(rest.n > 0 ? str_skip(rest, 1) : rest);
    return true;
}

bool cascade_error_in_text(struct str text, struct cascade_error *out)
{
    struct str behind;
    for (int code = GRPC_CANCELLED; code <= GRPC_UNAUTHENTICATED; code++) {
        if (begins_with_code(text, str_of_cstr(err_grpc_name(code)), &behind)) {
            *out = (struct cascade_error){code, behind};
            return true;
        }
    }
    /* gRPC writes it with two l. */
    if (begins_with_code(text, STR("cancelled"), &behind)) {
        *out = (struct cascade_error){GRPC_CANCELLED, behind};
        return true;
    }
    return false;
}

bool cascade_error_in_trailers(int grpc_status, struct str message, struct cascade_error *out)
{
    struct cascade_error e;
    if (grpc_status == 0)
        return false;
    bool known = grpc_status > 0 && grpc_status <= GRPC_UNAUTHENTICATED;
    if (!cascade_error_in_text(message, &e))
        e = (struct cascade_error){GRPC_UNKNOWN, message};
    if (known && grpc_status != GRPC_UNKNOWN)
        e.code = grpc_status;
    *out = e;
    return true;
}

bool cascade_error_in_raw(const struct cascade_raw_message *m, struct cascade_error *out)
{
    if (!m->is_error)
        return false;
    if (!cascade_error_in_text(m->text, out))
        *out = (struct cascade_error){GRPC_UNKNOWN, m->text};
    return true;
}

/* ---- errors of sessions ---- */

/* Moves *s behind the first `what` in it. */
static bool find_nocase(struct str *s, struct str what)
{
    for (size_t i = 0; i + what.n <= s->n; i++) {
        if (str_eq_nocase_n(s->p + i, what.p, what.n)) {
            *s = str_skip(*s, i + what.n);
            return true;
        }
    }
    return false;
}

static bool has_nocase(struct str s, struct str what)
{
    return find_nocase(&s, what);
}

/* All three in one line. */
static bool panel_not_initialized(struct str text)
{
    while (text.p != NULL) {
        struct str line = str_cut(&text, '\n');
        if (find_nocase(&line, STR("panel")) && find_nocase(&line, STR("not")) &&
            find_nocase(&line, STR("initialized")))
            return true;
    }
    return false;
}

bool cascade_error_is_session(struct str text)
{
    return has_nocase(text, STR("cascade session")) || has_nocase(text, STR("session expired")) ||
           has_nocase(text, STR("panel state")) || panel_not_initialized(text);
}
