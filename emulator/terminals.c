#include "base/clock.h"
#include "base/crypto.h"
#include "emulator/terminal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct token {
    char text[TERMINAL_TOKEN]; /* "": free */
    char session_id[ID_TEXT];
    int64_t until_mono;
};

struct terminals {
    pthread_mutex_t lock;
    pthread_cond_t left;
    unsigned connected;
    bool stopping;
    struct token tokens[TERMINALS_MAX];
};

struct terminals *terminals_new(void)
{
    struct terminals *ts = calloc(1, sizeof *ts);
    if (!ts)
        return NULL;
    pthread_mutex_init(&ts->lock, NULL);
    pthread_cond_init(&ts->left, NULL);
    return ts;
}

void terminals_free(struct terminals *ts)
{
    if (!ts)
        return;
    pthread_cond_destroy(&ts->left);
    pthread_mutex_destroy(&ts->lock);
    free(ts);
}

void terminals_stop(struct terminals *ts)
{
    pthread_mutex_lock(&ts->lock);
    ts->stopping = true;
    while (ts->connected)
        pthread_cond_wait(&ts->left, &ts->lock);
    pthread_mutex_unlock(&ts->lock);
}

bool terminals_token(struct terminals *ts, const char *session_id, char out[TERMINAL_TOKEN])
{
    size_t n = strlen(session_id) + 1;
    if (n > ID_TEXT || !sg_random_id(out, "pty_", TERMINAL_TOKEN - 5))
        return false;
    pthread_mutex_lock(&ts->lock);
    struct token *place = &ts->tokens[0]; /* a free one counts as the oldest */
    for (size_t i = 0; i < TERMINALS_MAX; i++)
        if (ts->tokens[i].until_mono < place->until_mono)
            place = &ts->tokens[i];
    memcpy(place->text, out, TERMINAL_TOKEN);
    memcpy(place->session_id, session_id, n);
    place->until_mono = sg_mono_ms() + TERMINAL_TOKEN_MS;
    pthread_mutex_unlock(&ts->lock);
    return true;
}

bool terminals_redeem(struct terminals *ts, const char *token, char session_id[ID_TEXT])
{
    bool ok = false;
    if (strlen(token) != TERMINAL_TOKEN - 1)
        return false;
    pthread_mutex_lock(&ts->lock);
    int64_t now = sg_mono_ms();
    for (size_t i = 0; i < TERMINALS_MAX; i++) {
        struct token *t = &ts->tokens[i];
        if (!*t->text || !sg_equal_ct(t->text, token, TERMINAL_TOKEN - 1))
            continue;
        ok = now < t->until_mono;
        memcpy(session_id, t->session_id, ID_TEXT);
        *t = (struct token){0};
        break;
    }
    pthread_mutex_unlock(&ts->lock);
    return ok;
}

bool terminals_enter(struct terminals *ts)
{
    pthread_mutex_lock(&ts->lock);
    bool ok = !ts->stopping && ts->connected < TERMINALS_MAX;
    ts->connected += ok;
    pthread_mutex_unlock(&ts->lock);
    return ok;
}

void terminals_leave(struct terminals *ts)
{
    pthread_mutex_lock(&ts->lock);
    ts->connected--;
    pthread_cond_broadcast(&ts->left); /* under the lock: the waiter may free it right after */
    pthread_mutex_unlock(&ts->lock);
}
