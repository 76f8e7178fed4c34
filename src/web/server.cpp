#include "web/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace ebclr::web {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kWeb = "web";
constexpr size_t kSmallReply = 1 << 16;  // bytes that need no place among those held
constexpr auto kLastWords =
    std::chrono::milliseconds(1000);  // for replies on their way when the server stops

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_ip_literal(const std::string& name) {
  in_addr four{};
  in6_addr six{};
  return ::inet_pton(AF_INET, name.c_str(), &four) == 1 || ::inet_pton(AF_INET6, name.c_str(), &six) == 1;
}

/// "localhost" of "localhost:9000", "::1" of "[::1]:9000"; empty when it is neither form.
std::string host_name(const std::string& header) {
  if (header.starts_with("[")) {
    const auto end = header.find(']');
    return end == std::string::npos ? "" : lower(header.substr(1, end - 1));
  }
  return lower(header.substr(0, header.rfind(':')));
}

bool same_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

/// The value of a cookie, empty when it is not there.
std::string cookie(const std::string& header, const std::string& name) {
  for (size_t at = 0; at < header.size();) {
    auto end = header.find(';', at);
    if (end == std::string::npos) end = header.size();
    const auto begin = header.find_first_not_of(' ', at);
    if (begin < end && header.compare(begin, name.size() + 1, name + "=") == 0)
      return header.substr(begin + name.size() + 1, end - begin - name.size() - 1);
    at = end + 1;
  }
  return {};
}

/// Has the other side closed?
bool gone(int socket) {
  pollfd p{socket, POLLRDHUP, 0};
  return ::poll(&p, 1, 0) > 0;
}

/// What belongs to a request until its reply is taken.
struct Connection {
  int socket = -1;              // -1: without a network
  std::shared_ptr<void> place;  // among the replies that are held
};

// The one that this thread serves: the library tells its handlers nothing of it.
thread_local Connection* serving = nullptr;

/// One thread for each connection, and never more than so many: whoever comes then waits to be accepted.
class Connections : public httplib::TaskQueue {
 public:
  explicit Connections(int most) : state_(std::make_shared<State>()) { state_->free = most; }

  // Returned nothing before httplib 0.15.
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>{}));

  Taken enqueue(std::function<void()> serve) override {
    {
      std::unique_lock lock(state_->mutex);
      state_->changed.wait(lock, [&] { return state_->free > 0; });
      --state_->free;
      ++state_->busy;
    }
    const auto work = [state = state_, serve = std::move(serve)] {
      try {
        serve();
      } catch (...) {  // NOLINT(bugprone-empty-catch): a connection may die alone
      }
      const std::lock_guard lock(state->mutex);
      ++state->free;
      --state->busy;
      state->changed.notify_all();
    };
    try {
      std::thread(work).detach();
    } catch (const std::system_error&) {
      work();  // no more threads: this one is served before the next is accepted
    }
    return static_cast<Taken>(true);
  }

  void shutdown() override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->busy == 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int free = 0, busy = 0;
  };
  std::shared_ptr<State> state_;
};

/// A request that has been read already.
class ReadRequest : public httplib::Stream {
 public:
  explicit ReadRequest(std::string head) : head_(std::move(head)) {}

  bool is_readable() const override { return at_ < head_.size(); }
  ssize_t read(char* to, size_t size) override {
    const size_t n = std::min(size, head_.size() - at_);
    std::memcpy(to, head_.data() + at_, n);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }

 private:
  std::string head_;
  size_t at_ = 0;
};

/// One whose reply is kept.
class Recording : public ReadRequest {
 public:
  using ReadRequest::ReadRequest;
  bool is_writable() const override { return true; }
  ssize_t write(const char* from, size_t size) override {
    said.append(from, size);
    return static_cast<ssize_t>(size);
  }
  socket_t socket() const override { return -1; }

  std::string said;
};

/// One that came over a connection.
class Conversation : public ReadRequest {
 public:
  Conversation(int socket, std::string head, std::chrono::milliseconds patience,
               const std::atomic<bool>& stop)
      : ReadRequest(std::move(head)), socket_(socket), patience_(patience), stopping_(stop) {}

  // Asked before each part of an event stream: has the listener gone?
  bool is_writable() const override { return !gone(socket_); }
  ssize_t write(const char* from, size_t size) override {
    auto deadline = Clock::now() + patience_;
    bool hurried = false;
    for (size_t sent = 0; sent < size;) {
      const auto n = ::send(socket_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        sent += static_cast<size_t>(n);
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return -1;
      const auto now = Clock::now();
      if (stopping_ && !hurried) {
        hurried = true;
        deadline = std::min(deadline, now + kLastWords);
      }
      if (now >= deadline) return -1;
      pollfd p{socket_, POLLOUT, 0};
      ::poll(&p, 1, 100);
    }
    return static_cast<ssize_t>(size);
  }
  socket_t socket() const override { return socket_; }

 private:
  int socket_;
  std::chrono::milliseconds patience_;
  const std::atomic<bool>& stopping_;
};

enum class Head { kComplete, kTooLong, kGone };

/// Reads up to the empty line; gives up when `deadline` has passed, the client is gone, or `stop` is set.
Head read_head(int socket, size_t most, Clock::time_point deadline, const std::atomic<bool>& stop,
               std::string& head) {
  while (true) {
    if (stop || Clock::now() >= deadline) return Head::kGone;
    pollfd p{socket, POLLIN, 0};
    if (::poll(&p, 1, 100) <= 0) continue;
    char bytes[2048];
    const auto n = ::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0) return Head::kGone;
    if (n < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return Head::kGone;
    }
    head.append(bytes, static_cast<size_t>(n));
    const auto end = head.find("\r\n\r\n");
    if (end != std::string::npos && end + 4 <= most) {
      head.resize(end + 4);  // a body is of no interest
      return Head::kComplete;
    }
    if (head.size() > most) return Head::kTooLong;
  }
}

/// The request with the headers that matter here alone. The library would compress as hard as it can for whom
/// accepts it, and cut ranges with regular expressions: work that a client should not be able to order.
std::string plain_head(const std::string& head) {
  const auto line_end = head.find("\r\n");
  std::string out = head.substr(0, line_end + 2);
  for (size_t at = line_end + 2; at < head.size();) {
    auto end = head.find("\r\n", at);
    if (end == std::string::npos || end == at) break;
    const auto line = head.substr(at, end - at);
    const auto name = lower(line.substr(0, line.find(':')));
    if (name == "host" || name == "cookie" || name == "authorization" || name == "sec-fetch-site" ||
        name == "sec-fetch-mode")
      out += line + "\r\n";
    at = end + 2;
  }
  return out + "Connection: close\r\n\r\n";
}

void say_and_close(int socket, const char* status) {
  const auto text = fmt::format("HTTP/1.1 {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
  if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  ::shutdown(socket, SHUT_WR);
  // Closing over unread bytes would reset the connection before the client has read this.
  const auto deadline = Clock::now() + std::chrono::milliseconds(500);
  char bytes[4096];
  for (size_t taken = 0; taken < 1 << 20 && Clock::now() < deadline;) {
    pollfd p{socket, POLLIN, 0};
    if (::poll(&p, 1, 100) <= 0) continue;
    const auto n = ::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0) break;
    taken += static_cast<size_t>(n);
  }
}

/// The library's server with our own way of reading a request: bounded in bytes and in time.
class BoundedServer : public httplib::Server {
 public:
  BoundedServer(const ServerOptions& options, const std::atomic<bool>& stop)
      : options_(options), stopping_(stop) {}

  std::string reply_to(const std::string& request) {
    const auto end = request.find("\r\n\r\n");
    if (end == std::string::npos || end + 4 > options_.max_head || too_long(request)) return {};
    Recording recording(plain_head(request.substr(0, end + 4)));
    answer(recording, -1);
    return std::move(recording.said);
  }

 private:
  bool too_long(const std::string& head) const { return head.find("\r\n") > options_.max_target + 16; }

  bool process_and_close_socket(socket_t socket) override {
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);  // workers that are started meanwhile must not hold it open
    const int yes = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    std::string head;
    bool answered = false;
    switch (read_head(socket, options_.max_head, Clock::now() + options_.head_time, stopping_, head)) {
      case Head::kComplete: {
        if (too_long(head)) {
          say_and_close(socket, "414 URI Too Long");
          break;
        }
        Conversation conversation(socket, plain_head(head), options_.reply_time, stopping_);
        answered = answer(conversation, socket);
        break;
      }
      case Head::kTooLong:
        say_and_close(socket, "431 Request Header Fields Too Large");
        break;
      case Head::kGone:
        break;
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return answered;
  }

  // The library's newer versions want the addresses of both ends too.
  template <class S>
  bool answer(S& stream, int socket) {
    Connection connection{.socket = socket, .place = nullptr};
    // Taken back however the library leaves.
    const std::shared_ptr<void> over(nullptr, [](void*) { serving = nullptr; });
    serving = &connection;
    bool closed = false;
    const std::function<void(httplib::Request&)> nothing = [](httplib::Request&) {};
    if constexpr (requires { this->process_request(stream, true, closed, nothing); })
      return this->process_request(stream, true, closed, nothing);
    else
      return this->process_request(stream, std::string(), 0, std::string(), 0, true, closed, nothing);
  }

  const ServerOptions& options_;
  const std::atomic<bool>& stopping_;
};

}  // namespace

std::string Request::text(const std::string& name) const {
  const auto it = query.find(name);
  return it == query.end() ? std::string() : it->second;
}

std::optional<int64_t> Request::number(const std::string& name, int64_t low, int64_t high) const {
  const auto value = text(name);
  int64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (value.empty() || error != std::errc() || end != value.data() + value.size() || out < low || out > high)
    return std::nullopt;
  return out;
}

Reply html(std::string body) {
  return {200, "text/html; charset=utf-8", std::move(body)};
}
Reply script(std::string body) {
  return {200, "application/javascript; charset=utf-8", std::move(body)};
}
Reply style(std::string body) {
  return {200, "text/css; charset=utf-8", std::move(body)};
}
Reply json(std::string body) {
  return {200, "application/json; charset=utf-8", std::move(body)};
}
Reply png(std::string body) {
  return {200, "image/png", std::move(body)};
}
Reply not_found(std::string why) {
  return {.status = 404, .body = std::move(why)};
}
Reply not_now(std::string why) {
  return {.status = 503, .body = std::move(why)};
}

void check_access(const ServerOptions& o) {
  if (o.token.empty()) {
    if (!is_loopback(o.host))
      core::usage_error(
          kWeb, fmt::format("--host {} lets others in; give --token WORD too (or --token auto)", o.host));
    return;
  }
  if (o.token.size() < 8)
    core::usage_error(kWeb, "--token is too short to be a secret; take 8 characters or more, or `auto`");
  // Others would have to be escaped in the address, or would end the cookie.
  if (o.token.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") !=
      std::string::npos)
    core::usage_error(kWeb, "--token may hold letters, digits and -_. only");
}

bool is_loopback(const std::string& host) {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  return host == "localhost" || host == "::1";
}

std::string make_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    core::run_error(kWeb, "the system gives no random numbers for a token");
  std::string out;
  for (const auto b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

struct Server::Impl {
  ServerOptions options;
  std::atomic<bool> stopping{false};
  std::atomic<int> streams{0};
  std::atomic<size_t> held{0};  // bytes of large replies that are not taken yet
  BoundedServer http;
  std::map<std::string, Handler> handlers;
  std::map<std::string, std::function<Events(const Request&)>> streams_of;
  std::string own_name;
  std::thread thread;
  socket_t listening = -1;
  int port = 0;

  explicit Impl(ServerOptions o) : options(std::move(o)), http(options, stopping) {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) == 0) own_name = lower(name);
    http.new_task_queue = [this] { return new Connections(options.max_connections); };
    // The library's default shares a port among servers without a word.
    http.set_socket_options([this](socket_t socket) {
      listening = socket;
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    // Everything is decided here: no route of the library, no pattern, no file.
    http.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      try {
        answer(request, response);
      } catch (const std::exception& e) {
        send(response, {.status = 500, .body = std::string(e.what()) + "\n"});
      } catch (...) {
        send(response, {.status = 500, .body = "An unknown failure.\n"});
      }
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  static void protect(httplib::Response& r) {
    r.set_header("Content-Security-Policy",
                 "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                 "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    r.set_header("X-Content-Type-Options", "nosniff");
    r.set_header("X-Frame-Options", "DENY");
    r.set_header("Referrer-Policy", "no-referrer");
    r.set_header("Cross-Origin-Resource-Policy", "same-origin");
    r.set_header("Cross-Origin-Opener-Policy", "same-origin");
    r.set_header("Cache-Control", "no-store");
  }

  void send(httplib::Response& r, Reply reply) {
    if (reply.body.size() > kSmallReply && !hold(reply.body.size()))
      reply = not_now("Large replies wait for others to take them; try again.\n");
    r.status = reply.status;
    r.headers.erase("Content-Type");
    r.set_header("Content-Type", reply.type);
    r.body = std::move(reply.body);  // set_content() would copy it
  }

  // A place among the large replies until this one is taken or its connection ends. One alone may be larger
  // than all together: it would never find a place.
  bool hold(size_t bytes) {
    if (serving == nullptr) return true;
    const size_t before = held.fetch_add(bytes);
    if (before > 0 && before + bytes > options.max_held) {
      held -= bytes;
      return false;
    }
    serving->place = std::shared_ptr<void>(nullptr, [this, bytes](void*) { held -= bytes; });
    return true;
  }

  // Pages of other sites cannot read what is answered here, but they could order work: with an <img> of a
  // long address. Browsers say where a request comes from; a link to the page itself may come from anywhere.
  static bool ordered_elsewhere(const httplib::Request& q) {
    const auto from = q.get_header_value("Sec-Fetch-Site");
    if (from.empty() || from == "same-origin" || from == "none") return false;
    return q.path != "/" || q.get_header_value("Sec-Fetch-Mode") != "navigate";
  }

  // Another site can point a name of its own at this machine; it cannot make a browser send another name.
  bool knows(const std::string& host_header) const {
    const auto name = host_name(host_header);
    if (name == "localhost" || is_loopback(name)) return true;
    if (is_loopback(options.host)) return false;
    return is_ip_literal(name) || name == lower(options.host) || (!own_name.empty() && name == own_name);
  }

  std::string cookie_name() const { return fmt::format("ebclr_{}", port); }

  void answer(const httplib::Request& q, httplib::Response& r) {
    protect(r);
    if (q.method != "GET") {
      r.set_header("Allow", "GET");
      return send(r, {.status = 405, .body = "Only GET is understood.\n"});
    }
    if (q.get_header_value_count("Host") != 1 || !knows(q.get_header_value("Host")))
      return send(r, {.status = 403, .body = "This server does not answer to that name; use localhost.\n"});
    if (ordered_elsewhere(q))
      return send(r,
                  {.status = 403, .body = "Pages of other sites get nothing here; open this one itself.\n"});
    Request request{q.path, {}};
    for (const auto& [name, value] : q.params) request.query.emplace(name, value);
    request.given_up = [this, socket = serving == nullptr ? -1 : serving->socket] {
      return stopping || (socket >= 0 && gone(socket));
    };
    if (!options.token.empty()) {
      const bool told = request.query.count("token") > 0;
      const auto header = q.get_header_value("Authorization");
      const auto given = told ? request.text("token")
                         : header.starts_with("Bearer ")
                             ? header.substr(7)
                             : cookie(q.get_header_value("Cookie"), cookie_name());
      if (!same_secret(given, options.token))
        return send(
            r, {.status = 401, .body = "This page needs its token: open the address that was printed.\n"});
      if (told && request.path == "/") {
        // From here on a cookie carries it: it does not stay in the address. A strict one would not be sent
        // after a click on another site, in a mail or a notebook; a lax one goes with such clicks alone.
        r.set_header("Set-Cookie",
                     fmt::format("{}={}; Path=/; HttpOnly; SameSite=Lax", cookie_name(), options.token));
        r.set_header("Location", "/");
        return send(r, {.status = 303});
      }
    }
    if (const auto it = handlers.find(request.path); it != handlers.end())
      return send(r, it->second(request));
    if (const auto it = streams_of.find(request.path); it != streams_of.end())
      return stream(r, it->second, request);
    send(r, not_found());
  }

  void stream(httplib::Response& r, const std::function<Events(const Request&)>& make,
              const Request& request) {
    if (streams.fetch_add(1) >= options.max_streams) {
      --streams;
      return send(r, {.status = 503, .body = "Too many pages are listening; close one.\n"});
    }
    // Counted down when the last copy of the provider is gone, however the connection ends.
    const std::shared_ptr<void> place(nullptr, [this](void*) { --streams; });
    auto events = make(request);
    auto last = Clock::now();
    r.status = 200;
    const auto tell = [this, events, place, last](size_t, httplib::DataSink& sink) mutable {
      if (!sink.is_writable()) return false;  // the listener has gone
      const auto text = stopping ? std::nullopt : events();
      if (!text) {
        sink.done();
        return true;
      }
      std::string out;
      if (!text->empty()) {
        // No event of ours has line ends of its own, but one that had would stay one event.
        out = "data: ";
        for (const char c : *text) out += c == '\n' ? std::string("\ndata: ") : std::string(1, c);
        out += "\n\n";
      } else if (Clock::now() - last > std::chrono::seconds(10)) {
        out = ":\n\n";  // still here
      }
      if (out.empty()) return true;
      last = Clock::now();
      return sink.write(out.data(), out.size());
    };
    r.set_chunked_content_provider("text/event-stream", tell);
  }
};

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() {
  stop();
}

void Server::get(const std::string& path, Handler handler) {
  impl_->handlers[path] = std::move(handler);
}

void Server::events(const std::string& path, std::function<Events(const Request&)> make) {
  impl_->streams_of[path] = std::move(make);
}

void Server::start() {
  auto& s = *impl_;
  check_access(s.options);
  const int last = s.options.port == 0 ? 0 : std::min(65535, s.options.port + s.options.more_ports);
  for (int port = s.options.port; port <= last && s.port == 0; ++port) {
    if (port == 0) {
      s.port = std::max(0, s.http.bind_to_any_port(s.options.host.c_str()));
    } else if (s.http.bind_to_port(s.options.host.c_str(), port)) {
      s.port = port;
    } else {
      s.http.stop();  // from 0.15 on the library binds nothing after a failure until it is stopped
    }
  }
  if (s.port == 0)
    core::run_error(kWeb, fmt::format("cannot listen on {} port {}; is it taken? --port N chooses another",
                                      s.options.host, s.options.port));
  // The library lets five connections wait, a browser with two pages makes more at once.
  ::listen(s.listening, 128);
  s.thread = std::thread([&s] {
    // Threads that are made here inherit it: a training in the same process comes first.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    try {
      s.http.listen_after_bind();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the page is lost, the training is not
    }
  });
}

void Server::stop() {
  auto& s = *impl_;
  s.stopping = true;
  if (!s.thread.joinable()) return;
  // stop() does nothing before the thread listens.
  for (int i = 0; i < 500 && !s.http.is_running(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  s.http.stop();
  s.thread.join();
}

int Server::port() const {
  return impl_->port;
}

std::string Server::address() const {
  const auto& o = impl_->options;
  const std::string name = o.host == "0.0.0.0" || o.host == "::" ? impl_->own_name : o.host;
  return fmt::format("http://{}:{}/{}", name.find(':') == std::string::npos ? name : "[" + name + "]",
                     impl_->port, o.token.empty() ? "" : "?token=" + o.token);
}

std::string Server::caution() const {
  if (is_loopback(impl_->options.host)) return {};
  return fmt::format(
      "everybody who reaches this machine and has the token sees this page; the connection is not encrypted. "
      "An SSH tunnel needs no --host: ssh -L {0}:127.0.0.1:{0} THIS-MACHINE",
      impl_->port);
}

std::string Server::reply_to(const std::string& request) {
  return impl_->http.reply_to(request);
}

int Server::listeners() const {
  return impl_->streams;
}

}  // namespace ebclr::web
