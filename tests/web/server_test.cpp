#include "web/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "expect_error.h"

namespace ebclr::web {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// A connection as any program could make it.
class Wire {
 public:
  explicit Wire(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Wire() { ::close(fd_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  bool connected() const { return connected_; }
  void say(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const auto n = ::send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }
  /// All until the other side closes, or `enough` is part of it, or nothing comes for a while.
  std::string hear(const std::string& enough = "", std::chrono::milliseconds patience = 10s) {
    std::string out;
    char bytes[4096];
    while (enough.empty() || out.find(enough) == std::string::npos) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, static_cast<int>(patience.count())) <= 0) return out + "<silence>";
      const auto n = ::recv(fd_, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      out.append(bytes, static_cast<size_t>(n));
    }
    return out;
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::string ask(int port, const std::string& target, const std::string& method = "GET",
                const std::string& headers = "Host: localhost\r\n") {
  Wire wire(port);
  wire.say(method + " " + target + " HTTP/1.1\r\n" + headers + "\r\n");
  return wire.hear();
}

ServerOptions anywhere() {
  ServerOptions o;
  o.port = 0;
  return o;
}

/// A server with a page, an echo of the query and a handler that fails.
std::unique_ptr<Server> make_server(ServerOptions options = anywhere()) {
  auto server = std::make_unique<Server>(std::move(options));
  server->get("/", [](const Request&) { return html("<h1>here</h1>"); });
  server->get("/echo", [](const Request& q) { return json(q.text("a") + "|" + q.text("b")); });
  server->get("/bad", [](const Request&) -> Reply { throw std::runtime_error("handler broke"); });
  server->get("/big", [](const Request&) { return json(std::string(3 << 20, 'x')); });
  server->start();
  return server;
}

TEST(Server, AnswersKnownPathsOnly) {
  const auto server = make_server();
  const auto page = ask(server->port(), "/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("<h1>here</h1>"));
  for (const char* header :
       {"Content-Security-Policy: default-src 'none'; script-src 'self'", "nosniff", "X-Frame-Options: DENY",
        "Cache-Control: no-store", "Cross-Origin-Resource-Policy: same-origin"})
    EXPECT_THAT(page, HasSubstr(header));
  EXPECT_THAT(ask(server->port(), "/echo?b=%3Cx%3E&a=1&a=2"), HasSubstr("\r\n\r\n1|<x>"));
  for (const char* path : {"/nothing", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
                           "/echo/..", "/echo/", "/.", "/%00", "http://localhost/echo"})
    EXPECT_THAT(ask(server->port(), path),
                ::testing::AnyOf(StartsWith("HTTP/1.1 404"), StartsWith("HTTP/1.1 400")))
        << path;
  EXPECT_THAT(ask(server->port(), "/bad"),
              ::testing::AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("handler broke")));
  EXPECT_EQ(ask(server->port(), "/big").size() > 3u << 20, true);
}

TEST(Server, SaysTheSameWithoutANetwork) {
  const auto server = make_server();
  for (const char* target : {"/", "/echo?a=%41&b", "/nothing", "/bad", "x"}) {
    const std::string request = "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    Wire wire(server->port());
    wire.say(request);
    EXPECT_EQ(server->reply_to(request), wire.hear()) << target;
  }
  EXPECT_EQ(server->reply_to("GET / HTTP/1.1\r\nHost: localhost\r\n"), "") << "not complete";
  EXPECT_EQ(server->reply_to("GET /" + std::string(5000, 'a') + " HTTP/1.1\r\n\r\n"), "") << "too long";
}

TEST(Server, UnderstandsGetOnly) {
  const auto server = make_server();
  for (const char* method : {"POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
    EXPECT_THAT(ask(server->port(), "/", method), StartsWith("HTTP/1.1 405")) << method;
  EXPECT_THAT(ask(server->port(), "/", "POST", "Host: localhost\r\nContent-Length: 1000000000\r\n"),
              StartsWith("HTTP/1.1 405"));
  for (const char* method : {"TRACE", "CONNECT", "FOO", "", "GET GET"})
    EXPECT_THAT(ask(server->port(), "/", method),
                ::testing::AnyOf(StartsWith("HTTP/1.1 405"), StartsWith("HTTP/1.1 400")))
        << method;
}

TEST(Server, AnswersToItsOwnNameOnly) {
  const auto server = make_server();
  for (const char* good :
       {"localhost", "127.0.0.1", "localhost:9000", "127.0.0.1:1", "[::1]:8090", "LOCALHOST"})
    EXPECT_THAT(ask(server->port(), "/", "GET", std::string("Host: ") + good + "\r\n"),
                StartsWith("HTTP/1.1 200"))
        << good;
  for (const char* bad :
       {"evil.example", "localhost.evil.example:8090", "192.168.1.5", "", "[::1", "127.0.0.1.evil"})
    EXPECT_THAT(ask(server->port(), "/", "GET", std::string("Host: ") + bad + "\r\n"),
                StartsWith("HTTP/1.1 403"))
        << bad;
  EXPECT_THAT(ask(server->port(), "/", "GET", ""), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask(server->port(), "/", "GET", "Host: localhost\r\nHost: localhost\r\n"),
              StartsWith("HTTP/1.1 403"));
}

TEST(Server, WantsItsToken) {
  auto options = anywhere();
  options.token = "secret-word";
  const auto server = make_server(options);
  const int port = server->port();
  EXPECT_THAT(server->address(), HasSubstr("/?token=secret-word"));
  for (const char* path :
       {"/", "/echo", "/?token=secret-wor", "/?token=", "/nothing", "/echo?token=secret-word2"})
    EXPECT_THAT(ask(port, path), StartsWith("HTTP/1.1 401")) << path;
  const auto entered = ask(port, "/?token=secret-word");
  EXPECT_THAT(entered, StartsWith("HTTP/1.1 303"));
  const auto set = "ebclr_" + std::to_string(port) + "=secret-word";
  EXPECT_THAT(entered, HasSubstr("Set-Cookie: " + set + "; Path=/; HttpOnly; SameSite=Lax"))
      << "a strict one is lost on the way from a link in a mail";
  EXPECT_THAT(ask(port, "/", "GET", "Host: localhost\r\nCookie: a=b; " + set + "\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(port, "/", "GET", "Host: localhost\r\nCookie: " + set + "x\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(port, "/echo?a=1", "GET", "Host: localhost\r\nAuthorization: Bearer secret-word\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST(Server, PagesOfOtherSitesOrderNothing) {
  const auto server = make_server();
  const auto from = [&](const std::string& path, const std::string& site, const std::string& mode) {
    return ask(server->port(), path, "GET",
               "Host: localhost\r\nSec-Fetch-Site: " + site + "\r\nSec-Fetch-Mode: " + mode + "\r\n");
  };
  for (const char* site : {"cross-site", "same-site"}) {  // the same site: another port of this machine
    EXPECT_THAT(from("/echo?a=1", site, "no-cors"), StartsWith("HTTP/1.1 403")) << "an <img>";
    EXPECT_THAT(from("/echo?a=1", site, "cors"), StartsWith("HTTP/1.1 403")) << "a fetch";
    EXPECT_THAT(from("/echo?a=1", site, "navigate"), StartsWith("HTTP/1.1 403")) << "a frame or a window";
    EXPECT_THAT(from("/", site, "no-cors"), StartsWith("HTTP/1.1 403"));
    EXPECT_THAT(from("/", site, "navigate"), StartsWith("HTTP/1.1 200")) << "a link to the page";
    EXPECT_THAT(from("/?x=1", site, "navigate"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(from("/echo?a=1", "same-origin", "cors"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(from("/echo?a=1", "none", "navigate"), StartsWith("HTTP/1.1 200")) << "typed";
}

TEST(Server, WorkIsGivenUpWhenNobodyWaitsForIt) {
  Server server(anywhere());
  std::atomic<int> begun{0}, ended{0};
  server.get("/work", [&](const Request& q) {
    ++begun;
    while (!q.given_up()) std::this_thread::sleep_for(5ms);
    ++ended;
    return not_now();
  });
  server.start();
  const auto until = [](const std::atomic<int>& count, int wanted) {
    for (int i = 0; i < 2000 && count < wanted; ++i) std::this_thread::sleep_for(5ms);
    return count.load();
  };
  const std::string work = "GET /work HTTP/1.1\r\nHost: localhost\r\n\r\n";
  {
    Wire wire(server.port());
    wire.say(work + "more than was asked");  // bytes that nobody reads do not hide that it has gone
    EXPECT_EQ(until(begun, 1), 1);
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(until(ended, 1), 1) << "the client has gone";
  Wire patient(server.port());
  patient.say(work);
  EXPECT_EQ(until(begun, 2), 2);
  server.stop();
  EXPECT_EQ(ended, 2) << "the server stops";
}

TEST(Server, StopsThoughNobodyTakesItsReply) {
  auto options = anywhere();
  options.reply_time = 10min;  // longer than this test may take
  Server server(options);
  server.get("/huge", [](const Request&) { return json(std::string(64 << 20, 'x')); });
  server.start();
  Wire idle(server.port());
  idle.say("GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(idle.hear("HTTP/1.1 200"), HasSubstr("HTTP/1.1 200"));
  server.stop();
}

TEST(Server, RepliesThatNobodyTakesHaveABound) {
  auto options = anywhere();
  options.max_held = 100 << 20;
  Server server(options);
  // More than the buffers of a connection hold.
  server.get("/huge", [](const Request&) { return json(std::string(64 << 20, 'x')); });
  server.get("/small", [](const Request&) { return json("{}"); });
  server.start();
  const std::string huge = "GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n";
  {
    Wire idle(server.port());
    idle.say(huge);
    EXPECT_THAT(idle.hear("HTTP/1.1 200"), HasSubstr("HTTP/1.1 200"));
    EXPECT_THAT(ask(server.port(), "/huge"), StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(ask(server.port(), "/small"), StartsWith("HTTP/1.1 200"));
  }
  // Whose client has gone is no longer held.
  std::string said;
  for (int i = 0; i < 500 && !said.starts_with("HTTP/1.1 200"); ++i) {
    std::this_thread::sleep_for(10ms);
    Wire wire(server.port());
    wire.say(huge);
    said = wire.hear("HTTP/1.1 ");
  }
  EXPECT_THAT(said, StartsWith("HTTP/1.1 200"));
  auto little = anywhere();
  little.max_held = 1 << 20;
  const auto other = make_server(little);
  EXPECT_THAT(ask(other->port(), "/big"), StartsWith("HTTP/1.1 200"))
      << "alone it may be larger than the bound";
}

TEST(Server, BoundsRequests) {
  auto options = anywhere();
  options.head_time = 300ms;
  const auto server = make_server(options);
  const int port = server->port();
  EXPECT_THAT(ask(port, "/" + std::string(5000, 'a')), StartsWith("HTTP/1.1 414"));
  EXPECT_THAT(ask(port, "/" + std::string(1 << 20, 'a')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(ask(port, "/", "GET", "Host: localhost\r\nX: " + std::string(100000, 'b') + "\r\n"),
              StartsWith("HTTP/1.1 431"));
  std::string many = "Host: localhost\r\n";
  for (int i = 0; i < 5000; ++i) many += "X" + std::to_string(i) + ": 1\r\n";
  EXPECT_THAT(ask(port, "/", "GET", many), StartsWith("HTTP/1.1 431"));
  // What the library would do with these is not wanted.
  std::string ranges = "Host: localhost\r\nAccept-Encoding: br, gzip\r\nRange: bytes=0-";
  for (int i = 0; i < 1500; ++i) ranges += ",0-";
  EXPECT_THAT(ask(port, "/", "GET", ranges + "\r\n"),
              ::testing::AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("<h1>here</h1>")));
  // One byte at a time, without end: cut off when the time is over.
  Wire slow(port);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100 && std::chrono::steady_clock::now() - start < 2s; ++i) {
    slow.say("G");
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(slow.hear(), "");
  EXPECT_THAT(ask(port, "/"), StartsWith("HTTP/1.1 200"));
}

TEST(Server, IdleConnectionsHoldNobodyUp) {
  auto options = anywhere();
  options.head_time = 60s;  // longer than this test may take
  const auto server = make_server(options);
  std::vector<std::unique_ptr<Wire>> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(std::make_unique<Wire>(server->port()));
  for (const auto& w : idle) ASSERT_TRUE(w->connected());
  for (int i = 0; i < 20; ++i) EXPECT_THAT(ask(server->port(), "/"), StartsWith("HTTP/1.1 200"));
  server->stop();  // does not wait for them
}

TEST(Server, MoreConnectionsThanAllowedWait) {
  auto options = anywhere();
  options.max_connections = 4;
  options.head_time = 500ms;
  const auto server = make_server(options);
  std::vector<std::unique_ptr<Wire>> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(std::make_unique<Wire>(server->port()));
  EXPECT_THAT(ask(server->port(), "/"), StartsWith("HTTP/1.1 200"));
}

TEST(Server, SendsEvents) {
  auto options = anywhere();
  options.max_streams = 2;
  Server server(options);
  std::atomic<int> made{0};
  server.events("/events", [&](const Request& q) {
    ++made;
    auto count = std::make_shared<int>(0);
    return [count, first = q.text("first")]() -> std::optional<std::string> {
      std::this_thread::sleep_for(10ms);
      if (*count == 3) return "";
      return first + std::to_string((*count)++) + "\nsecond line";
    };
  });
  server.start();
  {
    Wire one(server.port()), two(server.port());
    one.say("GET /events?first=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    two.say("GET /events?first=b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(one.hear("a2\ndata: second line\n\n"),
                ::testing::AllOf(HasSubstr("text/event-stream"), HasSubstr("data: a0\n"),
                                 HasSubstr("Content-Security-Policy")));
    EXPECT_THAT(two.hear("b2\n"), HasSubstr("data: b1\n"));
    EXPECT_EQ(server.listeners(), 2);
    EXPECT_THAT(ask(server.port(), "/events"), StartsWith("HTTP/1.1 503"));
  }
  // Who is gone is noticed.
  for (int i = 0; i < 500 && server.listeners() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server.listeners(), 0);
  EXPECT_EQ(made, 2);
  Wire last(server.port());
  last.say("GET /events?first=c HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(last.hear("c0"), HasSubstr("c0"));
  server.stop();
  EXPECT_THAT(last.hear(), Not(HasSubstr("<silence>")));
}

TEST(Server, TakesAnotherPortWhenAllowed) {
  const auto first = make_server();
  ServerOptions same;
  same.port = first->port();
  Server second(same);
  ebclr::testing::expect_error(
      core::ExitCode::kRunFailed, [&] { second.start(); }, "--port");
  same.more_ports = 50;
  Server third(same);
  third.start();
  EXPECT_GT(third.port(), first->port());
}

TEST(Server, LetsOthersInWithATokenOnly) {
  ServerOptions open = anywhere();
  open.host = "0.0.0.0";
  Server server(open);
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [&] { server.start(); }, "--token");
  open.token = make_token();
  EXPECT_EQ(open.token.size(), 32u);
  EXPECT_NE(open.token, make_token());
  const auto guarded = make_server(open);
  EXPECT_THAT(
      ask(guarded->port(), "/", "GET", "Host: 10.0.0.7:8090\r\nAuthorization: Bearer " + open.token + "\r\n"),
      StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(
      ask(guarded->port(), "/", "GET", "Host: evil.example\r\nAuthorization: Bearer " + open.token + "\r\n"),
      StartsWith("HTTP/1.1 403"));
}

TEST(Server, TokensAreSecretsThatAddressesCarry) {
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    auto options = anywhere();
    options.host = host;
    for (const char* token : {"a", "1234567"}) {
      options.token = token;
      Server server(options);
      ebclr::testing::expect_error(
          core::ExitCode::kUsage, [&] { server.start(); }, "--token", "too short");
    }
    for (const char* token : {"a;b c&d=e#f", "secret word", "secret\r\nX: y", "p\xc3\xa4sswort"}) {
      options.token = token;
      Server server(options);
      ebclr::testing::expect_error(
          core::ExitCode::kUsage, [&] { server.start(); }, "--token", "letters");
    }
    options.token = "Az09_-.x";
    EXPECT_NO_THROW(check_access(options));
  }
}

TEST(Server, SaysWhatToKnowBeforeLettingOthersIn) {
  EXPECT_EQ(make_server()->caution(), "");
  auto open = anywhere();
  open.host = "0.0.0.0";
  open.token = make_token();
  const auto server = make_server(open);
  EXPECT_THAT(server->caution(), HasSubstr("not encrypted"));
  EXPECT_THAT(server->caution(), HasSubstr("ssh -L " + std::to_string(server->port()) + ":127.0.0.1:"));
  EXPECT_THAT(server->caution(), Not(HasSubstr(open.token)));
}

TEST(Request, NumbersAreWholeAndBounded) {
  const Request q{"/", {{"a", "12"}, {"b", "12x"}, {"c", "-1"}, {"d", "99999999999999999999"}, {"e", ""}}};
  EXPECT_EQ(q.number("a", 0, 12), 12);
  EXPECT_EQ(q.number("a", 0, 11), std::nullopt);
  for (const char* name : {"b", "c", "d", "e", "f"}) EXPECT_EQ(q.number(name, 0, 1000), std::nullopt) << name;
}

}  // namespace
}  // namespace ebclr::web
