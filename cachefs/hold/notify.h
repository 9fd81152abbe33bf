/* notify: what a service manager wants to hear (sd_notify(3)'s protocol). Nothing happens where
 * none listens. */
#ifndef HOLD_NOTIFY_H
#define HOLD_NOTIFY_H

#include <stdint.h>

void notify_manager(const char *state);
/* How often WATCHDOG=1 is due; 0: never. */
uint64_t notify_interval_ns(void);

#endif
