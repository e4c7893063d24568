/* The real transport: sockets of nanomsg. Their options, and the header of SP that raw ones want to see and to say. */
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <nanomsg/tcp.h>
#include <string.h>
#include "net/nano_int.h"

#define TOO_LARGE (128 * 1024)          /* so much above the largest message is received, refused and counted */

static int option(int s, int level, int name, int value)
{
	return nn_setsockopt(s, level, name, &value, sizeof(value));
}

int nano_options(int s, const struct endpoint *at, enum chan chan, const struct nano_conf *conf)
{
	int buf = (int)(chan == CHAN_CTRL ? conf->ctrl_buf : conf->bulk_buf);

	if (option(s, NN_TCP, NN_TCP_NODELAY, 1) || option(s, NN_SOL_SOCKET, NN_SNDBUF, buf) ||
	    option(s, NN_SOL_SOCKET, NN_RCVBUF, buf) || option(s, NN_SOL_SOCKET, NN_RECONNECT_IVL, 20) ||
	    option(s, NN_SOL_SOCKET, NN_RECONNECT_IVL_MAX, 1000))
		return -1;
	/* Only for IPv6: with it nanomsg 1.1.5 asserts in its worker when it connects to an IPv4 address. */
	if (!ip_is_v4(at->ip) && option(s, NN_SOL_SOCKET, NN_IPV4ONLY, 0))
		return -1;
	return option(s, NN_SOL_SOCKET, NN_RCVMAXSIZE, (int)wire_max(chan) + TOO_LARGE + (chan == CHAN_DOOR ? 16 : 0));
}

/* ---- raw sockets ---- */

void head_put(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

uint32_t head_get(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int raw_send(int s, void **body, const uint8_t *head, size_t len)
{
	_Alignas(size_t) uint8_t control[NN_CMSG_SPACE(sizeof(size_t) + 8)] = {0};
	struct nn_cmsghdr *c = (void *)control;
	struct nn_iovec iov = { .iov_base = body, .iov_len = NN_MSG };
	struct nn_msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = NN_CMSG_SPACE(sizeof(size_t) + len) };

	c->cmsg_len = NN_CMSG_LEN(sizeof(size_t) + len);
	c->cmsg_level = PROTO_SP;
	c->cmsg_type = SP_HDR;
	memcpy(NN_CMSG_DATA(c), &len, sizeof(len));
	memcpy(NN_CMSG_DATA(c) + sizeof(len), head, len);
	return nn_sendmsg(s, &h, NN_DONTWAIT);
}

int raw_recv(int s, void **ret_body, uint8_t head[8], size_t *ret_len)
{
	void *control = NULL;
	struct nn_iovec iov = { .iov_base = ret_body, .iov_len = NN_MSG };
	struct nn_msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = NN_MSG };
	int len = nn_recvmsg(s, &h, NN_DONTWAIT);

	*ret_len = 0;
	if (len < 0)
		return -1;
	h.msg_control = control;        /* nanomsg's macros walk a plain buffer */
	for (struct nn_cmsghdr *c = control; c; c = NULL) {
		size_t n;
		if (c->cmsg_level != PROTO_SP || c->cmsg_type != SP_HDR)
			break;
		memcpy(&n, NN_CMSG_DATA(c), sizeof(n));
		if (n <= 8) {
			memcpy(head, NN_CMSG_DATA(c) + sizeof(n), n);
			*ret_len = n;
		}
	}
	if (control)
		nn_freemsg(control);
	return len;
}
