#include "emulator/account.h"
#include "base/clock.h"
#include "base/core/b64.h"
#include "base/crypto.h"
#include "base/json.h"
#include "emulator/jsonfile.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROJECTS_MAX = 256, GRANTS_MAX = 64, DEVICES_MAX = 32, HASH = 32, JWT_MAX = 4096 };

struct grant {
    unsigned char access[HASH], refresh[HASH];
    int64_t access_until_ms, refresh_until_ms;
};

enum device_state { WAITING, APPROVED, DENIED };

struct device {
    unsigned char code[HASH];
    char user_code[16];
    enum device_state state;
    int64_t until_mono, polled_mono;
};

struct account {
    pthread_mutex_t save; /* one writer of the file; taken before lock, and the only lock held over its I/O */
    pthread_mutex_t lock; /* everything below; microseconds */
    char path[640];
    bool approve;
    unsigned char key[HASH]; /* signs OIDC tokens */
    unsigned nprojects, ngrants, ndevices;
    struct account_project projects[PROJECTS_MAX];
    struct grant grants[GRANTS_MAX]; /* oldest first */
    struct device devices[DEVICES_MAX];
};

static void hash(const char *token, unsigned char out[HASH])
{
    sg_sha256(token, strlen(token), out);
}

/* Makes room at the end of a table, at the cost of its oldest entry. */
static void *append(void *table, size_t size, unsigned *n, unsigned max)
{
    char *p = table;
    if (*n == max)
        memmove(p, p + size, (size_t)-- * n * size);
    memset(p + *n * size, 0, size);
    return p + (*n)++ * size;
}

static void drop(void *table, size_t size, unsigned *n, unsigned i)
{
    char *p = table;
    --*n;
    memmove(p + i * size, p + (i + 1) * size, (*n - i) * size);
}

/* ---- the file ---- */

static bool hex_to(unsigned char *out, size_t n, const char *s)
{
    if (strlen(s) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int v = 0;
        for (int k = 0; k < 2; k++) {
            const char *d = strchr("0123456789abcdef", s[2 * i + (size_t)k]);
            if (!d)
                return false;
            v = v * 16 + (int)(d - "0123456789abcdef");
        }
        out[i] = (unsigned char)v;
    }
    return true;
}

/* With the lock held. */
static json_t *to_json(const struct account *a)
{
    char x[2 * HASH + 1], y[2 * HASH + 1];
    json_t *projects = json_array(), *grants = json_array();
    for (unsigned i = 0; i < a->nprojects; i++)
        json_array_append_new(projects,
                              json_pack("{s:s,s:s,s:I}", "id", a->projects[i].id, "name", a->projects[i].name,
                                        "created", (json_int_t)a->projects[i].created_ms));
    for (unsigned i = 0; i < a->ngrants; i++) {
        sg_hex(x, a->grants[i].access, HASH);
        sg_hex(y, a->grants[i].refresh, HASH);
        json_array_append_new(grants, json_pack("{s:s,s:s,s:I,s:I}", "access", x, "refresh", y,
                                                "access_until", (json_int_t)a->grants[i].access_until_ms,
                                                "refresh_until", (json_int_t)a->grants[i].refresh_until_ms));
    }
    sg_hex(x, a->key, HASH);
    return json_pack("{s:s,s:o,s:o}", "key", x, "projects", projects, "grants", grants);
}

static bool save(struct account *a)
{
    pthread_mutex_lock(&a->save);
    pthread_mutex_lock(&a->lock);
    json_t *o = to_json(a);
    pthread_mutex_unlock(&a->lock);
    bool ok = jsonfile_store(a->path, o);
    pthread_mutex_unlock(&a->save);
    return ok;
}

static bool load_projects(struct account *a, const json_t *list)
{
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        if (a->nprojects == PROJECTS_MAX)
            return false;
        struct account_project *p = &a->projects[a->nprojects++];
        snprintf(p->id, sizeof p->id, "%s", sg_jget_str(o, "id", ""));
        snprintf(p->name, sizeof p->name, "%s", sg_jget_str(o, "name", ""));
        p->created_ms = sg_jget_int(o, "created", 0);
        if (!*p->id || !*p->name)
            return false;
    }
    return true;
}

static bool load_grants(struct account *a, const json_t *list)
{
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        if (a->ngrants == GRANTS_MAX)
            return false;
        struct grant *g = &a->grants[a->ngrants++];
        g->access_until_ms = sg_jget_int(o, "access_until", 0);
        g->refresh_until_ms = sg_jget_int(o, "refresh_until", 0);
        if (!hex_to(g->access, HASH, sg_jget_str(o, "access", "")) ||
            !hex_to(g->refresh, HASH, sg_jget_str(o, "refresh", "")))
            return false;
    }
    return true;
}

static bool load(struct account *a, char err[256])
{
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        bool fresh = errno == ENOENT;
        if (!fresh)
            snprintf(err, 256, "cannot read %.160s: %s", a->path, strerror(errno));
        else if (!(fresh = sg_random(a->key, HASH)))
            snprintf(err, 256, "the system has no random numbers");
        return fresh;
    }
    json_t *o = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    close(fd);
    bool ok = json_is_object(o) && hex_to(a->key, HASH, sg_jget_str(o, "key", "")) &&
              load_projects(a, json_object_get(o, "projects")) &&
              load_grants(a, json_object_get(o, "grants"));
    json_decref(o);
    if (!ok)
        snprintf(err, 256, "%.180s makes no sense; remove it to forget logins and projects", a->path);
    return ok;
}

struct account *account_open(const char *state_dir, bool approve, char err[256])
{
    struct account *a = calloc(1, sizeof *a);
    if (!a) {
        snprintf(err, 256, "no memory");
        return NULL;
    }
    pthread_mutex_init(&a->save, NULL);
    pthread_mutex_init(&a->lock, NULL);
    a->approve = approve;
    snprintf(a->path, sizeof a->path, "%s/account.json", state_dir);
    if (!load(a, err)) {
        account_free(a);
        return NULL;
    }
    return a;
}

void account_free(struct account *a)
{
    if (!a)
        return;
    pthread_mutex_destroy(&a->save);
    pthread_mutex_destroy(&a->lock);
    OPENSSL_cleanse(a->key, sizeof a->key);
    free(a);
}

/* ---- logins ---- */

/* Tokens for a new login, or for one that goes on (old). */
static enum account_answer issue(struct account *a, const unsigned char *old, struct account_tokens *out)
{
    if (!sg_random_id(out->access, "vca_", 40) || !sg_random_id(out->refresh, "vcr_", 40))
        return ACCOUNT_FAILED;
    int64_t now = sg_wall_ms();
    pthread_mutex_lock(&a->lock);
    struct grant *g = NULL;
    for (unsigned i = 0; old && i < a->ngrants; i++)
        if (sg_equal_ct(a->grants[i].refresh, old, HASH) && a->grants[i].refresh_until_ms > now)
            g = &a->grants[i];
    if (!old)
        g = append(a->grants, sizeof *g, &a->ngrants, GRANTS_MAX);
    if (g) {
        hash(out->access, g->access);
        hash(out->refresh, g->refresh);
        g->access_until_ms = now + ACCOUNT_TOKEN_S * 1000LL;
        g->refresh_until_ms = now + ACCOUNT_REFRESH_S * 1000LL;
    }
    pthread_mutex_unlock(&a->lock);
    if (!g)
        return ACCOUNT_UNKNOWN;
    return save(a) ? ACCOUNT_DONE : ACCOUNT_FAILED;
}

/* Codes that a person types: no vowels, so no words, and nothing to mistake. */
static bool make_user_code(char out[16])
{
    static const char letters[] = "BCDFGHJKLMNPQRSTVWXZ";
    unsigned char raw[8];
    if (!sg_random(raw, sizeof raw))
        return false;
    for (unsigned i = 0; i < 8; i++)
        out[i + (i >= 4)] = letters[raw[i] % (sizeof letters - 1)];
    out[4] = '-';
    out[9] = '\0';
    return true;
}

bool account_device_begin(struct account *a, char device_code[ACCOUNT_CODE_TEXT], char user_code[16])
{
    if (!sg_random_id(device_code, "dev_", 40) || !make_user_code(user_code))
        return false;
    pthread_mutex_lock(&a->lock);
    struct device *d = append(a->devices, sizeof *d, &a->ndevices, DEVICES_MAX);
    hash(device_code, d->code);
    snprintf(d->user_code, sizeof d->user_code, "%s", user_code);
    d->state = a->approve ? APPROVED : WAITING;
    d->until_mono = sg_mono_ms() + ACCOUNT_DEVICE_S * 1000LL;
    pthread_mutex_unlock(&a->lock);
    return true;
}

bool account_device_decide(struct account *a, const char *user_code, bool approve)
{
    bool found = false;
    int64_t now = sg_mono_ms();
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->ndevices && !found; i++) {
        struct device *d = &a->devices[i];
        found = d->state == WAITING && d->until_mono > now && !strcmp(d->user_code, user_code);
        if (found)
            d->state = approve ? APPROVED : DENIED;
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

enum account_answer account_device_poll(struct account *a, const char *device_code,
                                        struct account_tokens *out)
{
    unsigned char h[HASH];
    enum account_answer answer = ACCOUNT_UNKNOWN;
    int64_t now = sg_mono_ms();
    hash(device_code, h);
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->ndevices; i++) {
        struct device *d = &a->devices[i];
        if (!sg_equal_ct(d->code, h, HASH))
            continue;
        bool hasty = d->polled_mono && now - d->polled_mono < ACCOUNT_POLL_S * 500LL;
        d->polled_mono = now;
        if (d->until_mono <= now)
            answer = ACCOUNT_EXPIRED;
        else if (d->state == DENIED)
            answer = ACCOUNT_DENIED;
        else if (d->state == APPROVED)
            answer = ACCOUNT_DONE;
        else
            answer = hasty ? ACCOUNT_SLOW_DOWN : ACCOUNT_PENDING;
        if (answer != ACCOUNT_SLOW_DOWN && answer != ACCOUNT_PENDING)
            drop(a->devices, sizeof *d, &a->ndevices, i);
        break;
    }
    pthread_mutex_unlock(&a->lock);
    return answer == ACCOUNT_DONE ? issue(a, NULL, out) : answer;
}

enum account_answer account_refresh(struct account *a, const char *refresh, struct account_tokens *out)
{
    unsigned char h[HASH];
    hash(refresh, h);
    return issue(a, h, out);
}

void account_revoke(struct account *a, const char *token)
{
    unsigned char h[HASH];
    bool changed = false;
    hash(token, h);
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->ngrants && !changed; i++) {
        changed = sg_equal_ct(a->grants[i].access, h, HASH) || sg_equal_ct(a->grants[i].refresh, h, HASH);
        if (changed)
            drop(a->grants, sizeof *a->grants, &a->ngrants, i);
    }
    pthread_mutex_unlock(&a->lock);
    if (changed && !save(a))
        return; /* it is revoked for as long as this process lives; the log says why not longer */
}

/* ---- OIDC tokens ---- */

static void to_url_alphabet(char *s)
{
    size_t n = 0;
    for (const char *p = s; *p && *p != '='; p++)
        s[n++] = (char)(*p == '+' ? '-' : *p == '/' ? '_' : *p);
    s[n] = '\0';
}

/* Appends base64url text of data to out; false when it does not fit. */
static bool add_b64url(char *out, size_t cap, const void *data, size_t n)
{
    size_t have = strlen(out);
    if (cap - have <= SG_B64_LEN(n))
        return false;
    out[have + sg_b64_encode(out + have, data, n)] = '\0';
    to_url_alphabet(out + have);
    return true;
}

static bool sign(const struct account *a, const char *text, size_t n, char *out, size_t cap)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    *out = '\0';
    return HMAC(EVP_sha256(), a->key, HASH, (const unsigned char *)text, n, mac, &len) &&
           add_b64url(out, cap, mac, len);
}

char *account_jwt(const struct account *a, const char *team, const char *project)
{
    static const char header[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
    json_int_t now = sg_wall_ms() / 1000;
    char *text = calloc(1, JWT_MAX);
    json_t *o = json_pack("{s:s,s:s+++,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I}", "iss",
                          "https://oidc.vercel.com/" ACCOUNT_SLUG, "sub",
                          "owner:" ACCOUNT_SLUG ":project:", project, ":environment:", "development", "aud",
                          "https://vercel.com/" ACCOUNT_SLUG, "owner", ACCOUNT_SLUG, "owner_id", team,
                          "project", project, "project_id", project, "environment", "development", "user_id",
                          ACCOUNT_USER, "iat", now, "nbf", now, "exp", now + (json_int_t)ACCOUNT_JWT_S);
    char *claims = o ? json_dumps(o, JSON_COMPACT) : NULL;
    char mac[64];
    bool ok = text && claims && add_b64url(text, JWT_MAX, header, strlen(header));
    if (ok) {
        size_t n = strlen(text);
        text[n] = '.';
        ok = add_b64url(text, JWT_MAX - 64, claims, strlen(claims)) &&
             sign(a, text, strlen(text), mac, sizeof mac);
    }
    if (ok)
        snprintf(text + strlen(text), JWT_MAX - strlen(text), ".%s", mac);
    free(claims);
    json_decref(o);
    if (!ok) {
        free(text);
        text = NULL;
    }
    return text;
}

static json_t *decode_claims(const char *p, size_t n)
{
    char in[JWT_MAX], out[JWT_MAX];
    if (n + 4 > sizeof in)
        return NULL;
    for (size_t i = 0; i < n; i++)
        in[i] = (char)(p[i] == '-' ? '+' : p[i] == '_' ? '/' : p[i]);
    while (n % 4)
        in[n++] = '=';
    ssize_t len = sg_b64_decode(out, in, n);
    return len < 0 ? NULL : json_loadb(out, (size_t)len, 0, NULL);
}

/* A token of ours: header.claims.mac, not yet expired. */
static bool jwt_ok(const struct account *a, const char *token, char project[ACCOUNT_NAME_TEXT])
{
    const char *claims = strchr(token, '.');
    const char *mac = claims ? strchr(claims + 1, '.') : NULL;
    char want[64];
    if (!mac || !sign(a, token, (size_t)(mac - token), want, sizeof want) ||
        strlen(mac + 1) != strlen(want) || !sg_equal_ct(mac + 1, want, strlen(want)))
        return false;
    json_t *o = decode_claims(claims + 1, (size_t)(mac - claims - 1));
    bool ok = json_is_object(o) && sg_jget_int(o, "exp", 0) > sg_wall_ms() / 1000;
    if (ok)
        snprintf(project, ACCOUNT_NAME_TEXT, "%s", sg_jget_str(o, "project_id", ""));
    json_decref(o);
    return ok;
}

bool account_token_ok(struct account *a, const char *token, char project[ACCOUNT_NAME_TEXT])
{
    unsigned char h[HASH];
    bool ok = false;
    int64_t now = sg_wall_ms();
    *project = '\0';
    if (strlen(token) >= JWT_MAX)
        return false;
    hash(token, h);
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < a->ngrants; i++)
        if (sg_equal_ct(a->grants[i].access, h, HASH))
            ok = a->grants[i].access_until_ms > now;
    pthread_mutex_unlock(&a->lock);
    return ok || jwt_ok(a, token, project);
}

/* ---- projects ---- */

/* With the lock held. */
static struct account_project *find(struct account *a, const char *id_or_name)
{
    for (unsigned i = 0; i < a->nprojects; i++)
        if (!strcmp(a->projects[i].id, id_or_name) || !strcmp(a->projects[i].name, id_or_name))
            return &a->projects[i];
    return NULL;
}

bool account_project(struct account *a, const char *id_or_name, struct account_project *out)
{
    pthread_mutex_lock(&a->lock);
    const struct account_project *p = find(a, id_or_name);
    if (p)
        *out = *p;
    pthread_mutex_unlock(&a->lock);
    return p != NULL;
}

int account_project_add(struct account *a, const char *name, struct account_project *out)
{
    struct account_project p = {.created_ms = sg_wall_ms()};
    snprintf(p.name, sizeof p.name, "%s", name);
    if (!sg_random_id(p.id, "prj_", 24))
        return EIO;
    pthread_mutex_lock(&a->lock);
    bool there = find(a, name) != NULL;
    if (!there)
        *(struct account_project *)append(a->projects, sizeof p, &a->nprojects, PROJECTS_MAX) = p;
    pthread_mutex_unlock(&a->lock);
    if (there)
        return EEXIST;
    *out = p;
    return save(a) ? 0 : EIO;
}
