#include "run/torch_file.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>

#include "core/error.h"
#include "core/files.h"
#include "run/stored_zip.h"

namespace ebclr::run {

struct TorchFile::Arena {
  std::vector<std::byte> bytes;
  std::deque<TorchValue::List> lists;
  std::deque<TorchValue::Items> dicts;
  std::deque<std::string> names;
};

namespace {
namespace fs = std::filesystem;

constexpr std::string_view kTorchFileComponent = "import";
using List = TorchValue::List;
using Items = TorchValue::Items;

// Storage classes of torch.save by name.
constexpr std::pair<std::string_view, torch::Dtype> kStorages[] = {
    {"torch.FloatStorage", torch::kFloat32}, {"torch.DoubleStorage", torch::kFloat64},
    {"torch.HalfStorage", torch::kFloat16},  {"torch.BFloat16Storage", torch::kBFloat16},
    {"torch.LongStorage", torch::kInt64},    {"torch.IntStorage", torch::kInt32},
    {"torch.ShortStorage", torch::kInt16},   {"torch.CharStorage", torch::kInt8},
    {"torch.ByteStorage", torch::kUInt8},    {"torch.BoolStorage", torch::kBool}};

// Pickle's opcodes, as far as data needs them.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kNone = 'N',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinString = 'U',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kTuple = 't',
  kList = 'l',
  kAppend = 'a',
  kAppends = 'e',
  kSetItem = 's',
  kSetItems = 'u',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kGlobal = 'c',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBuild = 'b',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

/// A stack machine for the opcodes that plain data needs. Each opcode belongs to one of four groups.
class Unpickler {
 public:
  Unpickler(std::string_view program, const StoredZip& zip, std::string prefix, std::string name,
            TorchFile::Arena& arena)
      : p_(program),
        zip_(zip),
        prefix_(std::move(prefix)),
        name_(std::move(name)),
        arena_(arena),
        budget_(kSharing * arena.bytes.size()) {}

  TorchValue run() {
    for (;;) {
      const auto op = byte();
      if (op == kStop) return pop();
      if (!scalar(op) && !container(op) && !memory(op) && !object(op))
        fail(fmt::format("unknown pickle opcode 0x{:02x}", op));
    }
  }

 private:
  // A state dict may name a tensor more than once; a file that multiplies itself is hostile.
  static constexpr size_t kSharing = 8;

  bool scalar(uint8_t op) {
    switch (op) {
      case kNone:
        push({});
        return true;
      case kNewTrue:
        push({true});
        return true;
      case kNewFalse:
        push({false});
        return true;
      case kBinInt1:
        push({int64_t{byte()}});
        return true;
      case kBinInt2:
        push({int64_t{number<uint16_t>()}});
        return true;
      case kBinInt:
        push({int64_t{number<int32_t>()}});
        return true;
      case kLong1:
        push({long_integer(byte())});
        return true;
      case kBinFloat:
        push({big_endian_double()});
        return true;
      case kBinUnicode:
        push({take(number<uint32_t>())});
        return true;
      case kShortBinUnicode:
      case kShortBinString:
        push({take(byte())});
        return true;
      default:
        return false;
    }
  }

  bool container(uint8_t op) {
    switch (op) {
      case kEmptyDict:
        push({&arena_.dicts.emplace_back()});
        return true;
      case kEmptyList:
      case kEmptyTuple:
        push({&arena_.lists.emplace_back()});
        return true;
      case kTuple1:
        collect(below(1));
        return true;
      case kTuple2:
        collect(below(2));
        return true;
      case kTuple3:
        collect(below(3));
        return true;
      case kTuple:
      case kList:
        collect(mark());
        return true;
      case kAppend:
        append(below(1));
        return true;
      case kAppends:
        append(mark());
        return true;
      case kSetItem:
        set_items(below(2));
        return true;
      case kSetItems:
        set_items(mark());
        return true;
      default:
        return false;
    }
  }

  bool memory(uint8_t op) {
    switch (op) {
      case kProto:
        byte();
        return true;
      case kFrame:
        take(8);
        return true;
      case kMark:
        marks_.push_back(stack_.size());
        return true;
      case kPop:
        pop();
        return true;
      case kBinPut:
        memo_[byte()] = top();
        return true;
      case kLongBinPut:
        memo_[number<uint32_t>()] = top();
        return true;
      case kMemoize:
        memo_[memo_.size()] = top();
        return true;
      case kBinGet:
        push(recall(byte()));
        return true;
      case kLongBinGet:
        push(recall(number<uint32_t>()));
        return true;
      default:
        return false;
    }
  }

  bool object(uint8_t op) {
    switch (op) {
      case kGlobal: {
        const auto module = line();
        push(opaque(module, line()));
        return true;
      }
      case kStackGlobal: {
        const auto name = pop(), module = pop();
        push(opaque(words(module), words(name)));
        return true;
      }
      case kBinPersId:
        push(load_storage(pop()));
        return true;
      case kReduce: {
        const auto args = pop();
        push(reduce(pop(), args));
        return true;
      }
      case kNewObj:
        pop();
        return true;  // the class stands for its object: inert
      case kBuild:
        pop();
        return true;  // attributes are of no interest
      default:
        return false;
    }
  }

  [[noreturn]] void fail(std::string_view what) const {
    core::usage_error(kTorchFileComponent, fmt::format("{}: offset {} of its pickle: {}", name_, at_, what));
  }
  std::string_view take(size_t n) {
    if (n > p_.size() - at_) fail("the program ends too early");
    at_ += n;
    return p_.substr(at_ - n, n);
  }
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  template <class T>
  T number() {
    T v;
    std::memcpy(&v, take(sizeof v).data(), sizeof v);
    return v;
  }
  int64_t long_integer(size_t bytes) {
    const auto text = take(bytes);
    if (bytes > 8) return 0;  // too large for anything that is of interest here
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i) v |= uint64_t{static_cast<uint8_t>(text[i])} << (8 * i);
    if (bytes > 0 && bytes < 8 && (text.back() & 0x80)) v |= ~uint64_t{0} << (8 * bytes);
    return static_cast<int64_t>(v);
  }
  double big_endian_double() {
    const auto text = take(8);
    uint64_t v = 0;
    for (char c : text) v = v << 8 | static_cast<uint8_t>(c);
    return std::bit_cast<double>(v);
  }
  std::string_view line() {
    const auto end = p_.find('\n', at_);
    if (end == std::string_view::npos) fail("the program ends too early");
    const auto text = p_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }
  TorchValue opaque(std::string_view module, std::string_view name) {
    std::string& text = arena_.names.emplace_back(module);
    return {TorchValue::Opaque{text.append(".").append(name)}};
  }
  void push(TorchValue v) { stack_.push_back(std::move(v)); }
  /// Index of the n-th value from the top.
  size_t below(size_t n) const {
    if (stack_.size() < n) fail("the stack is empty");
    return stack_.size() - n;
  }
  TorchValue pop() {
    below(1);
    auto v = std::move(stack_.back());
    stack_.pop_back();
    return v;
  }
  const TorchValue& top() const { return stack_[below(1)]; }
  size_t mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) fail("a mark is missing");
    const auto at = marks_.back();
    marks_.pop_back();
    return at;
  }
  TorchValue recall(uint64_t index) const {
    const auto it = memo_.find(index);
    if (it == memo_.end()) fail("an unknown memory cell");
    return it->second;
  }
  std::string_view words(const TorchValue& v) const {
    const auto* text = v.text();
    if (!text) fail("expected text");
    if (text->size() > 1000) fail("a name is too long");  // names are copied
    return *text;
  }
  void collect(size_t from) {
    auto& list =
        arena_.lists.emplace_back(std::make_move_iterator(stack_.begin() + static_cast<int64_t>(from)),
                                  std::make_move_iterator(stack_.end()));
    stack_.resize(from);
    push({&list});
  }
  void append(size_t from) {
    if (from == 0) fail("nothing to append to");
    if (auto** list = std::get_if<List*>(&stack_[from - 1].data))
      (*list)->insert((*list)->end(), stack_.begin() + static_cast<int64_t>(from), stack_.end());
    stack_.resize(from);
  }
  void set_items(size_t from) {
    if (from == 0 || (stack_.size() - from) % 2) fail("a dictionary is malformed");
    if (auto** dict = std::get_if<Items*>(&stack_[from - 1].data))
      for (size_t i = from; i + 1 < stack_.size(); i += 2) (*dict)->emplace_back(stack_[i], stack_[i + 1]);
    stack_.resize(from);
  }
  // ("storage", class, key, location, size)
  TorchValue load_storage(const TorchValue& id) const {
    const auto* parts = id.sequence();
    if (!parts || parts->size() < 5 || !(*parts)[2].text()) fail("a storage is malformed");
    if (const auto* cls = std::get_if<TorchValue::Opaque>(&(*parts)[1].data))
      for (const auto& [name, dtype] : kStorages)
        if (name == cls->name) return {TorchValue::Storage{dtype, *(*parts)[2].text()}};
    fail("a storage of unknown type");
  }
  TorchValue reduce(const TorchValue& function, const TorchValue& args) {
    const auto* f = std::get_if<TorchValue::Opaque>(&function.data);
    if (f && f->name == "collections.OrderedDict") return {&arena_.dicts.emplace_back()};
    if (f && f->name == "torch._utils._rebuild_tensor_v2") return {rebuild(args)};
    // What C++ saves carries the type of its containers: (container, "Dict[str, Tensor]").
    if (const auto* pair = args.sequence();
        f && f->name == "torch.jit._pickle.restore_type_tag" && pair && !pair->empty())
      return pair->front();
    return {TorchValue::Opaque{f ? f->name : "?"}};
  }
  // (storage, offset, sizes, strides, ...)
  torch::Tensor rebuild(const TorchValue& args) {
    const auto* a = args.sequence();
    if (!a || a->size() < 4) fail("a tensor is malformed");
    const auto* storage = std::get_if<TorchValue::Storage>(&(*a)[0].data);
    const auto* offset = std::get_if<int64_t>(&(*a)[1].data);
    const auto sizes = integers((*a)[2]), strides = integers((*a)[3]);
    if (!storage || !offset || sizes.size() != strides.size()) fail("a tensor is malformed");
    const auto& flat = storage_data(*storage);
    const auto count = elements(*offset, sizes, strides, flat.numel());
    if (count == 0) return torch::empty(sizes, storage->dtype);
    charge(static_cast<size_t>(count) * torch::elementSize(storage->dtype));
    return torch::as_strided(flat, sizes, strides, *offset).clone(at::MemoryFormat::Contiguous);
  }
  void charge(size_t bytes) {
    if (bytes > budget_) fail("its tensors are far larger than the file; such a file is not read");
    budget_ -= bytes;
  }
  // A storage's bytes, copied once: an entry may lie anywhere in the file, and a tensor wants alignment.
  const torch::Tensor& storage_data(const TorchValue::Storage& s) {
    const auto [it, is_new] = storages_.try_emplace({s.key, s.dtype});
    if (!is_new) return it->second;
    const auto data = record(s.key);
    const auto width = torch::elementSize(s.dtype), count = data.size() / width;
    charge(count * width);
    it->second = torch::empty({static_cast<int64_t>(count)}, s.dtype);
    if (count > 0) std::memcpy(it->second.data_ptr(), data.data(), count * width);
    return it->second;
  }
  std::string_view record(std::string_view key) const {
    try {
      return zip_.at(fmt::format("{}data/{}", prefix_, key));
    } catch (const std::invalid_argument&) {
      fail(fmt::format("the data of tensor {} is missing or damaged", key.substr(0, 40)));
    }
  }
  // How many elements a view has, all of which must lie inside its data and none of which may count twice.
  int64_t elements(int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                   int64_t limit) const {
    int64_t count = 1;
    bool empty = false;
    if (offset < 0 || offset > limit) fail("a tensor reaches outside its data");
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0 || strides[i] < 0 || sizes[i] > limit || strides[i] > limit)
        fail("a tensor has impossible sizes");
      empty |= sizes[i] == 0;
    }
    if (empty) return 0;
    int64_t room = limit - 1 - offset;  // from the first element to the last
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (strides[i] > 0 && sizes[i] - 1 > room / strides[i]) fail("a tensor reaches outside its data");
      room -= (sizes[i] - 1) * strides[i];
      if (count > limit / sizes[i]) fail("a tensor has more elements than its data");
      count *= sizes[i];
    }
    if (room < 0) fail("a tensor reaches outside its data");
    return count;
  }
  std::vector<int64_t> integers(const TorchValue& v) const {
    const auto* list = v.sequence();
    if (!list || list->size() > 16) fail("sizes are malformed");
    std::vector<int64_t> out;
    for (const auto& item : *list) {
      const auto* n = std::get_if<int64_t>(&item.data);
      if (!n) fail("a size is not a number");
      out.push_back(*n);
    }
    return out;
  }

  std::string_view p_;
  const StoredZip& zip_;
  std::string prefix_, name_;
  TorchFile::Arena& arena_;
  size_t budget_;  // bytes of tensors that may still be made
  size_t at_ = 0;
  std::vector<TorchValue> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, TorchValue> memo_;
  std::map<std::pair<std::string_view, torch::Dtype>, torch::Tensor> storages_;
};

// torch.save puts everything below one folder, named after the file.
std::string folder_of_pickle(const StoredZip& zip) {
  constexpr std::string_view pickle = "data.pkl";
  for (const auto& [name, content] : zip.entries())
    if (name == pickle || (name.ends_with(pickle) && name.find('/') == name.size() - pickle.size() - 1))
      return name.substr(0, name.size() - pickle.size());
  throw std::invalid_argument("it has no data.pkl");
}

}  // namespace

const TorchValue::Items* TorchValue::dict() const {
  const auto* d = std::get_if<Items*>(&data);
  return d ? *d : nullptr;
}

const TorchValue::List* TorchValue::sequence() const {
  const auto* l = std::get_if<List*>(&data);
  return l ? *l : nullptr;
}

const TorchValue* TorchValue::find(std::string_view key) const {
  const auto* items = dict();
  if (!items) return nullptr;
  for (const auto& [k, v] : *items)
    if (k.text() && *k.text() == key) return &v;
  return nullptr;
}

TorchFile::TorchFile(std::unique_ptr<Arena> arena, TorchValue root)
    : arena_(std::move(arena)), root_(std::move(root)) {}
TorchFile::~TorchFile() = default;
TorchFile::TorchFile(TorchFile&&) noexcept = default;

TorchFile parse_torch_file(std::vector<std::byte> bytes, const std::string& name) {
  auto arena = std::make_unique<TorchFile::Arena>();
  arena->bytes = std::move(bytes);
  try {
    const StoredZip zip(arena->bytes);
    const auto prefix = folder_of_pickle(zip);
    const auto program = zip.at(prefix + "data.pkl");
    auto root = Unpickler(program, zip, prefix, name, *arena).run();
    return {std::move(arena), std::move(root)};
  } catch (const std::invalid_argument& e) {
    core::usage_error(
        kTorchFileComponent,
        fmt::format(
            "{}: not a (whole) zip file of torch.save ({}); files of torch before 1.6 must be saved anew",
            name, e.what()));
  }
}

TorchFile read_torch_file(const fs::path& path) {
  return parse_torch_file(core::read_bytes(path, kTorchFileComponent), path.string());
}

}  // namespace ebclr::run
