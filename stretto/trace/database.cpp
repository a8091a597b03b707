// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/database.hpp"

#include <cmath>
#include <cstddef>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace stretto::detail {
namespace {

constexpr std::string_view kMagic("SQLite format 3\0", 16);

// A value that is larger is no name. Bounds what a database made for it can make us allocate.
constexpr int kLargestValueBytes = 64 << 20;

/// As a part of a URI: everything but letters, digits and a few is written as %xx.
std::string escaped(const std::string& path) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
        c == '.' || c == '-' || c == '_') {
      result += c;
    } else {
      result += '%';
      result += kDigits[byte >> 4U];
      result += kDigits[byte & 0xfU];
    }
  }
  return result;
}

std::string as_identifier(std::string_view identifier) {
  std::string result = "\"";
  for (const char c : identifier) {
    result += c;
    if (c == '"') {
      result += c;
    }
  }
  return result + '"';
}

std::string said_by(sqlite3* database) {
  return std::string("SQLite says: ") +
         (database == nullptr ? "out of memory" : sqlite3_errmsg(database));
}

}  // namespace

bool is_database(std::string_view head) noexcept {
  return head.starts_with(kMagic);
}

void Query::Finalize::operator()(sqlite3_stmt* statement) const noexcept {
  sqlite3_finalize(statement);
}

Query::Query(sqlite3* database, const std::string& sql, std::uint64_t most_rows)
    : database_(database), most_rows_(most_rows) {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  statement_.reset(statement);
  if (result != SQLITE_OK) {
    throw BrokenDatabase(said_by(database));
  }
}

bool Query::next() {
  if (!fault_.empty()) {
    return false;
  }
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_DONE) {
    return false;
  }
  ++row_;
  if (result != SQLITE_ROW) {
    fault_ = said_by(database_);
    return false;
  }
  if (row_ > most_rows_) {
    fault_ = "it has more rows than bytes: its pages refer to each other";
    return false;
  }
  return true;
}

std::optional<std::int64_t> Query::integer(int column) const {
  switch (sqlite3_column_type(statement_.get(), column)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(statement_.get(), column);
    case SQLITE_FLOAT: {
      // What went through a data frame with gaps comes out as floating point.
      const double value = sqlite3_column_double(statement_.get(), column);
      constexpr double kExact = 9007199254740992.0;  // 2^53
      if (value == std::floor(value) && std::abs(value) <= kExact) {
        return static_cast<std::int64_t>(value);
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::string_view Query::text(int column) const {
  if (sqlite3_column_type(statement_.get(), column) != SQLITE_TEXT) {
    return {};
  }
  const unsigned char* const data = sqlite3_column_text(statement_.get(), column);
  if (data == nullptr) {
    return {};
  }
  return {reinterpret_cast<const char*>(data),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::string_view Query::blob(int column) const {
  if (sqlite3_column_type(statement_.get(), column) != SQLITE_BLOB) {
    return {};
  }
  const void* const data = sqlite3_column_blob(statement_.get(), column);
  if (data == nullptr) {
    return {};
  }
  return {static_cast<const char*>(data),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

void Database::Close::operator()(sqlite3* database) const noexcept {
  sqlite3_close_v2(database);
}

void Database::open(const std::string& name, int flags) {
  sqlite3* database = nullptr;
  const int result = sqlite3_open_v2(
      name.c_str(), &database, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  database_.reset(database);
  if (result != SQLITE_OK) {
    throw BrokenDatabase(said_by(database));
  }
  // Nothing in a schema may run code of its own, and no value may fill the memory.
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, kLargestValueBytes);
}

Database::Database(const std::filesystem::path& path) {
  // immutable: no lock and no journal file. But it also overlooks a log that holds the newest rows.
  std::error_code error;
  const auto log = std::filesystem::file_size(path.string() + "-wal", error);
  const bool logged = !error && log > 0;
  open("file:" + escaped(std::filesystem::absolute(path).string()) +
           (logged ? "?mode=ro" : "?mode=ro&immutable=1"),
       SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  const auto size = std::filesystem::file_size(path, error);
  bytes_ = error ? 0 : static_cast<std::uint64_t>(size) + (logged ? log : 0);
  read_schema();
}

Database::Database(std::span<char> bytes) : bytes_(bytes.size()) {
  constexpr std::size_t kWriteVersion = 18;
  constexpr std::size_t kReadVersion = 19;
  if (bytes.size() > kReadVersion) {
    for (const std::size_t place : {kWriteVersion, kReadVersion}) {
      bytes[place] = bytes[place] == 2 ? static_cast<char>(1) : bytes[place];
    }
  }
  open(":memory:", SQLITE_OPEN_READWRITE);
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  if (sqlite3_deserialize(database_.get(),
                          "main",
                          reinterpret_cast<unsigned char*>(bytes.data()),
                          size,
                          size,
                          SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) {
    throw BrokenDatabase(said_by(database_.get()));
  }
  read_schema();
}

void Database::read_schema() {
  // Views and virtual tables, which have no root page, would run what their maker wrote.
  std::set<std::string> names;
  Query schema(database_.get(),
               "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0",
               bytes_);
  while (schema.next()) {
    names.emplace(schema.text(0));
  }
  if (!schema.fault().empty()) {
    throw BrokenDatabase(schema.fault());
  }
  for (const std::string& name : names) {
    std::set<std::string, std::less<>>& columns = tables_[name];
    Query info(database_.get(), "PRAGMA table_info(" + as_identifier(name) + ")", bytes_);
    while (info.next()) {
      columns.emplace(info.text(1));
    }
    if (!info.fault().empty()) {
      throw BrokenDatabase(info.fault());
    }
  }
}

bool Database::has(std::string_view table, std::string_view column) const {
  const auto found = tables_.find(table);
  return found != tables_.end() && found->second.contains(column);
}

Query Database::select(std::string_view table,
                       std::initializer_list<std::string_view> columns) const {
  std::string sql = "SELECT ";
  bool first = true;
  for (const std::string_view column : columns) {
    sql += first ? "" : ", ";
    sql += has(table, column) ? as_identifier(column) : "NULL";
    first = false;
  }
  return {database_.get(), sql + " FROM " + as_identifier(table), bytes_};
}

}  // namespace stretto::detail
