/* Whether an address can be listened on, asked before anything is started. */
#include "server/cli.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Parts HOST:PORT and [V6]:PORT (the configuration has checked the form). */
static bool split(const char *address, char host[256], char port[8])
{
    const char *colon = strrchr(address, ':');
    if (!colon || strlen(colon + 1) >= 8 || colon - address >= 256)
        return false;
    const char *begin = address;
    const char *end = colon;
    if (*begin == '[' && end > begin + 1 && end[-1] == ']') {
        begin++;
        end--;
    }
    (void)snprintf(host, 256, "%.*s", (int)(end - begin), begin);
    (void)snprintf(port, 8, "%s", colon + 1);
    return true;
}

static int try_bind(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int err = bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1) ? errno : 0;
    (void)close(fd);
    return err;
}

int cli_probe_listen(const char *address)
{
    char host[256], port[8];
    if (!split(address, host, port)) {
        cli_say("cannot listen on %.100s: not HOST:PORT", address);
        return EX_CONFIG;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc) {
        cli_say("cannot listen on %.100s: %s", address, gai_strerror(rc));
        return EX_CONFIG;
    }
    int err = try_bind(list);
    freeaddrinfo(list);
    if (!err)
        return EX_OK;
    if (err == EADDRINUSE) {
        cli_say(
            "cannot listen on %.100s: another program uses the port; stop it or choose another by --listen",
            address);
        return EX_TEMPFAIL;
    }
    cli_say("cannot listen on %.100s: %s", address, strerror(err));
    return err == EACCES || err == EPERM ? EX_NOPERM : EX_CONFIG;
}
