/*
 * lease: "does anyone else have this file open or mapped?", answered by the kernel.
 *
 * A write lease (fcntl(2), F_SETLEASE) is given only while its descriptor is the file's only one in
 * the whole system, mappings and FUSE backing files counted. It holds until the descriptor is
 * closed; who opens the file meanwhile waits for that (or gets EWOULDBLOCK with O_NONBLOCK), so
 * hold it for one short operation.
 */
#ifndef STORE_LEASE_H
#define STORE_LEASE_H

/*
 * 0: the file is the caller's alone until fd is closed. -EBUSY: somebody has it. -EOPNOTSUPP: the
 * file system has no leases. -EACCES: the file is another user's. Any thread. The kernel's notice
 * that somebody waits for the lease comes as SIGURG, which is ignored unless the process asks for
 * it, and never as SIGIO, which would end the process.
 */
int lease_take(int fd);

#endif
