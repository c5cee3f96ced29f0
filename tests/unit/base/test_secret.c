// SPDX-License-Identifier: Apache-2.0
#include "base/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What the kernel says of the pages that hold p: flags of two letters each. */
static void find_flags(const void *p, char *out, size_t size)
{
    char line[512];
    unsigned long start, end;
    FILE *maps = fopen("/proc/self/smaps", "r");
    int inside = 0;
    assert_non_null(maps);
    *out = '\0';
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = (uintptr_t)p >= start && (uintptr_t)p < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            snprintf(out, size, "%s", line);
    }
    fclose(maps);
}

static void test_pages_stay_out_of_cores_and_forks(void **state)
{
    char flags[512];
    char *p = secret_alloc(10000);
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(p[i], 0);
    memset(p, 'x', 10000);
    find_flags(p, flags, sizeof flags);
    assert_non_null(strstr(flags, " dd")); /* not in a dump */
    assert_non_null(strstr(flags, " dc")); /* not in a child */
    secret_free(p, 10000);
    secret_free(NULL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_stay_out_of_cores_and_forks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
