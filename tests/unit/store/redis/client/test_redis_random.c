// SPDX-License-Identifier: Apache-2.0
/* Calls against a server that breaks off, forgets, refuses and dawdles at random. Whatever happens,
 * each call ends exactly once, and what it was told is true: 0 was done (once, if it was to be sent
 * once), ERR_BUSY and ERR_AWAY were not done at all, and nothing that was to be sent once was done
 * twice. A seed (TIDEMARK_SEED) reproduces a run; TIDEMARK_SEEDS says how many. */
#include "unit/store/redis/client/redis_world.h"

#define CALLS 60

struct job {
    struct ask ask;
    char key[16];
    bool again;
    int done; /* by the server */
};

static struct {
    uint64_t seed;
    struct job jobs[CALLS];
    int started;
    char late[65536]; /* answers that are held back */
    size_t n_late;
    int late_conn, late_number; /* of the connection that they are for */
} game;

static uint32_t roll(uint32_t below)
{
    game.seed = game.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(game.seed >> 33) % below;
}

static void say_late(struct fake *f)
{
    const struct fake_conn *c = &f->conns[game.late_conn];
    size_t n = game.n_late;
    game.n_late = 0;
    if (n > 0 && c->fd >= 0 && c->number == game.late_number)
        (void)!send(c->fd, game.late, n, MSG_NOSIGNAL);
}

/* Holds the answer back behind the others, or says all of them, cut where it likes. */
static void reply(struct fake *f, int conn, const char *text)
{
    size_t n = strlen(text);
    if (game.late_conn != conn || game.late_number != f->conns[conn].number)
        game.n_late = 0; /* that connection is gone */
    game.late_conn = conn;
    game.late_number = f->conns[conn].number;
    if (n > sizeof game.late - game.n_late)
        abort();
    memcpy(game.late + game.n_late, text, n);
    game.n_late += n;
    if (roll(3) == 0)
        say_late(f);
}

static const char *play(struct fake *f, int conn, const struct redisReply *command)
{
    /* EVALSHA or EVAL, what, 1, the call's number */
    int number = atoi(command->element[3]->str);
    struct job *j = &game.jobs[number];
    bool whole = fake_is(command, 0, "EVAL");
    char text[32];
    switch (roll(24)) {
    case 0:
        fake_hang_up(f); /* before it was done */
        return NULL;
    case 1:
        j->done++;
        fake_hang_up(f); /* and after */
        return NULL;
    case 2: reply(f, conn, "-LOADING Redis is loading the dataset in memory\r\n"); return NULL;
    case 3:
        reply(f, conn, whole ? "-BUSY Redis is busy running a script\r\n" : "-NOSCRIPT none\r\n");
        return NULL;
    case 4:
        reply(f, conn, "-READONLY You can't write against a read only replica\r\n");
        return NULL;
    case 5: reply(f, conn, "-NOREPLICAS Not enough good replicas to write.\r\n"); return NULL;
    case 6:
        j->done++;
        fake_refuse(f);
        return NULL;
    default: break;
    }
    j->done++;
    snprintf(text, sizeof text, ":%d\r\n", number);
    reply(f, conn, text);
    return NULL;
}

static void start_one(struct world *w)
{
    struct job *j = &game.jobs[game.started];
    snprintf(j->key, sizeof j->key, "%d", game.started++);
    j->again = roll(2) == 0;
    ask_start(w, &j->ask, &script_get, j->key, j->again ? REDIS_AGAIN : REDIS_ONCE,
              1 + roll(roll(4) == 0 ? 20 : 3000));
}

static void check(const struct job *j)
{
    bool ok = j->ask.ended == 1;
    if (j->ask.err == 0)
        ok = ok && j->ask.integer == j - game.jobs && (j->again ? j->done >= 1 : j->done == 1);
    else if (ERR_IS_PASSING(j->ask.err))
        ok = ok && j->done == 0;
    else
        ok = ok && j->ask.err == ERR_UPSTREAM;
    if (!ok || (!j->again && j->done > 1))
        fail_msg("call %s (%s): ended %d times with %s, done %d times, answer %lld", j->key,
                 j->again ? "again" : "once", j->ask.ended, err_name(j->ask.err), j->done,
                 j->ask.integer);
}

static bool all_ended(void)
{
    for (int i = 0; i < game.started; i++)
        if (game.jobs[i].ask.ended == 0)
            return false;
    return true;
}

static void run(struct world *w, uint64_t seed)
{
    struct fake *f = &w->fakes[0];
    memset(&game, 0, sizeof game);
    game.seed = seed;
    f->answer = play;
    f->catch_up = say_late;
    world_connect_fake(w, 3000);
    while (game.started < CALLS || !all_ended()) {
        if (game.started < CALLS && roll(3) == 0)
            start_one(w);
        if (f->listener < 0 && roll(50) == 0)
            fake_listen(f);
        if (roll(10) == 0)
            say_late(f);
        world_turn(w);
        usleep(200);
    }
    world_stop(w);
    for (int i = 0; i < CALLS; i++)
        check(&game.jobs[i]);
    if (f->listener < 0)
        fake_listen(f);
    fake_hang_up(f);
}

static void test_what_is_said_is_true(void **state)
{
    const char *seed = getenv("TIDEMARK_SEED"), *seeds = getenv("TIDEMARK_SEEDS");
    uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    uint64_t n = seed != NULL ? 1 : seeds != NULL ? strtoull(seeds, NULL, 10) : 10;
    struct world *w = *state;
    world_fakes(w, 1);
    for (uint64_t i = first; i < first + n; i++) {
        print_message("seed %llu\n", (unsigned long long)i);
        run(w, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_said_is_true, world_set_up, world_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
