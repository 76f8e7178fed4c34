// Downloads over https that go on where they were cut.

#include <httplib.h>

#include <fstream>

#include "data/fetch_parts.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

struct Url {
  std::string origin, path;  // "https://host:port", "/a/b"
};

Url parse_url(const std::string& url) {
  const auto scheme = url.find("://");
  const auto slash = scheme == std::string::npos ? scheme : url.find('/', scheme + 3);
  if (!url.starts_with("https://") || slash == std::string::npos)
    core::run_error(kFetchComponent, fmt::format("{}: not an https address", url));
  return {url.substr(0, slash), url.substr(slash)};
}

std::string redirected(const std::string& from, const std::string& to) {
  if (to.find("://") != std::string::npos) return to;
  const auto url = parse_url(from);
  if (to.starts_with("/")) return url.origin + to;
  return url.origin + url.path.substr(0, url.path.rfind('/') + 1) + to;
}

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
    std::ofstream out;
    const auto result = client.Get(
        address.path, headers,
        [&](const httplib::Response& r) {
          status = r.status;
          location = r.get_header_value("Location");
          if (status != 200 && status != 206) return false;
          unsigned long long first = 0, last = 0;
          const bool continues = status == 206 && std::sscanf(r.get_header_value("Content-Range").c_str(),
                                                              "bytes %llu-%llu", &first, &last) == 2;
          fits = status == 200 || (continues && first == have && last >= first);
          if (!fits) return false;
          if (!continues) have = 0;  // the server starts over, and so do we
          const auto length = r.get_header_value("Content-Length");
          total = continues ? last + 1 : std::strtoull(length.c_str(), nullptr, 10);
          if (total > kMaxFile) {
            disk_problem = fmt::format("the server announces {} bytes", total);
            return false;
          }
          out.open(part, std::ios::binary | (continues ? std::ios::app : std::ios::trunc));
          if (!out) disk_problem = fmt::format("{}: cannot be written", part.string());
          return disk_problem.empty();
        },
        [&](const char* data, size_t size) {
          out.write(data, static_cast<std::streamsize>(size));
          have += size;
          if (!out) disk_problem = fmt::format("{}: writing failed; is the disk full?", part.string());
          if (have > kMaxFile) disk_problem = "the server sends without end";
          report(o, "downloading " + url, have, total);
          return disk_problem.empty();
        });
    out.close();
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
