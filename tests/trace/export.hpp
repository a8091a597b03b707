// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sqlite3.h>

/// Small exports of Nsight Systems, made of SQL.
namespace stretto {

inline void write_export(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* database = nullptr;
  int result = sqlite3_open(path.c_str(), &database);
  if (result == SQLITE_OK) {
    result = sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr);
  }
  const std::string message = sqlite3_errmsg(database);
  sqlite3_close(database);
  if (result != SQLITE_OK) {
    throw std::runtime_error("the sample is no SQL: " + message);
  }
}

/// The tables of nsys 2026, without the columns that nobody reads.
inline std::string new_schema() {
  return R"sql(
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
      streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
      streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
      correlationId INTEGER, nameId INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, globalTid INTEGER, text TEXT,
      textId INTEGER, binaryData BLOB);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
  )sql";
}

struct PayloadField {
  std::size_t offset;
  std::size_t width;
  std::uint64_t value;
};

/// A range of NCCL in the main thread of process 5, with its payload as nsys stores it: a head of
/// 32 bytes (domain, schema, sizes), then the communicator and the fields. Without a schema: none.
inline std::string nccl_range(std::int64_t begin,
                              std::int64_t end,
                              std::string_view name,
                              std::uint32_t schema,
                              std::uint64_t communicator,
                              const std::vector<PayloadField>& fields) {
  std::string payload = "NULL";
  if (schema != 0) {
    constexpr std::size_t kHead = 32;
    constexpr std::size_t kData = 24;
    std::vector<unsigned char> bytes(kHead + kData);
    const auto put = [&](std::size_t at, std::size_t width, std::uint64_t value) {
      for (std::size_t i = 0; i < width; ++i) {
        bytes[at + i] = static_cast<unsigned char>(value >> (8 * i));
      }
    };
    put(0, 4, 1);
    put(8, 4, schema);
    put(16, 8, kData);
    put(24, 8, kHead + kData);
    put(kHead, 8, communicator);
    for (const PayloadField& field : fields) {
      put(kHead + field.offset, field.width, field.value);
    }
    constexpr std::string_view kDigits = "0123456789abcdef";
    payload = "x'";
    for (const unsigned char byte : bytes) {
      payload += kDigits[byte >> 4U];
      payload += kDigits[byte & 0xfU];
    }
    payload += "'";
  }
  return "INSERT INTO NVTX_EVENTS VALUES (" + std::to_string(begin) + ", " + std::to_string(end) +
         ", 59, 0x1000005000005, '" + std::string(name) + "', NULL, " + payload + ");";
}

}  // namespace stretto
