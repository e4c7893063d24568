/* Commands: what hivectl can ask. One file per command in cmd/, one line CMD(name) in cmd/list.h; the row gives
 * parameter checking, help, completion and how hivectl prints it. The daemon owns the table, hivectl asks for it.
 *
 * Example: cmd/peers.c
 *   static const struct cmd_param params[] = { { "all", CMD_BOOL, 0, "also those not seen for a day" }, { NULL } };
 *   static void run(struct cmd_call *c) { cmd_forward(c, c->ctx->api->peers); }
 *   const struct cmd cmd_peers = { "peers", "who is in the swarm", params, CMD_VIEW, "peers", run };      */
#ifndef CONTROL_CMD_H
#define CONTROL_CMD_H
#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "common/conf.h"
#include "common/log.h"
#include "control/api.h"
#include "env.h"

enum cmd_type {
	CMD_STR, CMD_INT, CMD_NUM, CMD_BOOL,
	CMD_DURATION,           /* sent as seconds (number) */
	CMD_JSON,               /* any JSON value; a word that is not JSON is sent as a string */
	CMD_FILE,               /* a JSON file that hivectl reads; sent as the object in it */
	CMD_SPEC,               /* a word, or a JSON file of that name: sent as a string or as the object in it */
	CMD_PAIRS,              /* key=value words, sent as an object */
	CMD_PATHS,              /* words that are files, sent as an array of absolute paths */
};
enum { CMD_REQUIRED = 1, CMD_REST = 2 /* takes the remaining words, joined by blanks */,
	CMD_OPTION = 4 /* only as --name, never by position; CMD_BOOL always is */ };
/* ends with name == NULL */
struct cmd_param { const char *name; enum cmd_type type; unsigned flags; const char *help; };

enum { CMD_VIEW = 1 /* allowed on status.sock */, CMD_STREAM = 2 /* notifications follow the reply */,
	CMD_ASK = 4 /* hivectl asks yes or no on a terminal, and demands --yes elsewhere; before that it asks the daemon,
		by the boolean parameter `check` which such a command has, whether there is anything to ask about */,
	CMD_ALONE = 8 /* costly: one at a time of a connection, CONTROL_ALONE_MAX in all (control.h) */ };

struct control;
struct store;
/* What commands may use. All borrowed from main, live as long as the control room. */
struct cmd_ctx {
	struct env *env;
	const struct api *api;
	struct store *store;            /* may be NULL */
	struct conf *conf;
	struct log *log;
	struct control *control;
	const char *version, *socket, *state_dir;
	uint64_t started_us;
	void (*stop)(void *arg);        /* drain and end the daemon */
	int (*reload)(void *arg, json_t **ret_changed, struct err *e);
	json_t *(*loop)(void *arg);     /* how long callbacks hold it; NULL: status does not say */
	void *main;                     /* arg of these three */
};

struct client;                      /* one connection (control.h) */
struct cmd_call {
	const struct cmd_ctx *ctx;
	struct client *client;
	const json_t *params;           /* checked against the row */
	struct reply *reply;
};

struct cmd {
	const char *name;               /* "run start"; the method is "run.start" */
	const char *help;               /* one line */
	const struct cmd_param *params;
	unsigned flags;
	/* What people are shown: KEY of the reply (table or text), KEY:COLUMN,COLUMN of a table, :KEY,KEY;
	 * NULL: all of it. */
	const char *print;
	void (*run)(struct cmd_call *c);
};

const struct cmd *const *cmd_table(void);               /* NULL-terminated, in the order of cmd/list.h */
const struct cmd *cmd_find(const char *method);         /* "run.start"; NULL when unknown */
/* Types, required and unknown keys; the error names the parameter and the nearest known one. */
int cmd_check(const struct cmd *c, const json_t *params, struct err *e);
/* {name, method, help, view, stream, ask, print, params: [...]} */
json_t *cmd_json(const struct cmd *c);
/* Hands the call to a function of the api; NULL answers ERR_NO_METHOD. */
void cmd_forward(struct cmd_call *c, api_fn *fn);
void cmd_fail(struct cmd_call *c, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
