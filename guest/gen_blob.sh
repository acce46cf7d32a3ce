#!/bin/sh
# Writes the assembler text that embeds the helper binaries: gen_blob.sh OUT BINARY...
# Paths are relative to the build directory, where the assembler runs, so none of the host's gets in.
set -eu
out=$1
shift
{
    echo '    .section .rodata'
    for f in "$@"; do
        arch=${f##*-}
        hash=$(sha256sum "$f" | cut -c1-16)
        cat <<EOF
    .globl sg_guest_${arch}, sg_guest_${arch}_end, sg_guest_${arch}_hash
    .hidden sg_guest_${arch}, sg_guest_${arch}_end, sg_guest_${arch}_hash
    .balign 16
sg_guest_${arch}:
    .incbin "$f"
sg_guest_${arch}_end:
    .byte 0
sg_guest_${arch}_hash:
    .asciz "$hash"
EOF
    done
    echo '    .section .note.GNU-stack,"",%progbits'
} >"$out"
