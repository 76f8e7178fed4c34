#include "data/cifar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/error.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kCifarComponent = "data.cifar";
constexpr int64_t kPixels = 3 * 32 * 32;

const std::vector<std::string> kClasses10 = {"airplane", "automobile", "bird",  "cat",  "deer",
                                             "dog",      "frog",       "horse", "ship", "truck"};

const std::vector<std::string> kClasses20 = {"aquatic_mammals",
                                             "fish",
                                             "flowers",
                                             "food_containers",
                                             "fruit_and_vegetables",
                                             "household_electrical_devices",
                                             "household_furniture",
                                             "insects",
                                             "large_carnivores",
                                             "large_man-made_outdoor_things",
                                             "large_natural_outdoor_scenes",
                                             "large_omnivores_and_herbivores",
                                             "medium_mammals",
                                             "non-insect_invertebrates",
                                             "people",
                                             "reptiles",
                                             "small_mammals",
                                             "trees",
                                             "vehicles_1",
                                             "vehicles_2"};

const std::vector<std::string> kClasses100 = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

// What precedes the pixels of a record, byte by byte.
struct LabelByte {
  std::string_view name;
  int64_t classes;
};

// Records of a file; throws unless there is a whole number of them.
int64_t count_records(const fs::path& path, int64_t record) {
  std::error_code ec;
  if (!fs::exists(path, ec))
    core::usage_error(kCifarComponent,
                      fmt::format("{}: no such file; `ebclr data get` obtains the set", path.string()));
  if (!fs::is_regular_file(path, ec))
    core::usage_error(kCifarComponent, fmt::format("{}: not a regular file", path.string()));
  const auto size = static_cast<int64_t>(fs::file_size(path, ec));
  if (size == 0 || size % record != 0)
    core::usage_error(kCifarComponent,
                      fmt::format("{}: offset {}: the file ends after {} bytes; expected a whole number of "
                                  "{}-byte records, at least one",
                                  path.string(), size / record * record, size, record));
  return size / record;
}

// Reads files in order into pixels [N, 3, 32, 32] and one label tensor [N] per label byte.
void read_files(const std::vector<fs::path>& files, const std::vector<LabelByte>& label_bytes,
                torch::Tensor& pixels, std::vector<torch::Tensor>& labels) {
  const auto head = static_cast<int64_t>(label_bytes.size()), record = head + kPixels;
  int64_t total = 0;
  for (const auto& f : files) total += count_records(f, record);
  pixels = torch::empty({total, 3, 32, 32}, torch::kUInt8);
  labels.clear();
  for (int64_t l = 0; l < head; ++l) labels.push_back(torch::empty({total}, torch::kInt64));
  auto* to = pixels.data_ptr<uint8_t>();
  constexpr int64_t kChunk = 512;  // records; 1.6 MB, so that memory stays at the set's own size
  std::vector<uint8_t> buffer(std::min(kChunk, total) * record);
  int64_t row = 0;
  for (const auto& f : files) {
    std::ifstream in(f, std::ios::binary);
    if (!in) core::usage_error(kCifarComponent, fmt::format("{}: cannot be opened", f.string()));
    const int64_t n = count_records(f, record);
    for (int64_t done = 0; done < n;) {
      const int64_t part = std::min(kChunk, n - done);
      in.read(reinterpret_cast<char*>(buffer.data()), part * record);
      if (in.gcount() != part * record)
        core::run_error(kCifarComponent,
                        fmt::format("{}: offset {}: the file ended while it was read; expected {} records",
                                    f.string(), done * record + in.gcount(), n));
      for (int64_t i = 0; i < part; ++i, ++row) {
        const uint8_t* r = buffer.data() + i * record;
        for (int64_t l = 0; l < head; ++l) {
          if (r[l] >= label_bytes[l].classes)
            core::usage_error(
                kCifarComponent,
                fmt::format("{}: offset {}: {} {}; expected 0 to {}", f.string(), (done + i) * record + l,
                            label_bytes[l].name, r[l], label_bytes[l].classes - 1));
          labels[l].data_ptr<int64_t>()[row] = r[l];
        }
        std::memcpy(to + row * kPixels, r + head, kPixels);
      }
      done += part;
    }
  }
}

std::vector<fs::path> cifar10_files(const fs::path& folder, const std::string& split) {
  if (split == "test") return {folder / "test_batch.bin"};
  std::vector<fs::path> files;
  for (int i = 1; i <= 5; ++i) files.push_back(folder / fmt::format("data_batch_{}.bin", i));
  return files;
}

bool all_exist(const std::vector<fs::path>& files) {
  std::error_code ec;
  return std::all_of(files.begin(), files.end(), [&](const auto& f) { return fs::exists(f, ec); });
}

}  // namespace

ImageSet read_cifar10(const fs::path& folder, const std::string& split) {
  ImageSet set;
  set.name = "cifar10";
  set.split = split;
  set.class_names = kClasses10;
  std::vector<torch::Tensor> labels;
  read_files(cifar10_files(folder, split), {{"label", 10}}, set.pixels, labels);
  set.labels = labels[0];
  return set;
}

ImageSet read_cifar100(const fs::path& folder, const std::string& split, bool coarse) {
  ImageSet set;
  set.name = coarse ? "cifar100-coarse" : "cifar100";
  set.split = split;
  set.class_names = coarse ? kClasses20 : kClasses100;
  set.coarse_names = kClasses20;
  std::vector<torch::Tensor> labels;
  read_files({folder / (split + ".bin")}, {{"coarse label", 20}, {"fine label", 100}}, set.pixels, labels);
  set.coarse_labels = labels[0];
  set.labels = coarse ? labels[0] : labels[1];
  return set;
}

bool has_cifar10(const fs::path& folder) {
  return all_exist(cifar10_files(folder, "train")) && all_exist(cifar10_files(folder, "test"));
}

bool has_cifar100(const fs::path& folder) {
  return all_exist({folder / "train.bin", folder / "test.bin"});
}

}  // namespace ebclr::data
