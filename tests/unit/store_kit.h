/* A store in a temporary folder, and ways to look into it. */
#ifndef TESTS_STORE_KIT_H
#define TESTS_STORE_KIT_H
#include "store/store.h"
#include "tests/unit/state_env.h"
#include "tests/unit/t.h"

struct t { struct world *w; char db[128]; struct store *s; };

static inline struct store *reopen(struct t *t, const struct store_opts *more)
{
	struct store_opts o = more ? *more : (struct store_opts){ 0 };
	struct err e;

	store_free(t->s);
	o.path = t->db;
	t->s = store_open(&t->w->env, &o, &e);
	if (!t->s)
		print_message("%s\n", e.text);
	return t->s;
}

static inline int setup(void **state)
{
	struct t *t = calloc(1, sizeof *t);

	t->w = world_new();
	snprintf(t->db, sizeof t->db, "%s/state.db", t->w->dir);
	*state = t;
	return reopen(t, NULL) ? 0 : -1;
}

static inline int teardown(void **state)
{
	struct t *t = *state;

	store_free(t->s);
	world_turn(t->w, 0);
	world_free_all(t->w);
	free(t);
	return 0;
}

static inline void put_run(struct store *s, const char *run, const char *state)
{
	store_run_put(s, &(struct store_run){ .run = run, .name = "digits", .author = "aa", .state = state, .spec = "{}",
		.epoch = 3, .samples = 700, .resume = true });
}

static inline const char *text(json_t *rows, size_t i, const char *key)
{
	const char *s = json_string_value(json_object_get(json_array_get(rows, i), key));

	return s ? s : "(none)";
}

static inline json_int_t integer(json_t *rows, size_t i, const char *key)
{
	return json_integer_value(json_object_get(json_array_get(rows, i), key));
}

static inline int count_row(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	(void)key; (void)klen; (void)val; (void)vlen;
	++*(int *)arg;
	return 0;
}

/* n events, each in a transaction of its own; jobs run after every each-th. */
static inline void write_events(struct t *t, int n, int each)
{
	for (int i = 0; i < n; i++) {
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
		store_settle(t->s);
		if (i % each == 0)
			world_turn(t->w, 0);
	}
}

#endif
