#include "data/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/cifar.h"
#include "data/folder.h"
#include "data/idx.h"
#include "data/shapes.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kCatalogComponent = "data";
constexpr int64_t kShapesTrain = 10000, kShapesTest = 2000;

const std::vector<std::string> kDigits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
const std::vector<std::string> kClothes = {"T-shirt/top", "trouser", "pullover", "dress", "coat",
                                           "sandal",      "shirt",   "sneaker",  "bag",   "ankle boot"};

// A set that lives in files under the data root.
struct StoredSet {
  std::string name, description;
  std::string get;                   // what `ebclr data get` calls it
  std::vector<std::string> folders;  // where it may be, ours first, then where other tools unpack it
  int64_t channels, side;
  int64_t train, test;  // images
  bool (*present)(const fs::path&);
  ImageSet (*read)(const fs::path&, const std::string& split);
};

const std::vector<StoredSet>& stored_sets() {
  static const std::vector<StoredSet> sets = {
      {"mnist",
       "70,000 handwritten digits, 28 x 28 grey, 10 classes",
       "mnist",
       {"mnist", "MNIST/raw"},
       1,
       28,
       60000,
       10000,
       has_idx_set,
       [](const fs::path& f, const std::string& split) { return read_idx_set(f, "mnist", split, kDigits); }},
      {"fmnist",
       "Fashion-MNIST: 70,000 pieces of clothing, 28 x 28 grey, 10 classes",
       "fmnist",
       {"fmnist", "fashion-mnist", "FashionMNIST/raw"},
       1,
       28,
       60000,
       10000,
       has_idx_set,
       [](const fs::path& f, const std::string& split) {
         return read_idx_set(f, "fmnist", split, kClothes);
       }},
      {"cifar10",
       "60,000 photos, 32 x 32 colour, 10 classes",
       "cifar10",
       {"cifar10", "cifar-10-batches-bin"},
       3,
       32,
       50000,
       10000,
       has_cifar10,
       [](const fs::path& f, const std::string& split) { return read_cifar10(f, split); }},
      {"cifar100",
       "60,000 photos, 32 x 32 colour, 100 classes",
       "cifar100",
       {"cifar100", "cifar-100-binary"},
       3,
       32,
       50000,
       10000,
       has_cifar100,
       [](const fs::path& f, const std::string& split) { return read_cifar100(f, split, false); }},
      {"cifar100-coarse",
       "the same photos with the 20 coarse classes",
       "cifar100",
       {"cifar100", "cifar-100-binary"},
       3,
       32,
       50000,
       10000,
       has_cifar100,
       [](const fs::path& f, const std::string& split) { return read_cifar100(f, split, true); }},
  };
  return sets;
}

// The folder that holds the set, or nothing.
std::optional<fs::path> find_folder(const StoredSet& set, const fs::path& root) {
  for (const auto& f : set.folders)
    if (set.present(root / f)) return root / f;
  return std::nullopt;
}

const StoredSet* find_stored(const std::string& name) {
  for (const auto& set : stored_sets())
    if (set.name == name) return &set;
  return nullptr;
}

// What the name of a set of shapes says.
struct NamedShapes {
  int64_t size = 0;  // 0: any
  bool gray = false;
};

// "shapes[28|32][-gray]"; nothing if the name is not of that form.
std::optional<NamedShapes> parse_shapes(std::string_view name) {
  if (!name.starts_with("shapes")) return std::nullopt;
  name.remove_prefix(6);
  NamedShapes o;
  if (name.ends_with("-gray")) {
    o.gray = true;
    name.remove_suffix(5);
  }
  if (name == "28" || name == "32") {
    o.size = name == "28" ? 28 : 32;
  } else if (!name.empty()) {
    return std::nullopt;
  }
  return o;
}

TrainTest load_shapes(const SourceOptions& o) {
  const auto shape = shape_of(o);
  ShapesOptions shapes{.size = shape.side, .gray = shape.channels == 1, .seed = o.seed};
  TrainTest out;
  shapes.count = o.limit > 0 ? o.limit : kShapesTrain;
  out.train = make_shapes(shapes, "train");
  shapes.count = o.limit_test > 0 ? o.limit_test : kShapesTest;
  out.test = make_shapes(shapes, "test");
  return out;
}

// Choices are made on these: the test split is not even looked at.
void hold_out_for_test(TrainTest& sets, const SourceOptions& o) {
  if (o.validation >= sets.train.size())
    core::usage_error(kCatalogComponent, fmt::format("validation is {}, but there are {} train images",
                                                     o.validation, sets.train.size()));
  const double fraction = static_cast<double>(o.validation) / static_cast<double>(sets.train.size());
  const auto [rest, held] = hold_out(sets.train, fraction, o.seed);
  sets.test = select(sets.train, held);
  sets.test.split = "validation";
  sets.test.notes.clear();
  sets.train = select(sets.train, rest);
}

}  // namespace

fs::path default_data_root() {
  const auto variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  if (const auto v = variable("EBCLR_DATA"); !v.empty()) return v;
  if (const auto v = variable("XDG_CACHE_HOME"); !v.empty()) return fs::path(v) / "ebclr";
  if (const auto v = variable("HOME"); !v.empty()) return fs::path(v) / ".cache" / "ebclr";
  core::usage_error(kCatalogComponent, "neither EBCLR_DATA nor HOME is set; pass --data-root");
}

std::vector<CatalogEntry> catalog(const fs::path& data_root) {
  const fs::path root = data_root.empty() ? default_data_root() : data_root;
  std::vector<CatalogEntry> out;
  for (const auto& set : stored_sets()) {
    const auto found = find_folder(set, root);
    out.push_back({.name = set.name,
                   .description = set.description,
                   .present = found.has_value(),
                   .folder = found.value_or(root / set.folders.front()),
                   .images = set.get,
                   .channels = set.channels,
                   .side = set.side,
                   .train = set.train,
                   .test = set.test});
  }
  out.push_back({.name = "shapes",
                 .description =
                     "12,000 or as many as asked for, drawn in memory: shapes on textured ground, 32 x 32 "
                     "colour, 10 classes; "
                     "also shapes28, shapes-gray, shapes28-gray",
                 .present = true,
                 .folder = {},
                 .images = "shapes",
                 .train = kShapesTrain,
                 .test = kShapesTest});
  return out;
}

bool is_folder(const std::string& name) {
  std::error_code ec;
  return train_images(name) == 0 && fs::is_directory(name, ec);
}

int64_t train_images(const std::string& name) {
  if (parse_shapes(name)) return kShapesTrain;
  const auto* set = find_stored(name);
  return set ? set->train : 0;
}

int64_t test_images(const std::string& name) {
  const auto* set = find_stored(name);
  return set ? set->test : 0;
}

ImageShape shape_of(const SourceOptions& o) {
  if (const auto* set = find_stored(o.source)) return {set->channels, set->side};
  const auto named = parse_shapes(o.source).value_or(NamedShapes{});
  ImageShape out;
  if (named.gray || o.grayscale) out.channels = 1;
  if (named.size > 0) out.side = named.size;
  if (o.image_size > 0) out.side = o.image_size;
  return out;
}

bool takes_any_size(const std::string& name) {
  const auto shapes = parse_shapes(name);
  return shapes ? shapes->size == 0 : is_folder(name);
}

TrainTest load(const SourceOptions& o, const LoadContext& context) {
  if (o.limit < 0 || o.limit_test < 0)
    core::usage_error(kCatalogComponent,
                      fmt::format("limit is {}; expected 0 (all) or more", std::min(o.limit, o.limit_test)));
  if (!(o.test_fraction >= 0 && o.test_fraction < 1))
    core::usage_error(kCatalogComponent,
                      fmt::format("test_fraction is {}; expected at least 0 and below 1", o.test_fraction));
  if (o.image_size < 0)
    core::usage_error(kCatalogComponent, fmt::format("image_size is {}; expected 8 or more", o.image_size));
  if (parse_shapes(o.source)) {
    if (o.validation > 0)
      core::usage_error(kCatalogComponent, "validation does not apply to shapes, which are drawn as needed");
    return load_shapes(o);
  }

  TrainTest out;
  std::error_code ec;
  if (const auto* set = find_stored(o.source)) {
    const fs::path root = o.data_root.empty() ? default_data_root() : o.data_root;
    const auto folder = find_folder(*set, root);
    if (!folder)
      core::usage_error(kCatalogComponent, fmt::format("{} is not in {}; run: ebclr data get {}", set->name,
                                                       root.string(), set->get));
    out.train = set->read(*folder, "train");
    out.test = set->read(*folder, "test");
    if (o.image_size > 0 && o.image_size != out.train.height())
      core::usage_error(
          kCatalogComponent,
          fmt::format("image_size {} does not apply to {}, whose images are {} x {}; leave it out",
                      o.image_size, set->name, out.train.height(), out.train.width()));
    if (o.grayscale && out.train.channels() == 3)
      core::usage_error(kCatalogComponent,
                        fmt::format("grayscale applies to folders and shapes, not to {}", set->name));
    if (!o.labels_csv.empty())
      core::usage_error(kCatalogComponent,
                        fmt::format("a labels file applies to folders, not to {}", set->name));
    if (out.train.height() != out.test.height() || out.train.width() != out.test.width())
      core::usage_error(kCatalogComponent,
                        fmt::format("{}: train images are {} x {}, test images {} x {}; expected one size",
                                    folder->string(), out.train.height(), out.train.width(),
                                    out.test.height(), out.test.width()));
  } else if (fs::is_directory(o.source, ec)) {
    if (o.validation == 0) return load_folder(o, context);  // limits included, and nothing decoded in vain
    auto whole = o;
    whole.limit = whole.limit_test = 0;
    out = load_folder(whole, context);
  } else {
    std::vector<std::string> names;
    for (const auto& s : stored_sets()) names.push_back(s.name);
    for (const char* s : {"shapes", "shapes28", "shapes-gray", "shapes28-gray"}) names.emplace_back(s);
    const auto near = core::nearest(o.source, names);
    core::usage_error(kCatalogComponent, fmt::format("{}: neither a known set nor a folder{}; known: {}",
                                                     o.source.empty() ? "(empty name)" : o.source,
                                                     near ? fmt::format("; did you mean {}?", *near) : "",
                                                     core::join(names, ", ")));
  }
  if (o.validation > 0) hold_out_for_test(out, o);
  out.train = limit(out.train, o.limit, o.seed);
  if (out.test.size() > 0) out.test = limit(out.test, o.limit_test, o.seed);
  return out;
}

}  // namespace ebclr::data
