/*
 * private: the keeper's state and the parts of its loop. One thread; nothing here waits.
 *
 * A daemon's life:
 *     started → HELLO → (MOUNTs) → READY → dead
 * Its death is known by waitpid only, never by its channel. What its channel still holds is read
 * before the next daemon is told of the mounts, so that none is lost.
 *
 * An upgrade's steps, each with a deadline:
 *     NONE → CHECK      the new binary says whether it can read the store and take over
 *          → START      it runs beside the old daemon, until its HELLO
 *          → STOP       the old daemon was told to stop, until it is dead
 *          → TAKE_OVER  the new one is the daemon, until its READY: done
 *          → GO_BACK    it failed: the old binary is started again, until its READY
 * Up to START a failure leaves the old daemon untouched.
 */
#ifndef HOLD_PRIVATE_H
#define HOLD_PRIVATE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backoff.h"
#include "base/clock.h"
#include "hold/keeper.h"
#include "message.h"
#include "mounts.h"

struct child {
	pid_t pid;   /* 0: none */
	int channel; /* -1: none */
	uint16_t version;
	bool sending; /* MOUNTs are due, from slot next_slot on */
	unsigned next_slot;
	bool ready;
	uint64_t started_ns, ready_ns, heard_ns;
};

enum upgrade_step {
	UPGRADE_NONE,
	UPGRADE_CHECK,
	UPGRADE_START,
	UPGRADE_STOP,
	UPGRADE_TAKE_OVER,
	UPGRADE_GO_BACK
};

struct upgrade {
	enum upgrade_step step;
	uint64_t deadline_ns;
	int binary; /* the new one's until TAKE_OVER, from then on the old one's */
	int client; /* who asked; -1: a signal did */
	pid_t checker;
	int output; /* of the checker */
	size_t said_size;
	char said[512]; /* by the checker */
	char failure[512];
	struct child next;
};

struct keeper {
	const struct keeper_config *config;
	char path[PATH_MAX];  /* where our program is installed: what SIGHUP upgrades to */
	int binary;           /* the daemon's */
	int signals;          /* signalfd */
	int listener, caller; /* the upgrade socket, and a connection that has not asked yet */
	int ready_fd;
	char oom_score_adj[16]; /* of before, for the daemon; "": ours is no other */
	struct kept_mounts mounts;
	struct child daemon;
	struct upgrade upgrade;
	unsigned restarts;
	struct backoff backoff;
	int last_status;
	uint64_t restart_ns;    /* when the daemon is due; 0: not now */
	uint64_t down_since_ns; /* since when none is ready; 0: one is */
	uint64_t end_by_ns; /* once ending: until when a daemon that can unmount is waited for */
	uint64_t notify_ns; /* when the service manager's watchdog is due; 0: never */
	bool ever_ready;
	bool ending;      /* asked to end; the daemon is, unless it is just being replaced */
	bool end_told;    /* to the daemon */
	bool renewal_due; /* an upgrade is done but for ourselves */
	bool over;
	int status;                /* our exit status, once over */
	struct hold_packet packet; /* for whatever is received */
};

/* --- child.c --- */

void child_init(struct child *child);
/* Starts a daemon from the binary and its channel. 0 or -errno. */
int child_start(struct keeper *keeper, int binary, struct child *child);
/* `serve --check`, its output to upgrade.output. 0 or -errno. */
int child_start_check(struct keeper *keeper);
/* Nothing if there is none. The death is told by waitpid. */
void child_kill(const struct child *child, int signal);
/* Our score is the least, the daemon's what ours was. */
void child_protect_keeper(struct keeper *keeper);

/* --- talk.c --- */

/* Reads and answers what there is; at the end of the channel closes it. True if there may be more
 * than is read at once. */
bool talk_input(struct keeper *keeper, struct child *child);
/* Sends MOUNTs as far as the channel takes them. */
void talk_output(struct keeper *keeper, struct child *child);
/* To be called once the child may have the mounts. */
void talk_begin_mounts(struct keeper *keeper, struct child *child);
void talk_stop(struct child *child);

/* --- upgrade.c --- */

/* Takes binary and client (may be -1). */
void upgrade_begin(struct keeper *keeper, int binary, int client);
/* The installed binary. */
void upgrade_by_signal(struct keeper *keeper);
void upgrade_read_check(struct keeper *keeper);
void upgrade_checked(struct keeper *keeper, int status);
void upgrade_next_said_hello(struct keeper *keeper);
void upgrade_next_died(struct keeper *keeper, int status);
/* The daemon is dead. True if its successor is started already. */
bool upgrade_daemon_died(struct keeper *keeper, int status);
void upgrade_daemon_ready(struct keeper *keeper);
void upgrade_deadline(struct keeper *keeper);
/* The daemon is new: now this process itself. */
void upgrade_renew_keeper(struct keeper *keeper);
/* Ends an upgrade that has not come to TAKE_OVER, and tells who asked. Nothing if there is none. */
void upgrade_abandon(struct keeper *keeper, const char *reason);

/* --- keeper.c --- */

void keeper_daemon_ready(struct keeper *keeper);
/* Starts the daemon now. */
void keeper_start_daemon(struct keeper *keeper);

/* --- listen.c --- */

void listen_start(struct keeper *keeper);
void listen_stop(struct keeper *keeper);
void listen_accept(struct keeper *keeper);
void listen_read(struct keeper *keeper);
/* Answers and closes the client's connection; fd may be -1. */
void listen_answer(int fd, int error, const char *sentence);

/* --- resume.c --- */

/* Becomes the keeper of keeper->binary. Returns -errno only if that failed: all is as before. */
int resume_exec(struct keeper *keeper);
/* In the new one: takes over what resume_exec left. 0 or -errno. */
int resume_load(struct keeper *keeper, int fd);

#endif
