#include "core/safetensors.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"

namespace ebclr::core {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");
constexpr std::string_view kSafetensorsComponent = "core.safetensors";
constexpr uint64_t kMaxHeader = 100'000'000;

struct SafetensorsDtype {
  std::string_view name;
  torch::Dtype dtype;
};
constexpr SafetensorsDtype kSafetensorsDtypes[] = {
    {"F32", torch::kFloat32}, {"F64", torch::kFloat64}, {"F16", torch::kFloat16}, {"BF16", torch::kBFloat16},
    {"I64", torch::kInt64},   {"I32", torch::kInt32},   {"I16", torch::kInt16},   {"I8", torch::kInt8},
    {"U8", torch::kUInt8},    {"BOOL", torch::kBool},
};

}  // namespace

const torch::Tensor& SafeTensors::at(const std::string& name, std::string_view where) const {
  const auto it = tensors.find(name);
  if (it == tensors.end())
    usage_error(kSafetensorsComponent, fmt::format("{}: no tensor named '{}'", where, name));
  return it->second;
}

SafeTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  const auto fail = [&](size_t offset, std::string_view what) {
    usage_error(kSafetensorsComponent, fmt::format("{}: offset {}: {}", name, offset, what));
  };
  if (bytes.size() < 8) fail(bytes.size(), "file ends inside the header's length");
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  if (header_size > kMaxHeader || header_size > bytes.size() - 8)
    fail(0, fmt::format("header of {} bytes, but only {} follow", header_size, bytes.size() - 8));
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  const auto json = parse_json({text, header_size});
  if (!json.is_object()) fail(8, "header is not a JSON object");
  const size_t start = 8 + header_size, body = bytes.size() - start;
  SafeTensors out;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      if (!value.is_object()) fail(8, "__metadata__ is not an object");
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) fail(8, fmt::format("metadata '{}' is not a string", k));
        out.metadata[k] = v.get<std::string>();
      }
      continue;
    }
    const auto describe = [&, &name = key](std::string_view what) {
      fail(8, fmt::format("tensor '{}': {}", name, what));
    };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets") || !value["dtype"].is_string() || !value["shape"].is_array() ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2)
      describe("expected dtype, shape and data_offsets");
    const SafetensorsDtype* dtype = nullptr;
    for (const auto& d : kSafetensorsDtypes)
      if (d.name == value["dtype"].get_ref<const std::string&>()) dtype = &d;
    if (!dtype) describe(fmt::format("unknown dtype {}", value["dtype"].dump()));
    std::vector<int64_t> shape;
    uint64_t count = 1, strides = 1;  // a size of nought makes no room for an impossible one beside it
    if (value["shape"].size() > 16) describe("more than 16 dimensions");
    for (const auto& s : value["shape"]) {
      if (!s.is_number_unsigned()) describe("a size is not a non-negative integer");
      const auto size = s.get<uint64_t>();
      if (size != 0 && strides > (uint64_t{1} << 48) / size) describe("impossible size");
      count *= size;
      if (size != 0) strides *= size;
      shape.push_back(static_cast<int64_t>(size));
    }
    const auto& offsets = value["data_offsets"];
    if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
      describe("offsets are not non-negative integers");
    const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    if (begin > end || end > body)
      describe(fmt::format("bytes {}..{} lie outside the {} bytes of data", begin, end, body));
    if (end - begin != count * torch::elementSize(dtype->dtype))
      describe(fmt::format("{} bytes do not fit its shape", end - begin));
    ranges.emplace_back(begin, end);
    torch::Tensor tensor = torch::empty(shape, dtype->dtype);
    if (end > begin) std::memcpy(tensor.data_ptr(), bytes.data() + start + begin, end - begin);
    out.tensors.emplace(key, std::move(tensor));
  }
  // The format demands that the data is covered exactly once: no holes, no overlaps.
  std::sort(ranges.begin(), ranges.end());
  uint64_t position = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != position) fail(start + position, "tensors overlap or leave a hole in the data");
    position = end;
  }
  if (position != body)
    fail(start + position, fmt::format("{} bytes of data belong to no tensor", body - position));
  return out;
}

SafeTensors read_safetensors(const std::filesystem::path& path) {
  return parse_safetensors(read_bytes(path, kSafetensorsComponent), path.string());
}

std::map<std::string, std::string> read_safetensors_metadata(const std::filesystem::path& path) {
  const auto fail = [&](std::string_view what) {
    usage_error(kSafetensorsComponent, fmt::format("{}: {}", path.string(), what));
  };
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) fail("is not a file");  // a pipe would hang
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot be opened");
  uint64_t header_size = 0;
  if (!in.read(reinterpret_cast<char*>(&header_size), 8)) fail("file ends inside the header's length");
  const auto file_size = std::filesystem::file_size(path, ec);
  if (ec || header_size > kMaxHeader || header_size > file_size - 8) fail("impossible header size");
  std::string text(header_size, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(header_size))) fail("file ends inside the header");
  const auto json = parse_json(text);
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) fail("header is not a JSON object");
  if (!json.contains("__metadata__") || !json["__metadata__"].is_object()) return metadata;
  for (const auto& [k, v] : json["__metadata__"].items())
    if (v.is_string()) metadata[k] = v.get<std::string>();
  return metadata;
}

namespace {

/// A file: what comes before its tensors, and these in their order.
struct SafetensorsLayout {
  std::string head;
  std::vector<torch::Tensor> tensors;
};

SafetensorsLayout lay_out(const SafeTensors& content, const std::string& name) {
  auto header = nlohmann::json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  std::vector<torch::Tensor> tensors;
  uint64_t position = 0;
  for (const auto& [key, tensor] : content.tensors) {
    const torch::Tensor t = tensor.detach().to(torch::kCPU).contiguous();
    std::string_view dtype;
    for (const auto& d : kSafetensorsDtypes)
      if (d.dtype == t.scalar_type()) dtype = d.name;
    if (dtype.empty())
      usage_error(kSafetensorsComponent,
                  fmt::format("{}: tensor '{}' has a type that cannot be written", name, key));
    header[key] = {
        {"dtype", dtype}, {"shape", t.sizes().vec()}, {"data_offsets", {position, position + t.nbytes()}}};
    position += t.nbytes();
    tensors.push_back(t);
  }
  // Readers want UTF-8; a path of a run need not be.
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  text.insert(0, reinterpret_cast<const char*>(&size), 8);
  return {std::move(text), std::move(tensors)};
}

}  // namespace

std::string to_bytes(const SafeTensors& content) {
  auto [out, tensors] = lay_out(content, "safetensors");
  for (const auto& t : tensors) out.append(static_cast<const char*>(t.data_ptr()), t.nbytes());
  return std::move(out);
}

void write_safetensors(const std::filesystem::path& path, const SafeTensors& content) {
  const auto [head, tensors] = lay_out(content, path.string());
  AtomicFile file(path, kSafetensorsComponent);
  file.write(head);
  for (const auto& t : tensors) file.write({static_cast<const std::byte*>(t.data_ptr()), t.nbytes()});
  file.commit();
}

}  // namespace ebclr::core
