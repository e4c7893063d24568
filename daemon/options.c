/* Reads the command line over the configuration file over the defaults, and decides where state and sockets are. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/mem.h"
#include "rows.h"

#define CONFIG_DEFAULT "/etc/hivemindd/hivemindd.conf"

enum { OPT_CONFIG = 256, OPT_STATE, OPT_SOCKET, OPT_LISTEN, OPT_ADVERTISE, OPT_JOIN, OPT_KEY, OPT_CLIENT,
	OPT_CHECK, OPT_ASIDE, OPT_LEVEL, OPT_REPLAY,
	OPT_VERSION, OPT_FPS, OPT_FP, OPT_HELP };

static const struct option longs[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "state-dir", required_argument, NULL, OPT_STATE },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "advertise", required_argument, NULL, OPT_ADVERTISE },
	{ "join", required_argument, NULL, OPT_JOIN },
	{ "swarm-key-file", required_argument, NULL, OPT_KEY },
	{ "client", no_argument, NULL, OPT_CLIENT },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "move-corrupt-aside", no_argument, NULL, OPT_ASIDE },
	{ "log-level", required_argument, NULL, OPT_LEVEL },
	{ "replay", no_argument, NULL, OPT_REPLAY },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "list-failpoints", no_argument, NULL, OPT_FPS },
	{ "failpoint", required_argument, NULL, OPT_FP },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};

static const char help_text[] =
	"usage: hivemindd [--config FILE] [--state-dir DIR] [--socket PATH] [--listen ADDRESS:PORT]\n"
	"                 [--advertise HOST,...] [--join HOST:PORT]... [--swarm-key-file FILE] [--client]\n"
	"                 [--log-level LEVEL] [--move-corrupt-aside]\n"
	"       hivemindd --check-config [--config FILE]\n"
	"       hivemindd --replay [--data PATH] [--vocab FILE] [--json] LOG|FOLDER...\n"
	"       hivemindd --version | --list-failpoints | --help\n"
	"Runs in the foreground; hivectl talks to it. See hivemindd(8) and hivemindd.conf(5).\n";

static void list_failpoints(void)
{
#define FP(name) puts(name);
#include "failpoints.h"
#undef FP
#ifndef FAILPOINTS
	fputs("this build has none of them compiled in (meson -Dfailpoints=true)\n", stderr);
#endif
}

/* What the command line says waits until the file has been read; the file never replaces it ("--" origins win). */
struct given { const char *section, *key, *origin; char *value; };
struct line { struct given v[8]; size_t n; char *join; const char *config; bool config_given; };

static void give(struct line *l, const char *section, const char *key, const char *origin, const char *value)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->v[i].origin, origin) == 0) {
			free(l->v[i].value);
			l->v[i].value = xstrdup(value);
			return;
		}
	l->v[l->n++] = (struct given){ section, key, origin, xstrdup(value) };
}

static void give_join(struct line *l, const char *value)
{
	char *all = l->join ? xasprintf("%s %s", l->join, value) : xstrdup(value);

	free(l->join);
	l->join = all;
}

static enum options_what take(struct options *o, struct line *l, int c, struct err *e)
{
	switch (c) {
	case OPT_CONFIG: l->config = optarg; l->config_given = true; break;
	case OPT_STATE: free(o->state_dir); o->state_dir = xstrdup(optarg); break;
	case OPT_SOCKET: give(l, "control", "socket", "--socket", optarg); break;
	case OPT_LISTEN: give(l, "network", "listen", "--listen", optarg); break;
	case OPT_ADVERTISE: give(l, "network", "advertise", "--advertise", optarg); break;
	case OPT_KEY: give(l, "network", "swarm_key_file", "--swarm-key-file", optarg); break;
	case OPT_CLIENT: give(l, "network", "client", "--client", "yes"); break;
	case OPT_LEVEL: give(l, "log", "level", "--log-level", optarg); break;
	case OPT_JOIN: give_join(l, optarg); break;
	case OPT_CHECK: o->check_only = true; break;
	case OPT_ASIDE: o->move_corrupt_aside = true; break;
	case OPT_REPLAY:
		err_set(e, ERR_INVALID, "--replay comes first: hivemindd --replay --help");
		return OPTIONS_USAGE;
	case OPT_VERSION: printf("hivemindd %s\n", HIVEMIND_VERSION); return OPTIONS_EXIT;
	case OPT_FPS: list_failpoints(); return OPTIONS_EXIT;
	case OPT_HELP: fputs(help_text, stdout); return OPTIONS_EXIT;
	case OPT_FP:
#ifdef FAILPOINTS
		free(o->failpoints);
		o->failpoints = xstrdup(optarg);
		break;
#else
		err_set(e, ERR_INVALID, "--failpoint: this build has no fail points (meson -Dfailpoints=true)");
		return OPTIONS_USAGE;
#endif
	default:
		err_set(e, ERR_INVALID, "unknown option %s", optind > 0 ? "(see --help)" : "");
		return OPTIONS_USAGE;
	}
	return OPTIONS_RUN;
}

static int load(struct options *o, const struct line *l, struct err *e)
{
	const char *path = l->config ? l->config : CONFIG_DEFAULT;

	o->conf = conf_new(conf_rows);
	for (size_t i = 0; i < l->n; i++)
		if (conf_set(o->conf, l->v[i].section, l->v[i].key, l->v[i].value, l->v[i].origin, e) < 0)
			return -1;
	if (l->join && conf_set(o->conf, "network", "join", l->join, "--join", e) < 0)
		return -1;
	if (!l->config_given && access(path, F_OK) != 0)
		return 0;
	o->config = xstrdup(path);
	if (conf_load(o->conf, path, e) < 0)
		return -1;
	if (log_level_parse(conf_str(o->conf, "log", "level")) < 0)
		return err_set(e, ERR_INVALID, "%s: [log] level: debug, info, warn or error, not %.60s",
			conf_origin(o->conf, "log", "level"), conf_str(o->conf, "log", "level"));
	return 0;
}

/* --state-dir, else systemd's StateDirectory=, else the user's. */
static int place_state(struct options *o, struct err *e)
{
	const char *unit = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (o->state_dir)
		return 0;
	if (unit && *unit)
		o->state_dir = xasprintf("%.*s", (int)strcspn(unit, ":"), unit);
	else if (geteuid() == 0)
		o->state_dir = xstrdup("/var/lib/hivemindd");
	else if (xdg && *xdg == '/')
		o->state_dir = xasprintf("%s/hivemindd", xdg);
	else if (home && *home == '/')
		o->state_dir = xasprintf("%s/.local/state/hivemindd", home);
	else
		return err_set(e, ERR_INVALID, "there is no HOME: say --state-dir DIR");
	return 0;
}

/* DIR/control.sock gives DIR/status.sock, DIR/x.sock gives DIR/x-status.sock. */
static char *beside(const char *socket)
{
	const char *slash = strrchr(socket, '/'), *name = slash ? slash + 1 : socket;
	size_t n = strlen(name);

	if (strcmp(name, "control.sock") == 0)
		return xasprintf("%.*sstatus.sock", (int)(name - socket), socket);
	n -= n > 5 && strcmp(name + n - 5, ".sock") == 0 ? 5 : 0;
	return xasprintf("%.*s-status.sock", (int)((size_t)(name - socket) + n), socket);
}

static void place_sockets(struct options *o, bool state_given)
{
	const char *unit = getenv("RUNTIME_DIRECTORY"), *want = conf_str(o->conf, "control", "socket");
	const char *view = conf_str(o->conf, "control", "status_socket");

	if (*want)
		o->socket = xstrdup(want);
	else if (unit && *unit && !state_given)
		o->socket = xasprintf("%.*s/control.sock", (int)strcspn(unit, ":"), unit);
	else if (geteuid() == 0 && !state_given)
		o->socket = xstrdup("/run/hivemindd/control.sock");
	else
		o->socket = xasprintf("%s/control.sock", o->state_dir);
	if (strcmp(view, "none") == 0)
		o->status_socket = NULL;
	else
		o->status_socket = *view ? xstrdup(view) : beside(o->socket);
}

enum options_what options_read(struct options *o, int argc, char **argv, struct err *e)
{
	enum options_what what = OPTIONS_RUN;
	struct line l = { 0 };
	bool state_given;
	int c;

	memset(o, 0, sizeof *o);
	while (what == OPTIONS_RUN && (c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		what = take(o, &l, c, e);
	if (what == OPTIONS_RUN && optind < argc) {
		err_set(e, ERR_INVALID, "%s: only options are expected (see --help)", argv[optind]);
		what = OPTIONS_USAGE;
	}
	state_given = o->state_dir != NULL;
	if (what == OPTIONS_RUN && (load(o, &l, e) < 0 || place_state(o, e) < 0))
		what = OPTIONS_CONFIG;
	if (what == OPTIONS_RUN)
		place_sockets(o, state_given);
	for (size_t i = 0; i < l.n; i++)
		free(l.v[i].value);
	free(l.join);
	return what;
}

int options_reload(struct options *o, json_t **ret_changed, struct err *e)
{
	if (!o->config)
		return err_set(e, ERR_STATE, "the daemon was started without a configuration file (%s is not there)",
			CONFIG_DEFAULT);
	return conf_reload(o->conf, o->config, ret_changed, e);
}

void options_done(struct options *o)
{
	conf_free(o->conf);
	free(o->config);
	free(o->state_dir);
	free(o->socket);
	free(o->status_socket);
	free(o->failpoints);
	memset(o, 0, sizeof *o);
}
