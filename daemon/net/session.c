/* Key schedule, sealing and opening. The rule that must never break: one (key, nonce) seals one frame. So the counter
 * belongs to the key and only ever grows; a new connection starts a new memory at the receiver, not a new counter. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/planted.h"
#include "net/session.h"

static unsigned key_of(enum chan c) { return c == CHAN_BULK; }

bool replay_fresh(const struct replay *r, uint32_t connection, uint64_t counter)
{
	uint32_t oldest = UINT32_MAX;

	if (PLANTED(REPLAY_TAKEN))
		return true;
	for (unsigned i = 0; i < r->n; i++) {
		if (r->v[i].connection == connection)
			return counter > r->v[i].counter;
		if (r->v[i].connection < oldest)
			oldest = r->v[i].connection;
	}
	return r->n < CONNECTIONS_KEPT || connection > oldest;
}

void replay_mark(struct replay *r, uint32_t connection, uint64_t counter)
{
	unsigned at = 0;

	for (unsigned i = 0; i < r->n; i++)
		if (r->v[i].connection == connection) {
			r->v[i].counter = counter;
			return;
		}
	if (r->n < CONNECTIONS_KEPT) {
		at = r->n++;
	} else {
		for (unsigned i = 1; i < r->n; i++)
			if (r->v[i].connection < r->v[at].connection)
				at = i;
	}
	r->v[at] = (struct seen){ connection, counter };
}

struct session *session_new(bool initiator, unsigned suite, const uint8_t dh[32], const uint8_t mac_key[32],
	const uint8_t transcript[32])
{
	struct session *s = xcalloc(1, sizeof *s);
	uint8_t ikm[64], okm[4 * AEAD_KEY + 4 * 4 + 8];
	const uint8_t *prefix = okm + 4 * AEAD_KEY;

	memcpy(ikm, dh, 32);
	memcpy(ikm + 32, mac_key, 32);
	hkdf(transcript, ikm, sizeof ikm, "hivemind session 1", okm, sizeof okm);
	for (int c = 0; c < 2; c++) {           /* order: control i->r, bulk i->r, control r->i, bulk r->i */
		int mine = initiator ? c : 2 + c, theirs = initiator ? 2 + c : c;

		aead_init(&s->tx[c], suite, okm + mine * AEAD_KEY, true);
		aead_init(&s->rx[c], suite, okm + theirs * AEAD_KEY, false);
		memcpy(s->tx_prefix[c], prefix + 4 * mine, 4);
		memcpy(s->rx_prefix[c], prefix + 4 * theirs, 4);
	}
	memcpy(&s->id, prefix + 16, 8);
	wipe(ikm, sizeof ikm);
	wipe(okm, sizeof okm);
	list_init(&s->link);
	s->initiator = initiator;
	s->suite = suite;
	s->refs = 1;
	return s;
}

struct session *session_ref(struct session *s)
{
	s->refs++;
	return s;
}

void session_unref(struct session *s)
{
	if (!s || --s->refs)
		return;
	for (int c = 0; c < 2; c++) {
		aead_done(&s->tx[c]);
		aead_done(&s->rx[c]);
	}
	free(s);
}

static const char sig3_context[16] = "hivemind HELLO 3";

static void m3_signed(uint8_t ret[16 + 32 + 32], const uint8_t transcript[32], const uint8_t id[32])
{
	memcpy(ret, sig3_context, 16);
	memcpy(ret + 16, transcript, 32);
	memcpy(ret + 48, id, 32);
}

void m3_make(uint8_t ret[M3_BYTES], const struct signer *s, const uint8_t transcript[32])
{
	uint8_t to_sign[80];

	m3_signed(to_sign, transcript, s->id.b);
	memcpy(ret, s->id.b, 32);
	signer_sign(s, to_sign, sizeof to_sign, ret + 32);
}

int m3_check(const uint8_t m3[M3_BYTES], const uint8_t transcript[32], struct id *ret_id)
{
	uint8_t to_sign[80];

	m3_signed(to_sign, transcript, m3);
	memcpy(ret_id->b, m3, 32);
	if (PLANTED(M3_UNSIGNED))
		return 0;
	return sig_verify(ret_id, to_sign, sizeof to_sign, m3 + 32) ? 0 : -1;
}

static void nonce_of(uint8_t ret[AEAD_NONCE], const uint8_t prefix[4], uint64_t counter)
{
	memcpy(ret, prefix, 4);
	for (int i = 0; i < 8; i++)
		ret[4 + i] = (uint8_t)(counter >> 8 * i);
}

void session_seal(struct session *s, struct header *h, uint32_t connection, const struct piece *pieces, size_t n,
	uint8_t *out)
{
	unsigned k = key_of(h->chan);
	uint8_t nonce[AEAD_NONCE];

	h->session = s->id;
	h->connection = connection;
	h->counter = PLANTED(NONCE_REUSE) ? s->tx_counter[k]++ / 2 : ++s->tx_counter[k];
	nonce_of(nonce, s->tx_prefix[k], h->counter);
	header_write(h, out);
	aead_seal(&s->tx[k], nonce, out, HEADER_BYTES, pieces, n, out + HEADER_BYTES);
	s->tx_bytes += h->pre.length;
}

enum open_rc session_open(struct session *s, const struct header *h, const uint8_t *frame, size_t len, uint8_t *out)
{
	unsigned k = key_of(h->chan);
	uint8_t nonce[AEAD_NONCE];

	if (!replay_fresh(&s->rx_seen[h->chan], h->connection, h->counter))
		return OPEN_REPLAYED;
	nonce_of(nonce, s->rx_prefix[k], h->counter);
	if (aead_open(&s->rx[k], nonce, frame, HEADER_BYTES, frame + HEADER_BYTES, len - HEADER_BYTES, out))
		return OPEN_FORGED;
	replay_mark(&s->rx_seen[h->chan], h->connection, h->counter);
	return OPEN_OK;
}
