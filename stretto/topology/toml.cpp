// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/toml.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
// Its assertions are about input too (`["a", }`): a file that is wrong must not end the program.
// Without them, as in a release build, it says what is wrong.
// NOLINTNEXTLINE(readability-identifier-naming): its name
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

constexpr std::int64_t kMostHosts = 4096;
constexpr std::int64_t kMostDevices = 1024;
/// A document nested deeper is no topology, and the parser would recurse.
constexpr std::size_t kMostBrackets = 64 * 1024;

/// Characters beyond ASCII make toml++ 3.3 leave the defined (is_non_ascii_horizontal_whitespace()
/// ends in "unreachable" for most of them): in comments they are replaced, elsewhere refused.
std::string only_ascii(std::string_view text, std::string_view where) {
  std::string result(text);
  char quoted = 0;
  bool comment = false;
  std::size_t line = 1;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const char c = result[i];
    if (c == '\n') {
      quoted = 0;
      comment = false;
      ++line;
      begin = i + 1;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (!comment) {
        throw Error(ErrorCode::kParse,
                    {"a character that is not ASCII",
                     fmt::format("{}:{}:{}", where, line, i - begin + 1),
                     "",
                     "ASCII, but for comments",
                     ""});
      }
      result[i] = '?';
    } else if (quoted != 0) {
      quoted = c == quoted ? '\0' : quoted;
    } else if (c == '"' || c == '\'') {
      quoted = comment ? '\0' : c;
    } else if (c == '#') {
      comment = true;
    }
  }
  return result;
}

class Document {
 public:
  Document(std::string_view text, std::string_view where) : where_(where) {
    const std::string ascii = only_ascii(text, where);
    try {
      root_ = toml::parse(ascii, where_);
    } catch (const toml::parse_error& error) {
      fail(error.source(), std::string(error.description()), "", "TOML");
    }
  }

  [[nodiscard]] const toml::table& root() const noexcept { return root_; }

  [[noreturn]] void fail(const toml::source_region& region,
                         std::string message,
                         std::string found,
                         std::string expected,
                         std::string help = {}) const {
    throw Error(ErrorCode::kParse,
                {std::move(message),
                 region.begin.line == 0
                     ? where_
                     : fmt::format("{}:{}:{}", where_, region.begin.line, region.begin.column),
                 std::move(found),
                 std::move(expected),
                 std::move(help)});
  }

  template <std::size_t N>
  void allow_only(const toml::table& table, const std::array<std::string_view, N>& known) const {
    for (const auto& [key, value] : table) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
        fail(key.source(), "unknown key " + quote(key.str()), "", "", suggest(key.str(), known));
      }
    }
  }

  [[nodiscard]] std::string text(const toml::node& node, std::string_view key) const {
    const auto value = node.value_exact<std::string>();
    if (!value) {
      fail(node.source(), fmt::format("'{}' is not a text", key), "", "a text in quotes");
    }
    return *value;
  }

  [[nodiscard]] std::int64_t integer(const toml::node& node,
                                     std::string_view key,
                                     std::int64_t least,
                                     std::int64_t most) const {
    const auto value = node.value_exact<std::int64_t>();
    if (!value || *value < least || *value > most) {
      fail(node.source(),
           fmt::format("'{}' is not possible", key),
           value ? std::to_string(*value) : "something else",
           fmt::format("a whole number from {} to {}", least, most));
    }
    return *value;
  }

  [[nodiscard]] LinkFigures link(const toml::node& node, std::string_view key) const {
    const toml::table* const table = node.as_table();
    if (table == nullptr) {
      fail(node.source(),
           fmt::format("'{}' is not a link", key),
           "",
           "{ bandwidth = \"50GB/s\", latency = \"10us\" }");
    }
    constexpr std::array<std::string_view, 2> kKeys = {"bandwidth", "latency"};
    allow_only(*table, kKeys);
    LinkFigures figures;
    const auto read = [&](std::string_view name, auto parse) {
      const toml::node* const value = table->get(name);
      if (value == nullptr) {
        fail(node.source(), fmt::format("'{}' has no {}", key, name), "", "both");
      }
      const std::string words = text(*value, name);
      try {
        return parse(words);
      } catch (const Error& error) {
        fail(
            value->source(), error.detail().message, error.detail().found, error.detail().expected);
      }
    };
    figures.bandwidth =
        read("bandwidth", [](const std::string& words) { return parse_bandwidth(words); });
    figures.latency =
        read("latency", [](const std::string& words) { return parse_duration(words); });
    return figures;
  }

 private:
  std::string where_;
  toml::table root_;
};

std::vector<std::string> host_names(const Document& document, const toml::node& node) {
  std::vector<std::string> names;
  if (const toml::array* const list = node.as_array()) {
    for (const toml::node& name : *list) {
      names.push_back(document.text(name, "hosts"));
    }
  } else {
    const std::int64_t count = document.integer(node, "hosts", 1, kMostHosts);
    for (std::int64_t h = 0; h < count; ++h) {
      names.push_back(fmt::format("host{}", h));
    }
  }
  if (names.empty() || static_cast<std::int64_t>(names.size()) > kMostHosts) {
    document.fail(node.source(),
                  "the number of hosts is not possible",
                  std::to_string(names.size()),
                  fmt::format("1 to {}", kMostHosts));
  }
  return names;
}

std::vector<int> ranks_of(const Document& document, const toml::node& node) {
  std::vector<int> ranks;
  const toml::array* const hosts = node.as_array();
  if (hosts == nullptr) {
    document.fail(node.source(), "'ranks' is not a list", "", "one list for each host");
  }
  for (const toml::node& host : *hosts) {
    const toml::array* const list = host.as_array();
    if (list == nullptr) {
      document.fail(host.source(), "'ranks' of a host are not a list", "", "a list of ranks");
    }
    for (const toml::node& rank : *list) {
      ranks.push_back(
          static_cast<int>(document.integer(rank, "ranks", 0, kMostHosts * kMostDevices)));
    }
  }
  return ranks;
}

}  // namespace

Topology topology_from_toml(std::string_view text, std::string_view where) {
  if (static_cast<std::size_t>(std::count(text.begin(), text.end(), '[')) +
          static_cast<std::size_t>(std::count(text.begin(), text.end(), '{')) >
      kMostBrackets) {
    throw Error(ErrorCode::kParse,
                {"this is too much for a topology", std::string(where), "", "ten lines", ""});
  }
  const Document document(text, where);
  const toml::table& root = document.root();
  constexpr std::array<std::string_view, 8> kKeys = {
      "name", "hosts", "devices", "sockets", "inside", "socket", "network", "ranks"};
  document.allow_only(root, kKeys);
  const auto required = [&](std::string_view key) -> const toml::node& {
    const toml::node* const node = root.get(key);
    if (node == nullptr) {
      document.fail(root.source(), fmt::format("the topology has no '{}'", key), "", "one");
    }
    return *node;
  };
  Topology topology;
  topology.name = std::string(where);
  topology.source = fmt::format("{}: written by hand", where);
  if (const toml::node* const name = root.get("name")) {
    topology.name = document.text(*name, "name");
  }
  const std::vector<std::string> names = host_names(document, required("hosts"));
  const std::int64_t devices = document.integer(required("devices"), "devices", 1, kMostDevices);
  std::int64_t sockets = 1;
  if (const toml::node* const node = root.get("sockets")) {
    sockets = document.integer(*node, "sockets", 1, devices);
    if (devices % sockets != 0) {
      document.fail(node->source(),
                    "the devices do not divide among the sockets",
                    fmt::format("{} devices, {} sockets", devices, sockets),
                    "a number of sockets that divides the devices");
    }
  }
  topology.inside = document.link(required("inside"), "inside");
  if (const toml::node* const node = root.get("socket")) {
    topology.socket = document.link(*node, "socket");
  }
  if (names.size() > 1) {
    topology.network = document.link(required("network"), "network");
  } else if (const toml::node* const node = root.get("network")) {
    topology.network = document.link(*node, "network");
  }
  for (const std::string& name : names) {
    Host host;
    host.name = name;
    for (std::int64_t d = 0; d < devices; ++d) {
      const int socket = static_cast<int>(d / (devices / sockets));
      host.places.push_back({fmt::format("device {}", d), static_cast<int>(d), socket, socket, {}});
    }
    topology.hosts.push_back(std::move(host));
  }
  if (const toml::node* const node = root.get("ranks")) {
    topology.rank_at = ranks_of(document, *node);
    try {
      check(topology);
    } catch (const Error& error) {
      document.fail(
          node->source(), error.detail().message, error.detail().found, error.detail().expected);
    }
  }
  return topology;
}

}  // namespace stretto
