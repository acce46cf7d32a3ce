/* What the gateway carries: whole, static, without traces of the machine that built it. */
#include "harness.h"

#include "base/crypto.h"
#include "guest/guest_blob.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(const char *arch, uint16_t machine)
{
    const struct guest_blob *b = guest_blob_for(arch);
    assert_non_null(b);
    assert_string_equal(b->arch, arch);
    unsigned char sum[32];
    char hex[65];
    sg_sha256(b->data, b->len, sum);
    sg_hex(hex, sum, 32);
    assert_memory_equal(b->hash, hex, 16);
    assert_int_equal(b->hash[16], 0);
    Elf64_Ehdr h;
    assert_true(b->len > sizeof h && b->len < 4 << 20);
    memcpy(&h, b->data, sizeof h);
    assert_memory_equal(h.e_ident, ELFMAG, SELFMAG);
    assert_int_equal(h.e_machine, machine);
    for (unsigned i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, b->data + h.e_phoff + i * sizeof p, sizeof p);
        assert_int_not_equal(p.p_type, PT_INTERP); /* static */
    }
    assert_null(memmem(b->data, b->len, SOURCE_ROOT, strlen(SOURCE_ROOT)));
    assert_null(memmem(b->data, b->len, "SANDGATE_GUEST_ROOT", 19)); /* the tests' own helper only */
}

static void carried_helpers(void **state)
{
    (void)state;
    check("amd64", EM_X86_64);
#ifdef GUEST_ARM64
    check("arm64", EM_AARCH64);
#else
    assert_null(guest_blob_for("arm64"));
#endif
    assert_null(guest_blob_for("riscv"));
}

static void carried_helper_runs_here(void **state)
{
    (void)state;
#ifdef __x86_64__
    const struct guest_blob *b = guest_blob_for("amd64");
    char *file = path_in(scratch, "carried");
    file_write(file, b->data, b->len);
    assert_int_equal(chmod(file, 0755), 0);
    const char *const args[] = {"version", NULL};
    int fd;
    pid_t pid = guest_spawn(file, args, &fd);
    struct answer a = answer_read(pid, fd, (uint64_t[2]){0, 0});
    assert_int_equal(a.last.kind, SG_WIRE_OK);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carried_helpers),
        cmocka_unit_test(carried_helper_runs_here),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
