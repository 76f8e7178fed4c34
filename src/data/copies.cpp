#include "data/copies.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "core/files.h"
#include "core/threads.h"
#include "image/read_file.h"

namespace ebclr::data {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kBeginning = 4096;

using FileNumbers = std::vector<size_t>;

// SHA-256 of the first `bytes` of those files; "" where one cannot be read.
std::vector<std::string> digests(const fs::path& folder, const std::vector<FoundFile>& files,
                                 const FileNumbers& wanted, uint64_t bytes, int threads) {
  std::vector<std::string> out(wanted.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < wanted.size();) {
      try {
        out[i] = core::sha256(image::read_regular(folder / files[wanted[i]].path, bytes));
      } catch (const std::exception&) {  // it will be named when it is decoded
      }
    }
  };
  const auto most = static_cast<size_t>(threads > 0 ? threads : core::available_cores());
  std::vector<std::thread> team;
  for (size_t t = 1; t < std::min(most, wanted.size()); ++t) team.emplace_back(work);
  work();
  for (auto& t : team) t.join();
  return out;
}

// Of files that may be equal those that still may be when `bytes` of them are read. All lists ascend.
std::vector<FileNumbers> narrowed(const fs::path& folder, const std::vector<FoundFile>& files,
                                  const std::vector<FileNumbers>& alike, uint64_t bytes, int threads) {
  FileNumbers wanted;
  for (const auto& group : alike) wanted.insert(wanted.end(), group.begin(), group.end());
  const auto digest = digests(folder, files, wanted, bytes, threads);
  std::vector<FileNumbers> out;
  size_t at = 0;
  for (const auto& group : alike) {
    std::map<std::string, FileNumbers> by_digest;
    for (const size_t file : group)
      if (const auto& d = digest[at++]; !d.empty()) by_digest[d].push_back(file);
    for (auto& [d, part] : by_digest)
      if (part.size() > 1) out.push_back(std::move(part));
  }
  return out;
}

}  // namespace

std::vector<size_t> first_of_equals(const fs::path& folder, const std::vector<FoundFile>& files,
                                    int threads) {
  std::map<uint64_t, FileNumbers> by_size;
  for (size_t i = 0; i < files.size(); ++i)
    if (files[i].stamp.size > 0) by_size[files[i].stamp.size].push_back(i);
  std::vector<FileNumbers> alike;
  for (auto& [size, group] : by_size)
    if (group.size() > 1) alike.push_back(std::move(group));
  alike = narrowed(folder, files, alike, kBeginning, threads);
  alike = narrowed(folder, files, alike, image::kMaxFileBytes, threads);
  std::vector<size_t> first(files.size());
  std::iota(first.begin(), first.end(), size_t{0});
  for (const auto& group : alike)
    for (const size_t file : group) first[file] = group.front();
  return first;
}

}  // namespace ebclr::data
