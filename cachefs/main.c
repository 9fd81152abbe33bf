#include <errno.h>
#include <libgen.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

static const struct command commands[] = {
	{"mount", mount_help, cmd_mount},
	{"umount", umount_help, cmd_umount},
	{"status", status_help, cmd_status},
	{"top", top_help, cmd_top},
	{"pin", pin_help, cmd_pin},
	{"unpin", unpin_help, cmd_unpin},
	{"evict", evict_help, cmd_evict},
	{"verify", verify_help, cmd_verify},
	{"serve", serve_help, cmd_serve},
	{"hold", hold_help, cmd_hold},
	{"upgrade", upgrade_help, cmd_upgrade},
	{"doctor", doctor_help, cmd_doctor},
};

static const char help[] =
	"Usage: cachefs COMMAND …\n"
	"An object store as a directory, kept on local NVMe.\n"
	"\n"
	"  mount    show a prefix of an object store as a directory\n"
	"  umount   end a mount\n"
	"  status   the daemon, its store and volumes; or what is cached of a file\n"
	"  top      live: stalls, hits, misses and the origin, by volume\n"
	"  pin      keep files from being evicted\n"
	"  unpin    let them be evicted again\n"
	"  evict    give the space of cached files back\n"
	"  verify   check stored bytes against their checksums\n"
	"  hold     the daemon with a keeper, so that mounts outlive it (mount starts it by "
	"itself)\n"
	"  serve    the daemon alone\n"
	"  upgrade  a newer binary takes over from the running daemon\n"
	"  doctor   look for what is missing on this machine; changes nothing\n"
	"\n"
	"Each takes --help. Exit status: 0 done, 1 failed, 2 wrong use.\n"
	"\n"
	"Example:\n"
	"  cachefs mount s3://models/llama /mnt/llama\n"
	"  cachefs status\n"
	"  cachefs umount /mnt/llama\n";

/* How mount(8) calls us for the type fuse.cachefs. */
static bool is_mount_helper(char *name)
{
	const char *base = basename(name);

	return !strcmp(base, "mount.fuse.cachefs") || !strcmp(base, "mount.cachefs");
}

static int run(int argc, char **argv)
{
	static const struct command helper = {"mount", mount_help, cmd_mount_helper};
	char name[32];

	if (argc > 0 && is_mount_helper(argv[0]))
		return helper.run(&helper, argc, argv);
	if (argc < 2) {
		fputs(help, stderr);
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		fputs(help, stdout);
		return STATUS_DONE;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("cachefs " CACHEFS_VERSION);
		return STATUS_DONE;
	}
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (strcmp(commands[i].name, argv[1]))
			continue;
		/* getopt starts its messages with this. */
		snprintf(name, sizeof name, "cachefs: %s", commands[i].name);
		argv[1] = name;
		return commands[i].run(&commands[i], argc - 1, argv + 1);
	}
	fprintf(stderr, "cachefs: there is no command '%s' in version %s; see `cachefs --help`\n",
		argv[1], CACHEFS_VERSION);
	return STATUS_USAGE;
}

int main(int argc, char **argv)
{
	int status;

	setlocale(LC_CTYPE, "");
	status = run(argc, argv);
	/* Output that is lost is no answer. A reader that has enough, such as head, is none of this:
	 * SIGPIPE has ended us. */
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "cachefs: can't write to standard output: %s\n", strerror(errno));
		return status == STATUS_DONE ? STATUS_FAILED : status;
	}
	return status;
}
