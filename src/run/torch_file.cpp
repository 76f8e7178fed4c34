#include "run/torch_file.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
#include <cstring>
#include <map>

#include "core/error.h"

namespace ebclr::run {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kTorchFileComponent = "import";
using List = std::vector<TorchValue>;
using Zip = caffe2::serialize::PyTorchStreamReader;

// Storage classes of torch.save by name.
constexpr std::pair<std::string_view, torch::Dtype> kStorages[] = {
    {"torch.FloatStorage", torch::kFloat32}, {"torch.DoubleStorage", torch::kFloat64},
    {"torch.HalfStorage", torch::kFloat16},  {"torch.BFloat16Storage", torch::kBFloat16},
    {"torch.LongStorage", torch::kInt64},    {"torch.IntStorage", torch::kInt32},
    {"torch.ShortStorage", torch::kInt16},   {"torch.CharStorage", torch::kInt8},
    {"torch.ByteStorage", torch::kUInt8},    {"torch.BoolStorage", torch::kBool}};

/// A stack machine for the opcodes that plain data needs.
class Unpickler {
 public:
  Unpickler(std::string_view program, Zip& zip, std::string name)
      : p_(program), zip_(zip), name_(std::move(name)) {}

  TorchValue run() {
    for (;;) {
      const auto op = byte();
      switch (op) {
        case 0x80:
          byte();
          break;  // PROTO
        case 0x95:
          take(8);
          break;  // FRAME
        case '.':
          return pop();  // STOP
        case '(':
          marks_.push_back(stack_.size());
          break;  // MARK
        case '0':
          pop();
          break;  // POP
        case 'N':
          push({});
          break;  // NONE
        case 0x88:
          push({true});
          break;  // NEWTRUE
        case 0x89:
          push({false});
          break;  // NEWFALSE
        case 'K':
          push({int64_t{byte()}});
          break;  // BININT1
        case 'M':
          push({int64_t{number<uint16_t>()}});
          break;  // BININT2
        case 'J':
          push({int64_t{number<int32_t>()}});
          break;  // BININT
        case 0x8a:
          push({long_integer(byte())});
          break;  // LONG1
        case 'G':
          push({big_endian_double()});
          break;  // BINFLOAT
        case 'X':
          push({std::string(take(number<uint32_t>()))});
          break;  // BINUNICODE
        case 0x8c:
          push({std::string(take(byte()))});
          break;  // SHORT_BINUNICODE
        case 'U':
          push({std::string(take(byte()))});
          break;  // SHORT_BINSTRING
        case '}':
          push({std::make_shared<TorchValue::Items>()});
          break;  // EMPTY_DICT
        case ']':
        case ')':
          push({std::make_shared<List>()});
          break;  // EMPTY_LIST, EMPTY_TUPLE
        case 0x85:
          collect(stack_.size() - need(1));
          break;  // TUPLE1
        case 0x86:
          collect(stack_.size() - need(2));
          break;  // TUPLE2
        case 0x87:
          collect(stack_.size() - need(3));
          break;  // TUPLE3
        case 't':
        case 'l':
          collect(mark());
          break;  // TUPLE, LIST
        case 'a':
          append(stack_.size() - need(1));
          break;  // APPEND
        case 'e':
          append(mark());
          break;  // APPENDS
        case 's':
          set_items(stack_.size() - need(2));
          break;  // SETITEM
        case 'u':
          set_items(mark());
          break;  // SETITEMS
        case 'q':
          memo_[byte()] = top();
          break;  // BINPUT
        case 'r':
          memo_[number<uint32_t>()] = top();
          break;  // LONG_BINPUT
        case 0x94:
          memo_[memo_.size()] = top();
          break;  // MEMOIZE
        case 'h':
          push(recall(byte()));
          break;  // BINGET
        case 'j':
          push(recall(number<uint32_t>()));
          break;  // LONG_BINGET
        case 'c': {
          const auto module = line();
          push({TorchValue::Opaque{module + "." + line()}});
          break;
        }  // GLOBAL
        case 0x93: {
          const auto n = pop(), m = pop();
          push({TorchValue::Opaque{words(m) + "." + words(n)}});
          break;
        }  // STACK_GLOBAL
        case 'Q':
          push(load_storage(pop()));
          break;  // BINPERSID
        case 'R': {
          const auto args = pop();
          push(reduce(pop(), args));
          break;
        }  // REDUCE
        case 0x81: {
          pop();
          const auto cls = pop();
          push(cls);
          break;
        }  // NEWOBJ: inert
        case 'b':
          pop();
          break;  // BUILD: attributes are of no interest
        default:
          fail(fmt::format("unknown pickle opcode 0x{:02x}", op));
      }
      if (stack_.size() > 10'000'000) fail("the program is too large");
    }
  }

 private:
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
  std::string line() {
    const auto end = p_.find('\n', at_);
    if (end == std::string_view::npos) fail("the program ends too early");
    std::string text(p_.substr(at_, end - at_));
    at_ = end + 1;
    return text;
  }
  void push(TorchValue v) { stack_.push_back(std::move(v)); }
  size_t need(size_t n) const {
    if (stack_.size() < n) fail("the stack is empty");
    return n;
  }
  TorchValue pop() {
    need(1);
    auto v = std::move(stack_.back());
    stack_.pop_back();
    return v;
  }
  const TorchValue& top() const {
    need(1);
    return stack_.back();
  }
  size_t mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) fail("a mark is missing");
    const auto at = marks_.back();
    marks_.pop_back();
    return at;
  }
  TorchValue recall(uint64_t index) {
    const auto it = memo_.find(index);
    if (it == memo_.end()) fail("an unknown memory cell");
    return it->second;
  }
  std::string words(const TorchValue& v) const {
    const auto* text = v.text();
    if (!text) fail("expected text");
    return *text;
  }
  void collect(size_t from) {
    auto list = std::make_shared<List>(std::make_move_iterator(stack_.begin() + static_cast<int64_t>(from)),
                                       std::make_move_iterator(stack_.end()));
    stack_.resize(from);
    push({list});
  }
  void append(size_t from) {
    if (from == 0) fail("nothing to append to");
    auto* list = std::get_if<std::shared_ptr<List>>(&stack_[from - 1].data);
    if (list) (*list)->insert((*list)->end(), stack_.begin() + static_cast<int64_t>(from), stack_.end());
    stack_.resize(from);
  }
  void set_items(size_t from) {
    if (from == 0 || (stack_.size() - from) % 2) fail("a dictionary is malformed");
    auto* dict = std::get_if<std::shared_ptr<TorchValue::Items>>(&stack_[from - 1].data);
    if (dict)
      for (size_t i = from; i + 1 < stack_.size(); i += 2) (*dict)->emplace_back(stack_[i], stack_[i + 1]);
    stack_.resize(from);
  }
  // ("storage", class, key, location, size)
  TorchValue load_storage(const TorchValue& id) {
    const auto* parts = id.sequence();
    if (!parts || parts->size() < 5 || !(*parts)[2].text()) fail("a storage is malformed");
    const auto* cls = std::get_if<TorchValue::Opaque>(&(*parts)[1].data);
    const auto* size = std::get_if<int64_t>(&(*parts)[4].data);
    if (cls && size)
      for (const auto& [name, dtype] : kStorages)
        if (name == cls->name) return {TorchValue::Storage{dtype, *(*parts)[2].text(), *size}};
    fail("a storage of unknown type");
  }
  TorchValue reduce(const TorchValue& function, const TorchValue& args) {
    const auto* f = std::get_if<TorchValue::Opaque>(&function.data);
    if (f && f->name == "collections.OrderedDict") return {std::make_shared<TorchValue::Items>()};
    if (f && f->name == "torch._utils._rebuild_tensor_v2") return {rebuild(args)};
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
    at::DataPtr data;
    size_t bytes = 0;
    try {
      std::tie(data, bytes) = zip_.getRecord("data/" + storage->key);
    } catch (const std::exception&) {
      fail(fmt::format("the data of tensor {} is missing or damaged", storage->key));
    }
    // Where the last element lies decides whether the view stays inside its storage.
    const auto limit = static_cast<int64_t>(bytes / torch::elementSize(storage->dtype));
    int64_t last = *offset;
    bool empty = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0 || strides[i] < 0 || sizes[i] > limit || strides[i] > limit)
        fail("a tensor has impossible sizes");
      empty |= sizes[i] == 0;
      last += (sizes[i] - 1) * strides[i];
    }
    if (*offset < 0 || (!empty && last >= limit)) fail("a tensor reaches outside its data");
    if (empty) return torch::empty(sizes, storage->dtype);
    const auto flat = torch::from_blob(data.get(), {limit}, storage->dtype);
    return torch::as_strided(flat, sizes, strides, *offset).clone(at::MemoryFormat::Contiguous);
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
  Zip& zip_;
  std::string name_;
  size_t at_ = 0;
  std::vector<TorchValue> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, TorchValue> memo_;
};

}  // namespace

const TorchValue::Items* TorchValue::dict() const {
  const auto* d = std::get_if<std::shared_ptr<Items>>(&data);
  return d ? d->get() : nullptr;
}

const std::vector<TorchValue>* TorchValue::sequence() const {
  const auto* l = std::get_if<std::shared_ptr<std::vector<TorchValue>>>(&data);
  return l ? l->get() : nullptr;
}

const TorchValue* TorchValue::find(const std::string& key) const {
  const auto* items = dict();
  if (!items) return nullptr;
  for (const auto& [k, v] : *items)
    if (k.text() && *k.text() == key) return &v;
  return nullptr;
}

TorchValue read_torch_file(const fs::path& path) {
  if (!fs::is_regular_file(path))
    core::usage_error(kTorchFileComponent, fmt::format("{}: no such file", path.string()));
  std::unique_ptr<Zip> zip;
  std::string program;
  try {
    zip = std::make_unique<Zip>(path.string());
    const auto [data, size] = zip->getRecord("data.pkl");
    program.assign(static_cast<const char*>(data.get()), size);
  } catch (const std::exception&) {
    core::usage_error(
        kTorchFileComponent,
        fmt::format("{}: not a (whole) zip file of torch.save; files of torch before 1.6 must be saved anew",
                    path.string()));
  }
  return Unpickler(program, *zip, path.string()).run();
}

}  // namespace ebclr::run
