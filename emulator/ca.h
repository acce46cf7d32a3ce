/* The emulator's own certificate authority: P-256, kept under a directory of the state, so that a client that
 * was told to trust it keeps working after a restart.  Not thread-safe but for ca_issue, which any thread may
 * call at any time.
 */
#ifndef SG_EMULATOR_CA_H
#define SG_EMULATOR_CA_H

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stddef.h>

enum { CA_LEAF_DAYS = 7, CA_NAMES_MAX = 24 };

struct ca;

/* Opens what is in `dir` or makes a new one there (files ca.pem and ca.key, the latter for its owner alone).
 * 0, or -1 with one sentence in err. */
int ca_open(const char *dir, struct ca **out, char err[256]);
void ca_free(struct ca *ca);
/* The certificate to trust, PEM. */
const char *ca_pem_path(const struct ca *ca);
X509 *ca_certificate(const struct ca *ca); /* borrowed */

/* A new P-256 key; NULL when out of memory or randomness. */
EVP_PKEY *ca_key_new(void);
/* A server certificate for these DNS names (letters, digits, '-', '_', '.', a leading "*."), valid for
 * CA_LEAF_DAYS.  NULL when out of memory or a name is none. */
X509 *ca_issue(const struct ca *ca, EVP_PKEY *key, const char *const *names, size_t n);

#endif
