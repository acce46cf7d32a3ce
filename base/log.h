/* Structured logs: one JSON object per line on stderr.  Any thread; a line is written with one write(2).
 *
 *     sg_log(SG_LOG_INFO, "listening", "address", "s", addr, "port", "i", (int64_t)port, NULL);
 *
 * After the event name come triples: key, type, value.  Types: "s" const char * (NULL prints null), "i"
 * int64_t, "b" int as boolean, "e" const struct sg_error * (code, outcome, detail, upstream status and
 * request id). Strings are escaped and cut at 1 KiB.  Secrets have no type here, on purpose.
 */
#ifndef SG_BASE_LOG_H
#define SG_BASE_LOG_H

enum sg_log_level { SG_LOG_DEBUG, SG_LOG_INFO, SG_LOG_WARN, SG_LOG_ERROR };

void sg_log_set_level(enum sg_log_level level);
/* Human form ("12:00:01 info listening address=… ") instead of JSON, for terminals. */
void sg_log_set_human(int on);
int sg_log_enabled(enum sg_log_level level);
void sg_log(enum sg_log_level level, const char *event, ...) __attribute__((sentinel));

#endif
