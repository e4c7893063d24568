/* libIPSec_MB behind gcm.h. Its functions are taken from a manager, which is made for that alone: they work on what
 * they are given and fail at nothing. */
#include <assert.h>
#include <string.h>
#ifdef HAVE_IPSEC_MB
#define ERR_STATE openssl_err_state     /* libcrypto has a type of that name, common/err.h a code */
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>
#undef ERR_STATE
#include "common/mem.h"
#include "net/gcm.h"

struct gcm {
	struct gcm_key_data key;                /* with the powers of the hash's key; aligned as its type says */
	aes_gcm_init_t init;
	aes_gcm_enc_dec_update_t enc, dec;
	aes_gcm_enc_dec_finalize_t enc_end, dec_end;
};

struct gcm *gcm_new(const uint8_t key[AEAD_KEY])
{
	const uint64_t wide = IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;
	IMB_MGR *m = alloc_mb_mgr(0);
	struct gcm *g = NULL;
	IMB_ARCH arch;

	if (!m)
		return NULL;
	init_mb_mgr_auto(m, &arch);
	if (!imb_get_errno(m) && (m->features & wide) == wide && (g = big_alloc(sizeof *g))) {
		assert((uintptr_t)g % _Alignof(struct gcm) == 0);
		*g = (struct gcm){ .init = m->gcm256_init, .enc = m->gcm256_enc_update, .dec = m->gcm256_dec_update,
			.enc_end = m->gcm256_enc_finalize, .dec_end = m->gcm256_dec_finalize };
		m->gcm256_pre(key, &g->key);
	}
	free_mb_mgr(m);
	return g;
}

void gcm_free(struct gcm *g)
{
	if (!g)
		return;
	wipe(&g->key, sizeof g->key);
	big_free(g, sizeof *g);
}

void gcm_seal(const struct gcm *g, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const struct piece *pieces, size_t n, uint8_t *out)
{
	struct gcm_context_data c;

	g->init(&g->key, &c, nonce, aad, aad_len);
	for (size_t i = 0; i < n; i++) {
		if (!pieces[i].len)
			continue;
		g->enc(&g->key, &c, out, pieces[i].p, pieces[i].len);
		out += pieces[i].len;
	}
	g->enc_end(&g->key, &c, out, AEAD_TAG);
	wipe(&c, sizeof c);
}

int gcm_open(const struct gcm *g, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *in, size_t len, uint8_t *out)
{
	struct gcm_context_data c;
	uint8_t want[AEAD_TAG], tag[AEAD_TAG];

	if (len < AEAD_TAG)
		return -1;
	len -= AEAD_TAG;
	memcpy(want, in + len, AEAD_TAG);
	g->init(&g->key, &c, nonce, aad, aad_len);
	if (len)
		g->dec(&g->key, &c, out, in, len);
	g->dec_end(&g->key, &c, tag, AEAD_TAG);
	wipe(&c, sizeof c);
	return CRYPTO_memcmp(want, tag, AEAD_TAG) ? -1 : 0;
}
#else
#include "net/gcm.h"

struct gcm *gcm_new(const uint8_t key[AEAD_KEY]) { return NULL; }
void gcm_free(struct gcm *g) { }

void gcm_seal(const struct gcm *g, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const struct piece *pieces, size_t n, uint8_t *out) { }

int gcm_open(const struct gcm *g, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *in, size_t len, uint8_t *out) { return -1; }
#endif
