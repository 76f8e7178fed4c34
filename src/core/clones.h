#pragma once
// One source, several instruction sets: the loader picks the widest that the machine has. Callers compile
// with -ffp-contract=off, so that every variant gives the same bits.

// Sanitizers start after the dynamic loader resolves clones, hence none there.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EBCLR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EBCLR_CLONES
#endif
