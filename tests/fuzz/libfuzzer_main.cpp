// One program for all targets: EBCLR_FUZZ_TARGET names the one. tools/fuzz runs it.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "study/shipped_studies.h"
#include "targets.h"

namespace {
const ebclr::fuzz::Target* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("EBCLR_FUZZ_TARGET");
  for (const auto& t : ebclr::fuzz::targets())
    if (name && t.name == name) chosen = &t;
  if (chosen) return 0;
  std::fprintf(stderr, "set EBCLR_FUZZ_TARGET to one of:");
  for (const auto& t : ebclr::fuzz::targets()) std::fprintf(stderr, " %s", t.name.c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto wrong = ebclr::fuzz::run(*chosen, {reinterpret_cast<const std::byte*>(data), size});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}

namespace ebclr::study {
// The shipped studies are embedded by their own room; the reader needs none of them.
const std::vector<run::ShippedConfig>& shipped_studies() {
  static const std::vector<run::ShippedConfig> none;
  return none;
}
}  // namespace ebclr::study
