/* Whole nodes in a run, of whom one hears what the others say changed on the way (crooked.h): the list and the
 * pieces of a state (RUN_STATE, asked and answered), the author's words (RUN_CTL), where data differs (RUN_DATA).
 * Node 0 begins the run, node 1 takes part, node 2 comes later and downloads the state. First byte of the input:
 * who hears it (bits 0 and 1: 0 and 1 that node, else node 2), that node 2 has other data (bit 2), that the author
 * says pause and resume (bit 3), that what averagers say is changed, too (bit 4). Everybody can be asked what it
 * does, and the newcomer gets there all the same. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "crooked.h"
#include "node_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NEWCOMER 2
#define LATE_US (40 * SEC)

static const char spec[] = "{\"name\": \"f\", \"input\": [4], \"model\": [{\"type\": \"sleep\", \"fwd_ms\": 250}, "
	"{\"type\": \"linear\", \"out\": 700}, {\"type\": \"linear\", \"out\": 3}], \"loss\": \"cross_entropy\", "
	"\"target_batch\": 4, \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01}, \"strategy\": \"hivemind\", "
	"\"validation\": {\"every\": 0}, \"data\": {\"name\": \"x\", \"kind\": \"csv\"}, \"stop\": {\"epochs\": 1000}, "
	"\"local\": {\"batch\": 1, \"data\": \"/x\"}}";

struct asked { struct reply r; struct node_world *w; int node; bool busy, done; };

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the machine ---- */

static void put_file(struct env *env, const char *path, const char *text)
{
	struct files *f = env->files;
	struct err e;
	int fd = f->open(f, path, O_WRONLY | O_CREAT | O_TRUNC, 0600, &e);

	check(fd >= 0 && !f->pwrite(f, fd, text, strlen(text), 0, &e) && !f->fsync(f, fd, &e) && !f->close(f, fd, &e));
}

static bool other_data;

static void born(struct node_world *w, struct node_peer *p)
{
	struct err e;

	p->env->files->mkdir(p->env->files, "/x", 0700, &e);
	put_file(p->env, "/x/train.csv", "1,2,3,4,0\n2,3,4,5,1\n3,4,5,6,2\n4,5,6,7,1\n"
		"5,6,7,8,0\n6,7,8,9,2\n7,8,9,1,0\n8,9,1,2,1\n");
	put_file(p->env, "/x/val.csv", other_data ? "1,2,3,4,1\n" : "1,2,3,4,0\n");
}

static struct net *net_of(void *arg)
{
	struct asked *a = arg;
	struct node_peer *p = node_peer(a->w, a->node);

	return p ? node_net(p->node) : NULL;
}

/* ---- operators ---- */

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct asked *a = container_of(r, struct asked, r);

	check(result ? json_is_object(result) : e && e->text[0]);
	json_decref(result);
	a->busy = false;
	a->done = !e;
}

static void ask(struct asked *a, node_ask_fn *fn, json_t *params)
{
	struct node_peer *p = node_peer(a->w, a->node);

	a->busy = true;
	fn(p->node, params, &a->r);
	json_decref(params);
}

static json_t *join(void)
{
	return json_pack("{s:s,s:i,s:s}", "run", "f", "batch", 1, "data", "/x");
}

static bool trains(struct node_world *w, int node)
{
	struct run *r = node_run(w, node);

	return r && r->state == RUN_TRAIN && r->point.epoch && !r->sync;
}

static bool is_in(struct sim *s, void *arg)
{
	struct asked *a = arg;

	return trains(a->w, a->node);
}

static void look(struct node_world *w)
{
	struct err e;

	for (int i = 0; i <= NEWCOMER; i++) {
		struct run *r = node_peer(w, i) ? node_run(w, i) : NULL;
		json_t *j = r ? run_json_all(r) : json_null();

		check(j != NULL);
		json_decref(j);
		j = node_peer(w, i) ? node_ask(w, i, node_status, json_object(), &e) : json_null();
		check(j != NULL);
		json_decref(j);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size ? data[0] : 0;
	struct sim *s = sim_new(1);
	struct node_world *w = node_world_new(s, NULL);
	struct asked a[3], word;
	int who = (how & 3) < NEWCOMER ? how & 3 : NEWCOMER;

	for (int i = 0; i < 3; i++)
		a[i] = (struct asked){ .r = { answered }, .w = w, .node = i };
	word = a[0];
	w->born = born;
	other_data = false;
	node_world_add(w, 2);
	sim_run_for(s, SEC / 2);
	ask(&a[0], node_run_start, json_pack("{s:o}", "spec", json_loads(spec, 0, NULL)));
	sim_run_for(s, SEC / 2);
	ask(&a[1], node_run_join, join());
	check(sim_run_until(s, is_in, &a[1], 20 * SEC));
	struct crooked *c = crooked_new(s, net_of, &a[who], how & 16 ? KIND_AVG_JOIN : KIND_RUN_STATE, KIND_RUN_DATA,
		size ? data + 1 : data, size ? size - 1 : 0);
	other_data = how & 4;
	node_world_add(w, 1);
	sim_run_for(s, SEC / 2);
	ask(&a[NEWCOMER], node_run_join, join());
	for (int i = 0; i < 20; i++) {
		sim_run_for(s, SEC / 10);
		if (how & 8 && (i == 2 || i == 8) && !word.busy)
			ask(&word, i == 2 ? node_run_pause : node_run_resume, json_pack("{s:s}", "run", "f"));
		if (i > 9 && crooked_over(c))
			break;
	}
	look(w);
	if (!(how & (4 | 16)))
		check(sim_run_until(s, is_in, &a[NEWCOMER], LATE_US));
	check(!sim_failed(s));
	node_world_free(w);
	sim_free(s);
	crooked_free(c);
	return 0;
}
