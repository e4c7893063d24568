/* generate: continues a text with a run's weights of the moment; the text follows the answer piece by piece. */
#include "control/cmd.h"

#include <stdlib.h>

#include "common/list.h"
#include "common/mem.h"
#include "control/control.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "prompt", CMD_STR, CMD_OPTION, "the text to continue (default: a line's end), or to answer" },
	{ "tokens", CMD_INT, CMD_OPTION, "so many tokens (default 200); fewer when the model ends its text" },
	{ "temperature", CMD_NUM, CMD_OPTION, "0: always the likeliest token; 1: as the model says (default 0.8)" },
	{ "top_k", CMD_INT, CMD_OPTION, "among so many of the likeliest tokens (default: all)" },
	{ "seed", CMD_INT, CMD_OPTION, "the same seed, weights and words: the same text" },
	{ NULL, 0, 0, NULL }
};

/* Stands between the node's answer and the client's: the answer says what is to be followed. */
struct starting { struct reply reply; struct reply *outer; struct control *control; };

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct starting *s = container_of(r, struct starting, reply);
	const char *id = json_string_value(json_object_get(result, "generate"));
	struct err why;

	if (e)
		reply_fail(s->outer, e);
	else if (id && control_follow(s->control, s->outer, "generate", id, &why) < 0) {
		json_decref(result);
		reply_fail(s->outer, &why);
	} else
		reply_ok(s->outer, result);
	free(s);
}

static void run(struct cmd_call *c)
{
	struct starting *s;

	if (!c->ctx->api || !c->ctx->api->generate) {
		cmd_forward(c, NULL);
		return;
	}
	s = xcalloc(1, sizeof *s);
	s->reply.done = answered;
	s->outer = c->reply;
	s->control = c->ctx->control;
	c->ctx->api->generate(c->ctx->api->arg, c->params, &s->reply);
}

const struct cmd cmd_generate = { "generate", "continue a text with a run's weights of the moment", params, CMD_STREAM,
	NULL, run };
