/* IDX files, plain and compressed: what is accepted has exactly the bytes that its header promises. */
#include <stdlib.h>
#include "common/mem.h"
#include "train/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = { .code = ERR_NONE };
	struct idx_head h;
	uint8_t *bytes = NULL;
	unsigned sum = 0;

	if (idx_head_parse(&h, data, size, &e) && !e.text[0])
		abort();
	if (idx_parse(&h, &bytes, data, size, &e)) {
		if (!e.text[0])
			abort();
		return 0;
	}
	if (!h.ndim || h.ndim > IDX_DIMS || h.count * h.elem != h.bytes)
		abort();
	for (uint64_t i = 0; i < h.data_at + h.bytes; i += 509)
		sum += bytes[i];
	sum += bytes[h.data_at + h.bytes - 1];
	big_free(bytes, h.data_at + h.bytes);
	return sum == 1 ? 0 : 0;                        /* read, so that a sanitizer sees it */
}
