/* Names that the API answers to: none that a web page could make its own. (P56) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/hosts.h"

static void check(const struct host_names *h, const char *const yes[], const char *const no[])
{
    for (; *yes; yes++)
        if (!hosts_accept(h, *yes))
            fail_msg("'%s' is refused", *yes);
    for (; *no; no++)
        if (hosts_accept(h, *no))
            fail_msg("'%s' is accepted", *no);
    assert_false(hosts_accept(h, NULL));
}

static void test_loopback(void **state)
{
    (void)state;
    const struct host_names h = {.listen = {"127.0.0.1", "", "", ""}, .lists = {"telemetry.vercel.com", ""}};
    static const char *const yes[] = {
        "127.0.0.1",      "127.0.0.1:8799", "127.9.8.7:1",          "[::1]:80",
        "[::1]",          "localhost",      "LocalHost:443",        "vercel.com",
        "vercel.com:443", "api.vercel.com", "telemetry.vercel.com", NULL};
    static const char *const no[] = {"",
                                     ":80",
                                     "evil.example",
                                     "evil.example:8799",
                                     "127.0.0.1.evil.example",
                                     "localhost.evil.example",
                                     "evil.vercel.com",
                                     "vercel.com.evil.example",
                                     "192.168.1.5:8799",
                                     "0.0.0.0:8799",
                                     "[::]:8799",
                                     "[fe80::1]",
                                     "[::1",
                                     "::1",
                                     "[127.0.0.1]",
                                     "[]",
                                     "localhost:80:evil",
                                     "localhost:80@evil.example",
                                     "evil.example@localhost",
                                     "localhost,evil.example",
                                     "2130706433",
                                     "telemetry.vercel.com,",
                                     NULL};
    check(&h, yes, no);
}

static void test_addresses(void **state)
{
    (void)state;
    const struct host_names one = {.listen = {"192.168.1.5", "fd00::0:1", "emulator.internal", ""}};
    static const char *const yes[] = {"192.168.1.5:1", "[fd00::1]:1", "127.0.0.1", "emulator.internal:80",
                                      NULL};
    static const char *const no[] = {"192.168.1.6", "[fd00::2]", "internal", NULL};
    check(&one, yes, no);
    const struct host_names all = {.listen = {"0.0.0.0", "", "", ""}, .lists = {"", "emulator,box.test"}};
    static const char *const any[] = {"10.1.2.3:8799", "[fd00::2]", "emulator:8799", "box.test", NULL};
    static const char *const names[] = {"test", "box", "emulato", "emulator.evil.example", NULL};
    check(&all, any, names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loopback), cmocka_unit_test(test_addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
