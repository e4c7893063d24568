/* What five liars among sixteen do to what the others learn: a small network on MNIST, averaged in the simulated world
 * with averaging.robust, once with all honest and once with liars that tell every lie of tests/sim/liar.h, for several
 * seeds. usage: liars FOLDER [SEEDS [EPOCHS [ROBUST]]], FOLDER has MNIST's four files. Prints
 * JSON; without data it says so and ends with 77. Left out: the lies of "crowd", which are not in the gate either. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "check.h"
#include "liar.h"
#include "usage.h"

#define PEERS 16
#define LIARS 5
#define IN 784
#define HID 32
#define OUT 10
#define LEN (IN * HID + HID + HID * OUT + OUT)
#define LR 0.3f

struct set { uint8_t *x, *y; size_t n; };
static struct set train, test;

static uint8_t *idx(const char *folder, const char *name, size_t head, size_t *ret_n)
{
	char path[1024];
	uint8_t h[16];
	snprintf(path, sizeof path, "%s/%s.gz", folder, name);
	gzFile f = gzopen(path, "rb");
	if (!f || gzread(f, h, (unsigned)head) != (int)head) {
		printf("skipped: %s is not there\n", path);
		return NULL;
	}
	size_t n = (size_t)h[4] << 24 | (size_t)h[5] << 16 | (size_t)h[6] << 8 | h[7], each = head == 16 ? IN : 1;
	uint8_t *p = malloc(n * each);
	if (!p || gzread(f, p, (unsigned)(n * each)) != (int)(n * each))
		abort();
	gzclose(f);
	*ret_n = n;
	return p;
}

/* ---- the network: w1[HID][IN], b1, w2[OUT][HID], b2 ---- */

static void forward(const float *m, const uint8_t *x, float *in, float *h, float *o)
{
	const float *b1 = m + IN * HID, *w2 = b1 + HID, *b2 = w2 + HID * OUT;
	float most = -1e30f, sum = 0;
	for (int i = 0; i < IN; i++)
		in[i] = (float)x[i] / 255;
	for (int j = 0; j < HID; j++) {
		float v = b1[j];
		for (int i = 0; i < IN; i++)
			v += m[j * IN + i] * in[i];
		h[j] = v > 0 ? v : 0;
	}
	for (int k = 0; k < OUT; k++) {
		o[k] = b2[k];
		for (int j = 0; j < HID; j++)
			o[k] += w2[k * HID + j] * h[j];
		most = o[k] > most ? o[k] : most;
	}
	for (int k = 0; k < OUT; k++)
		sum += o[k] = expf(o[k] - most);
	for (int k = 0; k < OUT; k++)
		o[k] /= sum;
}

static void gradient(struct world *w, const struct ranges *claimed, const float *m, float *g)
{
	const float *w2 = m + IN * HID + HID;
	float in[IN], h[HID], o[OUT], *g1 = g + IN * HID, *g2 = g1 + HID, *gb = g2 + HID * OUT, n = 0;
	memset(g, 0, LEN * sizeof *g);
	for (size_t r = 0; r < claimed->n; r++)
		for (uint64_t pos = claimed->v[r].lo; pos < claimed->v[r].hi; pos++, n++) {
			size_t s = rng_at(sim_seed(w->s), pos) % train.n;
			forward(m, train.x + s * IN, in, h, o);
			o[train.y[s]] -= 1;
			for (int k = 0; k < OUT; k++) {
				gb[k] += o[k];
				for (int j = 0; j < HID; j++)
					g2[k * HID + j] += o[k] * h[j];
			}
			for (int j = 0; j < HID; j++) {
				float d = 0;
				for (int k = 0; k < OUT && h[j] > 0; k++)
					d += o[k] * w2[k * HID + j];
				g1[j] += d;
				for (int i = 0; i < IN && d != 0; i++)
					g[j * IN + i] += d * in[i];
			}
		}
	for (int k = 0; k < LEN; k++)
		g[k] /= n;
}

static void learn(struct world *w, const float *mean, float *m)
{
	for (int k = 0; k < LEN; k++)
		m[k] -= LR * mean[k];
}

static double accuracy(const float *m)
{
	float in[IN], h[HID], o[OUT];
	size_t right = 0;
	for (size_t s = 0; s < test.n; s++) {
		int best = 0;
		forward(m, test.x + s * IN, in, h, o);
		for (int k = 1; k < OUT; k++)
			best = o[k] > o[best] ? k : best;
		right += best == test.y[s];
	}
	return 100.0 * (double)right / (double)test.n;
}

/* ---- the liars ---- */

struct swarm { struct world *w; struct liar liar[LIARS]; void (*twist[3])(struct world *w, int node, float *x);
	void (*claims)(struct world *w, int node, struct ranges *c, uint64_t *samples); uint64_t said; };
static struct swarm *now;                       /* the world's user is whichever liar speaks */

static struct liar *liar_of(int node)
{
	return node < PEERS - LIARS ? NULL : &now->liar[node - (PEERS - LIARS)];
}

static void twist(struct world *w, int node, float *x)
{
	struct liar *l = liar_of(node);
	if (!l)
		return;
	w->user = l;
	now->twist[lie_draw(l, 8) ? (node % 2) : 2](w, node, x);
}

static void claims(struct world *w, int node, struct ranges *c, uint64_t *samples)
{
	struct liar *l = liar_of(node);
	if (!l || lie_draw(l, 4))
		return;
	w->user = l;
	now->claims(w, node, c, samples);
}

static int nobody_may(struct world *w, const struct id *author, const json_t *patch, struct err *e)
{
	return err_set(e, ERR_AUTH, "nobody may");
}

/* Signatures that are wrong have it banned: only the first tells those, so that the others' lies go on. */
static void lie_once(struct liar *l, bool first)
{
	static const struct lie *const tables[] = { lies_lead, lies_past, lies_round };
	const struct lie *row[64];
	size_t n = 0;
	for (size_t t = 0; t < 3; t++)
		for (const struct lie *x = tables[t]; x->message; x++)
			if (x->tell && strcmp(x->message, "crowd") && (!x->banned || first))
				row[n++] = x;
	const struct lie *x = row[lie_draw(l, n)];
	bool leads = is_leader(l->e->avg);
	if ((x->roles & LEADER) ? !leads : leads)
		return;
	l->lie = x;
	for (int k = 0; k < 3; k++)
		x->tell(l, world_peer(l->w, (int)lie_draw(l, PEERS - LIARS)));
}

static void begin_lying(struct swarm *s)
{
	for (int i = 0; i < LIARS; i++) {
		struct liar *l = &s->liar[i];
		*l = (struct liar){ .w = s->w, .s = s->w->s, .node = PEERS - LIARS + i, .role = MEMBER };
		l->e = world_peer(s->w, l->node);
		rng_seed(&l->rng, sim_seed(s->w->s) * 100 + (uint64_t)i);
		for (const struct lie *x = lies_round; x->message && !i; x++) {
			if (!strcmp(x->message, "mean")) {
				x->begin(l);
				s->twist[x->name[0] == 'l' ? 0 : x->name[0] == 'f' ? 1 : 2] = s->w->twist;
			} else if (!strcmp(x->name, "claims")) {
				x->begin(l);
				s->claims = s->w->claims;
			}
		}
		for (const struct lie *x = lies_past; x->message && i == 2; x++)
			if (x->begin && !strcmp(x->name, "me"))
				x->begin(l);            /* SHOW and JOIN are answered with what is made up */
		for (const struct lie *x = lies_round; x->message && i == 1; x++)
			if (x->begin && !strcmp(x->name, "answers"))
				x->begin(l);            /* every ATTEMPT with a complaint */
		for (const struct lie *x = lies_lead; x->message && i == 0; x++)
			if (x->begin && !strcmp(x->name, "hashes"))
				x->begin(l);            /* or with hashes of nothing */
		l->e->dead = true;              /* nobody waits for what it holds itself */
	}
	s->w->twist = twist;
	s->w->claims = claims;
}

/* ---- one run ---- */

struct result { double accuracy; unsigned bans; size_t heap; uint64_t seconds, epochs, said; const char *failed; };

static void one(uint64_t seed, uint64_t epochs, enum robust robust, bool lies, struct result *ret)
{
	struct sim *s = sim_new(seed);
	struct world *w = world_new(s, LEN, PEERS * 32, 32, 10 * MSEC);
	struct swarm swarm = { .w = w };
	struct rng rng;
	now = &swarm;
	w->start_us = 3 * SEC;
	w->conf.robust = robust;
	w->conf.part_min = 1024;
	w->slack = 1e30;                        /* means are robust: not those of the samples */
	w->gradient = gradient;
	w->learn = learn;
	w->may = nobody_may;
	w->forks_allowed = true;                /* whoever is banned goes on alone */
	w->lawless = lies ? PEERS : -1;         /* somebody may be called a forger */
	world_add(w, PEERS);
	for (int i = 0; i < PEERS; i++) {
		float *m = world_peer(w, i)->model;
		rng_seed(&rng, seed);
		for (int k = 0; k < IN * HID + HID + HID * OUT; k++)
			m[k] = (k < IN * HID ? 0.05f : 0.2f) * ((float)(rng_u64(&rng) >> 40) / (float)(1 << 23) - 1);
	}
	world_settle(w, 20 * SEC);
	world_run_to(w, 2, 30 * SEC);
	if (lies)
		begin_lying(&swarm);
	uint64_t from = sim_now(s), end = from + 7200 * SEC;
	*ret = (struct result){ 0 };
	while (world_peer(w, 0)->point.epoch < epochs && sim_now(s) < end && !sim_failed(s)) {
		sim_run_for(s, 20 * MSEC);
		for (int i = 0; i < LIARS && lies; i++)
			lie_once(&swarm.liar[i], !i);
		struct mallinfo2 m = mallinfo2();
		ret->heap = m.uordblks + m.hblkhd > ret->heap ? m.uordblks + m.hblkhd : ret->heap;
	}
	ret->failed = sim_trouble(s) ? strdup(sim_trouble(s)) : NULL;
	ret->epochs = world_peer(w, 0)->point.epoch;
	ret->seconds = (sim_now(s) - from) / SEC;
	ret->accuracy = accuracy(world_peer(w, 0)->model);
	for (int i = 0; i < LIARS; i++)
		ret->said += swarm.liar[i].said;
	for (int i = 0; i < PEERS - (lies ? LIARS : 0); i++)
		for (int k = 0; k < PEERS - (lies ? LIARS : 0); k++) {
			struct peer_info info;
			ret->bans += net_peer(world_peer(w, i)->net, net_self(world_peer(w, k)->net), &info) && info.ban_why[0];
		}
	world_free(w);
	for (int i = 0; i < LIARS; i++)
		buf_free(&swarm.liar[i].commit);
	sim_free(s);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof *v, ascending);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_liars FOLDER [SEEDS [EPOCHS [ROBUST]]]";
	bench_words(argc, argv, 1, 4, usage);
	size_t n = (size_t)bench_number(argc, argv, 2, 5, 1, 64, usage), have;
	uint64_t epochs = (uint64_t)bench_number(argc, argv, 3, 300, 1, 1000000, usage);
	enum robust robust = ROBUST_CLIP;
	double honest[64], lied[64], heap[64];
	unsigned bans = 0;
	struct err e;
	if (argc > 4 && robust_parse(argv[4], &robust, &e)) {
		fprintf(stderr, "%s\n", e.text);
		bench_wrong(usage);
	}
	if (!(train.x = idx(argv[1], "train-images-idx3-ubyte", 16, &train.n)) ||
			!(train.y = idx(argv[1], "train-labels-idx1-ubyte", 8, &have)) ||
			!(test.x = idx(argv[1], "t10k-images-idx3-ubyte", 16, &test.n)) ||
			!(test.y = idx(argv[1], "t10k-labels-idx1-ubyte", 8, &have)))
		return 77;
	for (size_t i = 0; i < n; i++) {
		struct result q, l;
		one(i + 1, epochs, robust, false, &q);
		one(i + 1, epochs, robust, true, &l);
		honest[i] = q.accuracy;
		lied[i] = l.accuracy;
		heap[i] = (double)l.heap / (double)q.heap;
		bans += l.bans;
		fprintf(stderr, "seed %zu: honest %.2f %% in %llu s, heap %zu KiB; %llu lies: %.2f %% at epoch %llu in %llu s, "
			"heap %zu KiB, %u bans of honest peers%s%s\n", i + 1, q.accuracy, (unsigned long long)q.seconds,
			q.heap / 1024, (unsigned long long)l.said, l.accuracy, (unsigned long long)l.epochs,
			(unsigned long long)l.seconds, l.heap / 1024, l.bans, l.failed || q.failed ? ": " : "",
			l.failed ? l.failed : q.failed ? q.failed : "");
	}
	printf("{\"members\": %d, \"liars\": %d, \"robust\": \"%s\", \"epochs\": %llu, \"seeds\": %zu, "
		"\"accuracy_honest\": %.2f, \"accuracy_with_liars\": %.2f, \"bans_of_honest\": %u, \"memory_ratio\": %.2f}\n",
		PEERS, LIARS, robust_name(robust), (unsigned long long)epochs, n, median(honest, n), median(lied, n), bans,
		median(heap, n));
	return 0;
}
