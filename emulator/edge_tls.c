/* The TLS side: one certificate with wildcards for everybody, and one per name where a wildcard would not be
 * believed (clients want two dots in "*.a.b", so "*.localhost" is none for many). */
#include "emulator/edge_internal.h"
#include "base/clock.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t renew_ms = 3LL * 86400 * 1000; /* of the 7 days of a leaf */

struct edge_tls {
    SSL_CTX *ctx;
    EVP_PKEY *key;
    const struct edge_config *config;
    int64_t made_ms;
};

/* HTTP/1.1 is all that is spoken. */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned in_len, void *arg)
{
    static const unsigned char mine[] = "\x08http/1.1";
    (void)ssl;
    (void)arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, mine, sizeof mine - 1, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
    (void)alert;
    struct edge_tls *t = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    char label[EDGE_LABEL_TEXT];
    bool covered = strchr(t->config->suffix, '.') != NULL;
    if (!name || !edge_host_label(name, t->config->suffix, label) ||
        (covered && !strcmp(name + strlen(label) + 1, t->config->suffix)))
        return SSL_TLSEXT_ERR_OK;
    X509 *leaf = ca_issue(t->config->ca, t->key, &name, 1);
    if (leaf)
        SSL_use_certificate(ssl, leaf);
    X509_free(leaf);
    ERR_clear_error();
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *new_context(struct edge_tls *t)
{
    const char *names[EDGE_API_HOSTS_MAX + 3];
    char wildcard[EDGE_HOST_TEXT];
    size_t n = 0;
    snprintf(wildcard, sizeof wildcard, "*.%s", t->config->suffix);
    names[n++] = wildcard;
    names[n++] = t->config->suffix;
    names[n++] = "localhost";
    for (size_t i = 0; i < t->config->n_api_hosts; i++)
        names[n++] = t->config->api_hosts[i];
    X509 *leaf = ca_issue(t->config->ca, t->key, names, n);
    SSL_CTX *ctx = leaf ? SSL_CTX_new(TLS_server_method()) : NULL;
    bool ok = ctx && SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
              SSL_CTX_use_certificate(ctx, leaf) == 1 && SSL_CTX_use_PrivateKey(ctx, t->key) == 1;
    X509_free(leaf);
    if (!ok) {
        SSL_CTX_free(ctx);
        ERR_clear_error();
        return NULL;
    }
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
    SSL_CTX_set_tlsext_servername_callback(ctx, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(ctx, t);
    return ctx;
}

struct edge_tls *edge_tls_new(const struct edge_config *config)
{
    struct edge_tls *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->config = config;
    t->key = ca_key_new();
    t->ctx = t->key ? new_context(t) : NULL;
    t->made_ms = sg_wall_ms();
    if (t->ctx)
        return t;
    edge_tls_free(t);
    return NULL;
}

void edge_tls_free(struct edge_tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->ctx);
    EVP_PKEY_free(t->key);
    free(t);
}

SSL *edge_tls_accept(struct edge_tls *t, int fd)
{
    if (sg_wall_ms() - t->made_ms > renew_ms) {
        SSL_CTX *fresh = new_context(t);
        if (fresh) {
            SSL_CTX_free(t->ctx); /* connections hold their own reference */
            t->ctx = fresh;
            t->made_ms = sg_wall_ms();
        }
    }
    SSL *ssl = SSL_new(t->ctx);
    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return ssl;
}

int edge_tls_handshake(struct edge_end *e)
{
    int rc = SSL_do_handshake(e->ssl);
    if (rc == 1)
        return 1;
    int err = SSL_get_error(e->ssl, rc);
    ERR_clear_error();
    return err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE ? 0 : -1;
}
