#include "data/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <set>
#include <thread>
#include <unordered_map>

#include "core/error.h"
#include "core/files.h"
#include "core/quiet_stderr.h"
#include "core/text.h"
#include "core/threads.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFolderComponent = "data.folder";
constexpr std::array kExtensions = {".jpg", ".jpeg", ".png", ".bmp", ".ppm",
                                    ".pgm", ".webp", ".tif", ".tiff"};

// No image beyond 100 megapixels, and none that its file's bytes cannot plausibly fill: the best codecs pack
// some thousands of equal pixels into a byte.
constexpr uint64_t kMaxPixels = 100'000'000, kFreePixels = 4'000'000, kMaxPixelsPerByte = 10'000;

[[noreturn]] void fail(const std::string& name, uint64_t offset, const std::string& what) {
  core::usage_error(kFolderComponent, fmt::format("{}: offset {}: {}", name, offset, what));
}

// Bounds-checked reads from a file in memory.
class Bytes {
 public:
  Bytes(std::span<const std::byte> data, const std::string& name) : data_(data), name_(name) {}

  uint64_t size() const { return data_.size(); }
  uint8_t u8(uint64_t at) const {
    if (at >= data_.size()) fail(name_, data_.size(), "the file ends early; more of its header was expected");
    return static_cast<uint8_t>(data_[at]);
  }
  uint64_t big(uint64_t at, int bytes) const {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v = v << 8 | u8(at + i);
    return v;
  }
  uint64_t little(uint64_t at, int bytes) const {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; --i) v = v << 8 | u8(at + i);
    return v;
  }
  bool starts(uint64_t at, std::string_view text) const {
    return at + text.size() <= data_.size() && std::memcmp(data_.data() + at, text.data(), text.size()) == 0;
  }
  const std::string& name() const { return name_; }

 private:
  std::span<const std::byte> data_;
  const std::string& name_;
};

ImageHeader inspect_png(const Bytes& b) {
  ImageHeader h{.format = "png"};
  uint64_t at = 8;
  bool first = true;
  for (;;) {
    const uint64_t length = b.big(at, 4);
    if (first && !b.starts(at + 4, "IHDR")) fail(b.name(), at + 4, "no IHDR chunk; expected it first");
    if (first) {
      h.width = b.big(at + 8, 4);
      h.height = b.big(at + 12, 4);
      first = false;
    }
    if (b.starts(at + 4, "eXIf")) h.oriented = true;
    if (length > b.size() || at + 12 + length > b.size())
      fail(b.name(), at, fmt::format("a PNG chunk of {} bytes runs over the end of the file", length));
    if (b.starts(at + 4, "IEND")) return h;
    at += 12 + length;
  }
}

ImageHeader inspect_jpeg(const Bytes& b) {
  ImageHeader h{.format = "jpeg"};
  uint64_t at = 2;
  for (;;) {
    if (b.u8(at) != 0xFF)
      fail(b.name(), at, fmt::format("byte 0x{:02x}; expected a JPEG marker (0xff)", b.u8(at)));
    const uint8_t marker = b.u8(at + 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xD9) break;
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      at += 2;
      continue;
    }
    const uint64_t length = b.big(at + 2, 2);
    if (length < 2)
      fail(b.name(), at + 2, fmt::format("JPEG segment length {}; expected at least 2", length));
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame) {
      h.height = b.big(at + 5, 2);
      h.width = b.big(at + 7, 2);
    }
    at += 2 + length;
    if (marker == 0xDA) {  // entropy-coded data up to the next marker
      while (b.u8(at) != 0xFF || b.u8(at + 1) == 0 || (b.u8(at + 1) >= 0xD0 && b.u8(at + 1) <= 0xD7)) ++at;
    }
  }
  return h;
}

ImageHeader inspect_webp(const Bytes& b) {
  ImageHeader h{.format = "webp"};
  const uint64_t length = b.little(4, 4);
  if (length + 8 > b.size())
    fail(b.name(), 4, fmt::format("the header announces {} bytes, the file holds {}", length + 8, b.size()));
  if (b.starts(12, "VP8 ")) {
    h.width = b.little(26, 2) & 0x3FFF;
    h.height = b.little(28, 2) & 0x3FFF;
  } else if (b.starts(12, "VP8L")) {
    const uint64_t v = b.little(21, 4);
    h.width = (v & 0x3FFF) + 1;
    h.height = (v >> 14 & 0x3FFF) + 1;
  } else if (b.starts(12, "VP8X")) {
    h.width = b.little(24, 3) + 1;
    h.height = b.little(27, 3) + 1;
  } else {
    fail(b.name(), 12, "unknown WebP chunk; expected VP8, VP8L or VP8X");
  }
  return h;
}

ImageHeader inspect_pnm(const Bytes& b) {
  ImageHeader h{.format = "pnm"};
  uint64_t at = 2;
  const auto number = [&] {
    for (;;) {
      const uint8_t c = b.u8(at);
      if (c == '#') {
        while (b.u8(at) != '\n') ++at;
      } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
        break;
      }
      ++at;
    }
    uint64_t v = 0;
    if (b.u8(at) < '0' || b.u8(at) > '9') fail(b.name(), at, "expected a number in the PNM header");
    while (b.u8(at) >= '0' && b.u8(at) <= '9') {
      v = v * 10 + (b.u8(at++) - '0');
      if (v > 1'000'000'000) fail(b.name(), at, "a number of the PNM header is over a billion");
    }
    return v;
  };
  const uint8_t kind = b.u8(1);
  h.width = number();
  h.height = number();
  if (kind == '5' || kind == '6') {
    const uint64_t top = number();
    const uint64_t body = h.width * h.height * (kind == '6' ? 3 : 1) * (top > 255 ? 2 : 1);
    if (h.width <= kMaxPixels && h.height <= kMaxPixels && at + 1 + body > b.size())
      fail(b.name(), at + 1,
           fmt::format("{} bytes of pixels expected, the file holds {}", body, b.size() - at - 1));
  }
  return h;
}

ImageHeader inspect_tiff(const Bytes& b) {
  ImageHeader h{.format = "tiff"};
  const bool little = b.u8(0) == 'I';
  const auto value = [&](uint64_t at, int bytes) { return little ? b.little(at, bytes) : b.big(at, bytes); };
  if (value(2, 2) != 42) fail(b.name(), 2, fmt::format("TIFF version {}; expected 42", value(2, 2)));
  const uint64_t ifd = value(4, 4);
  const uint64_t entries = value(ifd, 2);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = ifd + 2 + 12 * i, tag = value(at, 2), type = value(at + 2, 2);
    if (tag != 256 && tag != 257) continue;
    (tag == 256 ? h.width : h.height) = value(at + 8, type == 3 ? 2 : 4);
  }
  return h;
}

// The decoded image as 8 bits with 1 or 3 channels (BGR, OpenCV's order).
cv::Mat decode(std::span<const std::byte> bytes, const std::string& name, const ImageHeader& header) {
  const cv::Mat raw(1, static_cast<int>(bytes.size()), CV_8U,
                    const_cast<std::byte*>(bytes.data()));  // NOLINT: OpenCV's view of memory is never const
  // Only the unchanged mode shows transparency, and only the others turn by the camera's orientation.
  const bool turned = header.format == "jpeg" || header.oriented;
  cv::Mat image;
  try {
    image = cv::imdecode(raw, turned ? cv::IMREAD_ANYCOLOR | cv::IMREAD_ANYDEPTH : cv::IMREAD_UNCHANGED);
  } catch (const cv::Exception& e) {
    core::usage_error(kFolderComponent, fmt::format("{}: the decoder gave up ({})", name, e.err));
  }
  if (image.empty())
    core::usage_error(kFolderComponent, fmt::format("{}: not a readable {}", name, header.format));
  switch (image.depth()) {
    case CV_8U:
      break;
    case CV_16U:
      image.convertTo(image, CV_8U, 1.0 / 257.0);
      break;
    case CV_32F:
    case CV_64F:
      if (!cv::checkRange(image))
        core::usage_error(kFolderComponent, fmt::format("{}: holds NaN or infinite pixels", name));
      image.convertTo(image, CV_8U, 255.0);  // float images are taken to be in [0, 1]
      break;
    default:
      core::usage_error(
          kFolderComponent,
          fmt::format("{}: sample type {} is not supported; save it as 8 or 16 bits", name, image.depth()));
  }
  if (image.channels() == 2) cv::extractChannel(image, image, 0);
  if (image.channels() == 4) {
    cv::Mat flat(image.size(), CV_8UC3);
    for (int y = 0; y < image.rows; ++y) {
      const auto* from = image.ptr<cv::Vec4b>(y);
      auto* to = flat.ptr<cv::Vec3b>(y);
      for (int x = 0; x < image.cols; ++x)
        for (int k = 0; k < 3; ++k)
          to[x][k] = static_cast<uint8_t>((from[x][k] * from[x][3] + 255 * (255 - from[x][3]) + 127) / 255);
    }
    image = flat;
  }
  if (image.channels() != 1 && image.channels() != 3)
    core::usage_error(kFolderComponent,
                      fmt::format("{}: {} channels; expected 1, 3 or 4", name, image.channels()));
  return image;
}

struct Found {
  std::vector<std::string> files;  // relative, with '/'
  std::vector<std::string> unreadable_folders;
};

bool is_image(const fs::path& p) {
  std::string e = p.extension().string();
  std::transform(e.begin(), e.end(), e.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(kExtensions.begin(), kExtensions.end(), e) != kExtensions.end();
}

// Walks folders through links; a folder that was already seen (a loop) is not entered again.
void walk(const fs::path& folder, const std::string& prefix, std::set<fs::path>& seen, Found& found) {
  std::error_code ec;
  const auto real = fs::canonical(folder, ec);
  if (ec || !seen.insert(real).second) return;
  fs::directory_iterator it(folder, ec);
  if (ec) {
    found.unreadable_folders.push_back(prefix.empty() ? "." : prefix);
    return;
  }
  std::vector<fs::path> entries;
  for (; it != fs::directory_iterator(); it.increment(ec)) {
    if (ec) break;
    entries.push_back(it->path().filename());
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    const std::string name = entry.string();
    if (name.starts_with(".")) continue;
    const std::string relative = prefix.empty() ? name : prefix + "/" + name;
    if (fs::is_directory(folder / entry, ec)) {
      walk(folder / entry, relative, seen, found);
    } else if (is_image(entry) &&
               (fs::is_regular_file(folder / entry, ec) || fs::is_symlink(folder / entry, ec))) {
      found.files.push_back(relative);
    }
  }
}

// One line of a CSV: fields may be quoted, a doubled quote stands for one.
std::vector<std::string> split_csv(const std::string& line, const std::string& where) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += line[++i];
      } else if (c == '"') {
        quoted = false;
      } else {
        fields.back() += c;
      }
    } else if (c == '"' && fields.back().empty()) {
      quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) core::usage_error(kFolderComponent, where + ": a quote is not closed");
  return fields;
}

// Sorts label names as numbers where all are numbers, so that "10" follows "9".
std::vector<std::string> sorted_names(const std::set<std::string>& names) {
  std::vector<std::string> out(names.begin(), names.end());
  const bool numbers = std::all_of(out.begin(), out.end(), [](const std::string& s) {
    return !s.empty() && s.size() < 18 &&
           std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c); });
  });
  if (numbers)
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return std::stoll(a) < std::stoll(b); });
  return out;
}

std::string some(const std::vector<std::string>& items) {
  constexpr size_t kShown = 5;
  std::vector<std::string> first(items.begin(), items.begin() + std::min(items.size(), kShown));
  return core::join(first, ", ") +
         (items.size() > kShown ? fmt::format(" and {} more", items.size() - kShown) : "");
}

// Fills set.labels from the CSV; set.files are the images.
void label_from_csv(const fs::path& csv, ImageSet& set) {
  const std::string text = core::read_text(csv, kFolderComponent);
  std::unordered_map<std::string, int64_t> index;
  for (size_t i = 0; i < set.files.size(); ++i) index[set.files[i]] = static_cast<int64_t>(i);
  std::map<int64_t, std::string> given;
  std::set<std::string> names;
  std::vector<std::string> unknown;
  size_t start = 0;
  for (int64_t number = 1; start < text.size(); ++number) {
    size_t end = text.find('\n', start);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(start, end - start);
    start = end + 1;
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::string where = fmt::format("{}: line {}", csv.string(), number);
    if (line.find('\0') != std::string::npos)
      core::usage_error(kFolderComponent, where + ": binary data; expected path,label");
    const auto fields = split_csv(line, where);
    if (fields.size() != 2)
      core::usage_error(kFolderComponent,
                        fmt::format("{}: {} field(s); expected path,label", where, fields.size()));
    if (number == 1 && fields[0] == "path" && fields[1] == "label") continue;
    if (fields[1].empty())
      core::usage_error(kFolderComponent, where + ": the label is empty; leave the line out instead");
    std::string path = fs::path(fields[0]).lexically_normal().generic_string();
    const auto it = index.find(path);
    if (it == index.end()) {
      unknown.push_back(fields[0]);
      continue;
    }
    const auto [old, fresh] = given.emplace(it->second, fields[1]);
    if (!fresh && old->second != fields[1])
      core::usage_error(kFolderComponent, fmt::format("{}: {} is labelled {}, and {} further up", where,
                                                      fields[0], fields[1], old->second));
    names.insert(fields[1]);
  }
  if (given.empty())
    core::usage_error(kFolderComponent,
                      fmt::format("{}: none of its {} lines names an image of the folder; paths are relative "
                                  "to it, e.g. {}",
                                  csv.string(), unknown.size(), set.files.front()));
  if (!unknown.empty())
    set.notes.push_back(fmt::format("{} line(s) of {} name no readable image: {}", unknown.size(),
                                    csv.filename().string(), some(unknown)));
  set.class_names = sorted_names(names);
  auto* label = set.labels.data_ptr<int64_t>();
  for (const auto& [i, name] : given)
    label[i] = std::find(set.class_names.begin(), set.class_names.end(), name) - set.class_names.begin();
}

// Takes first-level sub-folders as classes when nearly all images sit right inside them.
void label_from_folders(ImageSet& set) {
  std::set<std::string> names;
  size_t inside = 0;
  for (const auto& f : set.files) {
    const auto slash = f.find('/');
    if (slash == std::string::npos) continue;
    if (f.find('/', slash + 1) != std::string::npos) return;  // deeper: sub-folders are not classes
    names.insert(f.substr(0, slash));
    ++inside;
  }
  if (names.size() < 2 || inside * 2 <= set.files.size()) return;
  set.class_names = sorted_names(names);
  std::unordered_map<std::string, int64_t> number;
  for (size_t i = 0; i < set.class_names.size(); ++i) number[set.class_names[i]] = static_cast<int64_t>(i);
  auto* label = set.labels.data_ptr<int64_t>();
  for (size_t i = 0; i < set.files.size(); ++i) {
    const auto slash = set.files[i].find('/');
    if (slash != std::string::npos) label[i] = number[set.files[i].substr(0, slash)];
  }
  if (inside < set.files.size())
    set.notes.push_back(
        fmt::format("{} image(s) lie beside the class folders and have no label", set.files.size() - inside));
}

}  // namespace

ImageHeader inspect_image(std::span<const std::byte> bytes, const std::string& name) {
  const Bytes b(bytes, name);
  if (bytes.empty()) fail(name, 0, "the file is empty");
  ImageHeader h;
  if (b.starts(0, "\x89PNG\r\n\x1a\n")) {
    h = inspect_png(b);
  } else if (b.starts(0, "\xFF\xD8\xFF")) {
    h = inspect_jpeg(b);
  } else if (b.starts(0, "RIFF") && b.starts(8, "WEBP")) {
    h = inspect_webp(b);
  } else if (b.starts(0, "BM")) {
    h.format = "bmp";
    const bool old = b.little(14, 4) == 12;
    h.width = b.little(18, old ? 2 : 4);
    h.height = b.little(old ? 20 : 22, old ? 2 : 4);
    if (!old && h.height >> 31) h.height = (uint64_t{1} << 32) - h.height;  // top-down
  } else if (b.u8(0) == 'P' && bytes.size() > 2 && b.u8(1) >= '1' && b.u8(1) <= '6') {
    h = inspect_pnm(b);
  } else if (b.starts(0, "II") || b.starts(0, "MM")) {
    h = inspect_tiff(b);
  } else {
    fail(name, 0, "unknown magic number; expected jpeg, png, bmp, ppm, webp or tiff");
  }
  if (h.width == 0 || h.height == 0)
    fail(name, 0, fmt::format("the header gives {} x {} pixels; expected at least 1 x 1", h.width, h.height));
  if (h.width > kMaxPixels || h.height > kMaxPixels || h.width * h.height > kMaxPixels ||
      h.width * h.height > kFreePixels + kMaxPixelsPerByte * bytes.size())
    fail(name, 0,
         fmt::format("the header gives {} x {} pixels for a file of {} bytes; too large to be read", h.width,
                     h.height, bytes.size()));
  return h;
}

void decode_image(std::span<const std::byte> bytes, const std::string& name, int64_t size, bool grayscale,
                  uint8_t* out) {
  const auto header = inspect_image(bytes, name);
  cv::Mat image = decode(bytes, name, header);
  if (grayscale && image.channels() == 3) cv::cvtColor(image, image, cv::COLOR_BGR2GRAY);
  const int side = static_cast<int>(size), shorter = std::min(image.cols, image.rows);
  if (shorter != side) {
    // A sliver of an image would grow without bounds on its long side: cut that first.
    const int longest = shorter * 64;
    if (std::max(image.cols, image.rows) > longest) {
      const int w = std::min(image.cols, longest), h = std::min(image.rows, longest);
      image = image(cv::Rect((image.cols - w) / 2, (image.rows - h) / 2, w, h));
    }
    const double scale = static_cast<double>(side) / shorter;
    const cv::Size to(std::max(side, static_cast<int>(std::lround(image.cols * scale))),
                      std::max(side, static_cast<int>(std::lround(image.rows * scale))));
    cv::Mat resized;
    cv::resize(image, resized, to, 0, 0, scale < 1 ? cv::INTER_AREA : cv::INTER_LINEAR);
    image = resized;
  }
  const int left = (image.cols - side) / 2, top = (image.rows - side) / 2;
  const int channels = grayscale ? 1 : 3, from = image.channels();
  for (int y = 0; y < side; ++y) {
    const uint8_t* row = image.ptr<uint8_t>(top + y) + static_cast<ptrdiff_t>(left) * from;
    for (int c = 0; c < channels; ++c) {
      uint8_t* to = out + (static_cast<int64_t>(c) * side + y) * side;
      const int k = from == 3 ? 2 - c : 0;
      for (int x = 0; x < side; ++x) to[x] = row[x * from + k];
    }
  }
}

ImageSet read_folder(const fs::path& folder, const FolderOptions& o) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec))
    core::usage_error(kFolderComponent, fmt::format("{}: not a folder", folder.string()));
  if (o.image_size < 8 || o.image_size > 1024)
    core::usage_error(kFolderComponent, fmt::format("image_size is {}; expected 8 to 1024", o.image_size));
  Found found;
  std::set<fs::path> seen;
  walk(folder, "", seen, found);
  const auto& files = found.files;
  if (files.empty())
    core::usage_error(kFolderComponent,
                      fmt::format("{}: no images in it or its sub-folders; expected jpg, png, bmp, ppm, webp "
                                  "or tiff",
                                  folder.string()));
  const int64_t channels = o.grayscale ? 1 : 3, bytes_each = channels * o.image_size * o.image_size;
  const auto count = static_cast<int64_t>(files.size());
  if (count > (int64_t{1} << 37) / bytes_each)
    core::usage_error(kFolderComponent, fmt::format("{}: {} images of {} x {} need {}; lower image_size",
                                                    folder.string(), count, o.image_size, o.image_size,
                                                    core::human_bytes(static_cast<double>(count) *
                                                                      static_cast<double>(bytes_each))));

  auto pixels = torch::empty({count, channels, o.image_size, o.image_size}, torch::kUInt8);
  auto* p = pixels.data_ptr<uint8_t>();
  std::vector<std::string> problems(files.size());
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        std::error_code size_error;
        const auto path = folder / files[i];
        if (fs::file_size(path, size_error) > (uint64_t{1} << 30) && !size_error)
          core::usage_error(kFolderComponent, fmt::format("{}: over 1 GB", files[i]));
        const auto bytes = core::read_bytes(path, kFolderComponent);
        decode_image(bytes, files[i], o.image_size, o.grayscale, p + i * bytes_each);
      } catch (const std::exception& e) {
        problems[i] = e.what();
        if (problems[i].empty()) problems[i] = "unknown problem";
      }
    }
  };
  const int64_t threads = std::min<int64_t>(o.threads > 0 ? o.threads : core::available_cores(), count);
  {
    const core::QuietStderr
        quiet;  // the codecs print a line per damaged file; the notes below name and count them
    std::vector<std::thread> pool;
    for (int64_t t = 1; t < threads; ++t) pool.emplace_back(work);
    work();
    for (auto& t : pool) t.join();
  }

  // Close the gaps that unreadable files left, in place.
  ImageSet set;
  std::vector<std::string> bad;
  std::string first_problem;
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!problems[i].empty()) {
      if (bad.empty()) first_problem = problems[i];
      bad.push_back(files[i]);
      continue;
    }
    if (kept != i) std::memcpy(p + kept * bytes_each, p + i * bytes_each, bytes_each);
    set.files.push_back(files[i]);
    ++kept;
  }
  if (first_problem.starts_with("[")) first_problem.erase(0, first_problem.find("] ") + 2);
  if (static_cast<int64_t>(bad.size()) * 2 > count)
    core::usage_error(kFolderComponent,
                      fmt::format("{}: {} of {} images cannot be read: {}; the first: {}", folder.string(),
                                  bad.size(), count, some(bad), first_problem));
  if (!bad.empty())
    set.notes.push_back(fmt::format("{} of {} files could not be read and are left out: {}; the first: {}",
                                    bad.size(), count, some(bad), first_problem));
  if (!found.unreadable_folders.empty())
    set.notes.push_back(fmt::format("{} folder(s) could not be opened: {}", found.unreadable_folders.size(),
                                    some(found.unreadable_folders)));
  auto name = fs::canonical(folder, ec).filename().string();
  set.name = name.empty() ? folder.string() : name;
  set.split = "all";
  set.pixels = pixels.narrow(0, 0, kept);
  set.labels = torch::full({kept}, kNoLabel, torch::kInt64);
  if (!o.labels_csv.empty()) {
    label_from_csv(o.labels_csv, set);
  } else {
    label_from_folders(set);
  }
  return set;
}

}  // namespace ebclr::data
