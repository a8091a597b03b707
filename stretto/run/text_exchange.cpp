// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/text_exchange.hpp"

#include <cstring>
#include <span>
#include <vector>

namespace stretto {
namespace {

// Communicators move elements of known types; text travels as padded 32-bit words.
std::vector<std::int32_t> words_for(std::int64_t bytes) {
  return std::vector<std::int32_t>(static_cast<std::size_t>((bytes + 3) / 4));
}

std::vector<std::int32_t> to_words(const std::string& text) {
  auto words = words_for(static_cast<std::int64_t>(text.size()));
  if (!text.empty()) {
    std::memcpy(words.data(), text.data(), text.size());
  }
  return words;
}

std::string to_text(const std::vector<std::int32_t>& words, std::int64_t bytes) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  if (!text.empty()) {
    std::memcpy(text.data(), words.data(), text.size());
  }
  return text;
}

}  // namespace

std::string broadcast_text(Communicator& communicator, const std::string& text, int root) {
  auto bytes = static_cast<std::int64_t>(text.size());
  communicator.broadcast(view(std::span(&bytes, 1)), root).wait();
  auto words = communicator.rank() == root ? to_words(text) : words_for(bytes);
  communicator.broadcast(view(std::span(words)), root).wait();
  return to_text(words, bytes);
}

void send_text(Communicator& communicator, const std::string& text, int to) {
  auto bytes = static_cast<std::int64_t>(text.size());
  communicator.send(view(std::span(&bytes, 1)), to).wait();
  auto words = to_words(text);
  communicator.send(view(std::span(words)), to).wait();
}

std::string receive_text(Communicator& communicator, int from) {
  std::int64_t bytes = 0;
  communicator.recv(view(std::span(&bytes, 1)), from).wait();
  auto words = words_for(bytes);
  communicator.recv(view(std::span(words)), from).wait();
  return to_text(words, bytes);
}

}  // namespace stretto
