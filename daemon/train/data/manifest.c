/* Lists of files that are data sets: the digest of small ones, and hashes of stretches of any. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/manifest.h"

static void put64(uint8_t to[8], uint64_t v)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

void manifest_begin(struct manifest *m)
{
	m->n = 0;
	sha256_init(&m->h);
}

void manifest_add(struct manifest *m, const char *name, uint64_t bytes, const void *first, const void *last)
{
	size_t piece = bytes < MANIFEST_PIECE ? (size_t)bytes : MANIFEST_PIECE;
	uint8_t size[8], ends[2 * MANIFEST_PIECE];
	struct data_file *f = &m->file[m->n++];

	assert(m->n <= DATA_FILES_FEW);
	put64(size, bytes);
	sha256_add(&m->h, name, strlen(name) + 1);
	sha256_add(&m->h, size, sizeof(size));
	sha256_add(&m->h, first, piece);
	sha256_add(&m->h, last, piece);
	(void)snprintf(f->name, sizeof(f->name), "%s", name);
	f->bytes = bytes;
	memcpy(ends, first, piece);
	memcpy(ends + piece, last, piece);
	xxh128_of(ends, 2 * piece, f->sum);
}

void manifest_add_whole(struct manifest *m, const uint8_t digest[32])
{
	sha256_add(&m->h, digest, 32);
	memcpy(m->file[m->n - 1].sum, digest, sizeof(m->file[0].sum));
}

void manifest_end(struct manifest *m, struct data_source *ret)
{
	uint8_t unused[32];

	sha256_end(&m->h, ret ? ret->digest : unused);
	if (!ret)
		return;
	memcpy(ret->few, m->file, m->n * sizeof(*m->file));
	ret->nfew = m->n;
}

uint64_t manifest_files(const struct data_source *d)
{
	return d->file_at ? d->count[DATA_TRAIN] + d->count[DATA_VALIDATION] : d->nfew;
}

void manifest_file(const struct data_source *d, uint64_t i, struct data_file *ret)
{
	if (d->file_at)
		d->file_at(d, i, ret);
	else
		*ret = d->few[i];
}

uint32_t manifest_parts(uint64_t lo, uint64_t hi)
{
	return hi - lo < MANIFEST_PARTS ? (uint32_t)(hi - lo) : MANIFEST_PARTS;
}

/* Stretches differ by one file at most. */
uint64_t manifest_part(uint64_t lo, uint64_t hi, uint32_t k)
{
	uint64_t n = manifest_parts(lo, hi), each = n ? (hi - lo) / n : 0, more = n ? (hi - lo) % n : 0;

	return lo + k * each + (k < more ? k : more);
}

void manifest_hashes(const struct data_source *d, uint64_t lo, uint64_t hi, uint8_t (*ret)[MANIFEST_HASH])
{
	uint32_t n = manifest_parts(lo, hi);
	struct data_file f;

	for (uint32_t k = 0; k < n; k++) {
		struct sha256 h;
		uint8_t size[8], digest[32];

		sha256_init(&h);
		for (uint64_t i = manifest_part(lo, hi, k); i < manifest_part(lo, hi, k + 1); i++) {
			manifest_file(d, i, &f);
			put64(size, f.bytes);
			sha256_add(&h, f.name, strlen(f.name) + 1);
			sha256_add(&h, size, sizeof(size));
			sha256_add(&h, f.sum, sizeof(f.sum));
		}
		sha256_end(&h, digest);
		memcpy(ret[k], digest, MANIFEST_HASH);
	}
}

const char *manifest_text(const struct data_file *f, char out[112])
{
	char name[65];

	(void)snprintf(name, sizeof(name), "%.64s", f->name);
	text_clean(name);
	(void)snprintf(out, 112, "%s (%llu bytes, %02x%02x%02x%02x)", name, (unsigned long long)f->bytes, f->sum[0],
		f->sum[1], f->sum[2], f->sum[3]);
	return out;
}
