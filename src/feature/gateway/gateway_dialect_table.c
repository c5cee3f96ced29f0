// SPDX-License-Identifier: Apache-2.0
/* gateway_dialect_table.c -- all that is different from one dialect to another. */
#include "base/json.h"
#include "base/json_view.h"
#include "feature/gateway/gateway.h"
#include "feature/gateway/gateway_dialect_core.h"

void dialect_put_member(struct buf *out, const char *name, struct str value)
{
    buf_printf(out, "\"%s\":", name);
    json_put_string(out, value);
}

void dialect_put_number(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, "\"%s\":%llu", name, (unsigned long long)value);
}

static void put_details(struct buf *out, struct str details)
{
    if (details.n == 0)
        return;
    buf_put(out, STR(",\"details\":"));
    buf_put(out, details);
}

/* A word of the protocol by the status of a problem; the rows 4 and 5 are for all others that begin
 * so, and come last. */
struct status_word {
    int status;
    const char *word;
};

static struct str word_of(const struct status_word *words, int status)
{
    while (words->status != status && words->status != status / 100 && words->status != 5)
        words++;
    return str_of_cstr(words->word);
}

/* ---- notices ---- */

static void put_named(struct buf *out, const struct dialect_voice *v,
                      const struct dialect_notice *n)
{
    if (n->has_seq)
        buf_printf(out, "id: %.*s%s%llu\n", (int)v->generation.n, v->generation.p,
                   v->generation.n > 0 ? ":" : "", (unsigned long long)n->seq);
    buf_printf(out, "event: %s\ndata: ", n->name);
    buf_put(out, n->payload);
    buf_put(out, STR("\n\n"));
}

static void put_members(struct buf *out, const struct dialect_notice *n)
{
    buf_printf(out, "{\"%s\":", n->member);
    buf_put(out, n->payload);
    if (n->has_seq) {
        buf_putc(out, ',');
        dialect_put_number(out, "seq", n->seq);
    }
    buf_putc(out, '}');
}

static void put_chunk(struct buf *out, const struct dialect_voice *v,
                      const struct dialect_notice *n)
{
    buf_put(out, STR("data: {\"id\":\"\",\"object\":\"chat.completion.chunk\",\"created\":0,"
                     "\"model\":\"\",\"choices\":[],\"tidemark\":"));
    put_members(out, n);
    buf_put(out, STR("}\n\n"));
}

static void put_part(struct buf *out, const struct dialect_voice *v, const struct dialect_notice *n)
{
    buf_put(out, STR("data: {\"type\":\"data-tidemark\",\"data\":"));
    put_members(out, n);
    buf_put(out, STR(",\"transient\":true}\n\n"));
}

static void put_comment(struct buf *out, const struct dialect_voice *v,
                        const struct dialect_notice *n)
{
    buf_printf(out, ": %s ", n->name);
    put_members(out, n);
    buf_putc(out, '\n');
}

static void put_comment_block(struct buf *out, const struct dialect_voice *v,
                              const struct dialect_notice *n)
{
    put_comment(out, v, n);
    buf_putc(out, '\n');
}

static void put_nothing(struct buf *out, const struct dialect_voice *v,
                        const struct dialect_notice *n)
{
}

/* ---- any reader of SSE ---- */

void dialect_put_error_body(struct buf *out, struct str code, struct str message,
                            struct str details)
{
    buf_put(out, STR("{\"schema\":\"error.v1\","));
    dialect_put_member(out, "code", code);
    buf_putc(out, ',');
    dialect_put_member(out, "message", message);
    put_details(out, details);
    buf_putc(out, '}');
}

static void put_sse_body(struct buf *out, const struct dialect_voice *v,
                         const struct dialect_problem *p)
{
    dialect_put_error_body(out, p->code, p->message, p->details);
}

static void put_sse_error(struct buf *out, const struct dialect_voice *v,
                          const struct dialect_problem *p)
{
    buf_put(out, STR("event: error\ndata: "));
    put_sse_body(out, v, p);
    buf_put(out, STR("\n\n"));
}

/* ---- OpenAI ---- */

static struct str openai_type(int status)
{
    static const struct status_word words[] = {
        {401, "authentication_error"}, {403, "permission_error"}, {429, "rate_limit_error"},
        {499, "server_error"},         {502, "upstream_error"},   {504, "upstream_error"},
        {4, "invalid_request_error"},  {5, "server_error"},
    };
    return word_of(words, status);
}

/* "error":{..} */
static void put_openai_member(struct buf *out, const struct dialect_problem *p)
{
    buf_put(out, STR("\"error\":{"));
    dialect_put_member(out, "message", p->message);
    buf_putc(out, ',');
    dialect_put_member(out, "type", openai_type(p->status));
    buf_put(out, STR(",\"param\":null,"));
    dialect_put_member(out, "code", p->code);
    put_details(out, p->details);
    buf_putc(out, '}');
}

void dialect_put_openai_body(struct buf *out, const struct dialect_problem *p)
{
    buf_putc(out, '{');
    put_openai_member(out, p);
    buf_putc(out, '}');
}

void gateway_put_openai_error(struct buf *out, int status, struct str code, struct str message)
{
    dialect_put_openai_body(out, &(struct dialect_problem){status, code, message, STR_NONE});
}

static void put_openai_body(struct buf *out, const struct dialect_voice *v,
                            const struct dialect_problem *p)
{
    dialect_put_openai_body(out, p);
}

static void put_openai_error(struct buf *out, const struct dialect_voice *v,
                             const struct dialect_problem *p)
{
    buf_put(out, STR("data: "));
    dialect_put_openai_body(out, p);
    buf_put(out, STR("\n\n"));
}

static void put_done(struct buf *out)
{
    buf_put(out, DIALECT_DONE);
}

/* As OpenAI documents it, and with the member that makes its SDKs raise an error; without that they
 * hand it on as any event. Numbers go on where the last event's was: they count from 0. */
static void put_responses_error(struct buf *out, const struct dialect_voice *v,
                                const struct dialect_problem *p)
{
    buf_put(out, STR("event: error\ndata: {\"type\":\"error\","));
    dialect_put_member(out, "code", p->code);
    buf_putc(out, ',');
    dialect_put_member(out, "message", p->message);
    buf_put(out, STR(",\"param\":null,"));
    dialect_put_number(out, "sequence_number", v->seq);
    buf_putc(out, ',');
    put_openai_member(out, p);
    buf_put(out, STR("}\n\n"));
}

/* ---- Anthropic ---- */

static void put_anthropic_body(struct buf *out, const struct dialect_voice *v,
                               const struct dialect_problem *p)
{
    static const struct status_word words[] = {
        {401, "authentication_error"},
        {403, "permission_error"},
        {404, "not_found_error"},
        {409, "conflict_error"},
        {413, "request_too_large"},
        {429, "rate_limit_error"},
        {499, "api_error"},
        {503, "overloaded_error"},
        {504, "timeout_error"},
        {4, "invalid_request_error"},
        {5, "api_error"},
    };
    buf_put(out, STR("{\"type\":\"error\",\"error\":{"));
    dialect_put_member(out, "type", word_of(words, p->status));
    buf_putc(out, ',');
    dialect_put_member(out, "message", p->message);
    buf_putc(out, ',');
    dialect_put_member(out, "code", p->code);
    put_details(out, p->details);
    buf_put(out, STR("}}"));
}

static void put_anthropic_error(struct buf *out, const struct dialect_voice *v,
                                const struct dialect_problem *p)
{
    buf_put(out, STR("event: error\ndata: "));
    put_anthropic_body(out, v, p);
    buf_put(out, STR("\n\n"));
}

/* ---- Gemini ---- */

static void put_gemini_body(struct buf *out, const struct dialect_voice *v,
                            const struct dialect_problem *p)
{
    static const struct status_word words[] = {
        {400, "INVALID_ARGUMENT"},
        {401, "UNAUTHENTICATED"},
        {403, "PERMISSION_DENIED"},
        {404, "NOT_FOUND"},
        {409, "ABORTED"},
        {410, "NOT_FOUND"},
        {429, "RESOURCE_EXHAUSTED"},
        {499, "CANCELLED"},
        {502, "UNAVAILABLE"},
        {503, "UNAVAILABLE"},
        {504, "DEADLINE_EXCEEDED"},
        {4, "FAILED_PRECONDITION"},
        {5, "INTERNAL"},
    };
    buf_printf(out, "{\"error\":{\"code\":%d,", p->status);
    dialect_put_member(out, "message", p->message);
    buf_putc(out, ',');
    dialect_put_member(out, "status", word_of(words, p->status));
    if (p->details.n > 0) {
        buf_put(out, STR(",\"details\":["));
        buf_put(out, p->details);
        buf_putc(out, ']');
    }
    buf_put(out, STR("}}"));
}

static void put_gemini_error(struct buf *out, const struct dialect_voice *v,
                             const struct dialect_problem *p)
{
    buf_put(out, STR("data: "));
    put_gemini_body(out, v, p);
    buf_put(out, STR("\n\n"));
}

static void put_data(struct buf *out, struct str payload)
{
    buf_put(out, STR("data: "));
    view_put_unbroken(out, payload);
    buf_put(out, STR("\n\n"));
}

/* ---- AG-UI ---- */

static void put_ag_ui_error(struct buf *out, const struct dialect_voice *v,
                            const struct dialect_problem *p)
{
    buf_put(out, STR("data: {\"type\":\"RUN_ERROR\","));
    dialect_put_member(out, "message", p->message);
    buf_putc(out, ',');
    dialect_put_member(out, "code", p->code);
    buf_put(out, STR("}\n\n"));
}

/* ---- MCP, and other JSON-RPC ---- */

static void put_rpc_body(struct buf *out, const struct dialect_voice *v,
                         const struct dialect_problem *p)
{
    buf_put(out, STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    buf_put(out, v->rpc_id.n > 0 ? v->rpc_id : STR("null"));
    buf_put(out, STR(",\"error\":{\"code\":-32603,")); /* internal error */
    dialect_put_member(out, "message", p->message);
    buf_put(out, STR(",\"data\":{"));
    dialect_put_member(out, "code", p->code);
    put_details(out, p->details);
    buf_put(out, STR("}}}"));
}

static void put_rpc_error(struct buf *out, const struct dialect_voice *v,
                          const struct dialect_problem *p)
{
    if (v->generation.n > 0)
        buf_printf(out, "id: %.*s:%llu\n", (int)v->generation.n, v->generation.p,
                   (unsigned long long)v->seq + 1);
    buf_put(out, STR("data: "));
    put_rpc_body(out, v, p);
    buf_put(out, STR("\n\n"));
}

/* ---- the AI SDK ---- */

static void put_ui_error(struct buf *out, const struct dialect_voice *v,
                         const struct dialect_problem *p)
{
    buf_put(out, STR("data: {\"type\":\"error\","));
    dialect_put_member(out, "errorText", p->message);
    buf_put(out, STR("}\n\n"));
}

static void put_ui_cancelled(struct buf *out)
{
    buf_put(out, STR("data: {\"type\":\"abort\"}\n\n"));
    put_done(out);
}

/* ---- lines of JSON, in the words of Ollama ---- */

static void put_line_body(struct buf *out, const struct dialect_voice *v,
                          const struct dialect_problem *p)
{
    buf_putc(out, '{');
    dialect_put_member(out, "error", p->message);
    buf_putc(out, ',');
    dialect_put_member(out, "code", p->code);
    put_details(out, p->details);
    buf_putc(out, '}');
}

static void put_line_error(struct buf *out, const struct dialect_voice *v,
                           const struct dialect_problem *p)
{
    put_line_body(out, v, p);
    buf_putc(out, '\n');
}

static void put_line(struct buf *out, struct str payload)
{
    view_put_unbroken(out, payload);
    buf_putc(out, '\n');
}

/* ---- the table ---- */

const struct dialect dialects[ROUTE_DIALECTS] = {
    [ROUTE_DIALECT_AUTO] = {.name = "auto",
                            .put_notice = put_comment,
                            .put_error = put_sse_error,
                            .put_body = put_sse_body},
    [ROUTE_DIALECT_SSE] = {.name = "sse",
                           .events = true,
                           .put_notice = put_named,
                           .put_error = put_sse_error,
                           .put_body = put_sse_body},
    [ROUTE_DIALECT_OPENAI] = {.name = "openai",
                              .fold = FOLD_OPENAI,
                              .has_done = true,
                              .put_notice = put_chunk,
                              .put_error = put_openai_error,
                              .put_body = put_openai_body,
                              .put_cancelled = put_done},
    [ROUTE_DIALECT_RESPONSES] = {.name = "responses",
                                 .fold = FOLD_RESPONSES,
                                 .put_notice = put_comment,
                                 .put_error = put_responses_error,
                                 .put_body = put_openai_body},
    [ROUTE_DIALECT_ANTHROPIC] = {.name = "anthropic",
                                 .fold = FOLD_ANTHROPIC,
                                 .put_notice = put_comment,
                                 .put_error = put_anthropic_error,
                                 .put_body = put_anthropic_body},
    [ROUTE_DIALECT_GEMINI] = {.name = "gemini",
                              .fold = FOLD_GEMINI,
                              .form = DIALECT_BARE,
                              .put_notice = put_comment_block,
                              .put_error = put_gemini_error,
                              .put_body = put_gemini_body,
                              .put_payload = put_data},
    [ROUTE_DIALECT_AG_UI] = {.name = "ag-ui",
                             .fold = FOLD_AG_UI,
                             .put_notice = put_comment,
                             .put_error = put_ag_ui_error,
                             .put_body = put_sse_body},
    [ROUTE_DIALECT_MCP] = {.name = "mcp",
                           .fold = FOLD_MCP,
                           .counts_error = true,
                           .put_notice = put_comment,
                           .put_error = put_rpc_error,
                           .put_body = put_rpc_body,
                           .put_payload = put_data},
    [ROUTE_DIALECT_UI_MESSAGE] = {.name = "ui-message",
                                  .fold = FOLD_UI_MESSAGE,
                                  .header = {"X-Vercel-AI-UI-Message-Stream", "v1"},
                                  .has_done = true,
                                  .put_notice = put_part,
                                  .put_error = put_ui_error,
                                  .put_body = put_sse_body,
                                  .put_cancelled = put_ui_cancelled},
    [ROUTE_DIALECT_NDJSON] = {.name = "ndjson",
                              .fold = FOLD_NDJSON,
                              .form = DIALECT_LINES,
                              .put_notice = put_nothing,
                              .put_error = put_line_error,
                              .put_body = put_line_body,
                              .put_payload = put_line},
};
