#pragma once

/// Marks what libebclr.so shows; everything else in it is hidden.
#define EBCLR_API __attribute__((visibility("default")))
