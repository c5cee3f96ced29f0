// SPDX-License-Identifier: Apache-2.0
#include "feature/sessions/session_messages.h"

#include "base/err.h"
#include "base/hex.h"
#include "base/must.h"
#include "base/num.h"
#include "base/utf8.h"
#include "feature/sessions/session_wire.pb-c.h"
#include "base/wire_message.h"

#define MAC_FIELD_TIDEMARK  (1 + 1 + SESSION_MAC_SIZE) /* tag, length, MAC */
#define MAC_FIELD_AISERVER  (3 + 1 + SESSION_MAC_SIZE)

#define TAG_MAX             ((1 << 29) - 1) /* the largest number that a field can have */

/* Of a StreamUnifiedChatResponseWithTools. */
#define CHAT_RESPONSE_FIELD 2
#define CHAT_MESSAGES_END   6 /* fields up to this one are messages */

/* p != NULL even if it is empty. */
static struct str present(ProtobufCBinaryData b)
{
    return b.len > 0 ? wire_str(b) : STR("");
}

/* ---- what clients send ---- */

int session_request_read(struct arena *a, struct str bytes, struct session_request *out)
{
    struct wire_reading r;
    Wire__Request *m;
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &wire__request__descriptor, bytes, &m);
    if (err != 0)
        return err;
    struct session_request q = {0};
    switch (m->request_case) {
    case WIRE__REQUEST__REQUEST_CLIENT_CHUNK:
        q.kind = SESSION_CHUNK;
        q.chunk = present(m->client_chunk);
        break;
    case WIRE__REQUEST__REQUEST_ABORT: q.kind = SESSION_ABORT; break;
    case WIRE__REQUEST__REQUEST_CLOSE: q.kind = SESSION_CLOSE; break;
    default: return ERR_SYNTAX;
    }
    if (m->has_key_case != WIRE__REQUEST__HAS_KEY__NOT_SET) {
        q.key = present(m->idempotency_key);
        if (!utf8_valid(q.key))
            return ERR_SYNTAX;
    }
    q.has_seqno = m->has_seqno_case != WIRE__REQUEST__HAS_SEQNO__NOT_SET;
    q.seqno = q.has_seqno ? m->seqno : 0;
    *out = q;
    return 0;
}

static int last_conversation_text(struct arena *a, struct str chunk, struct str *out)
{
    struct wire_reading r;
    Wire__ChatRequestWithTools *with_tools;
    Wire__ChatRequest *request;
    Wire__ConversationMessage *message;
    wire_reading_init(&r, a, chunk.n);
    int err = wire_unpack(&r, &wire__chat_request_with_tools__descriptor, chunk, &with_tools);
    if (err == 0)
        err = wire_unpack(&r, &wire__chat_request__descriptor,
                          wire_str(with_tools->stream_unified_chat_request), &request);
    if (err == 0)
        err = wire_unpack(&r, &wire__conversation_message__descriptor,
                          wire_str(request->conversation), &message);
    if (err != 0)
        return err;
    struct str text = wire_str(message->text);
    if (!utf8_valid(text))
        return ERR_SYNTAX;
    *out = text;
    return 0;
}

int session_chunk_text(struct arena *a, enum session_service service, struct str chunk,
                       struct str *out)
{
    if (service == SESSION_AISERVER)
        return last_conversation_text(a, chunk, out);
    *out = chunk;
    return 0;
}

/* ---- what the server sends ---- */

void session_put_welcome(struct buf *out, struct str message, bool degraded)
{
    Wire__Welcome welcome;
    wire__welcome__init(&welcome);
    welcome.message = wire_bytes(message);
    welcome.is_degraded_mode = degraded;
    Wire__Response m;
    wire__response__init(&m);
    m.response_case = WIRE__RESPONSE__RESPONSE_WELCOME_MESSAGE;
    m.welcome_message = &welcome;
    wire_put(out, &m);
}

void session_put_ack(struct buf *out, uint32_t seqno)
{
    Wire__Response m;
    wire__response__init(&m);
    m.response_case = WIRE__RESPONSE__RESPONSE_SEQNO_ACK;
    m.seqno_ack = seqno;
    wire_put(out, &m);
}

void session_put_event(struct buf *out, struct str chunk)
{
    Wire__Response m;
    wire__response__init(&m);
    m.response_case = WIRE__RESPONSE__RESPONSE_SERVER_CHUNK;
    m.server_chunk = wire_bytes(chunk);
    wire_put(out, &m);
}

/* An unknown field holds a message's bytes with their length in front; the value behind it. */
static int field_message(const ProtobufCMessageUnknownField *f, struct str *out)
{
    if (f->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return ERR_SYNTAX;
    size_t prefix = 0;
    while (f->data[prefix] & 0x80)
        prefix++;
    *out = str_skip(str_of((const char *)f->data, f->len), prefix + 1);
    return 0;
}

/* A client that cannot read an event would ask for it again for ever. What is looked at: that what
 * must be a message is one as far as lengths go, and that the text is text. */
static int check_chat_field(struct wire_reading *r, const ProtobufCMessageUnknownField *f)
{
    struct str message;
    Wire__ChatResponse *response;
    if (f->tag == 0 || f->tag > TAG_MAX) /* protobuf-c reads either, but nobody else does */
        return ERR_SYNTAX;
    if (f->tag > CHAT_MESSAGES_END)
        return 0;
    int err = field_message(f, &message);
    if (err != 0 || f->tag != CHAT_RESPONSE_FIELD)
        return err;
    err = wire_unpack(r, &wire__chat_response__descriptor, message, &response);
    if (err != 0)
        return err;
    return utf8_valid(wire_str(response->text)) ? 0 : ERR_SYNTAX;
}

/* All of the content but an event id and a MAC: both are fields of the message that it is read as,
 * and not written again. */
static int put_chat_content(struct buf *out, struct str content)
{
    struct arena a = {0};
    struct wire_reading r;
    Wire__ChatChunk *m;
    wire_reading_init(&r, &a, content.n);
    int err = wire_unpack(&r, &wire__chat_chunk__descriptor, content, &m);
    if (err != 0)
        goto done;
    for (size_t i = 0; i < m->base.n_unknown_fields && err == 0; i++)
        err = check_chat_field(&r, &m->base.unknown_fields[i]);
    if (err != 0)
        goto done;
    m->event_id = m->tidemark_mac = (ProtobufCBinaryData){0};
    wire_put(out, m);
done:
    arena_deinit(&a);
    return err;
}

static int put_chat_chunk(struct buf *out, struct str content, bool is_text,
                          ProtobufCBinaryData event_id, ProtobufCBinaryData mac)
{
    Wire__ChatTextChunk m;
    wire__chat_text_chunk__init(&m);
    Wire__ChatResponse response;
    wire__chat_response__init(&response);
    if (is_text) {
        if (!utf8_valid(content))
            return ERR_SYNTAX;
        response.text = wire_bytes(content);
        m.stream_unified_chat_response = &response;
    } else {
        int err = put_chat_content(out, content);
        if (err != 0)
            return err;
    }
    m.event_id = event_id;
    m.tidemark_mac = mac;
    wire_put(out, &m);
    return 0;
}

int session_put_chunk(struct buf *out, enum session_service service, struct str content,
                      bool is_text, uint64_t event_id, size_t *covered)
{
    size_t start = out->n;
    char id[NUM_TEXT_MAX];
    uint8_t zeros[SESSION_MAC_SIZE] = {0};
    ProtobufCBinaryData id_bytes = wire_bytes(str_of(id, num_format(event_id, id)));
    ProtobufCBinaryData mac = {sizeof zeros, zeros};
    if (service == SESSION_AISERVER) {
        int err = put_chat_chunk(out, content, is_text, id_bytes, mac);
        if (err != 0)
            return err;
        *covered = out->n - start - MAC_FIELD_AISERVER;
        return 0;
    }
    Wire__ServerChunk m;
    wire__server_chunk__init(&m);
    m.payload = wire_bytes(content);
    m.event_id = id_bytes;
    m.mac = mac;
    wire_put(out, &m);
    *covered = out->n - start - MAC_FIELD_TIDEMARK;
    return 0;
}

void session_set_mac(struct buf *out, const uint8_t mac[SESSION_MAC_SIZE])
{
    must(out->n >= MAC_FIELD_TIDEMARK);
    memcpy(out->p + out->n - SESSION_MAC_SIZE, mac, SESSION_MAC_SIZE);
}

int session_get_mac(struct str chunk, uint8_t out[SESSION_MAC_SIZE])
{
    if (chunk.n < MAC_FIELD_TIDEMARK)
        return ERR_CORRUPT;
    memcpy(out, chunk.p + chunk.n - SESSION_MAC_SIZE, SESSION_MAC_SIZE);
    return 0;
}

void session_put_thinking(struct buf *out, struct str text)
{
    Wire__Thinking thinking;
    wire__thinking__init(&thinking);
    thinking.text = wire_bytes(text);
    Wire__ChatThought thought;
    wire__chat_thought__init(&thought);
    thought.thinking = &thinking;
    Wire__ChatThoughtOrCall m;
    wire__chat_thought_or_call__init(&m);
    m.stream_unified_chat_response = &thought;
    wire_put(out, &m);
}

void session_put_tool_call(struct buf *out, const struct session_tool_call *call)
{
    Wire__ToolCall tool;
    wire__tool_call__init(&tool);
    tool.tool_call_id = wire_bytes(call->id);
    tool.name = wire_bytes(call->name);
    tool.raw_args = wire_bytes(call->raw_args);
    tool.is_streaming = call->is_streaming;
    tool.is_last_message = call->is_last_message;
    if (call->has_timeout)
        tool.has_timeout_case = WIRE__TOOL_CALL__HAS_TIMEOUT_TIMEOUT_MS;
    tool.timeout_ms = call->timeout_ms;
    if (call->has_index)
        tool.has_index_case = WIRE__TOOL_CALL__HAS_INDEX_TOOL_INDEX;
    tool.tool_index = call->index;
    Wire__ChatThoughtOrCall m;
    wire__chat_thought_or_call__init(&m);
    m.client_side_tool_v2_call = &tool;
    wire_put(out, &m);
}

/* ---- beside HTTP/2: a downlink and appends ---- */

static int read_request_id(struct wire_reading *r, struct str bytes, struct str *out)
{
    Wire__RequestId *m;
    int err = wire_unpack(r, &wire__request_id__descriptor, bytes, &m);
    if (err != 0)
        return err;
    struct str id = wire_str(m->request_id);
    if (id.n == 0 || !utf8_valid(id))
        return ERR_SYNTAX;
    *out = id;
    return 0;
}

int session_request_id_read(struct arena *a, struct str bytes, struct str *request_id)
{
    struct wire_reading r;
    wire_reading_init(&r, a, bytes.n);
    return read_request_id(&r, bytes, request_id);
}

static int take_hex(struct arena *a, struct str hex, struct str *out)
{
    if (hex.n % 2 != 0)
        return ERR_SYNTAX;
    char *p = arena_alloc(a, hex.n / 2);
    if (!hex_decode(hex, p, hex.n / 2))
        return ERR_SYNTAX;
    *out = str_of(p, hex.n / 2);
    return 0;
}

int session_append_read(struct arena *a, struct str bytes, struct session_append *out)
{
    struct wire_reading r;
    Wire__AppendRequest *m;
    struct session_append q;
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &wire__append_request__descriptor, bytes, &m);
    if (err == 0)
        err = read_request_id(&r, wire_str(m->request_id), &q.request_id);
    if (err != 0)
        return err;
    q.seqno = m->append_seqno;
    q.data = present(m->data_binary);
    if (q.seqno < 0 || (m->data.len > 0 && m->data_binary.len > 0))
        return ERR_SYNTAX;
    if (m->data.len > 0)
        err = take_hex(a, wire_str(m->data), &q.data);
    if (err == 0)
        *out = q;
    return err;
}

int session_poll_read(struct arena *a, struct str bytes, struct session_poll *out)
{
    struct wire_reading r;
    Wire__PollRequest *m;
    struct session_poll q;
    wire_reading_init(&r, a, bytes.n);
    int err = wire_unpack(&r, &wire__poll_request__descriptor, bytes, &m);
    if (err == 0)
        err = read_request_id(&r, wire_str(m->request_id), &q.request_id);
    if (err != 0)
        return err;
    q.start = m->start_request;
    *out = q;
    return 0;
}

void session_put_poll(struct buf *out, int64_t seqno, struct str data, bool eof)
{
    struct buf hex = {0};
    hex_put(&hex, data);
    Wire__PollResponse m;
    wire__poll_response__init(&m);
    m.seqno = seqno;
    m.data = wire_bytes(buf_str(&hex));
    m.eof = eof;
    wire_put(out, &m);
    buf_deinit(&hex);
}

/* ---- errors ---- */

void session_put_error_details(struct buf *out, const struct session_error_details *e)
{
    Wire__CustomErrorDetails details;
    wire__custom_error_details__init(&details);
    details.title = wire_bytes(e->title);
    details.detail = wire_bytes(e->detail);
    details.has_retryable_case = WIRE__CUSTOM_ERROR_DETAILS__HAS_RETRYABLE_IS_RETRYABLE;
    details.is_retryable = e->is_retryable;
    Wire__ErrorDetails m;
    wire__error_details__init(&m);
    m.error = (int32_t)e->code;
    m.details = &details;
    wire_put(out, &m);
}

void session_put_gap(struct buf *out, struct str requested, struct str earliest, struct str reason)
{
    Wire__Gap m;
    wire__gap__init(&m);
    m.requested = wire_bytes(requested);
    m.earliest = wire_bytes(earliest);
    m.reason = wire_bytes(reason);
    wire_put(out, &m);
}
