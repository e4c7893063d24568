/* A session: what two peers share after HELLO. Four keys (two directions, control and bulk),
 * four nonce prefixes, counters that never repeat under a key, and per connection a strictly growing counter at the
 * receiver: no window, because order holds inside a connection and sealing happens when the socket takes the frame. */
#ifndef NET_SESSION_H
#define NET_SESSION_H
#include "common/list.h"
#include "net/frame.h"

#define SESSION_FRAMES_MAX ((uint64_t)1 << 32)          /* then a new HELLO ... */
#define SESSION_BYTES_MAX ((uint64_t)64 << 30)
#define SESSION_AGE_MAX_US ((uint64_t)3600 * 1000000)
#define CONNECTIONS_KEPT 16                     /* a client has up to seven at a time to one door */

/* Door frames use the control keys with their own memory of connections. */
struct seen { uint32_t connection; uint64_t counter; };
struct replay { struct seen v[CONNECTIONS_KEPT]; unsigned n; };
/* Would a frame with this counter be new? Connections older than the four remembered are not. */
bool replay_fresh(const struct replay *r, uint32_t connection, uint64_t counter);
void replay_mark(struct replay *r, uint32_t connection, uint64_t counter);

struct peer;
struct half;
struct session {
	struct list link;                       /* of its peer, newest last */
	uint64_t id;
	struct peer *peer;                      /* NULL while half open */
	struct half *half;                      /* responder: M3 has not come yet */
	bool initiator, confirmed;              /* confirmed: the other side has sealed something with it */
	bool dead, doubted;                     /* doubted: the other side sent RESET */
	uint16_t version;
	unsigned suite;
	uint32_t key_no;                        /* of the swarm key that HELLO was said with (keys.c) */
	uint64_t boot;                          /* of the other side */
	uint64_t made_us, retire_us;            /* retire: received on until then, 0 = in use */
	uint64_t seen_us;                       /* the process of that boot lived then, or later */
	struct aead tx[2], rx[2];               /* control (and door), bulk */
	uint8_t tx_prefix[2][4], rx_prefix[2][4];
	uint64_t tx_counter[2], tx_bytes;
	struct replay rx_seen[CHANS];
	uint8_t m3[M3_BYTES];                   /* initiator: sent in front until confirmed */
	int refs;
};

/* transcript = SHA-256(M1 | M2), both whole frames. */
struct session *session_new(bool initiator, unsigned suite, const uint8_t dh[32], const uint8_t mac_key[32],
	const uint8_t transcript[32]);
struct session *session_ref(struct session *s);
void session_unref(struct session *s);                  /* NULL is fine; the last one wipes the keys */

/* id_i and its signature over "hivemind HELLO 3" | transcript | id_i. */
void m3_make(uint8_t ret[M3_BYTES], const struct signer *s, const uint8_t transcript[32]);
int m3_check(const uint8_t m3[M3_BYTES], const uint8_t transcript[32], struct id *ret_id);

/* Completes the header (session, counter, connection) and writes the frame; the pieces add up to what it says. */
void session_seal(struct session *s, struct header *h, uint32_t connection, const struct piece *pieces, size_t n,
	uint8_t *out);
enum open_rc { OPEN_OK, OPEN_FORGED, OPEN_REPLAYED };
/* out gets the plaintext ([M3] JSON blob), len - HEADER_BYTES - AEAD_TAG bytes; it may be frame + HEADER_BYTES. After
 * OPEN_FORGED there is anything. */
enum open_rc session_open(struct session *s, const struct header *h, const uint8_t *frame, size_t len, uint8_t *out);

#endif
