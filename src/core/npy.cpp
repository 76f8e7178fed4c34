#include "core/npy.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/files.h"

namespace ebclr::core {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");
constexpr std::string_view kNpyComponent = "core.npy";
constexpr std::string_view kMagic = "\x93NUMPY";

struct NpyDtype {
  std::string_view descr;
  torch::Dtype dtype;
};
constexpr NpyDtype kNpyDtypes[] = {
    {"<f4", torch::kFloat32}, {"<f8", torch::kFloat64}, {"<f2", torch::kFloat16},
    {"<i8", torch::kInt64},   {"<i4", torch::kInt32},   {"<i2", torch::kInt16},
    {"|i1", torch::kInt8},    {"|u1", torch::kUInt8},   {"|b1", torch::kBool},
};

// Reader of the header's Python dictionary literal: exactly the three keys, nothing evaluated.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view name, size_t offset)
      : text_(text), name_(name), offset_(offset) {}

  void parse(std::string& descr, bool& fortran, std::vector<int64_t>& shape) {
    bool have_descr = false, have_order = false, have_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        skip();
        if (at_ < text_.size() && text_[at_] == '[') fail("structured arrays are not supported");
        descr = quoted();
        have_descr = true;
      } else if (key == "fortran_order") {
        fortran = boolean();
        have_order = true;
      } else if (key == "shape") {
        shape = tuple();
        have_shape = true;
      } else {
        fail(fmt::format("unknown header key '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) fail("text after the header's closing brace");
    if (!have_descr || !have_order || !have_shape) fail("header lacks descr, fortran_order or shape");
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    usage_error(kNpyComponent, fmt::format("{}: offset {}: {}", name_, offset_ + at_, what));
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}' in the header", c));
  }
  std::string quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a quoted word in the header");
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("unterminated word in the header");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("expected True or False in the header");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      skip();
      int64_t value = 0;
      size_t digits = 0;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_, ++digits) {
        if (digits >= 15) fail("impossible size in the shape");
        value = value * 10 + (text_[at_] - '0');
      }
      if (digits == 0) fail("expected a size in the shape");
      sizes.push_back(value);
      if (sizes.size() > 16) fail("more than 16 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  std::string_view text_, name_;
  size_t offset_, at_ = 0;
};

}  // namespace

torch::Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  const auto fail = [&](size_t offset, std::string_view what) {
    usage_error(kNpyComponent, fmt::format("{}: offset {}: {}", name, offset, what));
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) fail(0, "not a .npy file (expected the magic \\x93NUMPY)");
  if (text.size() < 10) fail(text.size(), "file ends inside the header");
  const int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) fail(6, fmt::format("unknown version {} (expected 1 to 3)", version));
  const size_t length_bytes = version == 1 ? 2 : 4, start = 8 + length_bytes;
  if (text.size() < start) fail(text.size(), "file ends inside the header");
  uint32_t header_size = 0;
  std::memcpy(&header_size, text.data() + 8, length_bytes);
  if (header_size > text.size() - start)
    fail(8, fmt::format("header of {} bytes, but only {} follow", header_size, text.size() - start));
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
  HeaderParser(text.substr(start, header_size), name, start).parse(descr, fortran, shape);
  const NpyDtype* dtype = nullptr;
  for (const auto& d : kNpyDtypes)
    if (d.descr == descr) dtype = &d;
  if (!dtype) fail(start, fmt::format("element type '{}' is not supported", descr));
  const size_t body = text.size() - start - header_size;
  // Sizes are checked against the body before anything is allocated.
  size_t count = 1;
  for (int64_t s : shape) {
    if (s != 0 && count > (size_t{1} << 48) / static_cast<size_t>(s)) fail(start, "impossible array size");
    count *= static_cast<size_t>(s);
  }
  const size_t want = count * torch::elementSize(dtype->dtype);
  if (want != body) fail(start + header_size, fmt::format("expected {} bytes of data, found {}", want, body));
  auto stored = shape;
  if (fortran) std::reverse(stored.begin(), stored.end());
  torch::Tensor tensor = torch::empty(stored, dtype->dtype);
  if (want > 0) std::memcpy(tensor.data_ptr(), text.data() + start + header_size, want);
  if (fortran && shape.size() > 1) {
    std::vector<int64_t> order(shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
    tensor = tensor.permute(order).contiguous();
  }
  return tensor;
}

torch::Tensor read_npy(const std::filesystem::path& path) {
  return parse_npy(read_bytes(path, kNpyComponent), path.string());
}

void write_npy(const std::filesystem::path& path, const torch::Tensor& tensor) {
  const torch::Tensor t = tensor.detach().to(torch::kCPU).contiguous();
  std::string_view descr;
  for (const auto& d : kNpyDtypes)
    if (d.dtype == t.scalar_type()) descr = d.descr;
  if (descr.empty())
    usage_error(kNpyComponent, fmt::format("{}: tensors of type {} cannot be written", path.string(),
                                           torch::toString(t.scalar_type())));
  std::string shape;
  for (int64_t s : t.sizes()) shape += fmt::format("{},", s);
  if (t.dim() > 1) shape.pop_back();
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string preamble(kMagic);
  preamble +=
      {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  AtomicFile file(path, kNpyComponent);
  file.write(preamble);
  file.write(header);
  file.write({static_cast<const std::byte*>(t.data_ptr()), t.nbytes()});
  file.commit();
}

}  // namespace ebclr::core
