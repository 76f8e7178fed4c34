// Read first by clang-tidy (tools/lint), never by the build. g++ 12's std::vector is constexpr in C++20, and
// clang instantiates constexpr members at once, also where torch 1.13 has a vector of a class that is not
// complete yet. Here the vector alone is read without constexpr; the headers it is made of come before and
// keep theirs, so the one function that they declared constexpr for it gets another name.
#pragma once

#include <memory>
#include <string>
#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_bits
#include <vector>
#undef __fill_a1
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")
