/* Checkpoints: safetensors files, written so that a kill at any moment leaves the last whole one.
 *
 * Format (https://huggingface.co/docs/safetensors): u64 little-endian header length, a JSON object
 * {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {string: string}}, then the data, in
 * the order of the offsets, without holes. We write F32 and F64, the header padded with blanks so that data begins at a
 * multiple of 64, and "xxh128" (of the whole data area) in the metadata; other files may lack it.
 *
 * The first half blocks (disk lane, start, tests); the second half makes jobs of it for the loop. Paths end in
 * DIR/epoch-NNNNNNNNNN.safetensors; the temporary file has ".tmp" behind and is removed at the next save. */
#ifndef DAEMON_CKPT_H
#define DAEMON_CKPT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"
#include "env.h"

#define CKPT_DIMS 8
#define CKPT_NAME 192                   /* bytes with NUL */
#define CKPT_TENSORS 65536
#define CKPT_HEADER_MAX 4194304         /* bytes of JSON */

/* We write the first two. What other programs write is known by its size, so that their files can be read around;
 * weights may also come as F16 or BF16 (ckpt_read_weights). */
enum ckpt_dtype { CKPT_F32, CKPT_F64, CKPT_F16, CKPT_BF16, CKPT_I64, CKPT_I32, CKPT_I16, CKPT_I8, CKPT_U64,
	CKPT_U32, CKPT_U16,
	CKPT_U8, CKPT_BOOL, CKPT_F8_E4M3, CKPT_F8_E5M2, CKPT_DTYPES };

struct ckpt_tensor {
	char name[CKPT_NAME];
	enum ckpt_dtype dtype;
	unsigned ndim;                      /* 0: a scalar */
	uint64_t shape[CKPT_DIMS];
	void *data;                         /* the caller's; written, or read into (NULL: skipped on reading) */
	uint64_t bytes;                     /* product(shape) * size of dtype; set by ckpt_tensor() and by the reader */
	uint64_t at;                        /* offset in the data area; the reader's */
};
/* Fills *t; ERR_INVALID when the name is too long or the product overflows. */
int ckpt_tensor(struct ckpt_tensor *t, const char *name, enum ckpt_dtype dtype, unsigned ndim,
	const uint64_t *shape, void *data, struct err *e);

/* --- blocking */
/* A file's header, checked: unique names, known dtypes, offsets inside the file, ordered, without holes or overlaps. */
struct ckpt_head {
	struct ckpt_tensor *v;              /* in file order, data NULL */
	size_t n;
	json_t *meta;                       /* __metadata__ or an empty object; all strings */
	uint64_t data_at, data_bytes;
};
/* Parses the first n bytes of a file of file_bytes. ERR_CORRUPT with the place.
 * ckpt_head_done() also after a failure. */
int ckpt_head_parse(struct ckpt_head *h, const void *p, size_t n, uint64_t file_bytes, struct err *e);
int ckpt_head_read(struct ckpt_head *h, struct files *f, const char *path, struct err *e);
void ckpt_head_done(struct ckpt_head *h);
const struct ckpt_tensor *ckpt_find(const struct ckpt_head *h, const char *name);

/* tmp, write, fsync, rename. meta: object of strings (borrowed). Returns bytes written through ret_bytes (may be NULL);
 * xxh (may be NULL) is the hash of the data area. */
int ckpt_write(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n, const json_t *meta,
	uint64_t *ret_bytes, uint8_t xxh[16], struct err *e);
/* The same where the data lies nowhere whole: all bytes of v[0], then of v[1], ..., in pieces of any size. v must stay,
 * its data is not looked at; NULL and e. end and drop free it; without end there is no file. Blocking. */
struct ckpt_out *ckpt_out_new(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n,
	const json_t *meta, struct err *e);
int ckpt_out_put(struct ckpt_out *o, const void *p, size_t bytes, struct err *e);
int ckpt_out_end(struct ckpt_out *o, uint64_t *ret_bytes, uint8_t xxh[16], struct err *e);
void ckpt_out_drop(struct ckpt_out *o);         /* NULL is fine */
/* Reads the tensors v[0..n) by name into their data; dtype and shape must be equal (ERR_MISMATCH names the
 * tensor). Checks the hash over the whole data area when the file has one. A tensor of the file that is not asked
 * for is ignored; one that is asked for and not there is ERR_NOT_FOUND. On failure the contents of data are
 * undefined. meta (may be NULL) is new. */
int ckpt_read(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n, json_t **ret_meta,
	struct err *e);
/* Weights from anywhere: the tensors v[0..n), all F32, from a file of any origin, by name and shape; F64, F16 and BF16
 * become F32. Where the file's names lack the first part of ours ("transformer.h.0..." asked for, "h.0..." there), or
 * have "model." or "module." in front, that is bridged, for all names alike. What is not asked for is ignored. Errors
 * as ckpt_read. */
int ckpt_read_weights(struct files *f, const char *path, const struct ckpt_tensor *v, size_t n, struct err *e);
/* Newest whole checkpoint's epoch numbers of dir, newest first, at most max; returns how many, -1 on error (a missing
 * folder is 0). Only names are looked at. */
int ckpt_list(struct files *f, const char *dir, uint64_t *ret_epochs, size_t max, struct err *e);
void ckpt_path(const char *dir, uint64_t epoch, char *out, size_t cap);
/* The headers of those, into v[0..max): how many, -1 on error. One that cannot be read is as if it were not there:
 * whoever loads it says why. Data is neither read nor hashed. */
struct ckpt_seen { uint64_t epoch, bytes; char path[512]; json_t *meta; };
int ckpt_see(struct files *f, const char *dir, struct ckpt_seen *v, size_t max, struct err *e);
void ckpt_seen_done(struct ckpt_seen *v, size_t n);

/* --- jobs of the disk lane. All memory that is named belongs to the job until done, which is called
 * once, on the loop. */
struct ckpt_result {
	struct err error;                   /* code ERR_NONE: it worked */
	char path[512];                     /* of the file written or read */
	uint64_t epoch, bytes, took_us;
	json_t *meta;                       /* load: its metadata, borrowed */
	unsigned skipped;                   /* load: newer checkpoints that were corrupted */
	struct err skip_error;              /* load: why the newest of them was skipped */
	char skip_path[512];
	unsigned removed, aside;            /* save: older ones, deleted; those of another history, renamed */
};
typedef void ckpt_done_fn(void *arg, const struct ckpt_result *r);

struct ckpt_save {
	const char *dir;                    /* made when missing, with its parents, mode 0750 */
	uint64_t epoch;
	const struct ckpt_tensor *v; size_t n;  /* table copied; the data pointers are the caller's until done */
	/* stolen; strings. "epoch" is added. By convention: run, prev, samples, params */
	json_t *meta;
	unsigned keep;                      /* newest ones that stay; 0: 3 */
	uint64_t hold;                      /* this one is among them; 0: none need be */
	/* Those that are there of later epochs than this one, or of `lost_from` (0: none) and later, are not of this
	 * history: they become NAME.aside, NAME.aside2, ..., which nobody deletes. */
	uint64_t lost_from;
	uint64_t lent;                      /* that epoch's is being read by others and stays, too; 0: none */
	uint64_t free_min_bytes;            /* refuse (ERR_FULL) when less would be free after writing; 0: no floor */
};
void ckpt_save(struct env *env, const struct ckpt_save *o, ckpt_done_fn *done, void *arg);
/* Loads the newest checkpoint of dir that is whole and fits v; a corrupted one is renamed to NAME.corrupt (.corrupt2,
 * ...) and the next older is tried; so is `reject`, the epoch of one whose contents turned out to be of no use
 * (CKPT_NONE: of none), before anything is looked at. ERR_NOT_FOUND: there is no whole one. Any other error is of one
 * that may be good (it cannot be read; ERR_MISMATCH: the model is another): nothing is set aside, and no older one is
 * tried. */
#define CKPT_NONE UINT64_MAX
void ckpt_load(struct env *env, const char *dir, const struct ckpt_tensor *v, size_t n, uint64_t reject,
	ckpt_done_fn *done, void *arg);

/* done: once, on the loop; v is borrowed during the call, and empty when the folder cannot be listed. */
typedef void ckpt_looked_fn(void *arg, const struct ckpt_seen *v, size_t n);
void ckpt_look(struct env *env, const char *dir, size_t max, ckpt_looked_fn *done, void *arg);

#endif
