/* hivemindd: one node and a control socket around one loop.
 *
 * The tour: main reads options; app_up builds from the outside in (1 the state folder and its lock, 2 log and loop,
 * 3 keys, 4 store, 5 transport and node, 6 control and sockets); loop_run runs; SIGTERM or `hivectl stop` drains the
 * node and stops the loop; app_down takes down in the other direction. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/text.h"
#include "compute.h"
#include "control/control.h"
#include "control/sock.h"
#include "loop/files.h"
#include "files_state.h"
#include "kernels/par.h"
#include "node/key.h"
#include "loop/loop.h"
#include "loop/told.h"
#include "net/nano.h"
#include "node/node.h"
#include "node/join.h"
#include "options.h"
#include "options_net.h"
#include "node/reach.h"
#include "replay_cmd.h"
#include "sd.h"
#include "store/store.h"
#include "train/zoo.h"

#define FORCED_US 2000000u              /* what remains of the stop timeout for closing files */

struct app {
	struct options o;
	struct sd sd;
	struct log *log;
	bool to_journal;
	int lock_fd;
	struct loop *loop;
	struct env *env;
	struct store *store;
	struct engine *engine;
	struct nano *nano;
	struct node *node;
	struct api api;
	struct control *control;
	struct sock *sock, *status_sock;
	struct signal_watch term, intr, hup;
	struct timer watchdog, forced;
	uint64_t started_us;
	bool stopping;
	int exit_code;
};

/* --- log: journald takes the level from <N>, a person from the word */

static uint64_t wall_ms(void *arg)
{
	struct timespec t;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void to_stderr(void *arg, const struct log_line *l)
{
	static const int priority[] = { [LOG_DEBUG_] = 7, [LOG_INFO_] = 6, [LOG_WARN_] = 4, [LOG_ERROR_] = 3 };
	const struct app *a = arg;
	char at[40];

	if (a->to_journal)
		fprintf(stderr, "<%d>%s\n", priority[l->level], l->text);
	else
		fprintf(stderr, "%s %-7s %s\n", text_print_time(l->wall_ms, at, sizeof at), log_level_name(l->level), l->text);
}

/* --- 2. the loop */

static void clock_moved(void *arg, enum loop_clock what, int64_t by_us)
{
	static const struct { const char *kind, *text; } is[] = {
		[LOOP_WALL_JUMP] = { "clock.jump", "the wall clock jumped by" },
		[LOOP_SUSPEND] = { "clock.suspend", "the machine slept for" },
		[LOOP_STALL] = { "clock.stall", "the daemon did not get to run for" },
	};
	struct app *a = arg;

	log_write(a->log, LOG_WARN_, "main", "%s %+.3f s", is[what].text, (double)by_us / 1e6);
	if (a->store)
		store_event(a->store, LOG_WARN_, is[what].kind, NULL, NULL, NULL, "%s %+.3f s", is[what].text,
			(double)by_us / 1e6);
}

static uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

/* The engine comes first, while there is one thread: it settles the environment. */
static int up_loop(struct app *a, struct err *e)
{
	const struct conf *c = a->o.conf;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int threads = (int)conf_int(c, "compute", "threads");
	struct loop_conf lc = { .log = a->log, .clock = clock_moved, .clock_arg = a };

	threads = threads ? threads : cores > 2 ? (int)cores - 1 : 1;
	lc.train_threads = threads;
	lc.data_threads = (int)conf_int(c, "compute", "data_threads");
	a->engine = engine_new(a->log, threads, conf_str(c, "compute", "cpu"), e);
	if (!a->engine)
		return -1;
	a->loop = loop_new(&lc, e);
	if (!a->loop)
		return -1;
	a->env = loop_env(a->loop);
	a->env->files = files_real();
	a->env->log = a->log;
	a->started_us = env_now(a->env);
	return a->o.failpoints ? loop_failpoints(a->loop, a->o.failpoints, e) : 0;
}

/* --- 4. the store */

static int up_store(struct app *a, struct err *e)
{
	const struct conf *c = a->o.conf;
	char *path = xasprintf("%s/state.db", a->o.state_dir);
	struct store_opts so = { .path = path, .move_aside = a->o.move_corrupt_aside,
		.keep_ms = (uint64_t)conf_int(c, "store", "keep") / 1000,
		.keep_bytes = (uint64_t)conf_int(c, "store", "keep_size") };

	sd_say(&a->sd, "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=opening the database");
	a->store = store_open(a->env, &so, e);
	free(path);
	if (!a->store)
		return -1;
	a->env->shelf = store_shelf(a->store);
	return 0;
}

/* --- 5. transport and node */

static void told(void *arg, enum log_level level, const char *code, const char *text)
{
	const struct app *a = arg;

	log_write(a->log, level, "net", "%s: %s", code, text);
	store_event(a->store, level, code, NULL, NULL, NULL, "%s", text);
}

/* And says in *no where others can dial it. */
static int up_nano(struct app *a, struct node_opts *no, struct err *e)
{
	uint8_t listen[1 + NANO_ALSO][16];
	struct nano_conf nc;

	if (options_listen(a->o.conf, &nc, e) < 0)
		return -1;
	nc.told = told;
	nc.told_arg = a;
	a->nano = nano_new(a->loop, &nc, e);
	if (!a->nano || reach_self(a->o.conf, nano_endpoint(a->nano), &no->self, no->also, &no->nalso, e))
		return -1;
	memcpy(listen[0], nc.listen, 16);
	memcpy(listen[1], nc.also, sizeof nc.also);
	if (!nc.client && !*conf_str(a->o.conf, "network", "advertise"))        /* the operator's word is the only one */
		no->nalso = reach_others(listen, 1 + nc.nalso, nano_endpoint(a->nano), &no->self, no->also, NET_ALSO);
	return 0;
}

/* The configured swarm key, or the newer one that this daemon was told of while it ran. */
static int up_swarm_key(struct app *a, struct node_opts *no, const char *key_file, struct err *e)
{
	char *path = xasprintf("%s/" KEY_ROTATION_FILE, a->o.state_dir);
	bool stale = false;
	int rc = key_swarm(a->env, key_file, no->swarm_key, e);

	if (rc == 0)
		rc = key_rotation_apply(a->env, path, no->swarm_key, no->old_key, &no->old_key_us, &stale, e);
	if (rc == 0 && stale)
		log_write(a->log, LOG_WARN_, "main", "%s holds a swarm key that was replaced (hivectl key rotate): the newer "
			"one is used; put it into that file", key_file);
	free(path);
	return rc;
}

static int up_node(struct app *a, struct err *e)
{
	const struct conf *c = a->o.conf;
	const char *key_file = conf_str(c, "network", "swarm_key_file");
	struct node_opts no = { .conf = c, .store = a->store, .state_dir = a->o.state_dir, .version = HIVEMIND_VERSION,
		.compute = engine_compute(a->engine), .news = control_news, .news_arg = a->control, .heard = control_heard,
		.memory_bytes = machine_memory(), .hashes = HASHES_NEWEST, .moves = MOVES_ALL, .asks_names = true };
	char *id_file = xasprintf("%s/identity.key", a->o.state_dir);
	int rc = key_identity(a->env, id_file, no.seed, e);

	free(id_file);
	if (rc == 0 && *key_file)
		rc = up_swarm_key(a, &no, key_file, e);
	no.has_swarm_key = *key_file != '\0';
	no.njoin = conf_list(c, "network", "join", &no.join);
	if (rc == 0)
		rc = up_nano(a, &no, e);
	if (rc == 0) {
		a->node = node_new(a->env, &no, e);
		rc = a->node ? 0 : -1;
	}
	explicit_bzero(no.seed, sizeof no.seed);
	explicit_bzero(no.swarm_key, sizeof no.swarm_key);
	explicit_bzero(no.old_key, sizeof no.old_key);
	return rc;
}

/* --- 6. control */

static void stop(void *arg);
static json_t *told_loop(void *arg) { return loop_told(((struct app *)arg)->loop); }

/* What is refused leaves the limits as they were. */
static void reload_rates(struct app *a)
{
	uint64_t up, down;
	struct err e;

	if (options_rates(a->o.conf, &up, &down, &e) == 0)
		nano_set_rates(a->nano, up, down);
	else
		told(a, LOG_ERROR_, "config.refused", e.text);
}

static int reload(void *arg, json_t **ret_changed, struct err *e)
{
	struct app *a = arg;
	int rc;

	sd_say(&a->sd, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, env_now(a->env));
	rc = options_reload(&a->o, ret_changed, e);
	if (rc == 0) {
		log_set_min(a->log, (enum log_level)log_level_parse(conf_str(a->o.conf, "log", "level")));
		reload_rates(a);
		node_reload(a->node);
		log_write(a->log, LOG_INFO_, "main", "%s was read again", a->o.config);
	} else {
		log_write(a->log, LOG_ERROR_, "main", "not reloaded: %s", e->text);
		store_event(a->store, LOG_ERROR_, "config.refused", NULL, NULL, NULL, "%s", e->text);
	}
	sd_say(&a->sd, "READY=1");
	return rc;
}

static void fill_api(struct app *a)
{
	a->api = (struct api){ .arg = a->node, .status = node_status, .peers = node_peers, .dht_get = node_dht_get,
		.dht_put = node_dht_put, .dht_trace = node_dht_trace, .drain = node_drain, .model_list = zoo_list,
		.model_show = zoo_show, .flops = zoo_flops };
#define X(name) a->api.name = node_##name;
	NODE_RUN_OPS(X)
	NODE_NET_OPS(X)
#undef X
}

static int up_control(struct app *a, struct err *e)
{
	const struct conf *c = a->o.conf;
	const char *slash = strrchr(a->o.socket, '/');

	if (slash && slash != a->o.socket) {    /* systemd makes /run/hivemindd; a person who starts it by hand did not */
		char *dir = xasprintf("%.*s", (int)(slash - a->o.socket), a->o.socket);

		if (mkdir(dir, 0755) < 0 && errno != EEXIST)
			log_write(a->log, LOG_DEBUG_, "main", "%s: %s", dir, strerror(errno));  /* bind says it better */
		free(dir);
	}
	a->sock = sock_open(a->loop, a->control, a->o.socket, conf_str(c, "control", "group"), false, e);
	if (!a->sock)
		return -1;
	if (!a->o.status_socket)
		return 0;
	a->status_sock = sock_open(a->loop, a->control, a->o.status_socket, conf_str(c, "control", "status_group"),
		true, e);
	return a->status_sock ? 0 : -1;
}

/* --- signals, watchdog, the end */

static void stop_now(struct app *a)
{
	env_timer(a->env, &a->forced, 0);
	loop_stop(a->loop);
}

static void drained(void *arg)
{
	struct app *a = arg;

	log_write(a->log, LOG_INFO_, "main", "drained");
	stop_now(a);
}

static void too_late(struct timer *t)
{
	struct app *a = container_of(t, struct app, forced);

	log_write(a->log, LOG_WARN_, "main", "draining took too long; stopping without it");
	stop_now(a);
}

/* The first time it drains; asked again it stops at once. */
static void stop(void *arg)
{
	struct app *a = arg;
	uint64_t limit = (uint64_t)conf_int(a->o.conf, "daemon", "stop_timeout");
	uint64_t spare = limit > 2 * FORCED_US ? FORCED_US : limit / 2;

	if (a->stopping) {
		stop_now(a);
		return;
	}
	a->stopping = true;
	log_write(a->log, LOG_INFO_, "main", "stopping");
	sd_say(&a->sd, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=draining", limit + FORCED_US);
	env_after(a->env, &a->forced, limit);
	node_stop(a->node, env_now(a->env) + limit - spare, drained, a);
}

static void on_term(struct signal_watch *s)
{
	stop(container_of(s, struct app, term));
}

static void on_int(struct signal_watch *s)
{
	stop(container_of(s, struct app, intr));
}

static void on_hup(struct signal_watch *s)
{
	struct err e;

	reload(container_of(s, struct app, hup), NULL, &e);     /* what is wrong was logged */
}

static void feed_watchdog(struct timer *t)
{
	struct app *a = container_of(t, struct app, watchdog);

	sd_say(&a->sd, "WATCHDOG=1");
	env_after(a->env, t, a->sd.watchdog_us / 3);
}

static void up_signals(struct app *a)
{
	a->term = (struct signal_watch){ .signo = SIGTERM, .name = "SIGTERM", .caught = on_term };
	a->intr = (struct signal_watch){ .signo = SIGINT, .name = "SIGINT", .caught = on_int };
	a->hup = (struct signal_watch){ .signo = SIGHUP, .name = "SIGHUP", .caught = on_hup };
	loop_watch_signal(a->loop, &a->term);
	loop_watch_signal(a->loop, &a->intr);
	loop_watch_signal(a->loop, &a->hup);
	a->watchdog = (struct timer){ .fire = feed_watchdog, .name = "watchdog" };
	a->forced = (struct timer){ .fire = too_late, .name = "forced stop" };
	if (a->sd.watchdog_us)
		env_after(a->env, &a->watchdog, 1);
}

static int app_up(struct app *a, struct err *e)
{
	struct cmd_ctx cx = { .log = a->log, .conf = a->o.conf, .version = HIVEMIND_VERSION, .socket = a->o.socket,
		.state_dir = a->o.state_dir, .stop = stop, .reload = reload, .loop = told_loop, .main = a };

	if (files_state_take(a->o.state_dir, a->log, &a->lock_fd, e) < 0 || up_loop(a, e) < 0 || up_store(a, e) < 0)
		return -1;
	cx.env = a->env;
	cx.store = a->store;
	cx.started_us = a->started_us;
	a->control = control_new(&cx);
	if (up_node(a, e) < 0)
		return -1;
	fill_api(a);
	control_set_api(a->control, &a->api);
	if (up_control(a, e) < 0)
		return -1;
	up_signals(a);
	return 0;
}

static void app_down(struct app *a)
{
	if (a->control)
		control_set_api(a->control, NULL);
	node_free(a->node);             /* first: answers what it still owes, and news may still reach followers */
	sock_close(a->status_sock);
	sock_close(a->sock);
	if (a->loop) {
		loop_unwatch_signal(&a->term);
		loop_unwatch_signal(&a->intr);
		loop_unwatch_signal(&a->hup);
		env_timer(a->env, &a->watchdog, 0);
		env_timer(a->env, &a->forced, 0);
	}
	control_free(a->control);
	nano_free(a->nano);
	if (a->loop)
		a->env->ops->detach(a->env);
	store_free(a->store);
	loop_free(a->loop);
	engine_free(a->engine);
	log_free(a->log);
	if (a->lock_fd >= 0)
		close(a->lock_fd);
}

static void say_ready(struct app *a)
{
	char at[ENDPOINT_TEXT];
	const char *listen = endpoint_text(nano_endpoint(a->nano), CHAN_CTRL, at);

	if (conf_bool(a->o.conf, "network", "client"))
		listen = "nothing (client)";
	log_write(a->log, LOG_INFO_, "main", "hivemindd %s ready: listening on %s, socket %s", HIVEMIND_VERSION,
		listen, a->o.socket);
	sd_say(&a->sd, "READY=1\nSTATUS=listening on %s", listen);
}

static int run(struct app *a)
{
	struct err e = { 0 };
	int rc = app_up(a, &e);

	if (rc == 0) {
		say_ready(a);
		loop_run(a->loop);
		log_write(a->log, LOG_INFO_, "main", "stopped");
	} else {
		log_write(a->log, LOG_ERROR_, "main", "not started: %s", e.text);
		if (a->store)
			store_event(a->store, LOG_ERROR_, "start.failed", NULL, NULL, NULL, "%s", e.text);
	}
	app_down(a);
	return rc == 0 ? 0 : e.code == ERR_INVALID || e.code == ERR_AUTH ? EXIT_CONFIG : 1;
}

/* What the rows of the configuration cannot know; before anything is made. */
static int check(const struct options *o, struct err *e)
{
	struct nano_conf nc;
	struct kerr ke = { 0 };
	enum cpu cpu;

	if (options_listen(o->conf, &nc, e) < 0 || reach_check_conf(o->conf, e) < 0 || joins_check(o->conf, e) < 0 ||
	    node_net_check_conf(o->conf, e) < 0)
		return -1;
	if (cpu_pick(conf_str(o->conf, "compute", "cpu"), &cpu, &ke) < 0)
		return err_set(e, ERR_INVALID, "%s: [compute] cpu: %s", conf_origin(o->conf, "compute", "cpu"), ke.text);
	return 0;
}

int main(int argc, char **argv)
{
	struct app a = { .lock_fd = -1 };
	struct err e = { 0 };
	enum options_what what;
	int rc = 0;

	json_set_alloc_funcs(xmalloc, free);    /* JSON is small: without memory for it the daemon ends, as for the rest */
	key_keep();
	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && strcmp(argv[1], "--replay") == 0)
		return replay_cmd(argc - 1, argv + 1);
	umask(0027);                    /* what the daemon writes is not for everybody */
	what = options_read(&a.o, argc, argv, &e);
	if (what == OPTIONS_RUN && check(&a.o, &e) < 0)
		what = OPTIONS_CONFIG;
	if (what == OPTIONS_USAGE || what == OPTIONS_CONFIG) {
		fprintf(stderr, "hivemindd: %s\n", e.text);
		rc = EXIT_CONFIG;
	} else if (what == OPTIONS_RUN && a.o.check_only) {
		printf("%s: ok\n", a.o.config ? a.o.config : "no configuration file");
	} else if (what == OPTIONS_RUN) {
		sd_init(&a.sd);
		a.to_journal = getenv("JOURNAL_STREAM") != NULL;
		a.log = log_new((size_t)conf_int(a.o.conf, "log", "lines"),
			(enum log_level)log_level_parse(conf_str(a.o.conf, "log", "level")), wall_ms, NULL);
		log_sink(a.log, to_stderr, &a);
		rc = run(&a);
		sd_done(&a.sd);
	}
	options_done(&a.o);
	return rc;
}
