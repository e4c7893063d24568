/* The store: what is written is read back, one transaction per event, every older schema is brought forward after
 * a copy, a newer one and a foreign one are refused, a disk that refuses costs nothing that fits into the queue,
 * corruption is said and moved aside only when asked, queries can read and nothing else. */
#include <math.h>
#include <sqlite3.h>
#include "store/migrate.h"
#include "store/int.h"
#include "tests/unit/store_kit.h"

static void every_table_reads_back(void **state)
{
	struct t *t = *state;
	json_t *r;

	put_run(t->s, "r1", "train");
	store_run_update(t->s, "r1", NULL, "late", 4, 900);
	store_param_put(t->s, &(struct store_param){ .run = "r1", .key = "lr", .old_value = "0.1", .new_value = "0.01",
		.author = "aa", .state = "applied", .version = 2, .epoch = 9 });
	store_epoch_put(t->s, &(struct store_epoch){ .run = "r1", .digest = "d4", .epoch = 4, .samples = 200, .members = 3,
		.weight = 200, .loss = 0.5, .val_loss = __builtin_nan(""), .val_accuracy = 0.97 });
	store_round_add(t->s, &(struct store_round){ .run = "r1", .outcome = "done without", .without = "[\"bb\"]",
		.epoch = 4,
		.members = 2 });
	store_peer_put(t->s, &(struct store_peer){ .peer = "bb", .address = "127.0.0.1:1", .version = "0.1",
		.state = "live", .rtt_us = 40 });
	store_event(t->s, LOG_WARN_, "peer.dead", "r1", "bb", json_pack("{s:i}", "ms", 3), "peer %s is gone", "bb");
	store_ckpt_put(t->s, &(struct store_ckpt){ .run = "r1", .path = "/x", .digest = "d", .epoch = 4, .bytes = 10,
		.state = "whole" });

	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 1);
	assert_string_equal(text(r, 0, "state"), "train");
	assert_string_equal(text(r, 0, "error"), "late");
	assert_int_equal(integer(r, 0, "samples"), 900);
	assert_int_equal(integer(r, 0, "created_ms"), 1700000000000);
	json_decref(r);
	r = store_list(t->s, STORE_EPOCHS, "r1", 10);
	assert_true(json_is_null(json_object_get(json_array_get(r, 0), "val_loss")));
	assert_float_equal(json_real_value(json_object_get(json_array_get(r, 0), "val_accuracy")), 0.97, 0);
	json_decref(r);
	r = store_list(t->s, STORE_EVENTS, "r1", 10);
	assert_string_equal(text(r, 0, "text"), "peer bb is gone");
	assert_string_equal(text(r, 0, "data"), "{\"ms\":3}");
	json_decref(r);
	for (int k = 0; k < STORE_TABLES; k++) {
		r = store_list(t->s, (enum store_table)k, NULL, 10);
		assert_int_equal(json_array_size(r), 1);
		json_decref(r);
		r = store_list(t->s, (enum store_table)k, "other", 10);
		assert_int_equal(json_array_size(r), k == STORE_PEERS ? 1 : 0);
		json_decref(r);
	}
	for (int k = 0; k < 3; k++) {           /* the row is of epoch 4: before, behind, and inside what is discarded */
		store_epoch_discard(t->s, "r1", k == 1 ? 5 : 1, k ? INT64_MAX : 3);
		r = store_list(t->s, STORE_EPOCHS, "r1", 10);
		assert_int_equal(integer(r, 0, "discarded"), k == 2);
		json_decref(r);
	}
	store_run_rm(t->s, "r1");
	for (int k = 0; k < STORE_TABLES; k++) {
		r = store_list(t->s, (enum store_table)k, NULL, 10);
		assert_int_equal(json_array_size(r), k == STORE_PEERS ? 1 : 0);
		json_decref(r);
	}
}

static void an_outcome_is_not_undone_by_its_proposal(void **state)
{
	struct t *t = *state;
	struct store_param p = { .run = "r", .key = "lr", .old_value = "0.1", .new_value = "0.01", .author = "aa",
		.version = 1,
		.epoch = 9 };
	static const char *const states[] = { "proposed", "applied", "proposed", "discarded", "proposed" };
	static const char *const then[] = { "proposed", "applied", "applied", "discarded", "discarded" };

	for (int i = 0; i < 5; i++) {
		json_t *r;

		p.state = states[i];
		store_param_put(t->s, &p);
		r = store_list(t->s, STORE_PARAMS, "r", 10);
		assert_int_equal(json_array_size(r), 1);
		assert_string_equal(text(r, 0, "state"), then[i]);
		json_decref(r);
	}
}

/* A fork was lost: changes from the first epoch that is discarded on, whether in force or agreed; what takes the place
 * of one says so. */
static void changes_of_a_lost_history_are_discarded(void **state)
{
	struct t *t = *state;
	struct store_param p = { .run = "r", .key = "lr", .new_value = "0.1", .author = "aa", .state = "applied",
		.version = 1, .epoch = 4 };
	json_t *r;

	store_param_put(t->s, &p);
	p.version = 2;
	p.epoch = 5;
	p.new_value = "0.2";
	store_param_put(t->s, &p);
	p.version = 3;
	p.epoch = 9;
	p.state = "proposed";
	store_param_put(t->s, &p);
	store_param_discard(t->s, "r", 5, 8, "lost");
	r = store_list(t->s, STORE_PARAMS, "r", 10);
	assert_string_equal(text(r, 0, "state"), "proposed");
	assert_string_equal(text(r, 1, "state"), "discarded");
	json_decref(r);
	store_param_discard(t->s, "r", 5, INT64_MAX, "lost");
	r = store_list(t->s, STORE_PARAMS, "r", 10);
	assert_int_equal(json_array_size(r), 3);
	assert_string_equal(text(r, 0, "state"), "discarded");
	assert_string_equal(text(r, 1, "state"), "discarded");
	assert_string_equal(text(r, 1, "note"), "lost");
	assert_string_equal(text(r, 2, "state"), "applied");
	json_decref(r);
	p.version = 2;
	p.state = "applied";
	p.new_value = "0.3";
	store_param_put(t->s, &p);
	r = store_list(t->s, STORE_PARAMS, "r", 10);
	assert_string_equal(text(r, 1, "state"), "applied");
	assert_string_equal(text(r, 1, "note"), "in place of 0.2, which was discarded");
	json_decref(r);
}

/* Of two changes of one key one holds; the other stands beside it, and only what is open can be settled. */
static void what_is_superseded_stands_beside_what_holds(void **state)
{
	struct t *t = *state;
	struct store_param p = { .run = "r", .key = "lr", .new_value = "0.1", .author = "aa", .state = "proposed",
		.version = 1, .epoch = 4 };
	json_t *r;

	store_param_put(t->s, &p);
	for (int k = 0; k < 2; k++) {
		p.new_value = k ? "0.3" : "0.2";
		p.state = "superseded";
		p.note = "lr: superseded by aa at epoch 4";
		store_param_put(t->s, &p);
	}
	r = store_list(t->s, STORE_PARAMS, "r", 10);
	assert_int_equal(json_array_size(r), 3);
	assert_string_equal(text(r, 1, "new_value"), "0.2");
	assert_string_equal(text(r, 1, "state"), "superseded");
	assert_string_equal(text(r, 2, "state"), "proposed");
	json_decref(r);
	store_param_settle(t->s, "r", 1, "lr", "discarded", "lost");
	store_param_settle(t->s, "r", 1, "lr", "applied", NULL);
	r = store_list(t->s, STORE_PARAMS, "r", 10);
	assert_string_equal(text(r, 0, "state"), "superseded");
	assert_string_equal(text(r, 2, "state"), "discarded");
	assert_string_equal(text(r, 2, "note"), "lost");
	json_decref(r);
}

/* What a lost commit had taken is found by itself, and the commit stays lost when its step is recorded late. */
static void what_lost_commits_took_stands_apart(void **state)
{
	struct t *t = *state;
	struct store_epoch p = { .run = "r", .digest = "d4", .epoch = 4, .weight = 8, .positions = "[[0,8]]" };
	json_t *r;

	store_epoch_put(t->s, &p);
	p = (struct store_epoch){ .run = "r", .digest = "d5", .epoch = 5, .weight = 16, .positions = "[[8,24]]" };
	store_epoch_put(t->s, &p);
	store_epoch_discard(t->s, "r", 5, 9);
	store_epoch_put(t->s, &p);
	r = store_list(t->s, STORE_DISCARDED, "r", 10);
	assert_int_equal(json_array_size(r), 1);
	assert_int_equal(integer(r, 0, "epoch"), 5);
	assert_string_equal(text(r, 0, "positions"), "[[8,24]]");
	json_decref(r);
	r = store_list(t->s, STORE_DISCARDED, "other", 10);
	assert_int_equal(json_array_size(r), 0);
	json_decref(r);
}

static json_int_t commits(struct t *t)
{
	json_t *j = store_json(t->s);
	json_int_t n = json_integer_value(json_object_get(j, "commits"));

	json_decref(j);
	return n;
}

static void one_event_is_one_transaction(void **state)
{
	struct t *t = *state;
	json_int_t before = commits(t);
	json_t *r;

	for (int i = 0; i < 50; i++)
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
	assert_int_equal(commits(t), before);
	world_turn(t->w, 10);
	assert_int_equal(commits(t), before + 1);
	put_run(t->s, "r1", "train");
	assert_int_equal(store_sync(t->s, NULL), 0);
	assert_int_equal(commits(t), before + 2);
	assert_int_equal(store_sync(t->s, NULL), 0);            /* nothing new: nothing to do */
	assert_int_equal(commits(t), before + 2);
	put_run(t->s, "r2", "train");
	store_settle(t->s);
	assert_int_equal(store_sync(t->s, NULL), 0);            /* committed but perhaps not on the disk: a barrier */
	assert_int_equal(commits(t), before + 4);
	store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "history waits");
	store_settle_told(t->s);
	assert_int_equal(commits(t), before + 4);
	put_run(t->s, "r2", "hold");                            /* what may be told does not */
	store_settle_told(t->s);
	assert_int_equal(commits(t), before + 5);
	reopen(t, NULL);
	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 2);
	json_decref(r);
}

static void shelf_keeps_bytes(void **state)
{
	struct t *t = *state;
	struct shelf *sh = store_shelf(t->s);
	uint8_t key[3] = { 0, 1, 255 }, out[16], *big = calloc(1, STORE_VALUE_MAX + 1);
	struct err e;
	size_t n;
	int rows = 0;

	assert_int_equal(sh->put(sh, "dht", key, 3, "\0ab", 3, &e), 0);
	assert_int_equal(sh->put(sh, "dht", "k2", 2, "", 0, &e), 0);
	assert_int_equal(sh->put(sh, "ban", key, 3, "other", 5, &e), 0);
	assert_int_equal(sh->get(sh, "dht", key, 3, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_memory_equal(out, "\0ab", 3);
	assert_int_equal(sh->get(sh, "dht", "k2", 2, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(sh->get(sh, "dht", key, 3, out, 2, &n, &e), -1);
	assert_err(e, ERR_LIMIT, "3 bytes");
	assert_int_equal(sh->get(sh, "dht", "no", 2, out, sizeof out, &n, &e), -1);
	assert_err(e, ERR_NOT_FOUND, "dht");
	assert_int_equal(sh->put(sh, "dht", key, 3, big, STORE_VALUE_MAX + 1, &e), -1);
	assert_err(e, ERR_LIMIT, "65537");
	assert_int_equal(sh->each(sh, "dht", count_row, &rows, &e), 0);
	assert_int_equal(rows, 2);
	assert_int_equal(sh->del(sh, "dht", key, 3, &e), 0);
	assert_int_equal(sh->get(sh, "dht", key, 3, out, sizeof out, &n, &e), -1);
	reopen(t, NULL);
	sh = store_shelf(t->s);
	assert_int_equal(sh->get(sh, "ban", key, 3, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, 5);
	free(big);
}

/* --- migrations */

static sqlite3 *raw(const char *path)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	return db;
}

static void every_older_schema_comes_forward(void **state)
{
	struct t *t = *state;

	for (int v = 1; v < migrate_newest(); v++) {
		char bak[160];
		sqlite3 *db;
		struct err e;
		json_t *r;

		store_free(t->s);
		t->s = NULL;
		snprintf(t->db, sizeof t->db, "%s/old%d.db", t->w->dir, v);
		db = raw(t->db);
		assert_int_equal(migrate_run(db, t->db, v, &e), 0);
		assert_int_equal(migrate_version(db), v);
		assert_int_equal(sqlite3_exec(db, "INSERT INTO events(wall_ms, level, kind, text) "
			"VALUES(1,'info','k','old')", NULL,
			NULL, NULL), SQLITE_OK);
		assert_int_equal(sqlite3_exec(db, "INSERT INTO params(run, version, key, new_value, state, epoch, wall_ms) "
			"VALUES('r',1,'lr','0.1','applied',3,1),('r',2,'lr','0.2','proposed',5,1); INSERT INTO epochs(run, epoch, "
			"digest, discarded, wall_ms) VALUES('r',3,'d',1,1)", NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		assert_non_null(reopen(t, NULL));
		store_param_put(t->s, &(struct store_param){ .run = "r", .key = "lr", .new_value = "0.2", .author = "aa",
			.state = "applied", .version = 2, .epoch = 5 });
		r = store_list(t->s, STORE_PARAMS, "r", 10);
		assert_int_equal(json_array_size(r), 2);
		assert_string_equal(text(r, 0, "state"), "applied");
		assert_string_equal(text(r, 1, "new_value"), "0.1");
		json_decref(r);
		r = store_list(t->s, STORE_DISCARDED, "r", 10);
		assert_int_equal(json_array_size(r), 1);
		json_decref(r);
		r = store_list(t->s, STORE_EVENTS, NULL, 10);
		assert_string_equal(text(r, 0, "text"), "old");
		json_decref(r);
		snprintf(bak, sizeof bak, "%s.v%d.bak", t->db, v);
		db = raw(bak);                  /* the copy is whole and still old */
		assert_int_equal(migrate_version(db), v);
		sqlite3_close(db);
	}
}

static void newer_and_foreign_files_are_refused(void **state)
{
	struct t *t = *state;
	struct store_opts o = { .path = t->db, .move_aside = true };
	struct err e;
	sqlite3 *db;

	store_free(t->s);
	t->s = NULL;
	db = raw(t->db);
	sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL);
	sqlite3_close(db);
	assert_null(store_open(&t->w->env, &o, &e));
	assert_err(e, ERR_VERSION, "newer hivemindd");
	snprintf(t->db, sizeof t->db, "%s/foreign.db", t->w->dir);
	db = raw(t->db);
	sqlite3_exec(db, "CREATE TABLE x(y)", NULL, NULL, NULL);
	sqlite3_close(db);
	assert_null(store_open(&t->w->env, &o, &e));
	assert_err(e, ERR_STATE, "another program");
	snprintf(t->db, sizeof t->db, "%s/no/such/folder.db", t->w->dir);
	assert_null(store_open(&t->w->env, &o, &e));
	assert_err(e, ERR_IO, "folder.db");
}

/* --- corruption */

static void scribble(const char *path, long at, size_t n)
{
	FILE *f = fopen(path, "r+b");

	assert_non_null(f);
	fseek(f, at, SEEK_SET);
	while (n--)
		fputc(0x5a, f);
	fclose(f);
}

static void corruption_is_said_and_moved_only_when_told(void **state)
{
	static const long where[] = { 0, 4096 };

	for (size_t i = 0; i < 2; i++) {
		struct t *t = *state;
		struct store_opts o = { .path = t->db };
		char aside[160];
		struct err e;
		json_t *r;

		for (int k = 0; k < 100; k++)
			store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", k);
		store_free(t->s);
		t->s = NULL;
		scribble(t->db, where[i], 3000);
		assert_null(store_open(&t->w->env, &o, &e));
		assert_err(e, ERR_CORRUPT, "--move-corrupt-aside");
		assert_non_null(strstr(e.text, t->db));
		snprintf(aside, sizeof aside, "%s.corrupt-%zu", t->db, i + 1);
		assert_int_not_equal(access(aside, F_OK), 0);
		o.move_aside = true;
		t->s = store_open(&t->w->env, &o, &e);
		assert_non_null(t->s);
		assert_int_equal(access(aside, F_OK), 0);
		r = store_list(t->s, STORE_EVENTS, NULL, 10);
		assert_int_equal(json_array_size(r), 1);
		assert_string_equal(text(r, 0, "kind"), "store.moved");
		json_decref(r);
	}
}

/* --- upkeep */

static void old_rows_are_thinned(void **state)
{
	struct t *t = *state;
	json_t *r;

	for (uint64_t i = 0; i < 1500; i++)
		store_epoch_put(t->s, &(struct store_epoch){ .run = "r", .digest = "", .epoch = i, .loss = 1 });
	store_settle(t->s);
	t->w->wall += 31ull * 86400000;
	store_epoch_put(t->s, &(struct store_epoch){ .run = "r", .digest = "", .epoch = 1501, .loss = 1 });
	world_turn(t->w, 70000000);             /* slices of 500, a second apart */
	r = store_list(t->s, STORE_EPOCHS, "r", 5000);
	assert_int_equal(json_array_size(r), 15 + 1);
	json_decref(r);
}

static void size_is_bounded(void **state)
{
	struct t *t = *state;
	json_t *j;
	char pad[900];

	memset(pad, 'x', sizeof pad - 1);
	pad[sizeof pad - 1] = '\0';
	assert_non_null(reopen(t, &(struct store_opts){ .keep_bytes = 1 << 20 }));
	for (int i = 0; i < 4000; i++) {
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%s", pad);
		if (i % 500 == 0)
			world_turn(t->w, 10);
	}
	world_turn(t->w, 100000000);
	j = store_json(t->s);
	assert_true(json_integer_value(json_object_get(j, "bytes")) < (1 << 20) + 600000);
	json_decref(j);
}

/* Epochs that follow each other closely share a transaction; what somebody may be told is done does not wait for it. */
static void history_waits_and_promises_do_not(void **state)
{
	struct t *t = *state;
	struct store_epoch p = { .run = "aa", .weight = 1, .loss = 1, .val_loss = NAN, .val_accuracy = NAN };
	struct shelf *sh = store_shelf(t->s);
	json_int_t before;
	struct err e;

	world_turn(t->w, 1000000);
	before = commits(t);
	store_epoch_put(t->s, &p);
	world_turn(t->w, 10);
	assert_int_equal(commits(t), before + 1);       /* after a quiet while at once */
	for (p.epoch = 1; p.epoch < 50; p.epoch++) {
		store_epoch_put(t->s, &p);
		store_run_update(t->s, "aa", NULL, NULL, p.epoch, 0);
		world_turn(t->w, 500);
	}
	assert_int_equal(commits(t), before + 1);
	assert_int_equal(sh->put(sh, "dht", "k", 1, "v", 1, &e), 0);
	world_turn(t->w, 10);
	assert_int_equal(commits(t), before + 2);
	store_run_update(t->s, "aa", "pause", NULL, p.epoch, 0);
	world_turn(t->w, 10);
	assert_int_equal(commits(t), before + 3);
	store_epoch_put(t->s, &p);
	world_turn(t->w, 49900);
	assert_int_equal(commits(t), before + 3);
	world_turn(t->w, 1000);
	assert_int_equal(commits(t), before + 4);
}

static void the_log_is_copied_into_the_file_by_a_job(void **state)
{
	struct t *t = *state;
	char wal[160];
	struct stat st;

	write_events(t, 6000, 100);
	world_turn(t->w, 0);
	assert_int_equal(stat(t->db, &st), 0);
	assert_true(st.st_size > 100000);               /* what was written is in the file */
	snprintf(wal, sizeof wal, "%s-wal", t->db);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 3 * 1000 * 4200);      /* it is used again from its beginning, not grown for ever */
	/* Whoever reads holds it back; when that is over, what it has grown by is given back. */
	sqlite3 *reader = raw(t->db);
	assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM events", NULL, NULL, NULL), SQLITE_OK);
	write_events(t, 4000, 100);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size > 12 << 20);
	sqlite3_close(reader);
	write_events(t, 200, 1);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size <= 8 << 20);
	/* Closed while the job is under way: the job frees itself. */
	for (int i = 0; i < 3000 && list_empty(&t->w->jobs); i++) {
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
		store_settle(t->s);
	}
	assert_false(list_empty(&t->w->jobs));
	store_free(t->s);
	t->s = NULL;
	world_turn(t->w, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_table_reads_back), T(an_outcome_is_not_undone_by_its_proposal),
		T(changes_of_a_lost_history_are_discarded),
		T(what_is_superseded_stands_beside_what_holds), T(what_lost_commits_took_stands_apart),
		T(one_event_is_one_transaction), T(shelf_keeps_bytes),
		T(every_older_schema_comes_forward), T(newer_and_foreign_files_are_refused),
		T(corruption_is_said_and_moved_only_when_told), T(old_rows_are_thinned), T(size_is_bounded),
		T(the_log_is_copied_into_the_file_by_a_job), T(history_waits_and_promises_do_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
