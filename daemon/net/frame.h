/* What lies on the wire, byte by byte (hivemind-protocol(7)): the prelude that never changes, the header of sealed
 * frames, and the four plain messages. Encoding and decoding only; all integers little-endian. */
#ifndef NET_FRAME_H
#define NET_FRAME_H
#include "common/buf.h"
#include "common/id.h"
#include "net/crypt.h"
#include "net/net.h"

#define PROTOCOL_VERSION 1                      /* what we speak; and the oldest that we still understand: */
#define PROTOCOL_OLDEST 1
#define PRELUDE_BYTES 16
#define HEADER_BYTES 104
#define M3_BYTES 96                             /* id_i, signature: in front of the plaintext when FLAG_M3 is set */

enum frame_flag {
	FLAG_M3 = 1,                            /* the third message of HELLO rides in front */
	FLAG_CALL = 2,                          /* a REPLY or REFUSE is due */
	FLAG_PROMPT = 4,                        /* REPLY, REFUSE: answered at once, so the round trip may be measured */
	FLAG_PENDING = 8,                       /* REPLY: "I have your call and work on it" */
	FLAG_ACK = 16,                          /* door: answer with something, so that the next frame may come */
	FLAG_QUIET = 32,                        /* beside FLAG_ACK: no need, nothing more waits */
	FLAG_LANE = 64,                         /* door: about connections for bulk (door.c) */
};

/* The first 16 bytes of everything, in every version. */
struct prelude { uint16_t version, kind, flags, oldest; uint32_t length; };
enum prelude_rc { PRELUDE_OK, PRELUDE_SHORT, PRELUDE_MAGIC, PRELUDE_LENGTH };
enum prelude_rc prelude_read(struct prelude *ret, const uint8_t *p, size_t len);
void prelude_write(const struct prelude *h, uint8_t out[PRELUDE_BYTES]);

/* Sealed frames: header (authenticated), then [M3] JSON blob sealed together, then the tag. */
struct header {
	struct prelude pre;
	uint64_t request, boot, session, counter;
	uint32_t json_len, blob_len;
	uint32_t connection;
	uint32_t span;                          /* calls: request - span is the oldest call still open */
	uint8_t chan, cls;
	struct id sender;
};
void header_write(const struct header *h, uint8_t out[HEADER_BYTES]);
/* The whole frame is len bytes at p; every length is checked against it. Says what is wrong in *e. */
int header_read(struct header *ret, const uint8_t *p, size_t len, struct err *e);
size_t frame_bytes(size_t json_len, size_t blob_len, bool m3);  /* whole frame */
size_t json_max(enum kind k);                   /* bytes of JSON that this kind may carry */
size_t blob_max(enum kind k);
bool kind_known(unsigned k);
bool kind_plain(unsigned k);

/* ---- plain messages ---- */
enum hello_flag {
	HELLO_CLIENT = 1,                       /* M1: I only dial out, answer through the door */
	HELLO_UNREACHED = 2,                    /* M1: my return address did not work, answer through the door */
	HELLO_AS_CLIENT = 4,                    /* M2: I shall answer you through the door only */
	HELLO_MINE = 8,                         /* M2: the address that you say you have dialled is mine */
	HELLO_MOVES = 16,                       /* M1, M2: 16 and 32, times enum moves: how transfers to me may come */
};
/* Where else the sender can be dialled; an extension of HELLO, empty from who does not know it. */
struct others { unsigned n; struct endpoint v[NET_ALSO]; };
#define HELLO_REF 16                            /* bytes of SHA-256(M1) that name a HELLO */
#define HELLO1_MAX 768
#define HELLO2_MAX 768
struct hello1 {
	uint8_t e[32];
	uint16_t version_min, version_max, flags; uint32_t suites;
	uint64_t boot; struct endpoint at; char software[24]; struct others also;
	struct endpoint to;                     /* where M1 was sent; all zero from who does not say it */
};
struct hello2 {
	uint8_t ref[HELLO_REF], e[32]; struct id id;
	uint16_t version, flags; uint32_t suite;
	uint64_t boot; struct endpoint at; char software[24]; struct others also;
};
/* Appends the whole frame with its MAC under the swarm key. */
void hello1_write(const struct hello1 *h, const uint8_t mac_key[32], struct buf *out);
/* ERR_PROTOCOL: not a HELLO1; ERR_AUTH: the MAC does not fit (another swarm key). */
int hello1_read(struct hello1 *ret, const uint8_t *p, size_t len, const uint8_t mac_key[32], struct err *e);
/* Signature over "hivemind HELLO 2" | SHA-256(M1 | M2 up to the signature), then the MAC over SHA-256(M1) | M2. */
void hello2_write(const struct hello2 *h, const uint8_t m1_hash[32], const struct signer *s, const uint8_t mac_key[32],
	struct buf *out);
/* m1_hash is found by ref in between: first look, then verify. */
int hello2_look(struct hello2 *ret, const uint8_t *p, size_t len, struct err *e);
int hello2_verify(const struct hello2 *h, const uint8_t *p, size_t len, const uint8_t m1_hash[32],
	const uint8_t mac_key[32], struct err *e);

struct reset { uint64_t session, boot; struct id from, to; };
#define RESET_BYTES (PRELUDE_BYTES + 16 + 64 + 32)
void reset_write(const struct reset *r, const uint8_t mac_key[32], uint8_t out[RESET_BYTES]);
int reset_read(struct reset *ret, const uint8_t *p, size_t len, const uint8_t mac_key[32], struct err *e);

/* KIND_TOO_OLD: the refusal of a HELLO that any version can read. */
enum refusal { REFUSAL_VERSION = 1, REFUSAL_SWARM_KEY = 2, REFUSAL_SUITE = 3, REFUSAL_BUSY = 4,
	REFUSAL_BARRED = 5 /* to M3: banned, or not on the list */ };
struct too_old { uint16_t why, version_min, version_max; uint8_t ref[HELLO_REF]; bool authentic; };
#define TOO_OLD_BYTES (PRELUDE_BYTES + 8 + HELLO_REF + 32)
void too_old_write(const struct too_old *t, const uint8_t mac_key[32], uint8_t out[TOO_OLD_BYTES]);
/* `authentic` says whether the MAC fits; a stranger's refusal is a hint only. */
int too_old_read(struct too_old *ret, const uint8_t *p, size_t len, const uint8_t mac_key[32], struct err *e);

void endpoint_write(const struct endpoint *at, struct buf *b);
void endpoint_read(struct endpoint *ret, struct rd *r);

#endif
