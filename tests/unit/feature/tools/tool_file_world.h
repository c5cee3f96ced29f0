// SPDX-License-Identifier: Apache-2.0
/* tool_file_world.h -- tool_world.h with a file that tools look at, in a lane. */
#ifndef UNIT_TOOL_FILE_WORLD_H
#define UNIT_TOOL_FILE_WORLD_H

#include "fault/simlane.h"
#include "unit/feature/tools/tool_world.h"

#include <unistd.h>

static char log_path[64];

/* The state of logs is the path of the one that there is. */
const char *logs_path(const void *state, struct str name)
{
    return str_eq(name, STR("events")) ? state : NULL;
}

static int file_setup(void **state)
{
    world_setup(state);
    struct world *w = *state;
    strcpy(log_path, "/tmp/test_tool_file.XXXXXX");
    close(mkstemp(log_path));
    w->setup.lane = simlane_new(&w->sched, 1, 0);
    return 0;
}

static int file_teardown(void **state)
{
    struct world *w = *state;
    struct lane *lane = w->setup.lane;
    close_tools(w);
    lane_free(lane);
    unlink(log_path);
    return world_teardown(state);
}

static void append(const char *text)
{
    FILE *f = fopen(log_path, "a");
    fputs(text, f);
    fclose(f);
}

#endif
