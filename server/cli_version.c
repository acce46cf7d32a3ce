/* What this program was made of and runs on. */
#include "server/cli.h"

#include "cli_commit.h" /* generated: the commit */

#include <curl/curl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <uv.h>

const char *cli_version(void)
{
    return SG_VERSION " (commit " SG_COMMIT ")";
}

void cli_print_version(void)
{
    (void)printf("sandgate %s\n"
                 "build: %s\n"
                 "libraries: libmicrohttpd %s, libcurl %s, jansson %s, OpenSSL %s, libuv %s\n",
                 cli_version(), SG_VARIANT, MHD_get_version(), curl_version_info(CURLVERSION_NOW)->version,
                 jansson_version_str(), OpenSSL_version(OPENSSL_VERSION_STRING), uv_version_string());
}
