// `ebclr` as a user starts it: answers --help and --version by itself, in a millisecond, and for everything
// else becomes the program proper (same process, same arguments), which takes some 0.4 s to load libtorch.
// docs/decisions/0010 says more.

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "launcher/answers.h"

namespace {

/// The arguments as one line, -h as --help.
std::string words_of(int argc, char** argv) {
  std::string out;
  for (int i = 1; i < argc; ++i) {
    const char* word = std::strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
    if (std::strchr(word, ' ') != nullptr) return {};
    if (i > 1) out += ' ';
    out += word;
  }
  return out;
}

/// The folder of this very file, symbolic links followed.
std::string own_folder() {
  char path[PATH_MAX];
  const auto length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return {};
  const std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/'));
}

}  // namespace

int main(int argc, char** argv) {
  const auto words = words_of(argc, argv);
  for (const auto* a = ebclr::launcher::kAnswers; a->words != nullptr; ++a)
    if (words == a->words) return std::fputs(a->text, stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;

  // libgomp reads this when it is loaded: threads that wait by spinning take time from those that work, even
  // on a quiet machine (docs/benchmarks.md).
  if (std::getenv("OMP_WAIT_POLICY") == nullptr && std::getenv("GOMP_SPINCOUNT") == nullptr)
    ::setenv("OMP_WAIT_POLICY", "passive", 0);
  // Debian 13's libtorch brings UCX, which takes SIGHUP for itself when it is loaded, also where nohup had it
  // ignored: a closed terminal would end a training that was to outlive it.
  ::setenv("UCX_DEBUG_SIGNO", "0", 0);

  const auto folder = own_folder();
  for (const std::string& program : {folder + "/libexec/ebclr", folder + "/" EBCLR_LIBEXEC "/ebclr"}) {
    ::execv(program.c_str(), argv);
    if (errno != ENOENT && errno != ENOTDIR) {
      std::fprintf(stderr, "ebclr: %s: cannot be started: %s\n", program.c_str(), std::strerror(errno));
      return 1;
    }
  }
  std::fprintf(
      stderr,
      "ebclr: its other part, %s/libexec/ebclr, is missing; build it (make), or install both with cmake "
      "--install\n",
      folder.c_str());
  return 1;
}
