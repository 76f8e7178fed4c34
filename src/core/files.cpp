#include "core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "core/error.h"

namespace ebclr::core {
namespace fs = std::filesystem;

namespace {

std::string reason() {
  return errno == ENOSPC ? "the disk is full; free some space and try again" : std::strerror(errno);
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

class Digest {
 public:
  Digest() : ctx_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(ctx_.get(), EVP_sha256(), nullptr); }
  void update(const void* data, size_t size) { EVP_DigestUpdate(ctx_.get(), data, size); }
  std::string hex() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(ctx_.get(), out, &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", out[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> ctx_;
};

}  // namespace

std::vector<std::byte> read_bytes(const fs::path& path, std::string_view component) {
  std::error_code ec;
  if (!fs::exists(path, ec)) usage_error(component, fmt::format("{}: no such file", path.string()));
  if (fs::is_directory(path, ec))
    usage_error(component, fmt::format("{}: is a folder, not a file", path.string()));
  std::ifstream in(path, std::ios::binary);
  if (!in)
    usage_error(component, fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  const auto size = fs::file_size(path, ec);
  std::vector<std::byte> bytes(ec ? 0 : size);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<size_t>(in.gcount()) != bytes.size())
    run_error(component, fmt::format("{}: read {} of {} bytes; the file changed or the disk failed",
                                     path.string(), in.gcount(), bytes.size()));
  return bytes;
}

std::string read_text(const fs::path& path, std::string_view component) {
  const auto bytes = read_bytes(path, component);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

AtomicFile::AtomicFile(fs::path path, std::string_view component)
    : path_(std::move(path)), component_(component) {
  temporary_ = path_;
  temporary_ += fmt::format(".{}.tmp", ::getpid());
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) run_error(component_, fmt::format("{}: cannot be written: {}", path_.string(), reason()));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), reason()));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0)
    run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), reason()));
  ::close(fd_);
  fd_ = -1;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(temporary_.c_str());
    run_error(component_, fmt::format("{}: cannot be put in place: {}", path_.string(), why));
  }
  sync_folder(path_.parent_path());
}

void write_atomically(const fs::path& path, std::string_view text, std::string_view component) {
  AtomicFile file(path, component);
  file.write(text);
  file.commit();
}

std::string sha256(std::span<const std::byte> bytes) {
  Digest digest;
  digest.update(bytes.data(), bytes.size());
  return digest.hex();
}

std::string sha256_file(const fs::path& path, std::string_view component) {
  std::ifstream in(path, std::ios::binary);
  if (!in) usage_error(component, fmt::format("{}: cannot be opened", path.string()));
  Digest digest;
  std::vector<char> buffer(1 << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    digest.update(buffer.data(), static_cast<size_t>(in.gcount()));
  }
  return digest.hex();
}

std::string human_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.0f} kB", bytes / 1e3);
  return fmt::format("{:.0f} bytes", bytes);
}

}  // namespace ebclr::core
