// SPDX-License-Identifier: Apache-2.0
#include "feature/tools/tools_audit.h"
#include "base/b64.h"
#include "base/date.h"
#include "base/json.h"
#include "base/rand.h"
#include "base/json_view.h"
#include "feature/tools/tool.h"
#include "token/cursor.h"

#define SCHEMA_VERSION "2"

void audit_ulid(int64_t wall_ms, char out[AUDIT_ULID_TEXT])
{
    static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    uint64_t ms = (uint64_t)wall_ms;
    uint8_t random[16];
    for (int i = 9; i >= 0; i--, ms >>= 5)
        out[i] = digits[ms & 31];
    rand_bytes(random, sizeof random);
    for (int i = 0; i < 16; i++) /* 5 bits of each byte are used */
        out[10 + i] = digits[random[i] & 31];
}

/* What no server has issued is not a continuation, and must not keep a refusal out of the audit. */
static bool could_be_cursor(struct str cursor)
{
    struct buf bytes = {0};
    bool could =
        cursor.n <= CURSOR_MAX && b64url_take(&bytes, cursor) == 0 && bytes.n >= CURSOR_BYTES_LEAST;
    buf_deinit(&bytes);
    return could;
}

static bool continues(const struct tool_call *c)
{
    return c->cursor.p != NULL && (!c->cursor_loose || could_be_cursor(c->cursor));
}

bool tools_audit_wants(const struct tool_call *c)
{
    if (c->outcome == TOOL_CURSOR_REFUSED)
        return false;
    bool ran = c->outcome == TOOL_SUCCESS || c->outcome == TOOL_EXECUTION_FAILED;
    return ran || !continues(c);
}

static void put_outcome(struct buf *out, const struct tool_record *e)
{
    const struct tool_call *c = e->call;
    enum tool_outcome o = e->cancelled ? TOOL_EXECUTION_FAILED : c->outcome;
    buf_put(out, STR("{\"kind\":"));
    json_put_string(out, tool_outcome_text(o));
    if (e->cancelled) {
        buf_put(out, STR(",\"code\":\"cancelled\",\"retryable\":true"));
    } else if (o == TOOL_EXECUTION_FAILED) {
        struct view_want code = {.name = STR("code")};
        if (view_type(buf_str(&c->result)) == VIEW_OBJECT)
            view_pick(buf_str(&c->result), &code, 1);
        buf_put(out, STR(",\"code\":"));
        buf_put(out, code.value.n > 0 ? code.value : STR("null"));
        buf_printf(out, ",\"retryable\":%s", c->retryable ? "true" : "false");
    }
    buf_putc(out, '}');
}

/* Of a tool that there is not, as much as a name may have. */
static struct str tools_audit_name_of(const struct tool_call *c)
{
    return str_of(c->tool_id.p, c->tool_id.n < TOOL_ID_MAX ? c->tool_id.n : TOOL_ID_MAX);
}

void tools_audit_put(struct buf *out, const struct tool_record *e)
{
    const struct tool_call *c = e->call;
    char ts[DATE_RFC3339_TEXT], id[AUDIT_ULID_TEXT];
    date_format_rfc3339(e->begun_ms, ts);
    audit_ulid(e->begun_ms, id);
    buf_printf(out, "{\"ts\":\"%.*s\",\"event\":\"tool\",\"call_id\":\"%.*s\",\"tool_id\":",
               DATE_RFC3339_TEXT, ts, AUDIT_ULID_TEXT, id);
    json_put_string(out, tools_audit_name_of(c));
    if (c->caller_id.p != NULL) {
        buf_put(out, STR(",\"caller_id\":"));
        json_put_string(out, c->caller_id);
    }
    buf_put(out, STR(",\"granted_capabilities\":"));
    json_put_strings(out, c->capabilities, c->n_capabilities);
    buf_printf(out, ",\"duration_ms\":%llu,\"outcome\":", (unsigned long long)e->duration_ms);
    put_outcome(out, e);
    buf_printf(out,
               ",\"tier\":\"hot\",\"dry_run\":%s,\"schema_version\":" SCHEMA_VERSION
               ",\"secrets_resolved\":[]",
               c->dry_run ? "true" : "false");
    if (!e->cancelled && c->page > 1)
        buf_printf(out, ",\"cursor_page\":%llu", (unsigned long long)c->page);
    buf_put(out, STR("}\n"));
}
