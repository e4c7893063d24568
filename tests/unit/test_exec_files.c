/* What the executor does with files: SAVE leaves the old file or the new one; values of tier file live on from program
 * to program, begin with zeros, and what stands for a missing one is copied in the file; a failure that waits for its
 * interrupt is forgotten with it; plans that ask for what cannot be are refused. */
#include <fcntl.h>
#include "tiers_kit.h"

static const struct exec_ops no_net = { .load = load, .unload = unload, .cancel = cancel };
static enum exec_outcome says;          /* what `answers` answers */

static enum exec_outcome answers(void *arg, const struct plan *p, const struct plan_instr *i, enum exec_outcome meant,
	const struct err *e)
{
	(void)failed(arg, p, i, meant, e);
	return meant == EXEC_WITHOUT ? meant : says;
}

static const struct exec_cb cbs = { .plan = plan, .commit = commit, .scalar = scalar, .env = vec_env, .failed = answers,
	.broken = broken };

static void open_with(struct bed *b, void (*make)(struct bed *b, struct plan *p))
{
	says = EXEC_REPLAN;
	b->folder = FOLDER;
	bed_begin(b, make, &no_net, &cbs);
}

static void file_buffer(struct bed *b, struct plan *p, const char *name, bool initial)
{
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = b->model->nparam * sizeof(real), .tier = 2,
		.initial = initial }, "%s", name);
}

static struct plan_instr *save(struct plan *p, const char *fn, const char *refs)
{
	struct plan_instr *i = plan_do(p, PLAN_SAVE, 0, "%s", refs);

	memcpy(i->fn, fn, strlen(fn) + 1);
	return i;
}

/* --- SAVE */

static void saves(struct bed *b, struct plan *p)
{
	buffers(b, p);
	file_buffer(b, p, "far", false);
	file_buffer(b, p, "blank", true);
	plan_do(p, PLAN_MOVE, 0, "w -> far");
	save(p, "w.bin", "far w blank");
}

static size_t file_get(struct bed *b, const char *path, void *p, size_t cap)
{
	struct files *f = b->env->files;
	struct err e;
	int fd = f->open(f, path, O_RDONLY, 0, &e);
	int64_t n;

	if (fd < 0)
		return 0;
	n = f->pread(f, fd, p, cap, 0, &e);
	assert_int_equal(f->close(f, fd, &e), 0);
	assert_true(n >= 0);
	return (size_t)n;
}

static void is_saved(struct bed *b)
{
	size_t bytes = b->model->nparam * sizeof(real);
	char got[16384];

	assert_int_equal(file_get(b, FOLDER "/w.bin", got, sizeof(got)), 3 * bytes);
	assert_memory_equal(got, b->w, bytes);
	assert_memory_equal(got + bytes, b->w, bytes);
	for (size_t k = 2 * bytes; k < 3 * bytes; k++)
		assert_int_equal(got[k], 0);
}

static char calls[512];
static struct files noted, *behind;

static void note(const char *call, const char *path)
{
	const char *name = strrchr(path, '/');

	assert_true(strlen(calls) + 64 < sizeof(calls));
	(void)snprintf(calls + strlen(calls), 64, "%s%s ", call, name ? name : "");
}
static int note_open(struct files *f, const char *path, int flags, int mode, struct err *e)
{
	note("open", path);
	return behind->open(behind, path, flags, mode, e);
}
static int64_t note_pread(struct files *f, int fd, void *p, size_t n, uint64_t at, struct err *e)
{
	return behind->pread(behind, fd, p, n, at, e);
}
static int note_pwrite(struct files *f, int fd, const void *p, size_t n, uint64_t at, struct err *e)
{
	note("write", "");
	return behind->pwrite(behind, fd, p, n, at, e);
}
static int note_fsync(struct files *f, int fd, struct err *e) { note("sync", ""); return behind->fsync(behind, fd, e); }
static int note_close(struct files *f, int fd, struct err *e)
{
	note("close", "");
	return behind->close(behind, fd, e);
}
static int note_rename(struct files *f, const char *from, const char *to, struct err *e)
{
	note("rename", to);
	return behind->rename(behind, from, to, e);
}
static int note_unlink(struct files *f, const char *path, struct err *e)
{
	note("unlink", path);
	return behind->unlink(behind, path, e);
}
static int note_mkdir(struct files *f, const char *path, int mode, struct err *e)
{
	return behind->mkdir(behind, path, mode, e);
}

/* Safe before it has the name; the file of values has none. */
static void test_save(void **state)
{
	struct bed b = { .sim = sim_new(1), .folder = FOLDER };
	struct sim_app app = { start, stop, &b };

	(void)sim_node_add(b.sim, NULL, &app);
	b.env = sim_env(b.sim, 0);
	sim_run_for(b.sim, 1000000);
	behind = b.env->files;
	noted = (struct files){ .open = note_open, .pread = note_pread, .pwrite = note_pwrite, .fsync = note_fsync,
		.close = note_close, .rename = note_rename, .unlink = note_unlink, .mkdir = note_mkdir };
	b.env->files = &noted;
	calls[0] = 0;
	bed_put(&b, saves, &no_net, &cbs);
	sim_run_for(b.sim, 1000000);
	b.env->files = behind;
	assert_int_equal(b.broken, 0);
	assert_string_equal(calls, "open/.values unlink/.values write open/.w.bin.tmp write write write sync close "
		"rename/w.bin ");
	is_saved(&b);
	bed_close(&b);
	assert_non_null(strstr(calls, "rename/w.bin close "));  /* the values' */
}

static int nth;

static void with_old(struct bed *b)
{
	struct files *f = b->env->files;
	struct err e;
	int fd;

	assert_int_equal(f->mkdir(f, FOLDER, 0750, &e), 0);
	fd = f->open(f, FOLDER "/w.bin", O_WRONLY | O_CREAT, 0640, &e);
	assert_int_equal(f->pwrite(f, fd, "old", 3, 0, &e), 0);
	assert_int_equal(f->close(f, fd, &e), 0);
	sim_files_fail(b->sim, 0, nth, ERR_IO);
}

/* The old file until the new one is complete, whichever call fails; the owner hears of it. */
static void test_save_fails(void **state)
{
	int saved = 0, kept = 0;
	bool struck = true;

	for (nth = 1; struck; nth++) {
		struct bed b = { .ready = with_old };
		char got[16];
		struct err e;

		says = EXEC_BREAK;
		b.folder = FOLDER;
		bed_begin(&b, saves, &no_net, &cbs);
		struck = sim_struck(b.sim, 0);
		sim_files_fail(b.sim, 0, 0, ERR_IO);
		assert_int_equal(b.broken, struck);
		if (struck) {
			assert_err(b.error, ERR_IO, " of index 0: ");
			kept += !!strstr(b.error.text, "plan test: SAVE");
			assert_int_equal(file_get(&b, FOLDER "/w.bin", got, sizeof(got)), 3);
			assert_memory_equal(got, "old", 3);
		} else {
			is_saved(&b);
			saved++;
		}
		assert_true(b.env->files->size(b.env->files, FOLDER "/.w.bin.tmp", &e) < 0);
		bed_close(&b);
	}
	assert_int_equal(saved, 1);
	assert_true(kept >= 7);         /* mkdir, open, three writes, a read, sync, close, rename */
}

/* --- values in the file */

static void lives(struct bed *b, struct plan *p)
{
	buffers(b, p);
	file_buffer(b, p, "far", false);
	if (b->planned == 2)
		p->buf[plan_find(p, "far")].tier = b->asked ? 0 : 2;
	plan_do(p, PLAN_MOVE, 0, b->planned == 1 ? "w -> far" : "far=1! -> g");
}

static void twice(struct bed *b) { b->troubles = 1; }
static void twice_elsewhere(struct bed *b) { b->troubles = b->asked = 1; }

static void test_lives_on(void **state)
{
	struct bed b = { .ready = twice };
	struct exec_view v;

	open_with(&b, lives);
	assert_int_equal(b.broken, 0);
	assert_memory_equal(b.g, b.w, b.model->nparam * sizeof(real));
	exec_view(b.x_, &v);
	assert_int_equal(v.tier[2].bytes, 0);
	bed_close(&b);
	b.ready = twice_elsewhere;              /* in memory it is another buffer */
	open_with(&b, lives);
	assert_int_equal(b.broken, 1);
	assert_non_null(strstr(b.error.text, "nothing runs and nothing can start"));
	bed_close(&b);
}

static void begins(struct bed *b, struct plan *p)
{
	buffers(b, p);
	if (b->planned == 1) {
		file_buffer(b, p, "junk", false);
		plan_do(p, PLAN_MOVE, 0, "w -> junk");
		plan_do(p, PLAN_DROP, 0, "junk");
		return;
	}
	file_buffer(b, p, "far", true);         /* where junk was */
	plan_do(p, PLAN_MOVE, 0, "far -> g");
}

static void test_begins_with_zeros(void **state)
{
	struct bed b = { .ready = twice };

	open_with(&b, begins);
	assert_int_equal(b.broken, 0);
	for (size_t k = 0; k < b.model->nparam; k++)
		assert_true(b.g[k] == 0);
	bed_close(&b);
}

/* --- what stands for what has not come */

#define MUCH 200000                     /* more than a part that is copied at once */
static struct { char v[MUCH], seen[MUCH]; } st;

static void st_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct bed *b = arg;

	b->wait = w;
	if (b->asked++)
		return;                         /* the test answers */
	memcpy(out[0].p, st.v, MUCH);
	exec_done(w, NULL, NULL);
}

static void stands(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = MUCH }, "v");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = MUCH }, "seen");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_OPTIMIZER, .bytes = MUCH, .tier = 2, .depth = 2, .initial = true },
		"far");
	p->iterations = b->planned == 1 ? 2 : 1;
	if (b->planned == 1) {
		plan_recv(p, 0, 1, "v")->on_missing = PLAN_WITHOUT;
		plan_do(p, PLAN_MOVE, 0, "v! -> far'");
	}
	plan_do(p, PLAN_MOVE, 0, b->planned == 1 ? "far' -> seen" : "far -> seen");
}

static void see(struct bed *b) { exec_bind(b->x_, "seen", st.seen, MUCH); }

static void test_stand_in(void **state)
{
	static const struct exec_ops ops = { .load = load, .unload = unload, .net = st_net, .cancel = cancel };

	for (int fails = 0; fails < 3; fails++) {
		struct bed b = { .folder = FOLDER, .ready = see };
		struct err e;

		says = fails == 2 ? EXEC_LATER : EXEC_REPLAN;
		for (int k = 0; k < MUCH; k++)
			st.v[k] = (char)(k * 31 / 7 + 1);
		bed_begin(&b, stands, &ops, &cbs);
		assert_int_equal(b.asked, 2);
		assert_memory_equal(st.seen, st.v, MUCH);
		memset(st.seen, 0, MUCH);
		(void)err_set(&e, ERR_TIMEOUT, "peer 2 has not sent it");
		if (fails)
			sim_files_fail(b.sim, 0, 2, ERR_IO);
		exec_done(b.wait, NULL, &e);
		sim_run_for(b.sim, 1000000);
		assert_int_equal(b.broken, 0);
		assert_int_equal(b.withouts, 1);
		assert_int_equal(b.troubles, fails > 0);
		if (fails == 2) {
			assert_int_equal(b.planned, 1);
			assert_false(exec_quiet(b.x_));
			exec_interrupt(b.x_);
			sim_run_for(b.sim, 1000000);
		}                               /* then a program that reads the newest value */
		assert_true(b.over);
		assert_memory_equal(st.seen, st.v, MUCH);
		bed_close(&b);
	}
}

/* --- a failure that waits for the owner's interrupt */

static void no_room(struct bed *b) { sim_disk_full(b->sim, 0, 0); }

static void test_later(void **state)
{
	for (int ends = 0; ends < 2; ends++) {
		struct bed b = { .ready = no_room, .folder = FOLDER };

		says = EXEC_LATER;
		bed_begin(&b, saves, &no_net, &cbs);
		assert_int_equal(b.planned, 1);
		assert_false(exec_quiet(b.x_));
		if (!ends) {
			sim_disk_full(b.sim, 0, -1);
			exec_interrupt(b.x_);
			sim_run_for(b.sim, 1000000);
			assert_true(b.over);
			assert_true(exec_quiet(b.x_));
		}
		bed_close(&b);
	}
}

/* --- refused */

static void kernel_touches(struct bed *b, struct plan *p)
{
	buffers(b, p);
	p->buf[plan_find(p, "k1")].tier = 2;
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	pass(p, PLAN_FWD, 0, 4, PLAN_KEEP_ALL, false, "batch w -> a5 save:k1");
}
static void move_in_train(struct bed *b, struct plan *p)
{
	buffers(b, p);
	file_buffer(b, p, "far", false);
	plan_do(p, PLAN_MOVE, 0, "w -> far")->lane = plan_find_lane(p, "train");
}
static void move_uneven(struct bed *b, struct plan *p) { buffers(b, p); plan_do(p, PLAN_MOVE, 0, "w g -> a1"); }
static void move_adds(struct bed *b, struct plan *p) { buffers(b, p); plan_do(p, PLAN_MOVE, 0, "w -> g+"); }
static void move_small(struct bed *b, struct plan *p) { buffers(b, p); plan_do(p, PLAN_MOVE, 0, "w -> loss"); }
static void move_batch(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	plan_do(p, PLAN_MOVE, 0, "batch -> k1");
}
static void save_batch(struct bed *b, struct plan *p)
{
	buffers(b, p);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	save(p, "b", "batch");
}
static void save_nameless(struct bed *b, struct plan *p) { buffers(b, p); save(p, "", "w"); }
static void save_outside(struct bed *b, struct plan *p) { buffers(b, p); save(p, "../w", "w"); }
static void save_hidden(struct bed *b, struct plan *p) { buffers(b, p); save(p, ".values", "w"); }
static void save_nothing(struct bed *b, struct plan *p) { buffers(b, p); save(p, "w", "->"); }
static void save_in_copy(struct bed *b, struct plan *p)
{
	buffers(b, p);
	save(p, "w", "w")->lane = plan_find_lane(p, "copy");
}
static void bound_in_file(struct bed *b, struct plan *p)
{
	buffers(b, p);
	p->buf[plan_find(p, "g")].tier = 2;
	plan_do(p, PLAN_MOVE, 0, "w -> g");
}
static void save_alone(struct bed *b, struct plan *p) { buffers(b, p); save(p, "w", "w"); }
static void on_tape(struct bed *b, struct plan *p)
{
	buffers(b, p);
	p->buf[plan_find(p, "a1")].tier = plan_tier(p, "tape", 0);
	plan_do(p, PLAN_MOVE, 0, "w -> g");
}

static void test_refused(void **state)
{
	static const struct { void (*make)(struct bed *b, struct plan *p); const char *text; bool alone; } row[] = {
		{ kernel_touches, "FWD (instruction 1): only MOVE, DROP and SAVE touch a buffer of tier file", true },
		{ move_in_train, "MOVE from or to tier file runs in lane copy, copy-in, copy-out or disk", true },
		{ move_uneven, "MOVE has an output for each of its inputs", true },
		{ move_adds, "MOVE writes over its output and adds nothing", true },
		{ move_small, "MOVE needs as much room in its output as its input has bytes", true },
		{ save_nameless, "SAVE needs the name of its file", true },
		{ save_outside, "SAVE needs the name of its file", true },
		{ save_hidden, "SAVE needs the name of its file", true },
		{ save_nothing, "SAVE has inputs and no output", true },
		{ save_in_copy, "SAVE runs in lane disk", true },
		{ move_batch, "MOVE (instruction 1) of a batch", false },
		{ save_batch, "SAVE (instruction 1) of a batch", false },
		{ bound_in_file, "buffer g is to lie in tier file, and lies in memory of its owner", false },
		{ on_tape, "buffer a1 lies in tier tape, which is not there", false },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct bed b = { 0 };
		struct plan p;

		open_with(&b, row[i].make);
		if (!b.broken || !strstr(b.error.text, row[i].text))
			fail_msg("\"%s\" does not say \"%s\"", b.error.text, row[i].text);
		plan_init(&p, "test", 0, 2, (struct id[]){ { { 1 } }, { { 2 } } });
		row[i].make(&b, &p);
		assert_int_equal(plan_instr_wrong(&p, &p.instr[p.ninstrs - (p.ninstrs > 0)]) != NULL, row[i].alone);
		plan_free(&p);
		bed_close(&b);
		const char *why = strstr(row[i].text, "): ");

		b.check = true;                 /* as training runs: plan/check.h says the same */
		open_with(&b, row[i].make);
		if (!b.broken || !strstr(b.error.text, why ? why + 3 : row[i].text))
			fail_msg("checked: \"%s\" does not say \"%s\"", b.error.text, row[i].text);
		bed_close(&b);
	}
	struct bed b = { 0 };
	bed_begin(&b, saves, &no_net, &cbs);
	assert_err(b.error, ERR_INVALID, "buffer far lies in tier file, and there is no folder for it");
	bed_close(&b);
	bed_begin(&b, save_alone, &no_net, &cbs);
	assert_err(b.error, ERR_INVALID, "SAVE w (instruction 0), and there is no folder for it");
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_save), cmocka_unit_test(test_save_fails), cmocka_unit_test(test_lives_on),
		cmocka_unit_test(test_begins_with_zeros),
		cmocka_unit_test(test_stand_in), cmocka_unit_test(test_later),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
