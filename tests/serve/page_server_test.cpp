// SPDX-License-Identifier: Apache-2.0
#include "stretto/serve/page_server.hpp"

#include <array>
#include <stdexcept>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stretto/base/error.hpp"
#include "stretto/serve/http_response.hpp"

namespace stretto {
namespace {

const detail::Served kServed = {"t0ken", 4711, [] { return std::string("<p>page</p>"); }};

std::string status(const std::string& request) {
  const std::string response = detail::http_response(request, kServed);
  EXPECT_NE(response.find("\r\n\r\n"), std::string::npos);
  return response.substr(9, 3);
}

TEST(HttpResponse, ThePageIsAtItsTokenAndNowhereElse) {
  const std::string host = "Host: 127.0.0.1:4711\r\n";
  EXPECT_EQ(status("GET /t0ken/ HTTP/1.1\r\n" + host), "200");
  EXPECT_EQ(status("HEAD /t0ken/ HTTP/1.1\r\nhOST:  localhost:4711 \r\n"), "200");
  for (const char* target : {"/", "/t0ken", "/t0ken/x", "/T0KEN/", "/t0ken/../", "*", ""}) {
    EXPECT_EQ(status("GET " + std::string(target) + " HTTP/1.1\r\n" + host), "404") << target;
  }
  EXPECT_EQ(status("POST /t0ken/ HTTP/1.1\r\n" + host), "405");
  EXPECT_EQ(status("GET /t0ken/\r\n" + host), "400");
  EXPECT_EQ(status("GET /t0ken/ HTTP/2\r\n" + host), "400");
}

TEST(HttpResponse, AnotherHostIsRefusedWhateverItAsks) {
  for (const char* host : {"Host: evil.example\r\n",
                           "Host: 127.0.0.1\r\n",
                           "Host: 127.0.0.1:80\r\n",
                           "Host: 127.0.0.1:4711.evil.example\r\n",
                           "Host: 127.0.0.1:4711\r\nHost: evil.example\r\n",
                           "X: y\r\n",
                           ""}) {
    EXPECT_EQ(status("GET /t0ken/ HTTP/1.1\r\n" + std::string(host)), "403") << host;
  }
}

TEST(HttpResponse, WhatThePageThrowsIsTextAndHeadHasNoBody) {
  const detail::Served broken = {"t", 1, []() -> std::string { throw std::runtime_error("why"); }};
  const std::string response =
      detail::http_response("GET /t/ HTTP/1.1\r\nHost: localhost:1\r\n", broken);
  EXPECT_EQ(response.substr(9, 3), "500");
  EXPECT_TRUE(response.ends_with("\r\n\r\nwhy\n"));
  const std::string head =
      detail::http_response("HEAD /t0ken/ HTTP/1.1\r\nHost: localhost:4711\r\n", kServed);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_NE(head.find("Content-Length: 11\r\n"), std::string::npos);
}

/// All that comes back.
std::string exchange(int port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): as sockets are
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string response;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = recv(fd, part.data(), part.size(), 0)) > 0;) {
    response.append(part.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  return response;
}

TEST(PageServer, ServesUntilItIsStopped) {
  std::array<int, 2> stop{};
  ASSERT_EQ(pipe(stop.data()), 0);
  PageServer server(0);
  const std::string large(3'000'000, 'x');
  int calls = 0;
  std::thread thread([&] {
    server.run(
        [&] {
          ++calls;
          return large;
        },
        stop[0]);
  });
  const std::string path = server.url().substr(server.url().find('/', 7));
  const std::string host = "Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n\r\n";
  EXPECT_TRUE(exchange(server.port(), "GET " + path + " HTTP/1.1\r\n" + host).ends_with(large));
  EXPECT_EQ(exchange(server.port(), "GET / HTTP/1.1\r\n" + host).substr(9, 3), "404");
  EXPECT_EQ(exchange(server.port(), std::string(20'000, 'a')), "");
  ASSERT_EQ(write(stop[1], "x", 1), 1);
  thread.join();
  EXPECT_EQ(calls, 1);
  close(stop[0]);
  close(stop[1]);
}

TEST(PageServer, APortThatIsTakenIsAnError) {
  const PageServer first(0);
  try {
    const PageServer second(first.port());
    FAIL() << "took a port that was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(error.detail().where.find(std::to_string(first.port())), std::string::npos);
  }
}

}  // namespace
}  // namespace stretto
