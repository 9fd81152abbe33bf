#include <errno.h>
#include <string.h>
#include <sys/mount.h>

#include "base/cleanup.h"
#include "client/client.h"
#include "command.h"
#include "paths.h"

const char umount_help[] =
	"Usage: cachefs umount [--force] [--no-drain] [--control SOCK] MOUNTPOINT\n"
	"Ends a mount. One whose daemon is dead goes too.\n"
	"\n"
	"      --force       detach it although files are open; they stay readable\n"
	"      --no-drain    don't wait for uploads (volumes of this version have none)\n"
	"      --control SOCK\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs umount /mnt/llama\n";

/* An ending daemon ends its mounts. */
#define END_WAIT_MS 30000
/* Daemons that die before they answer. */
#define TRIES_MAX 3

/* Without a daemon nothing is lost by detaching, and nothing but that is sure not to hang. */
static int detach(const char *mountpoint, struct why *why)
{
	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		return why_set(why, -errno, "can't unmount %s: %s", mountpoint, strerror(errno));
	return 0;
}

/* Of daemons that are replaced meanwhile each is asked, but not for ever. */
static int ask(const struct client *client, const char *mountpoint, bool force, struct why *why)
{
	int r = -ECONNRESET;

	for (int i = 0; i < TRIES_MAX && r == -ECONNRESET; i++) {
		json_t *body = json_pack("{s:s, s:b}", "mountpoint", mountpoint, "force", force);

		if (!body) /* no UTF-8: no daemon of ours has such a mount */
			return -EINVAL;
		r = client_call(client, "POST", "/v1/umount", body, NULL, why);
		if (r == -ECONNRESET && !path_is_mount(mountpoint))
			return 0;
	}
	return r;
}

static int umount_path(
	const struct client *client, const char *mountpoint, bool force, struct why *why)
{
	int r = ask(client, mountpoint, force, why);

	if (r == -ESHUTDOWN && !client_wait_end(client, END_WAIT_MS))
		return path_is_mount(mountpoint) ? detach(mountpoint, why) : 0;
	if (r == -ETIMEDOUT && force)
		return detach(mountpoint, why);
	/* No daemon, or one that doesn't know this mount: it was a dead daemon's. */
	return client_no_daemon(r) || r == -EINVAL ? detach(mountpoint, why) : r;
}

int cmd_umount(const struct command *command, int argc, char **argv)
{
	enum { FORCE = OPTION_OWN, NO_DRAIN };
	static const struct option long_options[] = {{"force", no_argument, NULL, FORCE},
		{"no-drain", no_argument, NULL, NO_DRAIN}, COMMON_OPTIONS};
	_cleanup_(freep) char *mountpoint = NULL;
	struct client client = {client_socket(NULL)};
	bool force = false;
	struct why why;
	int c;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == FORCE)
			force = true;
		else if (c == OPTION_CONTROL)
			client.socket = optarg;
		else if (c != NO_DRAIN)
			return command_other_option(command, c);
	}
	if (argc - optind != 1)
		return command_misused(command, "umount takes one MOUNTPOINT");
	mountpoint = path_of_mountpoint(argv[optind]);
	if (!mountpoint || !path_is_mount(mountpoint)) {
		why_set(&why, -EINVAL, "%s is no mount of cachefs: `cachefs status` lists them",
			argv[optind]);
		return command_failed(&why);
	}
	return umount_path(&client, mountpoint, force, &why) ? command_failed(&why) : STATUS_DONE;
}
