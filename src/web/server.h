#pragma once
// A small HTTP server for pages on this machine. Built on cpp-httplib, with what a server needs that lives in
// the process of a training: GET only, one request a connection, few headers, exact paths (no path of a
// request ever reaches the file system), the Host header checked against rebinding, no answers to what other
// sites' pages order, a strict Content-Security-Policy, a token where others can reach it, and bounds in
// size, time and number for all that a client can do. It runs in threads of its own, with low priority; a
// failing request is answered with an error and nothing else happens.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace ebclr::web {

/// What was asked for.
struct Request {
  std::string path;                               ///< exactly as registered
  std::map<std::string, std::string> query = {};  ///< decoded; the first of equal names
  /// Has the client gone, or does the server stop? Long work asks now and then, and ends: nobody will read
  /// it, and the server waits for it.
  std::function<bool()> given_up = [] { return false; };

  /// A value of the query; empty when it is not there.
  std::string text(const std::string& name) const;
  /// A whole number of the query within [low, high]; nothing for anything else.
  std::optional<int64_t> number(const std::string& name, int64_t low, int64_t high) const;
};

/// What is sent back.
struct Reply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
};

/// Replies of common types.
Reply html(std::string body);
Reply script(std::string body);
Reply style(std::string body);
Reply json(std::string body);
Reply png(std::string body);
Reply not_found(std::string why = "There is nothing here.\n");
/// For what was given up, or has to be asked for again.
Reply not_now(std::string why = "Not now; try again.\n");

/// Answers one kind of request; may be called from several threads at once. What it throws becomes an error
/// reply.
using Handler = std::function<Reply(const Request&)>;

/// What a listener hears next: called again and again, may wait up to about a second; empty text when nothing
/// is new, nothing when the stream is to end.
using Events = std::function<std::optional<std::string>()>;

struct ServerOptions {
  std::string host = "127.0.0.1";  ///< an address of this machine; others than loopback need a token
  int port = 8090;
  int more_ports = 0;                           ///< so many ports behind it are tried when it is taken
  std::string token = {};                       ///< not empty: who does not know it gets nothing
  int max_connections = 256;                    ///< at once; others wait
  int max_streams = 32;                         ///< listeners of events among them
  size_t max_head = 8192;                       ///< bytes of a request
  size_t max_target = 4096;                     ///< bytes of its path and query
  std::chrono::milliseconds head_time{5000};    ///< within which a request must have arrived
  std::chrono::milliseconds reply_time{20000};  ///< within which a reply must have been taken
  size_t max_held = 64 << 20;  ///< bytes of large replies that wait to be taken; others get 503 meanwhile
};

/// Throws a usage error for who may look: others without a token, or a token that could be guessed or that an
/// address or a cookie cannot carry.
void check_access(const ServerOptions& options);

/// A server; paths are registered first, then it starts.
class Server {
 public:
  explicit Server(ServerOptions options);
  /// Stops.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Answers GET of a path.
  void get(const std::string& path, Handler handler);
  /// Sends server-sent events on a path; the maker is called for each listener with its request.
  void events(const std::string& path, std::function<Events(const Request&)> make);

  /// Binds and serves from its own threads; throws Error when `check_access` does or the port cannot be had.
  void start();
  /// Ends all connections, replies that nobody takes within a second too; returns when the last thread is
  /// gone.
  void stop();

  /// The port that was bound.
  int port() const;
  /// What to open in a browser, with the token.
  std::string address() const;
  /// What whoever lets others in should know, for one line of the terminal; empty where nobody else can look.
  std::string caution() const;
  /// What these bytes of a request would be answered, without a network: for tests. Empty for one that is not
  /// complete or too long.
  std::string reply_to(const std::string& request);
  /// Event streams open now.
  int listeners() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Is this an address that only this machine reaches?
bool is_loopback(const std::string& host);
/// A token that cannot be guessed.
std::string make_token();

}  // namespace ebclr::web
