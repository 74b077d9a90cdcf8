# The system calls of udp.py, and their types and constants; sockets have no uncompiled form.
from libc.stdint cimport int64_t, uint8_t, uint16_t

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <sys/socket.h>
    #include <netinet/in.h>
    #include <sys/uio.h>
    #include <string.h>
    #include <time.h>
    #ifdef __linux__
    #define MS_UDP_LEVEL 17
    #define MS_UDP_SEGMENT 103
    #define MS_UDP_GRO 104
    #define ms_sendmmsg sendmmsg
    #define ms_recvmmsg(f, m, n, g) recvmmsg((f), (m), (n), (g), NULL)
    #define ms_mmsghdr mmsghdr
    #else
    #define MS_UDP_LEVEL -1
    #define MS_UDP_SEGMENT -1
    #define MS_UDP_GRO -1
    struct ms_mmsghdr { struct msghdr msg_hdr; unsigned int msg_len; };
    static int ms_sendmmsg(int f, struct ms_mmsghdr *m, unsigned int n, int g) {
        unsigned int i;
        for (i = 0; i < n; i++) {
            ssize_t r = sendmsg(f, &m[i].msg_hdr, g);
            if (r < 0) return i ? (int)i : -1;
            m[i].msg_len = (unsigned int)r;
        }
        return (int)n;
    }
    static int ms_recvmmsg(int f, struct ms_mmsghdr *m, unsigned int n, int g) {
        unsigned int i;
        for (i = 0; i < n; i++) {
            ssize_t r = recvmsg(f, &m[i].msg_hdr, g);
            if (r < 0) return i ? (int)i : -1;
            m[i].msg_len = (unsigned int)r;
        }
        return (int)n;
    }
    #endif
    static int ms_probe(int fd, int option) {
        int value = 0; socklen_t size = sizeof value;
        return getsockopt(fd, MS_UDP_LEVEL, option, &value, &size) == 0;
    }
    static int ms_coalesce(int fd) {
        int one = 1;
        return setsockopt(fd, MS_UDP_LEVEL, MS_UDP_GRO, &one, sizeof one) == 0;
    }
    static void ms_set_segment(struct msghdr *m, uint8_t *room, int segment) {
        struct cmsghdr *c;
        m->msg_control = room;
        m->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
        c = CMSG_FIRSTHDR(m);
        c->cmsg_level = MS_UDP_LEVEL;
        c->cmsg_type = MS_UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        *(uint16_t *)CMSG_DATA(c) = (uint16_t)segment;
    }
    static int ms_segment(struct msghdr *m) {
        struct cmsghdr *c;
        for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
            if (c->cmsg_level == MS_UDP_LEVEL && c->cmsg_type == MS_UDP_GRO) return *(int *)CMSG_DATA(c);
        return 0;
    }
    static int ms_timestamps(int fd) {
    #ifdef SO_TIMESTAMPNS
        int one = 1;
        return setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) == 0;
    #else
        return 0;
    #endif
    }
    static int64_t ms_arrival(struct msghdr *m) {
    #ifdef SCM_TIMESTAMPNS
        struct cmsghdr *c;
        for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                struct timespec t;
                memcpy(&t, CMSG_DATA(c), sizeof t);
                return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
            }
    #endif
        return 0;
    }
    static int64_t ms_epoch(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }
    static int ms_errno(void) { return errno; }
    """
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        void *msg_name
        unsigned int msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    struct ms_mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int ms_sendmmsg(int, ms_mmsghdr *, unsigned int, int) noexcept nogil
    int ms_recvmmsg(int, ms_mmsghdr *, unsigned int, int) noexcept nogil
    bint ms_probe(int, int) noexcept nogil
    bint ms_coalesce(int) noexcept nogil
    void ms_set_segment(msghdr *, uint8_t *, int) noexcept nogil
    int ms_segment(msghdr *) noexcept nogil
    int ms_errno() noexcept nogil
    bint ms_timestamps(int) noexcept nogil
    int64_t ms_arrival(msghdr *) noexcept nogil
    int64_t ms_epoch() noexcept nogil
    int MS_UDP_SEGMENT, MSG_DONTWAIT, MSG_TRUNC, EINTR, EAGAIN, ECONNREFUSED, EIO, EINVAL, EMSGSIZE

cdef enum:
    CONTROL_ROOM = 96
