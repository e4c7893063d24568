/* Data sets: where samples come from, in which order, and how they are prepared.
 *
 * A position p (endless, handed out by the averager's ledger) names a sample: data epoch p / n, index perm(p % n),
 * where n is the number of training samples and perm depends on (seed, data epoch) alone. What a batch contains is a
 * pure function of (data, spec, positions): the same bytes for any number of workers and any order of reading.
 *
 * To add a kind: data/NAME.c with `const struct data_ops data_NAME` and a line in data/list.h. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H
#include "avg/ranges.h"
#include "common/err.h"
#include "env.h"
#include "exec/batch.h"
#include "train/spec/spec.h"

enum data_part { DATA_TRAIN, DATA_VALIDATION, DATA_PARTS };

struct alphabet;
struct data_about;
struct sample;
/* One file of a data set, as its manifest has it (train/manifest.h): sum is of its first and last 4 KiB. */
#define DATA_FILES_FEW 8
struct data_file { char name[256]; uint64_t bytes; uint8_t sum[16]; };
struct data_source {                            /* what ops->open fills in; embedded first in the kind's own struct */
	const struct data_ops *ops;             /* set by data_open */
	uint64_t count[DATA_PARTS];             /* samples in the files; validation 0: no files of its own */
	struct shape shape;                     /* one sample; nd 0: images of different sizes */
	bool bytes;                             /* values are whole numbers 0..255 */
	enum target target;
	uint64_t classes;                       /* TARGET_CLASS: labels are 0..classes-1 */
	const char *const *class_name;          /* TARGET_CLASS: classes of them; NULL: they have no names */
	const struct alphabet *alphabet;        /* of texts (alphabet.h); NULL: there is no text */
	size_t labels;                          /* TARGET_CLASS: of one sample; 0: one */
	bool split;                             /* validation.split has been held out by the source itself */
	struct shape y;                         /* TARGET_REAL: one target */
	uint64_t stamp;                         /* of the files' times of change (data_stamp), when the spec has a cache */
	uint8_t digest[32];                     /* manifest: files in order, each name, bytes, first and last 4 KiB */
	/* Its files: a few, or one for every sample of the parts in order. */
	uint32_t nfew; struct data_file few[DATA_FILES_FEW];
	void (*file_at)(const struct data_source *d, uint64_t i, struct data_file *ret);
};

struct data_ops {
	const char *name, *help;
	bool unplaced;                          /* needs no files, so no place */
	bool tokens;                            /* labels are the tokens of texts: the loss of a sample is nats per token */
	/* For a spec that is to be made (train/draft.h), when open cannot say it without a shape; NULL: open is asked. */
	int (*about)(struct files *f, const char *path, struct data_about *ret, struct err *e);
	/* Blocking (data lane). spec: shapes that are asked for. NULL and e. */
	struct data_source *(*open)(struct files *f, const char *path, const struct spec *s, struct err *e);
	/* One of the two, called by several workers at once. read: n samples by index: x is n * shape, y int32_t[n] or
	 * real[n][y]. */
	int (*read)(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
		struct err *e);
	/* Instead of read, for sources with chance in them: key[i] is a function of the seed and the position of sample i
	 * (its place in the order of training, so that it differs from data epoch to data epoch). */
	int (*read_keyed)(struct data_source *d, enum data_part part, const uint64_t *index, const uint64_t *key, size_t n,
		real *x, void *y, struct err *e);
	/* image: one sample into s, as bytes, with s->p in one of its rooms. ERR_CORRUPT: this sample is broken, it is
	 * skipped, counted and named. */
	int (*image)(struct data_source *d, enum data_part part, uint64_t index, struct sample *s, int32_t *ret_label,
		struct err *e);
	void (*close)(struct data_source *d);
};
/* `before` mixed with the time of the file's last change. */
uint64_t data_stamp(struct files *f, const char *path, uint64_t before);
const struct data_ops *data_find(const char *name);     /* NULL: unknown */
const struct data_ops *data_at(int i);                  /* NULL past the end */
const char *data_names(char *out, size_t cap);
/* What an operator says: "KIND:PATH", PATH absolute or a name of [data]; or "cifar10-jpeg:PATH", images by class in a
 * folder or a tar archive. 1: there is no kind in front. An unknown kind is an error that names the nearest. */
int data_place(const char *word, char *ret_kind, size_t cap, const char **ret_path, struct err *e);

struct data;
/* Opens what the spec names at path, checks shapes, labels, split and (if the spec has one) the manifest digest.
 * Blocking: call it in a job of the data lane, or from a test. f is used until data_free. */
struct data *data_open(struct files *f, const char *path, const struct spec *s, struct err *e);
/* For a peer that computes nothing: how many samples there are and what they are, as the spec says it; none can be
 * read and none are held out here. An error when the spec does not say how many. */
struct data *data_absent(const struct spec *s, struct err *e);
bool data_is_absent(const struct data *d);
/* The same; when the files are others than the run's, *ret_other is what is here: data_source_close it. */
struct data *data_open_or(struct files *f, const char *path, const struct spec *s, struct data_source **ret_other,
	struct err *e);
void data_source_close(struct data_source *d);          /* NULL is fine */
void data_free(struct data *d);                         /* NULL is fine; no job may be reading */
/* It stays until data_free has been called once more. On the loop. */
struct data *data_ref(struct data *d);
uint64_t data_count(const struct data *d, enum data_part part);        /* after the split */
const uint8_t *data_digest(const struct data *d);
const struct data_source *data_source(const struct data *d);
size_t data_x_bytes(const struct data *d);              /* of one prepared sample */
size_t data_y_bytes(const struct data *d);
uint64_t data_index(const struct data *d, uint64_t position);          /* index in the training part's files */
/* The samples at n training positions (or, DATA_VALIDATION, the position-th of the held-out ones), prepared. */
int data_read(struct data *d, enum data_part part, const uint64_t *position, size_t n, real *x, void *y,
	struct err *e);
/* A picture (a JPEG or PNG file in memory) as a held-out sample would be prepared, into data_x_bytes. ERR_INVALID: the
 * data are no pictures; ERR_CORRUPT, ERR_MISMATCH: this one is broken, or has the wrong size. */
int data_prepare(struct data *d, const uint8_t *file, size_t n, real *x, struct err *e);
/* Samples of the files that could not be read so far; *ret_latest is the error of one of the latest (0: untouched). */
uint64_t data_broken(struct data *d, struct err *ret_latest);
#define DATA_BROKEN_TOLD 16
/* With more than data.broken_max of them data_read fails with ERR_LIMIT, until this allows as many again. */
void data_forgive(struct data *d);
/* What was done so far and what it took: {stages: [{stage, samples, bytes, took_us}], broken, broken_max,
 * broken_files, cache?}. Stages: read, decode, each step, batch. took_us is of all workers together; 0 without a clock
 * (simulator). */
json_t *data_json(struct data *d);

/* Prepared data in a file ("materialize_after", train/cache.h). While one is wanted, somebody calls data_cache_make
 * again and again in jobs, one at a time; each makes a few samples. */
bool data_cache_wanted(const struct data *d);
void data_cache_make(struct data *d);
bool data_cache_news(struct data *d, char *out, size_t cap);   /* a line for the operator; false: nothing new */

/* --- prefetching: prepared training batches, in order of position, made on lane "data" */
struct loader;
typedef void loader_ready_fn(void *arg);        /* on the loop: loader_next may give a batch, or an error waits */
struct loader *loader_new(struct env *env, struct data *d, uint32_t batch, uint32_t depth, uint32_t workers,
	loader_ready_fn *ready, void *arg, struct err *e);
/* ready is not called any more. gone (may be NULL) is called when no job reads the data: at once or later, from the
 * loop. */
void loader_free(struct loader *l, void (*gone)(void *arg), void *arg);
size_t loader_bytes(struct data *d, uint32_t batch, uint32_t depth);   /* memory it will hold */
/* How many batches to hold: the one in use, and ahead of it as many as asked; 0: four, fewer when that is over 32 MiB,
 * but one for each worker. */
uint32_t loader_depth(struct data *d, uint32_t batch, uint32_t prefetch, uint32_t workers);
/* The memory of a loader of that depth, of data that are not there. */
size_t loader_ahead(size_t x_bytes, size_t y_bytes, uint32_t batch, uint32_t prefetch, uint32_t workers);
/* The positions to process from now on, replacing the former ones (copied). Prepared batches that lie inside stay;
 * of the others everything is dropped. Positions of batches that were handed out must not be in it. */
void loader_grant(struct loader *l, const struct ranges *grant);
/* The next prepared batch (loader_done() it), or NULL: none ready; then ready is called later unless the grant is
 * exhausted (loader_left() == 0). A read error is returned through e (code not ERR_NONE). */
struct batch *loader_next(struct loader *l, struct err *e);
void loader_done(struct loader *l, struct batch *b);    /* consumed: its memory is free again */
void loader_back(struct loader *l, struct batch *b);    /* not consumed (an interrupt): it will come next again */
uint64_t loader_left(const struct loader *l);           /* granted and not handed out */
void loader_retry(struct loader *l);                    /* reads again what could not be read */
uint64_t loader_wait_us(const struct loader *l);        /* that its owner waited for a batch that was being prepared */

#endif
