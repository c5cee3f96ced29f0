// SPDX-License-Identifier: Apache-2.0
#include "http/status.h"

#define NO_GUESSING       "X-Content-Type-Options"
#define MAY_EMBED         "Cross-Origin-Resource-Policy"
#define MAY_TELL          "Referrer-Policy"
#define LINE(name, value) name ": " value "\r\n"

const struct response_common response_common[] = {
    [RESPONSE_OPEN] = {STR_INIT(LINE(NO_GUESSING, "nosniff") LINE(MAY_EMBED, "cross-origin")),
                       {{STR_INIT(NO_GUESSING), STR_INIT("nosniff")},
                        {STR_INIT(MAY_EMBED), STR_INIT("cross-origin")}},
                       2},
    [RESPONSE_GUARDED] = {STR_INIT(LINE(NO_GUESSING, "nosniff")),
                          {{STR_INIT(NO_GUESSING), STR_INIT("nosniff")}},
                          1},
    [RESPONSE_PRIVATE] = {STR_INIT(LINE(NO_GUESSING, "nosniff") LINE(MAY_EMBED, "same-origin")
                                       LINE(MAY_TELL, "no-referrer")),
                          {{STR_INIT(NO_GUESSING), STR_INIT("nosniff")},
                           {STR_INIT(MAY_EMBED), STR_INIT("same-origin")},
                           {STR_INIT(MAY_TELL), STR_INIT("no-referrer")}},
                          3},
};

static const struct {
    int status;
    struct str reason;
} reasons[] = {
    {200, STR_INIT("OK")},
    {201, STR_INIT("Created")},
    {202, STR_INIT("Accepted")},
    {204, STR_INIT("No Content")},
    {206, STR_INIT("Partial Content")},
    {304, STR_INIT("Not Modified")},
    {400, STR_INIT("Bad Request")},
    {401, STR_INIT("Unauthorized")},
    {403, STR_INIT("Forbidden")},
    {404, STR_INIT("Not Found")},
    {405, STR_INIT("Method Not Allowed")},
    {408, STR_INIT("Request Timeout")},
    {409, STR_INIT("Conflict")},
    {410, STR_INIT("Gone")},
    {412, STR_INIT("Precondition Failed")},
    {413, STR_INIT("Content Too Large")},
    {414, STR_INIT("URI Too Long")},
    {415, STR_INIT("Unsupported Media Type")},
    {416, STR_INIT("Range Not Satisfiable")},
    {417, STR_INIT("Expectation Failed")},
    {421, STR_INIT("Misdirected Request")},
    {422, STR_INIT("Unprocessable Content")},
    {426, STR_INIT("Upgrade Required")},
    {429, STR_INIT("Too Many Requests")},
    {431, STR_INIT("Request Header Fields Too Large")},
    {500, STR_INIT("Internal Server Error")},
    {501, STR_INIT("Not Implemented")},
    {502, STR_INIT("Bad Gateway")},
    {503, STR_INIT("Service Unavailable")},
    {504, STR_INIT("Gateway Timeout")},
    {505, STR_INIT("HTTP Version Not Supported")},
    {507, STR_INIT("Insufficient Storage")},
};

struct str status_reason(int status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return STR("Unknown");
}

struct str status_code(int status)
{
    static const struct {
        int status;
        struct str code;
    } codes[] = {
        {408, STR_INIT("TIMEOUT")},           {414, STR_INIT("TARGET_TOO_LONG")},
        {417, STR_INIT("EXPECTATION")},       {431, STR_INIT("HEAD_TOO_LARGE")},
        {501, STR_INIT("TRANSFER_ENCODING")}, {503, STR_INIT("BUSY")},
        {505, STR_INIT("VERSION")},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status)
            return codes[i].code;
    return STR("BAD_REQUEST");
}
