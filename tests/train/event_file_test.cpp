#include "train/event_file.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/files.h"
#include "temp_dir.h"
#include "train/metrics_log.h"

#ifdef EBCLR_PROTOBUF
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>
#endif

namespace ebclr::train {
namespace {

/// Another way to the same checksum: bit by bit from the polynomial.
uint32_t plain_crc32c(std::string_view bytes) {
  uint32_t c = 0xffffffff;
  for (const char b : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = static_cast<uint32_t>(static_cast<uint8_t>(b)) >> bit & 1;
      c = (c ^ in) & 1 ? c >> 1 ^ 0x82f63b78U : c >> 1;
    }
  return ~c;
}

/// The records of a file; fails on a wrong length or checksum.
std::vector<std::string> records(const std::filesystem::path& file) {
  const auto bytes = core::read_text(file, "test");
  std::vector<std::string> out;
  const auto masked = [](std::string_view b) {
    const uint32_t c = plain_crc32c(b);
    return (c >> 15 | c << 17) + 0xa282ead8U;
  };
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t check = 0;
    if (bytes.size() - at < 16) {
      ADD_FAILURE() << "half a record at byte " << at;
      break;
    }
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&check, bytes.data() + at + 8, 4);
    EXPECT_EQ(check, masked({bytes.data() + at, 8}));
    if (length > bytes.size() - at - 16) {
      ADD_FAILURE() << "a record of " << length << " bytes at byte " << at;
      break;
    }
    out.push_back(bytes.substr(at + 12, length));
    std::memcpy(&check, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(check, masked(out.back()));
    at += 16 + length;
  }
  return out;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& e : std::filesystem::directory_iterator(folder))
    if (e.path().filename().string().starts_with("events.out.tfevents.")) out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(EventFile, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);            // the check value that catalogues of CRCs give
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c("any other text"), plain_crc32c("any other text"));
}

#ifdef EBCLR_PROTOBUF

namespace pb = google::protobuf;

/// Messages of the public event.proto and summary.proto that are written here, with the fields' published
/// numbers.
constexpr const char* kSchema = R"(
  name: "event.proto" package: "tensorboard" syntax: "proto3"
  message_type { name: "Event"
    field { name: "wall_time" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
    field { name: "step" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
    field { name: "file_version" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "summary" number: 5 type: TYPE_MESSAGE type_name: ".tensorboard.Summary" label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "session_log" number: 7 type: TYPE_MESSAGE type_name: ".tensorboard.SessionLog" label: LABEL_OPTIONAL oneof_index: 0 }
    oneof_decl { name: "what" } }
  message_type { name: "SessionLog"
    field { name: "status" number: 1 type: TYPE_ENUM type_name: ".tensorboard.SessionLog.SessionStatus" label: LABEL_OPTIONAL }
    enum_type { name: "SessionStatus" value { name: "STATUS_UNSPECIFIED" number: 0 } value { name: "START" number: 1 } } }
  message_type { name: "Summary"
    field { name: "value" number: 1 type: TYPE_MESSAGE type_name: ".tensorboard.Summary.Value" label: LABEL_REPEATED }
    nested_type { name: "Image"
      field { name: "height" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
      field { name: "width" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
      field { name: "colorspace" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL }
      field { name: "encoded_image_string" number: 4 type: TYPE_BYTES label: LABEL_OPTIONAL } }
    nested_type { name: "Value"
      field { name: "tag" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "simple_value" number: 2 type: TYPE_FLOAT label: LABEL_OPTIONAL oneof_index: 0 }
      field { name: "image" number: 4 type: TYPE_MESSAGE type_name: ".tensorboard.Summary.Image" label: LABEL_OPTIONAL oneof_index: 0 }
      oneof_decl { name: "value" } } }
)";

/// protobuf's own decoder; the message as its text, without the time.
class Decoder {
 public:
  Decoder() {
    pb::FileDescriptorProto file;
    EXPECT_TRUE(pb::TextFormat::ParseFromString(kSchema, &file));
    const auto* built = pool_.BuildFile(file);
    EXPECT_NE(built, nullptr);
    event_ = factory_.GetPrototype(built->FindMessageTypeByName("Event"));
  }
  std::string text(const std::string& record) {
    std::unique_ptr<pb::Message> m(event_->New());
    EXPECT_TRUE(m->ParseFromString(record));
    const auto* r = m->GetReflection();
    const auto* time = m->GetDescriptor()->FindFieldByName("wall_time");
    EXPECT_GT(r->GetDouble(*m, time), 1.7e9);
    r->ClearField(m.get(), time);
    expect_known(*m);
    pb::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    std::string out;
    printer.PrintToString(*m, &out);
    return out;
  }

 private:
  // A field with a wrong number or type would be kept as an unknown one.
  static void expect_known(const pb::Message& m) {
    const auto* r = m.GetReflection();
    EXPECT_TRUE(r->GetUnknownFields(m).empty());
    std::vector<const pb::FieldDescriptor*> fields;
    r->ListFields(m, &fields);
    for (const auto* f : fields) {
      if (f->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!f->is_repeated()) expect_known(r->GetMessage(m, f));
      for (int i = 0; f->is_repeated() && i < r->FieldSize(m, f); ++i)
        expect_known(r->GetRepeatedMessage(m, f, i));
    }
  }

  pb::DescriptorPool pool_;
  pb::DynamicMessageFactory factory_{&pool_};
  const pb::Message* event_ = nullptr;
};

TEST(EventFile, ProtobufReadsIt) {
  testing::TempDir dir;
  std::filesystem::path path;
  {
    EventFile file(dir.path());
    path = file.path();
    file.scalars(300, {{"train/loss", 0.25}, {"train/lr", 1e-3}, {"train/gap", -2}, {"nan", NAN}});
    const std::string png("\x89PNG\0\r\n", 7);
    file.picture(1 << 20, "chains", 640, 320, std::as_bytes(std::span(png)));
    file.restart(301);
    file.scalars(0, {{"zero", 0}});
    file.scalars(1, {});  // nothing to say
  }
  Decoder d;
  std::vector<std::string> said;
  for (const auto& r : records(path)) said.push_back(d.text(r));
  EXPECT_THAT(
      said,
      ::testing::ElementsAre(
          R"(file_version: "brain.Event:2" )",
          R"(step: 300 summary { value { tag: "train/loss" simple_value: 0.25 } value { tag: "train/lr" simple_value: 0.001 } value { tag: "train/gap" simple_value: -2 } value { tag: "nan" simple_value: nan } } )",
          R"(step: 1048576 summary { value { tag: "chains" image { height: 320 width: 640 colorspace: 3 encoded_image_string: "\211PNG\000\r\n" } } } )",
          R"(step: 301 session_log { status: START } )",
          R"(summary { value { tag: "zero" simple_value: 0 } } )"));
}

TEST(EventFile, HasWhatMetricsHave) {
  testing::TempDir dir;
  {
    MetricsLog log(dir.path() / "metrics.jsonl", 0, 0, true);
    log.write({{"step", 10}, {"rollbacks", 0}, {"epoch", 0.5}, {"loss", 2.0}, {"gap", nullptr}});
    log.write(
        {{"event", "knn"}, {"step", 10}, {"rollbacks", 0}, {"epoch", 1}, {"knn", 0.5}, {"seconds", 3.0}});
    log.write({{"event", "rollback"}, {"step", 5}, {"rollbacks", 1}, {"reason", "x"}, {"lr", 0.1}});
    log.picture("chains", 10, 2, 1, {});
  }
  {
    MetricsLog resumed(dir.path() / "metrics.jsonl", 1, 7, true);
    resumed.write({{"step", 8}, {"rollbacks", 1}, {"epoch", 0.6}, {"loss", 1.0}});
  }
  MetricsLog without(dir.path() / "metrics.jsonl", 1, 8);
  without.picture("chains", 8, 2, 1, {});
  const auto files = event_files(dir.path());
  ASSERT_EQ(files.size(), 2u);
  Decoder d;
  std::vector<std::string> said;
  for (const auto& f : files)
    for (const auto& r : records(f)) said.push_back(d.text(r));
  EXPECT_THAT(
      said,
      ::testing::ElementsAre(
          R"(file_version: "brain.Event:2" )",
          R"(step: 10 summary { value { tag: "train/epoch" simple_value: 0.5 } value { tag: "train/loss" simple_value: 2 } } )",
          R"(step: 10 summary { value { tag: "monitor/knn" simple_value: 0.5 } } )",
          R"(step: 6 session_log { status: START } )",
          R"(step: 10 summary { value { tag: "chains" image { height: 1 width: 2 colorspace: 3 } } } )",
          R"(file_version: "brain.Event:2" )", R"(step: 8 session_log { status: START } )",
          R"(step: 8 summary { value { tag: "train/epoch" simple_value: 0.6 } value { tag: "train/loss" simple_value: 1 } } )"));
}

#else

TEST(EventFile, ProtobufReadsIt) {
  GTEST_SKIP() << "no protobuf here (libprotobuf-dev): event files were not decoded";
}

#endif

TEST(EventFile, NamesAFolderItCannotWrite) {
  try {
    EventFile file("/nowhere/at/all");
    FAIL() << "no error";
  } catch (const core::Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("/nowhere/at/all/events.out.tfevents."));
  }
}

}  // namespace
}  // namespace ebclr::train
