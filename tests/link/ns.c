/* Network namespaces and TUN devices by system calls and ioctls, so that no other program is needed. A device belongs
 * to the namespace in which it was made; its descriptor works from everywhere. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ns.h"

#define PREFIX4 "\xff\xff\0\0"

void ns_ip6(const uint8_t ip[4], uint8_t ret_ip6[16])
{
	memset(ret_ip6, 0, 16);
	ret_ip6[0] = 0xfd;
	ret_ip6[1] = 0x77;
	memcpy(ret_ip6 + 12, ip, 4);
}

int ns_enter(int ns, int *ret_back, struct err *e)
{
	*ret_back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (*ret_back < 0 || setns(ns, CLONE_NEWNET)) {
		err_set(e, ERR_STATE, "entering a network namespace: %s", strerror(errno));
		if (*ret_back >= 0)
			close(*ret_back);
		return -1;
	}
	return 0;
}

void ns_leave(int back)
{
	if (setns(back, CLONE_NEWNET))
		perror("leaving a network namespace");
	close(back);
}

static int make_tun(struct err *e)
{
	struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, ERR_STATE, "/dev/net/tun: %s", strerror(errno));
	memcpy(r.ifr_name, "link0", 6);
	if (ioctl(fd, TUNSETIFF, &r)) {
		err_set(e, ERR_STATE, "making a TUN device: %s", strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

static int interface_up(int s, const char *name)
{
	struct ifreq r = {0};

	memcpy(r.ifr_name, name, strlen(name) + 1);
	if (ioctl(s, SIOCGIFFLAGS, &r))
		return -1;
	r.ifr_flags |= IFF_UP;
	return ioctl(s, SIOCSIFFLAGS, &r);
}

static int set_ip4(int s, int what, const void *ip)
{
	struct ifreq r = { .ifr_name = "link0" };
	struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;

	a->sin_family = AF_INET;
	memcpy(&a->sin_addr, ip, 4);
	return ioctl(s, what, &r);
}

/* Kernels without IPv6 are fine, too. The address can be used a moment later only, although nobody else can have it. */
static void set_ip6(const uint8_t ip[4])
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	struct in6_ifreq r = { .ifr6_prefixlen = 64, .ifr6_ifindex = (int)if_nametoindex("link0") };
	int s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return;
	ns_ip6(ip, r.ifr6_addr.s6_addr);
	if (ioctl(s, SIOCSIFADDR, &r))
		perror("IPv6 address of link0");
	a.sin6_addr = r.ifr6_addr;
	for (int i = 0; i < 1000 && bind(s, (struct sockaddr *)&a, sizeof a); i++)
		poll(NULL, 0, 1);
	close(s);
}

static int configure(const uint8_t ip[4], unsigned mtu, struct err *e)
{
	struct ifreq r = { .ifr_name = "link0", .ifr_mtu = (int)(mtu ? mtu : NS_MTU) };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	rc = s < 0 || ioctl(s, SIOCSIFMTU, &r) || set_ip4(s, SIOCSIFADDR, ip) ||
		set_ip4(s, SIOCSIFNETMASK, PREFIX4) || interface_up(s, "lo") || interface_up(s, "link0") ? -1 : 0;
	if (rc)
		err_set(e, ERR_STATE, "setting up a TUN device: %s", strerror(errno));
	else
		set_ip6(ip);
	if (s >= 0)
		close(s);
	return rc;
}

static int congestion(const char *cc, struct err *e)
{
	int fd = cc ? open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC) : -1;
	int rc = cc && (fd < 0 || write(fd, cc, strlen(cc)) < 0) ? -1 : 0;

	if (rc)
		err_set(e, ERR_INVALID, "congestion control %s: %s", cc, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

int ns_new(const uint8_t ip[4], unsigned mtu, const char *cc, int *ret_tun, int *ret_ns, struct err *e)
{
	int back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	*ret_tun = *ret_ns = -1;
	if (back < 0 || unshare(CLONE_NEWNET)) {
		err_set(e, ERR_STATE, "making a network namespace: %s", strerror(errno));
		if (back >= 0)
			close(back);
		return -1;
	}
	*ret_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	*ret_tun = make_tun(e);
	if (*ret_ns >= 0 && *ret_tun >= 0 && !configure(ip, mtu, e) && !congestion(cc, e)) {
		ns_leave(back);
		return 0;
	}
	ns_leave(back);
	if (*ret_ns >= 0)
		close(*ret_ns);
	if (*ret_tun >= 0)
		close(*ret_tun);
	*ret_tun = *ret_ns = -1;
	return -1;
}
