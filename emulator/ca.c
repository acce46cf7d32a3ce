#include "emulator/ca.h"
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CA_DAYS = 3650, CA_RENEW_DAYS = 30, DAY_S = 86400, FILE_MAX = 16 << 10, LIST_MAX = 8 << 10 };

struct ca {
    X509 *cert;
    EVP_PKEY *key;
    char pem[512];
};

EVP_PKEY *ca_key_new(void)
{
    return EVP_EC_gen("P-256");
}

X509 *ca_certificate(const struct ca *ca)
{
    return ca->cert;
}

const char *ca_pem_path(const struct ca *ca)
{
    return ca->pem;
}

void ca_free(struct ca *ca)
{
    if (!ca)
        return;
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca);
}

/* ---- certificates ---- */

static int add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    int ok = e && X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
    return ok;
}

static int set_serial(X509 *x)
{
    unsigned char raw[16];
    if (RAND_bytes(raw, sizeof raw) != 1)
        return 0;
    raw[0] = (unsigned char)((raw[0] & 0x3f) | 0x40); /* positive, and never short */
    BIGNUM *n = BN_bin2bn(raw, sizeof raw, NULL);
    int ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return ok;
}

/* Everything that authority and leaf have in common. */
static X509 *new_certificate(const char *name, EVP_PKEY *key, X509 *issuer, int days)
{
    X509 *x = X509_new();
    X509_NAME *subject = x ? X509_get_subject_name(x) : NULL;
    /* an hour back, for clocks that are late */
    int ok =
        x && X509_set_version(x, 2) && set_serial(x) && X509_gmtime_adj(X509_getm_notBefore(x), -3600) &&
        X509_gmtime_adj(X509_getm_notAfter(x), (long)days * DAY_S) && X509_set_pubkey(x, key) &&
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0) &&
        X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : subject);
    if (ok)
        return x;
    X509_free(x);
    return NULL;
}

static X509 *new_authority(EVP_PKEY *key)
{
    X509 *x = new_certificate("Sandgate emulator CA", key, NULL, CA_DAYS);
    int ok = x && add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
             add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
             add_extension(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key, EVP_sha256());
    if (ok)
        return x;
    X509_free(x);
    return NULL;
}

/* OpenSSL reads the list as text, so a name must have nothing that divides it. */
static bool is_dns_name(const char *s)
{
    if (!strncmp(s, "*.", 2))
        s += 2;
    return *s && strlen(s) < 254 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(s);
}

static bool name_list(struct sg_buf *out, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_dns_name(names[i]))
            return false;
        sg_buf_addf(out, "%sDNS:%s", i ? "," : "", names[i]);
    }
    return n && n <= CA_NAMES_MAX && !out->failed;
}

X509 *ca_issue(const struct ca *ca, EVP_PKEY *key, const char *const *names, size_t n)
{
    X509 *x = NULL;
    struct sg_buf list;
    sg_buf_init(&list, LIST_MAX);
    if (!name_list(&list, names, n))
        goto out;
    /* the subject is for people: a common name may have 64 characters */
    x = new_certificate(strlen(names[0]) <= 64 ? names[0] : "sandbox", key, ca->cert, CA_LEAF_DAYS);
    int ok = x && add_extension(x, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
             add_extension(x, ca->cert, NID_key_usage, "critical,digitalSignature") &&
             add_extension(x, ca->cert, NID_ext_key_usage, "serverAuth") &&
             add_extension(x, ca->cert, NID_subject_alt_name, list.data) &&
             add_extension(x, ca->cert, NID_authority_key_identifier, "keyid") &&
             X509_sign(x, ca->key, EVP_sha256());
    if (!ok) {
        X509_free(x);
        x = NULL;
    }
out:
    sg_buf_free(&list);
    return x;
}

/* ---- files ---- */

static BIO *read_file(const char *path)
{
    char text[FILE_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    BIO *b = n > 0 && n < FILE_MAX ? BIO_new(BIO_s_mem()) : NULL;
    if (b && BIO_write(b, text, (int)n) != n) {
        BIO_free(b);
        b = NULL;
    }
    OPENSSL_cleanse(text, sizeof text);
    return b;
}

static int write_file(const char *path, BIO *content, mode_t mode)
{
    char tmp[560];
    char *p = NULL;
    long n = BIO_get_mem_data(content, &p);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    int fd = n > 0 ? open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode) : -1;
    if (fd < 0)
        return -1;
    int ok = !fchmod(fd, mode) && write(fd, p, (size_t)n) == n && !fsync(fd);
    ok = !close(fd) && ok;
    ok = ok && !rename(tmp, path);
    if (!ok)
        unlink(tmp);
    return ok ? 0 : -1;
}

/* What is there and still good for a while. */
static bool load(struct ca *ca, const char *key_path)
{
    BIO *cert = read_file(ca->pem), *key = read_file(key_path);
    time_t soon = time(NULL) + (time_t)CA_RENEW_DAYS * DAY_S;
    if (cert && key) {
        ca->cert = PEM_read_bio_X509(cert, NULL, NULL, NULL);
        ca->key = PEM_read_bio_PrivateKey(key, NULL, NULL, NULL);
    }
    BIO_free(cert);
    BIO_free(key);
    if (ca->cert && ca->key && X509_check_private_key(ca->cert, ca->key) == 1 &&
        X509_cmp_time(X509_get0_notAfter(ca->cert), &soon) > 0)
        return true;
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    ca->cert = NULL;
    ca->key = NULL;
    return false;
}

static bool make(struct ca *ca, const char *key_path)
{
    BIO *cert = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_secmem());
    ca->key = ca_key_new();
    ca->cert = ca->key ? new_authority(ca->key) : NULL;
    bool ok = cert && key && ca->cert && PEM_write_bio_X509(cert, ca->cert) == 1 &&
              PEM_write_bio_PrivateKey(key, ca->key, NULL, NULL, 0, NULL, NULL) == 1 &&
              !write_file(key_path, key, 0600) && !write_file(ca->pem, cert, 0644);
    BIO_free(cert);
    BIO_free(key);
    return ok;
}

int ca_open(const char *dir, struct ca **out, char err[256])
{
    char key_path[512];
    struct ca *ca = calloc(1, sizeof *ca);
    *out = NULL;
    if (!ca) {
        snprintf(err, 256, "no memory");
        return -1;
    }
    int n = snprintf(ca->pem, sizeof ca->pem, "%s/ca.pem", dir);
    snprintf(key_path, sizeof key_path, "%s/ca.key", dir);
    errno = 0;
    if (n >= (int)sizeof ca->pem)
        errno = ENAMETOOLONG;
    else if (mkdir(dir, 0700) && errno != EEXIST)
        ;
    else if (load(ca, key_path) || make(ca, key_path))
        *out = ca;
    if (*out)
        return 0;
    snprintf(err, 256, "cannot make a certificate authority in %.160s: %s", dir,
             errno ? strerror(errno) : "OpenSSL refuses");
    ca_free(ca);
    return -1;
}
