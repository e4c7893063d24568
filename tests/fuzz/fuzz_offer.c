/* What peers of a crew say to each other in blobs. First byte of the input, modulo 3: 0 an offer, 1 a card, 2 a go.
 * Refused with a text, or taken; what was taken and written again is the same, so that an offer which is passed on has
 * the digest that its leader has signed. */
#include <stdlib.h>
#include <string.h>
#include "crew/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int offer(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct offer o;
	int rc = offer_decode(&o, p, n, e);

	if (!rc) {
		offer_encode(&o, ret);
		offer_free(&o);
	}
	return rc;
}

static int card(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct card c;
	int rc = card_decode(&c, p, n, e);

	if (!rc) {
		card_encode(&c, ret);
		card_free(&c);
	}
	return rc;
}

static int go(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct go g;
	int rc = go_decode(&g, p, n, e);

	if (!rc) {
		go_encode(g.offer, g.offer_len, g.digest, g.sig, g.o.n, ret);
		offer_free(&g.o);
	}
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const kinds[])(const uint8_t *p, size_t n, struct buf *ret, struct err *e) = { offer, card, go };
	struct buf again = { 0 };
	struct err e = { 0 };

	if (!size)
		return 0;
	int rc = kinds[data[0] % 3](data + 1, size - 1, &again, &e);
	if (rc ? !e.code || !e.text[0] : again.len != size - 1 || memcmp(again.p, data + 1, size - 1))
		abort();
	buf_free(&again);
	return 0;
}
