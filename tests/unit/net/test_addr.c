// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static enum addr_class classify(const char *ip)
{
    struct sockaddr_storage sa;
    if (addr_parse_ip(str_of_cstr(ip), &sa) != 0)
        fail_msg("%s does not parse", ip);
    return addr_classify((struct sockaddr *)&sa, sizeof sa);
}

static const struct {
    const char *ip;
    enum addr_class class;
} samples[] = {
    {"0.0.0.0", ADDR_UNSPECIFIED},
    {"0.255.255.255", ADDR_UNSPECIFIED},
    {"1.0.0.0", ADDR_PUBLIC},
    {"9.255.255.255", ADDR_PUBLIC},
    {"10.0.0.0", ADDR_PRIVATE},
    {"10.255.255.255", ADDR_PRIVATE},
    {"11.0.0.0", ADDR_PUBLIC},
    {"100.63.255.255", ADDR_PUBLIC},
    {"100.64.0.0", ADDR_SHARED},
    {"100.127.255.255", ADDR_SHARED},
    {"100.128.0.0", ADDR_PUBLIC},
    {"126.255.255.255", ADDR_PUBLIC},
    {"127.0.0.1", ADDR_LOOPBACK},
    {"127.255.255.255", ADDR_LOOPBACK},
    {"128.0.0.0", ADDR_PUBLIC},
    {"100.100.100.199", ADDR_SHARED},
    {"100.100.100.200", ADDR_METADATA},
    {"100.100.100.201", ADDR_SHARED},
    {"168.63.129.15", ADDR_PUBLIC},
    {"168.63.129.16", ADDR_METADATA},
    {"168.63.129.17", ADDR_PUBLIC},
    {"::ffff:168.63.129.16", ADDR_METADATA},
    {"64:ff9b::100.100.100.200", ADDR_METADATA},
    {"2002:a83f:8110::", ADDR_METADATA},
    {"fd00:ec2::254", ADDR_METADATA},
    {"fd00:ec2::23", ADDR_METADATA},
    {"fd00:ec3::254", ADDR_PRIVATE},
    {"fd20:ce::254", ADDR_METADATA},
    {"fd20:ce::255", ADDR_PRIVATE},
    {"169.253.255.255", ADDR_PUBLIC},
    {"169.254.169.254", ADDR_LINK_LOCAL},
    {"169.255.0.0", ADDR_PUBLIC},
    {"172.15.255.255", ADDR_PUBLIC},
    {"172.16.0.0", ADDR_PRIVATE},
    {"172.31.255.255", ADDR_PRIVATE},
    {"172.32.0.0", ADDR_PUBLIC},
    {"192.0.0.8", ADDR_RESERVED},
    {"192.0.1.0", ADDR_PUBLIC},
    {"192.0.2.1", ADDR_DOCUMENTATION},
    {"192.88.99.1", ADDR_RESERVED},
    {"192.167.255.255", ADDR_PUBLIC},
    {"192.168.0.1", ADDR_PRIVATE},
    {"192.169.0.0", ADDR_PUBLIC},
    {"198.17.255.255", ADDR_PUBLIC},
    {"198.18.0.0", ADDR_RESERVED},
    {"198.19.255.255", ADDR_RESERVED},
    {"198.20.0.0", ADDR_PUBLIC},
    {"198.51.100.7", ADDR_DOCUMENTATION},
    {"203.0.113.7", ADDR_DOCUMENTATION},
    {"223.255.255.255", ADDR_PUBLIC},
    {"224.0.0.1", ADDR_MULTICAST},
    {"239.255.255.255", ADDR_MULTICAST},
    {"240.0.0.0", ADDR_RESERVED},
    {"255.255.255.255", ADDR_RESERVED},
    {"::", ADDR_UNSPECIFIED},
    {"::1", ADDR_LOOPBACK},
    {"::2", ADDR_RESERVED},
    {"::127.0.0.1", ADDR_RESERVED},
    {"::ffff:127.0.0.1", ADDR_LOOPBACK},
    {"::ffff:10.1.2.3", ADDR_PRIVATE},
    {"::ffff:0.0.0.0", ADDR_UNSPECIFIED},
    {"::ffff:169.254.169.254", ADDR_LINK_LOCAL},
    {"::ffff:8.8.8.8", ADDR_PUBLIC},
    {"::fffe:8.8.8.8", ADDR_RESERVED},
    {"64:ff9b::192.168.1.1", ADDR_PRIVATE},
    {"64:ff9b::8.8.8.8", ADDR_PUBLIC},
    {"64:ff9b:1::8.8.8.8", ADDR_PRIVATE},
    {"64:ff9b:2::8.8.8.8", ADDR_RESERVED},
    {"100::1", ADDR_RESERVED},
    {"2000::1", ADDR_PUBLIC},
    {"2001:0:1::1", ADDR_RESERVED},
    {"2001:1ff::1", ADDR_RESERVED},
    {"2001:200::1", ADDR_PUBLIC},
    {"2001:4860:4860::8888", ADDR_PUBLIC},
    {"2001:db8::1", ADDR_DOCUMENTATION},
    {"2001:db9::1", ADDR_PUBLIC},
    {"2002:7f00:1::", ADDR_LOOPBACK},
    {"2002:a00:1::1", ADDR_PRIVATE},
    {"2002:808:808::1", ADDR_PUBLIC},
    {"3ffe::1", ADDR_PUBLIC},
    {"3fff:fff::1", ADDR_DOCUMENTATION},
    {"3fff:1000::1", ADDR_PUBLIC},
    {"4000::1", ADDR_RESERVED},
    {"5f00::1", ADDR_RESERVED},
    {"fbff::1", ADDR_RESERVED},
    {"fc00::1", ADDR_PRIVATE},
    {"fdff::1", ADDR_PRIVATE},
    {"fe00::1", ADDR_RESERVED},
    {"fe80::1", ADDR_LINK_LOCAL},
    {"febf::1", ADDR_LINK_LOCAL},
    {"fec0::1", ADDR_PRIVATE},
    {"ff02::1", ADDR_MULTICAST},
};

static void test_classes(void **state)
{
    for (size_t i = 0; i < COUNT(samples); i++)
        if (classify(samples[i].ip) != samples[i].class)
            fail_msg("%s is %s, expected %s", samples[i].ip,
                     addr_class_name(classify(samples[i].ip)), addr_class_name(samples[i].class));
}

static void test_other_families_are_reserved(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    assert_int_equal(addr_classify((struct sockaddr *)&un, sizeof un), ADDR_RESERVED);
    struct sockaddr_in cut = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x08080808)};
    assert_int_equal(addr_classify((struct sockaddr *)&cut, sizeof cut), ADDR_PUBLIC);
    assert_int_equal(addr_classify((struct sockaddr *)&cut, sizeof cut - 1), ADDR_RESERVED);
}

static void test_policy(void **state)
{
    const struct addr_policy none = {0}, loopback = {.allow_loopback = true},
                             private = {.allow_private = true},
                             both = {.allow_loopback = true, .allow_private = true},
                             configured = {.configured = true};
    assert_true(addr_allowed(ADDR_PUBLIC, none));
    assert_false(addr_allowed(ADDR_LOOPBACK, none));
    assert_true(addr_allowed(ADDR_LOOPBACK, loopback));
    assert_false(addr_allowed(ADDR_LOOPBACK, private));
    const enum addr_class inner[] = {ADDR_PRIVATE, ADDR_SHARED};
    for (size_t i = 0; i < COUNT(inner); i++) {
        assert_false(addr_allowed(inner[i], none));
        assert_false(addr_allowed(inner[i], loopback));
        assert_true(addr_allowed(inner[i], private));
        assert_true(addr_allowed(inner[i], configured));
    }
    assert_true(addr_allowed(ADDR_LOOPBACK, configured));
    /* Where clouds give their credentials to anybody who asks: no switch opens these to clients. */
    const enum addr_class guarded[] = {ADDR_LINK_LOCAL, ADDR_METADATA};
    for (size_t i = 0; i < COUNT(guarded); i++) {
        assert_false(addr_allowed(guarded[i], both));
        assert_true(addr_allowed(guarded[i], configured));
    }
    const enum addr_class never[] = {ADDR_UNSPECIFIED, ADDR_MULTICAST, ADDR_DOCUMENTATION,
                                     ADDR_RESERVED};
    for (size_t i = 0; i < COUNT(never); i++) {
        assert_false(addr_allowed(never[i], both));
        assert_false(addr_allowed(never[i], configured));
    }
}

static bool is_own(const struct addr_own *own, const char *ip, uint16_t port)
{
    struct sockaddr_storage sa;
    assert_int_equal(addr_parse_ip(str_of_cstr(ip), &sa), 0);
    return addr_is_own(own, (struct sockaddr *)&sa, sizeof sa, port);
}

/* An address of this machine that is not loopback; false: it has none. */
static bool find_own_address(char out[INET6_ADDRSTRLEN])
{
    struct ifaddrs *all, *a;
    assert_int_equal(getifaddrs(&all), 0);
    for (a = all; a != NULL; a = a->ifa_next)
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
            addr_classify(a->ifa_addr, sizeof(struct sockaddr_in)) != ADDR_LOOPBACK)
            break;
    bool found = a != NULL;
    if (found)
        inet_ntop(AF_INET, &((struct sockaddr_in *)a->ifa_addr)->sin_addr, out, INET6_ADDRSTRLEN);
    freeifaddrs(all);
    return found;
}

static void test_own_listeners(void **state)
{
    static const char *const here[] = {"127.0.0.1", "127.0.0.2",        "::1",
                                       "0.0.0.0",   "::ffff:127.0.0.1", "::"};
    char address[INET6_ADDRSTRLEN], mapped[64];
    struct addr_own own = {0};
    assert_false(is_own(NULL, "127.0.0.1", 4437));
    assert_false(is_own(&own, "127.0.0.1", 4437));
    addr_own_add(&own, 4437);
    addr_own_add(&own, 443);
    for (size_t i = 0; i < COUNT(here); i++) {
        assert_true(is_own(&own, here[i], 4437));
        assert_true(is_own(&own, here[i], 443));
        assert_false(is_own(&own, here[i], 4438));
    }
    assert_false(is_own(&own, "192.0.2.1", 4437));
    assert_false(is_own(&own, "2001:db8::1", 4437));
    assert_false(is_own(&own, "::ffff:192.0.2.1", 4437));
    if (find_own_address(address)) {
        snprintf(mapped, sizeof mapped, "::ffff:%s", address);
        assert_true(is_own(&own, address, 443));
        assert_true(is_own(&own, mapped, 443));
        assert_false(is_own(&own, address, 80));
        /* also by way of a translator, and of a relay */
        uint8_t ip[4];
        assert_int_equal(inet_pton(AF_INET, address, ip), 1);
        snprintf(mapped, sizeof mapped, "64:ff9b::%s", address);
        assert_true(is_own(&own, mapped, 443));
        snprintf(mapped, sizeof mapped, "2002:%02x%02x:%02x%02x::1", ip[0], ip[1], ip[2], ip[3]);
        assert_true(is_own(&own, mapped, 443));
    }
    assert_false(is_own(&own, "64:ff9b::192.0.2.1", 443));
    assert_false(is_own(&own, "2002:c000:201::1", 443));
    free(own.ports);
}

static void test_ip_literals(void **state)
{
    static const char *const wrong[] = {"",
                                        "localhost",
                                        "127.1",
                                        "0x7f.0.0.1",
                                        "127.0.0.1 ",
                                        "1.2.3.4:80",
                                        "[::1]",
                                        "::1%lo",
                                        "1.2.3.256",
                                        "1.2.3.",
                                        "::g",
                                        "017700000001",
                                        "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000"};
    struct sockaddr_storage sa;
    for (size_t i = 0; i < COUNT(wrong); i++)
        if (addr_parse_ip(str_of_cstr(wrong[i]), &sa) != ERR_SYNTAX)
            fail_msg("took %s", wrong[i]);
    assert_int_equal(addr_parse_ip(str_of("1.2.3.4\0", 8), &sa), ERR_SYNTAX);
    assert_int_equal(addr_parse_ip(STR("0000:0000:0000:0000:0000:ffff:192.168.100.200"), &sa), 0);
    assert_int_equal(sa.ss_family, AF_INET6);
}

static void test_listen_round_trip(void **state)
{
    static const struct {
        const char *in, *out;
    } good[] = {
        {"127.0.0.1:4437", "127.0.0.1:4437"},
        {"0.0.0.0:0", "0.0.0.0:0"},
        {"localhost:80", "127.0.0.1:80"},
        {"LOCALHOST:65535", "127.0.0.1:65535"},
        {"[::1]:4437", "[::1]:4437"},
        {"[::]:8080", "[::]:8080"},
        {"unix:/run/a.sock", "unix:/run/a.sock"},
        {"unix:rel:ative", "unix:rel:ative"},
    };
    char why[128], text[ADDR_TEXT_MAX];
    struct addr a;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(addr_parse_listen(str_of_cstr(good[i].in), &a, why, sizeof why), 0);
        addr_format(&a, text);
        assert_string_equal(text, good[i].out);
    }
}

static void test_listen_kinds(void **state)
{
    char why[128];
    struct addr a;
    assert_int_equal(addr_parse_listen(STR("[::1]:4437"), &a, why, sizeof why), 0);
    assert_int_equal(a.kind, ADDR_TCP);
    assert_int_equal(a.sa.ss_family, AF_INET6);
    assert_int_equal(((struct sockaddr_in6 *)&a.sa)->sin6_port, htons(4437));
    assert_int_equal(addr_parse_listen(STR("unix:x"), &a, why, sizeof why), 0);
    assert_int_equal(a.kind, ADDR_UNIX);
    assert_string_equal(a.path, "x");
}

static void test_listen_errors(void **state)
{
    static const struct {
        const char *in, *says;
    } wrong[] = {
        {"", "port is missing"},
        {"127.0.0.1", "port is missing"},
        {"127.0.0.1:", "port is missing"},
        {"[::1]", "port is missing"},
        {"127.0.0.1:65536", "0 to 65535"},
        {"127.0.0.1:-1", "0 to 65535"},
        {"127.0.0.1:http", "0 to 65535"},
        {":4437", "which address"},
        {"*:4437", "which address"},
        {"::1:4437", "needs brackets"},
        {"[127.0.0.1]:4437", "IPv6 address"},
        {"[::1%lo]:4437", "IPv6 address"},
        {"[]:4437", "IPv6 address"},
        {"example.org:4437", "IP address or localhost"},
        {"127.1:4437", "IP address or localhost"},
        {"unix:", "needs a path"},
    };
    struct addr a = {.path = "kept"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char why[128] = "";
        if (addr_parse_listen(str_of_cstr(wrong[i].in), &a, why, sizeof why) != ERR_SYNTAX)
            fail_msg("took %s", wrong[i].in);
        if (strstr(why, wrong[i].says) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].in, why, wrong[i].says);
    }
    assert_string_equal(a.path, "kept");
}

static void test_unix_path_bounds(void **state)
{
    char text[5 + ADDR_PATH_MAX + 1] = "unix:", why[128];
    struct addr a;
    memset(text + 5, 'p', ADDR_PATH_MAX + 1);
    assert_int_equal(addr_parse_listen(str_of(text, sizeof text - 1), &a, why, sizeof why), 0);
    assert_int_equal(strlen(a.path), ADDR_PATH_MAX);
    assert_int_equal(addr_parse_listen(str_of(text, sizeof text), &a, why, sizeof why), ERR_SYNTAX);
    assert_int_equal(addr_parse_listen(str_of("unix:a\0b", 8), &a, why, sizeof why), ERR_SYNTAX);
    assert_true(sizeof((struct sockaddr_un *)0)->sun_path > ADDR_PATH_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),          cmocka_unit_test(test_other_families_are_reserved),
        cmocka_unit_test(test_policy),           cmocka_unit_test(test_own_listeners),
        cmocka_unit_test(test_ip_literals),      cmocka_unit_test(test_listen_round_trip),
        cmocka_unit_test(test_listen_kinds),     cmocka_unit_test(test_listen_errors),
        cmocka_unit_test(test_unix_path_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
