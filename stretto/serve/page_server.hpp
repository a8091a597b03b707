// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace stretto {

/// Serves one page to the browsers of this machine, on 127.0.0.1, at an address with a token that
/// nobody can guess. HTTP/1.1, GET and HEAD, one request at a time.
class PageServer {
 public:
  /// @param port 0: a free one.
  /// @throws Error kUnavailable when the port is taken.
  explicit PageServer(int port);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// `http://127.0.0.1:PORT/TOKEN/`
  [[nodiscard]] std::string url() const;
  [[nodiscard]] int port() const noexcept { return port_; }

  /// Answers until `stop`, a file descriptor, can be read (a signalfd, a pipe). `page` is called on
  /// this thread for each request; what it throws is what the browser shows. A client that says
  /// nothing for two seconds is dropped.
  void run(const std::function<std::string()>& page, int stop);

 private:
  int listener_ = -1;
  int port_ = 0;
  std::string token_;
};

}  // namespace stretto
