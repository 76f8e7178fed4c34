#pragma once
// One source, several instruction sets: the loader picks the widest that the machine has. Sources that must
// give the same bits on every machine are compiled with -ffp-contract=off (rng.cpp, view_ops.cpp); where a
// last digit may differ, as on a map for the eye (tsne.cpp), they are not.

// Sanitizers start after the dynamic loader resolves clones, hence none there.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EBCLR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EBCLR_CLONES
#endif
