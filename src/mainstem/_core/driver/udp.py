"""A UDP socket that sends and receives in batches, with the kernel's segmentation and coalescing if available."""

# ruff: noqa: F821 - the names come from sockets.pxd: sockets have no uncompiled form
from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import readonly

    raise ImportError("sockets need the compiled modules: run 'make build' or install a wheel")

from cython.cimports.mainstem._core.driver.datagram import ADDRESS_ROOM, MAX_SLOTS
from cython.cimports.mainstem._core.driver.sockets import *

from mainstem._core.driver.datagram import Address, Transport
from mainstem._core.driver.loss_generator import LossGenerator

# The kernel accepts 64 segments per call. The byte length of a run is limited too.
KERNEL_SEGMENTS = cython.declare(cython.int, 64)
# A coalesced slot can hold 64 KiB, so this many slots are 1 MiB per call, which still fits a cache.
COALESCED_SLOTS = 16
# A connected socket reports a refused datagram on the next call, which then sends nothing; more failures have another cause.
REFUSALS = cython.declare(cython.int, 3)


@cython.cclass
class UdpTransport(Transport):
    """Datagrams over the non-blocking UDP socket ``fd``. Whoever opened the socket must close it, after this transport.

    Batches go through sendmmsg and recvmmsg. Equal datagrams are sent in one call with segmentation offload, and received
    coalesced, if the kernel supports it; ``offload=False`` turns both off. ``timestamps`` asks the kernel for each datagram's
    arrival time. ``coalesces`` and ``max_segments`` report the support found for receiving and for sending. ``slots`` is the
    number of datagrams or runs received at once, 0 for the default. ``send_fd`` is another socket to send through, -1 for none.
    """

    send_fd: cython.int
    coalesces: readonly[cython.bint]
    timestamps: readonly[cython.bint]
    outgoing_messages: ms_mmsghdr[MAX_SLOTS]
    outgoing_parts: iovec[MAX_SLOTS]
    outgoing_control: cython.uchar[MAX_SLOTS][CONTROL_ROOM]
    incoming_messages: ms_mmsghdr[MAX_SLOTS]
    incoming_parts: iovec[MAX_SLOTS]
    incoming_control: cython.uchar[MAX_SLOTS][CONTROL_ROOM]

    def __init__(
        self,
        fd: cython.int,
        incoming: LossGenerator | None = None,
        outgoing: LossGenerator | None = None,
        offload: cython.bint = True,
        timestamps: cython.bint = False,
        slots: cython.int = 0,
        send_fd: cython.int = -1,
    ) -> None:
        i: cython.int
        coalesces: cython.bint = offload and ms_coalesce(fd)
        if slots <= 0 or slots > MAX_SLOTS:
            slots = COALESCED_SLOTS if coalesces else MAX_SLOTS
        Transport.__init__(self, slots, incoming, outgoing)
        self.fd = fd
        self.send_fd = fd if send_fd < 0 else send_fd
        self.coalesces = coalesces
        self.timestamps = timestamps and ms_timestamps(fd)
        if offload and ms_probe(self.send_fd, MS_UDP_SEGMENT):
            self.max_segments = KERNEL_SEGMENTS
        for i in range(self.slots):
            self.incoming_parts[i].iov_base = self.base + i * self.stride
            self.incoming_parts[i].iov_len = self.stride
            self.incoming_messages[i].msg_hdr.msg_iov = cython.address(self.incoming_parts[i])
            self.incoming_messages[i].msg_hdr.msg_iovlen = 1
            self.incoming_messages[i].msg_hdr.msg_name = self.sources + i * ADDRESS_ROOM
        for i in range(MAX_SLOTS):
            self.outgoing_messages[i].msg_hdr.msg_iov = cython.address(self.outgoing_parts[i])
            self.outgoing_messages[i].msg_hdr.msg_iovlen = 1

    def fill(self) -> cython.int:
        i: cython.int
        n: cython.int
        for i in range(self.slots):
            self.incoming_messages[i].msg_hdr.msg_namelen = ADDRESS_ROOM
            if self.coalesces or self.timestamps:
                self.incoming_messages[i].msg_hdr.msg_control = cython.address(self.incoming_control[i][0])
                self.incoming_messages[i].msg_hdr.msg_controllen = CONTROL_ROOM
        n = ms_recvmmsg(self.fd, cython.address(self.incoming_messages[0]), self.slots, MSG_DONTWAIT)
        if n <= 0:
            if n < 0 and ms_errno() != EAGAIN and ms_errno() != EINTR and ms_errno() != ECONNREFUSED:
                self.last_error = ms_errno()
                self.error_count += 1
            return 0
        for i in range(n):
            self.slot_size[i] = self.incoming_messages[i].msg_len
            self.slot_segment[i] = (
                ms_segment(cython.address(self.incoming_messages[i].msg_hdr)) if self.coalesces else 0
            )
            self.source_length[i] = self.incoming_messages[i].msg_hdr.msg_namelen
            if self.timestamps:
                self.slot_ns[i] = ms_arrival(cython.address(self.incoming_messages[i].msg_hdr))
        return n

    def epoch_ns(self, now_ns: cython.longlong) -> cython.longlong:
        return ms_epoch()

    def prepare(
        self,
        i: cython.int,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.longlong,
        length: cython.int,
        segment: cython.int,
    ) -> cython.void:
        self.outgoing_parts[i].iov_base = cython.cast(cython.p_void, base + offset)
        self.outgoing_parts[i].iov_len = length
        if to is None:
            self.outgoing_messages[i].msg_hdr.msg_name = cython.NULL
            self.outgoing_messages[i].msg_hdr.msg_namelen = 0
        else:
            self.outgoing_messages[i].msg_hdr.msg_name = to.base if to.length > 0 else cython.NULL
            self.outgoing_messages[i].msg_hdr.msg_namelen = to.length
        if segment < length:
            ms_set_segment(
                cython.address(self.outgoing_messages[i].msg_hdr), cython.address(self.outgoing_control[i][0]), segment
            )
        else:
            self.outgoing_messages[i].msg_hdr.msg_control = cython.NULL
            self.outgoing_messages[i].msg_hdr.msg_controllen = 0

    def push(self, count: cython.int) -> cython.int:
        """Send the prepared messages; return how many the kernel took. ``last_error`` says why it did not take all of them."""
        done: cython.int = 0
        refused: cython.int = 0
        n: cython.int
        while done < count:
            n = ms_sendmmsg(self.send_fd, cython.address(self.outgoing_messages[done]), count - done, MSG_DONTWAIT)
            if n > 0:
                done += n
                continue
            if n < 0 and ms_errno() == EINTR:
                continue
            if n < 0 and ms_errno() == ECONNREFUSED and refused < REFUSALS:
                refused += 1
                continue
            if n < 0 and ms_errno() != EAGAIN:
                self.last_error = ms_errno()
                self.error_count += 1
            break
        return done

    def put_apart(
        self, to: Address, base: cython.p_const_uchar, offset: cython.longlong, length: cython.int, segment: cython.int
    ) -> cython.bint:
        """Send a run datagram by datagram, because the device below cannot segment."""
        at: cython.int = 0
        size: cython.int
        while at < length:
            size = segment if segment < length - at else length - at
            self.prepare(0, to, base, offset + at, size, size)
            if self.push(1) != 1:
                return False
            at += size
        return True

    def put_runs(
        self,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.p_longlong,
        length: cython.p_int,
        segment: cython.p_int,
        count: cython.int,
    ) -> cython.int:
        i: cython.int
        done: cython.int = 0
        n: cython.int
        while done < count and self.max_segments > 1:
            n = count - done if count - done < MAX_SLOTS else MAX_SLOTS
            for i in range(n):
                self.prepare(i, to, base, offset[done + i], length[done + i], segment[done + i])
            i = self.push(n)
            done += i
            if i < n:
                if segment[done] >= length[done] or not (
                    self.last_error == EINVAL or self.last_error == EIO or self.last_error == EMSGSIZE
                ):
                    return done
                # This route cannot segment (no checksum offload, or datagrams above its MTU): never try again on this socket.
                self.max_segments = 1
                self.last_error = 0
        while done < count:
            if segment[done] < length[done]:
                if not self.put_apart(to, base, offset[done], length[done], segment[done]):
                    return done
                done += 1
                continue
            n = 0
            while n < MAX_SLOTS and done + n < count and segment[done + n] >= length[done + n]:
                self.prepare(n, to, base, offset[done + n], length[done + n], segment[done + n])
                n += 1
            i = self.push(n)
            done += i
            if i < n:
                return done
        return done
