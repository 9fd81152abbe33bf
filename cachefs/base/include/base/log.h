/*
 * log: one line an event, on standard error or in the journal's format.
 *
 * An event has a name in snake_case and key=value fields, so that it can be searched by machine:
 *     log_warn("fetch_retry", "object=%s attempt=%d error=%s", key, attempt, strerror(e));
 * Values come from origins and users: the writer escapes control bytes, so one event is one line
 * always. Never pass a credential, a signature or a signed URL. Any thread; takes no lock of ours;
 * may block on stderr.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Sets the least urgent level that is still written. Default: INFO. When under a journal
 * (JOURNAL_STREAM set) each line gets a <priority> prefix instead of a time. */
void log_setup(enum log_level least);

/* Writes one event; the message is cut at 2 KiB. Use the macros. */
void log_event(enum log_level level, const char *event, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(event, ...) log_event(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  log_event(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  log_event(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_event(LOG_LEVEL_DEBUG, event, __VA_ARGS__)

#endif
