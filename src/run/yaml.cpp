#include "run/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "core/error.h"

namespace ebclr::run {
namespace {

constexpr size_t kMaxYaml = 1 << 20;
constexpr const char* kNoAliases = "anchors and aliases (&name, *name) are not read; write the value out";

/// Sees a document before anything is built from it and throws at what this project does not read.
class Censor : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { value(mark, anchor, true); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, kNoAliases);
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string&) override {
    value(mark, anchor, true);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    value(mark, anchor, false);
    open_.push_back({false, false});
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    value(mark, anchor, false);
    open_.push_back({true, true});
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    bool map, key_next;
  };
  void value(const YAML::Mark& mark, YAML::anchor_t anchor, bool plain) {
    if (anchor != 0) throw YAML::ParserException(mark, kNoAliases);
    if (open_.empty() || !open_.back().map) return;
    if (open_.back().key_next && !plain)
      throw YAML::ParserException(mark, "a list or map stands where a key is expected");
    open_.back().key_next = !open_.back().key_next;
  }
  std::vector<Open> open_;
};

}  // namespace

YAML::Node load_yaml(const std::string& text, const std::string& origin, std::string_view component) {
  if (text.size() > kMaxYaml)
    core::usage_error(component,
                      fmt::format("{}: {} bytes are too many for a configuration", origin, text.size()));
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    Censor censor;
    parser.HandleNextDocument(censor);
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    core::usage_error(component,
                      fmt::format("{}: line {}: not valid YAML ({})", origin, e.mark.line + 1, e.msg));
  } catch (const std::logic_error& e) {  // yaml-cpp's scanner at some damaged files
    core::usage_error(component, fmt::format("{}: not valid YAML ({})", origin, e.what()));
  }
}

std::string yaml_scalar(const std::string& value) {
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '/' || c == '-' || c == '+';
  };
  const auto letter = [&](unsigned char c) { return plain(c) && c != '-' && c != '+'; };
  std::string lower = value;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower != "null" && std::all_of(value.begin(), value.end(), plain) &&
      std::any_of(value.begin(), value.end(), letter) && value != "...")
    return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace ebclr::run
