/* Headers of checkpoints (safetensors): what is accepted lies in order, without holes, inside the file. */
#include <stdlib.h>
#include <string.h>
#include "ckpt/ckpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void look(const uint8_t *data, size_t size, uint64_t file_bytes)
{
	struct err e = { .code = ERR_NONE };
	struct ckpt_head h;
	uint64_t at = 0;

	if (ckpt_head_parse(&h, data, size, file_bytes, &e)) {
		check(e.code != ERR_NONE && e.text[0]);
		ckpt_head_done(&h);
		return;
	}
	check(h.data_at <= file_bytes && h.data_bytes == file_bytes - h.data_at && json_is_object(h.meta));
	for (size_t i = 0; i < h.n; i++) {
		check(h.v[i].at == at && h.v[i].ndim <= CKPT_DIMS && !h.v[i].data);
		check(ckpt_find(&h, h.v[i].name) == &h.v[i]);
		at += h.v[i].bytes;
	}
	check(at <= h.data_bytes);
	ckpt_head_done(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	look(data, size, size);
	look(data, size, (uint64_t)size + 16);          /* data behind what was read; 16 bytes fit the corpus */
	return 0;
}
