/* Runs bytes through our codec and through wslay and compares what they understood. */
#ifndef SG_TESTS_WS_ORACLE_H
#define SG_TESTS_WS_ORACLE_H

#include "base/ws_codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `seed` decides how the bytes are cut into pieces for our codec. */
bool oracle_agrees(const unsigned char *bytes, size_t len, uint64_t max_message, uint32_t seed);

#endif
