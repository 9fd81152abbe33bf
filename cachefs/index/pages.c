/*
 * The two meta pages of an LMDB file, looked at before LMDB does: it makes its map as large as they
 * say, and what comes of a damaged number is then an error that has other causes too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "internal.h"

/* MDB_MAGIC and MDB_DATA_VERSION of lmdb's mdb.c; a file of another version is left to LMDB. */
#define MAGIC        0xbeefc0deu
#define DATA_VERSION 1u

/* A page's header, then struct MDB_meta of mdb.c, on a machine of 64 bits. */
struct meta_page {
	uint8_t header[16];
	uint32_t magic, version;
	uint64_t address, map_size;
	struct {
		uint32_t page_size; /* the first one's */
		uint8_t rest[44];
	} dbs[2];
	uint64_t last_page, txn;
};
_Static_assert(sizeof(struct meta_page) == 152, "as LMDB writes it");

static bool is_meta(const struct meta_page *page)
{
	return page->magic == MAGIC && page->version == DATA_VERSION;
}

static bool is_page_size(uint32_t size)
{
	return size >= 512 && size <= 65536 && !(size & (size - 1));
}

/* -ENOENT: there is no whole page. */
static int read_page(int fd, off_t offset, struct meta_page *ret)
{
	ssize_t n = pread(fd, ret, sizeof *ret, offset);

	return n < 0 ? -errno : n == sizeof *ret ? 0 : -ENOENT;
}

int pages_check(const char *dir, uint64_t map_bytes)
{
	char path[PATH_MAX];
	_cleanup_(closep) int fd = -1;
	struct meta_page first = {0}, second = {0}, *newest = &first;
	int r;

	if ((size_t)snprintf(path, sizeof path, "%s/data.mdb", dir) >= sizeof path)
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : read_page(fd, 0, &first);
	/* None yet, or one that LMDB knows what to say of. */
	if (r || !is_meta(&first))
		return r == -ENOENT ? 0 : r;
	if (!is_page_size(first.dbs[0].page_size))
		return -EUCLEAN;
	r = read_page(fd, first.dbs[0].page_size, &second);
	if (r && r != -ENOENT)
		return r;
	if (!r && is_meta(&second) && second.txn > first.txn)
		newest = &second;
	return newest->dbs[0].page_size != first.dbs[0].page_size ||
			       newest->last_page >= map_bytes / first.dbs[0].page_size
		       ? -EUCLEAN
		       : 0;
}
