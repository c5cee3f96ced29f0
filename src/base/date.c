// SPDX-License-Identifier: Apache-2.0
#include "base/date.h"
#include "base/err.h"

#define DAY_MS     INT64_C(86400000)
#define YEAR_FIRST 1970
#define MS_MAX     INT64_C(253402300799999) /* the last of year 9999 */

struct civil {
    int year, month, day; /* month and day from 1 */
    int hour, minute, second, ms;
};

/* Days before each month of a year that begins in March: with February last, a leap day moves
 * nothing but the year's end. */
static const int days_before[] = {0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337};

#define DAYS_TO_1970 719468 /* from 1 March of year 0 */

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int month_days(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && is_leap(year));
}

static int64_t days_of(int year, int month, int day)
{
    int march_year = month > 2 ? year : year - 1;
    int march_month = (month + 9) % 12;
    return march_year * INT64_C(365) + march_year / 4 - march_year / 100 + march_year / 400 +
           days_before[march_month] + day - 1 - DAYS_TO_1970;
}

static struct civil civil_of(int64_t unix_ms)
{
    int64_t days = unix_ms / DAY_MS;
    int ms = (int)(unix_ms % DAY_MS);
    /* The mean year has 365.2425 days and no year begins two days later than that puts it: the
     * guess is right or one too high. */
    int year = (int)((days + DAYS_TO_1970 + 2) * 10000 / 3652425);
    if (days_of(year, 3, 1) > days)
        year--;
    int day = (int)(days - days_of(year, 3, 1));
    int month = 11;
    while (days_before[month] > day)
        month--;
    return (struct civil){.year = year + (month >= 10),
                          .month = (month + 2) % 12 + 1,
                          .day = day - days_before[month] + 1,
                          .hour = ms / 3600000,
                          .minute = ms / 60000 % 60,
                          .second = ms / 1000 % 60,
                          .ms = ms % 1000};
}

/* Takes n digits off *s: their number, or -1. */
static int date_take_number(struct str *s, size_t n)
{
    int v = 0;
    if (s->n < n)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (s->p[i] < '0' || s->p[i] > '9')
            return -1;
        v = v * 10 + (s->p[i] - '0');
    }
    *s = str_skip(*s, n);
    return v;
}

/* Takes one byte off *s that is c; a letter in either case. */
static bool take_byte(struct str *s, char c)
{
    if (s->n == 0 || !str_eq_nocase(str_of(s->p, 1), str_of(&c, 1)))
        return false;
    *s = str_skip(*s, 1);
    return true;
}

static bool take_date(struct str *s, struct civil *c)
{
    if ((c->year = date_take_number(s, 4)) < YEAR_FIRST || !take_byte(s, '-'))
        return false;
    if ((c->month = date_take_number(s, 2)) < 1 || c->month > 12 || !take_byte(s, '-'))
        return false;
    return (c->day = date_take_number(s, 2)) >= 1 && c->day <= month_days(c->year, c->month);
}

/* hh:mm, of a time of day or a zone. */
static bool take_hour_minute(struct str *s, int *hour, int *minute)
{
    if ((*hour = date_take_number(s, 2)) < 0 || *hour > 23 || !take_byte(s, ':'))
        return false;
    return (*minute = date_take_number(s, 2)) >= 0 && *minute <= 59;
}

static bool take_time(struct str *s, struct civil *c)
{
    if (!take_hour_minute(s, &c->hour, &c->minute) || !take_byte(s, ':'))
        return false;
    if ((c->second = date_take_number(s, 2)) < 0 || c->second > 59)
        return false;
    c->ms = 0;
    if (!take_byte(s, '.'))
        return true;
    int digit = date_take_number(s, 1), weight = 100;
    if (digit < 0)
        return false;
    for (; digit >= 0; digit = date_take_number(s, 1), weight /= 10)
        c->ms += digit * weight;
    return true;
}

static bool take_zone(struct str *s, int *minutes_east)
{
    int hour, minute;
    *minutes_east = 0;
    if (take_byte(s, 'Z'))
        return true;
    int sign = take_byte(s, '+') ? 1 : take_byte(s, '-') ? -1 : 0;
    if (sign == 0 || !take_hour_minute(s, &hour, &minute))
        return false;
    *minutes_east = sign * (hour * 60 + minute);
    return true;
}

int date_parse_rfc3339(struct str s, int64_t *unix_ms)
{
    struct civil c;
    int minutes_east;
    if (!take_date(&s, &c) || !take_byte(&s, 'T') || !take_time(&s, &c) ||
        !take_zone(&s, &minutes_east) || s.n > 0)
        return ERR_SYNTAX;
    int64_t minutes = c.hour * 60 + c.minute - minutes_east;
    int64_t ms =
        days_of(c.year, c.month, c.day) * DAY_MS + minutes * 60000 + c.second * 1000 + c.ms;
    if (ms < 0 || ms > MS_MAX) /* a zone can lead out of what can be written */
        return ERR_SYNTAX;
    *unix_ms = ms;
    return 0;
}

static struct civil civil_clamped(int64_t unix_ms)
{
    return civil_of(unix_ms < 0 ? 0 : unix_ms > MS_MAX ? MS_MAX : unix_ms);
}

static char *date_put_number(char *to, int v, int n)
{
    for (int i = n - 1; i >= 0; i--, v /= 10)
        to[i] = (char)('0' + v % 10);
    return to + n;
}

static char *put_time(char *to, const struct civil *c)
{
    to = date_put_number(to, c->hour, 2);
    *to++ = ':';
    to = date_put_number(to, c->minute, 2);
    *to++ = ':';
    return date_put_number(to, c->second, 2);
}

void date_format_rfc3339(int64_t unix_ms, char out[DATE_RFC3339_TEXT])
{
    struct civil c = civil_clamped(unix_ms);
    char *to = date_put_number(out, c.year, 4);
    *to++ = '-';
    to = date_put_number(to, c.month, 2);
    *to++ = '-';
    to = date_put_number(to, c.day, 2);
    *to++ = 'T';
    to = put_time(to, &c);
    *to++ = '.';
    to = date_put_number(to, c.ms, 3);
    *to = 'Z';
}

static char *date_put_text(char *to, const char *text, size_t n)
{
    memcpy(to, text, n);
    return to + n;
}

void date_format_http(int64_t unix_ms, char out[DATE_HTTP_TEXT])
{
    static const char weekdays[7][4] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct civil c = civil_clamped(unix_ms);
    int64_t days = days_of(c.year, c.month, c.day); /* 1970 began on a Thursday */
    char *to = date_put_text(out, weekdays[days % 7], 3);
    to = date_put_text(to, ", ", 2);
    to = date_put_number(to, c.day, 2);
    *to++ = ' ';
    to = date_put_text(to, months[c.month - 1], 3);
    *to++ = ' ';
    to = date_put_number(to, c.year, 4);
    *to++ = ' ';
    to = put_time(to, &c);
    date_put_text(to, " GMT", 4);
}
