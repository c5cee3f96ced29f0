// SPDX-License-Identifier: Apache-2.0
#include "http/http.h"
#include "base/date.h"
#include "net/loop.h"

struct str http_date(struct http *http)
{
    int64_t now_s = http->loop->sched.wall_ms / 1000;
    if (now_s != http->date_s) {
        http->date_s = now_s;
        date_format_http(now_s * 1000, http->date);
    }
    return str_of(http->date, DATE_HTTP_TEXT);
}
