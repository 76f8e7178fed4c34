// Downloads over https that go on where they were cut.

#include <httplib.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "data/fetch_parts.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

// "host", "host:443", "[::1]:443". The library matches it with a regular expression, which takes stack for
// each letter, and turns the port into a number, which throws at one that is too long.
bool plain_authority(std::string_view text) {
  if (text.starts_with("[")) {
    const auto end = text.find(']');
    if (end == std::string_view::npos || end > 40 || text.find_first_not_of("0123456789:", 1) != end)
      return false;
    text.remove_prefix(end + 1);
  } else {
    const auto end = std::min(text.find(':'), text.size());
    const auto host = text.substr(0, end);
    const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; };
    if (host.empty() || host.size() > 253 || !std::all_of(host.begin(), host.end(), is_plain)) return false;
    text.remove_prefix(end);
  }
  if (text.empty()) return true;
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), port);
  return text[0] == ':' && error == std::errc() && end == text.data() + text.size() && port > 0;
}

}  // namespace

Url parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "https://";
  const auto slash = url.starts_with(kScheme) ? url.find('/', kScheme.size()) : std::string::npos;
  if (slash == std::string::npos ||
      !plain_authority(std::string_view(url).substr(kScheme.size(), slash - kScheme.size())))
    core::run_error(kFetchComponent, fmt::format("{}: not an https address", url));
  return {url.substr(0, slash), url.substr(slash)};
}

std::string redirected(const std::string& from, const std::string& to) {
  if (to.find("://") < to.find_first_of("/?#")) return to;  // "://" may also stand in a query
  const auto url = parse_url(from);
  if (to.starts_with("//")) return "https:" + to;
  if (to.starts_with("/")) return url.origin + to;
  return url.origin + url.path.substr(0, url.path.rfind('/') + 1) + to;
}

std::optional<std::pair<uint64_t, uint64_t>> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  const char* const end = text.data() + text.size();
  uint64_t first = 0, last = 0;
  const auto a = std::from_chars(text.data() + kUnit.size(), end, first);
  if (a.ec != std::errc() || a.ptr == end || *a.ptr != '-') return std::nullopt;
  const auto b = std::from_chars(a.ptr + 1, end, last);
  if (b.ec != std::errc() || last < first || last == UINT64_MAX) return std::nullopt;
  return std::pair{first, last};
}

namespace {

std::string unreachable(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
    case httplib::Error::ConnectionTimeout:
      return "cannot be reached";
    case httplib::Error::SSLConnection:
    case httplib::Error::SSLLoadingCerts:
    case httplib::Error::SSLServerVerification:
      return "has no certificate that is trusted here";
    default:
      return fmt::format("does not answer ({})", httplib::to_string(error));
  }
}

// What one request came to.
struct Answer {
  enum Kind { kComplete, kCut, kMismatch, kRefused } kind = kRefused;
  std::string why;
};

// Asks for the rest of `part` and appends it.
Answer request(std::string url, const fs::path& part, const FetchOptions& o) {
  for (int hop = 0; hop < 6; ++hop) {
    std::error_code ec;
    const auto existing = fs::file_size(part, ec);
    uint64_t have = ec ? 0 : existing;
    const auto address = parse_url(url);
    httplib::Client client(address.origin);
    client.set_connection_timeout(o.connect_seconds);
    client.set_read_timeout(o.read_seconds);
    client.set_decompress(false);  // the files are gzip themselves and must stay so
    if (!o.ca_file.empty()) client.set_ca_cert_path(o.ca_file.string());
    httplib::Headers headers = {{"Accept-Encoding", "identity"}, {"User-Agent", "ebclr"}};
    if (have > 0) headers.emplace("Range", fmt::format("bytes={}-", have));

    int status = 0;
    std::string location, disk_problem;
    uint64_t total = 0;
    bool fits = true;
    std::optional<core::AppendFile> out;  // follows no link
    const auto attempt = [&](auto&& write) {
      try {
        write();
      } catch (const core::Error& e) {  // not through the library
        disk_problem = bare(e);
      }
      return disk_problem.empty();
    };
    const auto result = client.Get(
        address.path, headers,
        [&](const httplib::Response& r) {
          status = r.status;
          location = r.get_header_value("Location");
          if (status != 200 && status != 206) return false;
          const auto range =
              status == 206 ? parse_content_range(r.get_header_value("Content-Range")) : std::nullopt;
          fits = status == 200 || (range && range->first == have);
          if (!fits) return false;
          if (!range) {  // the server starts over, and so do we
            have = 0;
            fs::remove(part, ec);
          }
          const auto length = r.get_header_value("Content-Length");
          total = range ? range->second + 1 : std::strtoull(length.c_str(), nullptr, 10);
          if (total > kMaxFile) {
            disk_problem = fmt::format("the server announces {} bytes", total);
            return false;
          }
          return attempt([&] { out.emplace(part, kFetchComponent); });
        },
        [&](const char* data, size_t size) {
          have += size;
          if (have > kMaxFile) {
            disk_problem = "the server sends without end";
            return false;
          }
          if (!attempt([&] { out->append({data, size}); })) return false;
          report(o, "downloading " + url, have, total);
          return true;
        });
    out.reset();
    if (!disk_problem.empty()) core::run_error(kFetchComponent, disk_problem);
    if (status >= 300 && status < 400 && !location.empty()) {
      url = redirected(url, location);
      continue;
    }
    if (status == 416 || !fits) {
      fs::remove(part, ec);  // what we have does not fit what is there
      return {Answer::kMismatch, "the server does not continue the earlier download"};
    }
    if (status != 0 && status != 200 && status != 206)
      return {Answer::kRefused, fmt::format("{} answers {}", url, status)};
    if (status == 0)
      return {Answer::kRefused, fmt::format("{} {}", address.origin, unreachable(result.error()))};
    if (!result || (total > 0 && have < total))
      return {Answer::kCut, fmt::format("the connection was cut after {} of {} bytes", have, total)};
    return {Answer::kComplete, ""};
  }
  return {Answer::kRefused, "too many redirects"};
}

}  // namespace

void download(const std::string& url, const fs::path& target, const std::string& sha256,
              const FetchOptions& o) {
  fs::path part = target;
  part += ".part";
  std::error_code ec;
  // Only a file is continued: a link of that name would be written through, a pipe would wait.
  if (fs::symlink_status(part, ec).type() != fs::file_type::regular) fs::remove(part, ec);
  bool resumed = fs::exists(part, ec) && fs::file_size(part, ec) > 0;
  Answer answer;
  for (int attempt = 0; attempt < std::max(1, o.attempts); ++attempt) {
    report(o, fmt::format("{} {}", resumed ? "continuing" : "asking for", url));
    answer = request(url, part, o);
    if (answer.kind == Answer::kRefused) break;
    if (answer.kind == Answer::kMismatch) {
      if (!resumed) break;
      resumed = false;
      --attempt;  // from the start, at most once per part
      continue;
    }
    if (answer.kind == Answer::kCut) {
      resumed = true;
      continue;
    }
    if (!sha256.empty()) {
      try {
        check_sum(part, sha256);
      } catch (const core::Error& e) {
        fs::remove(part, ec);
        // Two halves of different files do not fit: once more from the start.
        if (resumed) {
          resumed = false;
          answer = {Answer::kRefused, bare(e)};
          continue;
        }
        core::run_error(kFetchComponent, fmt::format("{}: {}", url, bare(e)));
      }
    }
    fs::rename(part, target);
    return;
  }
  core::run_error(kFetchComponent, answer.why);
}

}  // namespace ebclr::data
