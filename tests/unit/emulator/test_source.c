/* Where sources may come from: no address of this machine or network, whatever it is spelled like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return source_address_public((struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return source_address_public((struct sockaddr *)&v6);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const closed[] = {
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.9.9.9",
        "169.254.1.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "2002:7f00:1::",
        "::7f00:1",
    };
    static const char *const open[] = {
        "1.1.1.1",     "100.63.255.255", "100.128.0.0",      "172.15.0.1",
        "172.32.0.1",  "192.169.0.1",    "198.20.0.1",       "223.255.255.255",
        "2606:4700::", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2001:4860:4860::8888"};
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        if (is_public(closed[i]))
            fail_msg("%s counts as public", closed[i]);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (!is_public(open[i]))
            fail_msg("%s counts as private", open[i]);
    struct sockaddr other = {.sa_family = AF_UNIX};
    assert_false(source_address_public(&other));
}

static void test_urls(void **state)
{
    (void)state;
    char host[256], port[8], name[80];
    assert_true(source_url_host("https://github.com/a/b.git", host, port));
    assert_string_equal(host, "github.com");
    assert_string_equal(port, "443");
    assert_true(source_url_host("http://[::1]:8080/x", host, port));
    assert_string_equal(host, "::1");
    assert_string_equal(port, "8080");
    assert_true(source_url_host("http://h?q", host, port));
    assert_string_equal(port, "80");
    static const char *const bad[] = {"ssh://h/x",        "http://",   "http://[]/",   "http://h:/",
                                      "http://h:123456/", "file:///x", "http://h:80x", "ext::sh"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (source_url_host(bad[i], host, port))
            fail_msg("%s has a host", bad[i]);
    static const char *const names[][2] = {
        {"https://h/a/repo.git", "repo"},   {"https://h/repo/", "repo"},
        {"https://h/", "repository"},       {"https://h", "repository"},
        {"https://h/x.git?a=/b", "x"},      {"https://h/..", "repository"},
        {"https://h/a b%20c", "a_b_20c"},   {"https://h/.git", "repository"},
        {"file:///srv/my.repo", "my.repo"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        source_repository_name(names[i][0], name);
        assert_string_equal(name, names[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses), cmocka_unit_test(test_urls)};
    return cmocka_run_group_tests_name("emulator/source", tests, NULL, NULL);
}
